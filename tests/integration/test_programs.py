"""The programs as a user meets them: exit codes and messages for what is wrong, equality of layouts, resume, generation."""
import json
import math
import os
import pathlib
import random
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

BIN = pathlib.Path(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 32, n_layers: 2, n_heads: 4, max_seq_len: 32, dropout: 0.1}
train: {steps: 12, global_batch_size: 8, micro_batch_size: 2, seq_len: 32}
optimizer: {lr: 1.0e-3}
data:
  train: {type: text, path: text.txt, shuffle: true}
  validation: {type: text, path: text.txt}
eval: {every: 6, batches: 2}
"""
SPANS = """
model: {family: encoder_decoder, vocab_size: 360, d_model: 32, n_layers: 1, n_heads: 2, position: relative, tie_embeddings: inputs}
train: {steps: 3, global_batch_size: 2, seq_len: 60}
data: {train: {type: span_corruption, path: text.txt}}
"""


def run(ranks, program, *args, code=0, **variables):
    command = [str(BIN / program), *map(str, args)]
    if ranks > 0:
        command = [str(ROOT / "tests/mpirun.sh"), str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1", **variables})
    assert done.returncode == code, f"{command}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def events(path, kind="step"):
    return [e for e in map(json.loads, open(path)) if e["event"] == kind]


def losses(path):
    return [e["loss"] for e in events(path)]


def check_messages():
    for ranks, args, code, expected in [
        (3, ["parallel.tensor=2"], 2, "parallel.tensor"),
        (0, ["model.n_heads=5"], 2, "legal values"),
        (4, ["train.global_batch_size=6"], 2, "global_batch_size"),
        (2, ["data.train.path=missing.txt"], 3, "missing.txt"),
        (0, ["model.vocab=5"], 2, "vocab_size"),
        (0, ["precision=fp8"], 2, "bf16"),
        (0, ["recompute_layers=1"], 2, "recompute_layers 1 with recompute none recomputes nothing; expected recompute selective or full"),
        (0, ["recompute=auto", "recompute_layers=1"], 2, "recompute_layers 1 with recompute auto, which chooses it; expected"),
        (0, ["device=cuda"], 4, "device is cuda"),
    ]:
        out = run(ranks, "tfm-train", "cfg.yaml", *args, code=code)
        assert expected in out, f"{args}: {out}"
    assert "did you mean '--check'" in run(0, "tfm-train", "cfg.yaml", "--chek", code=2)
    assert run(0, "tfm-train", "cfg.yaml", "--check", "--ranks", "4") == "configuration is valid\n"
    for ranks in ("3", "4294967297", "99999999999999999999"):
        run(0, "tfm-train", "cfg.yaml", "--check", "--ranks", ranks, code=2)
    for threads in ("0", "two", "1000000"):
        done = subprocess.run([BIN / "tfm-train", "cfg.yaml"], capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": threads})
        assert done.returncode == 4 and f"OMP_NUM_THREADS is '{threads}'; expected the number of threads" in done.stderr, done
    if "ASAN_OPTIONS" not in os.environ:  # the address sanitizer takes more than the limit
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))
        done = subprocess.run([BIN / "tfm-train", "cfg.yaml", "model.vocab_size=2147483647"], capture_output=True, text=True,
                              preexec_fn=limit)
        assert done.returncode == 4 and "are planned to take" in done.stderr, done
    for variable in ("OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"):  # left behind by a launch
        for program, args in (("tfm-train", ["train.steps=1"]), ("tfm-plan", [])):
            done = subprocess.run([BIN / program, "cfg.yaml", *args], capture_output=True, text=True, env={**os.environ, variable: "1"})
            assert done.returncode == 0 and done.stdout, done
    assert "libmpi" not in subprocess.run(["ldd", BIN / "tfm-data"], capture_output=True, text=True).stdout, "tfm-data needs MPI"
    for option, text in (("--json-schema", '"$schema"'), ("--keys", "| key |")):
        assert run(2, "tfm-train", option).count(text) == 1, option
    with open("/dev/full", "w") as full:
        done = subprocess.run([BIN / "tfm-plan", "cfg.yaml", "--json"], stdout=full, stderr=subprocess.PIPE, text=True)
        helped = subprocess.run([BIN / "tfm-plan", "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
        samples = subprocess.run([BIN / "tfm-train", "cfg.yaml", "--samples=1"], stdout=full, stderr=subprocess.PIPE, text=True)
    for output in (done, helped, samples):
        assert output.returncode == 75 and "standard output cannot be written: No space left" in output.stderr, output
    for program, *words in (("tfm-plan", "--suggest", "--table"), ("tfm-plan", "--suggest", "--trace"),
                            ("tfm-train", "--check", "--samples", "1"), ("tfm-train", "--dump-config", "--samples", "1")):
        assert re.search("--(table|trace) is of one layout|and --samples: expected one", run(0, program, "cfg.yaml", *words, code=2)), words
    folder = os.open(".", os.O_RDONLY)
    done = subprocess.run([BIN / "tfm-data", "encode", "--tokenizer", "bytes"], stdin=folder, capture_output=True, text=True)
    os.close(folder)
    assert done.returncode == 75 and "standard input cannot be read" in done.stderr, done


def check_another_launcher():
    """What a launcher of another MPI starts trains nothing, N times; what was left in the environment is named, whatever it says."""
    alone = {name: "" for name in ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK")}
    run(0, "tfm-train", "cfg.yaml", "train.steps=1", "eval.every=0", "checkpoint.dir=alone", **alone)
    probe = ["tfm-probe", "alone", "--batch", "in.safetensors", "--out", "out.safetensors"]
    for command in (["tfm-train", "cfg.yaml"], ["tfm-verify", "cfg.yaml"], ["tfm-bench", "step", "cfg.yaml"], ["tfm-generate", "alone"],
                    ["tfm-eval", "alone", "--text", "text.txt"], probe, ["tfm-doctor", "cfg.yaml"]):
        out = run(0, *command, code=4, **{**alone, "PMI_SIZE": "3", "PMI_RANK": "2"})
        assert "the launcher started 3 processes (PMI_SIZE=3)" in out and "another MPI" in out and "srun --mpi=pmix" in out, out
    for variables in ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, {"PMI_RANK": "3"}, {"PMI_SIZE": "many"}, {"PMI_RANK": "x"},
                      {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1"}):
        name = list(variables)[-2] if "SLURM_PROCID" in variables else list(variables)[0]
        for program in ("tfm-train", "tfm-doctor"):
            out = run(0, program, "cfg.yaml", code=4, **{**alone, **variables})
            assert f"({name}={variables[name]})" in out and f"unset {name}" in out and "stoll" not in out, out
    batch = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}  # a batch script that starts one program
    run(0, "tfm-train", "cfg.yaml", "train.steps=1", "eval.every=0", **alone, **batch)
    run(1, "tfm-train", "cfg.yaml", "train.steps=1", "eval.every=0")
    run(0, "tfm-bench", "scaling", "cfg.yaml", "--ranks", "1,2", "--steps", "1", "--warmup", "0", **alone)  # starts a launcher itself
    shutil.rmtree("alone")


def check_default_binding():
    """Open MPI binds a rank alone to one core. OpenMP counts all that the rank then gets, or its threads would sleep at each barrier."""
    cores = len(os.sched_getaffinity(0))
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if cores < 2 or "Open MPI" not in version:
        return print("one core, or another MPI: skipped")
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_DISPLAY_ENV": "TRUE"}
    env.pop("OMP_NUM_THREADS", None)
    for options, expected in (([], cores), (["--bind-to", "none"], cores), (["--bind-to", "core"], None)):
        done = subprocess.run(["mpirun", *options, "-np", "1", BIN / "tfm-train", "cfg.yaml", "train.steps=1", "eval.every=0"], env=env, capture_output=True, text=True)
        counted = [int(n) for n in re.findall(r"OMP_NUM_THREADS = '(\d+)'", done.stderr)]
        threads = int(re.search(r"device cpu, (\d+) thread", done.stderr + done.stdout)[1])
        assert done.returncode == 0 and counted[-1] == threads == (expected or threads), (options, counted, threads, done.stderr[-2000:])
        assert expected or (len(counted) == 1 and threads < cores), (options, counted)  # what was asked for stays


def check_inputs():
    """What a run would not find is said before it starts, where the configuration asks for it."""
    missing = "cfg.yaml:6:29: error: data.train.path: text.txt: cannot be opened: No such file or directory"
    os.rename("text.txt", "moved.txt")
    for ranks, args in [(0, ["--check"]), (0, []), (2, []), (4, ["--check"]), (0, ["--check", "--ranks", 64, "train.global_batch_size=128"])]:
        out = run(ranks, "tfm-train", "cfg.yaml", *args, code=3)
        assert out.count(missing) == 1 and "  train: {type: text, path: text.txt, shuffle: true}\n" + 30 * " " + "^" in out, out
        assert out.count("data.validation.path: text.txt: cannot be opened") == 1 and "valid\n" not in out, out
    assert missing in run(0, "tfm-bench", "step", "cfg.yaml", code=3)
    os.rename("moved.txt", "text.txt")
    out = run(0, "tfm-train", "cfg.yaml", "--check", "--ranks", 3, code=2)
    assert "cfg.yaml:3:39: error: train.global_batch_size 8 is not divisible by the 3 data-parallel ranks" in out, out
    unused = "optimizer.muon.lr has no effect with optimizer.type adamw"
    assert run(2, "tfm-train", "cfg.yaml", "--check", "optimizer.muon.lr=0.1").count(unused) == 1
    for args, code in [(["model.init=nowhere"], 3), (["data.tokenizer=no.json"], 3), (["checkpoint.resume=nowhere"], 3), (["checkpoint.dir=cfg.yaml"], 2)]:
        out = run(0, "tfm-train", "cfg.yaml", "--check", *args, code=code)
        assert f"override '{args[0]}': error: {args[0].split('=')[0]}: " in out, out
    os.symlink("nowhere", "link")
    for ranks, args in ((0, ["--check"]), (0, ["checkpoint.dir=link/"]), (2, [])):
        out = run(ranks, "tfm-train", "cfg.yaml", "checkpoint.dir=link", *args, code=2)
        assert out.count("checkpoint.dir: link: is a symbolic link to nowhere, which does not exist") == 1, out
    os.mkdir("nowhere")
    run(0, "tfm-train", "cfg.yaml", "checkpoint.dir=link", "train.steps=1", "eval.every=0")
    assert os.path.isdir("nowhere/step-00000001") and os.readlink("link") == "nowhere"
    # A checkpoint without the state of this run's optimizer; one with more than that is fine.
    run(0, "tfm-train", "cfg.yaml", "optimizer.type=sgd", "train.steps=2", "checkpoint.dir=sgd", "checkpoint.every=2")
    run(0, "tfm-train", "cfg.yaml", "train.steps=2", "checkpoint.dir=adamw", "checkpoint.every=2")
    for start in (["checkpoint.dir={}"], ["checkpoint.resume={}/step-00000002"]):
        of = lambda made: [s.format(made) for s in start]
        for more, lacks in ((["optimizer.type=adamw"], "adam.m/"), (["optimizer.type=adafactor"], "adafactor."),
                            (["optimizer.type=sgd", "optimizer.momentum=0.9"], "momentum/")):
            for check in ([], ["--check"], ["--check", "--ranks", 4, "parallel.tensor=2", "parallel.zero=1"]):
                out = run(0, "tfm-train", "cfg.yaml", *of("sgd"), *more, *check, code=3)
                assert f"has no tensor '{lacks}" in out and "compare `optimizer.type`" in out, out
        for more in (["optimizer.type=sgd"], []):
            assert "configuration is valid" in run(0, "tfm-train", "cfg.yaml", "--check", *of("adamw"), *more)
    shutil.rmtree("sgd"), shutil.rmtree("adamw")


def one_rank(name, others, own):
    """A shell line that starts tfm-train with an argument of its own on rank 3."""
    return f'value={others}; [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 3 ] && value={own}; exec {BIN / "tfm-train"} cfg.yaml {name}=$value'


def check_ranks_that_fail():
    """What all ranks would say is said once; what one rank says has its host and rank; all end soon, with its code."""
    ranks = ["train.micro_batch_size=1"]
    assert run(8, "tfm-train", "cfg.yaml", "--check", *ranks).count("configuration is valid") == 1
    for args, code, expected in [(["optimizer.lr=x"], 2, "'optimizer.lr': found the text 'x'"), (["train.global_batch_size=9"], 2, "divisible by the 8 data-parallel ranks"),
                                 (["parallel.tensor=3"], 2, "the 8 ranks are not divisible"), (["data.train.path=gone.txt"], 3, "gone.txt: cannot be opened"),
                                 (["--check", "data.train.path=gone.txt"], 3, "gone.txt: cannot be opened"), (["--chek"], 2, "did you mean '--check'"),
                                 (["device=cuda"], 4, "device is cuda")]:
        start = time.monotonic()
        out = run(8, "tfm-train", "cfg.yaml", *ranks, *args, code=code)
        assert out.count(expected) == 1 and " rank " not in out.split(expected)[0].splitlines()[-1], out
        assert time.monotonic() - start < 20
    host, gone = socket.gethostname(), "data.train.path: text.txt: cannot be opened"
    pathlib.Path("elsewhere").mkdir(exist_ok=True)
    program = f"exec {BIN.resolve()}/tfm-train {pathlib.Path('cfg.yaml').resolve()} train.micro_batch_size=1 data.train.path=text.txt"
    at_rank_3 = '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 3 ]'
    for command, ranks_that_fail, code, expected in [
            (one_rank("train.micro_batch_size=1 optimizer.lr", "1e-3", "x"), "rank 3", 2, "'optimizer.lr': found the text 'x'"),
            (f"{at_rank_3} && cd elsewhere; {program}", "rank 3", 3, gone), (f"{at_rank_3} && cd elsewhere; {program} --check", "rank 3", 3, gone),
            (f"{at_rank_3} || cd elsewhere; {program}", "ranks 0-2, 4-7", 3, gone)]:
        start = time.monotonic()
        out = run(8, "/bin/bash", "-c", command, code=code)
        assert out.count(expected) == 1 and f"[{host} {ranks_that_fail}] tfm-train: " in out, out
        assert time.monotonic() - start < 20
    text = pathlib.Path("text.txt").read_text()
    evaluates = f"exec {BIN.resolve()}/tfm-eval {pathlib.Path('seen').resolve()} --text text.txt"
    run(0, "tfm-train", "cfg.yaml", "train.steps=1", "checkpoint.dir=seen")
    for other in (text + text, text.swapcase()):
        pathlib.Path("elsewhere/text.txt").write_text(other)
        for command, what in ((f"{at_rank_3} && cd elsewhere; {program} data.validation.path=text.txt", "training data"),
                              (f"{at_rank_3} && cd elsewhere; {evaluates}", "the data")):
            out = run(8, "/bin/bash", "-c", command, code=4)
            assert f"{what} differs between the 8 ranks; these deviate from the majority: 3; give every host the same files" in out, out
    shutil.rmtree("elsewhere")


def check_layouts():
    run(0, "tfm-train", "cfg.yaml", "metrics.jsonl=one.jsonl")
    one = losses("one.jsonl")
    run(1, "tfm-train", "cfg.yaml", "metrics.jsonl=again.jsonl")
    assert losses("again.jsonl") == one, "the same run twice differs"
    for ranks, args in [(2, []), (4, ["parallel.tensor=2", "parallel.zero=1"]), (4, ["parallel.tensor=4", "recompute=full"]),
                        (8, ["parallel.tensor=4", "parallel.sequence=false"])]:
        run(ranks, "tfm-train", "cfg.yaml", "metrics.jsonl=other.jsonl", *args)
        other = losses("other.jsonl")
        assert abs(one[0] / other[0] - 1) < 1e-6 and len(one) == len(other)
        assert max(abs(a / b - 1) for a, b in zip(one, other)) < 1e-4, (ranks, args)
        start, end = events("other.jsonl", "start")[0], events("other.jsonl", "end")[0]
        plan = json.loads(run(0, "tfm-plan", "cfg.yaml", "--ranks", ranks, "--json", *args))
        assert start["planned_bytes"] == end["arena_high_water_bytes"] == max(m["total_bytes"] for m in plan["memory"])
    for args in (["parallel.zero=1"], ["parallel.bucket_bytes=8Ki"], ["recompute=full"], ["recompute=selective"], ["recompute=full", "recompute_layers=1"]):
        run(2, "tfm-train", "cfg.yaml", "metrics.jsonl=base.jsonl", "numerics=deterministic")
        run(2, "tfm-train", "cfg.yaml", "metrics.jsonl=other.jsonl", "numerics=deterministic", *args)
        assert losses("base.jsonl") == losses("other.jsonl"), args


def check_plan():
    plan = lambda *args, code=0: run(0, "tfm-plan", "cfg.yaml", *args, code=code)
    keys = {"parameters", "ranks", "layout", "memory", "collectives", "flops_per_step", "tokens_per_step", "step_seconds", "tokens_per_second",
            "mfu", "mfu_nominal", "limited_by", "seconds", "seconds_by_limit", "fits", "device"}
    for device in ("h200", "h100", "a100", "a100-40gb", "b200", "l40s", "cpu"):
        p = json.loads(plan("--ranks", 4, "--device", device, "--json", "parallel.tensor=2", "recompute=full"))
        assert keys <= set(p) and p["device"]["name"] == device and p["fits"], p
        for parts in ("seconds", "seconds_by_limit"):
            assert abs(sum(p[parts].values()) / p["step_seconds"] - 1) < 1e-9, p
        assert set(p["seconds"]) == {"forward", "recompute", "backward", "reduce", "optimizer"}
        assert p["limited_by"] == max(p["seconds_by_limit"], key=p["seconds_by_limit"].get)
        assert abs(p["tokens_per_second"] * p["step_seconds"] / p["tokens_per_step"] - 1) < 1e-9 and p["tokens_per_step"] == 8 * 32
        assert 0 < p["mfu"] < p["mfu_nominal"] < 1
        assert ("page_locked" in p["memory"][0]) == (device != "cpu")
        assert "predicted" in plan("--ranks", 4, "--device", device) and plan("--device", device) == plan("--device", device)
    adafactor = ["optimizer.type=adafactor", "parallel.tensor=2", "parallel.zero=1", "train.steps=1"]  # replicated parts are shared out over tensor ranks, too
    run(2, "tfm-train", "cfg.yaml", *adafactor, "checkpoint.dir=none", "eval.every=0", "metrics.jsonl=adafactor.jsonl")
    memory = json.loads(plan("--ranks", 2, "--json", *adafactor))["memory"]
    assert {m["total_bytes"] for m in memory} == {events("adafactor.jsonl", "start")[0]["planned_bytes"]}, memory
    nodes = ["--ranks", 16, "--device", "h100", "--json", "train.global_batch_size=32"]
    assert json.loads(plan(*nodes, "--network", "ethernet-25"))["step_seconds"] > json.loads(plan(*nodes))["step_seconds"]
    pathlib.Path("bad.yaml").write_text("name: mine\nmemry: 16G\n")
    refused = plan("--device", "bad.yaml", code=2)
    assert "bad.yaml:2:1" in refused and "did you mean 'memory'?" in refused and "'fp32' is missing" in refused, refused
    pathlib.Path("auto.yaml").write_text((ROOT / "configs/devices/h100.yaml").read_text().replace("memory: ", "memory: auto  # "))
    assert "memory: auto is for device cpu" in plan("--device", "auto.yaml", code=2)
    pathlib.Path("small.yaml").write_text((ROOT / "configs/devices/cpu.yaml").read_text().replace("memory: auto", "memory: 50e6"))
    assert json.loads(plan("--device", "small.yaml", "--json"))["device"]["memory_bytes"] == 50_000_000  # not this machine's
    assert json.loads(plan("--json", "device=cuda"))["device"]["name"] == "h200" and json.loads(plan("--json"))["device"]["name"] == "cpu"
    assert json.loads(plan("--json", "--measure"))["device"]["product_flops"] > 1e8
    for args in ([], ["--device", "h200"], ["tf32=true", "--device", "h200"]):  # a pipe can be read once
        assert run(0, "/bin/bash", "-c", f"{BIN / 'tfm-plan'} <(cat cfg.yaml) --json {' '.join(args)}") == plan("--json", *args), args
    p = json.loads(plan("--json", "--ranks", 4, "parallel.tensor=2"))
    for axis, axes in (("data", ("data", "world")), ("tensor", ("tensor",))):
        t = next(t for t in p["textbook_traffic"] if t["axis"] == axis)
        sent = sum(x["ring_bytes"] for x in p["traffic"] if x["axis"] in axes)
        assert abs(t["ring_bytes"] - sent) < 1e-3 and abs(t["textbook_ring_bytes"] + sum(d["ring_bytes"] for d in t["differences"]) - sent) < 1e-3, t
    count = lambda list: sum(x["count"] for x in list)
    assert count(p["traffic"]) == count(p["collectives"]) and "textbook" in plan("--ranks", 4, "parallel.tensor=2")
    large = ["model.d_model=8192", "model.n_layers=80", "model.n_heads=64", "train.global_batch_size=64", "train.micro_batch_size=1", "precision=bf16"]
    p = json.loads(plan("--ranks", 64, "--device", "h100", "--json", *large))
    assert not p["fits"] and any(c.startswith("parallel.") for c in p["nearest_fit"]["changes"]), p["nearest_fit"]
    p = json.loads(plan("--ranks", 64, "--device", "h100", "--json", *large, *p["nearest_fit"]["changes"]))
    assert p["fits"], p["memory"][0]
    assert "DOES NOT FIT" in plan("--ranks", 64, "--device", "h100", *large)
    # The overrides of a suggestion give what it says; others are slower, or do not fit.
    args = ["--ranks", 4, "--device", "h200", "parallel.tensor=2", "train.micro_batch_size=2"]
    s = json.loads(plan("--suggest", "--json", *args))
    assert len(s["suggestions"]) == 5 and s["others"]["slower"]["count"] > 0 and s["device"]["rates_from"], s
    times = [x["step_seconds"] for x in s["suggestions"]]
    assert times == sorted(times) and times[0] <= s["as_configured"]["step_seconds"] and s["others"]["slower"]["least_seconds"] >= times[-1]
    for x in s["suggestions"]:
        p = json.loads(plan("--json", *args, *x["overrides"]))
        assert (p["step_seconds"], p["layout"], p["micro_batches"]) == (x["step_seconds"], x["layout"], x["micro_batches"]), (p, x)
        assert p["fits"] and max(m["total_bytes"] for m in p["memory"]) == x["total_bytes"]
    # What does not fit beside the reserve fits in neither answer.
    small = [*(a if a != "h200" else "small.yaml" for a in args), "model.d_model=512"]
    device = (ROOT / "configs/devices/h200.yaml").read_text()
    total = max(m["total_bytes"] for m in json.loads(plan("--json", *args, "model.d_model=512"))["memory"])
    for reserve, fits in ((total // 100, True), (total // 10, False)):
        memory = f"\nmemory: {total + total // 20}\nreserve: {reserve}\n"
        pathlib.Path("small.yaml").write_text(re.sub(r"\nmemory: .*\nreserve: .*\n", memory, device))
        assert json.loads(plan("--json", *small))["fits"] == fits
        assert json.loads(plan("--suggest", "--json", *small))["as_configured"]["fits"] == fits, (reserve, total)
    text = plan("--suggest", *args)
    assert all(" ".join(x["overrides"]) in text for x in s["suggestions"]) and "assumed" in text, text
    assert "use more ranks" in plan("--suggest", "--ranks", 1, "--device", "h100", *large)
    # No layout that fits is an answer, as a plan that does not fit; none that can run is refused, as its plan is.
    s = json.loads(plan("--suggest", "--json", "--ranks", 7, code=2))
    assert s["suggestions"] == [] and s["as_configured"] is None and s["others"]["refused"], s
    assert "no layout of 7 ranks suits" in plan("--suggest", "--ranks", 7, code=2) and "7 data-parallel ranks" in plan("--ranks", 7, code=2)
    # Sizes beyond all machines are refused by their keys, before a number overflows.
    for args, expected in ((["model.n_layers=10000"], "model.n_layers: 'layers."),
                           (["model.d_model=1048576", "model.n_heads=4"], "d_head 262144 is out of range"),
                           (["model.d_model=1048576", "model.d_head=65536", "model.n_heads=65536", "model.n_layers=1000"],
                            "more than 1e+16 parameters"),
                           (["model.d_model=65536", "model.vocab_size=2147483647", "train.seq_len=16777216", "model.max_seq_len=16777216"],
                            "(train.micro_batch_size, train.seq_len)"),
                           (["train.global_batch_size=2147483647", "train.micro_batch_size=1"],
                            "train.global_batch_size 2147483647 makes more than 10000000 micro-batches"),
                           (["model.d_model=1048576", "model.n_heads=64"], "parallel.bucket_bytes")):
        assert expected in plan(*args, code=2), (args, plan(*args, code=2))
    for args, expected in ((["--device", "h300"], "h100, h200"), (["--device", "h200", "--measure"], "cpu"), (["--ranks", "0"], "at least 1")):
        assert expected in plan(*args, code=2)


    t5 = ROOT / "configs/t5_base.yaml", "--ranks", 16, "parallel.tensor=4", "parallel.context=4", "--device", "h200"
    for args, code in (("train.micro_batch_size=1 model.dropout=0", 0), ("train.micro_batch_size=1", 2), ("", 0)):
        assert "internal error" not in run(0, "tfm-plan", *t5, *args.split(), code=code)


def check_auto():
    """What auto chooses is said, the same in a plan and in the run, the same on all ranks, and kept by a run that goes on."""
    auto = ["train.micro_batch_size=auto", "recompute=auto"]
    plan = run(0, "tfm-plan", "cfg.yaml", "--ranks", 2, "--device", "cpu", *auto)
    p = json.loads(run(0, "tfm-plan", "cfg.yaml", "--ranks", 2, "--device", "cpu", "--json", *auto))
    assert p["micro_batch_size"] == 4 and p["recompute"] == "none" and set(p["chosen"]) == {"train.micro_batch_size", "recompute"}, p["chosen"]
    assert p["chosen"]["train.micro_batch_size"] in plan and json.loads(run(0, "tfm-plan", "cfg.yaml", "--json"))["chosen"] == {}
    out = run(2, "tfm-train", "cfg.yaml", *auto, "metrics.jsonl=auto.jsonl", "train.steps=2")
    assert "\nmicro-batch 4 (auto: all sequences of a rank; it takes" in out and "\nrecompute none (auto: fits in " in out, out
    said, = events("auto.jsonl", "start")
    assert "micro_batch_size: 4\n" in said["config"] and "recompute: none\n" in said["config"], said["config"]
    assert said["planned_bytes"] == max(m["total_bytes"] for m in p["memory"])
    # Others of the checkpoint are kept, where the ranks can have them.
    store = ["checkpoint.dir=chosen", "checkpoint.every=2"]
    run(2, "tfm-train", "cfg.yaml", "train.micro_batch_size=2", "recompute=full", "recompute_layers=1", "train.steps=2", *store)
    out = run(2, "tfm-train", "cfg.yaml", *auto, "train.steps=4", *store)
    assert "\nmicro-batch 2 (auto: as in chosen/step-00000002)\nrecompute full in 1 block (auto: as in chosen/step-00000002)\n" in out, out
    out = run(8, "tfm-train", "cfg.yaml", *auto, "train.steps=6", *store)
    assert "; not as in chosen/step-00000004: the 1 sequences of a replica" in out and "resumed from chosen/step-00000004" in out, out
    for args, expected in (["--check", "--dump-config"], "micro_batch_size: auto"), (["--check"], "configuration is valid"):
        assert expected in run(2, "tfm-train", "cfg.yaml", *auto, *args)


def check_mfu():
    """FLOPs of the plan over seconds and the peak, which the first lines name."""
    for ranks, args in ((0, []), (2, ["parallel.tensor=2", "recompute=full"])):
        out = run(ranks, "tfm-train", "cfg.yaml", "metrics.jsonl=mfu.jsonl", "train.steps=2", *args)
        assert "(measured: products of " in out and f" in fp32 on {max(ranks, 1)} rank" in out and "n/a MFU" not in out, out
        start, = events("mfu.jsonl", "start")
        plan = json.loads(run(0, "tfm-plan", "cfg.yaml", "--ranks", max(ranks, 1), "--json", *args))
        assert start["flops_per_step"] == plan["flops_per_step"] and start["peak_flops"] > 1e7 and start["peak_from"] in out, start
        for e in events("mfu.jsonl"):
            assert e["mfu"] > 0 and abs(e["mfu"] * e["step_seconds"] * start["peak_flops"] / start["flops_per_step"] - 1) < 1e-9, e


def check_bench():
    svg = lambda path: xml.etree.ElementTree.parse(path).getroot().tag.endswith("svg")
    ops = {"embedding", "position", "dropout", "norm", "linear", "attention", "residual", "activation", "cross_entropy"}
    files = ["--json", "bench.json", "--svg", "bench.svg"]
    for ranks, args, more in ((0, ["train.global_batch_size=16"], set()), (2, ["parallel.tensor=2", "recompute=full"], {"gather_sequence", "scatter_sequence"})):
        assert "tokens/s" in run(ranks, "tfm-bench", "step", "cfg.yaml", "--steps", 2, "--warmup", 1, *files, *args)
        b = json.load(open("bench.json"))
        whole, phases = b["timed_step_seconds"], b["phases"]
        assert set(phases) == {"data", "forward", "recompute", "backward", "reduce", "optimizer", "other"} and b["ranks"] == max(ranks, 1), b
        assert abs(sum(phases.values()) / whole - 1) < 1e-9 and all(s >= 0 for s in phases.values()), phases
        again = {r["op"] for r in b["ops"] if r["phase"] == "recompute"}
        assert again == {"norm"} if ranks == 0 else {"norm", "linear"} < again, again
        for phase in ("forward", "recompute", "backward"):
            assert abs(sum(r["seconds"] for r in b["ops"] if r["phase"] == phase) - phases[phase]) < 1e-9 * whole
        assert {r["op"] for r in b["ops"]} == ops | more, b["ops"]
        linear, = (r for r in b["ops"] if (r["op"], r["phase"]) == ("linear", "forward"))
        micro_batches = 8 if ranks == 0 else 4
        assert linear["calls"] == 8 * micro_batches and linear["flops_per_second"] > 0
        # Four products of a layer for each token of this rank: 12 d^2 multiplications in all.
        flops = linear["flops_per_second"] * linear["seconds"]
        assert abs(flops / (2 * 12 * 32 * 32 * 2 * 64 * micro_batches / max(ranks, 1)) - 1) < 1e-9, flops
        assert svg("bench.svg")
    run(0, "tfm-bench", "step", "cfg.yaml", "--steps", 1, "--random-data", "data.train.path=missing.txt")
    run(2, "tfm-bench", "step", "cfg.yaml", "--steps", 1, "--json", "bench.json", "parallel.pipeline=2", "train.micro_batch_size=1")
    b = json.load(open("bench.json"))  # of stages, which have different ops, and one layer each; a mean of both
    calls = {r["op"]: r["calls"] for r in b["ops"] if r["phase"] == "forward"}
    assert calls["attention"] == 8 and calls["position"] == 4 and abs(sum(b["phases"].values()) / b["timed_step_seconds"] - 1) < 1e-9, b
    out = run(0, "tfm-bench", "kernels", "cfg.yaml", "--device-file", "here.yaml", *files)
    above = [max(map(float, rates)) > 1.5 * float(peak) for peak, *rates in re.findall(
        r"peak: (\S+)\s+product: (\S+)" + 2 * r"[^#]*?forward: (\S+)[^#]*?backward: (\S+)", pathlib.Path("here.yaml").read_text())]
    assert "roofline" in out and len(above) == 2 and ("warning: here.yaml: more than 1.5 times the peak" in out) == any(above), out
    b = json.load(open("bench.json"))
    assert {r["op"] for r in b["kernels"]} == ops | {"gradient norm", "update"} and svg("bench.svg")
    assert all(r["seconds"] > 0 and r["roofline_seconds"] > 0 for r in b["kernels"]) and b["product_flops_per_second"] > 0
    out = run(2, "tfm-bench", "collectives", "--bytes", "4Ki,1M", "--network-file", "link.yaml", *files)
    latency = float(re.search(r"latency: (\S+)", pathlib.Path("link.yaml").read_text())[1])
    assert ("warning: link.yaml: no latency was found" in out) == (latency == 0), out
    p = json.loads(run(0, "tfm-plan", "cfg.yaml", "--ranks", 2, "--device", "here.yaml", "--node", "link.yaml", "--json"))
    assert "tfm-bench kernels on" in p["device"]["rates_from"] and p["device"]["product_flops"] > 1e8 and p["fits"], p["device"]
    bandwidth = re.search(r"bandwidth: (\S+)", pathlib.Path("link.yaml").read_text())[1]
    assert float(bandwidth) == p["device"]["node_bytes_per_second"] > 0, bandwidth
    b = json.load(open("bench.json"))
    assert [(r["op"], r["bytes"]) for r in b["results"]] == [(op, n) for op in ("all_reduce", "reduce_scatter", "all_gather") for n in (4096, 1000064)], b
    for r in b["results"]:
        assert abs(r["bytes"] / r["seconds"] * (1 if r["op"] == "all_reduce" else 0.5) / r["bus_bytes_per_second"] - 1) < 1e-9, r
    for args, expected in ((["speed"], "scaling, step, kernels or collectives"), (["step"], "CONFIG.yaml"), (["step", "cfg.yaml", "--steps", 0], "at least 1"),
                           (["collectives", "--bytes", "1x"], "1Mi"), (["collectives", "--device", "tpu"], "cpu or cuda"), (["collectives", "--network-file", "x.yaml"], "two ranks"),
                           (["step", "cfg.yaml", "--json", "new", "--svg", "./new"], "'./new' is named twice"), (["step", "cfg.yaml", "--svg", "cfg.yaml"], "named twice"),
                            (["step", "cfg.yaml", "--bytes", "1M"], "--bytes")):
        assert expected in run(0, "tfm-bench", *args, code=2), args


def check_sampling():
    """The seed alone decides what is drawn, and one candidate leaves nothing to draw."""
    def generate(*args, ranks=0):
        return run(ranks, "tfm-generate", "ck", "--prompt", "the ", "--max-tokens", 40, *args)
    greedy, drawn = generate("--temperature", 0), generate("--seed", 7)
    assert generate("--top-k", 1) == generate("--top-k", 1, "--seed", 9) == greedy
    assert generate("--seed", 7) == generate("--seed", 7, ranks=2) == drawn
    assert len({greedy, drawn, generate("--seed", 8), generate("--seed", 9)}) == 4


def check_resume():
    store = ["checkpoint.dir=ck", "checkpoint.every=4", "metrics.jsonl=run.jsonl", "optimizer.ema=0.9"]
    run(2, "tfm-train", "cfg.yaml", "metrics.jsonl=whole.jsonl", "parallel.tensor=2", "optimizer.ema=0.9")
    pathlib.Path("ck").mkdir()
    pathlib.Path("ck/STOP").touch()
    assert "stopped on request" in run(2, "tfm-train", "cfg.yaml", "parallel.tensor=2", *store)
    assert not pathlib.Path("ck/STOP").exists()
    run(2, "tfm-train", "cfg.yaml", "parallel.tensor=2", *store)
    assert losses("run.jsonl") == losses("whole.jsonl"), "a resumed run differs"
    assert [e["loss"] for e in events("run.jsonl", "eval")] == [e["loss"] for e in events("whole.jsonl", "eval")], "of averaged weights"
    assert [e["step"] for e in events("run.jsonl")] == list(range(1, 13))
    run(4, "tfm-train", "cfg.yaml", "checkpoint.resume=ck/step-00000008", "metrics.jsonl=moved.jsonl", "parallel.zero=3")
    moved = losses("moved.jsonl")
    assert max(abs(a / b - 1) for a, b in zip(moved, losses("whole.jsonl")[-len(moved):])) < 1e-4
    for program in (["tfm-generate", "ck", "--prompt", "the "], ["tfm-eval", "ck"]):
        assert "device is cuda" in run(0, *program, "device=cuda", code=4)
    texts = {run(n, "tfm-generate", "ck", "--prompt", "the ", "--max-tokens", 20) for n in (0, 1, 2, 4)}
    assert len(texts) == 1, texts
    check_sampling()
    shard = next(pathlib.Path("ck/step-00000012").glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)
    out = run(2, "tfm-train", "cfg.yaml", "parallel.tensor=2", *store)
    assert shard.name in out and "step-00000008" in out, out
    run(0, "tfm-train", "cfg.yaml", "checkpoint.resume=ck/step-00000099", code=3)


def check_checkpoints_of_any_layout():
    """What only reads a model does not care how the ranks of its run shared it."""
    short = ["train.steps=2", "eval.every=0"]
    for ranks, name, args in [(4, "replicas", ["parallel.zero=1", "parallel.replicas=2"]),
                              (2, "stages", ["parallel.pipeline=2", "parallel.layers_per_stage=[1, 1]"])]:
        run(ranks, "tfm-train", "cfg.yaml", f"checkpoint.dir={name}", *short, *args)
        for some in (0, 2, 3):  # 3 ranks cannot share 4 heads
            run(some, "tfm-generate", name, "--prompt", "the ", "--max-tokens", 4)
            run(some, "tfm-eval", name)
        run(0, "tfm-convert", "export", name, f"{name}-exported")
        assert "has checkpoints" in run(0, "tfm-convert", "export", name, name, code=2)
        assert "is the model directory" in run(0, "tfm-convert", "import", f"{name}-exported", f"{name}-exported", code=2)
    for key, value in (("pipeline", 2), ("context", 2), ("zero", 1)):
        refused = f"parallel.{key}={value}"
        assert f"{refused} is not valid here" in run(2, "tfm-generate", "stages", "--prompt", "a", refused, code=2)


def check_changed_runs():
    """A checkpoint continues the model that it has."""
    args = ["checkpoint.dir=changed", "eval.every=0"]
    run(0, "tfm-train", "cfg.yaml", *args, "train.steps=2")
    for change, was in (("model.n_layers=1", "n_layers 2"), ("model.n_heads=2", "n_heads 4"),
                        ("model.activation=relu", "activation gelu_tanh")):
        assert f"was written with model.{was}" in run(2, "tfm-train", "cfg.yaml", *args, change, code=2)
    assert "the model has model.n_layers 2" in run(0, "tfm-generate", "changed", "--prompt", "a", "model.n_layers=1", code=2)
    out = run(0, "tfm-train", "cfg.yaml", *args, "optimizer.type=sgd", "data.train.shuffle=false", "model.dropout=0", "train.steps=3",
              "train.seq_len=16")
    for key, change in (("train.seq_len", "16 from here on, [0-9]+ before"), ("optimizer.type", "sgd from here on, adamw before"),
                        ("data.train.shuffle", "false from here on, true before")):
        assert re.search(f"warning: resumed with another {key}: {change}", out), (key, out)
    assert "training data of" not in out, out
    text = pathlib.Path("text.txt").read_text()
    pathlib.Path("longer.txt").write_text(text)
    args = ["checkpoint.dir=longer", "eval.every=0", "data.train.path=longer.txt"]
    run(0, "tfm-train", "cfg.yaml", *args, "train.steps=1")
    pathlib.Path("longer.txt").write_text(text + "more")
    out = run(0, "tfm-train", "cfg.yaml", *args, "train.steps=2")
    assert f"training data of {len(text)} tokens; now they are {len(text) + 4}, and samples differ" in out, out


def check_early_stopping():
    """Validation on text of another kind: its loss falls, then rises."""
    pathlib.Path("noise.txt").write_text("".join(random.Random(1).choices("abcdefghij ", k=1200)))
    args = ["data.validation.path=noise.txt", "optimizer.lr=1e-2", "schedule.type=constant", "train.steps=200", "eval.every=2", "eval.batches=0", "eval.stop={patience: 3}",
            "checkpoint.every=3", "checkpoint.keep=2"]
    out = run(2, "tfm-train", "cfg.yaml", *args, "checkpoint.dir=early", "metrics.jsonl=early.jsonl")
    losses = {e["step"]: e["loss"] for e in events("early.jsonl", "eval")}
    best = min(losses, key=losses.get)
    def ends(path):  # but for their time
        return [{k: v for k, v in e.items() if k != "time"} for e in events(path, "end")]
    end, = ends("early.jsonl")
    assert 2 < best < 30 and end["step"] == best + 6 and end["reason"] == "no_improvement" and end["best_step"] == best, (losses, end)
    assert "early stop" in out and os.readlink("early/best") == f"step-{best:08}", out
    run(0, "tfm-eval", "early/best", "--json", "best.json")
    best_scores = json.loads(pathlib.Path("best.json").read_text())
    assert abs(best_scores["loss"] / losses[best] - 1) < 1e-4
    nats, predicted = best_scores["loss"] * best_scores["tokens"], range(1, 1 + best_scores["tokens"])  # by `bytes`
    words = sum(m.end() - 1 in predicted for m in re.finditer(r"\S+", pathlib.Path("noise.txt").read_text()))
    assert abs(best_scores["bits_per_byte"] / (best_scores["loss"] / math.log(2)) - 1) < 1e-9, best_scores
    assert abs(math.log(best_scores["word_perplexity"]) / (nats / words) - 1) < 1e-9, best_scores
    out = run(0, "tfm-eval", "early/best", "data.validation.path=gone.txt", code=3)
    assert "override 'data.validation.path=gone.txt': error: data.validation.path: gone.txt" in out, out
    pathlib.Path("noise.txt").rename("moved.txt")
    out = run(0, "tfm-eval", "early/best", code=3)
    assert re.search(r"manifest.json \(config\):\d+:\d+: error: data.validation.path: noise.txt", out), out
    pathlib.Path("moved.txt").rename("noise.txt")
    assert "error: data.tokenizer: tokenizer gone.json" in run(0, "tfm-eval", "early/best", "--tokenizer", "gone.json", code=3)
    assert "error:" not in run(0, "tfm-eval", "early/best", "--text", "gone.txt", code=3), "no key names that file"
    run(2, "tfm-train", "cfg.yaml", *args, "checkpoint.dir=early", "metrics.jsonl=early.jsonl")
    assert ends("early.jsonl") == [end], "it is over"
    for step in sorted(pathlib.Path("early").glob("step-*"))[:2]:
        run(2, "tfm-train", "cfg.yaml", *args, f"checkpoint.resume={step}", "checkpoint.dir=resumed", "metrics.jsonl=resumed.jsonl")
        assert ends("resumed.jsonl") == [end], step


def check_validation_without_labels():
    """A loss over nothing is none, let alone the best one: the run ends on all ranks, as tfm-eval does."""
    pathlib.Path("ends.bin").write_bytes(struct.pack("<256i200H", 20240520, 1, 200, *[0] * 253, *[257] * 200))
    source = "={type: tokens, path: ends.bin, documents: separate}"
    args = ["model.vocab_size=258", "data.tokenizer=bytes", "eval.every=2", "eval.batches=0", "eval.stop={patience: 2}",
            "checkpoint.dir=ends", "metrics.jsonl=ends.jsonl"]
    for ranks, layout in ((0, []), (2, []), (2, ["parallel.pipeline=2"]), (2, ["parallel.tensor=2"]), (2, ["parallel.context=2"])):
        out = run(ranks, "tfm-train", "cfg.yaml", "data.validation" + source, *args, *layout, code=3)
        assert out.count("data.validation has no labels") == 1 and "data.validation={type" in out and "eval.every" in out, out
        assert [e["step"] for e in events("ends.jsonl")] == [1, 2] and not events("ends.jsonl", "eval"), out
        assert not os.path.lexists("ends/best"), out
        shutil.rmtree("ends")
    # Steps without labels change nothing but the share of weights that decays.
    run(2, "tfm-train", "cfg.yaml", "data.train" + source, *args, "eval.stop.patience=9", "optimizer.weight_decay=0",
        "precision=bf16", "checkpoint.every=6")
    first, last = ([e for e in events("ends.jsonl", "eval") if e["step"] == step][0]["loss"] for step in (2, 12))
    assert [e["loss"] for e in events("ends.jsonl")] == [0] * 12 and first == last > 5, (first, last)
    shutil.rmtree("ends")


def check_dropout_of_outputs():
    """It is there in training alone."""
    pathlib.Path("span.yaml").write_text(SPANS)
    losses = {}
    for p in (0, 0.5):
        run(0, "tfm-train", "span.yaml", f"model.dropout.output={p}", "train.steps=1", "eval.every=1", "optimizer.lr=0", "metrics.jsonl=span.jsonl",
            "data.validation={type: span_corruption, path: text.txt}", "eval.batches=1")
        losses[p] = [e["loss"] for e in map(json.loads, open("span.jsonl")) if e["event"] in ("step", "eval")]
    (without, evaluated), (with_, evaluated_too) = losses[0], losses[0.5]
    assert abs(without - with_) > 1e-4 and evaluated == evaluated_too, losses


def check_verify():
    # Their sums have another order than those over all ranks.
    thirds = ["parallel.zero=1", "parallel.replicas=3", "train.global_batch_size=12", "train.micro_batch_size=1", "train.seed=1"]
    for ranks, args in [(2, ["parallel.tensor=2"]), (4, ["parallel.tensor=2", "parallel.zero=1"]), (6, thirds),
                        (6, [*thirds, "parallel.zero=3", "numerics=deterministic"])]:
        assert "NOT equal" not in (out := run(ranks, "tfm-verify", "cfg.yaml", *args)) and "equal to the single-rank run" in out, out
    out = run(2, "tfm-verify", "cfg.yaml", "train.seq_len=1", "--as-run")  # gradients of queries that are zero but for rounding
    assert "\nequal to the single-rank run" in out, out
    for ranks, name, args in [(2, "layers.1.ffn.up.weight", ["parallel.tensor=2"]), (2, "final_norm.weight", [])]:
        out = run(ranks, "tfm-verify", "cfg.yaml", *args, "--inject-error", name, code=1)
        assert "NOT equal to the single-rank run" in out and "gradient of every parameter differs: " + name in out, out
        wrong = [line for line in out.splitlines() if line.startswith("WRONG")]
        assert len(wrong) == 1 and name in wrong[0], out
    assert "no parameter layers.9" in run(0, "tfm-verify", "cfg.yaml", "--inject-error", "layers.9", code=2)
    out = run(2, "tfm-verify", "cfg.yaml", "parallel.tensor=2", TMPDIR="/nowhere")  # the working directory is there
    assert "\nequal to the single-rank run" in out, out
    for mode in ([], ["--full"], ["--as-run"]):
        out = run(3, "tfm-verify", "span.yaml", "parallel.context=3", *mode)
        assert "\nequal to the single-rank run" in out, out
    pathlib.Path("targets.yaml").write_text("""
