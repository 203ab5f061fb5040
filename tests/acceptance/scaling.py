"""Scaling from one rank of one thread to two, beside the planner's prediction; and what it predicts for GPUs.

usage: scaling.py BIN FOLDER [--only SUBSTRING] [--rounds 3] [--steps 2] [--draw] [--tiny]

Measures the cases whose name has SUBSTRING and writes their results into FOLDER, a file each. Then draws weak.svg, strong.svg and
gpus.svg of all results there and prints the tables of docs/scaling.md. --draw: without measuring; --tiny: other models, to try the
script. A round trains with one rank and with two by tfm-bench scaling, in weak scaling also with two jobs of one rank side by side:
what two cores give that exchange nothing. Needs two idle cores.
"""
import argparse
import array
import json
import os
import pathlib
import statistics
import struct
import subprocess
import tempfile
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = {512: "n_layers: 6, d_model: 512, n_heads: 8, d_ff: 2048", 1024: "n_layers: 4, d_model: 1024, n_heads: 16, d_ff: 4096"}
TINY = "n_layers: 4, d_model: 32, n_heads: 4, d_ff: 64"
PIPELINE = ["train.micro_batch_size=1", "parallel.schedule=interleaved", "parallel.virtual_stages=2"]
SHOWN = {8, 64, 512, 4096}  # numbers of GPUs in the table; the picture has all
# Name, d_model, mode, axis, sequences (in weak scaling of a rank), their length, overrides.
CASES = [
    ("weak, data, d_model 512, fp32", 512, "weak", "data", 4, 256, []),
    ("weak, data, d_model 1024, fp32", 1024, "weak", "data", 4, 256, []),
    ("weak, data, d_model 1024, bf16", 1024, "weak", "data", 4, 256, ["precision=bf16"]),
    ("weak, data, ZeRO 1, d_model 1024, bf16", 1024, "weak", "data", 4, 256, ["precision=bf16", "parallel.zero=1"]),
    ("strong, data", 1024, "strong", "data", 4, 256, []),
    ("strong, ZeRO 3", 1024, "strong", "shard", 4, 256, []),
    ("strong, tensor, fp32", 1024, "strong", "tensor", 4, 256, []),
    ("strong, tensor, bf16", 1024, "strong", "tensor", 4, 256, ["precision=bf16"]),
    ("strong, pipeline", 1024, "strong", "pipeline", 4, 256, PIPELINE),
    ("strong, context", 1024, "strong", "context", 1, 1024, []),
]
# The same program a second time, and the exit code of the first.
BESIDE = ': {ranks}; beside() { "$@" metrics.jsonl=beside.jsonl > /dev/null & "$@"; status=$?; wait; return $status; }; beside'
GPU, GPUS, CONFIGS = "h100", [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096], ["llama_1b", "llama_8b"]
STYLE = """<style>
svg { --paper: #ffffff; --ink: #212529; --line: #ced4da; --one: #1f77b4; --two: #d9730d }
@media (prefers-color-scheme: dark) { svg { --paper: #0d1117; --ink: #e6edf3; --line: #484f58; --one: #58a6ff; --two: #f0883e } }
text { fill: var(--ink) } .ink { stroke: var(--ink) } .line { stroke: var(--line) } .one { stroke: var(--one) } .two { stroke: var(--two) }
.paper { fill: var(--paper) } .full.one { fill: var(--one) } .full.two { fill: var(--two) }
</style>"""


def slug(name):
    return name.replace(", ", "-").replace(" ", "_")


class Measurement:
    def __init__(self, bin_dir, folder, steps, tiny):
        self.bench, self.folder, self.steps = bin_dir / "tfm-bench", folder, steps
        state, ids = 1, array.array("H")
        for _ in range(1 << 18):
            state = (state * 1664525 + 1013904223) % (1 << 32)
            ids.append((state >> 8) % 8000)
        (folder / "ids.bin").write_bytes(struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253) + ids.tobytes())
        for width, model in SIZES.items():
            (folder / f"gpt{width}.yaml").write_text(
                f"model: {{family: decoder, vocab_size: 8000, max_seq_len: 1024, dropout: 0, {TINY if tiny else model}}}\n"
                "data: {train: {type: tokens, path: ids.bin}}\n")

    def run(self, *arguments):
        subprocess.run([self.bench, "scaling", *map(str, arguments), "--warmup", "1", "--steps", str(self.steps), "--json", "points.json"],
                       cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, check=True)
        return json.loads((self.folder / "points.json").read_text())

    def round_of(self, case):
        _, width, mode, axis, sequences, length, overrides = case
        given = [f"gpt{width}.yaml", f"train.global_batch_size={sequences}", f"train.seq_len={length}", *overrides]
        found = self.run(*given, "--ranks", "1,2", "--axes", axis, *(["--weak"] if mode == "weak" else []))
        result = {"cpu": found["cpu"], "points": found["points"]}
        if mode == "weak":
            result["beside"] = self.run(*given, "--ranks", 1, "--launcher", BESIDE)["points"][0]
        return result


