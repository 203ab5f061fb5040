"""Step times that tfm-plan predicts beside those that other systems published of their own runs on GPUs.

usage: published_times.py BIN [--only SUBSTRING]

Needs no GPU. A row is a configuration of tfm with the model, batch, layout and micro-batches of a published run. No constant comes from
the rows that count; those of the group `calibration` are what tests/acceptance/devices/h100_pytorch.yaml and configs/devices/a100.yaml
have their `sustained` from. docs/planner.md says which properties of the systems are modeled.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTORCH = ROOT / "tests/acceptance/devices/h100_pytorch.yaml"
MPT = {"760m": (24, 1536, 12), "1b": (24, 2048, 16), "3b": (32, 2560, 20), "7b": (32, 4096, 32), "13b": (40, 5120, 40)}


def gpt(layers, width, heads, vocabulary, length, **options):
    """GPT-2's block, with options of the model section."""
    return {"family": "decoder", "n_layers": layers, "d_model": width, "n_heads": heads, "d_ff": 4 * width, "vocab_size": vocabulary,
            "max_seq_len": length, "dropout": 0, "tie_embeddings": True, **options}


def qwen(layers, width, heads, kv_heads, hidden, vocabulary, tied):
    return gpt(layers, width, heads, vocabulary, 1024, n_kv_heads=kv_heads, d_ff=hidden, position="rope", norm="rmsnorm", activation="swiglu",
               bias=False, tie_embeddings=tied)


class Row:
    """A published run: `tflops` of a GPU (attention counted in full), `tokens` a second of all GPUs, or `seconds` of a step.

    candidates: micro-batch, stages of a pipeline's rank, recomputation. Of several, which are not published, the fastest that fits counts.
    """

    def __init__(self, group, name, device, model, length, batch, ranks, candidates, *overrides, tflops=0, tokens=0, seconds=0):
        self.group, self.name, self.device, self.model, self.length, self.batch, self.ranks = group, name, str(device), model, length, batch, ranks
        self.candidates, self.overrides, self.tflops, self.tokens, self.seconds = candidates, overrides, tflops, tokens, seconds

    def published(self, plan):
        nominal = plan["mfu_nominal"] * plan["device"]["peak_flops"] * plan["step_seconds"]  # of a rank, in a step
        return self.seconds or (self.batch * self.length / self.tokens if self.tokens else nominal / self.tflops * 1e-12)

    def predicted(self, plan):
        """Of the system's step. Megatron-Core makes products and their collectives in as many parts as there are tensor ranks, beside each other
        (--tp-comm-overlap; Wang et al. 2023): of what a step of tfm waits for, the first part is left."""
        seconds, causes = plan["step_seconds"], plan["seconds_by_limit"]
        if "Megatron" not in self.group:
            return seconds
        bubble = causes.get("bubble", 0)
        hidden = causes["communication"] * (1 - 1 / plan["layout"]["tensor"])
        return (seconds - bubble - hidden) * (1 + bubble / (seconds - bubble))


def megatron():
    """NVIDIA/Megatron-LM, README.md and images/model_table.png: Megatron-Core 0.8. Its gradients have buckets of 40 million."""
    for name, heads, width, layers, tensor, pipeline, batch, tflops in (
            ("1.7B", 16, 2048, 24, 1, 1, 192, 408.8), ("7.1B", 32, 4096, 30, 2, 1, 192, 465.9), ("16B", 48, 6144, 32, 4, 1, 192, 489.1),
            ("32B", 56, 7168, 48, 8, 1, 192, 459.6), ("70B", 64, 8192, 84, 8, 2, 384, 419.7), ("119B", 80, 10240, 92, 8, 4, 768, 420.5),
            ("177B", 96, 12288, 96, 8, 6, 1152, 432.8), ("314B", 128, 16384, 96, 8, 8, 1536, 474.4), ("462B", 144, 18432, 112, 8, 16, 3072, 459.9)):
        stages = [v for v in range(1, 65) if pipeline > 1 and layers % (pipeline * v) == 0] or [1]
        yield Row("Megatron-Core", name, PYTORCH, gpt(layers, width, heads, 131072, 4096, tie_embeddings=False), 4096, batch, 48 * tensor * pipeline,
                  [(m, v, r) for m in (1, 2, 4) for v in stages for r in ("none", "selective")], "parallel.zero=1", f"parallel.tensor={tensor}",
                  f"parallel.pipeline={pipeline}", "parallel.bucket_bytes=160M", tflops=tflops)


def llmq():
    """IST-DASLab/llmq, benchmarks/H100x1.md and H100x8.md, bf16."""
    for name, model, micro, tokens in (
            ("0.5B", qwen(24, 896, 14, 2, 4864, 151936, True), (32, 32), (149.5e3, 1.175e6)),
            ("1.5B", qwen(28, 1536, 12, 2, 8960, 151936, True), (32, 32), (59.1e3, 457e3)),
            ("3B", qwen(36, 2048, 16, 2, 11008, 151936, True), (16, 16), (30.9e3, 239e3)),
            ("7B", qwen(28, 3584, 28, 4, 18944, 152064, False), (4, 8), (13.85e3, 112e3))):
        for i, ranks in enumerate((1, 8)):
            yield Row("llm.q", name, "h100", model, 1024, 512, ranks, [(micro[i], 1, "none")], f"parallel.zero={i}", tokens=tokens[i])


