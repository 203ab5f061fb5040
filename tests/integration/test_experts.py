"""Layers with experts: every layout has the losses of one rank, the plan is what the run uses, a run goes on after a resume, generation
continues what training sees, exports are read again, verification passes.

usage: test_experts.py BIN [--all]    (without: one rank and a third of the other layouts)
"""
import array
import json
import math
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from tier import some

BIN = pathlib.Path(sys.argv[1]).resolve()
MPIRUN = pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh"
RUN = """
model: {{vocab_size: 260, d_model: 32, n_heads: 4, d_ff: 48, dropout: 0.1, {model}}}
train: {{steps: 20, global_batch_size: 8, seq_len: 16}}
optimizer: {{lr: 1.0e-3}}
data: {{train: {data}}}
checkpoint: {{dir: ck}}
metrics: {{jsonl: run/metrics.jsonl}}
"""
TEXT = "{type: text, path: text.txt}"
MODELS = {
    "decoder": ("family: decoder, n_layers: 4, position: rope, norm: rmsnorm, activation: swiglu, bias: false, "
                "experts: {count: 4, top_k: 2, d_ff: 24, z_loss: 1.0e-3}", TEXT),
    "shared": ("family: decoder, n_layers: 4, activation: swiglu, bias: false, experts: {count: 8, top_k: 4, d_ff: 8, router: sigmoid, "
               "scale: 2.5, shared: 1, shared_gate: true, first_dense: 1, groups: 2, top_groups: 1, "
               "balance: {type: both, coefficient: 0.1, rate: 0.01}}", TEXT),
    "encoder": ("family: encoder, n_layers: 4, experts: {count: 3, top_k: 1, normalize: false, every: 2, shared: 1}",
                "{type: mlm, path: text.txt}"),
    "encoder_decoder": ("family: encoder_decoder, n_layers: 2, position: relative, activation: relu, experts: {count: 4, top_k: 1, "
                        "normalize: false, every: 2}", "{type: pairs, source: a.txt, target: b.txt}"),
    "capped": ("family: decoder, n_layers: 4, experts: {count: 4, top_k: 2, d_ff: 24, capacity_factor: 1.0}", TEXT),
}
LAYOUTS = [(1, ["recompute=full", "train.micro_batch_size=2"]), (2, ["parallel.tensor=2"]),
           (2, ["parallel.tensor=2", "parallel.sequence=true", "recompute=selective"]), (2, ["parallel.context=2"]),
           (2, ["parallel.context=2", "parallel.context_exchange=ring", "recompute=full"]), (2, ["parallel.zero=2", "train.micro_batch_size=2"]),
           (4, ["parallel.pipeline=2", "parallel.tensor=2", "train.micro_batch_size=2"]), (4, ["parallel.tensor=2", "parallel.zero=3"]),
           (4, ["parallel.pipeline=2", "parallel.zero=1", "train.micro_batch_size=1"]), (4, ["parallel.context=2", "parallel.zero=3"])]
# Of models whose experts they can share.
EXPERT_LAYOUTS = [(2, ["parallel.expert=2", "train.micro_batch_size=2", "recompute=full"]), (2, ["parallel.expert=2", "parallel.zero=3"]),
                  (4, ["parallel.expert=4", "parallel.zero=1"]), (4, ["parallel.expert=2", "parallel.tensor=2", "parallel.zero=2"]),
                  (4, ["parallel.expert=2", "parallel.context=2", "recompute=selective"]),
                  (4, ["parallel.expert=2", "parallel.pipeline=2", "train.micro_batch_size=1"]),
                  (4, ["parallel.expert=2", "parallel.replicas=2", "parallel.zero=1"])]


