"""The recipes of launch/recipes start a job from their own text where their tools are; else the reason is printed.

usage: test_recipes.py BIN
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from hosts import Hosts, Unavailable

BIN = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
RECIPES = ROOT / "launch/recipes"
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 64, n_layers: 2, n_heads: 4, max_seq_len: 32, dropout: 0.1}
train: {steps: 40, global_batch_size: 8, seq_len: 32}
data: {train: {type: text, path: text.txt, shuffle: true}}
checkpoint: {every: 10}
metrics: {jsonl: run.jsonl, listen: none}
"""
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "DOCTOR_OPTIONS": "--bandwidth 0.001 --latency 100000"}  # hosts of one machine share its cores


def steps():
    return [e["step"] for e in map(json.loads, open("run.jsonl")) if e["event"] == "step"]


def run(*command, code=0, **variables):
    done = subprocess.run([str(c) for c in command], env={**ENVIRONMENT, **variables}, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def wait_for(what, seconds=120):
    end = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.1)
    return found


def built_with(library):
    return library in subprocess.run(["ldd", BIN / "tfm-train"], check=True, capture_output=True, text=True).stdout


def check_usage():
    for name, arguments in (("openmpi.sh", ["hosts", 2, "cfg.yaml"]), ("mpich.sh", []), ("slurm.sbatch", ["cfg.yaml"])):
        for given, code in ((["--help"], 0), (["-h"], 0), (arguments, 2)):
            text = run(RECIPES / name, *given, code=code)
            assert f"{name} " in text and "CONFIG CHECKPOINTS" in text and "unbound" not in text, text


def program(path, *lines):
    path.write_text("\n".join(["#!/usr/bin/env bash", *lines, ""]))
    path.chmod(0o755)


def check_setup():
    """Where setup.sh cannot install, it says what it would have, with the reason."""
    tools = pathlib.Path("setup-tools")
    tools.mkdir()
    for name in ("bash", "env", "sed", "grep"):
        (tools / name).symlink_to(shutil.which(name))
    text = run(ROOT / "launch/setup.sh", "--tests", code=1, PATH=str(tools.resolve()))
    assert "no apt-get" in text and " libgtest-dev" in text and "Debian" in text, text
    program(tools / "apt-get", "exit 9")
    program(tools / "id", "echo 1000")
    text = run(ROOT / "launch/setup.sh", code=1, PATH=str(tools.resolve()))
    assert "no sudo" in text and " libyaml-cpp-dev" in text and "gtest" not in text, text


def check_hostfile():
    """Hosts of a hostfile as MPICH has them; a line that says something else is named. mpiexec is one that says what it is asked for."""
    tools = pathlib.Path("mpich-tools")
    tools.mkdir()
    program(tools / "mpiexec", 'echo "hosts: $2"; exit 9')
    path = f"{tools.resolve()}:{os.environ['PATH']}"
    hosts = pathlib.Path("hosts")
    hosts.write_text("# two\nnode1 slots=8\nnode2\tslots=4 # four\n\n  node3\nnode4:2\n"
                     "node5 max-slots=3 slots=2\nnode6 slots=2 max_slots=4")
    text = run(RECIPES / "mpich.sh", hosts, 2, "cfg.yaml", "ck", code=9, PATH=path)
    assert text == "hosts: node1:8,node2:4,node3:1,node4:2,node5:2,node6:2\n", text
    for line in ("node2 slots=x", "node2 slots=0", "node2 8", "node2:x", "node2:2 slots=4", "slots=4"):
        hosts.write_text(f"node1 slots=8\n{line}\nnode3 slots=1\n")
        text = run(RECIPES / "mpich.sh", hosts, 2, "cfg.yaml", "ck", code=2, PATH=path)
        assert text.startswith("mpich.sh: hosts:2: ") and text.endswith(f"{line}\n"), text
    # A request to stop becomes a file, whatever the folder is called; one that comes during the doctor starts no training.
    program(tools / "mpiexec", 'case "$*" in *tfm-train*) touch running; while [[ ! -e $CHECKPOINTS/STOP ]]; do sleep 0.1; done;;',
            "*) touch doctor; sleep ${DOCTOR_SECONDS:-0};; esac")
    hosts.write_text("node1\n")
    for name, seconds, begun in (('say "hi" for $HOME and `id`', "0", "running"), ("ck", "2", "doctor")):
        for file in ("running", "doctor"):
            pathlib.Path(file).unlink(missing_ok=True)
        pathlib.Path(name).mkdir(exist_ok=True)
        job = subprocess.Popen([RECIPES / "mpich.sh", hosts, "1", "cfg.yaml", name],
                               env={**ENVIRONMENT, "PATH": path, "CHECKPOINTS": name, "DOCTOR_SECONDS": seconds})
        wait_for(pathlib.Path(begun).exists)
        time.sleep(0.3)
        job.send_signal(signal.SIGTERM)
        assert job.wait(60) == 0
        assert pathlib.Path(name, "STOP").exists() == pathlib.Path("running").exists() == (begun == "running"), name
        shutil.rmtree(name)
    hosts.write_text("# none\n")
    assert "no hosts" in run(RECIPES / "mpich.sh", hosts, 2, "cfg.yaml", "ck", code=2, PATH=path)


