#!/usr/bin/env python3
"""Seconds of a training step of one model in PyTorch: torch.compile, bf16 autocast, fused AdamW, scaled_dot_product_attention by the fastest
of its backends, random data.

usage: tests/gpu/pytorch_speed.py MODEL MICRO_BATCH [--steps N] [--device cuda] [--tiny]
prints the milliseconds of each backend that takes the model's attention, then the seconds of a step; MODEL: see speed.py
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import speed


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Attention(nn.Module):
    def __init__(self, m, cross=False):
        super().__init__()
        self.heads, self.kv_heads, self.size = m["n_heads"], m.get("n_kv_heads", m["n_heads"]), m["d_model"] // m["n_heads"]
        bias, width = m.get("bias", True), m["d_model"]
        self.widths = [self.heads * self.size] + 2 * [self.kv_heads * self.size]
        self.qkv = nn.Linear(width, sum(self.widths), bias=bias)
        self.cross, self.out = cross, nn.Linear(width, width, bias=bias)
        if m.get("position") == "rope":
            angle = torch.outer(torch.arange(m["length"]), 500000.0 ** (-torch.arange(0, self.size, 2) / self.size)).repeat(1, 2)
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x, memory=None, causal=False):
        if self.cross:
            q = F.linear(x, *[p[:self.widths[0]] for p in (self.qkv.weight, self.qkv.bias)])
            k, v = F.linear(memory, *[p[self.widths[0]:] for p in (self.qkv.weight, self.qkv.bias)]).chunk(2, -1)
        else:
            q, k, v = self.qkv(x).split(self.widths, -1)
        q, k, v = (t.unflatten(-1, (-1, self.size)).transpose(1, 2) for t in (q, k, v))
        if hasattr(self, "cos"):
            q, k = rotate(q, self.cos, self.sin).to(v.dtype), rotate(k, self.cos, self.sin).to(v.dtype)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=self.heads != self.kv_heads)
        return self.out(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.kind, bias, hidden = m.get("activation", "gelu_tanh"), m.get("bias", True), m.get("d_ff", 4 * m["d_model"])
        self.up = nn.Linear(m["d_model"], hidden * (2 if self.kind == "swiglu" else 1), bias=bias)
        self.down = nn.Linear(hidden, m["d_model"], bias=bias)

    def forward(self, x):
        h = self.up(x)
        if self.kind == "swiglu":
            gate, h = h.chunk(2, -1)
            return self.down(F.silu(gate) * h)
        if self.kind == "relu":
            return self.down(F.relu(h))
        return self.down(F.gelu(h, approximate="tanh" if self.kind == "gelu_tanh" else "none"))


class Block(nn.Module):
    def __init__(self, m, causal, cross=False):
        super().__init__()
        norm = (lambda: nn.RMSNorm(m["d_model"], eps=1e-5)) if m.get("norm") == "rmsnorm" else (lambda: nn.LayerNorm(m["d_model"]))
        self.layers = nn.ModuleList([Attention(m)] + ([Attention(m, True)] if cross else []) + [FeedForward(m)])
        self.norms = nn.ModuleList(norm() for _ in self.layers)
        self.pre, self.causal = m.get("norm_position", "pre") == "pre", causal

    def forward(self, x, memory=None):
        for i, (norm, layer) in enumerate(zip(self.norms, self.layers)):
            h = norm(x) if self.pre else x
            if isinstance(layer, FeedForward):
                y = layer(h)
            else:
                y = layer(h, memory) if layer.cross else layer(h, causal=self.causal and i == 0)
            x = x + y if self.pre else norm(x + y)
        return x


class Model(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m, width = m, m["d_model"]
        self.tokens = nn.Embedding(m["vocab_size"], width)
        self.positions = nn.Embedding(m["length"], width) if m.get("position", "learned") == "learned" else None
        if m.get("position") == "sinusoidal":
            angle = torch.outer(torch.arange(m["length"]), 10000.0 ** (-torch.arange(0, width, 2) / width))
            self.register_buffer("table", torch.cat((angle.sin(), angle.cos()), -1), persistent=False)
        pairs = m["family"] == "encoder_decoder"
        self.encoder = nn.ModuleList(Block(m, False) for _ in range(m["n_layers"])) if pairs else []
        self.blocks = nn.ModuleList(Block(m, m["family"] != "encoder", pairs) for _ in range(m["n_layers"]))
        self.final = nn.Identity() if m.get("norm_position") == "post" else nn.RMSNorm(width) if m.get("norm") == "rmsnorm" else nn.LayerNorm(width)
        self.head = nn.Linear(width, m["vocab_size"], bias=False)
        if m.get("tie_embeddings", True):
            self.head.weight = self.tokens.weight
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) if m["family"] == "encoder" else nn.Identity()
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def embed(self, ids):
        x = self.tokens(ids)
        if self.positions:
            x = x + self.positions.weight[:ids.shape[1]]
        return x + self.table if hasattr(self, "table") else x

    def forward(self, ids, labels, target=None, masked=None):
        x, memory = self.embed(ids), None
        if target is not None:
            memory = x
            for b in self.encoder:
                memory = b(memory)
            x = self.embed(target)
        for b in self.blocks:
            x = b(x, memory)
        x = self.final(x).flatten(0, 1)
        if masked is not None:  # the head of masked tokens alone
            x = x[masked]
        return F.cross_entropy(self.head(self.transform(x)).float(), labels, label_smoothing=self.m.get("label_smoothing", 0.0))


def batch_of(m, sequences, device):
    draw = lambda *shape: torch.randint(m["vocab_size"], shape, device=device)
    ids = draw(sequences, m["length"])
    if m["family"] == "encoder_decoder":
        return {"ids": ids, "target": draw(sequences, m["length"]), "labels": draw(sequences * m["length"])}
    if m["family"] == "encoder":
        masked = torch.randperm(ids.numel(), device=device)[:ids.numel() * 15 // 100]
        return {"ids": ids, "masked": masked, "labels": draw(len(masked))}
    return {"ids": ids, "labels": draw(ids.numel())}


def milliseconds_of(backend, m, micro, device):
    """Forward and backward of the model's attention by a backend, the least of three; infinite where it refuses."""
    heads, size = m["n_heads"], m["d_model"] // m["n_heads"]
    draw = lambda n: torch.randn(micro, n, m["length"], size, device=device, dtype=torch.bfloat16, requires_grad=True)
    q, k, v = draw(heads), draw(m.get("n_kv_heads", heads)), draw(m.get("n_kv_heads", heads))
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    best = float("inf")
    try:
        for i in range(4):  # the first one warms up
            wait()
            start = time.perf_counter()
            with sdpa_kernel(backend):
                out = F.scaled_dot_product_attention(q, k, v, is_causal=m["family"] == "decoder", enable_gqa=k.shape[1] != heads)
            out.backward(out.detach())
            wait()
            if i > 0:
                best = min(best, 1e3 * (time.perf_counter() - start))
    except RuntimeError:
        return float("inf")
    return best