def predict_gpus(bin_dir):
    """Tokens per second as configured (null: not allowed, or more than the memory) and of the fastest layout."""
    found = {}
    for name in CONFIGS:
        for ranks in GPUS:
            command = [bin_dir / "tfm-plan", ROOT / f"configs/{name}.yaml", "--ranks", str(ranks), "--device", GPU, "--suggest", "--json"]
            plan = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            configured, best = plan["as_configured"], plan["suggestions"][0]
            as_configured = configured["tokens_per_second"] if configured and configured["fits"] else None
            found.setdefault(name, []).append({"ranks": ranks, "configured": as_configured, "fastest": best["tokens_per_second"],
                                               "overrides": best["overrides"]})
    return found


class Summary:
    """Of the rounds of a case: medians, with the least and the most."""

    def __init__(self, name, rounds):
        self.name, self.rounds = name, len(rounds)
        points = [[r["points"][i] for r in rounds] for i in range(2)]
        self.ranks = [p[0]["ranks"] for p in points]
        self.seconds = [[p["step_seconds"] for p in each] for each in points]
        self.rates = [[p["tokens_per_second"] for p in each] for each in points]
        self.predicted = [statistics.median(p["predicted_tokens_per_second"] for p in each) for each in points]
        self.errors = [m / p - 1 for m, p in zip(map(statistics.median, self.rates), self.predicted)]
        self.efficiencies = [100 * b / a / self.ranks[1] * self.ranks[0] for a, b in zip(*self.rates)]
        self.beside = [r["beside"]["tokens_per_second"] for r in rounds if "beside" in r]
        self.ceilings = [100 * b / a for a, b in zip(self.rates[0], self.beside)]

    def row(self):
        spread = lambda values, form: f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
        times = [spread([1e3 * s for s in seconds], ".0f") for seconds in self.seconds]
        ceiling = spread(self.ceilings, ".1f") + " %" if self.ceilings else "-"
        return [self.name, self.rounds, *times, spread(self.efficiencies, ".1f") + " %", ceiling,
                *(f"{100 * e:+.1f} %" for e in self.errors)]


class Drawing:
    def __init__(self, width, height, title):
        self.width, self.height = width, height
        self.body = [f"<title>{escape(title)}</title>", STYLE, f'<rect class="paper" width="{width}" height="{height}"/>']

    def text(self, x, y, words, anchor="start", size=12):
        self.body.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>')

    def path(self, points, kind, extra=""):
        self.body.append(f'<path class="{kind}" fill="none" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}" {extra}/>')

    def dot(self, x, y, kind):
        self.body.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="none"/>')

    def cross(self, x, y):
        self.body.append(f'<path class="ink" d="M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10" stroke-width="1.5"/>')

    def write(self, file):
        file.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
                        f'height="{self.height}" role="img" font-family="Helvetica, Arial, sans-serif">\n'
                        + "\n".join(self.body) + "\n</svg>\n")


