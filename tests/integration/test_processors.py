"""One build for all processors: programs take the kernels of the best level that the processor has, losses agree between levels, and
ranks that compute by different instructions do not train together.

usage: test_processors.py BIN_FOLDER
"""
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
LIBRARY = "libtfm_kernels.so"
# What hides instructions from the dynamic loader and from oneDNN; the level that is left, as a folder in lib/.
HIDDEN = {"glibc-hwcaps/x86-64-v4": {}, "glibc-hwcaps/x86-64-v3": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F", "ONEDNN_MAX_CPU_ISA": "AVX2"},
          "": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2", "ONEDNN_MAX_CPU_ISA": "SSE41"}}
SAID = {"glibc-hwcaps/x86-64-v4": "AVX-512", "glibc-hwcaps/x86-64-v3": "AVX2", "": "128-bit vectors"}  # at the start of a run
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 64, n_layers: 2, n_heads: 4, max_seq_len: 64}
train: {steps: 5, global_batch_size: 8, seq_len: 64}
data: {train: {type: text, path: text.txt, shuffle: true}}
eval: {every: 0}
"""


def run(folder, *command, **hidden):
    return subprocess.run([str(c) for c in command], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **hidden})


def loaded(folder, hidden):
    """The folder in lib/ that the kernels come from."""
    done = run(folder, BIN / "tfm-train", "--version", LD_DEBUG="libs", **hidden)
    paths = [line.split()[-1] for line in done.stderr.splitlines() if "calling init:" in line and LIBRARY in line]
    assert len(paths) == 1, done.stderr
    return os.path.relpath(pathlib.Path(os.path.normpath(paths[0])).parent, BIN.parent / "lib").removeprefix(".")


def losses(folder, precision, level):
    done = run(folder, BIN / "tfm-train", "c.yaml", f"precision={precision}", "metrics.jsonl=m.jsonl", "metrics.listen=none", **HIDDEN[level])
    assert done.returncode == 0, done.stderr
    assert f"device cpu, 1 thread per rank, {SAID[level]}" in done.stdout, done.stdout
    events = [json.loads(line) for line in (folder / "m.jsonl").read_text().splitlines()]
    (folder / "m.jsonl").unlink()
    return [e["loss"] for e in events if e["event"] == "step"]


def agree(folder, levels):
    for precision, within in (("fp32", 1e-5), ("bf16", 1e-2)):
        first, *others = [losses(folder, precision, level) for level in levels]
        assert len(first) == 5 and first[-1] < first[0], first
        for level, other in zip(levels[1:], others):
            assert all(abs(a - b) <= within * a for a, b in zip(first, other)), (precision, level, first, other)


def mixed_ranks_are_refused(folder, hidden):
    variables = " ".join(f"{name}={value}" for name, value in hidden.items())
    other = f'[ "${{OMPI_COMM_WORLD_RANK-$PMI_RANK}}" = 0 ] || export {variables}; exec "$@"'
    done = run(folder, pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh", "2", "sh", "-c", other, "sh", BIN / "tfm-train", "c.yaml",
               "metrics.listen=none")
    assert done.returncode == 4, (done.returncode, done.stderr)
    assert "rank 1" in done.stderr and "computes by AVX2" in done.stderr and "GLIBC_TUNABLES" in done.stderr, done.stderr


def main():
    cache = (BIN.parent / "CMakeCache.txt").read_text()
    if platform.machine() != "x86_64" or re.search("^TFM_ARCH:STRING=.|^TFM_SANITIZE:BOOL=ON", cache, re.MULTILINE):
        print("skipped: built for one kind of processor")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "c.yaml").write_text(CONFIG)
        (folder / "text.txt").write_text("".join(f"{i} times {i} is {i * i}. " for i in range(2000)))
        levels = list(HIDDEN)[list(HIDDEN).index(loaded(folder, {})):]
        for level in levels:
            assert loaded(folder, HIDDEN[level]) == level, level
        agree(folder, levels)
        if len(levels) > 2:
            mixed_ranks_are_refused(folder, HIDDEN[levels[1]])
    print("ok:", ", ".join(levels))


main()
