"""A rank that never enters a collective or sends no message, that dies or whose library fails ends the whole job with exit code 75 and
one line that names it, whether the host makes the collectives or a device, and in every program.

usage: test_hang.py BIN
"""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 32, n_layers: 1, n_heads: 4, max_seq_len: 32}
train: {steps: 1, global_batch_size: 8, seq_len: 32}
data: {train: {type: text, path: long.txt}}
checkpoint: {dir: ck, every: 1}
parallel: {timeout: 2}
"""
MPIRUN = pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh"


def run(program, ranks, option):
    start = time.monotonic()
    done = subprocess.run([MPIRUN, str(ranks), program, option], capture_output=True, text=True, timeout=60)
    lines = [line for line in done.stderr.splitlines() if "tfm: watchdog:" in line]
    assert done.returncode == 75, f"exit code {done.returncode}, 75 expected: {done.stderr}"
    assert time.monotonic() - start < 30, f"took {time.monotonic() - start:.0f} s"
    return lines


def watched(folder, program):
    """The processes and their watchdogs' threads of `program` in `folder`, by rank."""
    ranks = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if process.joinpath("cwd").resolve() != folder or process.joinpath("comm").read_text().strip() != program:
                continue
            rank = re.search(r"\0(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)\0", "\0" + process.joinpath("environ").read_text())
            for task in process.joinpath("task").iterdir():
                if rank and task.joinpath("comm").read_text().strip() == "tfm:watchdog":
                    ranks[int(rank[1])] = int(process.name), int(task.name)
    return ranks


def check_programs(programs):
    """Those besides tfm-train, of which test_run.py stops ranks."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        (folder / "cfg.yaml").write_text(CONFIG)
        (folder / "long.txt").write_text("To be, or not to be, that is the question.\n" * 1_000_000)
        subprocess.run([programs / "tfm-train", "cfg.yaml"], cwd=folder, check=True, capture_output=True)

        def start(program, *args):
            process = subprocess.Popen([MPIRUN, "2", programs / program, *args], cwd=folder, text=True, errors="replace",
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            deadline, ranks, since = time.monotonic() + 60, {}, 0
            # The first watchdog, while the checkpoint is verified, does not last; it waits as long as a start may take.
            while len(ranks) < 2 or time.monotonic() < since + 1:
                assert process.poll() is None and time.monotonic() < deadline, f"{program}: no watchdog; {process.stderr.read()}"
                time.sleep(0.02)
                if (now := watched(folder, program)) != ranks:
                    ranks, since = now, time.monotonic()
            return process, {rank: pid for rank, (pid, _) in ranks.items()}

        for program, *args in (("tfm-eval", "ck", "--text", "long.txt", "parallel.timeout=2", "parallel.tensor=1"),
                               ("tfm-eval", "ck", "--text", "long.txt", "parallel.timeout=2", "parallel.tensor=2"),
                               ("tfm-generate", "ck", "--prompt", "To", "--max-tokens", "10000000", "parallel.timeout=2"),
                               ("tfm-bench", "step", "cfg.yaml", "--steps", "10000000")):
            process, ranks = start(program, *args)
            os.kill(ranks[1], signal.SIGSTOP)
            _, errors = process.communicate(timeout=60)
            lines = [line for line in errors.splitlines() if "tfm: watchdog:" in line]
            assert process.returncode == 75 and len(lines) == 1 and f"process {ranks[1]} (stopped)" in lines[0], (program, args, errors)

        process, _ = start("tfm-generate", "ck", "--max-tokens", "3", "parallel.timeout=2")
        time.sleep(5)  # nobody has typed anything yet
        output, errors = process.communicate("To be", timeout=60)
        assert process.returncode == 0 and output.startswith("To be"), errors


def main():
    check_programs(pathlib.Path(sys.argv[1]).resolve())
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
