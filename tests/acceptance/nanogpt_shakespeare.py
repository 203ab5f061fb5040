#!/usr/bin/env python3
"""Trains configs/nanogpt_shakespeare.yaml on the first nine tenths of a text; prints the final loss over the whole last tenth."""
import argparse
import pathlib
import re
import subprocess
import sys

import common


def steps_of(bin_dir, config, overrides):
    """train.steps of the effective configuration."""
    command = [str(bin_dir / "tfm-train"), str(config), *overrides, "--dump-config"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"^train:.*?\bsteps:\s*(\d+)", done.stdout, re.MULTILINE | re.DOTALL)
    if done.returncode != 0 or not found:
        raise common.Failed(f"--dump-config: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return int(found.group(1))


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("text", type=pathlib.Path)
    args.add_argument("bin_dir", type=pathlib.Path)
    args.add_argument("--dir", type=pathlib.Path, help="keep the split, the checkpoints and the metrics here")
    args.add_argument("--ranks", type=int, default=1)
    args.add_argument("--every", type=int, help="validate every so many steps too, not only after the last")
    args.add_argument("--at-most", type=float, help="fail when the final validation loss is larger")
    args.add_argument("--hours", type=float, default=24, help="limit of the run")
    args.add_argument("overrides", nargs="*", metavar="section.key=value")
    args = args.parse_intermixed_args()
    args.bin_dir = args.bin_dir.resolve()
    text = args.text.read_bytes()
    cut = len(text) * 9 // 10
    config = common.ROOT / "configs" / "nanogpt_shakespeare.yaml"
    with common.work_folder(args.dir) as folder:
        train, validation = folder / "train.txt", folder / "validation.txt"
        train.write_bytes(text[:cut])
        validation.write_bytes(text[cut:])
        jsonl, log = folder / "metrics.jsonl", folder / "log.txt"
        given = dict(o.split("=", 1) for o in args.overrides)
        steps = steps_of(args.bin_dir, config, args.overrides)
        given.update({"data.train.path": train, "data.validation.path": validation, "eval.batches": 0,
                      "eval.every": args.every or steps, "checkpoint.dir": folder / "checkpoints", "metrics.jsonl": jsonl})
        print(f"{cut} bytes to train on, {len(text) - cut} to validate; {steps} steps, log in {log}", flush=True)
        seconds = common.train(args.bin_dir, args.ranks, config, given, log, 3600 * args.hours)
        found = common.events(jsonl)
        trained = [e for e in found if e["event"] == "step"]
        curve = [e for e in found if e["event"] == "eval" and e["split"] == "validation"]
        if not curve or curve[-1]["step"] != steps or not trained or trained[-1]["step"] != steps:
            raise common.Failed(f"{jsonl}: no step and validation event for step {steps}")
        common.table(["step", "validation loss", "perplexity"],
                     [[e["step"], f"{e['loss']:.4f}", f"{e['perplexity']:.4f}"] for e in curve])
        final = curve[-1]["loss"]
        print(f"final validation loss {final:.4f} (last training batch {trained[-1]['loss']:.4f}), "
              f"{seconds:.0f} s, {1000 * seconds / steps:.1f} ms a step")
        if not final <= (float("inf") if args.at_most is None else args.at_most):
            raise common.Failed(f"the final validation loss is above {args.at_most}")


if __name__ == "__main__":
    try:
        main()
    except common.Failed as error:
        sys.exit(f"failed: {error}")
