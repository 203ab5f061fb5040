"""A rank that never enters a collective, or that dies, ends the whole job with exit code 75 and one line that names it.

usage: test_hang.py BIN
"""
import pathlib
import subprocess
import sys
import time

MPIRUN = pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh"


def run(program, ranks, option):
    start = time.monotonic()
    done = subprocess.run([MPIRUN, str(ranks), program, option], capture_output=True, text=True, timeout=60)
    lines = [line for line in done.stderr.splitlines() if "tfm: watchdog:" in line]
    return done.returncode, lines, time.monotonic() - start


def main():
    program = pathlib.Path(sys.argv[1]) / "test-distributed"
    if not program.exists():
        sys.exit(f"{program} is not built: build the target test-distributed first")
    for ranks, late in ((2, 0), (4, 2)):
        code, lines, seconds = run(program, ranks, f"--hang={late}")
        assert code == 75, f"exit code {code}, 75 expected"
        assert len(lines) == 1, f"one line is expected: {lines}"
        assert "waits in all_reduce #2 on the data axis (4000 bytes)" in lines[0], lines[0]
        assert f"not entered by rank {late} at step 7 (left all_reduce #1" in lines[0], lines[0]
        assert seconds < 30, f"took {seconds:.0f} s"
    code, lines, seconds = run(program, 4, "--die=1")
    assert code == 75 and len(lines) <= 1 and seconds < 30, (code, lines, seconds)
    print("ok")


if __name__ == "__main__":
    main()