def run(folder, program, *args, ranks=1, code=0):
    command = [*([MPIRUN, str(ranks)] if ranks > 1 else []), BIN / program, *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def events_of(folder, kind):
    lines = (folder / "run/metrics.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def prepared(root, name, model):
    folder = root / name
    folder.mkdir()
    lines = [f"line {i}: the {['quick', 'brown', 'lazy'][i % 3]} fox {i * i % 97}" for i in range(300)]
    (folder / "text.txt").write_text("\n".join(lines))
    (folder / "a.txt").write_text("".join(line[:i % 9 + 4] + "\n" for i, line in enumerate(lines)))
    (folder / "b.txt").write_text("".join(line[:i % 7 + 5] + "\n" for i, line in enumerate(reversed(lines))))
    text, data = MODELS[model]
    (folder / "run.yaml").write_text(RUN.format(model=text, data=data))
    return folder


def check_layouts(root):
    for model in MODELS:
        expected = None
        layouts = [(1, []), *LAYOUTS, *(EXPERT_LAYOUTS if model != "encoder" else [])]
        if model == "capped":
            layouts = [(ranks, layout) for ranks, layout in layouts if not any("context" in key for key in layout)]
        for k, (ranks, layout) in enumerate(some(layouts)):
            folder = prepared(root, f"{model}{k}", model)
            run(folder, "tfm-train", "run.yaml", *layout, ranks=ranks)
            steps = events_of(folder, "step")
            terms = [name for name in steps[0] if name.startswith("loss_") and name != "loss_scale"]
            assert "loss_balance" in terms and 0.9 < steps[0]["loss_balance"] < 4, steps[0]
            found = [step[name] for step in steps for name in ("loss", "grad_norm", "router_entropy", *terms)]
            found.append(steps[0]["busiest_expert"])
            count = len(next(iter(steps[0]["expert_load"].values())))
            assert all(0 < step["router_entropy"] <= math.log(count) for step in steps), (model, layout, steps)
            for loads in (load for step in steps for load in step["expert_load"].values()):
                assert abs(sum(loads) - len(loads)) < 0.001 * len(loads), (model, layout, loads)
            expected = expected or found
            worst = max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))
            assert worst <= 2e-5, (model, layout, worst)
            planned = [*events_of(folder, "start"), *events_of(folder, "replan")][-1]["planned_bytes"]
            assert events_of(folder, "end")[0]["arena_high_water_bytes"] == planned, (model, layout, planned)


def check_capacity(root):
    """With experts / top_k times an even load there is room for all tokens of a sequence at one expert; with less some are dropped."""
    folder, losses = prepared(root, "capacity", "capped"), []
    for factor in (0, 2.0, 0.5):
        run(folder, "tfm-train", "run.yaml", "train.steps=2", "checkpoint.dir=none", f"model.experts.capacity_factor={factor}")
        losses.append([step["loss"] for step in events_of(folder, "step")])
        (folder / "run/metrics.jsonl").unlink()
    assert losses[0] == losses[1] != losses[2], losses


def check_bias(root):
    """It evens the load without a loss, and is no part of the model otherwise."""
    folder = prepared(root, "biased", "decoder")
    mean = {}
    for kind in ("none", "bias"):
        rate = ["model.experts.balance.rate=0.01"] if kind == "bias" else []
        run(folder, "tfm-train", "run.yaml", "train.steps=60", f"model.experts.balance.type={kind}", f"checkpoint.dir={kind}", *rate)
        steps = events_of(folder, "step")[-60:]
        (folder / "run/metrics.jsonl").unlink()
        mean[kind] = sum(step["busiest_expert"] for step in steps[-10:]) / 10
    assert mean["bias"] < 0.8 * (mean["none"] - 1) + 1, mean
    said = run(folder, "tfm-train", "run.yaml", "model.experts.balance.type=none", "checkpoint.resume=auto", "checkpoint.dir=bias",
               "train.steps=70", code=2)
    assert "was written with model.experts.balance.type bias" in said, said


def check_resume(root):
    """At another layout, from the middle."""
    folder = prepared(root, "resumed", "shared")
    run(folder, "tfm-train", "run.yaml", "checkpoint.every=8", "checkpoint.keep=9")
    whole = events_of(folder, "step")
    middle = next((folder / "ck").glob("*0008*"))
    (folder / "run/metrics.jsonl").unlink()
    run(folder, "tfm-train", "run.yaml", "checkpoint.dir=other", f"checkpoint.resume={middle}", "parallel.tensor=2", "parallel.zero=1", ranks=4)
    again = {step["step"]: step["loss"] for step in events_of(folder, "step")}
    assert list(again) == list(range(9, 21)), again
    assert all(abs(step["loss"] - again[step["step"]]) <= 2e-5 * step["loss"] for step in whole[8:]), (whole, again)


