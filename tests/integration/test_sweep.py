"""tfm-train --sweep: a run for each combination, each as if it were started by itself; failures, stops and starts again; a report of all.

usage: test_sweep.py BIN_FOLDER
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(sys.argv[1]).resolve()
MPIRUN = pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh"
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 32, n_layers: 2, n_heads: 4, max_seq_len: 32}
train: {steps: 8, global_batch_size: 8, micro_batch_size: 2, seq_len: 32}
data:
  train: {type: text, path: text.txt, shuffle: true}
  validation: {type: text, path: text.txt}
eval: {every: 4, batches: 2}
checkpoint: {dir: runs/x/checkpoints}
metrics: {jsonl: runs/x/metrics.jsonl}
"""
SWEEP = pathlib.Path("runs/x/sweep")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def train(*args, code=0, program=()):
    command = [*map(str, program), str(BIN / "tfm-train"), "cfg.yaml", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=ENVIRONMENT)
    assert done.returncode == code, f"{command}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def events(folder, kind):
    return [e for line in open(folder / "metrics.jsonl") if (e := json.loads(line))["event"] == kind]


def losses(folder):
    return [e["loss"] for e in events(folder, "step")]


def check_every_combination():
    """Each run computes what it would without a sweep; a second start has nothing to do."""
    args = ["train.steps=6", "--sweep", "optimizer.lr=1e-3,3e-4", "train.seed=1,2"]
    said = train(*args)
    names = [f"lr={lr},seed={seed}" for lr in ("1e-3", "3e-4") for seed in (1, 2)]
    assert re.findall(r"sweep: run \d of 4, (\S+)", said) == names, said
    assert sorted(p.name for p in SWEEP.iterdir() if p.is_dir()) == sorted(names)
    for name in names:
        start, = events(SWEEP / name, "start")
        assert start["run"] == "x," + name, start["run"]
        assert (SWEEP / name / "checkpoints/latest").exists() and f"{name}: training loss {losses(SWEEP / name)[-1]:.4f}" in said, said
        evaluated = events(SWEEP / name, "eval")[-1]["loss"]
        assert f"{name}: training loss {losses(SWEEP / name)[-1]:.4f}, validation loss {evaluated:.4f}" in said, said
    train("train.steps=6", "optimizer.lr=3e-4", "train.seed=2", "checkpoint.dir=alone", "metrics.jsonl=alone/metrics.jsonl")
    assert losses(pathlib.Path("alone")) == losses(SWEEP / names[3]) != losses(SWEEP / names[2])
    page = (SWEEP / "report.html").read_text()
    for name in names:
        assert "x," + name in page
    assert re.search(r"<td>optimizer.lr</td><td>0.001</td><td>0.001</td><td>3e-04</td><td>3e-04</td>", page)
    before = {file: file.stat().st_mtime_ns for file in SWEEP.glob("*/metrics.jsonl")}
    assert train(*args).count("done before") == 4
    assert before == {file: file.stat().st_mtime_ns for file in SWEEP.glob("*/metrics.jsonl")}
    said = train("--sweep", "optimizer.lr=1e-3", "train.seed=1,3")  # with one value a key is no part of the name
    assert re.findall(r"run \d of 2, (\S+)", said) == ["seed=1", "seed=3"], said
    shutil.rmtree(SWEEP)


def check_what_follows_is_usual():
    """Behind the first key, one value is an override, a file the configuration and a word with dashes an option."""
    behind = ["train.steps=3", "metrics.jsonl=y/run.jsonl", "checkpoint.dir=y/ck", "--train.seq_len=16", "--launcher", "env"]
    done = subprocess.run([BIN / "tfm-train", "--sweep", "optimizer.lr=1e-3,2e-3", "cfg.yaml", *behind], capture_output=True, text=True,
                          timeout=300, env=ENVIRONMENT)
    assert done.returncode == 0 and re.findall(r"run \d of 2, (\S+)", done.stdout) == ["lr=1e-3", "lr=2e-3"], done
    for name in ("lr=1e-3", "lr=2e-3"):
        assert len(losses(pathlib.Path("y/sweep", name))) == 3
        assert "seq_len: 16" in pathlib.Path("y/sweep", name, "config.yaml").read_text()


