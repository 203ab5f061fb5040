"""Compares two builds bit by bit: losses, gradient norms, gradients and checkpoints of every fixture.

usage: compare_builds.py BIN_BEFORE BIN_AFTER [--only SUBSTRING] [--jobs N]

Trains the model of every fixture in tests/fixtures/{decoder,models} for three steps on one rank, two data ranks and two tensor
ranks, in fp32 and, on one rank, in bf16 and fp16 with recomputation; evaluates it during the run and by tfm-eval, on data
whose last batch is incomplete; trains encoder-decoders with length buckets as well; and probes every Hugging Face fixture with
gradients. Bits depend on the processor, so both builds run here and nothing is stored. Exit code 1 and a line for each difference.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "fixtures"
LAYOUTS = {"single": (1, []), "data": (2, ["parallel.zero=1"]), "tensor": (2, ["parallel.tensor=2"]),
           "buckets": (2, ["train.global_batch_tokens=80", "train.micro_batch_size=2"]),
           "bf16": (1, ["precision=bf16", "recompute=selective"]), "fp16": (1, ["precision=fp16", "recompute=full"])}


METRICS = ("step", "split", "loss", "perplexity", "accuracy", "bleu", "chrf", "bits_per_byte", "tokens")


def metadata(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(size)).get("__metadata__", {})


def round_up(n, to):
    return -(-n // to) * to


def configuration(fixture, folder):
    """The fixture's model with generated data, as a configuration of a short run."""
    c = json.loads(metadata(fixture)["config"])
    family = c["model"]["family"]
    for key in ("B", "T", "S", "mask"):
        c.pop(key, None)
    smoothing = c.pop("label_smoothing", 0)
    c["model"]["vocab_size"] = max(300, c["model"].get("vocab_size", 0))
    c["model"]["d_ff"] = round_up(c["model"].get("d_ff", 64), 2)  # that two tensor ranks can share out
    if "max_seq_len" in c["model"]:
        c["model"]["max_seq_len"] = max(16, c["model"]["max_seq_len"])
    def source(part):
        text = {"path": str(folder / f"{part}.txt"), "shuffle": part == "train"}
        pairs = {"source": str(folder / f"{part}.a.txt"), "target": str(folder / f"{part}.b.txt"), "shuffle": part == "train"}
        masked = {"type": "mlm", "next_sentence": c["model"].get("next_sentence", False), **text}
        return {"encoder": masked, "decoder": {"type": "text", **text}, "encoder_decoder": {"type": "pairs", **pairs}}[family]

    c.update(train={"steps": 3, "global_batch_size": 4, "seq_len": 16, "seed": 7}, loss={"label_smoothing": smoothing},
             data={"train": source("train"), "validation": source("validation")}, eval={"every": 2}, optimizer={"lr": 1e-3, "ema": 0.9}, schedule={"type": "constant"},
             metrics={"jsonl": "run.jsonl"}, checkpoint={"dir": "checkpoints"})
    return c


def digest(folder):
    """What a run computed: exit code aside, its steps, its evaluations and the bytes of its checkpoint."""
    found = []
    if (folder / "run.jsonl").exists():
        for line in (folder / "run.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "step":
                found.append((event["step"], event["loss"], event["grad_norm"], event["tokens"]))
            if event["event"] == "eval":
                found.append({k: event.get(k) for k in METRICS})
    if (folder / "eval.json").exists():
        results = json.loads((folder / "eval.json").read_text())
        found.append({k: results.get(k) for k in METRICS})
    for file in sorted(folder.rglob("*.safetensors")):
        found.append((file.name, hashlib.sha256(file.read_bytes()).hexdigest()))
    return found


def run(binaries, name, ranks, command, folder):
    """The results of one command with one build; its errors are part of them only by exit code."""
    folder.mkdir(parents=True)
    commands = [command]
    if command[0] == "tfm-train":
        commands.append(["tfm-eval", "checkpoints", "--json", "eval.json"])
    for command in commands:
        command = [str(binaries / command[0]), *map(str, command[1:])]
        if ranks > 1:
            command = [str(ROOT / "mpirun.sh"), str(ranks), *command]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode:
            break
    return name, done.returncode, digest(folder), done.stderr[-1500:]


def cases(folder):
    for fixture in sorted([*FIXTURES.glob("decoder/*.safetensors"), *FIXTURES.glob("models/*.safetensors")]):
        if "config" not in metadata(fixture):
            continue
        path = folder / f"{fixture.parent.name}_{fixture.stem}.yaml"
        c = configuration(fixture, folder)
        path.write_text(json.dumps(c))
        for layout, (ranks, overrides) in LAYOUTS.items():
            if layout == "buckets" and c["model"]["family"] != "encoder_decoder":
                continue
            yield f"{path.stem}/{layout}", ranks, ["tfm-train", path, *overrides]
    for model in sorted(FIXTURES.glob("huggingface/*")):
        for batch in sorted(model.glob("*.safetensors")):
            if batch.name.startswith(("batch", "in")):
                yield f"{model.name}/{batch.stem}", 1, ["tfm-probe", model, "--batch", batch, "--out", "out.safetensors", "--gradients"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    builds = [args.before.resolve(), args.after.resolve()]
    differences = equal = refused = 0
    with tempfile.TemporaryDirectory() as root, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        root = pathlib.Path(root)
        lines = [f"line {i}: the {['quick', 'brown', 'lazy'][i % 3]} fox number {i * i % 97} jumps" for i in range(200)]
        for part, some in {"train": lines, "validation": lines[:10]}.items():
            (root / f"{part}.txt").write_text("\n".join(some))
            (root / f"{part}.a.txt").write_text("\n".join(line[:5 + i % 11] for i, line in enumerate(some)) + "\n")
            (root / f"{part}.b.txt").write_text("\n".join(line[5:10 + i % 7] for i, line in enumerate(some)) + "\n")
        jobs = []
        for name, ranks, command in cases(root):
            if args.only in name:
                jobs.append([pool.submit(run, build, name, ranks, command, root / str(k) / name) for k, build in enumerate(builds)])
        for job in jobs:
            (name, code, before, error), (_, code_after, after, error_after) = (j.result() for j in job)
            if (code, before) != (code_after, after):
                differences += 1
                print(f"differs: {name}: exit codes {code}, {code_after}\n{error}{error_after}")
            elif code == 0 and before:
                equal += 1
            else:
                refused += 1
                print(f"not run: {name}: exit code {code}: {[line for line in error.splitlines() if 'error' in line][:1]}")
    print(f"{equal} equal in every bit, {differences} differ, {refused} refused by both builds")
    sys.exit(1 if differences or not equal else 0)


main()