model: {family: encoder_decoder, vocab_size: 500, d_model: 30, n_heads: 6, n_layers: 2, position: learned, max_seq_len: 600}
train: {steps: 2, global_batch_size: 12, seq_len: 64}
data: {train: {type: span_corruption, path: text.txt, mask_probability: 0.9, mean_span_length: 8}}
""")  # longer than the sequences that small models are verified with
    assert "\nequal to the single-rank run" in run(2, "tfm-verify", "targets.yaml")
    # Of 32 targets, which three tensor ranks pad to 48.
    tight = ["targets.yaml", "train.seq_len=36", "model.max_seq_len=40", "data.train.mask_probability=0.45",
             "data.train.mean_span_length=3"]
    refused = run(0, "tfm-plan", *tight, "--ranks", 3, "parallel.tensor=3", code=2)
    assert "are padded to multiples of 24 for parallel.tensor and parallel.context" in refused, refused
    assert "data 3 x tensor 1" in run(0, "tfm-plan", *tight, "--ranks", 3, "--suggest")
    out = run(2, "tfm-verify", "cfg.yaml", "parallel.tensor=2", "model.init_std=1e300", code=1)  # nothing but NaN is no agreement
    assert "NOT equal to the single-rank run" in out, out


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("cfg.yaml").write_text(CONFIG)
        pathlib.Path("text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 300)
        for check in (check_messages, check_another_launcher, check_default_binding, check_inputs, check_ranks_that_fail, check_layouts, check_plan, check_auto, check_mfu, check_bench,
                      check_resume, check_checkpoints_of_any_layout, check_changed_runs, check_early_stopping,
                      check_validation_without_labels,
                      check_dropout_of_outputs, check_verify):
            check()
            print(check.__name__, "ok", flush=True)
        os.chdir("/")


main()
