"""What tfm-convert and tfm-data leave where something is in the way or the disk is full: the old files or the new ones, never a mixture.

usage: test_convert.py BIN
"""
import array
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
MODEL = """
model: {family: decoder, vocab_size: 300, d_model: 32, n_heads: 2, n_layers: 1, d_ff: 64, max_seq_len: 32, norm: rmsnorm, position: rope,
        activation: swiglu, bias: false, tie_embeddings: none}
"""
RUN = "train: {steps: 1, global_batch_size: 2, seq_len: 16}\ndata: {train: {type: text, path: text.txt}}\n"


def run(program, *args, code=0, limit="unlimited", folder="."):
    """`limit`: of a file's size, in KiB, instead of a full disk."""
    command = ["bash", "-c", f'ulimit -f {limit}; exec "$@"', "bash", BIN / program, *args]
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == code, f"{command}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in pathlib.Path(folder).rglob("*") if p.is_file()}


def tokenizer(name, vocabulary):
    run("tfm-data", "train-tokenizer", "--input", "text.txt", "--vocab-size", vocabulary, "--output", name)
    return pathlib.Path(name).read_bytes()


def trained(name, *args):
    run("tfm-train", "cfg.yaml", f"checkpoint.dir={name}", *args)


def make_models():
    """hf_a and hf_b, from runs with different weights and tokenizers."""
    pathlib.Path("text.txt").write_text("".join(f"the {n}th of many lines of text\n" for n in range(400)))
    pathlib.Path("cfg.yaml").write_text(MODEL + RUN)
    for name, vocabulary in (("a", 280), ("b", 300)):
        tokenizer(f"{name}.json", vocabulary)
        trained(f"ck_{name}", f"data.tokenizer={name}.json", f"train.seed={vocabulary}")
        run("tfm-convert", "export", f"ck_{name}", f"hf_{name}")
    assert contents("hf_a")["tokenizer.json"] == pathlib.Path("a.json").read_bytes() != contents("hf_b")["tokenizer.json"]


def check_the_runs_own_tokenizer():
    pathlib.Path("from.yaml").write_text("model: {init: hf_a}\n" + RUN)
    pathlib.Path("hf_a/special_tokens_map.json").write_text("{}")
    for own, expected in ((["data.tokenizer=b.json"], "b.json"), ([], "a.json"), (["data.tokenizer=a.json"], "a.json"),
                          (["data.tokenizer=bytes"], "a.json")):
        shutil.rmtree("ck", ignore_errors=True), shutil.rmtree("out", ignore_errors=True)
        run("tfm-train", "from.yaml", "checkpoint.dir=ck", *own)
        assert "warning" not in run("tfm-convert", "export", "ck", "out")
        assert contents("out")["tokenizer.json"] == pathlib.Path(expected).read_bytes(), own
        assert ("special_tokens_map.json" in contents("out")) == (expected == "a.json"), own
    shutil.rmtree("ck"), shutil.rmtree("out")
    shutil.copytree("hf_a", "base")
    run("tfm-train", "from.yaml", "model.init=base", "checkpoint.dir=ck")
    pathlib.Path("base").rename("moved")
    pathlib.Path("hf_a/special_tokens_map.json").unlink()
    assert "warning: the run's tokenizer base is not there; the export has none" in run("tfm-convert", "export", "ck", "out")
    assert "tokenizer.json" not in contents("out")


def check_paths_count_from_the_run():
    for place in ("here", "there"):
        pathlib.Path(place).mkdir()
    shutil.copy("a.json", "here/tokenizer.json"), shutil.copy("b.json", "there/tokenizer.json")
    run("tfm-train", "../cfg.yaml", "data.train.path=../text.txt", "data.tokenizer=tokenizer.json", "checkpoint.dir=ck", folder="here")
    for place, source in (("there", "../here/ck"), (".", "here/ck"), ("here", "ck")):
        shutil.rmtree("out", ignore_errors=True)
        run("tfm-convert", "export", source, pathlib.Path("out").resolve(), folder=place)
        assert contents("out")["tokenizer.json"] == pathlib.Path("a.json").read_bytes(), place


def check_a_full_disk():
    for name in ("hf_a", "hf_b"):
        shutil.copytree(name, f"{name}_copy")
    before = contents("hf_b_copy")
    for limit in (1, 8, 20):
        run("tfm-convert", "export", "ck_a", "hf_b_copy", "--force", limit=limit, code=75)
        assert contents("hf_b_copy") == before, limit
    before = contents("hf_a_copy")
    run("tfm-convert", "export", "hf_a_copy", "hf_a_copy", "--force", limit=8, code=75)
    assert contents("hf_a_copy") == before
    run("tfm-convert", "export", "ck_a", "hf_b_copy", "--force")
    assert contents("hf_b_copy") == contents("hf_a")

    run("tfm-convert", "import", "hf_a", "imported")
    before = contents("imported")
    run("tfm-convert", "import", "hf_b", "imported", "--force", limit=20, code=75)
    assert contents("imported") == before
    run("tfm-convert", "import", "hf_b", "imported", "--force")
    assert contents("imported")["tokenizer/tokenizer.json"] == pathlib.Path("b.json").read_bytes()


