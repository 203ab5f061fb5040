"""Runs clang-tidy (14 or later, checks of .clang-tidy) on the C++ files of framework/, models/ and launch/.

usage: run_clang_tidy.py BUILD_FOLDER [PATH_PREFIX...]     after cmake --preset cpu -DTFM_UNITY=OFF; prefixes such as framework/optim
Twenty minutes of one core for all files, so CI has a job of its own for it and ctest leaves it out. CLANG_TIDY names the program.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIDY = os.environ.get("CLANG_TIDY", "clang-tidy")
TOP = ("framework/", "models/", "launch/")


def check(build, file, shim):
    arguments = [TIDY, "-p", str(build), "--quiet", "--warnings-as-errors=*", *shim, file]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, errors="replace")
    findings = [line for line in done.stdout.splitlines() if re.search(r"(warning|error): .*\[", line)]
    return file, done.returncode, "\n".join(findings) or done.stdout + done.stderr


def main():
    build, prefixes = pathlib.Path(sys.argv[1]).resolve(), tuple(sys.argv[2:]) or TOP
    version = int(re.search(r"version (\d+)", subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout)[1])
    shim = [] if version >= 16 else [f"--extra-arg=-include{ROOT}/tests/lint/include/source_location.h"]
    files = {os.path.relpath(entry["file"], ROOT) for entry in json.loads((build / "compile_commands.json").read_text())}
    files = sorted(f for f in files if f.startswith(TOP) and f.startswith(prefixes) and f.endswith(".cpp"))
    if not files:
        sys.exit(f"error: {build}/compile_commands.json has none of {', '.join(prefixes)}")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
        for file, code, text in pool.map(lambda f: check(build, f, shim), files):
            if code:
                failed += 1
                print(f"{file}:\n{text}", flush=True)
    print(f"clang-tidy {version}: {len(files)} files, {failed} with findings")
    sys.exit(1 if failed else 0)


main()