def check_a_failure_does_not_end_the_sweep():
    args = ["--sweep", "optimizer.lr=1e30,1e-3"]
    said = train(*args, code=1)
    assert "lr=1e30: failed with exit code 5" in said and "lr=1e-3: training loss" in said and "1 of 2 runs failed" in said, said
    assert (SWEEP / "lr=1e30/exit_code").read_text() == "5\n" and (SWEEP / "report.html").exists()
    said = train(*args, code=1)
    assert "lr=1e30: failed before with exit code 5" in said and "lr=1e-3: done before" in said, said
    pathlib.Path("text.txt").rename("away.txt")
    assert train("train.seed=7", *args, code=1).count("failed with exit code 3") == 2  # a changed configuration runs again
    pathlib.Path("away.txt").rename("text.txt")
    said = train("train.seed=7", "--sweep", "optimizer.lr=1e-3,2e-3")
    assert "before" not in said, said
    shutil.rmtree(SWEEP)


def check_a_stop_and_a_start_again(*launcher, world=1):
    """SIGTERM lets the run save; the next start resumes it."""
    args = ["train.steps=400", "--sweep", "train.seed=1,2", *launcher]
    first = SWEEP / "seed=1"
    with open("log", "w") as log:
        process = subprocess.Popen([BIN / "tfm-train", "cfg.yaml", *args], stdout=log, stderr=log, env=ENVIRONMENT)
    end = time.monotonic() + 120
    while not ((first / "metrics.jsonl").exists() and '"step":5,' in (first / "metrics.jsonl").read_text()):
        assert process.poll() is None and time.monotonic() < end, open("log").read()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0, open("log").read()
    said = open("log").read()
    assert "stopped on request after step" in said and "sweep: stopped on request" in said and not (SWEEP / "seed=2").exists(), said
    stopped = len(losses(first))
    assert 5 <= stopped < 400 and events(first, "start")[0]["world"] == world
    said = train(*args)
    assert f"at step {stopped}" in said and "before" not in said, said
    assert len(losses(first)) == len(losses(SWEEP / "seed=2")) == 400
    assert events(first, "start")[-1]["resumed_step"] == stopped
    shutil.rmtree(SWEEP)


def check_what_is_refused():
    for args, expected in ((["--sweep", "optimizer.lr"], "section.key=value"), (["--sweep", "optimizer.lr=1,,2"], "a value is missing"),
                           (["--sweep", "train.seed=1,2", "train.seed=3"], "twice"), (["--sweep", "run.name=a,b"], "run.name"),
                           (["--sweep", "optimizer.lrr=1,2"], "did you mean 'lr'"), (["--sweep", "optimizer.lr=1,x"], "optimizer.lr"),
                           (["--sweep", "data.tokenizer=a/b,a_b"], "a_b"), (["--check", "--sweep", "train.seed=1,2"], "--check"),
                           (["--launcher", "mpirun -np 2"], "--sweep")):
        assert expected in train(*args, code=2), (args, expected)
    assert "--launcher" in train("--sweep", "train.seed=1,2", code=2, program=(MPIRUN, 2))
    assert not SWEEP.exists(), "what is refused leaves nothing"


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pathlib.Path("cfg.yaml").write_text(CONFIG)
    pathlib.Path("text.txt").write_text("".join(f"{n} times {n} is {n * n}. " for n in range(2000)))
    check_every_combination()
    check_what_follows_is_usual()
    check_a_failure_does_not_end_the_sweep()
    check_a_stop_and_a_start_again()
    check_a_stop_and_a_start_again("--launcher", f"{MPIRUN} 2", world=2)
    check_what_is_refused()
    print("ok")
