"""Hugging Face directories (tests/fixtures/huggingface, computed by transformers): logits, loss and gradients on several layouts, import
and export without a byte changed, training from them, and messages for what is wrong with them.

usage: test_exchange.py BIN [--all]    (without: fewer layouts)
"""
import array
import ctypes
import json
import math
import mmap
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from tier import ALL, some

BIN = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = sorted((ROOT / "tests/fixtures/huggingface").iterdir())
DIVIDES = {"gpt2": ("n_head", "n_inner"), "llama": ("num_key_value_heads", "intermediate_size"), "bert": ("num_attention_heads", "intermediate_size"),
           "t5": ("num_heads", "d_ff"), "bart": ("encoder_attention_heads", "encoder_ffn_dim"), "marian": ("encoder_attention_heads", "encoder_ffn_dim"),
           "m2m_100": ("encoder_attention_heads", "encoder_ffn_dim"), "modernbert": ("num_attention_heads", "intermediate_size"),
           "bamba": ("num_key_value_heads", "mamba_n_groups"),
           "qwen3_next": ("num_key_value_heads", "linear_num_key_heads", "moe_intermediate_size", "shared_expert_intermediate_size"),
           "switch_transformers": ("num_heads", "d_ff"), **dict.fromkeys(("big_bird", "longformer"), ("num_attention_heads", "intermediate_size")),
           **dict.fromkeys(("gemma2", "gemma3_text", "gpt_oss", "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen3"), ("num_key_value_heads", "intermediate_size")),
           "deepseek_v3": ("num_attention_heads", "intermediate_size", "moe_intermediate_size"),
           "roberta": ("num_attention_heads", "intermediate_size"), "distilbert": ("n_heads", "hidden_dim"),
           "qwen2_moe": ("num_key_value_heads", "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"),
           "qwen3_moe": ("num_key_value_heads", "intermediate_size", "moe_intermediate_size")}


def run(*command, ranks=0, code=0):
    command = [str(c) for c in command]
    if ranks > 0:
        command = [str(ROOT / "tests/mpirun.sh"), str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == code, f"{command}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def tensors(path):
    """name -> (type, shape, bytes)."""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in header.items() if k != "__metadata__"}


def write_tensors(path, content):
    header, data = {}, b""
    for name, (dtype, shape, raw) in content.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def floats(tensor):
    assert tensor[0] == "F32"
    return array.array("f", tensor[2])


def norm(values):
    return math.sqrt(sum(x * x for x in values))


def compared_rows(config, batch):
    """Of logits: all but those of padding of RoBERTa, to which transformers gives a position of its own, of BigBird and Longformer, of
    Gemma, where queries that see no key get the mean of all values, and of Qwen3-Next, which reads its states."""
    ids, mask = (array.array("q", batch[k][2]) for k in ("input_ids", "attention_mask" if "attention_mask" in batch else "input_ids"))
    padded = lambda r: mask[r] == 0
    hidden = {"roberta": lambda r: ids[r] == config["pad_token_id"],
              **dict.fromkeys(("bamba", "big_bird", "gemma2", "longformer", "qwen3_next"), padded)}.get(config["model_type"], lambda r: False)
    return [r for r in range(len(ids)) if not hidden(r)]


def compare(name, expected, found, rows):
    logits = next(name for name in expected if name.startswith(("logits", "embedding")))  # of a head for labels with its name
    assert found[logits][1] == expected[logits][1]
    V = expected[logits][1][-1]
    want, got = ([x for r in rows for x in all_[r * V:(r + 1) * V]] for all_ in (floats(expected[logits]), floats(found[logits])))
    largest = max(map(abs, want))
    error = max(abs(a - b) for a, b in zip(want, got))
    assert error <= 2e-5 * max(1, largest / 5), f"{name}: logits differ by {error}"
    want, got = floats(expected["loss"])[0], floats(found["loss"])[0]
    assert abs(got - want) <= 1e-6 * abs(want), f"{name}: loss {got}, expected {want}"
    gradients = {k: floats(v) for k, v in expected.items() if k.startswith("grad.")}
    noise = 2e-7 * norm(norm(g) for g in gradients.values())  # of gradients that are zero in exact arithmetic, as a key's bias
    for k, g in gradients.items():
        assert found[k][1] == expected[k][1], k
        difference = norm(a - b for a, b in zip(g, floats(found[k])))
        assert difference <= 1e-4 * norm(g) + noise, f"{name}: {k} differs by {difference} of {norm(g)}"


# Whose blocks and positions four ranks can share.
IN_STAGES = {"bart_1", "bert_3", "gemma2_0", "gemma3_text_0", "gpt2_1", "gpt_oss_0", "llama_1", "mistral_window_0", "modernbert_1", "olmo2_1", "phi3_1", "t5_1"}


def check_against_transformers():
    """Each model on one rank; every second one on one of its other layouts, too, with --all each on all of them."""
    for number, folder in enumerate(FIXTURES):
        config = json.loads((folder / "config.json").read_text())
        sizes = [config[k] for k in DIVIDES[config["model_type"]] if config.get(k)]
        layouts = [(1, [])] + ([(2, ["parallel.tensor=2"]), (4, ["parallel.tensor=2"])] if all(s % 2 == 0 for s in sizes) else [(2, [])])
        if folder.name in IN_STAGES:
            layouts += [(2, ["parallel.context=2"]), (4, ["parallel.pipeline=2"]), (4, ["parallel.pipeline=2", "parallel.context=2"])]
        if next((config[k] for k in ("num_local_experts", "num_experts", "n_routed_experts") if k in config), 1) % 2 == 0:
            layouts += [(2, ["parallel.expert=2"])] + ([(4, ["parallel.expert=2", "parallel.tensor=2"])] if len(layouts) > 2 else [])
        expected = tensors(folder / "expected.safetensors")
        batch = tensors(folder / "batch.safetensors")
        logits = next(name for name in expected if name.startswith(("logits", "embedding")))
        of_tokens = len(expected[logits][1]) == 3 and not config.get("is_encoder_decoder")
        rows = compared_rows(config, batch) if of_tokens else range(math.prod(expected[logits][1][:-1]))
        for ranks, args in some(layouts, len(layouts) - 1) if ALL or number % 2 == 0 else layouts[:1]:
            run(BIN / "tfm-probe", folder, "--batch", folder / "batch.safetensors", "--out", "out.safetensors", "--gradients", *args,
                ranks=ranks if ranks > 1 else 0)
            compare(f"{folder.name} on {ranks} ranks", expected, tensors(pathlib.Path("out.safetensors")), rows)


def int64s(shape, values):
    return "I64", shape, struct.pack(f"<{math.prod(shape)}q", *values)


def edited(folder, name, changes={}, without=()):
    """A fixture with other members of config.json (..., to take one away), and without some tensors."""
    source = ROOT / "tests/fixtures/huggingface" / name
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config = {**json.loads((source / "config.json").read_text()), **changes}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
    write_tensors(folder / "model.safetensors", {k: v for k, v in tensors(source / "model.safetensors").items() if k not in without})
    return folder


def probed(folder, batch):
    write_tensors(pathlib.Path("batch.safetensors"), batch)
    run(BIN / "tfm-probe", folder, "--batch", "batch.safetensors", "--out", "out.safetensors", "--gradients")
    return tensors(pathlib.Path("out.safetensors"))


def check_members_of_config():
    """What transformers reads from several members, or from one of two names, or from none."""
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    original = {"original_max_position_embeddings": 16}
    plain = {"rope_type": "default", "rope_theta": 7.0}
    rotary = {"rope_parameters": {**llama3, **original, "rope_theta": 50.0}}
    renamed = {"gpt2_0": {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
                          "n_positions": "max_position_embeddings"},
               "t5_0": {"d_model": "hidden_size", "num_layers": "num_hidden_layers", "num_heads": "num_attention_heads",
                        "d_kv": "head_dim"},
               **dict.fromkeys(("bart_0", "marian_0"), {"d_model": "hidden_size", "encoder_layers": "num_hidden_layers",
                                                        "encoder_attention_heads": "num_attention_heads"})}
    cases = [("llama_0", rotary, changes) for changes in (
        {"rope_scaling": {**llama3, **original}, "rope_parameters": plain, "rope_theta": 50.0},
        {"rope_scaling": {**llama3, **original, "rope_theta": 50.0}, "rope_theta": 7.0},
        {"rope_scaling": {}, **rotary, "rope_theta": 7.0},
        {"rope_scaling": {**llama3, "original_max_position_embeddings": 32}, "rope_theta": 50.0, **original},
        {"rope_scaling": llama3, "rope_theta": 50.0, **original},
        {"rope_parameters": {**llama3, "rope_theta": 50.0}, "max_position_embeddings": 16})]
    for name, names in renamed.items():
        config = json.loads((ROOT / "tests/fixtures/huggingface" / name / "config.json").read_text())
        cases += [(name, {}, {**dict.fromkeys(names, ...), **{theirs: config[ours] for ours, theirs in names.items()}})]
    rope = json.loads((ROOT / "tests/fixtures/huggingface/bamba_0/config.json").read_text())["rope_parameters"]
    del rope["partial_rotary_factor"]
    cases += [("bamba_0", {}, {"rope_parameters": rope, **dict.fromkeys(("mamba_d_conv", "mamba_d_head", "mamba_expand"), ...)}),
              ("bamba_3", {}, dict.fromkeys(("mamba_n_groups", "mamba_conv_bias", "mamba_proj_bias", "time_step_limit", "z_loss_coefficient",
                                             "attn_layer_indices", "attention_bias", "mlp_bias"), ...))]
    for name, one, other in cases:
        batch = tensors(ROOT / "tests/fixtures/huggingface" / name / "batch.safetensors")
        assert probed(edited("one", name, one), batch) == probed(edited("other", name, other), batch), (name, other)
        run(BIN / "tfm-convert", "export", "other", "again", "--force")
        assert probed("again", batch) == probed("other", batch), (name, other)
        if name in renamed:
            after = json.loads(pathlib.Path("again/config.json").read_text())
            assert all(after[theirs] == after[ours] == other[theirs] for ours, theirs in renamed[name].items()), after
    batch = tensors(ROOT / "tests/fixtures/huggingface/llama_0/batch.safetensors")
    assert probed(edited("one", "llama_0", rotary), batch) != probed(edited("other", "llama_0", {"rope_parameters": plain}), batch)


