"""docs/performance.md is what the records in docs/results say: of each measurement on each processor the newest one.

usage: test_results.py [--fix]    --fix writes the page
"""
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "docs/results", ROOT / "docs/performance.md"
REQUIRED = {"measurement", "processor", "machine", "settings", "date", "commit", "command", "figures"}
KNOWN = REQUIRED | {"notes", "not_run", "runs"}
CPU_MODELS = {"gpt2": "GPT-2 124M, 4 x 256", "gpt2-1024": "GPT-2, 4 x 1024", "bert": "BERT base, 8 x 128", "transformer": "Transformer base, 32 x 32",
              "llama": "Llama-style 112M, 4 x 512"}
GPU_MODELS = {"gpt2-124m": "GPT-2 124M, 64 x 1024", "gpt2-1.5b": "GPT-2 1.5B, 32 x 1024", "bert-large": "BERT-large, 128 x 512",
              "transformer-big": "Transformer-big, 780 x 32", "llama-1b": "Llama 1B, 8 x 4096"}


def spread(f, key, unit):
    return f"{f[key]} to {f['most']} {unit}" if "most" in f else f"{f[key]} {unit}"


def cpu_step(f):
    return f"{f['ratio']:.2f}x"


def gpu_step(f):
    ratio = f", {f['ratio']:.2f}x" if "ratio" in f else ""
    return f"{f['tokens_per_second']:,}{ratio}, {f['mfu_percent']}"


def busy(f):
    return f"{f['of_fair_share']}" + (f", {f['gpt2_of_fair_share']}" if "gpt2_ms" in f else "")


def attention(f):
    kinds = [(kind, name) for kind, name in (("own", ""), ("cudnn", "cuDNN ")) if f"{kind}_forward" in f]
    return "; ".join(f"{name}{f[f'{kind}_forward']}, {f[f'{kind}_backward']}" for kind, name in kinds)


def beside_pytorch(f):
    return f"{f['ms']:,} ms, {f['ratio']}x" if "ratio" in f else None


def error(f):
    return f"median {f['median_percent']} %, worst {f['worst_percent']} %"


def percent(f):
    return "; ".join(f.get(case, "-").replace(" %", "") for case in ("gpt2-1.5b on 8", "llama-8b on 8", "llama-8b on 64"))


# Heading, text, and a table: measurement; names of its figures, which are columns (ROWS: they are rows; LIST: no table, LINES: with a
# line for each); how a figure is written (None: not here).
ROWS, LIST, LINES = {}, "list", "lines"
SECTIONS = [
    ("## Training steps on CPUs", "Speed of a step relative to the faster of PyTorch 2.15 eager and compiled on the same cores; AdamW unless said.\n"
     "tfm takes 0.38 to 0.65 of the leaner one's memory.", "step", CPU_MODELS, cpu_step),
    ("## Other figures of CPUs", "Decoding, with the start of `tfm-generate`:", "decoding", LIST, lambda f: spread(f, "seconds", "s")),
    ("", "From the start of `tfm-train` to its first step, GPT-2 124M on 4 x 256 tokens:", "start", LIST, lambda f: spread(f, "seconds", "s")),
    ("", "Step time of jobs that share two cores, relative to the fair share ([busy cores](cpus.md#busy-cores)), of a small\n"
     "model and GPT-2:", "busy-cores", ROWS, busy),
    ("", "Attention, forward and backward (8 heads of 64), and speed relative to PyTorch and transformers:",
     "attention-cpu", LIST, beside_pytorch),
    ("", "Tokens/s with experts, relative to a dense model of the same active size and to transformers' Mixtral, and the time of a\n"
     "step in which all tokens go to one pair, relative to an even load:", "experts-cpu", LIST,
     lambda f: f"{f['tokens_per_second']:,}, {f['of_dense']}x, {f['of_transformers']}x, {f['time_of_one_pair']}x"),
    ("", "Largest relative difference from x86-64 over four steps, of loss and gradient norm:", "arm", LIST, lambda f: f"{f['loss']}, {f['gradient_norm']}"),
    ("## Training on GPUs", "Tokens/s, speed relative to compiled PyTorch with its fastest attention, and utilization in percent of 989 TFLOP/s:", "gpu-step",
     GPU_MODELS, gpu_step),
    ("", "Attention in TFLOP/s, forward and backward, by own kernels and by cuDNN:", "gpu-attention", ROWS, attention),
    ("", "Rates of kernels:", "gpu-kernels", LIST, str),
    ("## What has run on a GPU", "Passed, or as said:", "gpu-checks", LIST, lambda f: "" if f["outcome"] == "pass" else f["outcome"]),
    ("## Predictions", "Errors of predicted step times ([the planner](planner.md)):", "planner-published", LIST, lambda f: f"{f['rows']} runs, {error(f)}"),
    ("", "", "planner-cpu", LIST, error),
    ("", "Seconds of `tfm-plan --suggest` for 4,096 ranks (h200, h100), at most:", "suggest", LIST, lambda f: str(max(f.values()))),
    ("", "Percent of a step that a rank waits for collectives, and bubble of a pipeline, of gpt2-1.5b on 8, llama-8b on 8 and on\n"
     "64 H200s:", "exposed-communication", LINES, percent),
]
HEAD = """# Performance

<!-- written by tests/lint/test_results.py --fix from docs/results: do not edit -->

The newest [record](../CONTRIBUTING.md#measurements) of each measurement on each processor, with a link to it: machine,
date, commit, command, times, spread and further figures. [Scaling](scaling.md) has figures by number of ranks.
"""


