"""A job over several hosts: network namespaces of this machine with addresses of their own, started through a launch agent, exchanging by TCP.
Skipped with its reason where namespaces cannot be made.

usage: test_hosts.py BIN [--all] [--alone | --beside] [--hosts N] [CHECK ...]
--all: checks of times on three hosts, too. --alone: only the checks of times, which another test beside them would change; --beside: only
the others.
--hosts N: instead of what ctest runs, losses and a host that is cut off over N hosts whose cards have 1 Gbit/s: on a network without delay,
           and on one that takes 5 ms. Four hosts take 2.5 minutes on two cores.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from hosts import Hosts, Unavailable
from tier import ALL

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("bin", type=pathlib.Path)
PARSER.add_argument("checks", nargs="*")
PARSER.add_argument("--hosts", type=int, choices=(2, 4))
for option in ("--all", "--alone", "--beside"):
    PARSER.add_argument(option, action="store_true")
ARGUMENTS = PARSER.parse_args()
BIN = ARGUMENTS.bin.resolve()
SUPERVISE = pathlib.Path(__file__).resolve().parents[2] / "launch/supervise.sh"
TIMEOUT = 5  # of a collective, in seconds
CONFIG = f"""
model: {{family: decoder, vocab_size: 256, d_model: 64, n_layers: 2, n_heads: 4, max_seq_len: 32, dropout: 0.1}}
train: {{steps: 12, global_batch_size: 24, seq_len: 32}}
optimizer: {{lr: 1.0e-3}}
schedule: {{type: constant}}
parallel: {{timeout: {TIMEOUT}}}
data: {{train: {{type: text, path: text.txt, shuffle: true}}}}
metrics: {{listen: none}}
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
NARROW = ("tbf", "rate", "100mbit", "burst", "64kb", "latency", "400ms")
FAR = ("netem", "delay", "2ms", "rate", "100mbit")
USUAL = ("tbf", "rate", "1gbit", "burst", "256kb", "latency", "400ms") if ARGUMENTS.hosts else ()


def start(command):
    """Its output goes to a file: what is left on a host that was cut off would keep a pipe open."""
    with open("output.txt", "w") as out:
        return subprocess.Popen([str(c) for c in command], env=ENVIRONMENT, stdout=out, stderr=out)


def end(process, code, seconds=120):
    """What it printed. `code`: how it is to end; None: in any way."""
    process.wait(seconds)
    text = pathlib.Path("output.txt").read_text()
    assert code in (None, process.returncode), f"exit {process.returncode}, expected {code}\n{text[-5000:]}"
    return text


def train(*arguments):
    return [BIN / "tfm-train", "cfg.yaml", *arguments]


def one_host(ranks, *command):
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *command]


def losses(path):
    lines = [json.loads(line) for line in open(path)]
    return [(e["step"], e["loss"], e["grad_norm"]) for e in lines if e["event"] == "step"]


def shaped(hosts):
    """Each card with a delay and a rate, where this kernel has such queues."""
    for discipline in (FAR, NARROW):
        if hosts.shape(*discipline):
            return discipline
        print(f"this kernel has no queue {discipline[0]}: cards are not shaped by it")
    return ()


def check_losses_are_those_of_one_host(hosts):
    """Bit for bit, on layouts whose groups stay on a host and on such as span hosts, also over a slow network."""
    ranks = hosts.slots * len(hosts.names)
    experts = [f"parallel.expert={ranks}", f"model.experts={{count: {ranks}, top_k: 2, d_ff: 64}}"]  # nodewise.h
    for keys in (["parallel.tensor=2", "parallel.zero=1"], ["parallel.tensor=4"], [], experts):
        end(start(one_host(ranks, *train("metrics.jsonl=one.jsonl", *keys))), 0)
        for discipline in (USUAL,) if USUAL else ((), shaped(hosts)):
            hosts.shape(*discipline)
            before = hosts.sent_bytes(hosts.names[0])
            end(start(hosts.mpirun(ranks, *train("metrics.jsonl=several.jsonl", *keys))), 0, 300)
            sent = hosts.sent_bytes(hosts.names[0]) - before
            assert len(losses("one.jsonl")) == 12 and losses("several.jsonl") == losses("one.jsonl"), keys
            assert sent > 1e6, f"{sent} bytes over the network: it was not used"
            print(f"{len(hosts.names)} hosts, {ranks} ranks, {' '.join(keys) or 'data parallel'}, {' '.join(discipline) or 'unshaped'}: "
                  f"{sent / 1e6:.1f} MB sent by a host", flush=True)
    hosts.shape(*USUAL)


