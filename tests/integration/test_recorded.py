"""What the programs print for fixed inputs, compared with tests/recorded: plans, effective configurations, token files and reports.

usage: test_recorded.py BIN [--record]
--record: writes the files anew, where a change is meant; their difference shows what it did.
"""
import difflib
import itertools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests/recorded"


def run(*command, code=0, cwd=None):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, env={**os.environ, "TZ": "UTC"})
    assert code in (None, result.returncode), f"{command}: exit {result.returncode}\n{result.stderr[-2000:]}"
    return result.stdout + (f"exit {result.returncode}: {result.stderr}" if result.returncode else "")


def expect_recorded(name, text):
    path = RECORDED / f"{name}.txt"
    if "--record" in sys.argv:
        path.write_text(text)
        return
    different = list(difflib.unified_diff(path.read_text().splitlines(), text.splitlines(), str(path), "found", lineterm="", n=1))
    assert not different, "\n".join(different[:40])


SIZES = "vocab_size: 1000, d_model: 64, n_heads: 4, max_seq_len: 128"
TEXT = "data: {train: {type: text, path: a.txt}}\n"
SMALL = {
    "decoder": f"model: {{family: decoder, {SIZES}, n_layers: 4, position: rope}}\n{TEXT}",
    "windows": f"""model: {{family: decoder, {SIZES}, n_layers: 4, n_kv_heads: 2, position: rope,
  layer_kinds: {{local: {{attention: {{window: 16}}}}, global: {{d_ff: 96}}}}, layers: [local, global]}}
data: {{train: {{type: text, path: a.txt, documents: packed}}}}
""",
    "experts": f"""model: {{family: decoder, {SIZES}, n_layers: 4, position: rope,
  experts: {{count: 8, top_k: 2, d_ff: 96, shared: 1}}}}
{TEXT}""",
    "recurrent": f"""model: {{family: decoder, {SIZES}, n_layers: 4, position: none,
  attention: {{type: gated_delta, key_heads: 4, value_size: 16, convolution: 4}}}}
{TEXT}""",
    "encoder": f"""model: {{family: encoder, {SIZES}, n_layers: 4, next_sentence: true, type_vocab_size: 2}}
data: {{train: {{type: mlm, path: a.txt, next_sentence: true}}}}
""",
    "classifier": f"""model: {{family: encoder, {SIZES}, n_layers: 4, heads: [{{type: classify, classes: 5}}]}}
data: {{train: {{type: labelled, path: a.tsv}}}}
""",
    "translator": f"""model: {{family: encoder_decoder, {SIZES}, n_encoder_layers: 2, n_decoder_layers: 3, position: sinusoidal}}
data: {{train: {{type: pairs, source: a.txt, target: b.txt}}}}
""",
}
TRAIN = "train: {steps: 100, seq_len: 128, global_batch_size: 16}\n"
LAYOUTS = [
    (1, []),
    (1, ["model.dropout=0.1", "train.micro_batch_size=2"]),
    (2, ["parallel.tensor=2"]),
    (2, ["precision=bf16", "recompute=full"]),
    (2, ["precision=fp16", "recompute=selective", "optimizer.type=adafactor"]),
    (2, ["optimizer.type=muon", "optimizer.ema=0.99"]),
    (4, ["parallel.tensor=2", "parallel.zero=1"]),
    (4, ["parallel.zero=2", "train.micro_batch_size=2"]),
    (4, ["parallel.zero=3"]),
    (4, ["parallel.pipeline=2", "train.micro_batch_size=2"]),
    (4, ["parallel.context=2"]),
    (4, ["parallel.replicas=2", "parallel.zero=1"]),
    (4, ["parallel.expert=4"]),
    (8, ["parallel.tensor=2", "parallel.pipeline=2", "parallel.context=2"]),
]


