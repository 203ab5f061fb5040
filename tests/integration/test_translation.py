"""tfm-generate and tfm-eval as a user meets them: a learned translation, the same on every layout, and scores that add up."""
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
from collections import Counter

BIN = pathlib.Path(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[2]
REVERSE = """
model: {family: encoder_decoder, vocab_size: 260, d_model: 64, n_layers: 1, n_heads: 4, d_ff: 128, max_seq_len: 32, dropout: 0, init_std: 0.1}
train: {steps: 120, global_batch_size: 64, micro_batch_size: 64, seq_len: 16}
optimizer: {lr: 5.0e-3, betas: [0.9, 0.98], ema: 0.9}
schedule: {type: cosine, warmup_steps: 20}
loss: {label_smoothing: 0.1}
data:
  train: {type: pairs, source: train.src, target: train.tgt, shuffle: true}
  validation: {type: pairs, source: val.src, target: val.tgt}
eval: {every: 40, metrics: [accuracy, bleu, chrf], beam: 3, length_penalty: 0.6}
checkpoint: {dir: ck, every: 40}
metrics: {jsonl: run.jsonl, log_every: 60}
"""
OTHER = """
model: {family: FAMILY, vocab_size: 300, d_model: 32, n_layers: 1, n_heads: 4, max_seq_len: 32}
train: {steps: 3, global_batch_size: 8, seq_len: 32}
data:
  train: {type: TYPE, path: text.jsonl}
  validation: {type: TYPE, path: text.jsonl}
eval: {every: 3, metrics: [accuracy]}
loss: {label_smoothing: 0.2}
checkpoint: {dir: NAME, every: 3}
metrics: {jsonl: NAME.metrics}
"""


def run(ranks, program, *args, code=0, stdin=""):
    command = [str(BIN / program), *map(str, args)]
    if ranks > 0:
        command = [str(ROOT / "tests/mpirun.sh"), str(ranks), *command]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == code, f"{command}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stdout + done.stderr


def evaluate(ranks, *args):
    run(ranks, "tfm-eval", *args, "--json", "eval.json")
    return json.loads(pathlib.Path("eval.json").read_text())


def events(path, kind):
    return [e for e in map(json.loads, open(path)) if e["event"] == kind]


def last_eval(path):
    return events(path, "eval")[-1]


def check_same_scores(found, wanted):
    assert found["tokens"] == wanted["tokens"] and abs(found["accuracy"] - wanted["accuracy"]) < 2e-3, (found, wanted)
    assert abs(found["loss"] / wanted["loss"] - 1) < 1e-4 and abs(math.exp(found["loss"]) / found["perplexity"] - 1) < 1e-9, (found, wanted)
    assert all(abs(found[score] - wanted[score]) < 1 for score in ("bleu", "chrf")), (found, wanted)


def check_scores_while_training():
    """Those of tfm-eval on the checkpoints, on every layout, in the memory that was planned."""
    one = events("run.jsonl", "eval")
    assert [e["step"] for e in one] == [40, 80, 120] and one[0]["bleu"] < 50 < 90 < one[2]["bleu"], one
    for e in one:
        scores = evaluate(0, f"ck/step-{e['step']:08}", "--beam", 3, "--length-penalty", 0.6)
        check_same_scores(scores, e)
        assert scores["bleu"] == e["bleu"] and scores["chrf"] == e["chrf"], (scores, e)
    for ranks, args in [(2, []), (2, ["parallel.context=2", "parallel.zero=3"]), (4, ["parallel.tensor=2", "parallel.zero=3"]), (4, ["parallel.pipeline=2", "parallel.zero=3"]), (4, ["parallel.pipeline=2", "parallel.tensor=2", "parallel.sequence=false"])]:
        args += ["train.micro_batch_size=4", "checkpoint.dir=none", "checkpoint.every=0", "metrics.jsonl=other.jsonl"]
        run(ranks, "tfm-train", "cfg.yaml", *args)
        other = events("other.jsonl", "eval")
        for a, b in zip(one, other, strict=True):
            check_same_scores(b, a)
        plan = json.loads(run(0, "tfm-plan", "cfg.yaml", "--ranks", ranks, "--json", *args))
        start, end = (events("other.jsonl", kind)[0] for kind in ("start", "end"))
        assert start["planned_bytes"] == end["arena_high_water_bytes"] == max(m["total_bytes"] for m in plan["memory"]), (start, plan["memory"])
    run(2, "tfm-train", "cfg.yaml", "precision=bf16", "parallel.tensor=2", "checkpoint.dir=none", "checkpoint.every=0", "metrics.jsonl=other.jsonl")
    half = last_eval("other.jsonl")
    assert half["bleu"] > 80 and abs(half["loss"] - one[2]["loss"]) < 0.1 * one[2]["loss"] + 0.02, (half, one[2])
    run(0, "tfm-train", "cfg.yaml", "eval.batches=1", "train.steps=2", "eval.every=2", "checkpoint.dir=none", "checkpoint.every=0", "metrics.jsonl=other.jsonl")
    assert 0 < last_eval("other.jsonl")["tokens"] < one[0]["tokens"]


def bleu(hypotheses, references):
    """Of words between spaces; every order has a match."""
    log = 0
    for n in range(1, 5):
        grams = [[Counter(tuple(words[i:i + n]) for i in range(len(words) - n + 1)) for words in map(str.split, pair)] for pair in zip(hypotheses, references)]
        log += math.log(sum((h & r).total() for h, r in grams) / sum(h.total() for h, _ in grams)) / 4
    length, wanted = (sum(len(line.split()) for line in lines) for lines in (hypotheses, references))
    return 100 * math.exp(log + min(0, 1 - wanted / length))


def check_translation():
    random.seed(1)
    for name, count in (("train", 4000), ("val", 100)):
        lines = [[random.choice("0123456789") for _ in range(random.randrange(1, 7))] for _ in range(count)]
        pathlib.Path(name + ".src").write_text("".join(" ".join(words) + "\n" for words in lines))
        pathlib.Path(name + ".tgt").write_text("".join(" ".join(words[::-1]) + "\n" for words in lines))
    pathlib.Path("cfg.yaml").write_text(REVERSE)
    run(0, "tfm-train", "cfg.yaml")
    source, target = (pathlib.Path(f"val.{side}").read_text() for side in ("src", "tgt"))
    greedy = run(0, "tfm-generate", "ck", stdin=source)
    right = sum(a == b for a, b in zip(greedy.split("\n"), target.split("\n")))
    assert greedy.count("\n") == 100 and right > 80, f"{right} of 100 reversed"
    assert run(0, "tfm-generate", "ck", "--beam", 1, "--length-penalty", 0.6, stdin=source) == greedy
    beam = run(0, "tfm-generate", "ck", "--beam", 4, stdin=source)
    for ranks, args in [(1, []), (2, []), (4, []), (4, ["parallel.tensor=2"]), (2, ["parallel.tensor=1"])]:
        assert run(ranks, "tfm-generate", "ck", "--beam", 4, *args, stdin=source) == beam, (ranks, args)
    talk = subprocess.Popen([BIN / "tfm-generate", "ck"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    for line, answer in (("1 2\n", "2 1\n"), ("3\n", "3\n")):  # each before the next line is there
        talk.stdin.write(line)
        assert talk.stdout.readline() == answer
    talk.stdin.close()
    assert talk.wait() == 0
    pathlib.Path("tokens.yaml").write_text(REVERSE.replace("global_batch_size: 64, micro_batch_size: 64", "global_batch_tokens: 400"))
    for args in ([], ["--as-run"], ["train.micro_batch_size=3"]):
        assert "\nequal to the single-rank run: 3 ranks" in run(3, "tfm-verify", "tokens.yaml", *args)
    assert run(0, "tfm-generate", "ck", stdin="\n1 2\r\n\n3") == "\n2 1\n\n3\n"
    assert run(0, "tfm-generate", "ck", "--max-tokens", 3, stdin="1 2 3 4\n") == "4 3\n"
    run(0, "tfm-generate", "ck", "--prompt", "1", code=2)
    for ranks, args, text in [(0, [], greedy), (4, ["parallel.tensor=2", "--beam", 4, "--source", "val.src", "--target", "val.tgt"], beam)]:
        scores = evaluate(ranks, "ck", *args)
        assert abs(scores["bleu"] - bleu(text.splitlines(), target.splitlines())) < 1e-6 and 90 < scores["chrf"] <= 100, scores
        assert scores["accuracy"] > 0.9
    assert "val.src has 100 lines" in run(0, "tfm-eval", "ck", "--source", "val.src", "--target", "cfg.yaml", code=3)


def check_families():
    pangram = "the quick brown fox jumps over the lazy dog; "
    pathlib.Path("text.jsonl").write_text("".join(json.dumps({"text": pangram[n % 30:], "story": pangram[n % 20:]}) + "\n"
                                                  for n in range(150)))
    for name, family, kind, model, data in (("decoder", "decoder", "text", [], []), ("documents", "decoder", "text", [], ["documents=separate"]),
                                            ("stories", "decoder", "text", [], ["field=story"]),
                                            ("encoder", "encoder", "mlm", [], ["whole_words=true"]),
                                            ("sentences", "encoder", "mlm", ["model.next_sentence=true", "model.type_vocab_size=2"], ["next_sentence=true"]),
                                            ("encoder_decoder", "encoder_decoder", "denoise", [], ["rotate=0.5", "delete=0.1", "mask_tokens=0.1"])):
        pathlib.Path("cfg.yaml").write_text(OTHER.replace("FAMILY", family).replace("TYPE", kind).replace("NAME", name))
        run(0, "tfm-train", "cfg.yaml", *model, *(f"data.{part}.{key}" for part in ("train", "validation") for key in data))
        expected = last_eval(f"{name}.metrics")
        accuracy = expected["accuracy"]
        for ranks, args in [(0, []), (2, ["--text", "text.jsonl"]), (4, ["parallel.tensor=2"])]:
            scores = evaluate(ranks, name, *args)
            assert abs(scores["accuracy"] - accuracy) < 0.01, (scores, accuracy)
            assert abs(scores["loss"] / expected["loss"] - 1) < 1e-5, (name, scores, expected)
            assert abs(scores["perplexity"] / expected["perplexity"] - 1) < 1e-5 and scores["tokens"] == expected["tokens"], (name, scores, expected)
    run(0, "tfm-generate", "encoder", code=2)
    assert "family encoder_decoder" in run(0, "tfm-eval", "decoder", "--source", "a", "--target", "b", code=2)


def check_two_vocabularies():
    """The encoder's table has the ids of another tokenizer, which checkpoints know, and its own rows for each tensor rank."""
    t5 = ROOT / "tests/fixtures/tokenizers/t5.json"
    pathlib.Path("a.txt").write_text("one two\nthree\n" * 20)
    pathlib.Path("b.txt").write_text("eins zwei\ndrei\n" * 20)
    pathlib.Path("two.yaml").write_text(OTHER.replace("FAMILY, vocab_size: 300", "encoder_decoder, vocab_size: 261, source_vocab_size: 515, "
                                                      "tie_embeddings: decoder, norm: rmsnorm")
                                        .replace("NAME", "two").replace("TYPE, path: text.jsonl", "pairs, path: [{source: a.txt, target: b.txt, prefix: 'to German: '}]")
                                        .replace("data:", f"data:\n  source_tokenizer: {t5}"))
    run(0, "tfm-train", "two.yaml")
    one = last_eval("two.metrics")
    run(4, "tfm-train", "two.yaml", "parallel.tensor=2", "parallel.pipeline=2", "checkpoint.dir=split", "metrics.jsonl=split.metrics")
    assert abs(last_eval("split.metrics")["loss"] / one["loss"] - 1) < 1e-5, (one, last_eval("split.metrics"))
    assert abs(evaluate(2, "split", "parallel.tensor=2")["loss"] / one["loss"] - 1) < 1e-5
    texts = [run(ranks, "tfm-generate", name, *args, "--max-tokens", 5, stdin="one two\n") for ranks, name, args in (
        (0, "two", []), (2, "split", ["parallel.tensor=2"]))]
    assert texts[0] == texts[1], texts
    lines = run(0, "tfm-train", "two.yaml", "--samples", 1).splitlines()
    assert lines[1] == "  source:  to German: one two</s>" and lines[2:] == ["  input:  <s>eins zwei", "  label:  eins zwei</s>"], lines
    assert "source_vocab_size is 400" in run(0, "tfm-train", "two.yaml", "model.source_vocab_size=400", code=3)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for check in (check_translation, check_scores_while_training, check_families, check_two_vocabularies):
            check()
            print(check.__name__, "ok", flush=True)
        os.chdir("/")


main()
