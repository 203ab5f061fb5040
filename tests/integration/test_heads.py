"""A model with several terms of the loss: every layout has the same losses, and each term its metrics on the screen, in metrics.jsonl,
in event files, for Prometheus, in the report and from tfm-eval. Layers of several kinds, also with windows of attention, on every layout,
and in generation.

usage: test_heads.py BIN [--all]    (without: one rank and a third of the other layouts)
"""
import array
import json
import math
import operator
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

from tier import ALL, some

BIN = pathlib.Path(sys.argv[1]).resolve()
MPIRUN = pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh"
ENCODER = """
model: {family: encoder, vocab_size: 260, d_model: 32, n_layers: 4, n_heads: 4, d_ff: 64, type_vocab_size: 2, next_sentence: true,
        heads: [{type: lm, weight: 0.5}], dropout: 0.1}
train: {steps: 6, global_batch_size: 8, seq_len: 16}
data:
  train: {type: mlm, path: text.txt, next_sentence: true}
  validation: {type: mlm, path: text.txt, next_sentence: true}
eval: {every: 3, batches: 2, metrics: [accuracy]}
checkpoint: {dir: ck}
metrics: {jsonl: run/metrics.jsonl, tensorboard: events}
"""
MIXED = """
model: {{vocab_size: 260, d_model: 32, n_heads: 4, d_ff: 64, dropout: 0.1, {model}}}
train: {{steps: 20, global_batch_size: 8, seq_len: 16}}
data: {{train: {data}}}
checkpoint: {{dir: ck}}
metrics: {{jsonl: run/metrics.jsonl}}
"""
TEXT, PAIRS = "{type: text, path: text.txt}", "{type: pairs, source: text.txt, target: text.txt}"
KINDS = {
    "mixed": ("family: decoder, n_layers: 6, position: rope, layers: [local, local, global], layer_kinds: {local: {rope: {theta: 100}, "
              "activation: swiglu, d_ff: 48}, global: {n_kv_heads: 2, qk_norm: true, norm: rmsnorm}}", TEXT),
    "windows": ("family: decoder, n_layers: 6, position: rope, norm: rmsnorm, activation: swiglu, bias: false, n_kv_heads: 2, "
                "qk_norm: true, layers: [local, local, global], layer_kinds: {local: {attention: {window: 5}}, global: {}}", TEXT),
    "latent": ("family: decoder, n_layers: 4, position: rope, norm: rmsnorm, activation: swiglu, d_head: 12, attention: {type: latent, "
               "q_rank: 16, kv_rank: 12, rope_size: 4}, layers: [a, b], layer_kinds: {a: {}, b: {attention: {window: 5}}}", TEXT),
    "delta": ("family: decoder, n_layers: 4, position: rope, norm: rmsnorm, activation: swiglu, bias: false, layers: [a, a, b], "
              "layer_kinds: {a: {position: none, dropout: {attention: 0}, attention: {type: gated_delta, key_heads: 2, value_size: 12}}, "
              "b: {}}", TEXT),
    "mamba": ("family: decoder, n_layers: 4, position: rope, layers: [a, a, b], layer_kinds: {a: {position: none, dropout: {attention: 0}, "
              "attention: {type: mamba2, key_heads: 4, value_size: 12}}, b: {}}", TEXT),
    "linear": ("family: encoder_decoder, n_layers: 2, position: sinusoidal, encoder_layers: [a, b], decoder_layers: [b, a], layer_kinds: "
               "{a: {dropout: {attention: 0}, attention: {type: linear}}, b: {}}", PAIRS),
    "encoder": ("family: encoder, n_layers: 4, attention: {window: 6}", "{type: mlm, path: text.txt}"),
    "inner": ("family: decoder, n_layers: 4, position: rope, norm: rmsnorm, norm_position: inner, qk_norm: whole, n_kv_heads: 2, "
              "activation: swiglu, bias: false, layers: [a, b], layer_kinds: {a: {}, b: {norm_position: post, qk_norm: true}}", TEXT),
    "caps": ("family: decoder, n_layers: 4, position: rope, norm: rmsnorm, norm_position: both, norm_plus_one: true, n_kv_heads: 2, "
             "activation: geglu, bias: false, softcap: 4, attention: {softcap: 1, query_scalar: 4}, scale_embeddings: rounded, "
             "layers: [local, global], layer_kinds: {local: {attention: {window: 5}}, global: {}}", TEXT),
    "pairs": ("family: encoder_decoder, n_layers: 2, position: relative, encoder_layers: [local, global], decoder_layers: [local], "
              "layer_kinds: {local: {attention: {window: 4}}, global: {}}", PAIRS),
}
CLASSES = """
model: {{family: {family}, vocab_size: 260, d_model: 32, n_layers: 2, n_heads: 4, d_ff: 64, dropout: 0.1,
        heads: [{{type: lm, weight: 0.5}}, {{type: classify, labels: [cold, warm, hot], pool: {pool}}}]}}
train: {{steps: {steps}, global_batch_size: 16, seq_len: 24}}
optimizer: {{lr: 4.0e-3}}
data:
  train: {{type: labelled, path: train.tsv, text: sentence, label: kind, shuffle: true}}
  validation: {{type: labelled, path: rest.jsonl, text: sentence, label: kind}}
eval: {{every: 5, metrics: [accuracy]}}
checkpoint: {{dir: ck}}
metrics: {{jsonl: run/metrics.jsonl}}
"""
TASKS = """
model: {{family: {family}, vocab_size: 260, d_model: 32, n_layers: 2, n_heads: 4, d_ff: 64, dropout: 0.1, heads: [
          {{type: classify, name: kind, labels: [cold, warm, hot], weight: 0.5, class_weights: [1, 2, 0.5]}},
          {{type: tag, name: tags, labels: [O, B-HEAT]}}, {{type: regress, name: degrees, weight: 0.25, pool: {pool}, pooler: relu}}]}}
train: {{steps: 10, global_batch_size: 16, seq_len: 24}}
optimizer: {{lr: 4.0e-3}}
data:
  train: {{type: labelled, path: tasks.jsonl, text: words, shuffle: true}}
  validation: {{type: labelled, path: tasks.jsonl, text: words}}
eval: {{every: 5, metrics: [accuracy]}}
checkpoint: {{dir: ck}}
metrics: {{jsonl: run/metrics.jsonl}}
"""
PAIRS_OF_TEXTS = """
model: {{family: {family}, vocab_size: 260, d_model: 32, n_layers: 2, n_heads: 4, d_ff: 64, dropout: 0.1,
        heads: [{{type: embed, pool: {pool}{head}}}]}}
train: {{steps: 6, global_batch_size: {batch}, seq_len: 16}}
optimizer: {{lr: 4.0e-3}}
data:
  train: {{type: labelled, path: pairs.tsv, text: query, text_pair: answer, shuffle: true{negative}}}
  validation: {{type: labelled, path: rest.jsonl, text: query, text_pair: answer{negative}}}
eval: {{every: 3, metrics: [accuracy]}}
checkpoint: {{dir: ck}}
metrics: {{jsonl: run/metrics.jsonl}}
"""
TASK_NAMES = ("kind", "tags", "degrees")
WORDS = {"cold": ["ice", "snow"], "warm": ["tea", "wool"], "hot": ["fire", "sun"]}
TERMS = ("lm", "next_sentence")