def train_on_two_hosts(recipe):
    """A recipe over two hosts with their own addresses: the doctor, then the training."""
    try:
        with Hosts(2, pathlib.Path.cwd()) as hosts:
            text = run(*hosts.on_first(RECIPES / recipe, hosts.hostfile, 2, "cfg.yaml", "ck"), **hosts.launcher())
    except Unavailable as reason:
        return print(f"{recipe}: skipped: no network namespaces here: {reason}")
    assert "2 nodes, tfm-host-1: rank 0; tfm-host-2: rank 1" in text and steps() == list(range(1, 41)), text
    assert pathlib.Path("ck/latest").read_text() == "step-00000040\n"


def check_openmpi():
    if not built_with("libmpi.so.40"):
        return print("openmpi.sh: skipped: built with another MPI")
    train_on_two_hosts("openmpi.sh")
    lines = [line for line in (RECIPES / "hostfile").read_text().splitlines() if not line.startswith("#")]
    assert lines and all(re.fullmatch(r"\S+ slots=\d+", line) for line in lines), lines


def check_mpich():
    if not built_with("libmpich.so.12"):
        return print("mpich.sh: skipped: built with another MPI; tests/install/clean_roots.py --only mpich builds with MPICH")
    train_on_two_hosts("mpich.sh")


SLURM = """
ClusterName=tfm
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
TmpFS={folder}
SlurmctldPort={first_port}
SlurmdPort={second_port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES State=UP PriorityTier=1 GraceTime=120
PartitionName=urgent Nodes=ALL State=UP PriorityTier=2
"""


