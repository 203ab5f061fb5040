#!/usr/bin/env python3
"""Times steps of a run that is scraped for metrics beside those of the same run left alone.

usage: scraping.py BIN [--rate 1000] [--seconds 5] [--periods 8] [--dir FOLDER]

The run computes on one core of two; a client on the other asks for /metrics so many times a second in every
second period. Prints the ratio of the median steps of neighboring periods, the resident memory after the first and the last
period, and what the client reached. Needs an otherwise idle machine. Exit code 1 where the median ratio is over 1.01 or memory
grew by more than 1 MiB.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

import common


class Client:
    """Keeps its connection as long as the server does."""

    def __init__(self, port):
        self.port, self.connection = port, None

    def connect(self):
        self.connection = socket.create_connection(("127.0.0.1", self.port))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.connection.makefile("rb")

    def scrape(self):
        for fresh in (not self.connection, True):
            if fresh:
                self.connect()
            self.connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if self.file.readline().split()[1:2] == [b"200"]:
                break
        length = 0
        while (line := self.file.readline().lower()) not in (b"\r\n", b""):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if b"tfm_" not in self.file.read(length):
            raise common.Failed("the endpoint sent no metrics")


def resident(pid):
    """Bytes."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def period(client, rate, seconds):
    """Scrapes; the number of those done."""
    begin, done = time.monotonic(), 0
    while (now := time.monotonic() - begin) < seconds:
        if client and done < now * rate:
            client.scrape()
            done += 1
        else:
            time.sleep(0.0002 if client else 0.01)
    return done


def measure(args, folder):
    config = common.tiny_config(folder, 10**6, {"d_model": 128, "n_layers": 2, "n_heads": 4, "d_ff": 512})
    metrics = folder / "metrics.jsonl"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {cores[-1]})
    run = subprocess.Popen([args.bin_dir / "tfm-train", config, f"metrics.jsonl={metrics}", f"metrics.listen=127.0.0.1:{port}"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
                           preexec_fn=lambda: os.sched_setaffinity(0, set(cores)))
    try:
        while not metrics.exists() or metrics.read_text().count('"event":"step"') < 20:
            if run.poll() is not None:
                raise common.Failed(f"the run ended with exit code {run.returncode}")
            time.sleep(0.1)
        medians, memory, reached, client = [], [], [], Client(port)
        with open(metrics) as lines:
            for number in range(args.periods):
                lines.read()
                count = period(client if number % 2 else None, args.rate, args.seconds)
                steps = [json.loads(x) for x in lines.read().splitlines()[1:-1]]
                medians.append(statistics.median(s["step_seconds"] for s in steps if s["event"] == "step"))
                memory.append(resident(run.pid))
                if number % 2:
                    reached.append(count / args.seconds)
    finally:
        run.terminate()
        run.wait()
    return medians, memory, reached


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("bin_dir", type=pathlib.Path, metavar="BIN")
    args.add_argument("--rate", type=float, default=1000)
    args.add_argument("--seconds", type=float, default=5)
    args.add_argument("--periods", type=int, default=8)
    args.add_argument("--dir", type=pathlib.Path, help="an empty folder to work in and keep")
    args = args.parse_args()
    args.bin_dir = args.bin_dir.resolve()
    with common.work_folder(args.dir) as folder:
        medians, memory, reached = measure(args, folder)
    ratios = [b / a for a, b in zip(medians[::2], medians[1::2])]
    growth = memory[-1] - memory[0]
    print("steps (ms), alone and scraped in turn: " + " ".join(f"{1e3 * m:.3f}" for m in medians))
    print(f"scrapes a second: {min(reached):.0f} to {max(reached):.0f}")
    print(f"scraped / alone: median {statistics.median(ratios):.4f} of " + " ".join(f"{r:.4f}" for r in ratios))
    print(f"resident memory: {memory[0] / 2**20:.1f} MiB, at the end {growth / 2**20:+.2f} MiB")
    return 0 if statistics.median(ratios) <= 1.01 and growth <= 2**20 else 1


if __name__ == "__main__":
    sys.exit(main())