def run(folder, program, *args, ranks=1, code=0, text=""):
    command = [*([MPIRUN, str(ranks)] if ranks > 1 else []), BIN / program, *args]
    done = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def events_of(folder, kind):
    lines = (folder / "run/metrics.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def prepared(root, name, text):
    folder = root / name
    folder.mkdir()
    (folder / "text.txt").write_text("\n".join(f"line {i}: the {['quick', 'brown', 'lazy'][i % 3]} fox {i * i % 97}" for i in range(300)))
    (folder / "run.yaml").write_text(text)
    return folder


def check_terms_on_every_layout(root):
    expected = None
    for k, (ranks, layout) in enumerate([(1, []), (2, ["parallel.tensor=2"]), (2, ["parallel.pipeline=2"]),
                                         (4, ["parallel.tensor=2", "parallel.zero=3"]), (4, ["parallel.pipeline=2", "parallel.tensor=2"])]):
        folder = prepared(root, f"terms{k}", ENCODER)
        run(folder, "tfm-train", "run.yaml", *layout, ranks=ranks)
        steps = events_of(folder, "step")
        for step in steps:
            assert abs(step["loss"] - 0.5 * step["loss_lm"] - step["loss_next_sentence"]) < 1e-9 * step["loss"], step
        found = [[step[f"loss_{term}"] for term in TERMS] for step in steps]
        expected = expected or found
        for a, b in zip(sum(found, []), sum(expected, [])):
            assert abs(a - b) <= 1e-5 * abs(b), (layout, found, expected)


def check_terms_in_every_output(root):
    folder = prepared(root, "outputs", ENCODER)
    screen = run(folder, "tfm-train", "run.yaml")
    for term in TERMS:
        assert re.search(rf"step 6/6 .*\| loss_{term} \d", screen), screen
        assert re.search(rf"validation at step 6 .*\| loss_{term} \d.*\| accuracy_{term} \d", screen), screen
    assert all(f"{what}_{term}" in event for event in events_of(folder, "eval") for what in ("loss", "accuracy") for term in TERMS)
    scalars = b"".join(f.read_bytes() for f in (folder / "events").iterdir())
    assert all(name in scalars for term in TERMS for name in (f"train/loss_{term}".encode(), f"validation/accuracy_{term}".encode()))
    run(folder, "tfm-report", "run", "-o", "report.html")
    page = (folder / "report.html").read_text()
    assert all(title in page for title in ("Loss of lm", "Loss of next_sentence", "Validation accuracy_next_sentence")), page[:2000]
    run(folder, "tfm-eval", "ck", "--json", "eval.json")
    results = json.loads((folder / "eval.json").read_text())
    assert abs(results["loss"] - 0.5 * results["loss_lm"] - results["loss_next_sentence"]) < 1e-9, results
    assert 0 <= results["accuracy_next_sentence"] <= 1, results


def check_terms_for_prometheus(root):
    folder = prepared(root, "prometheus", ENCODER)
    command = [BIN / "tfm-train", "run.yaml", "train.steps=100000", "metrics.listen=127.0.0.1:0", "eval.every=5"]
    job = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        url = next(m.group(1) for line in job.stdout if (m := re.search(r"metrics at (http://\S+)", line)))
        deadline, page = time.time() + 60, ""
        while "tfm_eval_accuracy_next_sentence" not in page and time.time() < deadline:
            time.sleep(0.2)
            page = urllib.request.urlopen(url, timeout=10).read().decode()
        for name in ("tfm_loss_lm", "tfm_loss_next_sentence", "tfm_eval_loss_lm", "tfm_eval_accuracy_next_sentence"):
            assert re.search(rf"^{name}{{", page, re.M), page
    finally:
        job.kill()
        job.wait()


def check_layers_of_several_kinds(root):
    layouts = [(1, []), (2, ["parallel.tensor=2", "recompute=full"]), (2, ["parallel.context=2"]),
               (2, ["parallel.context=2", "parallel.context_exchange=ring"]), (4, ["parallel.pipeline=2", "parallel.zero=1"]),
               (4, ["parallel.tensor=2", "parallel.zero=3"])]
    for name, (model, data) in KINDS.items():
        expected = None
        cut = name not in ("delta", "mamba", "linear")  # states pass along whole sequences
        for k, (ranks, layout) in enumerate(some([(r, l) for r, l in layouts if cut or "parallel.context=2" not in l])):
            folder = prepared(root, f"{name}{k}", MIXED.format(model=model, data=data))
            run(folder, "tfm-train", "run.yaml", *layout, ranks=ranks)
            losses = [step["loss"] for step in events_of(folder, "step")]
            expected = expected or losses
            assert all(abs(a - b) <= 1e-5 * b for a, b in zip(losses, expected)), (name, layout, losses, expected)
            end = events_of(folder, "end")[0]
            assert end["arena_high_water_bytes"] == events_of(folder, "start")[0]["planned_bytes"], (name, layout, end)
            text = generated(folder, name)
            assert k == 0 or text == first, (name, layout, text, first)
            first = text
        for layout in (["parallel.context=2"], ["parallel.tensor=2"])[not cut:]:
            assert "equal to the single-rank run" in run(folder, "tfm-verify", "run.yaml", *layout, ranks=2)
    assert "layers that are all alike" in run(root / "mixed0", "tfm-convert", "export", "ck", "hf", code=2)


def generated(folder, name):
    """Greedily, or a translation by beams; nothing of an encoder."""
    if name == "encoder":
        return ""
    if name in ("pairs", "linear"):
        return run(folder, "tfm-generate", "ck", "--beam", "3", "--max-tokens", "12", text="line 7: the\nbrown\nfox 4\n")
    return run(folder, "tfm-generate", "ck", "--prompt", "line 7", "--max-tokens", "12", "--temperature", "0")


def check_windows_say_what_a_query_sees(root):
    """A longer window than the text changes no bit; a generated text is the likeliest one of the whole text; less work is planned."""
    model, data = KINDS["windows"]
    losses, flops, seconds = [], [], []
    for window in (0, 16, 1000, 5):
        folder = prepared(root, f"window{window}", MIXED.format(model=model.replace("window: 5", f"window: {window}"), data=data))
        run(folder, "tfm-train", "run.yaml")
        losses.append([step["loss"] for step in events_of(folder, "step")])
        plan = json.loads(run(folder, "tfm-plan", "run.yaml", "--ranks", "1", "--device", "h100", "--json", "train.seq_len=4096",
                              "model.max_seq_len=4096", "precision=bf16"))
        flops.append(plan["flops_per_step"])
        seconds.append(plan["step_seconds"])
    assert losses[0] == losses[1] == losses[2] and losses[0][0] != losses[3][0], losses
    assert flops[0] > flops[2] > flops[1] > flops[3] and seconds[0] > seconds[2] > seconds[1] >= seconds[3], (flops, seconds)
    text = generated(folder, "windows").encode()[:16]  # positions of the model
    size = len(text)
    header = json.dumps({"input_ids": {"dtype": "I64", "shape": [1, size], "data_offsets": [0, 8 * size]}}).encode()
    (folder / "in.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{size}q", *text))
    run(folder, "tfm-probe", "ck", "--batch", "in.safetensors", "--out", "out.safetensors")
    raw = (folder / "out.safetensors").read_bytes()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    at = json.loads(raw[8:start])["logits"]["data_offsets"]
    logits = array.array("f", raw[start + at[0]:start + at[1]])
    rows = [logits[260 * t:260 * (t + 1)] for t in range(size)]
    assert [row.index(max(row)) for row in rows[len("line 7") - 1:-1]] == list(text[len("line 7"):]), (text, rows)
    run(folder, "tfm-convert", "export", "ck", "hf")
    config = json.loads((folder / "hf/config.json").read_text())
    assert (config["model_type"], config["layer_types"]) == ("qwen3", (["sliding_attention"] * 2 + ["full_attention"]) * 2), config
    assert config["sliding_window"] == 5 and config["use_sliding_window"], config
    found = []
    for source in ("ck", "hf"):
        run(folder, "tfm-eval", source, "--text", "text.txt", "--json", "eval.json", *(["data.tokenizer=bytes"] if source == "hf" else []))
        found.append(json.loads((folder / "eval.json").read_text())["loss"])
    assert abs(found[0] - found[1]) < 1e-9, found


