"""tfm-probe's view of the inside of a model: activations and attention as transformers has them (tests/fixtures/make_inside.py) and the
same on every layout; units and heads put to zero as in weights that were zeroed by hand; values replaced; the report's pictures of them.
What tfm-plan --table says of published models.

usage: test_inside.py BIN
"""
import array
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

BIN = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures/huggingface"
LAYOUTS = {
    "gemma2_0": [(4, ["parallel.tensor=2", "parallel.sequence=true"]), (4, ["parallel.pipeline=2", "parallel.context=2"]), (2, [])],
    "bart_3": [(4, ["parallel.tensor=2", "parallel.pipeline=2"]), (4, ["parallel.context=2"])],
    "t5_3": [(4, ["parallel.tensor=2", "parallel.context=2"])],
    "qwen3_next_1": [(4, ["parallel.tensor=2", "parallel.pipeline=2"])],
}


def run(*command, ranks=0, code=0):
    command = [str(c) for c in command]
    if ranks > 0:
        command = [str(ROOT / "tests/mpirun.sh"), str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == code, f"{command}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def read(path):
    """name -> (type, shape, bytes)."""
    data = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}


def write(path, content):
    header, data = {}, b""
    for name, (dtype, shape, raw) in content.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def floats(tensor):
    assert tensor[0] == "F32"
    return array.array("f", tensor[2])


def probe(model, *args, ranks=0, batch=None, code=0):
    model = FIXTURES / model if isinstance(model, str) else model
    text = run(BIN / "tfm-probe", model, "--batch", batch or model / "batch.safetensors", "--out", "out.safetensors", *args, ranks=ranks, code=code)
    return read("out.safetensors") if code == 0 else text