def check_padding_ids():
    """pad_token_id: whose embedding gets no gradient, null: nobody's; and what stands behind a label that is ignored."""
    for name, table in (("bert_1", "grad.bert.embeddings.word_embeddings.weight"), ("bart_1", "grad.model.shared.weight")):
        source = ROOT / "tests/fixtures/huggingface" / name
        batch = tensors(source / "batch.safetensors")
        ids = {k: array.array("q", batch[k][2]) for k in ("input_ids", "decoder_input_ids") if k in batch}
        used, unused = ids["input_ids"][0], next(i for i in range(50) if all(i not in values for values in ids.values()))
        none, with_, without = (probed(edited("edited", name, {"pad_token_id": pad}), batch)[table] for pad in (None, used, unused))
        assert none == without != with_, name
    batch = tensors(ROOT / "tests/fixtures/huggingface/t5_2/batch.safetensors")
    shape, labels = batch["labels"][1], array.array("q", batch["labels"][2])
    assert "decoder_input_ids" not in batch and -100 in labels[:-1]
    start = json.loads((ROOT / "tests/fixtures/huggingface/t5_2/config.json").read_text())["decoder_start_token_id"]
    for pad in (0, 3):
        folder = edited("edited", "t5_2", {"pad_token_id": pad})
        behind = [start if i % shape[1] == 0 else pad if labels[i - 1] == -100 else labels[i - 1] for i in range(len(labels))]
        expected = probed(folder, {**batch, "decoder_input_ids": int64s(shape, behind)})
        run(BIN / "tfm-convert", "import", folder, f"padded_{pad}")
        assert expected == probed(folder, batch) == probed(f"padded_{pad}", batch), pad
    unpadded = edited("edited", "t5_2", {"pad_token_id": None})
    out = run(BIN / "tfm-probe", unpadded, "--batch", "batch.safetensors", "--out", "out.safetensors", code=3)
    assert "pad_token_id is null" in out, out


def check_tensors_of_none():
    """A head without final_logits_bias has none; what transformers 5 has and does not use gets no gradient."""
    for name in ("bart_0", "marian_0"):
        source = ROOT / "tests/fixtures/huggingface" / name
        batch, content = tensors(source / "batch.safetensors"), tensors(source / "model.safetensors")
        zeros = edited("zeros", name)
        dtype, shape, raw = content["final_logits_bias"]
        write_tensors(zeros / "model.safetensors", {**content, "final_logits_bias": (dtype, shape, bytes(len(raw)))})
        without, with_ = probed(edited("without", name, without=["final_logits_bias"]), batch), probed(zeros, batch)
        assert without == with_, name
        run(BIN / "tfm-convert", "import", zeros, "zeros_imported")
        run(BIN / "tfm-convert", "export", "zeros_imported", "zeros_again")
        assert tensors(pathlib.Path("zeros_again/model.safetensors")) == tensors(zeros / "model.safetensors"), name
        for folder in ("zeros_imported", "zeros_again"):
            shutil.rmtree(folder)
        assert without["logits"] != probed(source, batch)["logits"], name
    for name, unused in (("bart_0", "model.shared.weight"), ("bert_0", "cls.predictions.bias"), ("roberta_3", "lm_head.bias")):
        source = ROOT / "tests/fixtures/huggingface" / name
        assert not any(probed(source, tensors(source / "batch.safetensors"))["grad." + unused][2]), name


BASE = {"gpt2": "transformer.", "bert": "bert.", "roberta": "roberta.", "t5": "transformer."}  # and "model." of others
TIED = {"gpt2": [["transformer.wte.weight", "lm_head.weight"]],
        "bert": [["bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"], ["cls.predictions.bias", "cls.predictions.decoder.bias"]],
        "roberta": [["roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"], ["lm_head.bias", "lm_head.decoder.bias"]],
        "t5": [["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"]],
        "bart": [[f"model.{stack}.weight" for stack in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")] + ["lm_head.weight"]],
        "marian_2": [["model.decoder.embed_tokens.weight", "lm_head.weight"]],
        **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), [["model.embed_tokens.weight", "lm_head.weight"]])}
TIED["marian"] = TIED["bart"]


def other_names(kind, sets, content):
    """Files that from_pretrained loads as the same model, each with what an export has besides the names that save_pretrained writes."""
    base = BASE.get(kind, "model.")
    without = {name.removeprefix(base): tensor for name, tensor in content.items()}
    yield without, {}
    yield {name if name.startswith(base) else base + name: tensor for name, tensor in content.items()}, {}
    for first, *others in sets:
        table, rest = content[first], {name: tensor for name, tensor in content.items() if name != first}
        for name in others:
            yield {**rest, name: table}, {}
        yield {**content, **dict.fromkeys(others, table)}, dict.fromkeys(others, table)
        yield {**rest, **dict.fromkeys(others, table)}, dict.fromkeys(others[1:], table)
        yield {**{name: tensor for name, tensor in without.items() if name != first.removeprefix(base)}, others[-1]: table}, {}
    if kind in ("bert", "roberta"):
        yield {re.sub("LayerNorm.weight$", "LayerNorm.gamma", re.sub("LayerNorm.bias$", "LayerNorm.beta", name)): tensor
               for name, tensor in content.items()}, {}


def check_names_of_tensors():
    """With and without the base model's prefix, older names, a tied table under any of its names: the same model, exported under the names of
    save_pretrained."""
    looked = 0
    for name in ("gpt2_1", "llama_1", "llama_5", "mistral_1", "qwen2_1", "qwen3_1", "bert_1", "bert_3", "roberta_0", "t5_0", "bart_1", "marian_0",
                 "marian_2"):
        source = ROOT / "tests/fixtures/huggingface" / name
        kind, content, batch = name.split("_")[0], tensors(source / "model.safetensors"), tensors(source / "batch.safetensors")
        sets = [names for names in TIED.get(name, TIED[kind]) if names[0] in content and not set(names[1:]) & set(content)]
        expected = probed(source, batch)
        for stored, copies in other_names(kind, sets, content):
            looked += 1
            folder = edited("named", name)
            write_tensors(folder / "model.safetensors", stored)
            assert probed(folder, batch) == expected, (name, sorted(set(stored) - set(content)))
            run(BIN / "tfm-convert", "export", folder, "named_again")
            assert tensors(pathlib.Path("named_again/model.safetensors")) == {**content, **copies}, (name, sorted(set(stored) - set(content)))
            shutil.rmtree("named_again")
    assert looked > 60, looked
    # In shards, of the base model, a table under its other name.
    folder = edited("named", "gpt2_1")
    content = tensors(folder / "model.safetensors")
    stored = {name.replace("transformer.wte", "lm_head").removeprefix("transformer."): tensor for name, tensor in content.items()}
    (folder / "model.safetensors").unlink()
    shards = {f"model-0000{i + 1}-of-00002.safetensors": sorted(stored)[i::2] for i in range(2)}
    for file, names in shards.items():
        write_tensors(folder / file, {name: stored[name] for name in names})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {name: file for file, names in shards.items() for name in names}}))
    batch = tensors(ROOT / "tests/fixtures/huggingface/gpt2_1/batch.safetensors")
    assert probed(folder, batch) == probed(ROOT / "tests/fixtures/huggingface/gpt2_1", batch)
    # What version 4 saves where only the output layer is untied.
    for name in ("bart_1", "marian_0"):
        folder = edited("named", name, {"tie_word_embeddings": False})
        content = tensors(folder / "model.safetensors")
        dtype, shape, raw = content["model.shared.weight"]
        write_tensors(folder / "model.safetensors", {**content, "lm_head.weight": (dtype, shape, raw[4:] + raw[:4])})
        batch = tensors(ROOT / "tests/fixtures/huggingface" / name / "batch.safetensors")
        assert probed(folder, batch)["logits"] != probed(ROOT / "tests/fixtures/huggingface" / name, batch)["logits"], name
    # Numbers that models from fairseq have and nobody uses.
    folder = edited("named", "bart_1")
    content = {**tensors(folder / "model.safetensors"), "model.encoder.version": ("F32", [1], bytes(4))}
    write_tensors(folder / "model.safetensors", content)
    run(BIN / "tfm-convert", "export", folder, "named_again")
    assert tensors(pathlib.Path("named_again/model.safetensors")) == content


def check_missing_tensors():
    """What transformers would initialize is refused, with the part of the model, its shape, and why no other tensor stands for it."""
    def refused(name, change, *texts, changes={}):
        folder = edited("broken_names", name, changes)
        write_tensors(folder / "model.safetensors", change(tensors(folder / "model.safetensors")))
        out = run(BIN / "tfm-convert", "import", folder, "bad", code=3)
        assert all(text in out for text in texts), out

    def encoder_alone(content, base):
        return {name.removeprefix(base): tensor for name, tensor in content.items() if name.startswith(base)}

    untied = {"tie_word_embeddings": False}
    for name, table in (("bart_1", "lm_head.weight"), ("marian_0", "lm_head.weight"), ("marian_2", "lm_head.weight"), ("gpt2_1", "lm_head.weight"),
                        ("mistral_1", "lm_head.weight"), ("bert_1", "cls.predictions.decoder.weight"), ("roberta_0", "lm_head.decoder.weight")):
        refused(name, lambda content: content, f"'{table}' is missing; expected shape (", "the model's head.weight", "tie_word_embeddings", changes=untied)
    for name, table, part in (("gpt2_1", "transformer.wte.weight", "embedding"), ("bart_1", "model.encoder.embed_tokens.weight", "encoder.embedding"),
                              ("marian_0", "model.encoder.embed_tokens.weight", "encoder.embedding")):
        stored = TIED[name.split("_")[0]][0][0]
        refused(name, lambda content: {**{k: v for k, v in content.items() if k != stored}, "lm_head.weight": content[stored]},
                f"'{table}' is missing", f"the model's {part}.weight", changes=untied)
    refused("llama_5", lambda content: {k: v for k, v in content.items() if "embed" not in k}, "or its copy 'lm_head.weight'")
    refused("gpt2_1", lambda content: {f"module.{k}": v for k, v in content.items()}, "begin with 'module.'", "DistributedDataParallel")
    refused("bert_1", lambda content: {**content, "embeddings.position_embeddings.weight": content["bert.embeddings.position_embeddings.weight"]},
            "is stored twice, also as '")
    for name, base, named, ours in (("roberta_0", "roberta.", "RobertaForTokenClassification", "RobertaForMaskedLM"),
                                    ("llama_2", "model.", "LlamaModel", "LlamaForCausalLM")):
        refused(name, lambda content: encoder_alone(content, base), "is missing; expected shape (", "the model's head.",
                f"'{named}', which config.json names, is not supported: tfm reads the directory as {ours}", f"{ours}.from_pretrained",
                changes={"architectures": [named]})
    refused("gpt2_1", lambda content: {**content, "score.weight": content["transformer.wte.weight"]}, "'score.weight' is unknown",
            "'GPT2ForSequenceClassification', which config.json names", changes={"architectures": ["GPT2ForSequenceClassification"]})
    out = run(BIN / "tfm-convert", "import", ROOT / "tests/fixtures/huggingface/bert_1", "bert_named")
    assert "not supported" not in out, out


