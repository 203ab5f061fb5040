"""A checkpoint with one wrong byte, which no size and no header gives away: no program computes with it.

usage: test_checksums.py BIN
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 32, n_layers: 1, n_heads: 4, max_seq_len: 32}
parallel: {tensor: 2}
train: {steps: 2, global_batch_size: 4, seq_len: 32}
data: {train: {type: text, path: text.txt}}
checkpoint: {dir: checkpoints, every: 1}
"""


def run(program, *args, ranks=0, code=0):
    command = [str(BIN / program), *map(str, args)]
    if ranks > 0:
        command = [str(ROOT / "tests/mpirun.sh"), str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == code, f"{command}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def damage(shard, tensor):
    """One bit of one weight, the least of its mantissa: the model computes with it as well as before."""
    data = bytearray(shard.read_bytes())
    header = struct.unpack("<Q", data[:8])[0]
    begin, _ = json.loads(data[8:8 + header])[tensor]["data_offsets"]
    data[8 + header + begin] ^= 1
    shard.write_bytes(data)


def programs(model):
    pathlib.Path("init.yaml").write_text(CONFIG[CONFIG.index("train:"):].replace("checkpoints", "trained") + f"model: {{init: {model}}}\n")
    return [("tfm-train", "init.yaml"), ("tfm-eval", model, "--text", "text.txt"), ("tfm-generate", model, "--prompt", "a", "--max-tokens", 2), ("tfm-convert", "export", model, "exported", "--force")]


def check(ranks, model, code):
    for program, *args in programs(model):
        shutil.rmtree("exported", ignore_errors=True)
        shutil.rmtree("trained", ignore_errors=True)
        out = run(program, *args, ranks=ranks if program != "tfm-convert" else 0, code=code)
        if code:
            assert "checksum" in out and "shard-" in out, f"{program} names no damaged file:\n{out}"
            assert not pathlib.Path("exported/model.safetensors").exists(), f"{program} wrote what it read from a damaged file"
            assert not list(pathlib.Path("trained").glob("step-*")), f"{program} trained from a damaged file"
            assert out.count("checksum") == 1, f"the same error of several ranks:\n{out}"


def main():
    pathlib.Path("cfg.yaml").write_text(CONFIG)
    pathlib.Path("text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 100)
    run("tfm-train", "cfg.yaml", ranks=2)
    older, newest = sorted(pathlib.Path("checkpoints").glob("step-*"))
    check(0, newest, 0)
    for shard in sorted(newest.glob("shard-*")):  # each in turn, on one rank and on two
        whole = shard.read_bytes()
        names = json.loads(whole[8:8 + struct.unpack("<Q", whole[:8])[0]])
        damage(shard, next(n for n in names if n.startswith("model/")))
        check(0, newest, 3)
        check(2, newest, 3)
        shard.write_bytes(whole)
    check(2, newest, 0)

    # Of a folder of checkpoints the newest that is whole is taken, with a word of the other.
    for shard in newest.glob("shard-*"):
        shard.write_bytes(shard.read_bytes()[:-1] + b"\x7f")
    out = run("tfm-eval", "checkpoints", "--text", "text.txt")
    assert newest.name in out and "checksum" in out, out
    for shard in older.glob("shard-*"):
        shard.write_bytes(shard.read_bytes()[:-1] + b"\x7f")
    for program, *args in programs("checkpoints"):
        assert "checkpoints is intact" in run(program, *args, code=3), program


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