def classified(root, name, **settings):
    """A folder with texts in which one word tells the class."""
    folder = prepared(root, name, CLASSES.format(**settings))
    rows = [(" ".join(["the"] * (i % 3 + 1) + [WORDS[kind][i % 2]] + ["it"] * (i % 2)), kind) for i in range(240)
            for kind in [list(WORDS)[i * i % 3 if i % 5 else i % 3]]]
    table = ["sentence\tnote\tkind", *(f"{text}\t{k}\t{kind}" for k, (text, kind) in enumerate(rows[:200]))]
    (folder / "train.tsv").write_text("\n".join(table) + "\n")
    (folder / "rest.jsonl").write_text("".join(json.dumps({"kind": kind, "sentence": text}) + "\n" for text, kind in rows[200:]))
    return folder


def check_classifiers_on_every_layout(root):
    for family, pool in (("decoder", "last"), ("encoder", "mean"), ("encoder", "first"), ("encoder_decoder", "last")):
        expected = None
        layouts = [(1, []), (2, ["parallel.tensor=2"]), (2, ["parallel.context=2", "recompute=full"]),
                   (4, ["parallel.pipeline=2", "parallel.zero=1"]), (4, ["parallel.context=2", "parallel.zero=3"])]
        for k, (ranks, layout) in enumerate(some(layouts)):
            folder = classified(root, f"{family}_{pool}{k}", family=family, pool=pool, steps=10)
            run(folder, "tfm-train", "run.yaml", *layout, ranks=ranks)
            steps, evals = events_of(folder, "step"), events_of(folder, "eval")
            found = [step[f"loss_{term}"] for step in steps for term in ("lm", "classify")] + [e["loss_classify"] for e in evals]
            found += [e["accuracy_classify"] for e in evals]
            expected = expected or found
            assert all(abs(a - b) <= 2e-5 * abs(b) for a, b in zip(found, expected, strict=True)), (family, pool, layout, found, expected)
            end = events_of(folder, "end")[0]
            assert end["arena_high_water_bytes"] == events_of(folder, "start")[0]["planned_bytes"], end
        assert "equal to the single-rank run" in run(folder, "tfm-verify", "run.yaml", "parallel.context=2", ranks=2)