def check_left_over_files():
    pathlib.Path("hf_a_copy/merges.txt").write_text("of another model")
    text = run("tfm-convert", "export", "ck_a", "hf_a_copy", "--force")
    assert "warning: hf_a_copy/merges.txt was there before and is not of this model" in text and text.count("warning") == 1, text
    run("tfm-convert", "import", "hf_a_copy", "imported", "--force")
    assert "tokenizer/merges.txt" in contents("imported")
    run("tfm-convert", "import", "hf_a", "imported", "--force")
    assert "tokenizer/merges.txt" not in contents("imported")


def check_models_beside_checkpoints():
    shutil.copytree("hf_b", "both")
    assert "both: has a config.json" in run("tfm-convert", "import", "hf_a", "both", code=2)
    assert "both: has a config.json" in run("tfm-train", "cfg.yaml", "checkpoint.dir=both", "--check", code=2)
    shutil.copytree("ck_a/step-00000001", "both/step-00000001")
    for program, *args in (("tfm-convert", "export", "both", "of_both"), ("tfm-generate", "both", "--prompt", "a"),
                           ("tfm-eval", "both", "--text", "text.txt")):
        assert "both: has both a config.json (Hugging Face) and checkpoints" in run(program, *args, code=3)
    run("tfm-generate", "both/step-00000001", "--prompt", "a", "--max-tokens", 1)


def check_the_folder_of_a_run():
    """Programs find the checkpoints of a run, and say which one they read."""
    trained("runs/a/checkpoints", "data.tokenizer=a.json", "train.seed=280")
    programs = (("tfm-generate", "runs/a", "--prompt", "a", "--max-tokens", 1), ("tfm-eval", "runs/a/", "--text", "text.txt"),
                ("tfm-probe", "runs/a", "--list"), ("tfm-convert", "export", "runs/a", "of_run"),
                ("tfm-train", "from.yaml", "model.init=runs/a", "checkpoint.dir=of_init"))
    for program, *args in programs:
        said = run(program, *args)
        assert "the checkpoint runs/a/checkpoints/step-00000001 is read\n" in said, (program, said)
    assert contents("of_run") == contents("hf_a")
    assert "is read" not in run("tfm-generate", "runs/a/checkpoints", "--prompt", "a", "--max-tokens", 1)
    pathlib.Path("runs/b/checkpoints").mkdir(parents=True)
    assert "runs/b/checkpoints: no checkpoint found" in run("tfm-eval", "runs/b", "--text", "text.txt", code=3)


def check_what_is_imported():
    """A wrong path is named, and a model without a tokenizer."""
    pathlib.Path("no_config").mkdir()
    for path, problem in (("gone", "does not exist"), ("no_config", "has no config.json"), ("ck_a", "has no config.json")):
        assert f"{path}: {problem}; expected a Hugging Face directory" in run("tfm-convert", "import", path, "new", code=3)
    assert not pathlib.Path("new").exists()
    shutil.copytree("hf_a", "without")
    for file in pathlib.Path("without").glob("tokenizer*"):
        file.unlink()
    warned = [line for line in run("tfm-convert", "import", "without", "new").splitlines() if line.startswith("warning: ")]
    assert len(warned) == 1 and "no tokenizer" in warned[0] and "data.tokenizer" in warned[0], warned
    assert "data.tokenizer" in run("tfm-eval", "new", "--text", "text.txt", code=3)
    run("tfm-eval", "new", "--text", "text.txt", "data.tokenizer=a.json")
    assert "warning" not in run("tfm-convert", "import", "hf_a", "with")


