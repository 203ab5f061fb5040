"""tfm-bench scaling: what it runs, what it skips and why, and that table, CSV, JSON, SVG and report say the same.

usage: test_scaling.py BIN_FOLDER
"""
import csv
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

BIN = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
# What a run does besides training must not stand in the way of a benchmark.
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 32, n_layers: 2, n_heads: 4, max_seq_len: 32}
train: {steps: 400, global_batch_size: 8, micro_batch_size: 2, seq_len: 32}
schedule: {type: wsd, warmup_steps: 40, decay_steps: 100}
data:
  train: {type: text, path: text.txt, shuffle: true}
  validation: {type: text, path: text.txt}
eval: {every: 6, batches: 2, stop: {patience: 2}}
checkpoint: {dir: checkpoints, every: 4}
metrics: {jsonl: metrics.jsonl, tensorboard: events, listen: "127.0.0.1:9750"}
"""
PAIRS = """
model: {family: encoder_decoder, vocab_size: 264, d_model: 32, n_encoder_layers: 1, n_decoder_layers: 1, n_heads: 4, max_seq_len: 32}
train: {global_batch_tokens: 256, seq_len: 32}
data: {train: {type: pairs, path: pairs.tsv}}
"""
LAUNCHER = f"""#!/bin/sh
echo "$*" >> launched.txt
env | grep '^OMPI' >> leaked.txt
exec {ROOT}/tests/mpirun.sh "$@"
"""
RESULTS = ["step_seconds", "tokens_per_second", "predicted_tokens_per_second", "tokens_per_step", "threads", "cores", "ranks_per_host", "oversubscribed"]


def scaling(*args, config="cfg.yaml", code=0, within=()):
    for file in ("s.csv", "s.json", "s.svg"):
        pathlib.Path(file).unlink(missing_ok=True)
    command = [*within, str(BIN / "tfm-bench"), "scaling", config, *map(str, args), "--steps", "2", "--warmup", "1"]
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS" and not k.startswith("OMPI")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == code, f"{command}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def measure(*args, **more):
    out = scaling(*args, "--csv", "s.csv", "--json", "s.json", "--svg", "s.svg", **more)
    result = json.load(open("s.json"))
    points = result["points"]
    check_files_agree(points)
    for p in points:
        rows = [line.split() for line in out.splitlines() if line.startswith(p["mode"])]
        assert any(p["skipped"] in " ".join(r) if p["skipped"] else f"{p['tokens_per_second']:.1f}" in r for r in rows), out
        if p["skipped"]:
            assert all(p[key] is None for key in [*RESULTS, "efficiency"]), p
            continue
        assert all(p[key] is not None for key in RESULTS), p
        assert p["step_seconds_min"] <= p["step_seconds"] <= p["step_seconds_max"] and p["predicted_tokens_per_second"] > 0, p
        for rate, seconds in (("", ""), ("_min", "_max"), ("_max", "_min")):
            assert abs(p["tokens_per_second" + rate] * p["step_seconds" + seconds] / p["tokens_per_step"] - 1) < 1e-9, p
        base = next(b for b in points if b["axis"] == p["axis"] and not b["skipped"])
        if base["oversubscribed"] or p["oversubscribed"]:
            assert p["efficiency"] is None, p
        else:
            assert abs(p["efficiency"] / (p["tokens_per_second"] / p["ranks"] * base["ranks"] / base["tokens_per_second"]) - 1) < 1e-9, p
    assert not [f for f in os.listdir() if f.startswith("tfm-bench") or f in ("checkpoints", "metrics.jsonl", "events")], os.listdir()
    return result, points


def check_files_agree(points):
    rows = list(csv.DictReader(open("s.csv")))
    read = lambda text, like: None if text == "" else text if isinstance(like, str) else json.loads(text)
    assert [{key: read(text, p[key]) for key, text in row.items()} for row, p in zip(rows, points, strict=True)] == points, rows
    drawing = xml.etree.ElementTree.parse("s.svg").getroot()
    assert drawing.tag.endswith("svg")
    marks = [e for e in drawing if e.tag.endswith("circle")]
    assert len(marks) == sum(not p["skipped"] for p in points)
    assert sum(e.get("fill") == "white" for e in marks) == sum(bool(p["oversubscribed"]) for p in points)
    words = [e.text for e in drawing if e.tag.endswith("text")]
    for name in {" ".join(filter(None, (p["mode"], p["axis"]))) for p in points if not p["skipped"]}:
        assert {name + " scaling, measured", name + " scaling, predicted"} <= set(words), words


def check_strong():
    """The global batch stays; what the configuration does not allow is skipped; ranks come in ascending order, once."""
    result, points = measure("--ranks", "2,1,3,2", "--repeats", 2, "--launcher", launcher())
    assert [(p["mode"], p["axis"], p["ranks"]) for p in points] == [("strong", None, n) for n in (1, 2, 3)]
    assert [p["tokens_per_step"] for p in points] == [8 * 32, 8 * 32, None]
    assert points[2]["skipped"].startswith("train.global_batch_size 8 is not divisible by the 3 data-parallel ranks"), points[2]
    assert (result["repeats"], result["steps"], result["warmup"], result["threads"], result["device"]) == (2, 2, 1, 1, "cpu"), result
    assert "measured" in result["prediction"]["rates_from"] and "cpu" in result
    check_launches(result, points)
    assert any(p["step_seconds_min"] < p["step_seconds_max"] for p in points[:2]), points
    reported = pathlib.Path("reported")
    reported.mkdir()
    for file in ("s.csv", "s.json"):
        pathlib.Path(file).rename(reported / file)
    report = subprocess.run([str(BIN / "tfm-report"), "reported", "-o", "r.html"], capture_output=True, text=True)
    assert report.returncode == 0 and "skipped" not in report.stdout + report.stderr, report
    table = pathlib.Path("r.html").read_text().split('<section id="scaling"')[1].split("<table")[1].split("</table>")[0]
    assert table.count("<td>strong scaling</td>") == 2 and "predicted tokens/s" in table, table


def check_weak():
    """The global batch is the configured one times the ranks, in sequences and in tokens."""
    result, points = measure("--weak", "--ranks", "1,2", "--axes", "data,tensor")
    assert "{ranks}" in result["launcher"], result["launcher"]
    assert [(p["mode"], p["axis"], p["ranks"], p["tokens_per_step"]) for p in points] == \
        [("weak", axis, n, n * 8 * 32) for axis in ("data", "tensor") for n in (1, 2)], points
    # Sentences of equal length: batches have as many tokens as fit.
    _, points = measure("--weak", "--ranks", "1,2", config="pairs.yaml")
    assert points[1]["tokens_per_step"] == 2 * points[0]["tokens_per_step"] > 256, points
    _, strong = measure("--ranks", "2", config="pairs.yaml")
    assert strong[0]["tokens_per_step"] == points[0]["tokens_per_step"], (strong, points)


def check_axes():
    axes = ["shard", "pipeline", "context"]
    _, points = measure("--ranks", "2", "--axes", ",".join(axes))
    assert [(p["axis"], p["ranks"], p["skipped"]) for p in points] == [(a, 2, None) for a in axes], points
    os.mkfifo("pipe")  # which can be read once
    with subprocess.Popen("cat cfg.yaml > pipe", shell=True):
        _, points = measure("--ranks", "1,2", "--axes", "tensor", config="pipe")
    assert [p["skipped"] for p in points] == [None, None], points
    _, points = measure("--ranks", "3", "--axes", "tensor", code=2)
    assert points[0]["skipped"].startswith("n_heads 4 is not divisible by parallel.tensor 3"), points


def check_a_failure_keeps_what_was_measured():
    fails = "sh -c '[ {ranks} = 1 ] && exec \"$@\"; exit 7' sh"
    for repeats in "1", "2":
        _, points = measure("--ranks", "1,2,3", "--repeats", repeats, "--launcher", fails, code=1)
        assert points[0]["tokens_per_second"] > 0 and points[1]["skipped"] and points[2]["skipped"], points


def launcher():
    pathlib.Path("launcher.sh").write_text(LAUNCHER)
    os.chmod("launcher.sh", 0o755)
    return "./launcher.sh {ranks}"


def check_launches(result, points):
    """The launcher got its number of ranks, in each round all points, and nothing of Open MPI's."""
    launched = [line.split() for line in open("launched.txt")]
    assert [n for n, *_ in launched] == ["1", "2", "1", "2"] and all(pathlib.Path(program).name == "tfm-train" for _, program, _ in launched), launched
    assert open("leaked.txt").read() == "" and result["launcher"] == "./launcher.sh {ranks}"
    assert [p["ranks_per_host"] for p in points] == [1, 2, None]