def tasks(root, name, **settings):
    """A folder with words that have a label each, of a text with a class and a number, of which some are missing."""
    folder = prepared(root, name, TASKS.format(**settings))
    rows = []
    for i in range(64):
        kind = list(WORDS)[i * i % 3]
        words = ["the"] * (i % 3 + 1) + [WORDS[kind][i % 2]] + ["it"] * (i % 2)
        tags = ["B-HEAT" if word in sum(WORDS.values(), []) else "O" for word in words]
        rows.append({"words": words, "kind": kind, "tags": tags, "degrees": 10.0 * list(WORDS).index(kind) - 7.5})
        for k, task in enumerate(TASK_NAMES):
            if i % 7 == k:
                del rows[-1][task]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def check_several_tasks_on_every_layout(root):
    for family, pool in (("decoder", "last"), ("encoder", "mean"), ("encoder", "first")):
        expected = None
        layouts = [(1, ["train.micro_batch_size=4"]), (2, ["parallel.tensor=2"]), (2, ["parallel.context=2", "recompute=full"]),
                   (4, ["parallel.pipeline=2", "parallel.zero=1"]), (4, ["parallel.tensor=2", "parallel.sequence=true", "parallel.zero=3"]),
                   (4, ["parallel.tensor=4"])]
        for k, (ranks, layout) in enumerate(some(layouts)):
            folder = tasks(root, f"tasks_{family}_{pool}{k}", family=family, pool=pool)
            run(folder, "tfm-train", "run.yaml", *layout, ranks=ranks)
            steps, evals = events_of(folder, "step"), events_of(folder, "eval")
            for step in steps:
                terms = [step[f"loss_{task}"] for task in TASK_NAMES]
                assert abs(step["loss"] - 0.5 * terms[0] - terms[1] - 0.25 * terms[2]) < 1e-9 * step["loss"], step
            found = [step[f"loss_{task}"] for step in steps for task in TASK_NAMES]
            found += [e[what] for e in evals for what in ("loss_kind", "loss_tags", "loss_degrees", "accuracy_kind", "accuracy_tags")]
            expected = expected or found
            assert all(abs(a - b) <= 2e-5 * abs(b) for a, b in zip(found, expected, strict=True)), (family, pool, layout, found, expected)
            assert "accuracy_degrees" not in evals[0], evals
            end = events_of(folder, "end")[0]
            assert end["arena_high_water_bytes"] == events_of(folder, "start")[0]["planned_bytes"], end
        for layout in (["parallel.context=2"], ["parallel.tensor=2"]):
            assert "equal to the single-rank run" in run(folder, "tfm-verify", "run.yaml", *layout, ranks=2)