def check_headless():
    """An encoder of a class without head makes vectors, by the mean of its tokens; of a file with a head it predicts tokens."""
    for name in ("sentence_bert", "sentence_roberta", "sentence_distilbert", "sentence_modernbert"):
        source = ROOT / "tests/fixtures/huggingface" / name
        folder = edited("headless", name)  # without modules.json
        found = probed(folder, tensors(source / "batch.safetensors"))
        assert found["embedding"][1] == [8, 16], (name, found.keys())
        run(BIN / "tfm-convert", "import", folder, "of_headless")
        run(BIN / "tfm-convert", "export", "of_headless", "headless_again")
        assert tensors(folder / "model.safetensors") == tensors(pathlib.Path("headless_again/model.safetensors")), name
        shutil.rmtree("of_headless"), shutil.rmtree("headless_again")
        if name == "sentence_bert":  # whose modules say the same
            expected = tensors(source / "expected.safetensors")
            compare(name, expected, found, range(8))
    for name, alone in (("bert_2", "BertModel"), ("roberta_1", "RobertaModel")):
        source = ROOT / "tests/fixtures/huggingface" / name
        batch = tensors(source / "batch.safetensors")
        assert probed(edited("named", name, {"architectures": [alone]}), batch) == probed(source, batch), name


def check_frozen_bias():
    """final_logits_bias, a buffer in transformers: used, stored, exported, but neither trained nor in norms and counts, unless asked for."""
    source = pathlib.Path("biased")
    shutil.copytree("exported_marian", source)
    content = tensors(source / "model.safetensors")
    V = content["model.shared.weight"][1][0]
    bias = ("F32", [1, V], array.array("f", [((i * 37) % 64 - 32) / 100 for i in range(V)]).tobytes())
    write_tensors(source / "model.safetensors", {**content, "final_logits_bias": bias})
    pathlib.Path("one.tsv").write_text("ab\tba\n" * 4)
    pathlib.Path("biased.yaml").write_text("model: {init: biased, dropout: 0}\ntrain: {steps: 3, global_batch_size: 4, seq_len: 16}\n"
                                           "optimizer: {lr: 1.0e-2, weight_decay: 0.1}\ncheckpoint: {dir: biased_ck}\n"
                                           "data: {train: {type: pairs, path: one.tsv}, tokenizer: bytes}\n")
    batch = {"input_ids": int64s([4, 3], 4 * [97, 98, 257]), "labels": int64s([4, 3], 4 * [98, 97, 257])}

    def trained(*args, ranks=0):
        for made in ("biased_ck", "biased_out"):
            shutil.rmtree(made, ignore_errors=True)
        run(BIN / "tfm-train", "biased.yaml", "metrics.jsonl=biased.jsonl", *args, ranks=ranks)
        run(BIN / "tfm-convert", "export", "biased_ck", "biased_out")
        lines = [json.loads(line) for line in open("biased.jsonl")]
        after = tensors(pathlib.Path("biased_out/model.safetensors"))
        assert lines[-1]["arena_high_water_bytes"] == lines[0]["planned_bytes"], args
        assert after["model.shared.weight"] != content["model.shared.weight"], args
        return lines[0], [line["grad_norm"] for line in lines if line["event"] == "step"], after["final_logits_bias"]

    found = probed(source, batch)
    assert "grad.final_logits_bias" not in found and found["logits"] != probed("exported_marian", batch)["logits"]
    expected = norm(norm(floats(v)) for k, v in found.items() if k.startswith("grad."))
    layouts = [(0, []), (2, ["parallel.tensor=2"]), (2, ["parallel.pipeline=2"]), *((2, [f"parallel.zero={zero}"]) for zero in (1, 2, 3)),
               (4, ["parallel.tensor=2", "parallel.zero=3"])]
    of_rules = [(2, [f"optimizer={{type: {rule}, lr: 1e-2}}", "parallel.zero=1"]) for rule in ("adam", "sgd", "lamb", "adafactor", "muon")]
    for ranks, args in [*layouts, *of_rules, (2, ["precision=bf16"]), (0, ["optimizer.ema=0.9"])]:
        start, norms, after = trained(*args, ranks=ranks)
        assert after == bias, args
        assert abs(norms[0] / expected - 1) < (0.05 if "precision=bf16" in args else 1e-5), (args, norms, expected)
        assert start["parameters"] == sum(math.prod(shape) for _, shape, _ in content.values()), start["parameters"]
    trained()
    weights = {name for shard in pathlib.Path("biased_ck/step-00000003").glob("*.safetensors") for name in tensors(shard)}
    assert "model/head.bias" in weights and "adam.m/decoder.layers.0.ffn.up.bias" in weights and "adam.m/head.bias" not in weights, weights
    planned = json.loads(run(BIN / "tfm-plan", "biased.yaml", "--ranks", 1, "--json"))
    assert planned["parameters"] == sum(math.prod(shape) for _, shape, _ in content.values())
    # Trained where that is asked for; a run that trained it resumes without its state.
    start, norms, after = trained("model.head_bias=true")
    assert after != bias and norms[0] > expected * 1.001 and start["parameters"] == planned["parameters"] + V
    out = run(BIN / "tfm-train", "biased.yaml", "train.steps=5")
    assert "resumed from biased_ck/step-00000003" in out and 'another model.head_bias: frozen from here on, "true" before' in out, out
    run(BIN / "tfm-convert", "export", "biased_ck", "biased_out", "--force")
    resumed = tensors(pathlib.Path("biased_out/model.safetensors"))
    assert resumed["final_logits_bias"] == after
    out = run(BIN / "tfm-train", "biased.yaml", "train.steps=6", "model.head_bias=true", code=2)
    assert "was written with model.head_bias frozen" in out, out
    run(BIN / "tfm-verify", "biased.yaml", "checkpoint.dir=none", ranks=2)


