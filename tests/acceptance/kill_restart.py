#!/usr/bin/env python3
"""Kills a random rank at a random time, restarts until done, and compares with a run left alone: losses equal to the last bit.

Checks of each round: the killed launch ends by itself, a restart goes on from the checkpoint that `latest` names (the metrics
up to it stay as they are), every step is in metrics.jsonl once, no tfm-train is left. Rounds go on until enough kills hit a run.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import sys
import time

import common

STEPS, RANKS, RESTARTS = 60, 4, 5


def latest(checkpoints):
    """Step of the checkpoint that `latest` names (a link or a file); 0 without one."""
    path = checkpoints / "latest"
    if not path.exists():
        return 0
    name = path.resolve().name if path.is_symlink() else path.read_text()
    return int(re.search(r"step-(\d+)", name).group(1))


def lines_up_to(jsonl, step):
    """The lines of steps 1 to `step` as written (with the seconds they took); a half-written last line is passed over."""
    found = []
    for line in jsonl.read_text().splitlines() if jsonl.exists() else []:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if event.get("event") == "step" and event["step"] <= step:
                found.append(line)
    return found


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def run_and_kill(bin_dir, config, log, delay, rng):
    """Returns (killed, exit code)."""
    process = common.start(bin_dir, RANKS, config, {}, log)
    wait_for(lambda: len(common.ranks_of(config)) >= RANKS or process.poll() is not None, 60)
    with contextlib.suppress(common.subprocess.TimeoutExpired):
        process.wait(delay)
    alive, killed = common.ranks_of(config), False
    if process.poll() is None and alive and latest(config.parent / "checkpoints") < STEPS:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(alive), signal.SIGKILL)
            killed = True
    return killed, common.finish(process, log, 120)


def one_round(bin_dir, folder, golden, duration, rng):
    """Returns (kill time or None when the run was over before, step of the checkpoint, restarts)."""
    config = make_config(folder)
    log, jsonl = folder / "log.txt", folder / "metrics.jsonl"
    delay = rng.uniform(0, duration)
    killed, code = run_and_kill(bin_dir, config, log, delay, rng)
    at, restarts = latest(folder / "checkpoints"), 0
    kept = lines_up_to(jsonl, at)
    while code != 0:
        if restarts == RESTARTS:
            raise common.Failed(f"not done after {restarts} restarts, exit code {code}\n{common.tail(log)}")
        if not wait_for(lambda: not common.ranks_of(config), 10):
            raise common.Failed(f"tfm-train left behind: {common.ranks_of(config)}")
        code = common.finish(common.start(bin_dir, RANKS, config, {}, log), log)
        restarts += 1
    if not wait_for(lambda: not common.ranks_of(config), 10):
        raise common.Failed(f"tfm-train left behind: {common.ranks_of(config)}")
    found = common.losses(jsonl, range(1, STEPS + 1))
    if lines_up_to(jsonl, at) != kept:
        raise common.Failed(f"did not go on from the checkpoint of step {at}: the metrics up to it changed")
    wrong = [s for s in golden if found[s] != golden[s]]
    if wrong:
        s = wrong[0]
        raise common.Failed(f"{len(wrong)} losses differ, first at step {s}: {found[s]!r}, expected {golden[s]!r}")
    return delay if killed else None, at, restarts


def make_config(folder):
    folder.mkdir()
    return common.tiny_config(folder, STEPS, parallel={"data": 2, "tensor": 2},
                              checkpoint={"dir": folder / "checkpoints", "every": 5}, metrics={"jsonl": folder / "metrics.jsonl"})


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("bin_dir", type=pathlib.Path)
    args.add_argument("--runs", type=int, default=25, help="kills that hit a run")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--dir", type=pathlib.Path, help="an empty folder to work in and keep")
    args = args.parse_args()
    rng, rows, bad, kills = random.Random(args.seed), [], 0, 0
    with common.work_folder(args.dir) as folder:
        config = make_config(folder / "golden")
        duration = common.train(args.bin_dir, RANKS, config, {}, folder / "golden" / "log.txt")
        golden = common.losses(folder / "golden" / "metrics.jsonl", range(1, STEPS + 1))
        for i in range(1, 3 * args.runs + 1):
            if kills + bad == args.runs:
                break
            try:
                delay, at, restarts = one_round(args.bin_dir, folder / f"run{i}", golden, duration, rng)
                kills += delay is not None
                rows.append([i, "too late" if delay is None else f"{delay:.2f}", at, restarts, "ok"])
            except common.Failed as error:
                bad += 1
                rows.append([i, "", "", "", "FAILED"])
                print(f"run {i}: {error}", file=sys.stderr)
    common.table(["run", "killed after s", "checkpoint", "restarts", "result"], rows)
    print(f"{len(rows)} runs of {duration:.1f} s, {kills} of {args.runs} kills recovered from, {bad} failed")
    return 0 if kills == args.runs else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except common.Failed as error:
        sys.exit(f"failed: the run left alone: {error}")
