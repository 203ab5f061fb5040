"""tfm-verify --as-run: runs of three families in 16 bits are as near to float64 as their precision allows, and a wrong gradient is named.

usage: test_as_run.py [--device cuda] BIN [PRECISION...]     # random configurations, too, where no precision is given

The three runs have between them what tests/mutants seeds faults into: grouped queries and rotations, dropout, padding, biases on tensor
ranks, tied embeddings, several micro-batches and buckets.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("bin", type=pathlib.Path)
parser.add_argument("precisions", nargs="*")
parser.add_argument("--device", default="cpu")
args = parser.parse_args()
BIN, PRECISIONS = args.bin.resolve(), args.precisions or ["bf16", "fp16"]
MPIRUN = pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh"
RUNS = {
    "llama": (2, "family: decoder, n_layers: 2, n_heads: 8, n_kv_heads: 4, d_ff: 96, position: rope, norm: rmsnorm, activation: swiglu,"
                 " bias: false, tie_embeddings: false", "text", ["parallel.tensor=2"]),
    "gpt2": (2, "family: decoder, n_layers: 2, n_heads: 4, dropout: 0.1", "text", ["parallel.bucket_bytes=16Ki", "recompute=selective"]),
    "bert": (4, "family: encoder, n_layers: 2, n_heads: 4, norm_position: post, embedding_norm: true, type_vocab_size: 2,"
                " head_transform: true, dropout: 0.1", "mlm", ["parallel.tensor=2", "parallel.zero=1"]),
}


def verify(name, precision, *more, code=0):
    ranks, model, data, overrides = RUNS[name]
    pathlib.Path(f"{name}.yaml").write_text(f"model: {{vocab_size: 260, d_model: 64, {model}}}\n"
                                            f"data: {{train: {{type: {data}, path: none.txt}}}}\n"
                                            "train: {global_batch_size: 8, micro_batch_size: 2, seq_len: 32}\noptimizer: {lr: 1.0e-3}\n")
    command = [MPIRUN, str(ranks), BIN / "tfm-verify", f"{name}.yaml", "--as-run", f"precision={precision}", f"device={args.device}",
               *overrides, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == code, f"{name} {precision}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def check_clean():
    for precision in PRECISIONS:
        for name in RUNS:
            out = verify(name, precision)
            assert "WRONG" not in out and "2 of 2 layers" in out and "16-bit copies of weights" in out, out
            assert "gradient of step 2" in out and "equal to the single-rank run" in out, out


def check_a_wrong_gradient_is_named():
    for precision in PRECISIONS:
        out = verify("llama", precision, "--inject-error", "layers.1.ffn.up.weight", code=1)
        wrong = [line for line in out.splitlines() if line.startswith("WRONG")]
        assert len(wrong) == 1 and "gradient of step 1" in wrong[0] and "layers.1.ffn.up.weight on ranks 0, 1" in wrong[0], out
        assert "tfm-verify: gradient of step 1 differs: layers.1.ffn.up.weight on ranks 0, 1" in out, out
    out = verify("llama", "bf16", "parallel.tensor=1", "parallel.pipeline=2", "--inject-error", "layers.0.ffn.up.weight", code=1)
    assert "gradient of step 1 differs: layers.0.ffn.up.weight on rank 0" in out, out
    assert "without --full" in verify("gpt2", "bf16", "--full", code=2)


def check_random_configurations():
    script = pathlib.Path(__file__).resolve().parents[1] / "acceptance/verify.py"
    for more in (["--ranks", "4", "--as-run"], ["--ranks", "8"]):
        done = subprocess.run([sys.executable, script, BIN, "--device", args.device, "--count", "4", *more], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and "4 configurations, 0 false alarms" in done.stdout, done.stdout + done.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        checks = [check_clean, check_a_wrong_gradient_is_named]
        if not args.precisions:
            checks.append(check_random_configurations)
        for check in checks:
            check()
            print(check.__name__, "ok")


main()