def check_a_classifier_learns(root):
    """From new weights, and on top of a language model that was trained before."""
    folder = classified(root, "learns", family="decoder", pool="last", steps=60)
    run(folder, "tfm-train", "run.yaml")
    run(folder, "tfm-eval", "ck", "--json", "eval.json")
    results = json.loads((folder / "eval.json").read_text())
    assert results["accuracy_classify"] > 0.95, results
    assert abs(results["loss"] - 0.5 * results["loss_lm"] - results["loss_classify"]) < 1e-9, results
    alone = ["model.heads=[{type: classify, labels: [cold, warm, hot]}]", "checkpoint.dir=alone", "metrics.jsonl=none"]
    text = (folder / "run.yaml").read_text().replace(", {type: classify, labels: [cold, warm, hot], pool: last}", "")
    text = re.sub(r"type: labelled, path: \S+, text: sentence, label: kind", "type: text, path: text.txt", text)
    (folder / "text.yaml").write_text(text)
    run(folder, "tfm-train", "text.yaml", "checkpoint.dir=text", "train.steps=5", "metrics.jsonl=none")
    said = run(folder, "tfm-train", "run.yaml", "model.init=text", *alone)
    assert "new, with random weights: classify.weight, classify.bias" in said, said
    run(folder, "tfm-eval", "alone", "--json", "eval.json")
    results = json.loads((folder / "eval.json").read_text())
    assert results["accuracy"] > 0.95 and results["tokens"] == 40, results
    assert "loss_classify" not in run(folder, "tfm-eval", "ck", "--text", "text.txt"), "text has no classes"
    assert "predicts no tokens" in run(folder, "tfm-generate", "alone", "--prompt", "the", code=2)
    assert "heads: [{type: lm}]" in run(folder, "tfm-convert", "export", "alone", "hf", code=2)


def check_predictions(root):
    """Of every head, the same on any ranks; scores are those of the predictions."""
    folder = tasks(root, "predictions", family="encoder", pool="mean")
    run(folder, "tfm-train", "run.yaml", "train.steps=40")
    rows = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    text = "".join(" ".join(row["words"]) + "\n\n" for row in rows) + "the " * 30 + "\n"
    found = [run(folder, "tfm-predict", "ck", *args, ranks=ranks, text=text)
             for ranks, args in ((1, []), (2, ["parallel.tensor=1"]), (4, ["parallel.tensor=2"]))]
    lines = found[0].splitlines()
    assert len(lines) == 2 * len(rows) + 1 and not any(lines[1:-1:2]), lines
    for other in found[1:]:
        for ours, theirs in zip(lines, other.splitlines(), strict=True):
            for a, b in zip(ours.split("\t"), theirs.split("\t"), strict=True):
                assert a == b or abs(float(a) - float(b)) < 2e-4, (ours, theirs)
    columns = [line.split("\t") for line in lines[:-1:2]]
    assert all(len(c) == 4 and 0 < float(c[1]) <= 1 for c in columns) and lines[-1].split("\t")[2].split().count("-") == 24, lines[-1]
    results = {}
    for ranks in (1, 2):
        run(folder, "tfm-eval", "ck", "--labelled", "tasks.jsonl", "--json", "eval.json", "parallel.tensor=1", ranks=ranks)
        for name, value in json.loads((folder / "eval.json").read_text()).items():
            limit = 0.02 if name.startswith("spearman") else 1e-5  # the order of predictions that nearly tie follows their last bits
            assert abs(value - results.setdefault(name, value)) < limit, (name, value, results)
    known = [(c[0], row["kind"]) for c, row in zip(columns, rows) if "kind" in row]
    tags = [pair for c, row in zip(columns, rows) if "tags" in row for pair in zip(c[2].split(), row["tags"], strict=True)]
    for name, pairs in (("accuracy_kind", known), ("accuracy_tags", tags)):
        assert abs(results[name] - sum(a == b for a, b in pairs) / len(pairs)) < 1e-9, (name, results)
    errors = [(float(c[3]) - row["degrees"]) ** 2 for c, row in zip(columns, rows) if "degrees" in row]
    assert abs(results["loss_degrees"] - sum(errors) / len(errors)) < 1e-4 * results["loss_degrees"], results
    assert results["accuracy_tags"] > 0.9 and results["f1_tags"] > 0.9 and {"f1_kind", "mcc_kind", "pearson_degrees", "spearman_degrees"} <= {*results}
    assert run(folder, "tfm-predict", "ck", "--head", "kind", text="tea\n").split("\t")[0] in WORDS
    each = run(folder, "tfm-predict", "ck", "--head", "kind", "--all", text="tea\n").split()
    assert [p.split(":")[0] for p in each] == list(WORDS) and abs(sum(float(p.split(":")[1]) for p in each) - 1) < 1e-3, each
    assert "no head 'mood'" in run(folder, "tfm-predict", "ck", "--head", "mood", code=2)
    language = prepared(root, "language", ENCODER)
    run(language, "tfm-train", "run.yaml", "train.steps=1")
    assert "no head for labels" in run(language, "tfm-predict", "ck", code=2)
    assert "--labelled needs a model with a head" in run(language, "tfm-eval", "ck", "--labelled", "text.txt", code=2)


