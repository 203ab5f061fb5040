"""A run and what happens to it: signals, a rank that stops, a full disk, damaged checkpoints, the endpoint.

usage: test_run.py BIN [CHECK...]
"""
import contextlib
import json
import math
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(sys.argv[1]).resolve()
MPIRUN = pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh"
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 64, n_layers: 2, n_heads: 4, max_seq_len: 32, dropout: 0.1}
train: {steps: 100000, global_batch_size: 8, seq_len: 32}
optimizer: {lr: 1.0e-3}
schedule: {type: constant}
data: {train: {type: text, path: text.txt, shuffle: true}}
checkpoint: {dir: ck, keep: 2}
metrics: {jsonl: run.jsonl}
"""


def start(*args, ranks=2):
    return subprocess.Popen([MPIRUN, str(ranks), BIN / "tfm-train", "cfg.yaml", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def end(process, code, seconds=300):
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == code, f"exit {process.returncode}, expected {code}\n{out[-2000:]}{err[-4000:]}"
    return out + err


def events(kind):
    with contextlib.suppress(OSError):
        lines = pathlib.Path("run.jsonl").read_text().split("\n")[:-1]
        return [e for e in map(json.loads, lines) if e["event"] == kind]
    return []


def wait_for(what, seconds=30):
    for _ in range(seconds * 50):
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def running():
    """Process ids of the ranks."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "exe").resolve() == BIN / "tfm-train" and (folder / "cwd").resolve() == pathlib.Path.cwd():
                found.append(int(folder.name))
    return sorted(found)


def fresh():
    for name in ("ck", "runs", "run.jsonl"):
        subprocess.run(["rm", "-rf", name], check=True)


def check_signals():
    for request in (signal.SIGUSR2, signal.SIGTERM):
        fresh()
        job = start()
        wait_for(lambda: events("step"))
        ranks = running()
        assert len(ranks) == 2, ranks
        os.kill(ranks[0], signal.SIGUSR1)
        wait_for(lambda: events("checkpoint"))
        os.kill(ranks[1], request)
        assert "stopped on request" in end(job, 0)
        last, ended = events("checkpoint")[-1], events("end")[0]
        assert len(events("checkpoint")) == 2 and last["step"] == ended["step"] == events("step")[-1]["step"]
        assert pathlib.Path("ck/latest").read_text().strip() == pathlib.Path(last["path"]).name
        go_on = ended["step"] + 3
        end(start(f"train.steps={go_on}"), 0)
        assert [e["step"] for e in events("step")] == list(range(1, go_on + 1)), "each step once"


