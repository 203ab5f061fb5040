"""A rank that never enters a collective or sends no message, that dies or whose library fails ends the whole job with exit code 75 and
one line that names it, whether the host makes the collectives or a device.

usage: test_hang.py BIN
"""
import pathlib
import re
import subprocess
import sys
import time

MPIRUN = pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh"


def run(program, ranks, option):
    start = time.monotonic()
    done = subprocess.run([MPIRUN, str(ranks), program, option], capture_output=True, text=True, timeout=60)
    lines = [line for line in done.stderr.splitlines() if "tfm: watchdog:" in line]
    assert done.returncode == 75, f"exit code {done.returncode}, 75 expected: {done.stderr}"
    assert time.monotonic() - start < 30, f"took {time.monotonic() - start:.0f} s"
    return lines


def main():
    host, device = (pathlib.Path(sys.argv[1]) / name for name in ("test-distributed", "test-emulator-ranks"))
    for program in [host] + [device] * device.exists():  # a build with CUDA has no device that hangs without a GPU
        if not program.exists():
            sys.exit(f"{program} is not built: build the target test-distributed first")
        for ranks, late in ((2, 0), (4, 2)):
            lines = run(program, ranks, f"--hang={late}")
            assert len(lines) == 1, f"one line is expected: {lines}"
            found = re.search(r"has waited in all_reduce #(\d+) on the data axis \(4000 bytes\) for .*; missing: "
                              rf"rank {late} at step 7 \(left all_reduce #(\d+) on the data axis", lines[0])
            assert found and int(found[1]) == int(found[2]) + 1, lines[0]
            lines = run(program, ranks, f"--hang-message={late}")
            assert len(lines) == 1, f"one line is expected: {lines}"
            found = re.search(r"has waited in (?:send #\d+ to|receive #\d+ from) rank (\d+) on the pipeline axis \(4000 bytes\) for .*; "
                              rf"missing: rank {late} at step 7 ", lines[0])
            assert found and int(found[1]) == late, lines[0]
        for option in ("--die=1", "--die-message=1"):
            lines = run(program, 4, option)
            assert len(lines) <= 1, lines
    if device.exists():
        lines = run(device, 4, "--hang-ahead=1")
        assert len(lines) == 1 and re.search(r"rank \d at step 2 has waited in .*; missing: rank 1 at step 2 ", lines[0]), lines
        lines = run(device, 4, "--fail=3")
        assert len(lines) == 1 and "rank 3: NCCL reports remote error on the data axis" in lines[0], lines
    print("ok")


if __name__ == "__main__":
    main()