def pairs_of_texts(root, name, **settings):
    """A folder with questions, answers, and answers to something else; the last batch of the validation is short."""
    folder = prepared(root, name, PAIRS_OF_TEXTS.format(**settings))
    rows = [(f"{'what who where'.split()[i % 3]} {i * 7 % 83}", f"it is {i * 7 % 83}", f"not {i * 5 % 79}") for i in range(110)]
    (folder / "pairs.tsv").write_text("query\tanswer\tother\n" + "".join("\t".join(row) + "\n" for row in rows[:70]))
    (folder / "rest.jsonl").write_text("".join(json.dumps(dict(zip(("query", "answer", "other"), row))) + "\n" for row in rows[70:]))
    return folder


def check_embeddings_on_every_layout(root):
    """Losses are those of one rank, with negatives from all ranks, or of groups and several micro-batches."""
    layouts = [(1, []), (2, []), (2, ["parallel.tensor=2"]), (2, ["parallel.context=2"]),
               (4, ["parallel.pipeline=2", "parallel.zero=1"]), (4, ["parallel.tensor=2", "parallel.sequence=true", "parallel.zero=3"]),
               (8, []), (8, ["parallel.context=2", "parallel.zero=2"])]
    group, negative = ", group: 2", ", negative: other"
    for family, pool, settings, more in (
            ("encoder", "mean", {"batch": 32}, layouts),
            ("decoder", "last", {"batch": 48, "negative": negative, "head": ", normalize: false, scale: 0.5"}, layouts),
            ("encoder", "first", {"batch": 32, "head": group},
             [(1, ["train.micro_batch_size=32"]), (1, ["train.micro_batch_size=4"]), (2, ["train.micro_batch_size=8"]), (8, []),
              (2, ["parallel.pipeline=2"])])):
        expected = None
        for k, (ranks, layout) in enumerate(some(more, 2)):
            folder = pairs_of_texts(root, f"embed_{family}_{pool}{k}", family=family, pool=pool,
                                    **{"head": "", "negative": "", **settings})
            run(folder, "tfm-train", "run.yaml", *layout, ranks=ranks)
            steps, evals = events_of(folder, "step"), events_of(folder, "eval")
            found = [x for step in steps for x in (step["loss"], step["grad_norm"])]
            found += [x for e in evals for x in (e["loss"], e["accuracy"])]
            expected = expected or found
            close = all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(found, expected, strict=True))
            assert close, (family, pool, ranks, layout, found, expected)
            end = events_of(folder, "end")[0]
            assert end["arena_high_water_bytes"] == events_of(folder, "start")[0]["planned_bytes"], end
        assert steps[-1]["loss"] < steps[0]["loss"], steps
    for layout in (["parallel.context=2"], ["parallel.tensor=2"], []):
        assert "equal to the single-rank run" in run(folder, "tfm-verify", "run.yaml", *layout, ranks=2)


def norm(values):
    return math.sqrt(sum(x * x for x in values))


def safetensors_of(path):
    raw = path.read_bytes()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    return {name: (t["shape"], array.array("f", raw[start + t["data_offsets"][0]:start + t["data_offsets"][1]]))
            for name, t in json.loads(raw[8:start]).items() if name != "__metadata__"}


