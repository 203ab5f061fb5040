"""docs/scaling.md: its tables and pictures are those of the results beside it, and the script that made them measures.

usage: test_scaling_results.py BIN_FOLDER
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/scaling"


def script(folder, *options):
    done = subprocess.run([sys.executable, ROOT / "tests/acceptance/scaling.py", BIN, folder, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_page(folder):
    page = (ROOT / "docs/scaling.md").read_text().splitlines()
    for file in RESULTS.glob("*.json"):
        shutil.copy(file, folder)
    lines = [line for line in script(folder, "--draw").splitlines() if line.startswith("|")]
    missing = [line for line in lines if line not in page]
    assert len(lines) > 20 and not missing, f"docs/scaling.md lacks lines that tests/acceptance/scaling.py --draw prints: {missing}"
    for picture in ("weak.svg", "strong.svg", "gpus.svg"):
        assert (RESULTS / picture).read_text() == (folder / picture).read_text(), f"docs/scaling/{picture} is not what tests/acceptance/scaling.py --draw draws"


def check_prediction(folder):
    """The figures of GPUs are the planner's of today, and so are the layouts."""
    script(folder, "--only", "gpus")
    then, now = (json.loads((f / "gpus.json").read_text()) for f in (RESULTS, folder))
    assert {name: [r["ranks"] for r in rows] for name, rows in then.items()} == {name: [r["ranks"] for r in rows] for name, rows in now.items()}
    near = lambda a, b: a == b or None not in (a, b) and abs(a / b - 1) < 1e-3
    stale = [f"{name}: {a} is now {b}" for name in then for a, b in zip(then[name], now[name])
             if a["overrides"] != b["overrides"] or not all(near(a[key], b[key]) for key in ("configured", "fastest"))]
    assert not stale, "\n".join([*stale, f"run tests/acceptance/scaling.py {BIN} docs/scaling --only gpus"])


def check_measures(folder):
    for only in ("weak, data, d_model 512", "strong, pipeline"):
        script(folder, "--tiny", "--only", only, "--rounds", "1", "--steps", "1")
    weak, strong = ([r for file in folder.glob(f"{mode}*.json") for r in json.loads(file.read_text())] for mode in ("weak", "strong"))
    assert len(weak) == len(strong) == 1 and weak[0]["beside"]["ranks"] == 1 and "beside" not in strong[0], (weak, strong)
    for mode, r in (("weak", weak[0]), ("strong", strong[0])):
        assert [(p["mode"], p["ranks"], p["skipped"]) for p in r["points"]] == [(mode, 1, None), (mode, 2, None)], r
        assert (folder / f"{mode}.svg").exists()


for check in (check_page, check_prediction, check_measures):
    with tempfile.TemporaryDirectory() as work:
        check(pathlib.Path(work))
    print(check.__name__, "ok", flush=True)
