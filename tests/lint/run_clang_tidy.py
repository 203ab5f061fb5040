"""Runs clang-tidy (16 or later, which knows all of C++20 that tfm uses; checks of .clang-tidy) on the C++ files of framework/, models/ and launch/.

usage: run_clang_tidy.py BUILD_FOLDER [PATH_PREFIX...]     after cmake --preset cpu -DTFM_TESTS=ON -DTFM_UNITY=OFF;
                                                           prefixes such as framework/optim
Twenty minutes of one core for all files, so CI has a job of its own for it and ctest leaves it out. CLANG_TIDY names the program.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OLDEST = 16
TIDY = os.environ.get("CLANG_TIDY") or next(filter(shutil.which, [f"clang-tidy-{OLDEST}", "clang-tidy"]), "clang-tidy")
# clang before 19 captures no structured binding in a lambda where OpenMP is on; no check looks at OpenMP. Of clang's warnings
# those count that .clang-tidy names: without OpenMP some parameters seem unused.
FLAGS = [f"--extra-arg={flag}" for flag in ("-fno-openmp", "-Wno-error")]
TOP = ("framework/", "models/", "launch/")


def check(build, file):
    """The file and its findings, empty where there are none."""
    arguments = [TIDY, "-p", str(build), "--quiet", *FLAGS, file]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, errors="replace")
    findings = [line for line in done.stdout.splitlines() if re.search(r"(warning|error): .*\[", line)]
    if findings:
        return file, "\n".join(findings)
    return file, done.stdout + done.stderr if done.returncode else ""


def main():
    build, prefixes = pathlib.Path(sys.argv[1]).resolve(), tuple(sys.argv[2:]) or TOP
    version = int(re.search(r"version (\d+)", subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout)[1])
    if version < OLDEST:
        sys.exit(f"error: {TIDY} is version {version}; version {OLDEST} or later is needed (Debian 12: apt-get install clang-tidy-{OLDEST} libomp-{OLDEST}-dev)")
    files = {os.path.relpath(entry["file"], ROOT) for entry in json.loads((build / "compile_commands.json").read_text())}
    files = sorted(f for f in files if f.startswith(TOP) and f.startswith(prefixes) and f.endswith(".cpp"))
    if not files:
        sys.exit(f"error: {build}/compile_commands.json has none of {', '.join(prefixes)}")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
        for file, text in pool.map(lambda f: check(build, f), files):
            if text:
                failed += 1
                print(f"{file}:\n{text}", flush=True)
    print(f"clang-tidy {version}: {len(files)} files, {failed} with findings")
    sys.exit(1 if failed else 0)


main()
