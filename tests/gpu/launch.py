"""Starts programs within a time limit, and leaves nothing of them behind."""
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import typing

deadline = float("inf")  # of all programs, on the monotonic clock


class OutOfTime(Exception):
    def __str__(self):
        return "not run: the time is over"


class Done(typing.NamedTuple):
    code: int  # 124: it took too long
    out: str
    err: str
    seconds: float

    @property
    def text(self):
        return self.out + self.err


def over():
    return time.monotonic() >= deadline


def kill_session(session):
    """Process groups do not do: each of mpirun's ranks has its own."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[3]) == session:
                os.kill(int(stat.parent.name), signal.SIGKILL)


def launch(*command, seconds=600, **options):
    if over():
        raise OutOfTime
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, **options)
        try:
            code = process.wait(min(seconds, deadline - start))
        except subprocess.TimeoutExpired:
            code = 124
            os.killpg(process.pid, signal.SIGTERM)  # mpirun removes what it shares between ranks
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        finally:
            kill_session(process.pid)
            process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return Done(code, *texts, time.monotonic() - start)
