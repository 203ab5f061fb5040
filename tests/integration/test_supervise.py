"""launch/supervise.sh starts a job again after a failure that may pass, waits longer each time, and gives up where nothing advances.

usage: test_supervise.py BIN
"""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

BIN = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
SUPERVISE = ROOT / "launch/supervise.sh"
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 64, n_layers: 2, n_heads: 4, max_seq_len: 32, dropout: 0.1}
train: {steps: 300, global_batch_size: 8, seq_len: 32}
data: {train: {type: text, path: text.txt, shuffle: true}}
checkpoint: {dir: ck, every: 20}
metrics: {jsonl: run.jsonl, listen: none}
"""


def supervise(*command):
    return subprocess.Popen([str(c) for c in (SUPERVISE, *command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})


def end(process, code, seconds=300):
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == code, f"exit {process.returncode}, expected {code}\n{out[-2000:]}{err[-3000:]}"
    return err


def losses(path):
    return [(e["step"], e["loss"]) for e in map(json.loads, open(path)) if e["event"] == "step"]


def ranks():
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "exe").resolve() == BIN / "tfm-train" and (folder / "cwd").resolve() == pathlib.Path.cwd():
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def wait_for_step(step):
    latest = pathlib.Path("ck/latest")
    for _ in range(6000):
        if latest.exists() and int(latest.read_text().strip().split("-")[1]) >= step:
            return
        time.sleep(0.02)
    raise AssertionError(f"step {step} was not reached")


def check_a_killed_rank():
    """Two kills; the run ends with the losses of one that nothing befell."""
    train = [ROOT / "tests/mpirun.sh", 2, BIN / "tfm-train", "cfg.yaml"]
    job = supervise("--checkpoints", "ck", "--wait", 1, *train)
    for step in (40, 80):
        wait_for_step(step)
        os.kill(ranks()[0], signal.SIGKILL)
    text = end(job, 0)
    assert len(re.findall(r"supervise: exit code \d+; starting again in 1 s", text)) == 2, text
    subprocess.run([str(c) for c in train] + ["checkpoint.dir=whole", "metrics.jsonl=whole.jsonl"], check=True, capture_output=True)
    assert losses("run.jsonl") == losses("whole.jsonl") and len(losses("run.jsonl")) == 300


def check_giving_up():
    """Three starts without progress, the second pause twice as long as the first; progress begins the count anew."""
    started = time.monotonic()
    text = end(supervise("--wait", 1, "bash", "-c", "echo start >> starts; exit 75"), 75)
    assert pathlib.Path("starts").read_text().count("start") == 3 and time.monotonic() - started > 3, text
    assert "again in 1 s" in text and "again in 2 s" in text and "giving up after 3 starts without progress" in text, text
    pathlib.Path("starts").unlink()
    pathlib.Path("moving").mkdir()
    step = "echo start >> starts; n=$(wc -l < starts); [ $n -gt 2 ] || echo step-$n > moving/latest; exit 75"
    end(supervise("--wait", 0, "--checkpoints", "moving", "bash", "-c", step), 75)
    assert pathlib.Path("starts").read_text().count("start") == 5, "two with progress, three without"
    end(supervise("--wait", "00", "--tries", "09", "bash", "-c", "echo start >> nine; exit 75"), 75)
    assert pathlib.Path("nine").read_text().count("start") == 9, "not an octal number"
    for option in (("--wait", "0.1"), ("--tries", "x"), ("--tries", "")):
        assert "expected a whole number" in end(supervise(*option, "bash", "-c", "exit 75"), 2)


def check_what_another_start_does_not_mend():
    for code in (0, 1, 2, 3, 4, 5):
        assert "again" not in end(supervise("bash", "-c", f"exit {code}"), code)
    assert "last words" in end(supervise("bash", "-c", "printf 'last words' >&2; exit 3"), 3)
    end(supervise(), 2)
    for option in ("--checkpoints", "--tries", "--wait"):
        assert f"{option} needs a value" in end(supervise(option), 2)
    for option, code in (("-h", 0), ("--help", 0), ("-x", 2), ("--retries", 2)):
        job = supervise(option)
        out, err = job.communicate(timeout=60)
        assert job.returncode == code and "[--tries N]" in (err if code else out), (option, job.returncode, out, err)


def check_a_launcher_that_hangs():
    """What the watchdog has ended does not wait for a launcher that waits for a host that is gone."""
    for tag in "", "[1,0]<stderr>:":
        started = time.monotonic()
        text = end(supervise("--tries", 1, "bash", "-c", f"echo '{tag}tfm: watchdog: rank 0 has waited' >&2; sleep 60"), 75)
        assert time.monotonic() - started < 15 and "the launcher has not ended" in text and "rank 0 has waited" in text, text


def check_streams():
    """Who reads the text may go, and streams may be closed: a launcher's own pipe in their place would take the log for signals."""
    job = supervise("--wait", 0, "bash", "-c", "echo start >> twice; sleep 0.5; echo text >&2; [ $(wc -l < twice) -gt 1 ] || exit 75")
    job.stderr.close()
    assert job.wait(60) == 0 and pathlib.Path("twice").read_text().count("start") == 2
    job = subprocess.Popen(["bash", "-c", f'exec "{SUPERVISE}" bash -c "readlink /proc/\\$PPID/fd/0 /proc/\\$PPID/fd/1 > targets" <&- >&-'])
    assert job.wait(60) == 0 and pathlib.Path("targets").read_text() == "/dev/null\n" * 2


