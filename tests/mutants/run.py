#!/usr/bin/env python3
"""Seeds the bugs of mutants.py, one at a time, and prints those that no test finds.

usage: python3 tests/mutants/run.py BUILD_DIR [--room ROOM]... [--only NUMBER]... [--jobs N] [--list]

BUILD_DIR/source becomes a copy of this tree in which every bug hides behind a switch, `tfm_mutant(N) ? NEW : OLD`, and BUILD_DIR/build its
one build: the environment variable TFM_MUTANT=N switches bug N on, without it the programs are as they are. Tests first run without a bug,
to show that they pass and how long they take; with one they get ten times as long, and 30 seconds. A bug is killed by a test that fails,
crashes or takes too long. Exit 0: all killed; 1: some survived; 2: the build or the tests fail without a bug.
A second run builds what has changed only. Everything takes about half an hour on two cores, most of it the first build.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

from mutants import ROOMS

ROOT = pathlib.Path(__file__).resolve().parents[2]
SWITCH = """#pragma once
// Which bug is switched on: TFM_MUTANT.
#include <cstdlib>
#include <type_traits>
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-parameter"
__attribute__((no_sanitize_thread)) inline int tfm_mutant_on() {  // the emulator sees loads that are of kernels
  static const int on = [] {
    const char* text = std::getenv("TFM_MUTANT");
    return text ? std::atoi(text) : 0;
  }();
  return on;
}
constexpr bool tfm_mutant(int number) { return !std::is_constant_evaluated() && number == tfm_mutant_on(); }
"""


class Mutant:
    def __init__(self, number, room, tests, file, old, new):
        self.number, self.room, self.tests, self.file, self.new = number, room, tests, os.path.normpath("framework/" + file), new
        text = (ROOT / self.file).read_text()
        context = old.replace("«", "").replace("»", "")
        assert text.count(context) == 1, f"mutant {number}: {context!r} occurs {text.count(context)} times in {self.file}; expected once"
        self.begin = text.index(context) + max(old.find("«"), 0)
        self.old = old.split("«")[-1].split("»")[0]
        self.end = self.begin + len(self.old)
        assert text[self.begin:self.end] == self.old
        self.line = text.count("\n", 0, self.begin) + 1

    def code(self):
        if self.old.endswith(";"):
            return f"if (tfm_mutant({self.number})) {{ {self.new} }} else {{ {self.old} }}"
        return f"(tfm_mutant({self.number}) ? ({self.new}) : ({self.old}))"

    def __str__(self):
        return f"{self.number:3} {self.room:10} {self.file}:{self.line}: {' '.join(self.old.split())} -> {self.new}"


def all_mutants():
    mutants = []
    for room, (tests, entries) in ROOMS.items():
        for file, old, new, *own in entries:
            mutants.append(Mutant(len(mutants) + 1, room, own[0] if own else tests, file, old, new))
    return mutants


def instrumented(path, mutants, switch):
    text = (ROOT / path).read_text()
    for m in sorted((m for m in mutants if m.file == path), key=lambda m: -m.begin):
        text = text[:m.begin] + m.code() + text[m.end:]
    return f'#include "{switch}"\n#line 1\n{text}'.encode()


def write_sources(source, mutants):
    """The tree as git knows it, new files included; a file that is as it was keeps its time."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    changed = {m.file for m in mutants}
    switch = source / "mutant_switch.h"
    for path in [p for p in listed.stdout.split("\0") if p and (ROOT / p).is_file()]:
        content = instrumented(path, mutants, switch) if path in changed else (ROOT / path).read_bytes()
        to = source / path
        if to.is_file() and to.read_bytes() == content:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)
        to.chmod((ROOT / path).stat().st_mode)
    if not switch.is_file() or switch.read_text() != SWITCH:
        switch.write_text(SWITCH)


