"""tfm-doctor finds what is wrong with a launch, a node or its files, names it with its remedy, and nothing on a host where all is well.

usage: test_doctor.py BIN [--alone | --beside] [CHECK ...]
--alone: only the checks of what the doctor times, which another test beside them would change; --beside: only the others.
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
DOCTOR = BIN / "tfm-doctor"
RANK = '"${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"'
CORES = len(os.sched_getaffinity(0))
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 64, n_layers: 2, n_heads: 4, max_seq_len: 32, dropout: 0.1}
train: {steps: 100, global_batch_size: 8, seq_len: 32}
data: {train: {type: text, path: text.txt, shuffle: true}}
checkpoint: {dir: runs/ck, every: 10, keep: 2}
metrics: {jsonl: runs/run.jsonl, listen: none}
"""


def launch(*command, ranks=1, options=("--bind-to", "none"), code=0, **variables):
    """(what the doctor's JSON says, all that was printed) of a launch that ends with `code`."""
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables}
    if "OMP_NUM_THREADS" not in variables:
        env.pop("OMP_NUM_THREADS", None)
    mpirun = ["mpirun", "--oversubscribe", *options, "-np", str(ranks)] if ranks else []
    for _ in range(3):  # what else runs on this host while a rank is timed is no false alarm
        done = subprocess.run([*mpirun, *map(str, command)], env=env, capture_output=True, text=True, timeout=240)
        if done.returncode == code or not re.search(r'"problem",\s*"check": "speed"', done.stdout):
            break
    text = done.stdout + done.stderr
    assert done.returncode == code, f"{command}: exit {done.returncode}, expected {code}\n{text}"
    start = done.stdout.find("{\n")
    return (json.loads(done.stdout[start:done.stdout.rindex("}") + 1]) if start >= 0 else None), text


def examine(*arguments, **how):
    return launch(DOCTOR, "cfg.yaml", "--json", *arguments, **how)[0]


def finds(report, check, *texts, severity="problem"):
    """The finding of that check, with those texts in what is wrong or what to do."""
    found = [f for f in report["findings"] if f["check"] == check and f["severity"] == severity]
    assert any(all(t in f["text"] + " -> " + f["remedy"] for t in texts) for f in found), f"{check}: {texts}\n{report['findings']}"


def one_rank(then, otherwise, rank=1):
    """A shell that runs `then` on one rank and something else on the others."""
    return ["bash", "-c", f"if [ {RANK} = {rank} ]; then {then}; else {otherwise}; fi"]


def ranks_that_fit():
    return min(2, CORES)


def check_a_clean_host():
    """No problem and no warning, in words and as JSON, alone and under a launcher; nothing is left behind."""
    before = sorted(pathlib.Path().rglob("*"))
    for ranks in (0, 1, ranks_that_fit()):
        for _ in range(6):  # what else runs on this host while an axis or a rank is timed is no false alarm
            report, _ = launch("bash", "-c", f"{DOCTOR} cfg.yaml --json || true", ranks=ranks)
            if all(f["severity"] == "ok" for f in report["findings"] if f["check"] in ("speed", "axes")):
                break
        assert [f for f in report["findings"] if f["severity"] != "ok"] == [] and report["exit_code"] == 0, report["findings"]
        assert {f["check"] for f in report["findings"]} >= {"launch", "build", "configuration", "cores", "device", "speed", "memory", "checkpoints",
                                                            "data", "metrics"}
        assert len(report["product_flops_per_second"]) == max(ranks, 1) == report["ranks"]
    _, text = launch(DOCTOR, "cfg.yaml")
    assert "no problem, 0 warnings" in text and "problem  " not in text, text
    report, _ = launch(DOCTOR, "--json")
    assert report["exit_code"] == 0 and "data" not in {f["check"] for f in report["findings"]}, report
    assert sorted(pathlib.Path().rglob("*")) == before, "files are left"