def check_resume_with_other_expert_ranks(root):
    """After a kill -9; the same layout has the same bits."""
    sharing = ["parallel.expert=2", "parallel.zero=1", "checkpoint.every=5"]
    whole = prepared(root, "whole", "decoder")
    run(whole, "tfm-train", "run.yaml", *sharing, ranks=2)
    expected = {step["step"]: step["loss"] for step in events_of(whole, "step")}
    for name, layout, ranks in (("same", sharing, 2), ("four", ["parallel.expert=4", "parallel.zero=3"], 4),
                                ("none", ["parallel.tensor=2"], 2)):
        folder = killed(root, name, sharing)
        run(folder, "tfm-train", "run.yaml", "checkpoint.resume=auto", *layout, ranks=ranks)
        found = {step["step"]: step["loss"] for step in events_of(folder, "step")}
        assert list(found) == list(range(1, 21)), found
        worst = max(abs(found[k] - expected[k]) / expected[k] for k in found)
        assert worst <= (0 if name == "same" else 1e-6), (name, worst)
        assert 0 < events_of(folder, "start")[-1]["resumed_step"] < 20, name


def killed(root, name, layout):
    """The folder of a run that a kill -9 ended behind its first checkpoint, before its last."""
    for attempt in range(9):
        folder = prepared(root, f"{name}{attempt}", "decoder")
        job = subprocess.Popen([MPIRUN, "2", BIN / "tfm-train", "run.yaml", *layout], cwd=folder, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        while not list((folder / "ck").glob("*0010*")) and job.poll() is None:
            time.sleep(0.01)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        if not list((folder / "ck").glob("*0020*")):
            return folder
    raise AssertionError("every run ended before it was killed")


def check_adversarial_loads(root):
    """All tokens go to one expert: none is lost, the step is planned anew once, and the losses are those of one rank."""
    def favor_one(name, values, shape):
        if "embed_tokens" in name:
            values[::shape[1]] = array.array("f", [4.0] * shape[0])
        if name.endswith("gate.weight"):
            values[::shape[1]] = array.array("f", [-3.0 * abs(row - 1) for row in range(shape[0])])

    folder = prepared(root, "adversarial", "decoder")
    run(folder, "tfm-train", "run.yaml", "train.steps=1", "model.dropout=0", "model.experts.top_k=1")
    run(folder, "tfm-convert", "export", "ck", "hf")
    rewrite(folder / "hf/model.safetensors", favor_one)
    losses = []
    (folder / "init.yaml").write_text("model: {init: hf}\ntrain: {steps: 20, global_batch_size: 8, seq_len: 16}\n"
                                      "optimizer: {lr: 1.0e-4}\ndata: {tokenizer: bytes, train: {type: text, path: text.txt}}\n"
                                      "checkpoint: {dir: none}\nmetrics: {jsonl: run/metrics.jsonl}\n")
    for ranks, layout in ((1, []), (4, ["parallel.expert=4"]), (4, ["parallel.expert=4", "parallel.zero=3", "parallel.expert_bound=0"])):
        (folder / "run/metrics.jsonl").unlink(missing_ok=True)
        said = run(folder, "tfm-train", "init.yaml", *layout, ranks=ranks)
        replans = events_of(folder, "replan")
        assert len(replans) == said.count("the step was repeated") == (1 if layout == ["parallel.expert=4"] else 0), (layout, said)
        losses.append([step[name] for step in events_of(folder, "step") for name in ("loss", "grad_norm")])
    for found in losses[1:]:
        assert max(abs(a - b) / abs(b) for a, b in zip(found, losses[0], strict=True)) <= 2e-5, (found, losses[0])


def check_generation(root):
    """Also where ranks share the experts, for each of which there is room for every token."""
    layouts = ((1, []), (2, ["parallel.tensor=2"]), (2, ["parallel.expert=2"]), (4, ["parallel.expert=2", "parallel.tensor=2"]))
    for model in ("decoder", "shared"):
        folder = root / f"{model}0"
        said = {run(folder, "tfm-generate", "ck", "--prompt", "line 7", "--max-tokens", "12", "--temperature", "0", *layout, ranks=ranks)
                for ranks, layout in layouts}
        assert len(said) == 1, said
    folder, scores = root / "encoder_decoder0", []
    for ranks, layout in (*layouts, (4, ["parallel.expert=2", "parallel.tensor=1"])):
        run(folder, "tfm-eval", "ck", "--source", "a.txt", "--target", "b.txt", "--beam", "2", "--max-tokens", "6", "--json", "eval.json",
            *layout, ranks=ranks)
        scores.append(json.loads((folder / "eval.json").read_text()))
    assert all(abs(s[key] - scores[0][key]) <= 1e-6 * scores[0][key] for s in scores for key in ("loss", "bleu", "chrf", "tokens")), scores


def check_export(root):
    """As a Mixtral, which is read again, also with the tensors of all experts of a layer in one."""
    folder = root / "decoder0"
    run(folder, "tfm-convert", "export", "ck", "hf")
    assert json.loads((folder / "hf/config.json").read_text())["model_type"] == "mixtral"
    stack_experts(folder / "hf", folder / "stacked")
    losses = []
    for model in ("ck", "hf", "stacked"):
        run(folder, "tfm-eval", model, "--text", "text.txt", "--json", "eval.json", *(["data.tokenizer=bytes"] if model != "ck" else []))
        losses.append(json.loads((folder / "eval.json").read_text())["loss"])
    assert abs(losses[0] - losses[1]) < 1e-9 and losses[1] == losses[2], losses


def check_refusals(root):
    folder = root / "decoder0"
    config = json.loads((folder / "hf/config.json").read_text())
    (folder / "hf/config.json").write_text(json.dumps({**config, "router_jitter_noise": 0.1}))
    assert "noise of routers" in run(folder, "tfm-eval", "hf", "--text", "text.txt", "data.tokenizer=bytes", code=3)
    assert "other experts" in run(folder, "tfm-verify", "run.yaml", "--as-run", "precision=bf16", code=2)
    for layout in ("parallel.tensor=2", "parallel.expert=2"):
        assert "equal to the single-rank run" in run(folder, "tfm-verify", "run.yaml", "precision=bf16", layout, ranks=2)


def check_evaluations(root):
    """They are without the terms of routers; ranks that share experts translate the same lines."""
    folder = prepared(root, "evaluated", "decoder")
    run(folder, "tfm-train", "run.yaml", "data.validation={type: text, path: text.txt}", "eval.every=10", "eval.batches=2")
    evaluations = events_of(folder, "eval")
    assert evaluations and not any("balance" in name or "z_loss" in name for event in evaluations for name in event), evaluations
    found = []
    for ranks, layout in ((1, []), (4, ["parallel.expert=2"])):
        folder = prepared(root, f"translated{ranks}", "encoder_decoder")
        run(folder, "tfm-train", "run.yaml", "data.validation={type: pairs, source: a.txt, target: b.txt}", "eval.every=10", "eval.batches=2",
            "eval.metrics=[loss, chrf]", *layout, ranks=ranks)
        found.append([(event["loss"], event["chrf"]) for event in events_of(folder, "eval")])
    assert len(found[0]) == 2 and all(abs(a - b) <= 1e-5 * a for one, other in zip(*found) for a, b in zip(one, other)), found


def stack_experts(source, target):
    shutil.copytree(source, target)
    data = (source / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    tensors, stacks = {}, {}
    for name, info in header.items():
        raw = data[8 + size + info["data_offsets"][0]:8 + size + info["data_offsets"][1]]
        if found := re.match(r"(.*\.experts\.)(\d+)\.w(\d)\.weight", name):
            stacks.setdefault((found[1], found[3] == "2"), {})[int(found[2]), found[3]] = (info["shape"], raw)
        else:
            tensors[name] = (info["shape"], raw)
    for (name, down), parts in stacks.items():
        keys = sorted(parts)  # of each expert w1, then w3
        rows, cols = parts[keys[0]][0]
        experts = len({e for e, _ in keys})
        shape = [experts, rows, cols] if down else [experts, 2 * rows, cols]
        tensors[name + ("down_proj" if down else "gate_up_proj")] = (shape, b"".join(parts[k][1] for k in keys))
    header, body = {}, b""
    for name, (shape, raw) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (target / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)


def rewrite(path, change):
    """Calls change(name, values, shape) for each tensor of a file of float32."""
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    for name, info in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + at for at in info["data_offsets"])
        values = array.array("f", bytes(data[begin:end]))
        change(name, values, info["shape"])
        data[begin:end] = values.tobytes()
    path.write_bytes(data)


def check_verification(root):
    for model in ("decoder", "shared", "encoder"):
        for ranks, layout in ((2, ["parallel.tensor=2"]), (2, ["parallel.pipeline=2"]), (2, ["parallel.context=2", "parallel.zero=1"]),
                              *([(4, ["parallel.expert=2", "parallel.tensor=2"])] if model != "encoder" else [])):
            assert "equal to the single-rank run" in run(root / f"{model}0", "tfm-verify", "run.yaml", *layout, ranks=ranks)


def main():
    with tempfile.TemporaryDirectory() as root:
        for check in (check_layouts, check_capacity, check_bias, check_resume, check_resume_with_other_expert_ranks,
                      check_adversarial_loads, check_generation, check_export, check_refusals, check_evaluations, check_verification):
            check(pathlib.Path(root))
            print(f"{check.__name__}: ok", flush=True)


main()
