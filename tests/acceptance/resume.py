#!/usr/bin/env python3
"""Goes on from the checkpoint of every step of a short run: same layout equal to the last bit, others within 1e-4."""
import argparse
import pathlib
import sys

import common

STEPS, BOUND = 20, 1e-4
HOME = (2, 2)
OTHERS = [(1, 1), (4, 1), (1, 4), (2, 1), (1, 2)]


def resume(bin_dir, config, source, step, layout, zero, folder):
    """The losses after `step`, from the checkpoint of that step in the folder `source`."""
    folder.mkdir()
    overrides = {"parallel.data": layout[0], "parallel.tensor": layout[1], "parallel.zero": zero,
                 "checkpoint.dir": folder / "checkpoints", "checkpoint.resume": source / f"step-{step:08d}",
                 "metrics.jsonl": folder / "metrics.jsonl"}
    common.train(bin_dir, layout[0] * layout[1], config, overrides, folder / "log.txt")
    return common.losses(folder / "metrics.jsonl", range(step + 1, STEPS + 1))


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("bin_dir", type=pathlib.Path)
    args.add_argument("--zero", type=int, default=0, choices=range(4),
                      help="of the run that is resumed; other layouts take the other")
    args.add_argument("--dir", type=pathlib.Path, help="an empty folder to work in and keep")
    args = args.parse_args()
    rows, bad = [], 0
    with common.work_folder(args.dir) as folder:
        config = common.tiny_config(folder, STEPS, parallel={"data": HOME[0], "tensor": HOME[1], "zero": args.zero})
        whole = folder / "whole"
        source, jsonl = whole / "checkpoints", whole / "metrics.jsonl"
        whole.mkdir()
        common.train(args.bin_dir, HOME[0] * HOME[1], config, {"checkpoint.dir": source, "checkpoint.every": 1,
                                                               "checkpoint.keep": STEPS + 1, "metrics.jsonl": jsonl},
                     whole / "log.txt")
        expected = common.losses(jsonl, range(1, STEPS + 1))
        plan = [(HOME, step, args.zero) for step in range(1, STEPS + 1)]
        plan += [(layout, step, 3 - args.zero) for layout in OTHERS for step in (1, 7, STEPS - 1)]
        for i, (layout, step, zero) in enumerate(plan):
            row = [f"{layout[0]} x {layout[1]}", zero, step]
            try:
                found = resume(args.bin_dir, config, source, step, layout, zero, folder / f"resume{i}")
                apart = common.relative(found, expected)
                ok = all(found[s] == expected[s] for s in found) if layout == HOME else apart <= BOUND
                rows.append([*row, len(found), f"{apart:.1e}", "ok" if ok else "FAILED"])
            except common.Failed as error:
                ok = False
                rows.append([*row, "-", "-", "FAILED"])
                print(f"{row}: {error}", file=sys.stderr)
            bad += not ok
    common.table(["data x tensor", "zero", "resumed after", "steps", "difference", "result"], rows)
    print(f"{len(plan)} resumed runs, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except common.Failed as error:
        sys.exit(f"failed: the run that is resumed: {error}")