def read():
    """Records, newest first, and what is wrong with them."""
    records, errors = [], []
    for file in sorted(RESULTS.glob("*.json"), reverse=True):
        record = json.loads(file.read_text())
        if wrong := (REQUIRED - set(record)) | (set(record) - KNOWN):
            errors.append(f"docs/results/{file.name}: missing or unknown: {', '.join(sorted(wrong))}")
        elif not re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"]) or not file.name.startswith(record["date"]):
            errors.append(f"docs/results/{file.name}: its name begins with another date than {record['date']}")
        elif record["measurement"] not in {section[2] for section in SECTIONS}:
            errors.append(f"docs/results/{file.name}: this script has no section for measurement '{record['measurement']}'")
        else:
            label = ", ".join(filter(None, (record["processor"], record["settings"])))
            records.append({**record, "link": f"[{label}](results/{file.name})"})
    return records, errors


def current(records, measurement):
    newest = {}
    for r in records:
        if r["measurement"] == measurement:
            newest.setdefault((r["processor"], r["settings"]), r)
    return [newest[key] for key in sorted(newest)]


def bullet(text):
    return textwrap.fill(f"- {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"


def bullets(records, text, lines):
    """What all have in common, and what each has of its own."""
    items = [[": ".join(filter(None, (name, text(f)))) for name, f in r["figures"].items() if text(f) is not None] for r in records]
    shared = [i for i in items[0] if len(items) > 1 and all(i in others for others in items)]
    lists = [(" and ".join(r["link"] for r in records), shared)]
    lists += [(r["link"], [i for i in own if i not in shared]) for r, own in zip(records, items)]
    if lines:
        return "\n".join(f"{link}:\n\n" + "".join(map(bullet, own)) for link, own in lists if own)
    return "".join(bullet(f"{link}: {'; '.join(own)}.") for link, own in lists if own)


def table(records, names, text):
    """A row for each record, or for each of their figures, or a list."""
    if names in (LIST, LINES):
        return bullets(records, text, names == LINES)
    if names:
        rows = [["", *names.values()]]
        rows += [[r["link"], *(text(r["figures"][n]) if n in r["figures"] else "-" for n in names)] for r in records]
    else:
        rows = [["", *(r["link"] for r in records)]]
        figures = dict.fromkeys(name for r in records for name in r["figures"])
        rows += [[name, *(text(r["figures"][name]) if name in r["figures"] else "-" for r in records)] for name in figures]
    rows.insert(1, ["---"] * len(rows[0]))
    return "".join("|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|\n" for row in rows)


def page(records):
    text = HEAD
    for heading, above, measurement, names, figure in SECTIONS:
        if found := current(records, measurement):
            text += "".join(f"\n{part}\n" for part in (heading, above) if part) + "\n" + table(found, names, figure)
            if missing := next((r["not_run"] for r in records if r["measurement"] == measurement and "not_run" in r), None):
                text += "\n### What has not run\n\n" + "".join(map(bullet, missing))
    return text


def main():
    records, errors = read()
    text = page(records)
    if "--fix" in sys.argv:
        PAGE.write_text(text)
    elif not errors and PAGE.read_text() != text:
        errors.append("docs/performance.md is not what docs/results says; run tests/lint/test_results.py --fix")
    print("\n".join(errors) or f"{len(records)} records ok")
    sys.exit(1 if errors else 0)


main()