def write_batch(path, **batch):
    header, data = {}, b""
    for name, (shape, values) in batch.items():
        header[name] = {"dtype": "I64", "shape": shape, "data_offsets": [len(data), len(data) + 8 * len(values)]}
        data += struct.pack(f"<{len(values)}q", *values)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def check_vectors(root):
    """The loss is a plain computation from the vectors, gradients are those of one rank, and recall is that of the vectors of all texts."""
    folder = pairs_of_texts(root, "vectors", family="encoder", pool="mean", batch=16, head="", negative="")
    run(folder, "tfm-train", "run.yaml", "train.steps=40")
    B, T, C = 16, 16, 32
    ids = [258 if t == 0 else (i * 31 + t * 7) % 100 + 20 for i in range(B) for t in range(T)]
    mask = [int(t < 5 + i % 9) for i in range(B) for t in range(T)]
    write_batch(folder / "in.safetensors", input_ids=([B, T], ids), attention_mask=([B, T], mask),
                labels=([B], [-100 if i % 2 else i // 2 for i in range(B)]))
    outputs = []
    for ranks, layout in some([(1, []), (2, []), (2, ["parallel.tensor=2"]), (4, ["parallel.context=2"]), (8, [])], 2):
        run(folder, "tfm-probe", "ck", "--batch", "in.safetensors", "--out", "out.safetensors", "--gradients", *layout, ranks=ranks)
        outputs.append(safetensors_of(folder / "out.safetensors"))
        for name, (shape, values) in outputs[-1].items():
            # That of a key's bias is zero in exact arithmetic.
            least = 0.1 * norm(outputs[0]["grad.embedding.weight"][1]) if name.endswith("key.bias") else 0
            error = norm(a - b for a, b in zip(values, outputs[0][name][1], strict=True))
            assert error <= 1e-6 * max(norm(outputs[0][name][1]), least), (ranks, layout, name, error)
    shape, values = outputs[0]["embedding"]
    rows = [values[i * C:(i + 1) * C] for i in range(B)]
    dot = lambda a, b: sum(map(operator.mul, a, b))
    assert shape == [B, C] and all(abs(dot(row, row) - 1) < 1e-5 for row in rows)
    loss = 0
    for i in range(0, B, 2):
        near = [20 * dot(rows[i], document) for document in rows[1::2]]
        loss += (math.log(sum(map(math.exp, near))) - near[i // 2]) / (B // 2)
    assert abs(loss - outputs[0]["loss"][1][0]) < 1e-5, (loss, outputs[0]["loss"])
    write_batch(folder / "in.safetensors", input_ids=([B, T], ids), labels=([B], [i // 4 for i in range(B)]))
    assert "rows of a query and its documents" in run(folder, "tfm-probe", "ck", "--batch", "in.safetensors", "--out", "o", code=3)

    pairs = [json.loads(line) for line in (folder / "rest.jsonl").read_text().splitlines()]
    text = "\n".join([p["query"] for p in pairs] + [p["answer"] for p in pairs] + [""]) + "\n"
    found = []
    for ranks in (1, 2):
        run(folder, "tfm-predict", "ck", "--embed", "vectors.safetensors", "parallel.tensor=1", ranks=ranks, text=text)
        found.append(safetensors_of(folder / "vectors.safetensors")["embedding"])
    n = len(pairs)
    assert found[0][0] == [2 * n + 1, C] and max(abs(a - b) for a, b in zip(found[0][1], found[1][1], strict=True)) < 1e-6
    printed = [json.loads(line) for line in run(folder, "tfm-predict", "ck", "--embed", "-", text=text).splitlines()]
    rows = [found[0][1][i * C:(i + 1) * C] for i in range(2 * n + 1)]
    assert all(abs(a - b) < 1e-6 for row, line in zip(rows, printed, strict=True) for a, b in zip(row, line, strict=True))
    assert not any(rows[-1])
    nearer = [sum(dot(rows[i], d) > dot(rows[i], rows[n + i]) + 1e-7 for d in rows[n:2 * n]) for i in range(n)]
    for ranks in (1, 2):
        run(folder, "tfm-eval", "ck", "--labelled", "rest.jsonl", "--json", "eval.json", "parallel.tensor=1", ranks=ranks)
        results = json.loads((folder / "eval.json").read_text())
        for k in (1, 10):
            assert abs(results[f"recall_at_{k}"] - sum(x < k for x in nearer) / n) < 1e-9, (k, results, nearer)
        assert abs(results["mrr"] - sum(1 / (1 + x) for x in nearer) / n) < 1e-6, (results, nearer)
    assert results["recall_at_10"] > 0.5, results
    refused = lambda *words, text: text in run(folder, "tfm-train", "run.yaml", *words, code=2)
    assert refused("train.micro_batch_size=4", text="expected micro_batch_size 16, or a group of pairs that divides micro_batch_size / 2")
    assert refused("model.heads=[{type: embed, group: 3}]", text="group 3 does not divide the 8 pairs of a batch; legal values are auto, 1")
    assert refused("data.train.text_pair=none", text="learns from pairs of texts; expected text_pair")
    assert refused("data.train.negative=other", text="only one of data.train and data.validation")
    assert refused("train.global_batch_size=15", text="a row has 2 texts, but train.global_batch_size 15")
    assert "expected at least the 100 of a batch" in run(folder, "tfm-train", "run.yaml", "train.global_batch_size=200", code=3)
    assert "expected --embed" in run(folder, "tfm-predict", "ck", code=2, text=text)
    assert "'gone/v.safetensors' cannot be written" in run(folder, "tfm-predict", "ck", "--embed", "gone/v.safetensors", code=2, text=text)


def check_small_tasks(root):
    """Of configs/, each on one rank or on two, with --all on both."""
    folder = root / "small"
    (folder / "data").mkdir(parents=True)
    configs = pathlib.Path(__file__).resolve().parents[2] / "configs"
    subprocess.run(["awk", "-v", "dir=data", "-f", configs / "labels.awk"], cwd=folder, check=True)
    for name, data, score_of, least, some_ranks in (("moods", "moods_test.tsv", "f1", 0.95, 1), ("entities", "entities_test.conll", "f1", 0.97, 2),
                                                    ("search", "search_test.tsv", "recall_at_1", 0.9, 1)):
        for ranks in (1, 2) if ALL else (some_ranks,):
            run(folder, "tfm-train", configs / f"{name}.yaml", f"checkpoint.dir={name}{ranks}", "eval.every=0", ranks=ranks)
            run(folder, "tfm-eval", f"{name}{ranks}", "--labelled", f"data/{data}", "--json", "eval.json")
            score = json.loads((folder / "eval.json").read_text())[score_of]
            assert score >= least, (name, ranks, score)


def check_a_downloaded_encoder_gets_a_classifier(root):
    """It takes the place of next sentence prediction, whose pooler it goes on with."""
    folder = classified(root, "bert", family="encoder", pool="first", steps=2)
    source = pathlib.Path(__file__).resolve().parents[1] / "fixtures/huggingface/bert_0"
    assert "BertForPreTraining" in (source / "config.json").read_text()
    size = json.loads((source / "config.json").read_text())["vocab_size"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "it", *sum(WORDS.values(), [])]
    vocab = {token: i for i, token in enumerate(tokens)}
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    assert len(vocab) <= size, (len(vocab), size)
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None, "decoder": None,
        "added_tokens": [{"id": i, "content": token, **flags} for token, i in vocab.items() if token.startswith("[")],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": vocab}}))
    (folder / "bert.yaml").write_text("""
model: {heads: [{type: classify, labels: [cold, warm, hot]}]}
train: {steps: 2, global_batch_size: 8, seq_len: 8}
data: {train: {type: labelled, path: train.tsv, text: sentence, label: kind}, tokenizer: tokenizer.json}
checkpoint: {dir: ck}
""")
    said = run(folder, "tfm-train", "bert.yaml", f"model.init={source}")
    assert "new, with random weights: classify.weight, classify.bias\n" in said, said
    # Its own objective without pairs goes on, with the head for pairs as it is.
    (folder / "mlm.yaml").write_text(f"""
model: {{init: {source}}}
train: {{steps: 2, global_batch_size: 8, seq_len: 8}}
data: {{train: {{type: mlm, path: text.txt}}, tokenizer: tokenizer.json}}
checkpoint: {{dir: none}}
""")
    assert "loss_next_sentence 0.0000" in run(folder, "tfm-train", "mlm.yaml")
    assert "next_sentence: false" in run(folder, "tfm-train", "bert.yaml", f"model.init={source}", "--dump-config")
    run(folder, "tfm-convert", "export", "ck", "hf")
    names = ["data.train.text=sentence", "data.train.label=kind"]
    scores = lambda *args: re.findall(r"^(?:accuracy|f1|mcc|tokens) .*",
                                      run(folder, "tfm-eval", *args, "--labelled", "rest.jsonl"), re.MULTILINE)
    assert len(scores("ck")) == 4 and scores("ck") == scores("hf", *names)
    assert "expected text to be one of kind, sentence" in run(folder, "tfm-eval", "hf", "--labelled", "rest.jsonl", code=3)


def main():
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        for check in (check_terms_on_every_layout, check_terms_in_every_output, check_terms_for_prometheus, check_layers_of_several_kinds,
                      check_windows_say_what_a_query_sees,
                      check_classifiers_on_every_layout, check_several_tasks_on_every_layout, check_embeddings_on_every_layout,
                      check_vectors,
                      check_predictions, check_small_tasks,
                      check_a_classifier_learns, check_a_downloaded_encoder_gets_a_classifier):
            check(root)
            print(f"{check.__name__}: ok", flush=True)


main()
