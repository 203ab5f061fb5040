#!/usr/bin/env python3
"""Trains one configuration on many layouts and compares the losses with those of one rank.

Bounds: step 1 within 1e-6, every step within 1e-4 (relative); recompute on against off and zero 1 against 0 on the same layout:
equal to the last bit. Without --full every layout runs plain and with everything on, and three layouts each option alone.
"""
import argparse
import itertools
import pathlib
import sys

import common

STEPS, BATCH, HEADS = 50, 32, 8
FIRST, ALL = 1e-6, 1e-4
LAYOUTS = [(1, 1), (2, 1), (1, 2), (4, 1), (2, 2), (1, 4), (8, 1), (4, 2), (2, 4), (1, 8)]
KEYS = ("data", "tensor", "sequence", "zero", "recompute", "micro")
PLAIN = {"sequence": False, "zero": 0, "recompute": "none", "micro": 4}
FULL = {"sequence": True, "zero": 1, "recompute": "full", "micro": 1}


def options(layout, full):
    """The settings to run on a layout, the plain one first; those that an axis of one makes equal are left out."""
    data, tensor = layout
    values = {"sequence": (False, True)[: 1 + (tensor > 1)], "zero": (0, 1, 3)[: 1 + 2 * (data > 1)],
              "recompute": ("none", "selective", "full"), "micro": (4, 1)}
    if full:
        chosen = [dict(zip(values, row)) for row in itertools.product(*values.values())]
    else:
        chosen = [PLAIN, {**FULL, "recompute": "none"}, {**FULL, "zero": 0}, {**FULL, "zero": 3}, FULL]
        if layout in ((1, 1), (2, 2), (2, 4)):
            chosen += [{**PLAIN, k: v} for k in values for v in values[k]]
        chosen = [{k: v if v in values[k] else PLAIN[k] for k, v in row.items()} for row in chosen]
    unique = {tuple(row.values()): row for row in chosen}
    return [{"data": data, "tensor": tensor, **row} for row in unique.values()]


def identity(run):
    return tuple(run[k] for k in KEYS)


def partners(run):
    """The runs that this one must equal to the last bit."""
    out = [{**run, "recompute": "none"}] if run["recompute"] != "none" else []
    return out + ([{**run, "zero": 0}] if run["zero"] == 1 else [])


def judge(run, done, reference):
    """(relative difference of step 1, of all steps, number of bit-equal partners compared, problems)."""
    found = done[identity(run)]
    first, worst = common.relative({1: found[1]}, reference), common.relative(found, reference)
    problems = [f"step 1 is off by more than {FIRST}"] if not first <= FIRST else []
    problems += [f"a step is off by more than {ALL}"] if not worst <= ALL else []
    compared = 0
    for partner in partners(run):
        if identity(partner) in done:
            compared += 1
            if found != done[identity(partner)]:
                problems.append("not bit-equal to " + " ".join(f"{k}={partner[k]}" for k in KEYS))
    return first, worst, compared, problems


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("bin_dir", type=pathlib.Path)
    args.add_argument("--full", action="store_true", help="every combination")
    args.add_argument("--kv-heads", type=int, default=HEADS, help="fewer: grouped queries; only the layouts they divide by run")
    args.add_argument("--max-ranks", type=int, default=8)
    args.add_argument("--dir", type=pathlib.Path, help="an empty folder to work in and keep")
    args = args.parse_args()
    runs = [run for layout in LAYOUTS if layout[0] * layout[1] <= args.max_ranks and args.kv_heads % layout[1] == 0
            for run in options(layout, args.full)]
    done, rows, bad = {}, [], 0
    with common.work_folder(args.dir) as folder:
        config = common.tiny_config(folder, STEPS, model={"n_kv_heads": args.kv_heads})
        for i, run in enumerate(runs):
            jsonl, log = folder / f"{i}.jsonl", folder / f"{i}.log"
            overrides = {"parallel.data": run["data"], "parallel.tensor": run["tensor"], "parallel.sequence": run["sequence"],
                         "parallel.zero": run["zero"], "recompute": run["recompute"], "train.micro_batch_size": run["micro"],
                         "metrics.jsonl": jsonl}
            try:
                common.train(args.bin_dir, run["data"] * run["tensor"], config, overrides, log)
                done[identity(run)] = common.losses(jsonl, range(1, STEPS + 1))
            except common.Failed as error:
                print(" ".join(f"{k}={run[k]}" for k in KEYS), error, file=sys.stderr)
            print(f"\r{i + 1} of {len(runs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    reference = done.get(identity(runs[0]))
    for run in runs:
        first = worst = compared = "-"
        problems = ["did not run" if identity(run) not in done else "no run on one rank to compare with"]
        if identity(run) in done and reference:
            first, worst, compared, problems = judge(run, done, reference)
            first, worst = f"{first:.1e}", f"{worst:.1e}"
        bad += bool(problems)
        rows.append([*identity(run), first, worst, compared, "; ".join(problems) or "ok"])
    common.table([*KEYS, "step 1", f"{STEPS} steps", "bit-equal to", "result"], rows)
    print(f"{len(runs)} runs, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