def compare(what, want, got, rows=None, tolerance=1e-6):
    assert want[1] == got[1], f"{what}: shape {got[1]}, expected {want[1]}"
    width = want[1][-1]
    a, b = floats(want), floats(got)
    scale = max(1, max(map(abs, a)))
    for r in range(len(a) // width):
        if rows and not rows(r, want[1]):
            continue
        error = max(abs(x - y) for x, y in zip(a[r * width:(r + 1) * width], b[r * width:(r + 1) * width]))
        assert error <= tolerance * scale, f"{what}: row {r} differs by {error} at a scale of {scale}"


def check_against_transformers():
    for folder in sorted(p.parent for p in FIXTURES.glob("*/inside.safetensors")):
        batch = read(folder / "batch.safetensors")
        found = probe(folder, "--activations", "all", "--attention", "all")
        masks = {part: array.array("q", batch[k][2]) for part, k in (("encoder", "attention_mask"), ("decoder", "decoder_attention_mask")) if k in batch}
        for name, want in read(folder / "inside.safetensors").items():
            mask = masks.get("decoder" if "decoder" in name or "cross" in name else "encoder")
            real = lambda r, shape: not mask or shape[-2] * shape[0] != len(mask) or mask[r // math.prod(shape[1:-1]) * shape[-2] + r % shape[-2]]
            compare(f"{folder.name} {name}", want, found[name], rows=real)


def check_layouts():
    for model, layouts in LAYOUTS.items():
        one = probe(model, "--activations", "all", "--attention", "all")
        for ranks, args in layouts:
            found = probe(model, "--activations", "all", "--attention", "all", *args, ranks=ranks)
            assert found.keys() == one.keys()
            for name, want in one.items():
                if not name.startswith("logits"):  # test_exchange.py compares them
                    compare(f"{model} on {ranks} ranks {args}: {name}", want, found[name], tolerance=2e-5 if model == "qwen3_next_1" else 1e-6)


def check_names():
    for model in ("bart_3", "qwen3_next_1", "gpt2_1"):
        folder = FIXTURES / model
        found = probe(model, "--activations", "all", "--attention", "all")
        listed = run(BIN / "tfm-probe", folder, "--list", "--batch", folder / "batch.safetensors").splitlines()
        assert listed == [f"{k} ({', '.join(map(str, v[1]))})" for k, v in found.items() if not k.startswith(("logits", "loss"))], listed
    letters = run(BIN / "tfm-probe", FIXTURES / "bart_3", "--list")
    assert "encoder.layers.0.ffn.hidden (B, S, " in letters and "attention.cross.1 (B, 4, T, S)" in letters, letters
    for model in ("big_bird_0", "longformer_0"):  # also in sequences so short that all see all
        for batch in ([], ["--batch", FIXTURES / model / "batch.safetensors"]):
            assert "attention.0 " not in run(BIN / "tfm-probe", FIXTURES / model, "--list", *batch), (model, batch)
    for model, layers in (("gemma3_text_0", "01"), ("modernbert_0", "012"), ("qwen3_next_1", "3")):  # local and global; one of four
        listed = run(BIN / "tfm-probe", FIXTURES / model, "--list")
        assert re.findall(r"^attention\.(\d) \(", listed, re.MULTILINE) == list(layers), (model, listed)
    found = probe("sentence_bert", "--activations", "all")
    assert (found["embedding"][1], found["embeddings"][1]) == ([8, 16], [8, 7, 16])
    found = probe("gpt2_1", "--activations", "layers.*.output", "layers.0.ffn.*", "--attention", "1:2", "1:0", "0")
    assert [k for k in found if k.startswith("layers")] == ["layers.0.ffn.hidden", "layers.0.ffn.output", "layers.0.output", "layers.1.output"]
    every = probe("gpt2_1", "--attention", "all")
    assert found["attention.0"] == every["attention.0"]
    one, rows = floats(every["attention.1"]), 7 * 7
    assert floats(found["attention.1"]) == one[2 * rows:] + one[:rows]


def zeroed(source, tensor, columns):
    """A copy of the model whose weight (rows, columns) is zero in these columns."""
    folder = pathlib.Path("zeroed")
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes((FIXTURES / source / "config.json").read_bytes())
    weights = read(FIXTURES / source / "model.safetensors")
    dtype, shape, raw = weights[tensor]
    values = array.array("f", raw)
    for i in range(len(values)):
        if i % shape[1] in columns:
            values[i] = 0
    write(folder / "model.safetensors", {**weights, tensor: (dtype, shape, values.tobytes())})
    return folder


def check_ablation():
    model, batch, tensor = "gemma2_0", FIXTURES / "gemma2_0/batch.safetensors", ["parallel.tensor=2"]
    loss = floats(probe(model)["loss"])[0]
    units = zeroed(model, "model.layers.1.mlp.down_proj.weight", {3, 17})
    size = read(FIXTURES / model / "model.safetensors")["model.layers.0.self_attn.o_proj.weight"][1][1] // 4
    want, found = probe(units, batch=batch)["loss"], probe(model, "--ablate", "layers.1.ffn:unit=3,17")
    assert found["loss.ablated"] == want and floats(found["loss"])[0] == loss != floats(want)[0], (floats(found["loss.ablated"]), floats(want))
    found = probe(model, "--ablate", "layers.1.ffn:unit=3", "--ablate", "layers.1.ffn:unit=17", *tensor, ranks=2)
    assert found["loss.ablated"] == probe(units, *tensor, ranks=2, batch=batch)["loss"]
    heads = [floats(probe(zeroed(model, "model.layers.0.self_attn.o_proj.weight", range(h * size, (h + 1) * size)), batch=batch)["loss"])[0]
             for h in range(4)]
    for ranks, args in ((0, []), (2, tensor), (2, ["parallel.pipeline=2"])):
        found = probe(model, "--ablate", "layers.0.attention:head=all", *args, ranks=ranks)
        assert found["ablation.layers.0.attention"][1] == [4]
        for h, change in enumerate(floats(found["ablation.layers.0.attention"])):
            assert abs(change - (heads[h] - loss)) <= 2e-6, (ranks, h, change, heads[h] - loss)


def check_patch():
    source = read(FIXTURES / "gemma2_0/batch.safetensors")
    dtype, shape, raw = source["input_ids"]
    other = array.array("q", raw)
    other.reverse()
    write("other.safetensors", {**source, "input_ids": (dtype, shape, other.tobytes())})
    want = probe("gemma2_0", "--activations", "layers.0.output", "layers.1.attention.output", batch="other.safetensors")
    write("patch.safetensors", {"layers.0.output": want["layers.0.output"]})
    for ranks, args in ((0, []), (4, ["parallel.pipeline=2", "parallel.context=2"]), (2, ["parallel.tensor=2", "parallel.sequence=true"])):
        found = probe("gemma2_0", "--patch", "layers.0.output=patch.safetensors", "--activations", "layers.1.attention.output", *args, ranks=ranks)
        compare(f"patched on {ranks} ranks", want["loss"], found["loss.patched"])
        compare(f"patched on {ranks} ranks", want["layers.1.attention.output"], found["layers.1.attention.output"])


def check_terms_of_routers():
    """With a value that is replaced by itself, the loss is the run's, with what routers add to it."""
    for model, layer in (("mixtral_5", "layers.0.output"), ("gpt_oss_5", "layers.1.output"), ("switch_transformers_4", "encoder.layers.0.output")):
        loss = floats(probe(model, "--activations", layer)["loss"])[0]
        pathlib.Path("out.safetensors").rename("same.safetensors")
        for args in ([], ["model.experts.balance.over=sequence", "model.experts.balance.coefficient=0.5", "model.experts.z_loss=0.1"]):
            for ranks, layout in ((0, []), (2, ["parallel.tensor=2"]), (2, ["parallel.expert=2"])):
                found = probe(model, "--patch", f"{layer}=same.safetensors", *args, *layout, ranks=ranks)
                want, got = floats(found["loss"])[0], floats(found["loss.patched"])[0]
                assert abs(got - want) <= 1e-6 * want and (want == loss or args or ranks), (model, args, layout, want, got, loss)
        assert want > loss + 0.1, (model, want, loss)


def check_refusals():
    write("patch.safetensors", {"x": ("F32", [1, 1], struct.pack("f", 0))})
    for model, args, says, code in (
            ("gpt2_1", ["--activations", "layers.0.outptu"], "did you mean 'layers.0.output'?", 2),
            ("gpt2_1", ["--activations", "layers.7.ffn.hidden"], "did you mean 'layers.0.ffn.hidden'?", 2),
            ("gpt2_1", ["--activations", "layers.*.nothing"], "--list shows all names", 2),
            ("gpt2_1", ["--attention", "2"], "expected a layer of the model, one of 0, 1", 2),
            ("gpt2_1", ["--attention", "0:3"], "expected a head from 0 to 2", 2),
            ("gpt2_1", ["--attention", "0:x"], "expected a head from 0 to 2", 2),
            ("bart_3", ["--attention", "0"], "one of encoder.0", 2),
            ("qwen3_next_1", ["--attention", "0"], "attention of type gated_delta", 2),
            ("gpt2_1", ["--ablate", "layers.0.ffn:unit=19"], "numbers from 0 to 18", 2),
            ("gpt2_1", ["--ablate", "layers.0.ffn:unit="], "numbers from 0 to 18", 2),
            ("gpt2_1", ["--ablate", "layers.5.attention:head=0"], "did you mean 'layers.0.attention'?", 2),
            ("gpt2_1", ["--ablate", "layers.0.ffn"], "expected PART:unit=I", 2),
            ("gpt2_1", ["--ablate", "layers.0.ffn:unit=all", "--ablate", "layers.0.ffn:unit=all"], "'layers.0.ffn' is asked for twice", 2),
            ("gpt2_1", ["--ablate", "layers.0.ffn:unit=3", "--ablate", "layers.0.ffn:unit=all"], "'layers.0.ffn' is asked for twice", 2),
            ("gpt2_1", ["--ablate", "layers.0.ffn:unit=3", "--out", "gone/out.safetensors"], "--out 'gone/out.safetensors' cannot be written", 2),
            ("big_bird_1", ["--attention", "0"], "blocks that count several times", 2),
            ("longformer_0", ["--attention", "all"], "projections of global tokens", 2),
            ("gpt2_1", ["--patch", "layers.0.output"], "expected NAME=FILE", 2),
            ("gpt2_1", ["--patch", "layers.0.outpt=patch.safetensors"], "did you mean 'layers.0.output'?", 2),
            ("gpt2_1", ["--patch", "layers.0.output=patch.safetensors"], "expected (1, 7, 18)", 3)):
        text = probe(model, *args, code=code)
        assert says in text, (args, text)


def check_report():
    probe("bart_3", "--activations", "*.layers.*.output", "*.embeddings", "--attention", "all")
    run(BIN / "tfm-report", "--probe", "out.safetensors", "-o", "inside.html")
    page = pathlib.Path("inside.html").read_text()
    for title in ("Norm of the residual stream of the encoder", "attention.encoder.0, head 0", "attention.cross.1, head 3"):
        assert f"<h3>{title}</h3>" in page, title
    for svg in re.findall(r"<svg role=.*?</svg></div>", page, re.DOTALL):
        xml.etree.ElementTree.fromstring(svg.removesuffix("</div>"))
    batch = read(FIXTURES / "bart_3/batch.safetensors")
    assert f">1 {array.array('q', batch['input_ids'][2])[1]}</text>" in page
    assert "expected --probe FILE" in run(BIN / "tfm-report", FIXTURES, "--tokenizer", "bytes", "-o", "x.html", code=2)
    rows = re.findall(r"<td>decoder.layers.1.output</td><td>([\d.]+)</td>", page)
    dtype, shape, raw = read("out.safetensors")["decoder.layers.1.output"]
    values, width = array.array("f", raw), shape[2]
    norms = [math.sqrt(sum(x * x for x in values[t * width:(t + 1) * width])) for t in range(shape[1])]
    assert abs(float(rows[0]) - sum(norms) / len(norms)) < 1e-3 * float(rows[0]), (rows, norms)
    assert "there is nothing to draw" in run(BIN / "tfm-report", "--probe", FIXTURES / "bart_3/batch.safetensors", "-o", "x.html", code=3)
    write("texts.safetensors", {"input_ids": ("I64", [1, 3], array.array("q", list(b"A<B")).tobytes())})
    probe("gemma2_1", "--attention", "0", batch="texts.safetensors")
    run(BIN / "tfm-report", "--probe", "out.safetensors", "--tokenizer", "bytes", "-o", "named.html")
    named = pathlib.Path("named.html").read_text()
    assert all(f">{label}</text>" in named for label in ("0 A", "1 &lt;", "2 B")), named


# Parameters as in tests/models/test_presets.cpp, where they are compared with what was published.
PUBLISHED = {"gpt2-124m": 124439808, "bert-base": 109514298, "t5-base": 222903552, "llama-8b": 8030261248, "transformer-base": 63082496}


def check_table():
    for preset, parameters in PUBLISHED.items():
        family = {"bert": "encoder", "t5": "encoder_decoder", "tran": "encoder_decoder"}.get(preset.split("-")[0][:4], "decoder")
        data = {"encoder": "{type: mlm, path: x}", "encoder_decoder": "{type: pairs, source: x, target: x}"}.get(family, "{type: text, path: x}")
        pathlib.Path("cfg.yaml").write_text(f"model: {{preset: {preset}}}\ntrain: {{steps: 1, seq_len: 64, global_batch_size: 8, micro_batch_size: 1}}\n"
                                            f"data: {{train: {data}, tokenizer: bytes}}\n")
        for args in ([], ["--ranks", "8", "parallel.tensor=2", "parallel.pipeline=2"]) if preset in ("gpt2-124m", "t5-base") else ([],):
            plan = json.loads(run(BIN / "tfm-plan", "cfg.yaml", "--table", "--json", *args))
            total = {key: sum(row[key] for row in plan["table"]) for key in ("parameters", "flops", "activation_bytes")}
            assert total["parameters"] == plan["parameters"] == parameters, (preset, total, plan["parameters"])
            assert math.isclose(total["flops"], plan["flops_per_step"], rel_tol=1e-9), (preset, total, plan["flops_per_step"])
            rows = {row["name"]: row for row in plan["table"]}
            if preset == "gpt2-124m":  # 12 layers of width 768: 4 d^2 + 4 d and 8 d^2 + 5 d
                assert [(rows[k]["times"], rows[k]["parameters"]) for k in ("layers.0.attention", "layers.0.ffn", "layers.0.ffn_norm", "embedding")] == [
                    (12, 12 * 2362368), (12, 12 * 4722432), (12, 12 * 1536), (1, 50257 * 768)], rows
                assert rows["layers.0.ffn"]["flops"] == 6 * 8 * 64 * 12 * 8 * 768 * 768 and rows["layers.0.ffn"]["activation_bytes"] > 0
    text = run(BIN / "tfm-plan", "cfg.yaml", "--table")
    assert re.search(r"^sum +63082496 +[\d.e+]+ *$", text, re.MULTILINE) and "query.weight 512x512" in text, text
    trace = run(BIN / "tfm-plan", "cfg.yaml", "--trace")
    assert re.search(r"^decoder.layers.0.cross_attention.linear +linear +\(64, 512\)", trace, re.MULTILINE) and "layers.1." not in trace, trace


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for check in (check_against_transformers, check_layouts, check_names, check_ablation, check_patch, check_terms_of_routers, check_refusals, check_report, check_table):
        check()
        print("ok", check.__name__)