def padded(batch, columns):
    """The batch with `columns` more of padding on the right of every sequence."""
    out = {}
    if "attention_mask" not in batch:
        dtype, shape, raw = batch["input_ids"]
        batch = {**batch, "attention_mask": (dtype, shape, struct.pack("<q", 1) * (len(raw) // 8))}
    for name, (dtype, shape, raw) in batch.items():
        if len(shape) == 1:
            out[name] = (dtype, shape, raw)
            continue
        rows, width = shape
        fill = struct.pack("<q", -100 if name == "labels" else 0) * columns
        line = len(raw) // rows
        out[name] = (dtype, [rows, width + columns], b"".join(raw[r * line:(r + 1) * line] + fill for r in range(rows)))
    return out


def check_padding():
    worst = 0.0
    for folder in FIXTURES:
        config = json.loads((folder / "config.json").read_text())
        batch = tensors(folder / "batch.safetensors")
        room = config.get("n_positions") or config.get("max_position_embeddings") or 1000
        if config["model_type"] == "roberta":
            room -= config["pad_token_id"] + 1
        columns = min(5, room - max(shape[1] for _, shape, _ in batch.values() if len(shape) == 2))
        if columns < 1 or config.get("attention_type") == "block_sparse":  # the last block sees all, also one of padding
            continue
        write_tensors(pathlib.Path("padded.safetensors"), padded(batch, columns))
        losses = []
        for file in (folder / "batch.safetensors", "padded.safetensors"):
            run(BIN / "tfm-probe", folder, "--batch", file, "--out", "out.safetensors")
            losses.append(floats(tensors(pathlib.Path("out.safetensors"))["loss"])[0])
        worst = max(worst, abs(losses[1] / losses[0] - 1))
        assert abs(losses[1] / losses[0] - 1) <= 1e-6, f"{folder.name}: padding changes the loss from {losses[0]} to {losses[1]}"
    print(f"padding changes losses by {worst:.1e} at most")


def sinusoids(content):
    """MarianMT's tables of positions, of 16 rows, which some files have: sines, then cosines; one in F16."""
    width = content["model.shared.weight"][1][1]
    angles = [[p / 10000 ** (2 * i / width) for i in range(width // 2)] for p in range(16)]
    values = [f(a) for row in angles for f in (math.sin, math.cos) for a in row]
    return {f"model.{stack}.embed_positions.weight": (dtype, [16, width], struct.pack(f"<{len(values)}{kind}", *values))
            for stack, dtype, kind in (("encoder", "F32", "f"), ("decoder", "F16", "e"))}


def with_more():
    """Models whose files hold more than the model uses: a buffer, a copy of a tied table, a bias that another one overrides."""
    def turned(tensor):
        return (*tensor[:2], tensor[2][4:] + tensor[2][:4])
    more = {"gpt2_1": lambda t: {"transformer.h.0.attn.bias": ("BOOL", [1, 3], bytes([1, 0, 1])), "lm_head.weight": t["transformer.wte.weight"]},
            "bert_1": lambda t: {"bert.embeddings.position_ids": ("I64", [1, 3], bytes(range(24))),
                                 "cls.predictions.decoder.weight": t["bert.embeddings.word_embeddings.weight"]},
            "bert_0": lambda t: {"cls.predictions.bias": turned(t["cls.predictions.bias"])},
            "bert_3": lambda t: {f"bert.pooler.dense.{kind}": t[f"cls.predictions.transform.dense.{kind}"] for kind in ("weight", "bias")},
            "roberta_1": lambda t: {"roberta.embeddings.position_ids": ("I64", [1, 3], bytes(range(24))),
                                    "roberta.pooler.dense.weight": t["lm_head.dense.weight"], "roberta.pooler.dense.bias": t["lm_head.dense.bias"],
                                    "lm_head.decoder.weight": t["roberta.embeddings.word_embeddings.weight"], "lm_head.decoder.bias": t["lm_head.bias"]},
            "roberta_3": lambda t: {"lm_head.bias": turned(t["lm_head.bias"])},
            "marian_0": lambda t: {"lm_head.weight": t["model.shared.weight"], **sinusoids(t)},
            **dict.fromkeys(("mistral_1", "qwen2_1", "qwen3_1"), lambda t: {"lm_head.weight": t["model.embed_tokens.weight"]})}
    for name, added in more.items():
        source = ROOT / "tests/fixtures/huggingface" / name
        content = tensors(source / "model.safetensors")
        shutil.rmtree(name, ignore_errors=True)
        pathlib.Path(name).mkdir()
        shutil.copy(source / "config.json", name)
        write_tensors(pathlib.Path(name, "model.safetensors"), {**content, **added(content)})
        yield pathlib.Path(name)


def from_four_bits(content):
    """With what is stored as blocks of 32 numbers of 4 bits along the inputs and powers of two, as numbers, outputs first in the file's blocks."""
    made = {}
    for name, (dtype, shape, raw) in content.items():
        if name.endswith("_scales"):
            continue
        if not name.endswith("_blocks"):
            made[name] = (dtype, shape, raw)
            continue
        scales = content[name.removesuffix("_blocks") + "_scales"][2]
        numbers = [(0.0, 0.5, 1, 1.5, 2, 3, 4, 6)[code % 8] * (1, -1)[code // 8] * 2.0 ** (scales[i // 16] - 127)
                   for i, byte in enumerate(raw) for code in (byte % 16, byte // 16)]
        experts, outputs, inputs = shape[0], shape[1], shape[2] * 32
        flat = (numbers[(e * outputs + o) * inputs + i] for e in range(experts) for i in range(inputs) for o in range(outputs))
        made[name.removesuffix("_blocks")] = ("BF16", [experts, inputs, outputs], b"".join(struct.pack("<f", x)[2:] for x in flat))
    return made


def check_round_trip():
    for folder in [*FIXTURES, *with_more()]:
        run(BIN / "tfm-convert", "import", folder, "made")
        pathlib.Path("made").rename("imported")  # and take along what is kept beside
        run(BIN / "tfm-convert", "export", "imported", "exported")
        assert from_four_bits(tensors(folder / "model.safetensors")) == tensors(pathlib.Path("exported/model.safetensors")), folder.name
        before, after = (json.loads((f / "config.json").read_text()) for f in (folder, pathlib.Path("exported")))
        assert all(after[k] == v for k, v in before.items() if v is not None and k not in ("pad_token_id", "tie_word_embeddings", "quantization_config")), (before, after)
        assert "quantization_config" not in after, folder.name
        if (folder / "modules.json").exists():
            modules = [[m["type"].rsplit(".", 1)[1] for m in json.loads((f / "modules.json").read_text())]
                       for f in (folder, pathlib.Path("exported"))]
            pools = json.loads(pathlib.Path("exported/1_Pooling/config.json").read_text())
            length = pathlib.Path("exported/sentence_bert_config.json").read_text()
            first = folder.name in ("sentence_roberta", "sentence_modernbert")
            assert modules[0] == modules[1] and pools["pooling_mode_cls_token"] == first, pools
            assert length == (folder / "sentence_bert_config.json").read_text() and after["architectures"][0].endswith("Model"), after
        shutil.rmtree("imported"), shutil.rmtree("exported")
        if folder not in FIXTURES:  # onto itself
            content = tensors(folder / "model.safetensors")
            (folder / "tokenizer_config.json").write_text("{}")
            assert "holds a model (config.json, model.safetensors)" in run(BIN / "tfm-convert", "export", folder, folder, code=2)
            run(BIN / "tfm-convert", "export", folder, folder, "--force")
            assert tensors(folder / "model.safetensors") == content, folder.name


def check_lost_tensors():
    """A kept tensor that has changed is not taken for the model's; what cannot be kept is told."""
    folder = next(f for f in with_more() if f.name == "bert_0")
    run(BIN / "tfm-convert", "import", folder, "imported")
    kept = pathlib.Path("imported/tokenizer/unused.safetensors")
    name, (dtype, shape, raw) = next(iter(tensors(kept).items()))
    write_tensors(kept, {name: (dtype, shape, raw[::-1])})
    assert f"tensor '{name}'" in run(BIN / "tfm-convert", "export", "imported", "exported")
    assert tensors(pathlib.Path("exported/model.safetensors"))[name][2] != raw[::-1]
    same_bytes = tensors(ROOT / "tests/fixtures/huggingface/gpt2_1/model.safetensors")
    table = same_bytes["transformer.wte.weight"]
    write_tensors(pathlib.Path("gpt2_1/model.safetensors"), {**same_bytes, "lm_head.weight": ("I32", *table[1:])})
    assert "lm_head.weight" in run(BIN / "tfm-convert", "import", "gpt2_1", "refused", code=3)
    shutil.rmtree("imported"), shutil.rmtree("exported")


def check_element_types_and_shards():
    source = FIXTURES[0]
    half = pathlib.Path("half")
    half.mkdir()
    config = {**json.loads((source / "config.json").read_text()), "transformers_weights": "model.safetensors.index.json"}
    (half / "config.json").write_text(json.dumps(config))
    (half / "tokenizer_config.json").write_text("{}")
    content = {k: ("BF16", shape, b"".join(raw[i + 2:i + 4] for i in range(0, len(raw), 4)))
               for k, (_, shape, raw) in tensors(source / "model.safetensors").items()}
    names = sorted(content)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in shards.items():
        write_tensors(half / file, {k: content[k] for k in held})
    index = {"metadata": {"total_size": 0}, "weight_map": {k: f for f, held in shards.items() for k in held}}
    (half / "model.safetensors.index.json").write_text(json.dumps(index))
    run(BIN / "tfm-convert", "import", half, "imported")
    run(BIN / "tfm-convert", "export", "imported", "exported")
    assert tensors(pathlib.Path("exported/model.safetensors")) == content
    assert (pathlib.Path("exported") / "tokenizer_config.json").read_text() == "{}"
    assert "transformers_weights" not in json.loads(pathlib.Path("exported/config.json").read_text()), "it has one file"

    def refused(text, change, restore="index"):
        change()
        out = run(BIN / "tfm-convert", "import", half, "bad", code=3)
        assert text in out, out
        (half / "model.safetensors.index.json").write_text(json.dumps(index))

    def with_map(**changes):
        (half / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {**index["weight_map"], **changes}}))

    refused("is not a file name", lambda: with_map(**{names[0]: "../model.safetensors"}))
    refused("is missing from the shards", lambda: with_map(more="model-00001-of-00002.safetensors"))
    refused("appears twice", lambda: (half / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b", "a": "c"}}'))
    write_tensors(half / "model-00001-of-00002.safetensors", {k: content[k] for k in shards["model-00001-of-00002.safetensors"][1:]})
    refused("is missing from the shards", lambda: None)


def in_memory(path):
    """Bytes of a file that the system holds."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [*libc.munmap.argtypes, ctypes.c_char_p]
    size = path.stat().st_size
    pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    with path.open("rb") as file:
        at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        assert libc.mincore(at, size, pages) == 0, os.strerror(ctypes.get_errno())
        libc.munmap(at, size)
    return mmap.PAGESIZE * sum(b & 1 for b in pages.raw[:-(-size // mmap.PAGESIZE)])


def holes_are_kept():
    """Whether the system keeps in memory what was read of a hole; a tmpfs does not."""
    hole = pathlib.Path("hole")
    hole.touch()
    os.truncate(hole, 1 << 20)
    hole.read_bytes()
    return in_memory(hole) > 0


def check_configuration_without_checkpoint(checkpoint):
    """--check reads no weight of a checkpoint to start from: they become zeros that nobody wrote, of which nothing is in memory,
    and one byte that is wrong."""
    shards = sorted(checkpoint.rglob("*.safetensors"))
    end = sum(shard.stat().st_size for shard in shards)
    for shard in shards:
        size = shard.stat().st_size
        with shard.open("r+b") as file:
            file.truncate(8 + struct.unpack("<Q", file.read(8))[0])
            file.seek(size - 1)
            file.write(b"\x7f")
    pathlib.Path("start.yaml").write_text(f"model: {{init: {checkpoint}}}\ndata: {{train: {{type: text, path: text.txt}}, tokenizer: bytes}}\n"
                                          "train: {steps: 1, global_batch_size: 2, seq_len: 16}\n")
    run(BIN / "tfm-train", "start.yaml", "--check")
    read = sum(map(in_memory, shards))
    assert read < 4 << 20 < end, f"{read} of {end} bytes of the checkpoint were read for the configuration"
    for ranks in (0, 2):
        out = run(BIN / "tfm-train", "start.yaml", "parallel.tensor=1", ranks=ranks, code=3)
        assert "checksum" in out and shards[0].name in out, out
    assert sum(map(in_memory, shards)) > end * 0.9 or not holes_are_kept()


def check_configuration_without_weights():
    """What a directory describes is known from config.json and headers, a copy of a tied table beside them or not."""
    folder, V, C = pathlib.Path("large"), 20000, 512
    folder.mkdir()
    sizes = {"vocab_size": V, "n_embd": C, "n_layer": 1, "n_head": 8, "n_positions": 16}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    h = "transformer.h.0."
    shapes = {"transformer.wte.weight": [V, C], "lm_head.weight": [V, C], "transformer.wpe.weight": [16, C], h + "attn.c_attn.weight": [C, 3 * C],
              h + "attn.c_proj.weight": [C, C], h + "mlp.c_fc.weight": [C, 4 * C], h + "mlp.c_proj.weight": [4 * C, C],
              h + "attn.c_attn.bias": [3 * C], h + "mlp.c_fc.bias": [4 * C], h + "attn.c_proj.bias": [C], h + "mlp.c_proj.bias": [C],
              **{f"{n}.{kind}": [C] for n in (h + "ln_1", h + "ln_2", "transformer.ln_f") for kind in ("weight", "bias")}}
    header, end = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end := end + 4 * math.prod(shape)]}
    text = json.dumps(header).encode()
    weights = folder / "model.safetensors"
    with weights.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)  # zeros that nobody wrote: nothing of them is in memory
    pathlib.Path("text.txt").write_text("some text " * 100)
    pathlib.Path("large.yaml").write_text(f"model: {{init: {folder}}}\ndata: {{train: {{type: text, path: text.txt}}, tokenizer: bytes}}\n"
                                          "train: {steps: 1, global_batch_size: 2, seq_len: 16}\n")
    run(BIN / "tfm-train", "large.yaml", "--check")
    read = in_memory(weights)
    assert read < 4 << 20, f"{read} of {end} bytes were read for the configuration"
    run(BIN / "tfm-convert", "import", folder, "imported_large")
    assert in_memory(weights) > end * 0.9 or not holes_are_kept(), in_memory(weights)  # as the measure shows where they are
    print(f"{read} of {end} bytes were read for the configuration")
    check_configuration_without_checkpoint(pathlib.Path("imported_large"))
    with weights.open("r+b") as file:
        file.seek(8 + len(text) + 4 * V * C + 12)
        file.write(struct.pack("<f", 1))
    run(BIN / "tfm-train", "large.yaml", "--check")
    assert "'lm_head.weight' differs from" in run(BIN / "tfm-convert", "import", folder, "refused_large", code=3)


def check_messages():
    source = next(f for f in FIXTURES if f.name.startswith("gpt2"))
    content, config = tensors(source / "model.safetensors"), json.loads((source / "config.json").read_text())
    bad = pathlib.Path("broken")
    bad.mkdir()

    def refused(text, tensors_=content, config_=config):
        write_tensors(bad / "model.safetensors", tensors_)
        (bad / "config.json").write_text(json.dumps(config_))
        out = run(BIN / "tfm-convert", "import", bad, "bad", code=3)
        assert text in out, out

    missing = dict(content)
    name = next(k for k in missing if k.endswith("ln_1.weight"))
    refused(name, {k: v for k, v in missing.items() if k != name})
    refused("'surplus' is unknown", {**content, "surplus": content[name]})
    refused("is unknown", {**content, "x" * 300_000: content[name]})
    refused("; expected (", {**content, name: ("F32", [1], content[name][2][:4])})
    refused("has type I32", {**content, name: ("I32", *content[name][1:])})
    refused("model_type", config_={**config, "model_type": "mamba"})
    refused("; expected shape (", {k: v for k, v in missing.items() if k != name}, {**config, "architectures": ["GPT2LMHeadModel"]})
    refused("'GPT2Model', which config.json names, is not supported: tfm reads the directory as GPT2LMHeadModel", {k: v for k, v in missing.items() if k != name},
            {**config, "architectures": ["GPT2Model"]})
    (bad / "model.safetensors").unlink()
    for file in ("pytorch_model.bin.index.json", "pytorch_model.bin"):
        (bad / file).touch()
        out = run(BIN / "tfm-convert", "import", bad, "bad", code=3)
        assert f"{bad}: has {file}, " in out and "save_pretrained" in out, out
    tied = next(f for f in FIXTURES if f.name.startswith("t5"))
    config = json.loads((tied / "config.json").read_text())
    refused("to which it is tied", {**tensors(tied / "model.safetensors"), "decoder.embed_tokens.weight": (
        "F32", [config["vocab_size"], config["d_model"]], bytes(4 * config["vocab_size"] * config["d_model"]))}, config)
    marian = ROOT / "tests/fixtures/huggingface/marian_0"
    content_, config = tensors(marian / "model.safetensors"), json.loads((marian / "config.json").read_text())
    dtype, shape, raw = content_["model.shared.weight"]
    for head in ((dtype, shape, bytes(len(raw))), (dtype, [7, 3], bytes(84))):
        refused("'lm_head.weight' differs from 'model.shared.weight', to which it is tied", {**content_, "lm_head.weight": head}, config)
    for name, (dtype, shape, raw) in sinusoids(content_).items():
        refused(f"'{name}' has ", {**content_, name: (dtype, shape, raw[:-2] + b"\x20\x40")}, config)  # at least 2
        refused(f"'{name}' is (8, ", {**content_, name: (dtype, [8, shape[1]], raw[:len(raw) // 2])}, config)
        refused(f"'{name}' has type I32", {**content_, name: ("I32", shape, bytes(4 * math.prod(shape)))}, config)
    for name, output in (("llama_2", "lm_head.weight"), ("gpt2_0", "lm_head.weight"), ("qwen3_0", "lm_head.weight"),
                         ("mistral_0", "lm_head.weight"),
                         ("bert_0", "cls.predictions.decoder.weight"), ("roberta_3", "lm_head.decoder.weight")):
        folder = ROOT / "tests/fixtures/huggingface" / name
        config = json.loads((folder / "config.json").read_text())
        rest = {k: v for k, v in tensors(folder / "model.safetensors").items() if k != output}
        assert config["tie_word_embeddings"] is False
        refused(f"'{output}' is missing; expected shape (", rest, config)
        del config["tie_word_embeddings"]
        if name == "llama_2":  # whose default says the same
            probed(edited("edited", name, {"tie_word_embeddings": ...}, [output]), tensors(folder / "batch.safetensors"))
    config = json.loads((source / "config.json").read_text())
    refused("transformers_weights: 'other.safetensors'", config_={**config, "transformers_weights": "other.safetensors"})
    refused("scale_attn_by_inverse_layer_idx", config_={**config, "scale_attn_by_inverse_layer_idx": True})
    refused("activation", config_={**config, "activation_function": "quick_gelu"})
    for key, value, ours in (("n_head", 5, "model.n_heads"), ("n_embd", 0, "model.d_model"), ("layer_norm_epsilon", 0, "model.norm_eps"),
                             ("n_layer", 0, "model.n_layers"), ("n_positions", 0, "model.max_seq_len"), ("resid_pdrop", 1.5, "model.dropout.residual"),
                             ("vocab_size", 0, "model.vocab_size")):
        refused(f"config.json: {key} ({ours}): ", config_={**config, key: value})
    for name, keys in (("mistral_0", [{"sliding_window": 0}, {"hidden_act": "relu"}]),
                       ("mixtral_0", [{"sliding_window": 0}, {"router_jitter_noise": 0.1}]),
                       ("qwen2_0", [{"layer_types": ["full_attention", "sliding_attention"]}, {"layer_types": ["full_attention"]},
                                    {"layer_types": ["full_attention", "chunked_attention"]},
                                    {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}]),
                       ("qwen3_moe_5", [{"layer_types": ["full_attention", "sliding_attention"]}]),
                       ("qwen3_0", [{"attention_bias": True}, {"is_causal": False},
                                    {"partial_rotary_factor": 0.5},
                                    {"rope_scaling": {"rope_type": "longrope", "factor": 4.0}},
                                    {"quantization_config": {"quant_method": "fp8"}}]),
                       ("llama_1", [{"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}}]),
                       ("gemma2_0", [{"use_bidirectional_attention": True}, {"attn_logit_softcapping": 0}, {"final_logit_softcapping": -3.0},
                                     {"hidden_activation": "relu"}, {"layer_types": ["full_attention", "chunked_attention"]},
                                     {"layer_types": ["sliding_attention"]}, {"sliding_window": None, "layer_types": ["sliding_attention"] * 2}]),
                       ("gemma3_text_0", [{"use_bidirectional_attention": True}, {"attn_logit_softcapping": 50.0},
                                          {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}]),
                       ("gpt_oss_0", [{"swiglu_alpha": 1.0}, {"swiglu_limit": 6.0}, {"quantization_config": {"quant_method": "fp8"}}]),
                       ("modernbert_0", [{"norm_bias": True}, {"attention_dropout": 0.1}, {"classifier_activation": "relu"}, {"local_attention": 0},
                                         {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, {"is_causal": True}]),
                       ("m2m_100_0", [{"decoder_ffn_dim": 3}, {"pad_token_id": None}]),
                       ("qwen3_next_0", [{"attention_bias": True}, {"hidden_act": "relu"}, {"mlp_only_layers": [0]}, {"layer_types": ["linear_attention"]},
                                         {"layer_types": ["linear_attention", "sliding_attention"]}]),
                       ("bamba_0", [{"attention_bias": True}, {"hidden_act": "relu"}, {"attn_layer_indices": [2]}, {"mamba_conv_bias": False},
                                    {"mamba_proj_bias": True}, {"mamba_n_heads": 5}, {"time_step_limit": [0.0, 0.5]},
                                    {"time_step_limit": [0.0, {"__float__": "NaN"}]}, {"mamba_d_head": 8}, {"z_loss_coefficient": 0.1}]),
                       ("phi3_2", [{"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, {"sliding_window": 0}]),
                       ("switch_transformers_0", [{"router_dtype": "bfloat16"}, {"expert_capacity": 0}, {"is_encoder_decoder": False}]),
                       ("gpt2_0", [{"is_causal": False}, {"num_attention_heads": 1}, {"num_hidden_layers": 7}]),
                       ("t5_0", [{"dense_act_fn": "gelu_new"}, {"is_gated_act": True}, {"is_encoder_decoder": False},
                                 {"num_attention_heads": 7}, {"is_causal": True}]),
                       ("bart_0", [{"is_causal": False}, {"is_causal": True}, {"num_attention_heads": 1}, {"hidden_size": 1}]),
                       ("bert_0", [{"is_causal": True}]),
                       ("roberta_0", [{"is_causal": True}, {"hidden_act": "relu"},
                                      {"is_decoder": True}, {"add_cross_attention": True}, {"position_embedding_type": "relative_key"},
                                      {"max_position_embeddings": 2}, {"pad_token_id": None}])):
        folder = ROOT / "tests/fixtures/huggingface" / name
        config, content = json.loads((folder / "config.json").read_text()), tensors(folder / "model.safetensors")
        for changed in keys:
            refused(next(iter(changed)), content, {k: v for k, v in {**config, **changed}.items() if v != "absent"})
    folder = ROOT / "tests/fixtures/huggingface/qwen3_0"
    config, content = json.loads((folder / "config.json").read_text()), tensors(folder / "model.safetensors")
    name = "model.layers.1.self_attn.k_norm.weight"
    refused(name, {k: v for k, v in content.items() if k != name}, config)
    refused("; expected (8)", {**content, name: ("F32", [16], bytes(64))}, config)
    refused("is unknown", content, {**config, "model_type": "mistral", "sliding_window": None})
    for key, value, ours in (("num_key_value_heads", 3, "model.n_kv_heads"), ("head_dim", 7, "model.d_head"),
                             ("rope_parameters", {"rope_type": "default", "rope_theta": 0}, "model.rope.theta")):
        refused(f"config.json: {key} ({ours}): ", content, {**config, key: value})
    source_config = json.loads((source / "config.json").read_text())
    for override, text in (("parallel.tenser=1", "parallel"), ("train.seq_len=0", "out of range"), ("precision=bf16", "precision"),
                           (f"train.seq_len={source_config['n_positions'] + 1}", "exceeds model.max_seq_len")):
        assert text in run(BIN / "tfm-eval", source, "--text", "text.txt", override, code=2)
    data = "data: {train: {type: %s, path: text.txt}}\n"
    pathlib.Path("text.txt").write_text("some text " * 100)
    pathlib.Path("both.yaml").write_text(f"model: {{preset: gpt2-124m, init: {source}}}\n" + data % "tokens")
    assert "both set the model's shape" in run(BIN / "tfm-train", "both.yaml", "--check", code=2)
    pathlib.Path("nsp.yaml").write_text("model: {family: encoder, vocab_size: 260, d_model: 16, n_layers: 1, n_heads: 2, next_sentence: true}\n"
                                        "train: {seq_len: 16, global_batch_size: 2, steps: 1}\n" + data % "mlm")
    for more in ([], ["--check"]):
        assert "data.train.next_sentence" in run(BIN / "tfm-train", "nsp.yaml", *more, code=2)


def check_dropout():
    """Each probability goes where transformers has it, and comes back from there; so does what follows from tie_word_embeddings alone."""
    for name, changes, imported in (
            ("mistral_1", {}, "dropout: {embedding: 0, attention: 0.1, residual: 0, ffn: 0}"),
            ("qwen2_2", {}, "dropout: {embedding: 0, attention: 0.15, residual: 0, ffn: 0}"),
            ("qwen3_3", {}, "dropout: {embedding: 0, attention: 0.2, residual: 0, ffn: 0}"),
            ("roberta_1", {}, "dropout: {embedding: 0.15, attention: 0.1, residual: 0.15, ffn: 0}"),
            ("gpt2_0", {"embd_pdrop": 0.125, "attn_pdrop": 0.25, "resid_pdrop": 0.375},
             "dropout: {embedding: 0.125, attention: 0.25, residual: 0.375, ffn: 0}"),
            ("bart_0", {"dropout": 0.125, "attention_dropout": 0.25, "activation_dropout": 0.375},
             "dropout: {embedding: 0.125, attention: 0.25, residual: 0.125, ffn: 0.375, output: 0}"),
            ("t5_2", {"dropout_rate": 0.125}, "dropout: {embedding: 0.125, attention: 0.125, residual: 0.125, ffn: 0.125, output: 0.125}"),
            ("t5_1", {"scale_decoder_outputs": None, "tie_word_embeddings": False}, "scale_logits: false"),  # version 1.1
            ("t5_0", {"scale_decoder_outputs": None}, "scale_logits: true")):
        source = ROOT / "tests/fixtures/huggingface" / name
        for made in ("changed", "imported_places", "exported_places"):
            shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(source, "changed")
        config = {k: v for k, v in {**json.loads((source / "config.json").read_text()), **changes}.items() if k not in changes or v is not None}
        pathlib.Path("changed/config.json").write_text(json.dumps(config))
        run(BIN / "tfm-convert", "import", "changed", "imported_places")
        assert imported in pathlib.Path("imported_places/step-00000000/manifest.json").read_text(), name
        run(BIN / "tfm-convert", "export", "imported_places", "exported_places")
        after = json.loads(pathlib.Path("exported_places/config.json").read_text())
        assert all(after[k] == v for k, v in changes.items() if v is not None), (name, changes, after)


def check_training():
    """Ten steps from a directory, from its export's export and from its import as a checkpoint are the same ten steps."""
    for family in ("llama", "qwen3"):
        train_twice(next(f for f in FIXTURES if f.name.startswith(family)))


def train_twice(source):
    for made in ("imported_llama", "again", "ck", "trained", "resumed"):
        shutil.rmtree(made, ignore_errors=True)
    vocabulary = json.loads((source / "config.json").read_text())["vocab_size"]
    ids = array.array("H", [i * i % vocabulary for i in range(3000)])
    header = array.array("i", [20240520, 1, len(ids)] + [0] * 253)
    pathlib.Path("data.bin").write_bytes(header.tobytes() + ids.tobytes())
    pathlib.Path("cfg.yaml").write_text("model: {init: weights}\ndata: {train: {type: tokens, path: data.bin}}\n"
                                        "train: {steps: 10, global_batch_size: 4, seq_len: 16}\noptimizer: {lr: 1.0e-3}\n")
    results = []

    def train(*args):
        out = run(BIN / "tfm-train", "cfg.yaml", "metrics.jsonl=m.jsonl", *args, ranks=2)
        results.append([json.loads(line)["loss"] for line in open("m.jsonl") if '"step",' in line])
        return out

    for weights in (source, "again"):
        train(f"model.init={weights}", "checkpoint.dir=ck", "checkpoint.resume=never")
        if weights == source:
            run(BIN / "tfm-convert", "import", source, "imported_llama")
            run(BIN / "tfm-convert", "export", "imported_llama", "again")
    run(BIN / "tfm-convert", "export", "ck", "trained")
    out = train("model.init=trained", "checkpoint.resume=imported_llama/step-00000000", "checkpoint.dir=resumed")
    assert "was written with" not in out and "auto: as in" not in out and "initialized weights" not in out, out
    assert len(results[0]) == 10 and results[0] == results[1] == results[2], results
    assert set(tensors(pathlib.Path("trained/model.safetensors"))) == set(tensors(source / "model.safetensors"))


def check_special_ids():
    """Of models trained here: the tokenizer's, none where it or the model has none, so that transformers takes no defaults."""
    pathlib.Path("pairs.tsv").write_text("ab\tba\n" * 9)
    pathlib.Path("text.txt").write_text("some text " * 100)
    sizes = "d_model: 16, n_heads: 2, n_layers: 1, max_seq_len: 16"
    for name, model, data, expected in (
            ("gpt2", f"family: decoder, vocab_size: 256, {sizes}", "type: text, path: text.txt", (None, None, None)),
            ("bert", f"family: encoder, vocab_size: 260, {sizes}, norm_position: post, embedding_norm: true, type_vocab_size: 2, head_transform: true, "
                     "head_bias: true, activation: gelu", "type: mlm, path: text.txt", (256, 257, 258)),
            ("marian", f"family: encoder_decoder, vocab_size: 260, {sizes}, norm_position: post, position: sinusoidal, sinusoid: halves",
             "type: pairs, path: pairs.tsv", (256, 257, 258, 256)),
            ("t5", f"family: encoder_decoder, vocab_size: 360, {sizes}, norm: rmsnorm, position: relative, bias: false, scale_attention: false",
             "type: span_corruption, path: text.txt", (256, 257, 258, 256))):
        pathlib.Path("cfg.yaml").write_text(f"model: {{{model}}}\ndata: {{train: {{{data}}}}}\ntrain: {{steps: 1, global_batch_size: 2, seq_len: 16}}\n"
                                            f"checkpoint: {{dir: special_{name}}}\n")
        run(BIN / "tfm-train", "cfg.yaml")
        run(BIN / "tfm-convert", "export", f"special_{name}", f"exported_{name}")
        config = json.loads(pathlib.Path(f"exported_{name}/config.json").read_text())
        keys = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")[:len(expected)]
        assert config["model_type"] == name and tuple(config[k] for k in keys) == expected, config
        run(BIN / "tfm-convert", "import", f"exported_{name}", f"again_{name}")
        if len(expected) == 4:  # targets that the tokenizer's ids begin and fill
            batch = {"input_ids": int64s([2, 3], range(6)), "labels": int64s([2, 3], [5, -100, 6, 7, 8, -100])}
            one, other = (probed(f"{folder}_{name}", batch) for folder in ("special", "exported"))
            assert all(one[k] == other[k] for k in ("loss", "logits")), name
        if name == "marian":
            run(BIN / "tfm-train", "cfg.yaml", "model.vocab_size=258", "checkpoint.dir=smaller")
            out = run(BIN / "tfm-probe", "smaller", "--batch", "batch.safetensors", "--out", "out.safetensors", code=3)
            assert "no padding id in the model's vocabulary" in out, out
        if name in ("gpt2", "t5"):  # whose embeddings have no padding_idx in transformers
            run(BIN / "tfm-train", "cfg.yaml", "model.padding_idx=0", "checkpoint.dir=padding")
            refusal = run(BIN / "tfm-convert", "export", "padding", "refused", code=2)
            assert f"the nearest, {name}, needs padding_idx: -1 in section model" in refusal, refusal
            shutil.rmtree("padding")
        if name == "gpt2":  # keys that no architecture has; of the window, Mistral
            run(BIN / "tfm-train", "cfg.yaml", "model.attention.window=4", "model.attention.strided.step=8", "checkpoint.dir=strided")
            refusal = run(BIN / "tfm-convert", "export", "strided", "refused", code=2)
            assert "attention without keys of its own, such as prefix" in refusal, refusal
            shutil.rmtree("strided")


def check_marian_tokenizer():
    """The files of a MarianMT folder go along with its model, there and back."""
    shutil.copytree(next(f for f in FIXTURES if f.name.startswith("marian")), "marian")
    for f in (ROOT / "tests/fixtures/marian").iterdir():
        shutil.copy(f, "marian")
    pathlib.Path("marian/additional_chat_templates").mkdir()
    for name in ("chat_template.jinja", "chat_template.json", "additional_chat_templates/tool_use.jinja"):
        pathlib.Path("marian", name).write_text(name)
    run(BIN / "tfm-convert", "import", "marian", "imported_marian")
    shutil.rmtree("marian")
    run(BIN / "tfm-convert", "export", "imported_marian", "exported_again")
    for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
        assert (pathlib.Path("exported_again") / name).read_bytes() == (ROOT / "tests/fixtures/marian" / name).read_bytes()
    for name in ("chat_template.jinja", "chat_template.json", "additional_chat_templates/tool_use.jinja"):
        assert pathlib.Path("exported_again", name).read_text() == name
    checkpoint = json.loads(pathlib.Path("imported_marian/step-00000000/manifest.json").read_text())
    assert "tokenizer: imported_marian/tokenizer" in json.dumps(checkpoint), checkpoint


def check_ends_and_special_tokens():
    """Texts end as documents do, of a model from Hugging Face at eos_token_id too; its tokenizer's special tokens go around a prompt."""
    pathlib.Path("docs.jsonl").write_text('{"text": "abcdefgh"}\n' * 200)

    def train(name, tokenizer):
        run(BIN / "tfm-data", "prepare", "--input", "docs.jsonl", "--tokenizer", tokenizer, "--append-eod", "--output", f"{name}.bin")
        model = "{family: decoder, vocab_size: 260, d_model: 32, n_heads: 2, n_layers: 1, max_seq_len: 32}"
        pathlib.Path("cfg.yaml").write_text(f"model: {model}\n"
                                            f"data: {{tokenizer: {tokenizer}, train: {{type: tokens, path: {name}.bin}}}}\n"
                                            "train: {steps: 60, global_batch_size: 8, seq_len: 16}\noptimizer: {lr: 1e-2}\n"
                                            f"checkpoint: {{dir: {name}}}\n")
        run(BIN / "tfm-train", "cfg.yaml")
        run(BIN / "tfm-convert", "export", name, f"{name}_exported")

    def generate(folder, prompt="abc", ranks=0):
        return run(BIN / "tfm-generate", folder, "--prompt", prompt, "--temperature", 0, "--max-tokens", 20, ranks=ranks)

    def of_bytes(folder):  # which no directory of Hugging Face names
        assert "has no tokenizer.json" in run(BIN / "tfm-generate", folder, "--prompt", "abc", code=3)
        return run(BIN / "tfm-generate", folder, "--prompt", "abc", "--temperature", 0, "--max-tokens", 20, "--tokenizer", "bytes")

    train("ends", "bytes")
    verify = [BIN / "tfm-data", "verify", "ends.bin", "--tokenizer", "bytes"]
    assert "1800 tokens, largest id 257, " in run(*verify)
    ids = pathlib.Path("ends.bin").read_bytes()
    pathlib.Path("ends.bin").write_bytes(ids[:-2] + (260).to_bytes(2, "little"))
    assert "token 1799: expected an id below 260, got 260" in run(*verify, code=3)
    exported = pathlib.Path("ends_exported")
    assert generate("ends") == generate("ends", ranks=2) == of_bytes(exported) == "abcdefgh\n"
    config = json.loads((exported / "config.json").read_text())
    assert config["eos_token_id"] == 257
    (exported / "config.json").write_text(json.dumps({**config, "eos_token_id": [ord("g"), 257]}))
    assert of_bytes(exported) == "abcdef\n"
    (exported / "generation_config.json").write_text('{"eos_token_id": %d}' % ord("f"))
    assert of_bytes(exported) == "abcde\n"
    run(BIN / "tfm-convert", "import", exported, "ends_imported", ranks=3)
    asked = {"repetition_penalty": 1.2, "num_beams": 1, "bad_words_ids": [[3], [1, 2]]}
    (exported / "generation_config.json").write_text(json.dumps(asked))
    assert "ends_exported asks for bad_words_ids, repetition_penalty when it" in of_bytes(exported), of_bytes(exported)
    os.symlink("ends_imported/step-00000000", "link")
    for path in ("ends_imported", "ends_imported/step-00000000/", "link"):
        assert of_bytes(path) == "abcde\n", path
    assert "a run has written ends/step-00000060" in run(BIN / "tfm-convert", "import", exported, "ends", code=2)
    assert "gone: " in run(BIN / "tfm-convert", "export", "gone", "nowhere", ranks=3, code=3)
    assert "takes no configuration keys" in run(BIN / "tfm-convert", "export", "ends", "again", "model.d_model=8", code=2)

    tokenizer = pathlib.Path("tokenizer.json")
    run(BIN / "tfm-data", "train-tokenizer", "--input", "docs.jsonl", "--vocab-size", 260, "--output", tokenizer, ranks=2)
    train("special", tokenizer)
    exported = pathlib.Path("special_exported")
    tree = json.loads(tokenizer.read_text())
    token = "<|endoftext|>"
    parts = [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    tree["post_processor"] = {"type": "TemplateProcessing", "single": parts, "pair": [],
                              "special_tokens": {token: {"id": token, "ids": [0], "tokens": [token]}}}
    (exported / "tokenizer.json").write_text(json.dumps(tree))
    assert token + generate(exported, "a") == generate("special", token + "a")
    run(BIN / "tfm-convert", "import", exported, "special_imported")
    expected = generate("special_imported", "a")
    pathlib.Path("elsewhere").mkdir()
    pathlib.Path("special_imported").rename("elsewhere/special_imported")
    assert generate("elsewhere/special_imported", "a") == expected == generate(exported, "a")
    pathlib.Path("initial.yaml").write_text("train: {steps: 1, global_batch_size: 2, seq_len: 16}\ncheckpoint: {dir: none}\n"
                                            "data: {train: {type: text, path: docs.jsonl}}\n")
    imported = "elsewhere/special_imported"
    for start, found in ((exported, exported), ("special", tokenizer), (imported, f"{imported}/tokenizer")):
        for more, used in (([], found), (["data.tokenizer=bytes"], "bytes")):
            run(BIN / "tfm-train", "initial.yaml", f"model.init={start}", "metrics.jsonl=initial.jsonl", *more)
            config = json.loads(open("initial.jsonl").readline())["config"]
            assert re.search(f"tokenizer: \"?\\S*{used}\"?\n", config), (start, config)
    (exported / "tokenizer.json").rename(exported / "vocab.txt")
    assert "has no tokenizer.json" in run(BIN / "tfm-generate", exported, "--prompt", "a", code=3)


def check_weights_that_do_not_fit():
    """--check says what the run would: a parameter that is missing or of another shape; what is not used is said."""
    pathlib.Path("text.txt").write_text("some text " * 100)
    pathlib.Path("cfg.yaml").write_text("model: {family: decoder, vocab_size: 256, d_model: 32, n_heads: 2, n_layers: 2, max_seq_len: 32}\n"
                                        "train: {steps: 1, global_batch_size: 2, seq_len: 16}\n"
                                        "data: {train: {type: text, path: text.txt}, tokenizer: bytes}\n")
    run(BIN / "tfm-train", "cfg.yaml", "checkpoint.dir=fits")
    run(BIN / "tfm-convert", "export", "fits", "fits_exported")
    for start in ("fits", "fits_exported"):
        for change in ("model.d_model=64", "model.n_layers=3", "model.vocab_size=300", "model.qk_norm=true", "model.activation=swiglu",
                       "model.n_kv_heads=1"):
            for more in ([], ["--check"]):
                out = run(BIN / "tfm-train", "cfg.yaml", f"model.init={start}", change, *more, code=3)
                assert f"model.init: {start}" in out and "internal error" not in out, out
        out = run(BIN / "tfm-train", "cfg.yaml", f"model.init={start}", "model.position=rope", "--check")
        assert "tensors that the model does not use, such as " in out and "position" in out, out
        assert "does not use" not in run(BIN / "tfm-train", "cfg.yaml", f"model.init={start}", "--check")
    out = run(BIN / "tfm-train", "cfg.yaml", "checkpoint.dir=fits", "model.d_model=64", "--check", code=2)
    assert "was written with model.d_model 32" in out, out


def check_probe_refuses():
    """Ids and labels that transformers would refuse; tensors that it would use, and padding that its positions do not count."""
    for name, unused, known in (("gpt2_0", "token_type_ids", "input_ids, attention_mask, labels"),
                                ("bert_3", "next_sentence_label", "token_type_ids"),
                                ("llama_1", "position_ids", "labels"), ("bart_0", "attention_masks", "decoder_attention_mask")):
        source = ROOT / "tests/fixtures/huggingface" / name
        batch = tensors(source / "batch.safetensors")
        write_tensors(pathlib.Path("refused.safetensors"), {**batch, unused: batch["input_ids"]})
        out = run(BIN / "tfm-probe", source, "--batch", "refused.safetensors", "--out", "out.safetensors", code=3)
        assert f"tensor '{unused}' is not supported for this model; expected " in out and known in out, out
    source, pad = ROOT / "tests/fixtures/huggingface/roberta_0", 1
    for ids, mask, label, code in (([5, 6, 7, pad], [1, 1, 1, 0], -100, 0), ([5, 6, pad, 7], [1, 1, 0, 0], -100, 0),
                                   ([pad, 5, 6, 7], [0, 1, 1, 1], -100, 3),
                                   ([5, pad, 6, 7], [1, 0, 1, 1], -100, 3), ([5, 6, 7, pad], [1, 1, 1, 1], -100, 3),
                                   ([5, 6, 7, pad], [1, 1, 1, 0], 4, 3)):
        rows = {"input_ids": ids, "attention_mask": mask, "labels": [8, 9, -100, label]}
        write_tensors(pathlib.Path("refused.safetensors"), {k: int64s([2, 4], 2 * v) for k, v in rows.items()})
        out = run(BIN / "tfm-probe", source, "--batch", "refused.safetensors", "--out", "out.safetensors", code=code)
        assert code == 0 or "tensor 'input_ids' has padding (1) in sequence 0 that is not masked, or not behind" in out, out
    source = next(f for f in FIXTURES if f.name.startswith("bert"))
    batch = tensors(source / "batch.safetensors")
    for name, value, text in (("input_ids", -1, "expected 0 to"), ("token_type_ids", 99, "expected 0 to"), ("labels", -5, "or -100 for no label")):
        dtype, shape, raw = batch[name] if name in batch else ("I64", batch["input_ids"][1], bytes(8 * math.prod(batch["input_ids"][1])))
        size = len(raw) // math.prod(shape)
        write_tensors(pathlib.Path("refused.safetensors"), {**batch, name: (dtype, shape, value.to_bytes(size, "little", signed=True) + raw[size:])})
        out = run(BIN / "tfm-probe", source, "--batch", "refused.safetensors", "--out", "out.safetensors", code=3)
        assert f"tensor '{name}' has {value}; " in out and text in out, out
    t5 = ROOT / "tests/fixtures/huggingface/t5_0"
    batch = tensors(t5 / "batch.safetensors")
    for name, like, mask in (("attention_mask", "input_ids", lambda row, column: row != 1), ("decoder_attention_mask", "labels", lambda row, column: column)):
        rows, columns = batch[like][1]
        ones = int64s([rows, columns], [bool(mask(r, c)) for r in range(rows) for c in range(columns)])
        write_tensors(pathlib.Path("refused.safetensors"), {**batch, name: ones})
        out = run(BIN / "tfm-probe", t5, "--batch", "refused.safetensors", "--out", "out.safetensors", code=3)
        assert f"tensor '{name}' leaves a query of sequence {int(name == 'attention_mask')} without a key" in out, out
    longformer = ROOT / "tests/fixtures/huggingface/longformer_0"
    batch = tensors(longformer / "batch.safetensors")
    rows, columns = batch["input_ids"][1]
    missing = "'global_attention_mask' is missing, without which transformers has no global tokens; expected 1 at the first 1 position of"
    first_two = int64s([rows, columns], [c < 2 for r in range(rows) for c in range(columns)])
    for mask, text in ((None, missing), (first_two, "found otherwise at position 1 of sequence 0")):
        given = {k: v for k, v in batch.items() if k != "global_attention_mask"}
        write_tensors(pathlib.Path("refused.safetensors"), {**given, **({"global_attention_mask": mask} if mask else {})})
        out = run(BIN / "tfm-probe", longformer, "--batch", "refused.safetensors", "--out", "out.safetensors", code=3)
        assert text in out, out
    out = run(BIN / "tfm-probe", t5, "--batch", t5 / "batch.safetensors", "--out", "out.safetensors", "loss.label_smoothing=0.3", code=2)
    assert "loss.label_smoothing 0.3: a probe's loss" in out, out
    assert "is not a regular file" in run(BIN / "tfm-probe", source, "--batch", source / "batch.safetensors", "--out", "/dev/null", code=2)


def check_no_labels():
    """The mean of none is no number, as in transformers, on any layout; its gradient is zero."""
    for name, ignored in (("llama_1", ["labels"]), ("bert_1", ["labels"]), ("bert_1", ["next_sentence_label"]), ("t5_1", ["labels"])):
        source = ROOT / "tests/fixtures/huggingface" / name
        batch = tensors(source / "batch.safetensors")
        write_tensors(pathlib.Path("ignored.safetensors"), {**batch, **{k: int64s(batch[k][1], [-100] * math.prod(batch[k][1])) for k in ignored}})
        for ranks, args in ((0, []), (2, []), (2, ["parallel.context=2"])):
            run(BIN / "tfm-probe", source, "--batch", "ignored.safetensors", "--out", "out.safetensors", "--gradients", *args, ranks=ranks)
            found = tensors(pathlib.Path("out.safetensors"))
            assert math.isnan(floats(found["loss"])[0]), (name, args)
            assert name == "bert_1" or not any(x for k, v in found.items() if k.startswith("grad.") for x in floats(v)), name


def check_generation_settings():
    """What generation_config.json asks of translations: where they start is obeyed, what is not is said by both programs."""
    folder, pairs = pathlib.Path("exported_marian"), ["--source", "source.txt", "--target", "source.txt"]
    pathlib.Path("source.txt").write_text("ab\n")
    config = json.loads((folder / "config.json").read_text())
    content = tensors(folder / "model.safetensors")
    dtype, shape, raw = content["model.shared.weight"]
    louder = array.array("f", [30 * x for x in array.array("f", raw)]).tobytes()  # so that a text follows from its first token
    write_tensors(folder / "model.safetensors", {**content, "model.shared.weight": (dtype, shape, louder)})

    def translated(start, **settings):
        (folder / "config.json").write_text(json.dumps({**config, "decoder_start_token_id": start}))
        (folder / "generation_config.json").unlink(missing_ok=True)
        if settings:
            (folder / "generation_config.json").write_text(json.dumps(settings))
        with open("source.txt") as lines:
            done = subprocess.run([BIN / "tfm-generate", folder, "--tokenizer", "bytes", "--max-tokens", "5"], stdin=lines, capture_output=True)
        assert done.returncode == 0, done
        return done.stdout, done.stderr.decode()

    texts = {start: translated(start)[0] for start in (97, 98, 256)}
    assert len(set(texts.values())) == 3, texts
    for start, text in texts.items():
        assert translated(255, decoder_start_token_id=start, bos_token_id=255) == translated(255, bos_token_id=start) == (text, "")
    settings = {"begin_suppress_tokens": [1], "encoder_no_repeat_ngram_size": 2, "encoder_repetition_penalty": 1.5,
                "exponential_decay_length_penalty": [1, 1.5], "guidance_scale": 2.0, "sequence_bias": [[[66], 10.0]],
                "watermarking_config": {"bias": 5.0}}
    for name, value in settings.items():
        warning = f"asks for {name} when it generates"
        assert warning in translated(256, **{name: value})[1], name
        assert warning in run(BIN / "tfm-eval", folder, "--tokenizer", "bytes", *pairs), name
    assert not translated(256, forced_eos_token_id=0, encoder_repetition_penalty=1.0, guidance_scale=None, begin_suppress_tokens=[])[1]


def check_generation_config_of_a_run():
    """Special ids that a run has changed stand in both files of its export; those that it keeps stay, where the files differ, too."""
    source, exported = pathlib.Path("of_ids"), pathlib.Path("with_ids")
    shutil.copytree("exported_marian", source)
    settings = {"decoder_start_token_id": 256, "pad_token_id": 258, "bos_token_id": 7, "eos_token_id": [257, 5], "num_beams": 4}
    (source / "generation_config.json").write_text(json.dumps(settings))
    pathlib.Path("ids.yaml").write_text("model: {init: of_ids}\ncheckpoint: {dir: ids}\n"
                                        "train: {steps: 1, global_batch_size: 2, seq_len: 16}\n"
                                        "data: {train: {type: pairs, path: pairs.tsv}, tokenizer: bytes}\n")

    def of_run(*args, onto=exported):
        shutil.rmtree("ids", ignore_errors=True)
        run(BIN / "tfm-train", "ids.yaml", *args)
        run(BIN / "tfm-convert", "export", "ids", onto, "--force")
        config, generation = (json.loads((onto / f"{name}.json").read_text()) for name in ("config", "generation_config"))
        return config, generation

    assert of_run()[1] == settings
    assert (exported / "generation_config.json").read_bytes() == (source / "generation_config.json").read_bytes()
    config, generation = of_run("model.decoder_start=9", "model.padding_idx=3")
    assert config["decoder_start_token_id"] == 9 and config["pad_token_id"] == 3, config
    assert generation == {**settings, "decoder_start_token_id": 9, "pad_token_id": 3}, generation
    (source / "generation_config.json").write_text(json.dumps({"bos_token_id": 7}))  # which begins translations, without a start
    assert of_run()[1] == {"bos_token_id": 7}
    assert of_run("model.decoder_start=9", onto=source)[1] == {"bos_token_id": 7, "decoder_start_token_id": 9}
    # A file that an earlier export left behind does not contradict the new one.
    (pathlib.Path("exported_bert") / "generation_config.json").write_text(json.dumps({**settings, "pad_token_id": 4}))
    run(BIN / "tfm-convert", "export", "special_bert", "exported_bert", "--force")
    generation = json.loads(pathlib.Path("exported_bert/generation_config.json").read_text())
    assert generation == {"bos_token_id": 256, "eos_token_id": [257, 5], "pad_token_id": 258, "num_beams": 4}, generation
    # Ids that are not known contradict nothing.
    shutil.copytree(ROOT / "tests/fixtures/bpe600", "lost")
    pathlib.Path("unknown.yaml").write_text("model: {family: decoder, vocab_size: 600, d_model: 16, n_layers: 1, n_heads: 2}\n"
                                            "train: {steps: 1, global_batch_size: 2, seq_len: 16}\ncheckpoint: {dir: unknown}\n"
                                            "data: {train: {type: text, path: text.txt}, tokenizer: lost}\n")
    run(BIN / "tfm-train", "unknown.yaml")
    shutil.rmtree("lost")
    assert "lost" in run(BIN / "tfm-convert", "export", "unknown", "exported_bert", "--force")
    assert json.loads(pathlib.Path("exported_bert/generation_config.json").read_text()) == generation


def check_windows():
    """What transformers reads from several members, or from none; a run with other windows than its model had says so in its export."""
    every = ["full_attention"] * 2
    for name, one, other in (("mistral_0", {"sliding_window": ...}, {"sliding_window": None}),  # 4096, longer than any sequence here
                             ("mixtral_0", {"sliding_window": ...}, {"sliding_window": None}),
                             ("qwen2_5", {"layer_types": ...}, {}), ("qwen2_moe_6", {"layer_types": ...}, {}),
                             ("qwen2_5", {"layer_types": ..., "max_window_layers": 2}, {"layer_types": every}),
                             ("qwen2_5", {"layer_types": ..., "use_sliding_window": False}, {"layer_types": every})):
        batch = tensors(ROOT / "tests/fixtures/huggingface" / name / "batch.safetensors")
        assert probed(edited("one", name, one), batch) == probed(edited("other", name, other), batch), (name, one, other)
        for folder in ("one", "other"):
            run(BIN / "tfm-convert", "export", folder, "again", "--force")
            before, after = (json.loads(pathlib.Path(f, "config.json").read_text()) for f in (folder, "again"))
            for key in ("sliding_window", "use_sliding_window", "max_window_layers", "layer_types"):
                assert before.get(key) == after.get(key), (key, before, after)
    ids = array.array("H", [i * i % 29 for i in range(900)])
    pathlib.Path("window.bin").write_bytes(array.array("i", [20240520, 1, len(ids)] + [0] * 253).tobytes() + ids.tobytes())
    pathlib.Path("window.yaml").write_text("data: {train: {type: tokens, path: window.bin}}\ncheckpoint: {dir: window}\n"
                                           "train: {steps: 1, global_batch_size: 2, seq_len: 12}\n")
    for name, key, window, expected in (
            ("mistral_5", "attention", 4, {"sliding_window": 4}), ("mistral_5", "attention", 0, {"sliding_window": None}),
            ("qwen2_5", "layer_kinds.local.attention", 4, {"use_sliding_window": True, "sliding_window": 4,
                                                           "layer_types": ["full_attention", "sliding_attention"]}),
            ("qwen2_5", "layer_kinds.local.attention", 0, {"use_sliding_window": False, "layer_types": every}),
            ("qwen2_0", "attention", 3, {"use_sliding_window": True, "sliding_window": 3, "layer_types": ["sliding_attention"] * 2}),
            ("qwen3_moe_5", "attention", 7, {"use_sliding_window": True, "sliding_window": 7})):
        shutil.rmtree("window", ignore_errors=True)
        run(BIN / "tfm-train", "window.yaml", f"model.init={ROOT}/tests/fixtures/huggingface/{name}", f"model.{key}.window={window}")
        run(BIN / "tfm-convert", "export", "window", "exported_window", "--force")
        config = json.loads(pathlib.Path("exported_window/config.json").read_text())
        assert all(config[k] == v for k, v in expected.items()), (name, key, window, config)
    run(BIN / "tfm-train", "window.yaml", f"model.init={ROOT}/tests/fixtures/huggingface/llama_5", "model.attention.window=3",
        "checkpoint.dir=llama_window")
    assert "needs attention: {window: 0}" in run(BIN / "tfm-convert", "export", "llama_window", "exported_llama_window", code=2)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for check in (check_against_transformers, check_members_of_config, check_padding_ids, check_tensors_of_none, check_names_of_tensors,
                      check_missing_tensors, check_headless, check_padding,
                      check_round_trip, check_lost_tensors, check_element_types_and_shards,
                      check_configuration_without_weights, check_messages, check_dropout,
                      check_no_labels, check_training, check_special_ids, check_frozen_bias, check_generation_settings,
                      check_generation_config_of_a_run, check_windows, check_marian_tokenizer, check_ends_and_special_tokens,
                      check_weights_that_do_not_fit, check_probe_refuses):
            check()
            print(check.__name__, "ok", flush=True)
        os.chdir("/")


main()
