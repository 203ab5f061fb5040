"""A Prometheus that scrapes a run of two ranks: every expression of the dashboard has values; the alert of a stalled run fires while a rank
is stopped, and clears; a run that is killed raises an alert, one that ends does not.

Skipped without prometheus and promtool (Debian: apt-get install prometheus).

usage: test_prometheus.py BIN_FOLDER
"""
import contextlib
import json
import math
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

BIN = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 32, n_layers: 2, n_heads: 4, max_seq_len: 32}
train: {steps: 100000000, global_batch_size: 8, seq_len: 32}
data:
  train: {type: text, path: text.txt, shuffle: true}
  validation: {type: text, path: text.txt}
eval: {every: 500, batches: 2}
checkpoint: {dir: checkpoints, every: 500, keep: 1}
parallel: {timeout: 300}
"""
STALL = 5  # seconds, for the five minutes of the rule


def free_ports():
    """Two, which nothing takes by chance: below those that the system hands out."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with socket.socket() as one, socket.socket() as other:
        for s in (one, other):
            while True:
                with contextlib.suppress(OSError):
                    s.bind(("127.0.0.1", random.randrange(1024, lowest)))
                    break
        return one.getsockname()[1], other.getsockname()[1]


def replaced(text, *pairs):
    for old, new in pairs:
        assert text.count(old) == 1, f"{old}: {text.count(old)} times"
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def running(*command, name):
    """A process of its own group, whose output is shown where something fails."""
    with open(name + ".log", "w") as log:
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    except BaseException:
        print(f"{name}:\n" + pathlib.Path(name + ".log").read_text()[-3000:])
        raise
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def wait_until(true, what, seconds=60):
    end = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < end, f"not after {seconds} s: {what}"
        time.sleep(0.2)
    return value


class Prometheus:
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/api/v1/"

    def get(self, path, **query):
        try:
            with urllib.request.urlopen(self.url + path + "?" + urllib.parse.urlencode(query), timeout=10) as reply:
                return json.load(reply)["data"]
        except ConnectionError:
            return None
        except urllib.error.URLError as e:
            if isinstance(e.reason, ConnectionError) or getattr(e, "code", None) == 503:  # it starts
                return None
            raise AssertionError(f"{query}: {e}") from e

    def values(self, expression):
        data = self.get("query", query=expression)
        return [float(r["value"][1]) for r in data["result"]] if data else []

    def firing(self, alert):
        """The runs that it fires for."""
        return {a["labels"]["run"] for a in (self.get("alerts") or {"alerts": []})["alerts"] if a["labels"]["alertname"] == alert and a["state"] == "firing"}


def expressions(part):
    """Of all panels of a dashboard, with every job and instance."""
    if isinstance(part, dict) and "expr" in part:
        yield part["expr"].replace("$job", ".*").replace("$run", ".*")
    for child in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from expressions(child)