def doctor(hosts, *arguments, code=0, prefix=(), ranks=None):
    text = end(start(hosts.mpirun(ranks or len(hosts.names), *prefix, BIN / "tfm-doctor", "--json", *arguments)), code)
    return json.loads(text[text.index("{\n"):text.rindex("\n}") + 2])


def finds(report, check, *texts):
    assert any(f["check"] == check and f["severity"] == "problem" and all(t in f["text"] + f["remedy"] for t in texts) for f in report["findings"]), report


def check_links(hosts):
    """The network has the rate and the delay that are asked for."""
    links = doctor(hosts, code=None)["links"]
    rates, seconds = [link["bytes_per_second"] for link in links], [link["seconds"] for link in links]
    print(f"{len(hosts.names)} hosts: {min(rates) / 1e6:.0f} to {max(rates) / 1e6:.0f} MB/s, {min(seconds) * 1e3:.2f} to {max(seconds) * 1e3:.2f} ms")
    assert max(rates) < 1.05e9 / 8 and min(seconds) >= hosts.delay, links


def check_the_doctor(hosts):
    """Names a slow link and a clock that is off, and neither where there is none. Hosts share the cores of this machine, so a link is expected
    to reach less than between machines."""
    expected = ("--bandwidth", "0.02", "--latency", "20000")
    for _ in range(4):  # on a busy machine ranks that share cores differ for a while, in products and in messages
        report = doctor(hosts, *expected, code=None)
        if not any(f["check"] in ("speed", "links") and f["severity"] == "problem" for f in report["findings"]):
            break
    assert [n["host"] for n in report["nodes"]] == hosts.names, report["nodes"]
    assert report["exit_code"] == 0 and not [f for f in report["findings"] if f["severity"] == "problem"], report["findings"]
    pairs = [(a, b) for a in range(len(hosts.names)) for b in range(a + 1, len(hosts.names))]
    assert [(link["from"], link["to"]) for link in report["links"]] == pairs, report["links"]
    assert all(link["bytes_per_second"] > 2e7 for link in report["links"]), report["links"]
    # Whose group spans hosts, and hosts with unlike numbers of ranks, are said; a group on one host and like hosts, above, are not.
    if len(hosts.names) == 2 and hosts.slots == 2:
        for keys, spans in ((["parallel.tensor=4"], True), (["parallel.tensor=2"], False)):
            report = doctor(hosts, "cfg.yaml", *keys, *expected, code=None, ranks=4)
            assert spans == any(f["check"] == "axes" and "tensor groups span nodes" in f["text"] for f in report["findings"]), (keys, report["findings"])
            assert not any("different numbers of ranks" in f["text"] for f in report["findings"]), report["findings"]
        report = doctor(hosts, *expected, code=None, ranks=3)
        assert any(f["severity"] == "warning" and "different numbers of ranks" in f["text"] and "slots=" in f["remedy"] for f in report["findings"]), report
    if hosts.shape(*NARROW):
        report = doctor(hosts, *expected, code=4)
        finds(report, "links", "rank 0 on tfm-host-1 and rank 1 on tfm-host-2", "expected at least 0.020 GB/s", "btl_tcp_if_include")
        assert all(link["bytes_per_second"] < 14e6 for link in report["links"]), report["links"]
        hosts.shape()
    pathlib.Path("clock.c").write_text("""
        #define _GNU_SOURCE
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        static int ahead;
        /* Once: other threads ask for the time while MPI_Init changes the environment. */
        __attribute__((constructor)) static void read_rank(void) {
          const char* rank = getenv("OMPI_COMM_WORLD_RANK");
          ahead = rank && atoi(rank) == 1 ? atoi(getenv("CLOCK_AHEAD")) : 0;
        }
        int clock_gettime(clockid_t id, struct timespec* t) {
          const int failed = syscall(SYS_clock_gettime, id, t);
          if (id == CLOCK_REALTIME) t->tv_sec += ahead;
          return failed;
        }""")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "clock.so", "clock.c"], check=True)
    for ahead in (90, -90):
        report = doctor(hosts, *expected, code=4, prefix=("env", f"LD_PRELOAD={pathlib.Path('clock.so').resolve()}", f"CLOCK_AHEAD={ahead}"))
        finds(report, "clocks", f"the clock of tfm-host-2 is {ahead:+d}"[:-1], "chrony")
        found = next(float(n) for f in report["findings"] for n in re.findall(r"tfm-host-2 is ([-+][0-9.]+) s", f["text"]))
        assert abs(found - ahead) < 0.5, report