def draw_panels(file, summaries, mode):
    """Throughput of a rank against that of one rank alone, a panel for each case."""
    columns, wide, high, legend = 3, 250, 210, 50
    rows = -(-len(summaries) // columns)
    drawing = Drawing(columns * wide, rows * high + legend, f"{mode} scaling from one rank to two, measured and predicted")
    lowest = 0.9 if mode == "weak" else 0.75
    for i, s in enumerate(summaries):
        left, top = i % columns * wide + 52, i // columns * high + 46
        x, y = lambda ranks: left + 170 * (ranks - 0.8) / 1.4, lambda share: top + 125 * (1.05 - share) / (1.05 - lowest)
        middle = [statistics.median(r) for r in s.rates]
        shares = lambda rates, ranks: [rate / ranks / middle[0] for rate in rates]
        drawing.text(left - 40, top - 28, s.name, size=13)
        efficiency = f"efficiency {statistics.median(s.efficiencies):.1f} %"
        drawing.text(left - 40, top - 11, f"{middle[0]:.0f} to {middle[1]:.0f} tokens/s: {efficiency}")
        drawing.path([(left, top), (left, top + 125), (left + 170, top + 125)], "ink")
        for percent in range(round(100 * lowest), 106, 5):
            kind = "ink" if percent == 100 else "line"
            drawing.path([(left, y(percent / 100)), (left + 170, y(percent / 100))], kind, 'stroke-dasharray="6 4"' * (percent == 100))
            drawing.text(left - 6, y(percent / 100) + 4, f"{percent} %", "end", 11)
        for ranks in s.ranks:
            drawing.text(x(ranks), top + 141, f"{ranks} rank" + "s" * (ranks > 1), "middle", 11)
        drawing.path([(x(r), y(*shares([v], r))) for r, v in zip(s.ranks, s.predicted)], "two", 'stroke-width="2" stroke-dasharray="2 3"')
        drawing.path([(x(r), y(*shares([v], r))) for r, v in zip(s.ranks, middle)], "one", 'stroke-width="1.5"')
        for ranks, rates, value in zip(s.ranks, s.rates, middle):
            span = [(x(ranks), y(share)) for share in shares([min(rates), max(rates)], ranks)]
            drawing.path(span, "one", 'stroke-width="6" stroke-opacity="0.4"')
            drawing.dot(x(ranks), y(*shares([value], ranks)), "one full")
        if s.beside:
            drawing.cross(x(2), y(*shares([statistics.median(s.beside)], 1)))
    line, half = rows * high + 14, columns * wide / 2
    entries = [("measured: median, least and most", "one", 'stroke-width="1.5"'),
               ("predicted", "two", 'stroke-width="2" stroke-dasharray="2 3"'),
               ("ideal: as one rank alone", "ink", 'stroke-dasharray="6 4"')]
    if mode == "weak":
        entries.append(("two jobs of one rank side by side", None, ""))
    for i, (words, kind, extra) in enumerate(entries):
        at, down = 20 + i % 2 * half, line + i // 2 * 20
        if kind:
            drawing.path([(at, down - 4), (at + 30, down - 4)], kind, extra)
        else:
            drawing.cross(at + 15, down - 4)
        drawing.text(at + 40, down, words)
    drawing.write(file)


def draw_gpus(file, found):
    """Tokens per second of a GPU against the number of GPUs."""
    wide, high, left, top = 300, 190, 70, 50
    drawing = Drawing(770, 320, f"Predicted throughput of a GPU by the number of GPUs ({GPU})")
    for i, (name, rows) in enumerate(found.items()):
        start = left + i * (wide + 70)
        most = 1.1 * max(r["fastest"] / r["ranks"] for r in rows)
        x, y = lambda ranks: start + wide * GPUS.index(ranks) / (len(GPUS) - 1), lambda rate: top + high - high * rate / most
        drawing.text(start - 60, top - 30, f"configs/{name}.yaml", size=13)
        drawing.text(start - 60, top - 12, "predicted tokens/s of a GPU; nothing measured")
        drawing.path([(start, top), (start, top + high), (start + wide, top + high)], "ink")
        for share in (0.25, 0.5, 0.75, 1):
            rate = float(f"{most * share / 1.1:.2g}")
            drawing.path([(start, y(rate)), (start + wide, y(rate))], "line")
            drawing.text(start - 6, y(rate) + 4, f"{rate:.0f}", "end", 11)
        for ranks in GPUS:
            drawing.text(x(ranks), top + high + 16, str(ranks), "middle", 10)
        for key, kind in (("configured", "two"), ("fastest", "one")):
            points = [(x(r["ranks"]), y(r[key] / r["ranks"])) for r in rows if r[key]]
            drawing.path(points, kind, 'stroke-width="1.5"' + ' stroke-dasharray="5 3"' * (key == "configured"))
            for at in points:
                drawing.dot(*at, f"{kind} full")
    entries = [("fastest layout of tfm-plan --suggest", "one", ""),
               ("as configured: data parallel, ZeRO 1", "two", 'stroke-dasharray="5 3"')]
    for i, (words, kind, extra) in enumerate(entries):
        drawing.path([(20 + 370 * i, 298), (50 + 370 * i, 298)], kind, 'stroke-width="1.5" ' + extra)
        drawing.text(60 + 370 * i, 302, words)
    drawing.write(file)


def table(rows):
    print("\n".join("| " + " | ".join(map(str, r)) + " |" for r in [rows[0], ["---"] * len(rows[0]), *rows[1:]]) + "\n")


def draw(folder):
    summaries = {"weak": [], "strong": []}
    for name, _, mode, *_ in CASES:
        if (file := folder / f"{slug(name)}.json").exists():
            summaries[mode].append(Summary(name, json.loads(file.read_text())))
    for mode, found in summaries.items():
        if found:
            draw_panels(folder / f"{mode}.svg", found, mode)
            table([["case", "rounds", "1 rank, ms a step", "2 ranks, ms a step", "efficiency", "two jobs side by side",
                    "prediction, 1 rank", "2 ranks"], *(s.row() for s in found)])
    if (file := folder / "gpus.json").exists():
        gpus = json.loads(file.read_text())
        draw_gpus(folder / "gpus.svg", gpus)
        share = lambda r, key: f"{r[key] / r['ranks']:.0f}" if r[key] else "-"
        table([["configuration", "GPUs", "as configured, tokens/s of a GPU", "fastest", "overrides of the fastest"],
               *([name, r["ranks"], share(r, "configured"), share(r, "fastest"), f"`{' '.join(r['overrides'])}`"]
                 for name, rows in gpus.items() for r in rows if r["ranks"] in SHOWN)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    write = lambda name, result: (args.folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    with tempfile.TemporaryDirectory() as work:
        cases = [c for c in CASES if args.only in c[0] and not args.draw]
        measurement = Measurement(args.bin.resolve(), pathlib.Path(work), args.steps, args.tiny)
        for case in cases:
            write(slug(case[0]), [measurement.round_of(case) for _ in range(args.rounds)])
    if args.only in "gpus" and not args.draw:
        write("gpus", predict_gpus(args.bin.resolve()))
    draw(args.folder)


main()
