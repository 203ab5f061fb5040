"""What the acceptance scripts share: launching, a tiny run, reading its metrics, tables."""
import contextlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Failed(Exception):
    """A run that did not do what it must; the message says which."""


@contextlib.contextmanager
def work_folder(given):
    """The folder given (kept), or a temporary one (removed)."""
    if given:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="tfm-acceptance-") as folder:
        yield pathlib.Path(folder).resolve()


def flow(value):
    """A value in YAML's flow style."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(str(value)) if isinstance(value, pathlib.Path) else str(value)


def write_config(path, sections):
    path.write_text("".join(f"{k}: {flow(v)}\n" for k, v in sections.items()))
    return path


def tiny_config(folder, steps, model=(), **sections):
    """A byte-level decoder that learns a text written beside it."""
    rng, words = random.Random(7), "the sun moon sea hill wind sings sleeps over under and then a bird stone".split()
    text = folder / "text.txt"
    text.write_text("\n".join(" ".join(rng.choices(words, k=rng.randint(4, 9))) for _ in range(2500)) + "\n")
    base = {
        "model": {"family": "decoder", "vocab_size": 256, "d_model": 64, "n_layers": 2, "n_heads": 8, "d_ff": 128,
                  "max_seq_len": 32, "dropout": 0.1, **dict(model)},
        "device": "cpu",
        "train": {"steps": steps, "global_batch_size": 32, "seq_len": 32, "seed": 1234},
        "optimizer": {"type": "adamw", "lr": 0.002, "weight_decay": 0.1, "grad_clip": 1.0},
        "schedule": {"type": "cosine", "warmup_steps": 5, "min_lr": 0.0002},
        "data": {"train": {"type": "text", "path": text, "shuffle": True}, "tokenizer": "bytes"},
    }
    return write_config(folder / "config.yaml", {**base, **sections})


def start(bin_dir, ranks, config, overrides, log):
    """mpirun of tfm-train; its output goes to the file `log`. Overrides: {"section.key": value}."""
    program = (bin_dir / "tfm-train").resolve()
    if not os.access(program, os.X_OK):
        sys.exit(f"{program}: no such program; give the folder that holds tfm-train")
    launcher = [str(ROOT / "tests/mpirun.sh"), str(ranks)] if ranks > 1 or shutil.which("mpirun") else []
    command = [*launcher, str(program), str(config)]
    command += [f"{k}={flow(v) if isinstance(v, bool) else v}" for k, v in overrides.items()]
    with open(log, "ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=config.parent)


def finish(process, log, seconds=600):
    """The exit code. A launch that does not end is asked to, then ended, and is a failure."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise Failed(f"did not end within {seconds} s\n{tail(log)}") from None


def train(bin_dir, ranks, config, overrides, log, seconds=600):
    """Runs to the end; returns the seconds it took."""
    before = time.monotonic()
    code = finish(start(bin_dir, ranks, config, overrides, log), log, seconds)
    if code != 0:
        raise Failed(f"exit code {code}\n{tail(log)}")
    return time.monotonic() - before


def tail(log, lines=12):
    return "\n".join("    " + line for line in log.read_text(errors="replace").splitlines()[-lines:])


def events(jsonl):
    try:
        return [json.loads(line) for line in jsonl.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise Failed(f"{jsonl}: {error}") from None


def losses(jsonl, expected):
    """{step: loss}; the steps must be exactly those expected, each once and in order."""
    found = [(e["step"], e["loss"]) for e in events(jsonl) if e.get("event") == "step"]
    if [s for s, _ in found] != list(expected):
        raise Failed(f"{jsonl.name}: steps {[s for s, _ in found]}, expected {list(expected)}")
    return dict(found)


def ranks_of(config):
    """Process ids of the tfm-train that run this configuration file (a program or a script after its interpreter)."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            args = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if any(a.endswith("/tfm-train") for a in args[:2]) and str(config) in args:
                found.append(int(folder.name))
    return found


def relative(a, b):
    """Largest |a - b| / |b| over the steps of a; infinity where a loss is not a number."""
    worst = max((abs(a[s] - b[s]) / abs(b[s]) for s in a), default=0.0, key=lambda x: float("inf") if x != x else x)
    return float("inf") if worst != worst else worst


def run_main(main):
    """Ends the program with what failed, if anything does."""
    try:
        main()
    except Failed as failure:
        sys.exit(f"failed: {failure}")


def pytorch_steps(model, ids, precision, rate, steps):
    """Seconds of each training step of a model of transformers, which predicts its own ids, after a first one."""
    import torch
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate, fused=True)
    seconds = []
    for _ in range(steps + 1):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
    return seconds[1:]


def table(header, rows):
    rows = [[str(x) for x in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(x.rjust(w) for x, w in zip(row, widths)))