def write_files(listen):
    pathlib.Path("cfg.yaml").write_text(CONFIG)
    pathlib.Path("text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 300)
    configs = ROOT / "configs"
    checked = subprocess.run(["promtool", "check", "config", str(configs / "prometheus.yml")], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    pathlib.Path("alerts").mkdir()
    pathlib.Path("prometheus.yml").write_text(replaced((configs / "prometheus.yml").read_text(), ("127.0.0.1:9750", listen),
                                                       ("scrape_interval: 15s", "scrape_interval: 500ms"), ("evaluation_interval: 15s", "evaluation_interval: 500ms")))
    pathlib.Path("alerts/tfm.rules.yml").write_text(replaced((configs / "alerts/tfm.rules.yml").read_text(), (", 300)", f", {STALL})"), ("for: 2m", "for: 1s")))


def legends(part):
    if isinstance(part, dict) and "legendFormat" in part:
        yield part["legendFormat"]
    for child in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from legends(child)


def check_legends():
    """The dashboard shows all runs at first: a line without its name may be of any of them."""
    found = list(legends(json.loads((ROOT / "configs/dashboards/tfm.json").read_text())))
    assert len(found) >= 20 and not [text for text in found if "{{run}}" not in text], found


STALLS = """
rule_files: [alerts/tfm.rules.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {{series: 'tfm_last_progress_timestamp_seconds{{job="tfm", instance="a"}}', values: 0x60}}
  - {{series: 'tfm_step_duration_seconds_sum{{job="tfm", instance="a"}}', values: {seconds}x60}}
  - {{series: 'tfm_step_duration_seconds_count{{job="tfm", instance="a"}}', values: {steps}x60}}
  promql_expr_test:
  - expr: count(ALERTS{{alertname="TfmStalled"}}) or vector(0)
    eval_time: {minutes}m
    exp_samples: [{{labels: '{{}}', value: {firing}}}]
"""


def check_stalls():
    """Five minutes, also before the first step, or ten times the mean step."""
    for seconds, steps, minutes, firing in ((0, 0, 4, 0), (0, 0, 6, 1), (50, 10, 4, 0), (50, 10, 6, 1), (1200, 10, 19, 0),
                                            (1200, 10, 21, 1)):
        pathlib.Path("stalls.yml").write_text(STALLS.format(seconds=seconds, steps=steps, minutes=minutes, firing=firing))
        shutil.copytree(ROOT / "configs/alerts", "alerts", dirs_exist_ok=True)
        done = subprocess.run(["promtool", "test", "rules", "stalls.yml"], capture_output=True, text=True)
        assert done.returncode == 0, (seconds, steps, minutes, done.stdout + done.stderr)
    shutil.rmtree("alerts")


ENDS = """
rule_files: [alerts/tfm.rules.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {{series: 'up{{job="tfm", instance="a"}}', values: 1x10 0x30}}
  - {{series: 'tfm_run_ended{{job="tfm", instance="a", run="x"}}', values: {x}}}
  - {{series: 'tfm_run_ended{{job="tfm", instance="a", run="y"}}', values: {y}}}
  promql_expr_test:
  - expr: ALERTS{{alertname="TfmUnreachable", alertstate="firing"}}
    eval_time: {minutes}m
    exp_samples: [{alerts}]
"""


def check_ends():
    """An endpoint that vanishes is an alert where the run has not announced its end, for half an hour and for that run alone."""
    never, killed, ended = "_x40", "0x10 stale _x29", "0x9 1 stale _x29"
    for x, y, minutes, runs in ((killed, never, 10, ""), (killed, never, 14, "x"), (ended, never, 14, ""), (killed, never, 41, ""),
                                ("0x3 1 stale _x35", "_x5 0x5 stale _x29", 14, "y"), ("0x3 stale _x36", "_x5 0x4 1 stale _x29", 14, "x")):
        alerts = ", ".join(f"""{{labels: 'ALERTS{{alertname="TfmUnreachable", alertstate="firing", instance="a", job="tfm", run="{run}", severity="critical"}}', value: 1}}"""
                           for run in runs)
        pathlib.Path("ends.yml").write_text(ENDS.format(x=x, y=y, minutes=minutes, alerts=alerts))
        shutil.copytree(ROOT / "configs/alerts", "alerts", dirs_exist_ok=True)
        done = subprocess.run(["promtool", "test", "rules", "ends.yml"], capture_output=True, text=True)
        assert done.returncode == 0, (x, y, minutes, done.stdout + done.stderr)
    shutil.rmtree("alerts")


def check_dashboard(prometheus):
    queries = list(expressions(json.loads((ROOT / "configs/dashboards/tfm.json").read_text())))
    assert len(queries) >= 20, queries
    wait_until(lambda: prometheus.values("tfm_eval_loss") and prometheus.values("tfm_last_checkpoint_step > 0"), "an evaluation and a checkpoint")
    for query in queries:
        # A rate needs a second sample.
        values = wait_until(lambda q=query: prometheus.values(q), query)
        assert all(map(math.isfinite, values)), (query, values)
    print(len(queries), "expressions have values")


def check_stalled_run(prometheus, stopped):
    firing = lambda: prometheus.firing("TfmStalled")
    steps = lambda: max(prometheus.values("tfm_step"), default=0)
    wait_until(lambda: not firing(), "no alert while steps go on")
    os.kill(stopped, signal.SIGSTOP)
    try:
        wait_until(firing, "an alert while a rank is stopped")
        before = steps()
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: not firing(), "no alert after the rank goes on")
    wait_until(lambda: steps() > before, "further steps")


def check_ended_runs(prometheus, listen, rank):
    """A killed run raises an alert. One that ends waits until Prometheus has read that."""
    unreachable = lambda: prometheus.firing("TfmUnreachable")
    assert not unreachable()
    os.kill(rank, signal.SIGKILL)
    wait_until(lambda: unreachable() == {"cfg"}, "an alert for the killed run")  # named as its file: its checkpoint.dir tells nothing
    done = subprocess.run([BIN / "tfm-train", "cfg.yaml", "train.steps=2000", "run.name=second", "checkpoint.dir=second", f"metrics.listen={listen}"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert prometheus.values('last_over_time(tfm_run_ended{run="second"}[10m])') == [1], done.stdout[-500:]
    assert prometheus.values('last_over_time(tfm_eta_seconds{run="second"}[10m])') == [0]
    wait_until(lambda: prometheus.values("up") == [0], "the endpoint vanishes")
    time.sleep(3)  # for as long as the alert waits, and two evaluations
    assert "second" not in unreachable(), unreachable()


def main():
    check_legends()
    if missing := [p for p in ("prometheus", "promtool") if not shutil.which(p)]:
        return print("skipped: no", " and no ".join(missing))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_stalls()
        check_ends()
        metrics_port, port = free_ports()
        listen = f"127.0.0.1:{metrics_port}"
        write_files(listen)
        rank = f'echo $$ > "rank${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}"; exec {BIN}/tfm-train cfg.yaml metrics.listen={listen}'
        with running(ROOT / "tests/mpirun.sh", 2, "/bin/bash", "-c", rank, name="training"), \
                running("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}", name="prometheus"):
            prometheus = Prometheus(port)
            check_dashboard(prometheus)
            rank = int(pathlib.Path("rank1").read_text())
            check_stalled_run(prometheus, rank)
            check_ended_runs(prometheus, listen, rank)
        os.chdir("/")
    print("ok")


main()
