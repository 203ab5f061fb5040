#!/usr/bin/env python3
"""Writes a record to docs/results from what a benchmark measured; tests/lint/test_results.py --fix then writes docs/performance.md.

usage: record.py FILE.json --processor NAME --settings TEXT --command TEXT [--commit HASH] [--machine TEXT] [--folder FOLDER]

FILE.json is what tests/acceptance/against_pytorch.py --json or tests/gpu/run --out wrote. Of the latter come two records: which checks ran
(with the list of what has not run that the newest such record has: edit it), and tokens/s where they were measured.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def this_machine():
    model = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{model[1] if model else 'unknown processor'}, {len(os.sched_getaffinity(0))} cores"


def this_commit():
    return subprocess.check_output(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"], text=True).strip()


def cpu_step(rows):
    """Figures of against_pytorch.py."""
    figures = {}
    for row in rows:
        own, f = row["tfm"], {}
        f.update(ms=round(own["ms"]), least=round(own["best_ms"]), most=round(own["worst_ms"]))
        for kind in ("eager", "compiled"):
            if kind in row:
                f.update({f"{kind}_ms": round(row[kind]["ms"]), f"{kind}_best_ms": round(row[kind]["best_ms"])})
        f.update(ratio=round(row["ratio"], 2), ratio_best=round(row["ratio_best"], 2), memory_gb=round(own["memory"] / 1e9, 2),
                 memory_ratio=round(row["memory_ratio"], 2))
        figures[row["model"]] = f
    return figures


def gpu_step(rows):
    """Figures of tests/gpu/speed.py."""
    figures = {}
    for row in (r for r in rows if "tfm_seconds" in r):
        f = {"tokens_per_second": round(row["tfm_tokens_per_second"]), "mfu_percent": round(100 * row["tfm_mfu"], 1)}
        if "ratio" in row:
            f.update(pytorch_tokens_per_second=round(row["pytorch_tokens_per_second"]), ratio=round(row["ratio"], 2))
        figures[row["model"]] = f
    return figures


def newest_not_run(folder):
    found = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    return next((r["not_run"] for r in reversed(found) if r["measurement"] == "gpu-checks"), [])


def records_of(measured, folder):
    """(measurement, figures, further members) of a file."""
    if isinstance(measured, list):
        return [("step", cpu_step(measured), {})]
    results = measured["results"]
    checks = {r["check"]: {"outcome": "pass" if r["passed"] else f"failed: {r['figure']}", "figure": r["figure"]} for r in results}
    speed = gpu_step([r["row"] for r in results if "row" in r])
    return [("gpu-checks", checks, {"not_run": newest_not_run(folder)})] + ([("gpu-step", speed, {})] if speed else [])


def text_of(record):
    """JSON with a figure, a note, an item on a line each."""
    parts = []
    for key, value in record.items():
        if isinstance(value, dict):
            value = "{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n }"
        elif isinstance(value, list):
            value = "[\n" + ",\n".join(f"  {json.dumps(v)}" for v in value) + "\n ]"
        else:
            value = json.dumps(value)
        parts.append(f" {json.dumps(key)}: {value}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    for name in ("--processor", "--settings", "--command"):
        parser.add_argument(name, required=True)
    parser.add_argument("--commit")
    parser.add_argument("--machine")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "docs/results")
    args = parser.parse_args()
    measured = json.loads(args.file.read_text())
    call = measured["calls"][-1] if isinstance(measured, dict) else {}
    machine = args.machine or ", ".join(v if k == "gpu, driver" else f"{k} {v}" for k, v in call.items() if k not in ("only", "commit", "clocks")) or this_machine()
    date = datetime.date.today().isoformat()
    for measurement, figures, more in records_of(measured, args.folder):
        words = re.sub(r"[^a-z0-9]+", "-", f"{measurement} {args.processor} {args.settings}".lower()).strip("-")
        file = args.folder / f"{date}-{words}.json"
        file.write_text(text_of({"measurement": measurement, "processor": args.processor, "machine": machine, "settings": args.settings, "date": date,
                                 "commit": args.commit or call.get("commit") or this_commit(), "command": args.command, "figures": figures, **more}))
        print(file)


main()