def check_plans():
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for name, model in SMALL.items():
            (pathlib.Path(folder) / "c.yaml").write_text(model + TRAIN)

            def plan(ranks, device, *more, show=str):
                out = run(BIN / "tfm-plan", "c.yaml", "--ranks", ranks, "--device", device, *more, cwd=folder, code=None)
                lines.append(f"== {name} {ranks} {device} {' '.join(more)}\n{show(out)}")

            for ranks, keys in LAYOUTS:
                for device in ("h200", "a100-40gb") if ranks < 4 else ("h100",):
                    plan(ranks, device, *keys)
            plan(1, "h200", "--table")
            plan(1, "h200", "--trace")
            plan(8, "l40s", "--suggest")
            plan(2, "h200", "--json", show=lambda out: json.dumps(json.loads(out), indent=1) + "\n")
        expect_recorded("plans", "".join(lines))


def check_configurations():
    """The project's own, and each preset, as they are in effect."""
    lines = []
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        lines.append(f"== {path.name}\n" + run(BIN / "tfm-train", path.relative_to(ROOT), "--dump-config", cwd=ROOT, code=None))
    expect_recorded("configurations", "".join(lines))


def check_token_files():
    ways = ((), ("--append-eod",), ("--add-begin",), ("--no-add-begin", "--append-eod"), ("--format", "megatron"), ("--field", "other"))
    tokenizers = [pathlib.Path("bytes"), *sorted((ROOT / "tests/fixtures/tokenizers").glob("*.json"))]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "a.txt").write_text("First line.\nSecond öne, with 123 numbers!\n\nA third.\n")
        (folder / "b.jsonl").write_text("".join(json.dumps({"text": text, "other": str(i)}) + "\n" for i, text in enumerate(("one", "", "two words"))))
        for tokenizer, file, options in itertools.product(tokenizers, ("a.txt", "b.jsonl"), ways):
            for old in folder.glob("out*"):
                old.unlink()
            out = run(BIN / "tfm-data", "prepare", "--input", file, "--tokenizer", tokenizer, "--output", "out.bin", *options, cwd=folder, code=None)
            lines.append(f"== {tokenizer.name} {file} {' '.join(options)}\n{out}")
            if (folder / "out.bin").exists():
                lines.append(run(BIN / "tfm-data", "info", "out.bin", "--seq-len", 4, cwd=folder) + (folder / "out.bin.json").read_text())
        expect_recorded("token_files", "".join(lines).replace(f"{ROOT}/", "").replace(f"{folder}/", ""))


def events(name, seed, steps):
    """A run's log, all of it made up."""
    def value(i):
        return abs(math.sin(seed * 1000 + i * 7.1))

    yield {"event": "start", "name": name, "parameters": 12345, "world_size": 4, "steps": steps, "time": 1.7e9,
           "config": f"train:\n  steps: {steps}\n  seed: {seed}\n"}
    for step in range(1, steps + 1):
        yield {"event": "step", "step": step, "loss": 5 / (1 + step / 10) + value(step), "lr": 1e-3 * step / steps,
               "grad_norm": 1 + value(step + 0.5), "tokens": 1000 * step, "step_ms": 20 + value(step),
               "tokens_per_s": 50000 + 100 * value(step), "time": 1.7e9 + step, "mfu": 0.3 + 0.01 * value(step)}
        if step % 10 == 0:
            yield {"event": "eval", "step": step, "loss": 5 / (1 + step / 10), "perplexity": 9.0, "time": 1.7e9 + step}
    yield {"event": "end", "step": steps, "reason": "completed", "time": 1.7e9 + steps + 1}


def check_reports():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        texts = []
        for name, seed, steps in (("alpha", 1, 40), ("beta", 2, 60)):
            (folder / name).mkdir()
            (folder / name / "metrics.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events(name, seed, steps)))
        for runs in (["alpha"], ["alpha", "beta"], ["."]):
            run(BIN / "tfm-report", *runs, "-o", "page.html", cwd=folder)
            page = (folder / "page.html").read_text()
            body = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.S)
            shapes = re.findall(r'(?:points|d)="([^"]*)"', body)
            words = re.sub(r"\s*\n\s*", "\n", re.sub(r"<[^>]*>", "\n", body))
            texts.append(f"== {' '.join(runs)}\n{words}\n" + "\n".join(shapes) + "\n")
        expect_recorded("reports", "".join(texts))


def main():
    for check in (check_plans, check_configurations, check_token_files, check_reports):
        check()
        print(check.__name__, "ok", flush=True)


if __name__ == "__main__":
    main()
