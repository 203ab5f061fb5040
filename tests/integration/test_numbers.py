"""Numbers that a run reports of itself, against formulas of the test: FLOPs and utilization, tokens per second, perplexity beside two losses.

usage: test_numbers.py BIN_FOLDER
"""
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
MPIRUN = pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh"
C, FFN, LAYERS, V = 32, 128, 2, 300  # width, feed-forward width, layers of a stack, vocabulary
DECODER = f"""
model: {{family: decoder, vocab_size: {V}, d_model: {C}, n_layers: {LAYERS}, n_heads: 4, max_seq_len: 32}}
train: {{steps: 5, global_batch_size: 8, micro_batch_size: 2, seq_len: 32}}
data: {{train: {{type: text, path: text.txt}}}}
"""
PAIRS = f"""
model: {{family: encoder_decoder, vocab_size: {V}, d_model: {C}, n_layers: {LAYERS}, n_heads: 4, max_seq_len: 64}}
train: {{steps: 30, global_batch_tokens: 512, seq_len: 64}}
data: {{train: {{type: pairs, source: source.txt, target: target.txt}}}}
"""
SENTENCES = f"""
model: {{family: encoder, vocab_size: {V}, d_model: {C}, n_layers: 1, n_heads: 4, max_seq_len: 32, type_vocab_size: 2, next_sentence: true}}
train: {{steps: 2, global_batch_size: 16, seq_len: 32}}
data:
  train: {{type: mlm, path: text.txt, next_sentence: true}}
  validation: {{type: mlm, path: text.txt, next_sentence: true}}
eval: {{every: 2, batches: 32}}
optimizer: {{lr: 1.0e-9}}
"""


def train(config, *overrides, ranks=1):
    """The start event, and the others by name."""
    pathlib.Path("cfg.yaml").write_text(config)
    pathlib.Path("metrics.jsonl").unlink(missing_ok=True)
    done = subprocess.run([*([str(MPIRUN), str(ranks)] if ranks > 1 else []), str(BIN / "tfm-train"), "cfg.yaml", "metrics.jsonl=metrics.jsonl", *overrides],
                          capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    start, *others = map(json.loads, open("metrics.jsonl"))
    return start, [e for e in others if e["event"] == "step"], [e for e in others if e["event"] == "eval"]


def flops_of_reported(start, step):
    assert math.isclose(step["tokens_per_second"], step["tokens"] / step["step_seconds"], rel_tol=1e-9)
    return step["mfu"] * start["peak_flops"] * step["step_seconds"]


def causal(length):
    """Products of scores and of values, of which causal attention needs half."""
    return 2 * length * C


def block(attention):
    """FLOPs of a token in a layer: queries, keys, values and output, attention, two products of the feed-forward network."""
    return 2 * 4 * C * C + attention + 2 * 2 * C * FFN


def check_decoder():
    """Forward and twice as much backward, on any number of ranks, which share the peak of all."""
    tokens = 8 * 32
    expected = 3 * tokens * (LAYERS * block(causal(32)) + 2 * C * V)
    for ranks, overrides in ((1, []), (2, ["parallel.tensor=2"]), (2, ["parallel.zero=1"])):
        start, steps, _ = train(DECODER, *overrides, ranks=ranks)
        assert start["flops_per_step"] == expected, (start["flops_per_step"], expected)
        assert f"on {ranks} rank" in start["peak_from"], start["peak_from"]
        for step in steps:
            assert step["tokens"] == tokens and math.isclose(flops_of_reported(start, step), expected, rel_tol=1e-9), (ranks, step)


def check_batches_by_length():
    """Each bucket has the FLOPs of its length, padding included: 11 tokens and an end are in that of 16, 40 and an end in that of 48."""
    start, steps, _ = train(PAIRS)
    assert "flops_per_step" not in start
    seen = set()
    for step in steps:
        words, length = (11, 16) if step["tokens"] % 12 == 0 else (40, 48)
        assert step["tokens"] % (words + 1) == 0, step
        sequences = 512 // length
        full = 4 * length * C
        encoder = block(full)
        decoder = block(causal(length)) + 2 * 4 * C * C + full  # and attention to the source
        expected = 3 * sequences * length * (LAYERS * (encoder + decoder) + 2 * C * V)
        assert math.isclose(flops_of_reported(start, step), expected, rel_tol=1e-9), (step, expected)
        seen.add(length)
    assert seen == {16, 48}, seen


def check_perplexity_beside_two_losses():
    """The loss is the sum of both objectives, perplexity that of the masked tokens: the other one guesses as long as nothing is learned."""
    _, steps, evaluations = train(SENTENCES)
    for evaluated in evaluations:
        assert abs(evaluated["loss"] - math.log(evaluated["perplexity"]) - math.log(2)) < 0.05, evaluated
        assert abs(math.log(evaluated["perplexity"]) - math.log(V)) < 0.2, evaluated
    assert len(evaluations) == 1 and all(abs(step["loss"] - math.log(V) - math.log(2)) < 0.4 for step in steps)


def check_memory():
    """What the kernel says of the largest process, and what the plan says of a part of it."""
    start, steps, _ = train(DECODER)
    most = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert start["planned_bytes"] < steps[-1]["peak_memory_bytes"] <= most, (start["planned_bytes"], steps[-1], most)


def check_labels_are_smoothed_in_training_alone():
    """The same weights, whose evaluation is the negative log-likelihood with any smoothing."""
    evaluated = ("data.validation={type: text, path: text.txt}", "eval.every=1", "eval.batches=2")
    train(DECODER, "train.steps=30", "optimizer.lr=0.01", "loss.label_smoothing=0.2", "checkpoint.dir=smoothed")
    found = []
    for smoothing in (0, 0.2):
        _, (step,), (evaluation,) = train(DECODER, *evaluated, "model.init=smoothed", "train.steps=1", "optimizer.lr=1e-12",
                                          f"loss.label_smoothing={smoothing}", "checkpoint.dir=none")
        found.append((step["loss"], evaluation["loss"]))
        assert math.isclose(evaluation["perplexity"], math.exp(evaluation["loss"]), rel_tol=1e-9), evaluation
    assert found[1][0] > found[0][0] + 0.05 and math.isclose(found[0][1], found[1][1], rel_tol=1e-6), found


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pathlib.Path("text.txt").write_text("".join(f"{n} times {n} is {n * n}. " for n in range(2000)))
    for name, letters in (("source.txt", "ab"), ("target.txt", "xy")):
        pathlib.Path(name).write_text((letters[0] * 11 + "\n") * 200 + (letters[1] * 40 + "\n") * 200)
    for check in (check_memory, check_decoder, check_batches_by_length, check_perplexity_beside_two_losses,
                  check_labels_are_smoothed_in_training_alone):
        check()
        print(check.__name__, "ok", flush=True)