def check_shared_cores():
    """One core for two ranks: the runs tell, and there is no efficiency."""
    core = str(min(os.sched_getaffinity(0)))
    for ranks, options in ("1,2", []), ("2", ["--launcher", f"{ROOT}/tests/mpirun.sh {{ranks}}"]):
        _, points = measure("--ranks", ranks, *options, within=("taskset", "-c", core))
        found = [(p["cores"], p["oversubscribed"], p["efficiency"]) for p in points]
        assert found == [(1, False, 1), (1, True, None)][-len(ranks.split(",")):], points


def check_what_is_wrong_is_said():
    out = scaling(within=(f"{ROOT}/tests/mpirun.sh", "2"), code=2)
    assert out.count("start it alone") == 1 and "tokens/s" not in out, out
    for args, code, expected in [
            (["--launcher", "srun -n 4"], 2, "{ranks} is missing"), (["--ranks", "1,2x"], 2, "such as 1,2,4"), (["--ranks", "0"], 2, "such as 1,2,4"),
            (["--repeats", "0"], 2, "at least 1"), (["--weak=yes"], 2, "does not take a value"), (["--axes", "tensor,expert"], 2, "'expert' is not an axis"),
            (["--csv", "nowhere/s.csv"], 2, "cannot be written"), (["model.n_layer=2"], 2, "n_layers"), (["--bytes", "1M"], 2, "--bytes"),
            (["data.train.path=gone.txt"], 3, "gone.txt: cannot be opened"), (["--launcher", "no-such-launcher {ranks}"], 4, "could not be started"),
            (["--launcher", "env RANKS={ranks}"], 4, "had 1;"), (["--launcher", "false {ranks}"], 1, "failed"), (["device=cuda"], 4, "device is cuda")]:
        out = scaling("--ranks", "2", *args, code=code)
        assert expected in out, (args, out)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    draw = random.Random(1)
    word = lambda: "".join(draw.choice("abcdefgh") for _ in range(15))
    pathlib.Path("cfg.yaml").write_text(CONFIG)
    pathlib.Path("pairs.yaml").write_text(PAIRS)
    pathlib.Path("text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 300)
    pathlib.Path("pairs.tsv").write_text("".join(f"{word()}\t{word()}\n" for _ in range(400)))
    for check in (check_strong, check_weak, check_axes, check_a_failure_keeps_what_was_measured,
                  check_shared_cores, check_what_is_wrong_is_said):
        check()
        print(check.__name__, "ok", flush=True)
    os.chdir("/")