def check_a_host_that_is_cut_off(hosts):
    """It is named, the job ends with exit code 75 within the timeout and 5 s more, and goes on bit for bit."""
    ranks = len(hosts.names)
    subprocess.run(["rm", "-rf", "ck", "cut.jsonl"], check=True)
    keys = ["checkpoint.dir=ck", "checkpoint.every=5", "metrics.jsonl=cut.jsonl"]
    job = start([SUPERVISE, "--tries", 1, *hosts.mpirun(ranks, *train(*keys, "train.steps=100000"))])
    while not pathlib.Path("ck/latest").exists():
        assert job.poll() is None, end(job, 0)
        time.sleep(0.02)
    hosts.cut(hosts.names[-1])
    cut = time.monotonic()
    try:
        text = end(job, 75, 60)
        took = time.monotonic() - cut
    finally:
        hosts.cut(hosts.names[-1], up=True)
        if job.poll() is None:
            job.send_signal(signal.SIGKILL)
    assert re.search(rf"missing: .*rank {ranks - 1} \(on host {hosts.names[-1]}, state unknown\)", text), text
    assert took < TIMEOUT + 5, f"the job ended {took:.1f} s after the cut"
    last = int(pathlib.Path("ck/latest").read_text().strip().split("-")[1])
    more = [f"train.steps={last + 5}"]
    end(start(hosts.mpirun(ranks, *train(*keys, *more))), 0)
    end(start(one_host(ranks, *train("metrics.jsonl=whole.jsonl", *more))), 0)
    assert losses("cut.jsonl") == losses("whole.jsonl") and losses("cut.jsonl")[-1][0] == last + 5
    print(f"{ranks} hosts: the job ended {took:.1f} s after the cut, with a timeout of {TIMEOUT} s", flush=True)


def variants(folder):
    """Hosts, and what is checked on them."""
    if n := ARGUMENTS.hosts:
        for delay in (0.0, 5e-3):
            yield Hosts(n, folder, 4 // n, delay), (check_links, check_losses_are_those_of_one_host, check_a_host_that_is_cut_off)
    else:
        timed = (check_the_doctor, check_a_host_that_is_cut_off) * (not ARGUMENTS.beside)
        yield Hosts(2, folder, slots=2), (check_losses_are_those_of_one_host,) * (not ARGUMENTS.alone) + timed
        if timed and ALL:
            yield Hosts(3, folder), timed


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("cfg.yaml").write_text(CONFIG)
        pathlib.Path("text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 300)
        try:
            for cluster, checks in variants(pathlib.Path(folder)):
                with cluster as hosts:
                    hosts.shape(*USUAL)
                    for check in checks:
                        if ARGUMENTS.checks and check.__name__ not in ARGUMENTS.checks:
                            continue
                        check(hosts)
                        print(check.__name__, "ok", flush=True)
        except Unavailable as reason:
            print(f"skipped: no network namespaces here: {reason}")
        finally:
            os.chdir("/")


main()