def check_what_is_there_stays():
    """Without --force nothing that is there is replaced: a model, also the run's own, an import, a folder named as one of its parts."""
    shutil.copytree("hf_b", "weights"), shutil.copytree("hf_b", "config")
    pathlib.Path("weights/config.json").unlink(), pathlib.Path("config/model.safetensors").unlink()
    pathlib.Path("mine/tokenizer").mkdir(parents=True)
    pathlib.Path("mine/tokenizer/notes.txt").write_text("of the user")
    run("tfm-convert", "import", "hf_b", "import_b")
    for command, source, folder, there in (("export", "ck_a", "hf_b", "config.json, model.safetensors"), ("export", "ck_b", "hf_b", "config.json"),
                                           ("export", "ck_a", "weights", "(model.safetensors)"), ("export", "ck_a", "config", "(config.json)"),
                                           ("import", "hf_a", "import_b", "step-00000000"), ("import", "hf_a", "mine", "tokenizer")):
        before = contents(folder)
        out = run("tfm-convert", command, source, folder, code=2)
        assert f"{folder}: h" in out and there in out and "--force" in out, out
        assert {k: v for k, v in contents(folder).items() if k != "run.lock"} == before, folder
        run("tfm-convert", command, source, folder, "--force")
        assert contents(folder) != before or source[-1] == folder[-1], folder
    for name, said in (("out.gguf", "not supported yet"), ("out.safetensors", "a Hugging Face directory"), ("out.bin", "a Hugging Face directory")):
        for more in ([], ["--force"]):
            assert said in run("tfm-convert", "export", "ck_a", name, *more, code=2)
        assert not pathlib.Path(name).exists()
    assert "--format gguf is not supported yet" in run("tfm-convert", "export", "ck_a", "out.gguf", "--format", "gguf", code=2)
    pathlib.Path("empty").mkdir()
    run("tfm-convert", "export", "ck_a", "empty")


def types_of(weights):
    data = pathlib.Path(weights).read_bytes()
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    return {name: tensor["dtype"] for name, tensor in header.items() if name != "__metadata__"}


def check_large_values_of_f16():
    shutil.copytree("hf_a", "half")
    weights = pathlib.Path("half/model.safetensors")
    data = weights.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, at, raw = json.loads(data[8:8 + size]), 0, b""
    for name, tensor in header.items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            values = array.array("f", data[8 + size + begin:8 + size + end])
            raw += struct.pack(f"<{len(values)}e", *values)
            tensor.update(dtype="F16", data_offsets=[at, len(raw)])
            at = len(raw)
    text = json.dumps(header).encode()
    weights.write_bytes(struct.pack("<Q", len(text)) + text + raw)
    run("tfm-train", "from.yaml", "model.init=half", "checkpoint.dir=large", "optimizer={lr: 1e5, type: adamw, weight_decay: 0}",
        "schedule={type: constant, warmup_steps: 0}")
    written = run("tfm-convert", "export", "large", "large_hf")
    large = [name for name, dtype in types_of("large_hf/model.safetensors").items() if dtype == "F32"]
    assert large and all(f"tensor '{name}' has values beyond the range of F16" in written for name in large), (large, written)
    assert "warning" not in run("tfm-convert", "export", "half", "half_again")
    assert set(types_of("half_again/model.safetensors").values()) == {"F16"}


def check_token_files():
    prepare = ["prepare", "--tokenizer", "bytes", "--format", "megatron", "--output", "pair.bin", "--input"]
    pathlib.Path("long.jsonl").write_text('{"text": "%s"}\n' % ("x" * 100) * 50)
    pathlib.Path("short.jsonl").write_text('{"text": "x"}\n' * 5000)
    run("tfm-data", *prepare, "long.jsonl")
    before = [pathlib.Path(f"pair.{half}").read_bytes() for half in ("bin", "idx")]
    run("tfm-data", *prepare, "short.jsonl", limit=50, code=75)
    assert [pathlib.Path(f"pair.{half}").read_bytes() for half in ("bin", "idx")] == before
    run("tfm-data", *prepare, "short.jsonl")
    assert "documents: 5000" in run("tfm-data", "info", "pair.bin")
    for output, tokenizer_, problem in (("", "bytes", "is empty"), ("a.json", "a.json", "is also an input"),
                                        ("x.idx", "bytes", "expected another name")):
        assert problem in run("tfm-data", "prepare", "--input", "text.txt", "--tokenizer", tokenizer_, "--output", output, code=2)
    assert "is empty" in run("tfm-convert", "export", "ck_a", "", code=2)
    text = b"words of a file with a large window\n"
    for window in (0x90, 0xa8):  # 2^28 and 2^31 bytes
        block = struct.pack("<I", len(text) << 3 | 1)[:3]
        pathlib.Path("large.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + block + text)
        run("tfm-data", "prepare", "--input", "large.txt.zst", "--tokenizer", "bytes", "--output", "large.bin")
        assert f"tokens: {len(text)}" in run("tfm-data", "info", "large.bin")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for check in (make_models, check_the_runs_own_tokenizer, check_paths_count_from_the_run, check_a_full_disk, check_left_over_files,
                      check_models_beside_checkpoints, check_the_folder_of_a_run, check_what_is_imported, check_what_is_there_stays,
                      check_large_values_of_f16, check_token_files):
            check()
            print(check.__name__, "ok", flush=True)
        os.chdir("/")


main()