def fastest_backend(m, micro, device):
    times = {b: milliseconds_of(b, m, micro, device)
             for b in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)}
    for backend, ms in times.items():
        print(f"attention by {backend.name}: " + (f"{ms:.3f} ms" if ms < float("inf") else "refused"))
    if device == "cuda":
        torch.cuda.empty_cache()
    best = min(times, key=times.get)
    return best if times[best] < float("inf") else SDPBackend.MATH


def measure(m, sequences, micro, steps, device):
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Model(m).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=device == "cuda")
    run = torch.compile(model, dynamic=False) if device == "cuda" else model
    batch = batch_of(m, micro, device)
    seconds = []
    for _ in range(steps + 5):
        start = time.perf_counter()
        for _ in range(sequences // micro):
            with torch.autocast(device, torch.bfloat16):
                loss = run(**batch) * (micro / sequences)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[5:])


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("model", choices=speed.MODELS)
    args.add_argument("micro", type=int)
    args.add_argument("--steps", type=int, default=20)
    args.add_argument("--device", default="cuda")
    args.add_argument("--tiny", action="store_true")
    args = args.parse_args()
    m, sequences = speed.model_of(args.model, args.tiny)
    with sdpa_kernel(fastest_backend(m, args.micro, args.device)):
        print(measure(m, sequences, args.micro, args.steps, args.device))


if __name__ == "__main__":
    main()