def llmc():
    """karpathy/llm.c, scripts/run_gpt2_*.sh; 124M on H100: KellerJordan/modded-nanogpt, records/track_1_short/2024-10-13_llmc."""
    for name, device, shape, micro, batch, seconds in (
            ("124M", "h100", (12, 768, 12), 64, 512, 0.14), ("1558M", "h100", (48, 1600, 25), 16, 1024, 2.8), ("124M", "a100", (12, 768, 12), 64, 512, 0.3),
            ("350M", "a100", (24, 1024, 16), 64, 512, 0.82), ("774M", "a100", (36, 1280, 20), 32, 512, 1.7)):
        yield Row("llm.c", f"{name}, {device}", device, gpt(*shape, 50304, 1024), 1024, batch, 8, [(micro, 1, "none")], "parallel.zero=1", seconds=seconds)


def calibration():
    """mosaicml/llm-foundry, scripts/train/benchmarking/README.md: bf16 without recomputation; karpathy/nanochat PR 147, on A100."""
    for size, length, ranks, micro, micro_batches, tokens in (
            ("760m", 512, 8, 96, 2, 83749), ("760m", 1024, 8, 48, 2, 78581), ("760m", 4096, 8, 12, 2, 55459), ("1b", 512, 8, 56, 4, 52275),
            ("1b", 1024, 8, 18, 4, 48910), ("1b", 2048, 8, 14, 1, 45455), ("1b", 4096, 8, 7, 4, 38535), ("1b", 8192, 8, 3, 4, 29157),
            ("3b", 512, 8, 40, 6, 27965), ("3b", 1024, 8, 20, 6, 27046), ("3b", 2048, 16, 10, 3, 24142), ("3b", 4096, 8, 5, 6, 20964),
            ("7b", 2048, 8, 6, 1, 10643), ("13b", 2048, 8, 2, 1, 4792), ("1b", 2048, 64, 20, 1, 44402), ("3b", 2048, 64, 6, 3, 22525),
            ("13b", 2048, 64, 2, 1, 4800)):
        yield Row("calibration", f"MosaicML {size}, T {length}", PYTORCH, gpt(*MPT[size], 50368, length, bias=False), length, micro * micro_batches * ranks,
                  ranks, [(micro, 1, "none")], "parallel.zero=3", tokens=tokens * ranks)
    yield Row("calibration", "nanochat d20, a100", "a100", gpt(20, 1280, 10, 65536, 2048, position="rope", norm="rmsnorm", activation="relu", bias=False, qk_norm=True,
              tie_embeddings=False), 2048, 256, 8, [(32, 1, "none")], "parallel.zero=1", tokens=529e3)


def plan_of(bin_dir, row, micro, stages, recompute):
    """None where tfm does not allow it."""
    pathlib.Path("cfg.yaml").write_text(json.dumps({"model": row.model, "data": {"train": {"type": "tokens", "path": "none.bin"}}, "precision": "bf16"}))
    given = [f"train.seq_len={row.length}", f"train.global_batch_size={row.batch}", f"train.micro_batch_size={micro}", f"recompute={recompute}", *row.overrides]
    if stages > 1:
        given += ["parallel.schedule=interleaved", f"parallel.virtual_stages={stages}"]
    done = subprocess.run([bin_dir / "tfm-plan", "cfg.yaml", "--ranks", str(row.ranks), "--device", row.device, "--json", *given],
                          capture_output=True, text=True)
    if done.returncode and len(row.candidates) == 1:
        sys.exit(done.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--only", default="", help="rows whose system and model contain this")
    args = parser.parse_args()
    bin_dir, errors = args.bin.resolve(), {}
    print("| system | model | GPUs | micro-batch, stages, recompute | predicted | published | error |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for row in (r for rows in (megatron, llmq, llmc, calibration) for r in rows() if args.only in f"{r.group} {r.name}"):
            plans = [(row.predicted(p), c, p) for c in row.candidates if (p := plan_of(bin_dir, row, *c))]
            seconds, chosen, plan = min((p for p in plans if p[2]["fits"]), default=plans[0], key=lambda p: p[0])
            published = row.published(plan)
            errors.setdefault(row.group, []).append(seconds / published - 1)
            print(f"| {row.group} | {row.name} | {row.ranks} | {', '.join(map(str, chosen))} | {seconds:.4g} s | {published:.4g} s "
                  f"| {100 * errors[row.group][-1]:+.1f} % |", flush=True)
    counted = {g: e for g, e in errors.items() if g != "calibration"}
    errors["all but calibration"] = [x for e in counted.values() for x in e]
    for group, e in errors.items():
        if e:
            print(f"{group}: median error {100 * statistics.median(map(abs, e)):.1f} %, worst {100 * max(map(abs, e)):.1f} %, of {len(e)}")


main()
