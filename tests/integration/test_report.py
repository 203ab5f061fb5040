"""tfm-report on real runs, long ones and damaged ones: what the page holds, that it needs nothing else, that it stays small.

usage: test_report.py BIN_FOLDER
"""
import html.parser
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

BIN = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 32, n_layers: 2, n_heads: 4, max_seq_len: 32}
train: {steps: 12, global_batch_size: 8, micro_batch_size: 2, seq_len: 32}
data:
  train: {type: text, path: text.txt, shuffle: true}
  validation: {type: text, path: text.txt}
eval: {every: 4, batches: 2}
"""
SECTIONS = ["summary", "loss", "evaluation", "optimization", "speed", "time", "memory", "collectives", "configuration"]
VOID = {"meta", "link", "br", "img", "input", "hr"}


def run(ranks, program, *args, code=0):
    command = [str(BIN / program), *map(str, args)]
    if ranks > 0:
        command = [str(ROOT / "tests/mpirun.sh"), str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == code, f"{command}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


class Page(html.parser.HTMLParser):
    """A page whose tags close in order; its sections, headings, tables and texts."""

    def __init__(self, file):
        super().__init__()
        self.text = pathlib.Path(file).read_text()
        self.open, self.ids, self.tables, self.words = [], [], [], []
        self.feed(self.text)
        self.close()
        assert self.open == [], self.open
        assert len(self.ids) == len(set(self.ids)), "an id comes twice"
        for svg in re.findall(r"<svg role=.*?</svg></div>", self.text, re.DOTALL):
            drawing = xml.etree.ElementTree.fromstring(svg.removesuffix("</div>"))
            assert drawing.find("title").text and drawing.find("desc").text
            for path in drawing.iter("path"):
                assert "nan" not in path.get("d") and "inf" not in path.get("d"), path.get("d")
        self.sections = re.findall(r'<section id="(\w+)"', self.text)
        for name in re.findall(r'<a href="#(\w+)"', self.text):
            assert name in self.ids, name

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        for name in ("src", "href", "xlink:href", "srcset", "action"):
            value = attributes.get(name, "#")
            assert value.startswith("#") or value == "data:,", (tag, name, value)
        assert tag not in ("script", "iframe", "object", "embed"), tag
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        self.words.append(data)

    def table(self, first_column, *header):
        return next(t for t in self.tables if t[0][0] == first_column and set(header) <= set(t[0]))


def report(*runs, out="page.html", code=0):
    said = run(0, "tfm-report", *runs, "-o", out, code=code)
    if code:
        return said
    page = Page(out)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", page.text), "the page refers to something outside"
    assert "Content-Security-Policy" in page.text and "prefers-color-scheme:dark" in page.text
    return page, said


def check_a_real_run_with_a_resume():
    run(1, "tfm-train", "cfg.yaml", "train.steps=5", "metrics.jsonl=one/metrics.jsonl", "checkpoint.dir=one/checkpoints")
    run(1, "tfm-train", "cfg.yaml", "metrics.jsonl=one/metrics.jsonl", "checkpoint.dir=one/checkpoints")
    page, said = report("one")
    assert page.sections == SECTIONS and "warning" not in said, (page.sections, said)
    lines = [json.loads(line) for line in open("one/metrics.jsonl")]
    steps = {e["step"]: e for e in lines if e["event"] == "step"}
    loss = page.table("step", "training", "validation")
    assert [row[0] for row in loss[1:]] == [str(s) for s in range(1, 13)]
    for row in loss[1:]:
        assert math.isclose(float(row[1]), steps[int(row[0])]["loss"], rel_tol=1e-6), row
    assert [row[0] for row in loss[1:] if row[2]] == ["4", "5", "8", "12"], loss
    assert page.text.count("<title>resumed from step 5</title>") >= 5
    facts = {row[0]: row[1] for row in page.table("")}
    assert facts["state"] == "finished" and facts["steps"] == "12 of 12" and facts["resumed"] == "from step 5", facts
    for event in steps.values():
        assert math.isclose(sum(event["phases"].values()), event["step_seconds"], rel_tol=1e-9)
        assert event["phases"]["forward"] > 0 and event["phases"]["backward"] > 0 and event["phases"]["other"] > -1e-4
    start = lines[0]
    assert sum(start["memory"].values()) == start["planned_bytes"]
    planned = json.loads(run(0, "tfm-plan", "cfg.yaml", "--ranks", 1, "--json"))
    assert start["memory"] == planned["memory"][0]["categories"] and start["rank_flops_per_step"] == planned["flops_per_step"]
    assert 0 < max(start["activations"]["bytes"]) <= start["memory"]["activations"]
    assert 0 < start["activations"]["backward"] < len(start["activations"]["bytes"]) <= start["activations"]["instructions"]
    parts = {row[0]: row[1] for row in page.table("part", "one")[1:]}
    phases = {name for event in steps.values() for name in event["phases"]}
    for name in phases:  # without the first step, which is slower
        assert parts[name] == seconds_text(sum(steps[s]["phases"].get(name, 0) for s in range(2, 13)) / 11), (name, parts)
    rate = start["rank_flops_per_step"] / (sum(steps[s]["step_seconds"] for s in range(2, 13)) / 11) * 1e-9
    said, = re.findall(r"Matrix products of a rank, in GFLOP/s: A? ?([\d.]+(?:e[-+]\d+)?)", page.text)
    assert math.isclose(float(said.rstrip(".")), rate, rel_tol=0.01), (said, rate)
    # Seconds of steps, evaluations and checkpoints add up to most of the clock's.
    spent = sum(e.get("step_seconds", 0) + e.get("seconds", 0) for e in lines if 5 < e.get("step", 0))
    clock = lines[-1]["time"] - next(e["time"] for e in lines if e["event"] == "start" and e["resumed_step"] == 5)
    assert 0.1 * clock < spent < 1.01 * clock, (spent, clock)


def seconds_text(s):
    return f"{s:.4g} s" if s >= 1 or s == 0 else f"{s * 1e3:.4g} ms" if s >= 1e-3 else f"{s * 1e6:.4g} us"


def points_of(page, figure, style):
    svg, = re.findall(f'<svg role="img" aria-labelledby="{figure}-t {figure}-d".*?</svg></div>', page.text, re.DOTALL)
    path, = re.findall(f'<path class="{style}" d="([^"]*)"', svg)
    return [tuple(map(float, p.split())) for p in re.findall(r"[-\d.]+ [-\d.]+", path)]


def check_axes_and_folders():
    """Over time pauses are left out, over dates they are not; a folder stands for the runs below it."""
    page, _ = report("one")
    starts, steps, elapsed, base = 0, {}, {}, 0
    for e in map(json.loads, open("one/metrics.jsonl")):
        if e["event"] == "start":
            starts, start, base = starts + 1, e["time"], elapsed.get(e["resumed_step"], 0)
        elif e["event"] == "step":
            steps[e["step"]], elapsed[e["step"]] = e["time"], base + e["time"] - start
    assert starts == 2 and elapsed[12] < steps[12] - steps[1], "the pause between the starts"
    for figure, x, first, last in (("fig-loss", {s: s for s in steps}, 0, 12), ("fig-loss-time", elapsed, 0, elapsed[12]),
                                   ("fig-loss-date", steps, steps[1], steps[12])):
        points = points_of(page, figure, "l s0")
        assert len(points) == 12
        for step, point in zip(sorted(x), points):
            assert abs(point[0] - 1000 * (x[step] - first) / (last - first)) < 0.02, (figure, step, point, x, first, last)
    for choice in ("x-step", "x-time", "x-date"):
        assert f'id="{choice}"' in page.text and f'for="{choice}"' in page.text
    assert 'id="l-raw"' not in page.text, "no line is smoothed"
    for run in ("a", "b/c"):
        pathlib.Path("all", run).mkdir(parents=True)
        pathlib.Path("all", run, "metrics.jsonl").write_text(open("one/metrics.jsonl").read())
    both, _ = report("all")
    assert both.table("", "A: one (all/a)", "B: one (all/b/c)") and both.sections[0] == "differences"
    old = re.sub(r',"time":[\d.]+', "", open("one/metrics.jsonl").read())
    pathlib.Path("all/a/metrics.jsonl").write_text(old)  # as earlier versions wrote it
    assert "x-time" not in report("all/a")[0].text.split("</style>")[1]


def check_two_runs_are_compared():
    run(2, "tfm-train", "cfg.yaml", "metrics.jsonl=two/metrics.jsonl", "parallel.tensor=2", "optimizer.lr=0.001")
    page, _ = report("one", "two/metrics.jsonl")
    assert page.sections == ["differences", *SECTIONS]
    keys = {row[0]: row[1:] for row in page.table("key", "A: one", "B: two")[1:]}
    assert not {"run.name", "checkpoint.dir", "metrics.jsonl"} & set(keys), keys
    assert keys["parallel.tensor"] == ["1", "2"] and keys["optimizer.lr"] == ["6e-04", "0.001"] and "model.d_model" not in keys, keys
    planned = json.loads(run(0, "tfm-plan", "cfg.yaml", "parallel.tensor=2", "--ranks", 2, "--json"))["collectives"]
    total = lambda rows, axis: sum(r["bytes"] * r["count"] for r in rows if r["axis"] == axis)
    start = json.loads(open("two/metrics.jsonl").readline())
    assert total(planned, "tensor") > 0
    for axis in ("data", "tensor", "world"):
        assert total(start["collectives"], axis) == total(planned, axis), axis
    assert {row[1] for row in page.table("run", "operation")[1:]} == {c["axis"] for c in planned}
    for style in ("s0", "s1"):
        assert f'class="l {style}"' in page.text
    same, _ = report("one", "one")
    assert "The configurations do not differ." in "".join(same.words)


def check_a_long_run_stays_small():
    """Of 100,000 steps and 10,000 evaluations the page keeps the extremes, and stays under 1 MB."""
    pathlib.Path("long").mkdir()
    with open("long/metrics.jsonl", "w") as file:
        start = open("one/metrics.jsonl").readline()
        file.write(start)
        begin = json.loads(start)["time"]
        for s in range(1, 100001):
            loss = 9.5 if s == 54321 else None if 70000 <= s < 70010 else 1 + 5 / s ** 0.5 + (s * 2654435761 % 1000) / 2e3
            file.write(json.dumps({"event": "step", "step": s, "loss": loss, "grad_norm": 1 / s + 0.1, "lr": 1e-3 * math.exp(-s / 3e4), "tokens": 256,
                                   "tokens_per_second": 1e4 + s % 97, "step_seconds": 0.01, "mfu": 0.4, "loss_scale": 65536,
                                   "phases": {"data": 0.001, "forward": 0.004, "backward": 0.005}, "time": begin + s * 0.11}) + "\n")
            if s % 10 == 0:
                file.write(json.dumps({"event": "eval", "step": s, "split": "validation", "loss": 1.5 + s % 7, "perplexity": 4.4 + s % 9, "seconds": 1}) + "\n")
    page, _ = report("long")
    size = pathlib.Path("page.html").stat().st_size
    assert size < 1e6, size
    assert "highest 9.5" in page.text and "Model FLOPs utilization" in page.text and "Loss scale" in page.text
    facts = {row[0]: row[1] for row in page.table("")}
    assert facts["steps"].startswith("100000") and facts["steps skipped (NaN or Inf)"] == "10 logged", facts
    assert facts["time in steps"] == "16m40s" and facts["time in evaluation"] == "2h46m", facts
    parts = {row[0]: row[1] for row in page.table("part")[1:]}
    assert parts["data"] == "1 ms" and parts["sum"] == "10 ms", parts
    for choice in ("l-both", "l-avg", "l-raw", "x-date"):
        assert f'id="{choice}"' in page.text
    average = points_of(page, "fig-loss", "l s0 avg")
    assert all(abs(a[1] - b[1]) < 60 for a, b in zip(average[50:], average[51:])), "smooth"
    assert facts["state"].startswith("running"), facts
    raw = next(p for p in re.findall(r'<path class="l s0 faint raw" d="([^"]*)"', page.text))
    points = [tuple(map(float, p.split())) for p in re.findall(r"[-\d.]+ [-\d.]+", raw)]
    assert 900 < len(points) <= 1000, len(points)  # two in each of 500 columns
    assert raw.count("M") == 2, "skipped steps leave a gap"
    top = min(points, key=lambda p: p[1])
    assert abs(top[0] - 543.21) < 0.02, top  # the step of the highest loss, in thousandths of the width
    assert len(page.table("step", "training")) <= 61


def check_steps_that_are_not_logged():
    """A line stands for the steps since the one before, whatever metrics.log_every was."""
    pathlib.Path("some").mkdir()
    start, *_ = open("one/metrics.jsonl").read().splitlines(keepends=True)
    step = lambda s: json.dumps({"event": "step", "step": s, "loss": 1, "tokens": 10, "step_seconds": 2}) + "\n"
    resumed = json.dumps({**json.loads(start), "resumed_step": 1000}) + "\n"
    cases = (([start, *map(step, (1, 2, 3))], "30"), ([start, step(50)], "about 500"),
             ([start, step(100), step(150)], "about 1.5k"), ([resumed, step(1001), step(1002)], "20"))
    for lines, tokens in cases:
        pathlib.Path("some/metrics.jsonl").write_text("".join(lines))
        facts = {row[0]: row[1] for row in report("some")[0].table("")}
        assert facts["tokens trained on"] == tokens, facts
    pathlib.Path("some/metrics.jsonl").write_text(start + step(16777217))
    assert report("some")[0].table("step", "training")[1][0] == "16777217"


def check_damage_is_skipped_with_a_note():
    pathlib.Path("damaged").mkdir()
    lines = open("one/metrics.jsonl").read().splitlines()
    at = next(i for i, line in enumerate(lines) if '"step":7,' in line)
    lines[at] = lines[at][:30]
    lines.insert(3, '{"event":"step","step":"x"}')
    lines.insert(3, "\x00\xff<b>&\"")
    lines.insert(3, '{"event":"step","step":2,"loss":"<script>","grad_norm":[],"phases":7}')
    pathlib.Path("damaged/metrics.jsonl").write_text("\n".join(lines[:-1]) + "\n" + '{"event":"st')
    page, said = report("damaged")
    for text in ("3 damaged lines were skipped, the first one is line 5", "the last one, is incomplete"):
        assert text in said and text in page.text, said
    assert "<script" not in page.text
    steps = [row[0] for row in page.table("step", "training")[1:]]
    assert steps == [str(s) for s in range(1, 13) if s != 7], steps
    pathlib.Path("damaged/metrics.jsonl").write_text(lines[0] + "\n")
    page, _ = report("damaged")  # a run that has not done a step yet
    assert "memory" in page.sections and "loss" not in page.sections


def check_scaling():
    pathlib.Path("one/scaling.json").write_text(json.dumps([
        {"scaling": "strong", "ranks": 1, "step_seconds": 1.0, "tokens_per_second": 100.0, "efficiency": 1.0, "oversubscribed": False},
        {"scaling": "strong", "ranks": 2, "step_seconds": 0.6, "tokens_per_second": 180.0, "efficiency": 0.9, "oversubscribed": True},
        {"scaling": "strong", "axis": "tensor", "ranks": 2, "step_seconds": 0.7, "tokens_per_second": 150.0, "efficiency": 0.75, "oversubscribed": False},
        {"scaling": "strong", "axis": "tensor", "ranks": 4, "step_seconds": 0.5, "tokens_per_second": 240.0, "efficiency": 0.6, "oversubscribed": False}]))
    pathlib.Path("one/weak.csv").write_text("mode,ranks,tokens_per_second,predicted_tokens_per_second\nweak,1,100,101\nweak,2,190,199\nweak,x,1,1\n")
    pathlib.Path("one/other.json").write_text("[1, {]")
    page, said = report("one")
    assert "scaling" in page.sections and "weak.csv: 1 row without numbers" in said and "other.json: not JSON, skipped" in said
    rows = page.table("scaling", "ranks")[1:]
    assert rows[0][:4] == ["strong scaling", "1", "100", "1"] and rows[1][5].startswith("oversubscribed") and rows[2][:3] == ["strong tensor scaling", "2", "150"], rows
    assert rows[5][:5] == ["weak scaling", "2", "190", "", "199"], rows
    # Proportional to the ranks from the fewest on, on axes that reach from 0 to 4 % above the highest.
    ideal = [points_of(page, "fig-scaling", f"l s{style} faint") for style in (0, 1, 2)]
    at = lambda ranks, rate: (250 * ranks, round(1000 * (1 - rate / (1.04 * 300)), 2))
    assert ideal == [[at(1, 100), at(2, 200)], [at(2, 150), at(4, 300)], [at(1, 100), at(2, 200)]], ideal


def check_what_is_wrong_is_said():
    pathlib.Path("empty").mkdir()
    pathlib.Path("no_events").mkdir()
    pathlib.Path("no_events/metrics.jsonl").write_text("hello\n")
    for args, code, expected in [(["nowhere", "-o", "x.html"], 3, "nowhere"), (["empty", "-o", "x.html"], 3, "empty: has no metrics.jsonl"),
                                 (["no_events", "-o", "x.html"], 3, "holds no event of a run"), ([], 2, "run directory"), (["one"], 2, "-o FILE.html"),
                                 (["one", "-o"], 2, "needs a value"), (["one", "-o", "nowhere/x.html"], 2, "nowhere/x.html"),
                                 (["one", "--outpt", "x.html"], 2, "did you mean '--output'"), (["one", "-o", "two/../one/metrics.jsonl"], 2, "the page is made from it"),
                                 (["one/metrics.jsonl", "-o", "one/metrics.jsonl"], 2, "the page is made from it"),
                                 (["one", "-o", "one/weak.csv"], 2, "the page is made from it")]:
        said = run(0, "tfm-report", *args, code=code)
        assert expected in said and not pathlib.Path("x.html").exists(), (args, said)
    report("one")  # whose files are as they were


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pathlib.Path("cfg.yaml").write_text(CONFIG)
    pathlib.Path("text.txt").write_text("".join(f"{n} times {n} is {n * n}. " for n in range(2000)))
    for check in (check_a_real_run_with_a_resume, check_axes_and_folders, check_two_runs_are_compared, check_a_long_run_stays_small,
                  check_steps_that_are_not_logged, check_damage_is_skipped_with_a_note, check_scaling,
                  check_what_is_wrong_is_said):
        check()
        print(check.__name__, "ok", flush=True)