class Slurm:
    """A controller, a node and their authentication, of this test alone."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, []

    def __enter__(self):
        missing = [d for d in ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol") if not shutil.which(d)]
        if missing or os.getuid() != 0:
            raise Unavailable(f"{', '.join(missing)} not installed (Debian: slurmctld slurmd slurm-client munge)" if missing else "needs root")
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
            ports = a.getsockname()[1], b.getsockname()[1]
        conf = self.folder / "slurm.conf"
        conf.write_text(SLURM.format(host=socket.gethostname().split(".")[0], user="root", folder=self.folder, first_port=ports[0], second_port=ports[1],
                                     cores=len(os.sched_getaffinity(0))))
        ENVIRONMENT["SLURM_CONF"] = str(conf)
        self.start("munged", "--force", "--foreground", f"--socket={self.folder}/munge.socket", f"--key-file={key}", f"--log-file={self.folder}/munge.log",
                   f"--pid-file={self.folder}/munge.pid", f"--seed-file={self.folder}/munge.seed")
        wait_for((self.folder / "munge.socket").exists)
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D")
        try:
            wait_for(lambda: "idle" in subprocess.run(["sinfo", "-h"], env=ENVIRONMENT, capture_output=True, text=True).stdout, 60)
        except AssertionError:
            self.__exit__()
            raise Unavailable(f"Slurm's node does not come up: {(self.folder / 'slurmd.log').read_text()[-500:]}") from None
        return self

    def start(self, name, *options):
        with open(self.folder / f"{name}.log", "w") as log:
            self.daemons.append(subprocess.Popen([name, *options], env=ENVIRONMENT, stdout=log, stderr=log))

    def __exit__(self, *_):
        subprocess.run(["scancel", "--me"], env=ENVIRONMENT, capture_output=True)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:  # slurmd waits for the end of a job
                daemon.kill()
                daemon.wait()


def job_state(job):
    """("RUNNING", number of restarts)"""
    text = run("scontrol", "show", "job", job)
    return re.search(r"JobState=(\w+)", text)[1], int(re.search(r"Restarts=(\d+)", text)[1])


def check_another_start(job, stopped, text):
    """A job that is queued again goes on from a checkpoint of its last step."""
    assert pathlib.Path("slurm-ck/latest").read_text() == f"step-{stopped:08}\n", "a checkpoint of the last step"
    wait_for(lambda: job_state(job)[0] == "PENDING")
    time.sleep(2)  # a start in the second in which the job was ended is refused
    run("scontrol", "update", f"JobId={job}", "StartTime=now")
    resumed = f"resumed from slurm-ck/step-{stopped:08} at step {stopped}"
    wait_for(lambda: resumed in text() or job_state(job)[0] in ("COMPLETED", "FAILED"), 300)
    assert resumed in text(), text()[-3000:]
    wait_for(lambda: steps()[-1] > stopped + 20)
    found = steps()
    assert found == list(range(1, found[-1] + 1)), "each step once"


def check_slurm_without_slurm():
    """What slurm.sbatch does about a signal during the doctor and about a preemption, and where it finds supervise.sh."""
    launch, tools = pathlib.Path("two words/launch"), pathlib.Path("slurm-tools")
    shutil.copytree(ROOT / "launch/recipes", launch / "recipes")
    shutil.copy(ROOT / "launch/supervise.sh", launch)
    tools.mkdir()
    program(tools / "srun", "while [[ $1 == --* ]]; do shift; done", 'exec "$@"')
    program(tools / "scontrol", 'if [[ $1 == requeue ]]; then touch requeued; exit; fi',
            'echo "   PreemptEligibleTime=2026-01-01T00:00:00 PreemptTime=${PREEMPTED:-None}"',
            'echo "   StartTime=2025-12-31T00:00:00 EndTime=Unknown"',
            'echo "   Command=$SUBMITTED cfg.yaml ck a=b c"')
    program(tools / "tfm-doctor", "touch doctor; sleep ${DOCTOR_SECONDS:-0}; exit ${DOCTOR_CODE:-0}")
    program(tools / "tfm-train", "touch trained; exit ${TRAIN_CODE:-0}")
    recipe = (launch / "recipes/slurm.sbatch").resolve()
    shutil.copy(recipe, "slurm_script")  # the name of Slurm's copy

    def start(signal_number=None, submitted=recipe, **variables):
        """Exit code, what was done, what was said."""
        for file in ("doctor", "trained", "requeued"):
            pathlib.Path(file).unlink(missing_ok=True)
        environment = {**os.environ, "PATH": f"{tools.resolve()}:/usr/bin:/bin", "SLURM_JOB_ID": "1", "SUBMITTED": str(submitted)}
        job = subprocess.Popen(["./slurm_script", "cfg.yaml", "ck", "a=b", "c"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env={**environment, **variables})
        if signal_number:
            wait_for(pathlib.Path("doctor").exists)
            job.send_signal(signal_number)
        text = job.communicate(timeout=60)[0]
        return job.returncode, [f for f in ("trained", "requeued") if pathlib.Path(f).exists()], text

    for expected, case in (((0, ["trained"]), {}), ((1, ["trained"]), {"TRAIN_CODE": "1"}), ((4, []), {"DOCTOR_CODE": "4"}),
                           ((2, []), {"signal_number": signal.SIGUSR2, "DOCTOR_SECONDS": "5"}),  # else again and again
                           ((0, ["trained", "requeued"]), {"PREEMPTED": "2026-01-01T00:00:00"}),
                           ((0, ["trained"]), {"PREEMPTED": "2025-12-30T00:00:00"}),  # before this start
                           ((143, ["requeued"]), {"PREEMPTED": "2026-01-01T00:00:00", "DOCTOR_CODE": "143"})):
        found = start(**case)
        assert found[:2] == expected, (case, found)
    elsewhere = pathlib.Path("elsewhere/slurm.sbatch").resolve()
    code, done, text = start(submitted=elsewhere)
    assert code == 2 and not done and "no supervise.sh in" in text, (code, text)
    os.symlink(launch, "launch")
    assert start(submitted=elsewhere)[:2] == (0, ["trained"]), "launch/ where it is submitted"
    os.unlink("launch")


def check_slurm():
    """slurm.sbatch on a node of its own: the doctor and the training by srun; the signal before the end writes a checkpoint, the job is queued
    again and goes on, each step once; so it does where a job of a higher tier takes the node, and not after scancel."""
    pathlib.Path("run.jsonl").unlink(missing_ok=True)
    try:
        with Slurm(pathlib.Path.cwd() / "slurm"):
            ranks = min(2, len(os.sched_getaffinity(0)))
            job = run("sbatch", "--parsable", "--nodes=1", "--exclusive", f"--ntasks-per-node={ranks}", "--output=slurm.out",
                      RECIPES / "slurm.sbatch", "cfg.yaml", "slurm-ck", "train.steps=100000").strip()
            out = pathlib.Path("slurm.out")
            text = lambda: out.read_text() if out.exists() else ""
            wait_for(lambda: pathlib.Path("slurm-ck/latest").exists() or job_state(job)[0] not in ("PENDING", "RUNNING"))
            assert job_state(job)[0] == "RUNNING", text()
            run("scancel", "--batch", "--signal=USR2", job)
            wait_for(lambda: job_state(job)[1] == 1 or job_state(job)[0] == "COMPLETED")
            stopped = steps()[-1]
            assert job_state(job)[1] == 1, text()
            check_another_start(job, stopped, text)
            urgent = run("sbatch", "--parsable", "--partition=urgent", "--exclusive", "--output=none", "--wrap=sleep 1").strip()
            wait_for(lambda: job_state(job)[1] == 2 or job_state(job)[0] == "COMPLETED", 100)  # of the 120 s of grace
            assert job_state(job)[1] == 2, text()
            stopped = steps()[-1]
            wait_for(lambda: job_state(urgent)[0] == "COMPLETED")
            check_another_start(job, stopped, text)
            assert f"1 node, {socket.gethostname()}: rank" in text() and text().count("no problem") == 3, text()
            run("scancel", job)
            wait_for(lambda: job_state(job)[0] == "CANCELLED")
            assert job_state(job)[1] == 2
    except Unavailable as reason:
        print(f"slurm.sbatch: skipped: {reason}")


def check_pod_waits(command, checkpoints):
    """A worker's preStop asks ranks that run to stop and waits for their end; without ranks it does nothing. Ranks are a `sleep` here."""
    shell, option, script = command
    assert script.count("tfm-train") == 1 and f"touch {checkpoints}/STOP;" in script and f"rm -f {checkpoints}/STOP;" in script, script
    shutil.copy(shutil.which("sleep"), "stand-in")
    script = script.replace("tfm-train", "stand-in").replace(checkpoints, ".")
    run(shell, option, script)
    assert not pathlib.Path("STOP").exists(), "a run that has ended would leave the file to the next one"
    rank = subprocess.Popen([pathlib.Path("stand-in").resolve(), "60"])
    hook = subprocess.Popen([shell, option, script])
    try:
        wait_for(pathlib.Path("STOP").exists)
        time.sleep(0.5)
        assert hook.poll() is None, "a pod must not go before its ranks"
        rank.terminate()
        rank.wait()
        assert hook.wait(20) == 0 and not pathlib.Path("STOP").exists(), "nothing is left that would stop the next run"
    finally:
        rank.kill()
        hook.kill()