def check_checkpoint_size():
    """What is planned is what a checkpoint's tensors take, for several optimizers and precisions."""
    for keys in ([], ["optimizer.type=adafactor"], ["optimizer.ema=0.9", "precision=bf16"], ["optimizer.type=muon"]):
        keys += ["train.steps=1", "checkpoint.dir=size", 'metrics.jsonl=""']
        planned = examine(*keys, ranks=ranks_that_fit())["checkpoint"]["bytes"]
        launch(BIN / "tfm-train", "cfg.yaml", *keys, ranks=ranks_that_fit())
        written = 0
        for shard in pathlib.Path("size").glob("step-*/*.safetensors"):
            with open(shard, "rb") as f:
                header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            written += max((t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"), default=0)
        shutil.rmtree("size")
        assert planned == written > 0, (keys, planned, written)


def check_checkpoints_to_come():
    """Those that are there give way: one comes on top of them."""
    for there, to_come in ((0, 3), (1, 2), (2, 1)):
        if there:
            launch(BIN / "tfm-train", "cfg.yaml", "checkpoint.dir=room", "checkpoint.every=1", f"train.steps={there}")
        assert examine("checkpoint.dir=room", "train.steps=100")["checkpoint"]["to_come"] == to_come, there
    shutil.rmtree("room")


def check_wrong_binding():
    if CORES < 2:
        return print("one core: skipped")
    finds(examine(options=["--bind-to", "hwthread"], code=4), "cores", "is bound to 1 core", "slot:PE=")


def check_more_threads_than_cores():
    finds(examine(ranks=ranks_that_fit(), code=4, OMP_NUM_THREADS=str(CORES + 1)), "cores", f"threads on {CORES} core", "OMP_NUM_THREADS=1")
    finds(examine(ranks=2 * CORES, code=4), "cores", f"{2 * CORES} threads on {CORES} core", f"at most {CORES} ranks")


def check_a_slow_rank():
    """One that is stopped for four fifths of the time."""
    slowed = (f"{DOCTOR} cfg.yaml --json & while kill -STOP $!; do sleep 0.04; kill -CONT $!; sleep 0.01; done 2>/dev/null; wait $!")
    report, _ = launch(*one_rank(slowed, f"exec {DOCTOR} cfg.yaml --json"), ranks=2, code=4)
    finds(report, "speed", "rank 1 on", "the median rank", "end what else runs there")


def check_a_pipeline():
    """Sums are timed on the axes that have them, and a pipeline's stages have none."""
    stages = ("parallel.pipeline=2", "parallel.data=2", "train.micro_batch_size=2")
    report, _ = launch("bash", "-c", f"{DOCTOR} cfg.yaml --json {' '.join(stages)} || true", ranks=4, OMP_NUM_THREADS="1")
    assert {"data", "world"} <= {a["axis"] for a in report["axes"]}, report
    assert not [f for f in report["findings"] if f["severity"] == "problem" and f["check"] != "cores"], report["findings"]


def check_another_launcher():
    for argument in ((), ("parallel.tensor=2",)):
        finds(examine(*argument, ranks=0, code=4, PMI_SIZE="4"), "launch", "the launcher started 4 processes", "srun --mpi=pmix")


def check_a_rank_that_never_comes():
    _, text = launch(*one_rank("sleep 60", f"exec {DOCTOR} cfg.yaml --timeout 3"), ranks=2, code=4)
    assert "has waited 3 s for MPI to start on all ranks" in text and "btl_tcp_if_include" in text, text


def check_another_configuration():
    report, _ = launch(*one_rank(f"exec {DOCTOR} cfg.yaml --json optimizer.lr=0.5", f"exec {DOCTOR} cfg.yaml --json"), ranks=2, code=4)
    finds(report, "configuration", "optimizer.lr is 6e-04 on rank 0", "0.5 on rank 1", "same file and overrides")
    report, _ = launch(*one_rank(f"exec {DOCTOR} gone.yaml --json", f"exec {DOCTOR} cfg.yaml --json"), ranks=2, code=4)
    finds(report, "configuration", "rank 1]", "gone.yaml", "give every node the same file")
    assert "legal values" in launch(DOCTOR, "cfg.yaml", "model.n_heads=5", ranks=2, code=2)[1], "wrong on all ranks"


def check_another_build():
    """A program whose build id differs by one bit."""
    code = DOCTOR.read_bytes()
    at = code.index(b"GNU\0", code.index(struct.pack("<III", 4, 20, 3))) + 4
    other = pathlib.Path("other-doctor")
    other.write_bytes(code[:at] + bytes([code[at] ^ 1]) + code[at + 1:])
    other.chmod(0o755)
    report, _ = launch(*one_rank("exec ./other-doctor cfg.yaml --json", f"exec {DOCTOR} cfg.yaml --json"), ranks=2, code=4)
    finds(report, "build", "rank 1 on", "runs a different build of tfm than rank 0", "start the same program on every host")
    other.unlink()


def check_a_read_only_directory():
    folder = pathlib.Path("readonly")
    folder.mkdir()
    folder.chmod(0o555)
    mounted = os.getuid() == 0 and subprocess.run("mount --bind readonly readonly && mount -o remount,bind,ro readonly", shell=True).returncode == 0
    try:
        if os.getuid() == 0 and not mounted:
            return print("no right to mount: skipped")
        for path in ("readonly", "readonly/ck"):
            finds(examine(f"checkpoint.dir={path}", code=4), "checkpoints", path, "every node mounts and may write")
    finally:
        if mounted:
            subprocess.run(["umount", "-l", "readonly"], check=True)
        folder.rmdir()


def check_a_full_disk():
    pathlib.Path("small").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", "small"], capture_output=True).returncode:
        return print("no right to mount a small disk: skipped")
    try:
        finds(examine("checkpoint.dir=small", code=4), "checkpoints", "3 checkpoints of", "checkpoint.keep")
        examine("checkpoint.dir=small", "train.steps=5")  # one alone fits
    finally:
        subprocess.run(["umount", "-l", "small"], check=True)


def check_a_directory_that_is_not_shared():
    folder = pathlib.Path("elsewhere")
    folder.mkdir()
    text, here = pathlib.Path("text.txt").resolve(), pathlib.Path("cfg.yaml").resolve()
    program = f"exec {DOCTOR} {here} --json data.train.path={text}"
    report, _ = launch(*one_rank(f"cd elsewhere; {program}", program), ranks=2, code=4)
    finds(report, "checkpoints", "rank 1]", "is not shared", "every node mounts")
    shutil.rmtree(folder)


def check_two_jobs_in_one_directory():
    folder = pathlib.Path("taken")
    folder.mkdir()
    with open(folder / "run.lock", "w") as lock:
        lock.write("host here\npid 77\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        finds(examine("checkpoint.dir=taken", code=4), "checkpoints", "another run is using this directory (pid 77", "set another checkpoint.dir")
    shutil.rmtree(folder)


def check_missing_data():
    """On one rank; other data on one rank; on all."""
    folder = pathlib.Path("elsewhere")
    folder.mkdir()
    here, runs = pathlib.Path("cfg.yaml").resolve(), pathlib.Path("runs").resolve()
    program = f"exec {DOCTOR} {here} --json checkpoint.dir={runs}/ck metrics.jsonl={runs}/run.jsonl"
    report, _ = launch(*one_rank(f"cd elsewhere; {program}", program), ranks=2, code=3)
    finds(report, "data", "rank 1]", "text.txt: cannot be opened", "copy the files to every node")
    (folder / "text.txt").write_text("shorter " * 30)
    report, _ = launch(*one_rank(f"cd elsewhere; {program}", program), ranks=2, code=4)
    finds(report, "data", "text.txt of 13500 bytes on rank 0", "text.txt of 240 bytes on rank 1", "copy the same files")
    finds(examine("data.train.path=gone.txt", code=3), "data", "gone.txt: cannot be opened")
    shutil.copy("text.txt", folder)
    pathlib.Path("other.txt").write_text("longer " * 100)
    (folder / "other.txt").write_text("longer " * 90)
    program += " 'data.validation={type: text, path: other.txt}'"
    report, _ = launch(*one_rank(f"cd elsewhere; {program}", program), ranks=2, code=4)
    finds(report, "data", "other.txt of 700 bytes on rank 0", "other.txt of 630 bytes on rank 1", "copy the same files")
    os.unlink("other.txt")
    shutil.rmtree(folder)


def check_metrics_that_cannot_be_written():
    finds(examine("metrics.jsonl=text.txt/run.jsonl", code=4), "metrics", "text.txt", "set metrics.jsonl")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        report = examine(f"metrics.listen=127.0.0.1:{taken.getsockname()[1]}")
        finds(report, "metrics", "will not be served", "set another metrics.listen", severity="warning")


    with open("held.jsonl", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        finds(examine("metrics.jsonl=held.jsonl", code=4), "metrics", "held.jsonl: another run is writing it", "set metrics.jsonl")
    finds(examine("metrics.jsonl=held.jsonl"), "metrics", "held.jsonl can be written", severity="ok")
    finds(examine("metrics.tensorboard=text.txt", code=4), "metrics", "text.txt", "set metrics.tensorboard")
    finds(examine("metrics.tensorboard=events"), "metrics", "can be written", severity="ok")
    os.unlink("held.jsonl")


def check_what_is_left_unused():
    """Cores, and checkpoints: warnings, which fail nothing."""
    report = examine("checkpoint.dir=none", "checkpoint.every=0")
    finds(report, "checkpoints", "none are written", "set checkpoint.dir", severity="warning")
    if CORES > 1:
        finds(examine(OMP_NUM_THREADS="1"), "cores", f"use 1 of {CORES} core", "leave OMP_NUM_THREADS unset", severity="warning")


def check_pipes():
    """Data in a pipe has no size; a pipe that nobody reads takes no metrics, and nothing waits for its reader."""
    os.mkfifo("pipe")
    finds(examine("data.train.path=pipe"), "data", "present on every rank", severity="ok")
    finds(examine("metrics.jsonl=text.txt"), "metrics", "text.txt is there, and no run's metrics", "another file", severity="warning")
    finds(examine("metrics.jsonl=pipe", "--timeout", 20, code=4), "metrics", "pipe: cannot be written", "set metrics.jsonl")
    os.unlink("pipe")


def check_checkpoints_that_do_not_fit():
    """Said once, as a problem of checkpoints."""
    for argument, code, text in (("checkpoint.dir=text.txt", 4, "is a file; expected a directory"),
                                 ("checkpoint.resume=gone", 3, "checkpoint.resume: gone")):
        report = examine(argument, code=code)
        finds(report, "checkpoints", text)
        assert [f["check"] for f in report["findings"] if f["severity"] == "problem"] == ["checkpoints"], report["findings"]


def check_too_little_memory():
    large = ["model.d_model=16384", "model.n_layers=96", "model.d_ff=65536"]
    finds(examine(*large, code=4), "memory", "GB by the plan", "tfm-plan")
    # What is compared is all that the ranks of a node take together.
    some = ["model.d_model=512", "model.n_layers=8"]
    plan = subprocess.run([DOCTOR.with_name("tfm-plan"), "cfg.yaml", "--ranks", "2", "--json", *some], capture_output=True, text=True,
                          check=True)
    total = sum(m["total_bytes"] for m in json.loads(plan.stdout)["memory"])
    ok, = (f["text"] for f in examine(*some, ranks=2)["findings"] if f["check"] == "memory" and f["severity"] == "ok")
    found = float(re.search(r"ranks of the first node take ([\d.]+) GB", ok).group(1))
    assert total > 0.5e9 and abs(found - total / 1e9) < 0.05 * found, (ok, total)


def check_no_device():
    report, text = launch(DOCTOR, "cfg.yaml", "--json", "device=cuda", code=4)
    if "driver" in text or "no CUDA support" in text:
        finds(report, "device", "device is cuda")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("cfg.yaml").write_text(CONFIG)
        pathlib.Path("text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 300)
        pathlib.Path("runs").mkdir()
        alone = (check_a_clean_host, check_wrong_binding, check_more_threads_than_cores, check_a_slow_rank)
        beside = (check_checkpoint_size, check_checkpoints_to_come, check_a_pipeline, check_another_launcher, check_a_rank_that_never_comes,
                  check_another_configuration, check_another_build, check_a_read_only_directory, check_a_full_disk,
                  check_a_directory_that_is_not_shared, check_two_jobs_in_one_directory, check_missing_data,
                  check_metrics_that_cannot_be_written, check_what_is_left_unused, check_pipes, check_checkpoints_that_do_not_fit,
                  check_too_little_memory, check_no_device)
        wanted = [a for a in sys.argv[2:] if not a.startswith("--")]
        for check in alone * ("--beside" not in sys.argv) + beside * ("--alone" not in sys.argv):
            if wanted and check.__name__ not in wanted:
                continue
            check()
            print(check.__name__, "ok", flush=True)
        os.chdir("/")


main()