def build(source, folder, jobs, mutants):
    kinds = {t.split(":")[0].rstrip("0123456789") for m in mutants for t in m.tests}
    programs = ["tfm-" + name for name in ("bench", "convert", "data", "doctor", "eval", "generate", "plan", "predict", "probe", "report", "train",
                                           "verify")]
    targets = {"unit": ["test-unit"], "ops": ["test-ops"], "ranks": ["test-distributed"], "script": programs,
               "emulated": ["emulated-verify"], "emulator-models": ["test-emulator-models"]}
    if not (folder / "build.ninja").exists():
        subprocess.run(["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTFM_CUDA=OFF",
                        "-DTFM_TESTS=ON"], check=True)
    subprocess.run(["ninja", "-C", folder, "-k", "0", "-j", str(jobs), *(t for k in sorted(kinds) for t in targets[k])], check=True)


def command(test, source, folder):
    kind, what = test.split(":", 1)
    binaries = folder / "bin"
    gtest = [f"--gtest_filter={what}", "--gtest_fail_fast", "--gtest_brief=1"]
    if kind == "emulated":
        return ["python3", str(source / f"tests/integration/{what}.py"), str(folder / "emulated"), "--device", "cuda"]
    if kind == "script":
        return ["python3", str(source / f"tests/integration/{what}.py"), str(binaries)]
    if kind.startswith("ranks"):
        return [str(source / "tests/mpirun.sh"), kind[len("ranks"):], str(binaries / "test-distributed"), *gtest]
    return [str(binaries / f"test-{kind}"), *gtest]


def run(arguments, cwd, number, limit):
    """'' where it passes, else what went wrong."""
    environment = {**os.environ, "TFM_MUTANT": str(number), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(arguments, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        out, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # mpirun takes its ranks with it
        try:
            process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        return "time"
    if process.returncode == 0:
        return "its filter selects no test" if b"] 0 tests from" in out.replace(b"\x1b[m", b"") else ""
    failed = [line for line in out.decode(errors="replace").splitlines() if "FAILED" in line or "AssertionError" in line]
    said = failed[0].split("]")[-1].replace("\x1b[m", "").split(", where")[0].strip() if failed else ""
    return said or f"exit {process.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build_dir", type=pathlib.Path, metavar="BUILD_DIR", nargs="?")
    parser.add_argument("--room", action="append", choices=list(ROOMS))
    parser.add_argument("--only", action="append", type=int, metavar="NUMBER")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true", help="print the bugs and do nothing")
    args = parser.parse_args()
    mutants = all_mutants()
    chosen = [m for m in mutants if (not args.room or m.room in args.room) and (not args.only or m.number in args.only)]
    if args.list:
        print(*chosen, sep="\n")
        return 0
    if args.build_dir is None:
        parser.error("BUILD_DIR is missing")
    source, folder = (args.build_dir.absolute() / name for name in ("source", "build"))
    try:
        write_sources(source, mutants)
        build(source, folder, args.jobs, mutants)
    except subprocess.CalledProcessError as e:
        print(f"no build: {' '.join(map(str, e.cmd))}: exit {e.returncode}", file=sys.stderr)
        return 2
    seconds = {}
    for test in dict.fromkeys(t for m in chosen for t in m.tests):
        start = time.monotonic()
        if why := run(command(test, source, folder), source, 0, 600):
            print(f"{test} fails without a bug: {why}", file=sys.stderr)
            return 2
        seconds[test] = time.monotonic() - start
        print(f"passes without a bug in {seconds[test]:.1f} s: {test}", flush=True)
    survivors = []
    for m in chosen:
        why = next((w for t in m.tests if (w := run(command(t, source, folder), source, m.number, 10 * seconds[t] + 30))), "")
        print(f"{'killed  ' if why else 'SURVIVED'} {m}" + (f"  ({why})" if why else ""), flush=True)
        if not why:
            survivors.append(m)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} bugs are found")
    if survivors:
        print("survivors:", *survivors, sep="\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
