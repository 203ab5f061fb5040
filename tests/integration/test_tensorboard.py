"""The event files of metrics.tensorboard, byte by byte, and what a run does where they cannot be written.

usage: test_tensorboard.py BIN_FOLDER
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 32, n_layers: 1, n_heads: 4, max_seq_len: 32}
train: {steps: 6, global_batch_size: 4, seq_len: 32}
data:
  train: {type: text, path: text.txt, shuffle: true}
  validation: {type: text, path: text.txt}
eval: {every: 3, batches: 2}
"""


def train(*args, before=""):
    command = before + f'exec {BIN / "tfm-train"} cfg.yaml "$@"'
    done = subprocess.run(["bash", "-c", command, "tfm-train", *args], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, f"{args}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def crc32c(data):
    """Castagnoli's polynomial, a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def records(path):
    data, at = pathlib.Path(path).read_bytes(), 0
    while at < len(data):
        length, = struct.unpack_from("<Q", data, at)
        body = data[at + 12:at + 12 + length]
        for part, sum_at in ((data[at:at + 8], at + 8), (body, at + 12 + length)):
            crc = crc32c(part)
            assert struct.unpack_from("<I", data, sum_at)[0] == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF, at
        assert len(body) == length
        yield body
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def message(data):
    """Field number -> values, in order."""
    fields, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
            assert len(value) == length
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[key & 7]
            (value,), at = struct.unpack_from(form, data, at), at + size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def events(path):
    """(step, {tag: value}, the rest) of each event; its fields are those of event.proto and summary.proto."""
    for record in records(path):
        event = message(record)
        assert 1.6e9 < event.pop(1)[0] < 1e10, "wall time"
        step, values = event.pop(2, [0])[0], {}
        for summary in event.pop(5, []):
            for value in message(summary)[1]:
                value = message(value)
                values[value[1][0].decode()] = value[2][0] if 2 in value else value
        yield step, values, event


def check_crc():
    assert crc32c(b"123456789") == 0xE3069283


def check_a_run_and_its_resume():
    train("train.steps=4", "metrics.tensorboard=tb/run", "metrics.jsonl=m.jsonl", "checkpoint.dir=ck")
    train("metrics.tensorboard=tb/run", "metrics.jsonl=m.jsonl", "checkpoint.dir=ck")
    files = sorted(pathlib.Path("tb/run").iterdir())
    assert len(files) == 2 and all(f.name.startswith("events.out.tfevents.") for f in files), files
    assert files[1].stat().st_mtime >= files[0].stat().st_mtime
    seen = {}
    for file, first, done in zip(files, (1, 5), (range(1, 5), range(5, 7))):
        (_, _, version), start, configuration, *steps = events(file)
        assert version == {3: [b"brain.Event:2"]}, version
        assert start[0] == first and message(start[2][7][0]) == {1: [1]}, start  # SessionLog.START: later steps of earlier files go
        text = configuration[1]["configuration"]
        assert b"tensorboard: tb/run" in message(text[8][0])[8][0] and message(message(text[9][0])[1][0]) == {1: [b"text"]}
        assert [s for s, v, _ in steps if "train/loss" in v] == list(done)
        for step, values, rest in steps:
            assert not rest
            seen.setdefault(step, {}).update(values)
    logged = [json.loads(line) for line in open("m.jsonl")]
    single = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
    count = 0
    for line in logged:
        names = {"step": {"loss": "train/loss", "grad_norm": "train/grad_norm", "lr": "train/lr", "step_seconds": "train/step_seconds",
                          "tokens_per_second": "train/tokens_per_second"},
                 "eval": {"loss": "validation/loss", "perplexity": "validation/perplexity"}}.get(line["event"], {})
        for key, tag in names.items():
            assert seen[line["step"]][tag] == single(line[key]), (line, tag)
            count += 1
    assert count == 6 * 5 + 3 * 2, count  # evaluations after steps 3, 4 (the last of the first run) and 6


def check_a_failure_never_ends_a_run():
    pathlib.Path("file").write_text("")
    said = train("metrics.tensorboard=file/tb")
    assert said.count("warning: metrics.tensorboard: no events are written: file/tb") == 1, said
    said = train("metrics.tensorboard=full", "checkpoint.dir=none", before="trap '' XFSZ; ulimit -f 4; ")
    assert said.count("metrics.tensorboard: no more events are written: full/") == 1 and "step 6/6" in said, said
    full, = pathlib.Path("full").iterdir()
    assert list(events(full))[0][2] == {3: [b"brain.Event:2"]}, "whole records only"


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pathlib.Path("cfg.yaml").write_text(CONFIG)
    pathlib.Path("text.txt").write_text("".join(f"{n} times {n} is {n * n}. " for n in range(500)))
    for check in (check_crc, check_a_run_and_its_resume, check_a_failure_never_ends_a_run):
        check()
        print(check.__name__, "ok", flush=True)