def check_ctrl_c():
    """Writes a checkpoint and stops, alone and under a launcher that gives the ranks time for it; without checkpoints it ends the run."""
    def interrupted(command, *args):
        fresh()
        job = subprocess.Popen([*command, BIN / "tfm-train", "cfg.yaml", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"}, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        wait_for(lambda: events("step"), 150)
        job.send_signal(signal.SIGINT)
        return job

    assert "stopped on request" in end(interrupted([]), 0)
    assert events("checkpoint")[-1]["step"] == events("step")[-1]["step"]
    end(interrupted([], "checkpoint.dir=none"), -signal.SIGINT)
    job = interrupted([], "train.global_batch_size=8192", "train.micro_batch_size=16")  # steps of seconds, at whose end it would stop
    time.sleep(0.2)
    job.send_signal(signal.SIGINT)
    end(job, -signal.SIGINT)
    assert len(events("step")) == 1 and not events("checkpoint"), events("step")
    if "Open MPI" in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout:
        # The launcher's code. It no longer reads the log, which must not fill the pipe before the signal comes a second later.
        end(interrupted([MPIRUN, "2"], "metrics.log_every=100"), 1)
        assert events("checkpoint")[-1]["step"] >= events("step")[-1]["step"]


def check_signals_do_no_harm():
    """Sent at any moment, also inside a matrix product."""
    fresh()
    job = start("train.steps=1500", "checkpoint.dir=none", ranks=1)
    wait_for(lambda: events("step"))
    rank = running()[0]
    with contextlib.suppress(ProcessLookupError):
        for _ in range(1000):
            os.kill(rank, signal.SIGUSR1)
            time.sleep(0.0005)
    end(job, 0)


def check_a_stop_during_an_evaluation():
    """It does not wait for the end of the evaluation, which the next start makes up for; a STOP that is there is said."""
    pathlib.Path("validation.txt").write_text(pathlib.Path("text.txt").read_text() * 1000)
    evaluating = ["train.steps=3", "eval.every=2", "data.validation={type: text, path: validation.txt}"]
    fresh()
    job = start(*evaluating)
    wait_for(lambda: len(events("step")) == 2)
    time.sleep(0.5)
    os.kill(running()[0], signal.SIGTERM)
    assert "evaluation of step 2 is left to the next start" in end(job, 0)
    assert not events("eval") and [e["step"] for e in events("checkpoint")] == [2]
    pathlib.Path("ck/STOP").mkdir()
    assert "ck/STOP asks this run to stop" in end(start(*evaluating), 0)
    assert not pathlib.Path("ck/STOP").exists()
    assert not events("eval") and len(events("step")) == 2
    end(start(*evaluating, "eval.batches=5"), 0)
    resumed = [(e["step"], e["loss"]) for e in events("eval")]
    fresh()
    end(start(*evaluating, "eval.batches=5"), 0)
    assert resumed == [(e["step"], e["loss"]) for e in events("eval")] and [step for step, _ in resumed] == [2, 3], resumed


def check_a_stop_during_an_evaluation_without_checkpoints():
    """There is no next start, so it is made."""
    pathlib.Path("validation.txt").write_text(pathlib.Path("text.txt").read_text() * 1000)
    fresh()
    job = start("train.steps=9", "eval.every=2", "data.validation={type: text, path: validation.txt}", "eval.batches=2000",
                "checkpoint.dir=none")
    wait_for(lambda: len(events("step")) == 2)
    time.sleep(0.2)
    assert not events("eval"), "asked for too late"
    os.kill(running()[0], signal.SIGTERM)
    assert "left to the next start" not in end(job, 0)
    assert [e["step"] for e in events("eval")] == [2] and len(events("step")) == 2, events("eval")


def check_a_checkpoint_asked_for_during_an_evaluation():
    """It is written when the evaluation is done, which goes on."""
    fresh()
    pathlib.Path("validation.txt").write_text(pathlib.Path("text.txt").read_text() * 1000)
    job = start("train.steps=3", "eval.every=2", "data.validation={type: text, path: validation.txt}", "eval.batches=2000")
    wait_for(lambda: len(events("step")) == 2)
    time.sleep(0.2)
    assert not events("eval"), "asked for too late"
    os.kill(running()[0], signal.SIGUSR1)
    end(job, 0)
    assert [e["step"] for e in events("eval")] == [2, 3] and [e["step"] for e in events("checkpoint")] == [2, 3], events("checkpoint")


def check_a_stopped_rank_is_named():
    """Also where the rank that reports waits for one that waits for it."""
    for layout, rank in (([], 2), *((["parallel.pipeline=2", "parallel.tensor=2"], rank) for rank in range(4)),
                         (["parallel.context=2", "parallel.tensor=2", "parallel.zero=3"], 3)):
        fresh()
        job = start("parallel.timeout=2", *layout, ranks=4)
        wait_for(lambda: len(events("step")) > 3)
        victim = running()[rank]
        os.kill(victim, signal.SIGSTOP)
        before = time.monotonic()
        text = end(job, 75)
        assert time.monotonic() - before < 20
        verdict = [line for line in text.splitlines() if "tfm: watchdog:" in line]
        assert len(verdict) == 1 and "waited in" in verdict[0] and f"process {victim} (stopped)" in verdict[0], text
        wait_for(lambda: not running())


def check_a_rank_that_stops_at_the_start_is_named():
    """Wherever it was: what the others wait for, before there is a watchdog, has a limit, too."""
    for moment, ranks in ((0, 2), (0.1, 3), (0.3, 2)):
        fresh()
        job = start("parallel.timeout=2", "train.global_batch_size=12", ranks=ranks)
        wait_for(lambda: len(running()) == ranks)
        time.sleep(moment)
        victim = running()[-1]
        os.kill(victim, signal.SIGSTOP)
        text = end(job, 75)
        verdict = [line for line in text.splitlines() if "tfm: watchdog:" in line]
        assert len(verdict) == 1 and f"process {victim} (stopped)" in verdict[0], text
        wait_for(lambda: not running())


def check_files_that_fail():
    """A token file that is cut under the run, files that may not grow, streams that are closed, a pipe that nobody reads."""
    fresh()
    program = shlex.quote(str(BIN / "tfm-train"))
    subprocess.run([BIN / "tfm-data", "prepare", "--input", "text.txt", "--tokenizer", "bytes", "--output", "cut.bin"], check=True, capture_output=True)
    job = start("data.train={type: tokens, path: cut.bin}")
    wait_for(lambda: events("step"))
    os.truncate("cut.bin", 2000)
    assert "cut.bin: cannot be read" in end(job, 75)

    def shell(command, code):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == code, (command, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    for command, code, text in ((f"ulimit -f 100; {program} cfg.yaml train.steps=3", 75, "File too large"),
                                (f"exec {program} cfg.yaml train.steps=3 <&- >&- 2>&-", 0, ""),
                                (f"set -o pipefail; {program} cfg.yaml train.steps=300 checkpoint.every=0 | head -1", 0, "parameters")):
        fresh()
        assert text in shell(command, code)
    assert events("step")[-1]["step"] == 300
    shell(f"{shlex.quote(str(BIN / 'tfm-plan'))} cfg.yaml >&-", 75)
    fresh()
    shell(f"{program} cfg.yaml train.steps=3 <&- >&- 2>&-", 0)
    assert [e["step"] for e in events("step")] == [1, 2, 3], "lines of the log are not in the file"
    fresh()
    os.mkfifo("pipe")
    shell(f"timeout 30 {program} cfg.yaml train.steps=3 metrics.jsonl=pipe", 0)


def suspend(seconds):
    """Stops all ranks for so long."""
    for pid in running():
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in running():
        os.kill(pid, signal.SIGCONT)


def check_a_suspended_job_goes_on():
    fresh()
    job = start("parallel.timeout=3")
    wait_for(lambda: len(events("step")) > 3)
    suspend(5)
    steps = len(events("step"))
    wait_for(lambda: len(events("step")) > steps + 3)
    os.kill(running()[0], signal.SIGTERM)
    end(job, 0)


def check_a_full_disk():
    fresh()
    pathlib.Path("ck").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", "ck"], capture_output=True).returncode != 0:
        print("no right to mount a small disk: skipped")
        return
    try:
        end(start("train.steps=4"), 0)
        size = sum(f.stat().st_size for f in pathlib.Path("ck").rglob("*") if f.is_file())
        assert 1.5 * size > 1500e3 > size, f"the disk must hold one checkpoint and not two: {size}"
        text = end(start("train.steps=6"), 75)
        assert "checkpoint of step 6" in text and "No space left on device" in text, text
        assert pathlib.Path("ck/latest").read_text().strip() == "step-00000004"
        assert "resumed from ck/step-00000004" in end(start("train.steps=5", "checkpoint.dir=ck", "metrics.jsonl=x.jsonl"), 75)
        pathlib.Path("ck/STOP").touch()
        end(start(), 75)
        assert pathlib.Path("ck/STOP").exists(), "obeyed once there is a checkpoint"
    finally:
        subprocess.run(["umount", "-l", "ck"], check=True)


def check_a_disk_that_is_full_for_a_while():
    """Checkpoints that could not be written are made up for by the next."""
    fresh()
    pathlib.Path("ck").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", "ck"], capture_output=True).returncode != 0:
        print("no right to mount a small disk: skipped")
        return
    try:
        pathlib.Path("ck/other").write_bytes(bytes(5500 << 10))
        job = start("checkpoint.every=20", "metrics.listen=127.0.0.1:0")
        wait_for(lambda: len(events("step")) > 50)
        assert not events("checkpoint")
        port = port_of(job)
        text = get(port, "/metrics")[1]
        assert re.search(r"^tfm_checkpoint_failures_total\S* [1-9]", text, re.MULTILINE), text
        assert not re.search("^tfm_last_checkpoint_step", text, re.MULTILINE), text
        os.unlink("ck/other")
        wait_for(lambda: events("checkpoint"))
        wait_for(lambda: re.search("^tfm_last_checkpoint_step", get(port, "/metrics")[1], re.MULTILINE))
        os.kill(running()[0], signal.SIGTERM)
        text = end(job, 0)
        assert "checkpoint of step 20" in text and "No space left on device" in text, text
    finally:
        subprocess.run(["umount", "-l", "ck"], check=True)


def check_damage():
    fresh()
    end(start("train.steps=6", "checkpoint.every=3"), 0)
    for folder in pathlib.Path("ck").glob("step-*"):
        shard = next(folder.glob("*.safetensors"))
        os.truncate(shard, shard.stat().st_size - 1)
    lines = pathlib.Path("run.jsonl").read_text()
    text = end(start("train.steps=9"), 3)
    assert "checkpoints is intact" in text and "step-00000006" in text and "step-00000003" in text, text
    assert pathlib.Path("run.jsonl").read_text() == lines, "nothing may be lost"


def port_of(job):
    return next(int(line.rsplit(":", 1)[1].split("/")[0]) for line in job.stdout if line.startswith("metrics at "))


def get(port, path):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        text = b"".join(iter(lambda: s.recv(65536), b"")).decode()
    head, body = text.split("\r\n\r\n", 1)
    return int(head.split()[1]), body


def check_endpoint():
    fresh()
    job = start("metrics.listen=127.0.0.1:0")
    wait_for(lambda: len(events("step")) > 3)
    port = port_of(job)
    status, health = get(port, "/healthz")
    assert status == 200, health
    status, text = get(port, "/metrics")
    assert status == 200
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    for name in ("tfm_step", "tfm_loss", "tfm_tokens_total", "tfm_learning_rate"):
        assert any(key.split("{")[0] == name for key in values), f"{name}: {sorted(values)}"
    taken = end(start("train.steps=2", f"metrics.listen=127.0.0.1:{port}", "checkpoint.dir=none", "metrics.jsonl=taken.jsonl"), 0)
    assert "warning: metrics are not served" in taken and f"127.0.0.1:{port}" in taken, taken
    assert len(pathlib.Path("taken.jsonl").read_text().splitlines()) == 4, "start, two steps, end"
    os.kill(running()[0], signal.SIGTERM)
    end(job, 0)


def check_work_is_kept_by_default():
    """Without checkpoint.dir a run keeps its work under its name, takes up its own unfinished work, and leaves that of others alone."""
    fresh()
    config = pathlib.Path("cfg.yaml").read_text()
    pathlib.Path("cfg.yaml").write_text(config.replace("checkpoint: {dir: ck, keep: 2}", ""))
    try:
        out = end(start("train.steps=3", ranks=2), 0)
        assert "checkpoints in runs/cfg/checkpoints, every 15 minutes and at the end" in out and "none keeps nothing" in out, out
        assert pathlib.Path("runs/cfg/checkpoints/step-00000003").is_dir(), out
        kept = {f: f.read_bytes() for f in pathlib.Path("runs/cfg").rglob("*") if f.is_file()}
        end(start("train.steps=3"), 0)  # a finished run is not run again, but left alone
        assert pathlib.Path("runs/cfg-2/checkpoints/step-00000003").is_dir()
        job = start("optimizer.lr=2e-3")
        wait_for(lambda: len(events("step")) > 3)
        os.kill(running()[0], signal.SIGTERM)
        text = end(job, 0)
        assert "runs/cfg-3/checkpoints" in text, text
        stopped = max(int(f.name[5:]) for f in pathlib.Path("runs/cfg-3/checkpoints").glob("step-*[0-9]"))
        assert "runs/cfg-4/checkpoints" in end(start("optimizer.lr=3e-3", "train.steps=2"), 0), "another training"
        job = start("optimizer.lr=2e-3", "train.micro_batch_size=2", ranks=1)  # the same one, on another layout
        wait_for(lambda: len(events("step")) > 0 and events("step")[-1]["step"] > stopped + 1)
        assert "runs/cfg-5/checkpoints" in end(start("optimizer.lr=2e-3", "train.steps=100000", "metrics.jsonl=other.jsonl", "train.seed=9",
                                                     "train.steps=2"), 0)
        os.kill(running()[0], signal.SIGTERM)
        assert f"resumed from runs/cfg-3/checkpoints/step-{stopped:08} at step {stopped}" in end(job, 0)
        assert kept == {f: f.read_bytes() for f in pathlib.Path("runs/cfg").rglob("*") if f.is_file()}, "the first run's work changed"
        before = sorted(pathlib.Path("runs").iterdir())
        end(start("train.steps=2", "checkpoint.dir=none"), 0)
        assert before == sorted(pathlib.Path("runs").iterdir())
        assert "expected a directory" in end(start("checkpoint.dir=none", "checkpoint.every=5"), 2)
    finally:
        pathlib.Path("cfg.yaml").write_text(config)


def check_checkpoints_by_time():
    fresh()
    job = start("train.steps=100000000", "checkpoint.every_minutes=1", "checkpoint.keep=2")
    wait_for(lambda: len(events("step")) > 3)
    suspend(50)  # what takes no processor while others test
    assert not events("checkpoint")
    wait_for(lambda: len(events("checkpoint")) > 0, 100)
    steps = len(events("step"))
    wait_for(lambda: len(events("step")) > steps + 50)
    assert len(events("checkpoint")) == 1, "the next one is a minute away"
    os.kill(running()[0], signal.SIGTERM)
    end(job, 0)
    by_time = events("checkpoint")[0]["step"]
    seconds = next(e["time"] for e in events("step") if e["step"] == by_time) - events("start")[0]["time"]
    assert 50 < seconds < 90, seconds


def check_changes_at_a_resume_are_said():
    def lines(*args, steps):
        out = end(start(f"train.steps={steps}", "schedule.type=cosine", *args, ranks=1), 0)
        return [line for line in out.splitlines() if line.startswith("warning: ")]

    fresh()
    assert lines(steps=8) == []
    assert lines(steps=8) == []
    advice = end(start("train.steps=8", "schedule.type=cosine", ranks=1), 0)
    assert "step 8 of 8 is done" in advice and "would go from 0 to 0.0004" in advice, advice
    rate = 1e-3 * (1 + math.cos(math.pi * 9 / 16)) / 2
    changed = lines(steps=16)
    assert len(changed) == 2 and "train.steps: 16 from here on, 8 before; schedule cosine ends with train.steps" in changed[0], changed
    assert f"goes from 0 at step 8 to {rate:.4g}"[:-1] in changed[1] and "at step 9" in changed[1], changed
    assert lines(steps=16) == []
    keys = {"optimizer.lr": ("0.05", "0.001"), "optimizer.grad_clip": ("0", "1"), "loss.label_smoothing": ("0.3", "0"), "precision": ("bf16", "fp32"),
            "schedule.warmup_steps": ("2", "0"), "optimizer.weight_decay": ("0", "0.1"), "data.train.shuffle": ("false", "true"),
            "optimizer.betas": ("[0.8, 0.9]", "[0.9, 0.95]"), "model.dropout": ("0", "0.1")}
    changed = lines(*(f"{key}={now}" for key, (now, _) in keys.items()), steps=32)
    for key, (now, before) in keys.items():
        assert sum(f"resumed with another {key}: {now} from here on, {before} before" in line for line in changed) == 1, (key, changed)
    assert len(changed) == len(keys) + 2, changed  # and train.steps, and the rate
    fresh()
    assert lines(steps=6) == []
    half = lines(steps=9)  # the rate of step 7 is compared with what it would have been
    assert len(half) == 2 and "times" not in half[1], half
    fresh()
    end(start("train.steps=4", "schedule.type=constant", ranks=1), 0)
    assert "warning" not in end(start("train.steps=8", "schedule.type=constant", "checkpoint.every=2", "train.micro_batch_size=1", ranks=2), 0)


def check_requests_that_save_nothing():
    fresh()
    job = start("checkpoint.dir=none")
    wait_for(lambda: len(events("step")) > 1)
    os.kill(running()[0], signal.SIGUSR1)
    seen = len(events("step"))
    wait_for(lambda: len(events("step")) > seen + 3)
    os.kill(running()[0], signal.SIGTERM)
    text = end(job, 0)
    assert "warning: a checkpoint was asked for" in text and "so nothing was saved" in text, text


def check_metrics_that_cannot_be_written():
    fresh()
    text = end(start("train.steps=2", "metrics.jsonl=text.txt/run.jsonl", "checkpoint.dir=none"), 0)
    assert "warning: metrics.jsonl" in text and "text.txt/run.jsonl" in text, text
    before = pathlib.Path("text.txt").read_bytes()
    text = end(start("train.steps=2", "metrics.jsonl=text.txt", "checkpoint.dir=none"), 0)
    assert "warning: metrics.jsonl" in text and "text.txt: is there, and no run's metrics" in text, text
    assert pathlib.Path("text.txt").read_bytes() == before and not pathlib.Path("text.txt.old").exists()


def check_a_finished_run_started_again():
    fresh()
    end(start("train.steps=4"), 0)
    text = end(start("train.steps=4"), 0)
    assert "step 4 of 4 is done" in text and "train.steps" in text, text
    assert "is done" not in end(start("train.steps=5"), 0)
    assert [e["step"] for e in events("step")] == [1, 2, 3, 4, 5]


def check_a_loss_that_stays_nonfinite():
    fresh()
    text = end(start("train.steps=100", "optimizer={type: sgd, lr: 1.0e+10, grad_clip: 0}", "precision=fp16"), 5)
    assert "4 consecutive steps" in text, text
    fresh()
    text = end(start("train.steps=100", "optimizer.lr=1e30"), 5)
    assert "4 consecutive steps" in text and "optimizer.lr" in text, text
    losses = [e["loss"] for e in events("step")]
    assert losses[0] is not None and losses[-3:] == [None] * 3 and len(losses) < 20, losses
    fresh()
    often = ("checkpoint.every=1", "checkpoint.keep=2")
    end(start("train.steps=5", *often), 0)
    text = end(start("train.steps=100", "optimizer.lr=1e30", *often), 5)
    assert "checkpoint.resume takes an earlier checkpoint in ck" in text, text
    assert pathlib.Path("ck/step-00000005").exists(), "of before the steps that went wrong"
    fresh()
    text = end(start("train.steps=4", "optimizer.lr=1e30"), 0)
    assert "warning: step 4: the loss or gradient norm was NaN or infinite in" in text, text


def check_single_steps_that_are_not_finite():
    """One row of eight whose number is beyond squares of floats: never two steps in a row."""
    fresh()
    rows = ["text\tdegrees", *(f"row {i}\t{'3.0e38' if i % 8 == 7 else i}" for i in range(64))]
    pathlib.Path("rows.tsv").write_text("\n".join(rows) + "\n")
    pathlib.Path("rows.yaml").write_text("""
model: {family: encoder, vocab_size: 260, d_model: 32, n_layers: 1, n_heads: 4, d_ff: 64, heads: [{type: regress, name: degrees}]}
train: {steps: 40, global_batch_size: 1, seq_len: 16}
data: {train: {type: labelled, path: rows.tsv, text: text, label: degrees}}
checkpoint: {dir: none}
""")
    done = subprocess.run([BIN / "tfm-train", "rows.yaml"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and done.stderr.count("update skipped") == 5, done.stderr
    assert "step 40: the loss or gradient norm was NaN or infinite in 1 step;" in done.stderr, done.stderr


def check_the_loss_scale_is_restored():
    """An fp16 run in two parts is the run in one part, also where steps were skipped."""
    half = ["precision=fp16", "optimizer.ema=0.9"]
    fresh()
    manifest = pathlib.Path("ck/latest")
    end(start(*half, "train.steps=3"), 0)
    step = pathlib.Path("ck") / manifest.read_text().strip() / "manifest.json"
    assert json.loads(step.read_text())["loss_scale"] == {"value": 65536.0, "updates": 3}
    end(start(*half, "train.steps=6"), 0)
    step = pathlib.Path("ck") / manifest.read_text().strip() / "manifest.json"
    assert json.loads(step.read_text())["loss_scale"] == {"value": 65536.0, "updates": 6}, "counted on from 3"
    two_parts = [e["loss"] for e in events("step")]
    fresh()
    end(start(*half, "train.steps=6"), 0)
    assert [e["loss"] for e in events("step")] == two_parts


def check_another_batch_size_is_refused():
    fresh()
    end(start("train.steps=2"), 0)
    text = end(start("train.steps=4", "train.global_batch_size=16"), 2)
    assert "global batch size of 8" in text, text


def check_ranks_have_one_configuration():
    """Rank 1 of a job is started with something else, by a shell: mpirun of Open MPI 5.0.7 crashes where it is to start two programs."""
    def with_rank_1(program, *arguments):
        mine, other = (shlex.join(map(str, [run, "cfg.yaml", "train.steps=2", "checkpoint.dir=none", *more]))
                       for run, more in ((BIN / "tfm-train", ()), (program, arguments)))
        shell = f'if [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 1 ]; then exec {other}; else exec {mine}; fi'
        return subprocess.run([MPIRUN, "2", "bash", "-c", shell], capture_output=True, text=True, timeout=60)

    pathlib.Path("other.txt").write_text("another text " * 300)
    for key, mine, other in (("optimizer.lr", "0.001", "0.002"), ("train.seed", "1234", "7"), ("data.train.path", "text.txt", "other.txt"),
                             ("model.dropout", "0.1", "0.2"), ("parallel.tensor", "1", "2")):
        fresh()
        done = with_rank_1(BIN / "tfm-train", f"{key}={other}")
        text = done.stdout + done.stderr
        assert done.returncode == 2, f"{key}: exit {done.returncode}\n{text}"
        assert f"{key} is {mine} on rank 0 on host {socket.gethostname()}, but {other} on rank 1 on host" in text.replace('"', ""), text
        assert not events("start"), "nothing is trained"
    done = with_rank_1(BIN / "tfm-verify")
    assert done.returncode == 4 and "a different build of tfm than rank 0" in done.stderr, done.stdout + done.stderr


def check_cores_and_threads():
    """Open MPI's default binding leaves cores idle; one that the user asks for stays, with as many threads as it has cores."""
    cores = os.sched_getaffinity(0)
    if len(cores) < 2 or "Open MPI" not in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout:
        print("one core, or another launcher than Open MPI: skipped")
        return
    # With a policy, no threads come and go that let others have the cores (launch/support/give_way.h).
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_WAIT_POLICY": "passive"}
    env.pop("OMP_NUM_THREADS", None)

    def ranks_with(*options):
        """(cores, threads) of each rank, and whether rank 0 warned. A thread that reads ahead comes and goes: the fewest of many looks."""
        fresh()
        job = subprocess.Popen(["mpirun", *options, BIN / "tfm-train", "cfg.yaml", "model.d_model=256", "checkpoint.dir=none"], env=env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: len(events("step")) > 3)
        threads = {pid: 10**6 for pid in running()}
        for _ in range(50):
            threads = {pid: min(n, len(os.listdir(f"/proc/{pid}/task"))) for pid, n in threads.items()}
            time.sleep(0.01)
        found = [(os.sched_getaffinity(pid), n) for pid, n in threads.items()]
        os.kill(running()[0], signal.SIGTERM)
        return found, "fewer cores than their share" in end(job, 0)

    ((bound, one),), warned = ranks_with("-np", "1", "--bind-to", "hwthread")
    assert len(bound) == 1 and warned
    for options in ((), ("--bind-to", "none"), ("--map-by", "node")):
        found, warned = ranks_with("-np", "1", *options)
        assert found == [(cores, one + len(cores) - 1)] and not warned, (options, found, one)
    (first, _), (second, _) = ranks_with("--use-hwthread-cpus", "-np", "2")[0]
    assert first | second == cores and not first & second, (first, second)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("cfg.yaml").write_text(CONFIG)
        pathlib.Path("text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 300)
        try:
            for check in (check_signals, check_ctrl_c, check_signals_do_no_harm, check_a_stop_during_an_evaluation,
                          check_a_stop_during_an_evaluation_without_checkpoints,
                          check_a_checkpoint_asked_for_during_an_evaluation, check_a_stopped_rank_is_named,
                          check_a_rank_that_stops_at_the_start_is_named, check_files_that_fail, check_a_suspended_job_goes_on,
                          check_a_full_disk, check_a_disk_that_is_full_for_a_while, check_damage, check_endpoint,
                          check_requests_that_save_nothing, check_metrics_that_cannot_be_written,
                          check_work_is_kept_by_default, check_changes_at_a_resume_are_said, check_checkpoints_by_time,
                          check_a_finished_run_started_again,
                          check_a_loss_that_stays_nonfinite, check_single_steps_that_are_not_finite,
                          check_the_loss_scale_is_restored, check_another_batch_size_is_refused,
                          check_ranks_have_one_configuration, check_cores_and_threads):
                if len(sys.argv) > 2 and check.__name__ not in sys.argv[2:]:
                    continue
                check()
                print(check.__name__, "ok", flush=True)
        finally:
            for pid in running():
                os.kill(pid, signal.SIGKILL)
            os.chdir("/")


main()
