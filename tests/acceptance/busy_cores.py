#!/usr/bin/env python3
"""Times a step where jobs share two cores, ranks outnumber them or a quota limits them, against the fair share of the time alone.

usage: busy_cores.py BIN [--gpt2] [--steps N] [--rounds 3] [--dir FOLDER]

    alone      one job of two threads on two cores
    idle       the same with the waiting that libgomp has by itself (GOMP_SPINCOUNT=300000): no faster than `alone`
    two jobs   two of them side by side: twice the time alone
    two MPI    two jobs of two ranks of one thread: twice the time of one
    four ranks one job of four ranks: the time of two ranks
    quota      a control group of 1.5 cores (needs root): 4/3 of the time alone

The cases run in turn, as often as --rounds says; a figure is the median. Needs an otherwise idle machine. Exit code 1 where a
case takes more than 1.3 times its fair share, or the time alone is more than 1 / 0.97 of `idle`.
"""
import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys

import common

QUOTA, WARM_UP = 1.5, 5
# name: (jobs, ranks)
CASES = {"alone": (1, 1), "idle": (1, 1), "two jobs": (2, 1), "two ranks": (1, 2), "two MPI": (2, 2), "four ranks": (1, 4), "quota": (1, 1)}
# name: (times, the time of this case)
FAIR = {"two jobs": (2, "alone"), "two MPI": (2, "two ranks"), "four ranks": (1, "two ranks"), "quota": (2 / QUOTA, "alone")}


@contextlib.contextmanager
def control_group():
    """A command prefix that limits a job to QUOTA cores; None where control groups cannot be written."""
    groups = [("/sys/fs/cgroup", {"cpu.max": f"{int(QUOTA * 1e5)} 100000"}),
              ("/sys/fs/cgroup/cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(int(QUOTA * 1e5))})]
    root, files = next(((r, f) for r, f in groups if pathlib.Path(r, "cgroup.procs").exists()), (None, {}))
    if not root or not os.access(root, os.W_OK):
        yield None
        return
    group = pathlib.Path(root, f"tfm-busy-cores-{os.getpid()}")
    group.mkdir()
    try:
        for name, text in files.items():
            (group / name).write_text(text)
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        group.rmdir()


def gpt2_config(folder, steps):
    model = {"d_model": 768, "n_layers": 12, "n_heads": 12, "d_ff": 3072, "vocab_size": 50257, "max_seq_len": 64, "dropout": 0.0}
    return common.tiny_config(folder, steps, model, train={"steps": steps, "global_batch_size": 4, "seq_len": 64, "seed": 1})


def milliseconds(bin_dir, config, folder, case, prefix):
    """Of a step, of the slowest of the case's jobs."""
    jobs, ranks = CASES[case]
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    environment["OMP_NUM_THREADS"] = "1" if ranks > 1 else "2"
    if case == "idle":
        environment["GOMP_SPINCOUNT"] = "300000"
    launcher = [common.ROOT / "tests/mpirun.sh", str(ranks)] if ranks > 1 else []
    processes, files = [], []
    for job in range(jobs):
        files.append(folder / f"metrics{job}.jsonl")
        files[-1].unlink(missing_ok=True)
        with open(folder / f"log{job}", "wb") as log:
            processes.append(subprocess.Popen([*prefix, *launcher, bin_dir / "tfm-train", config, f"metrics.jsonl={files[-1]}"],
                                              stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment))
    for job, process in enumerate(processes):
        if common.finish(process, folder / f"log{job}") != 0:
            raise common.Failed(f"{case}: exit code {process.returncode}\n{common.tail(folder / f'log{job}')}")
    seconds = [[e["step_seconds"] for e in common.events(f) if e.get("event") == "step"][WARM_UP:] for f in files]
    return 1e3 * max(map(statistics.mean, seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="folder that holds tfm-train")
    parser.add_argument("--gpt2", action="store_true", help="the shape of GPT-2 124M instead of a tiny model")
    parser.add_argument("--steps", type=int, help="of each run; 2000, or 15 with --gpt2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES), help="some of them")
    parser.add_argument("--dir", type=pathlib.Path, help="keep the runs' files here")
    args = parser.parse_args()
    if args.steps is not None and args.steps <= WARM_UP:
        parser.error(f"--steps {args.steps}: expected more than the {WARM_UP} steps that warm up")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    with common.work_folder(args.dir) as folder, control_group() as limited:
        config = (gpt2_config if args.gpt2 else common.tiny_config)(folder, args.steps or (15 if args.gpt2 else 2000))
        times = {case: [] for case in args.cases.split(",") if case != "quota" or limited}
        for _ in range(args.rounds):
            for case, found in times.items():
                found.append(milliseconds(args.bin.resolve(), config, folder, case, limited if case == "quota" else []))
                print(f"{case}: {found[-1]:.2f} ms a step", flush=True)
    median = {case: statistics.median(found) for case, found in times.items()}
    rows, late = [], []
    for case, found in times.items():
        ratio, bound = "", 1.3
        if case in FAIR and FAIR[case][1] in median:
            ratio = median[case] / (FAIR[case][0] * median[FAIR[case][1]])
        if case == "alone" and "idle" in median:
            ratio, bound = statistics.median(a / b for a, b in zip(found, times["idle"])), 1 / 0.97
        if ratio and ratio > bound:
            late.append(case)
        rows.append([case, f"{median[case]:.2f}", f"{min(found):.2f} to {max(found):.2f}", f"{ratio:.2f}" if ratio else ""])
    common.table(["case", "ms a step", "runs", "of fair share"], rows)
    if late:
        sys.exit(f"too slow: {', '.join(late)}")


if __name__ == "__main__":
    try:
        main()
    except common.Failed as error:
        sys.exit(str(error))