def check_kubernetes():
    """No cluster here starts it; its structure is what the MPI operator's v2beta1 asks for, and what it names is in the images."""
    try:
        import yaml
    except ImportError:
        return print("kubernetes.yaml: skipped: no yaml module (Debian: python3-yaml)")
    job = yaml.safe_load((RECIPES / "kubernetes.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob") and re.fullmatch(r"[a-z0-9-]+", job["metadata"]["name"])
    spec = job["spec"]
    assert set(spec) <= {"slotsPerWorker", "sshAuthMountPath", "launcherCreationPolicy", "runPolicy", "mpiReplicaSpecs", "mpiImplementation",
                         "runLauncherAsWorker"}, spec
    assert set(spec["runPolicy"]) <= {"cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "schedulingPolicy", "suspend"}
    assert set(spec["mpiReplicaSpecs"]) == {"Launcher", "Worker"}
    workers = spec["mpiReplicaSpecs"]["Worker"]["replicas"]
    for role, replica in spec["mpiReplicaSpecs"].items():
        pod = replica["template"]["spec"]
        volumes = {v["name"] for v in pod["volumes"]}
        for container in pod["containers"]:
            assert container["name"] and container["image"] and {m["name"] for m in container["volumeMounts"]} <= volumes, role
    launcher, = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    worker, = spec["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert launcher["command"] == ["/opt/tfm/launch/recipes/openmpi.sh"] and int(launcher["args"][1]) == workers * spec["slotsPerWorker"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == spec["slotsPerWorker"]
    checkpoints = launcher["args"][3]
    check_pod_waits(worker["lifecycle"]["preStop"]["exec"]["command"], checkpoints)
    home = "/home/tfm"
    prepares = (RECIPES / "worker.sh").read_text()
    assert spec["sshAuthMountPath"] == f"{home}/.ssh" and f"{home}/.sshd_config" in worker["args"] + [prepares]
    port, = set(re.findall(r"\bPort (\d+)", prepares))  # of sshd and of its client
    assert prepares.count(f"Port {port}") == 2 and int(port) >= 1024, "sshd runs without root"


def check_images():
    """Nothing here builds an image; what the build files copy and call is there."""
    for name in ("Dockerfile.cpu", "Dockerfile.cuda"):
        text = (RECIPES / name).read_text().replace("\\\n", " ")
        assert text.count("FROM ") == 2 and "COPY --from=build /opt/tfm /opt/tfm" in text, name
        for source in re.findall(r"^COPY (?!--)(\S+) ", text, re.MULTILINE):
            assert (ROOT / source).exists(), f"{name}: {source}"
        preset = "cuda" if "cuda" in name else "cpu"
        presets = {p["name"] for p in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
        configure = re.search(r"(launch/setup.sh[^&]*) && (cmake --preset (\w+)[^&]*)", text)
        assert configure and configure[3] == preset and preset in presets, name
        # It configures with what setup.sh installs: without GTest unless that is asked for. The toolkit need not be here.
        gtest = "OFF" if "--tests" in configure[1] else "ON"
        run(*configure[2].split(), "-S", ROOT, "-B", f"image-{preset}", "-DTFM_CUDA=OFF", f"-DCMAKE_DISABLE_FIND_PACKAGE_GTest={gtest}")
        assert set(re.findall(r"apt-get install[^&]*?\b(openmpi-bin|openssh-server)\b", text)), name
    patterns = set((ROOT / ".dockerignore").read_text().splitlines())
    outputs = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith("/")}
    assert outputs | {".git"} <= patterns, "an image would be built of this tree's own builds, runs and data"
    for script in RECIPES.iterdir():
        if script.read_text().startswith("#!"):
            run("bash", "-n", script)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("cfg.yaml").write_text(CONFIG)
        pathlib.Path("text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 300)
        for check in (check_usage, check_setup, check_hostfile, check_kubernetes, check_images, check_openmpi, check_mpich,
                      check_slurm_without_slurm, check_slurm):
            if len(sys.argv) > 2 and check.__name__ not in sys.argv[2:]:
                continue
            check()
            print(check.__name__, "ok", flush=True)
        os.chdir("/")


main()