LONG_RUN = "--checkpoints", "ck", ROOT / "tests/mpirun.sh", 2, BIN / "tfm-train", "cfg.yaml", "train.steps=100000"


def start_anew():
    pathlib.Path("run.jsonl").unlink(missing_ok=True)
    shutil.rmtree("ck", ignore_errors=True)


def check_the_last_checkpoint():
    assert int(pathlib.Path("ck/latest").read_text().strip().split("-")[1]) == losses("run.jsonl")[-1][0]
    assert not ranks(), "a rank is left"


def check_a_request_to_stop():
    """A checkpoint is written, and there is no other start."""
    start_anew()
    job = supervise(*LONG_RUN)
    wait_for_step(20)
    job.send_signal(signal.SIGTERM)
    assert "again" not in end(job, 0)
    check_the_last_checkpoint()


def check_a_request_at_the_start():
    """It is passed on again where a launcher that has no ranks yet drops it; what it ends before there is one has not failed."""
    drops = "trap '[ -e first ] && exit 0; touch first' USR2; touch up; while :; do sleep 0.1; done"
    for script in drops, "touch up; exec sleep 60":
        pathlib.Path("up").unlink(missing_ok=True)
        job = supervise("bash", "-c", script)
        while not pathlib.Path("up").exists():
            time.sleep(0.01)
        job.send_signal(signal.SIGTERM)
        assert "again" not in end(job, 0, 30)
    start_anew()
    job = supervise(*LONG_RUN)
    status = pathlib.Path(f"/proc/{job.pid}/status")
    while not int(re.search(r"SigCgt:\t(\w+)", status.read_text())[1], 16) >> (signal.SIGTERM - 1) & 1:
        time.sleep(0.01)
    job.send_signal(signal.SIGTERM)
    assert "again" not in end(job, 0, 60) and not ranks()


class Terminal:
    """A supervisor in a terminal of its own, whose text is read as it comes."""

    def __init__(self, *command):
        self.text = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve(SUPERVISE, [str(c) for c in (SUPERVISE, *command)], {**os.environ, "OMP_NUM_THREADS": "1"})
        self.closing = threading.Event()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        while not self.closing.is_set():
            try:
                if select.select([self.terminal], [], [], 0.1)[0]:
                    self.text += os.read(self.terminal, 65536)
            except OSError:  # the other end is closed
                return

    def hang_up(self):
        self.closing.set()
        self.reader.join()
        os.close(self.terminal)

    def exit_code(self, seconds=120):
        end = time.monotonic() + seconds
        while (found := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError(f"not ended after {seconds} s: {self.text[-3000:].decode()}")
            time.sleep(0.1)
        return os.waitstatus_to_exitcode(found[1])


def check_a_terminal():
    """Ctrl-C stops the run by a checkpoint, and so does a terminal that goes, as that of a lost ssh."""
    start_anew()
    job = Terminal(*LONG_RUN)
    wait_for_step(20)
    os.write(job.terminal, b"\x03")
    code = job.exit_code()
    job.reader.join(10)
    job.hang_up()
    text = job.text.decode()
    assert code == 0 and "stopped on request" in text and "again" not in text, (code, text[-3000:])
    check_the_last_checkpoint()

    start_anew()
    job = Terminal(*LONG_RUN)
    wait_for_step(20)
    job.hang_up()
    code = job.exit_code()
    assert code == 0, (code, job.text[-3000:])
    check_the_last_checkpoint()


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("cfg.yaml").write_text(CONFIG)
        pathlib.Path("text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 300)
        for check in (check_what_another_start_does_not_mend, check_giving_up, check_a_launcher_that_hangs, check_streams,
                      check_a_killed_rank,
                      check_a_request_to_stop, check_a_request_at_the_start, check_a_terminal):
            try:
                check()
            finally:
                for rank in ranks():
                    os.kill(rank, signal.SIGKILL)
            print(check.__name__, "ok", flush=True)
        os.chdir("/")


main()
