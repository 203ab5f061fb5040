"""What is made of the list of keys: the JSON schema that editors complete from, man pages, shell completion.

usage: test_reference.py BIN_FOLDER
"""
import copy
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.argv[1]).resolve()
PROGRAMS = sorted(f.stem.replace("_", "-") for f in (ROOT / "launch").glob("tfm_*.cpp"))


def output(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


SCHEMA = json.loads((ROOT / "configs/tfm.schema.json").read_text())


def problems(value, schema, at=""):
    """What a JSON schema (those of its words that ours uses) has against a value."""
    known = {"$schema", "definitions", "description", "default", "$ref", "anyOf", "enum", "type", "minimum", "maximum", "exclusiveMinimum",
             "exclusiveMaximum", "pattern", "properties", "additionalProperties", "required", "items", "minItems", "maxItems"}
    assert set(schema) <= known, set(schema) - known
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    found = []
    if "anyOf" in schema and all(problems(value, s, at) for s in schema["anyOf"]):
        found.append(f"{at}: {value!r} is none of what is expected")
    if "enum" in schema and not any(value == e and type(value) is type(e) for e in schema["enum"]):
        found.append(f"{at}: {value!r} is not one of {schema['enum']}")
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float), "null": type(None)}
    wanted = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type")
    if wanted and not any(isinstance(value, types[t]) and isinstance(value, bool) == (t == "boolean") for t in wanted):
        return found + [f"{at}: {value!r} is not of type {wanted}"]
    if isinstance(value, (int, float)):
        found += [f"{at}: {value} is out of range" for word, fits in (
            ("minimum", lambda b: value >= b), ("maximum", lambda b: value <= b), ("exclusiveMinimum", lambda b: value > b),
            ("exclusiveMaximum", lambda b: value < b)) if word in schema and not fits(schema[word])]
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{at}: {value!r} does not match {schema['pattern']}")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{at}: a list of {len(value)}")
        for i, item in enumerate(value):
            found += problems(item, schema.get("items", {}), f"{at}[{i}]")
    if isinstance(value, dict):
        found += [f"{at}.{key} is missing" for key in schema.get("required", []) if key not in value]
        for key, child in value.items():
            if key in schema.get("properties", {}):
                found += problems(child, schema["properties"][key], f"{at}.{key}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{at}.{key} is unknown")
    return found


def scalar(text):
    if text[:1] in "\"'":
        return text[1:-1]
    if text in ("true", "false", "null", "~", ""):
        return {"true": True, "false": False}.get(text)
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def flow(tokens):
    token = tokens.pop(0)
    if token == "[":
        items = []
        while tokens[0] != "]":
            items.append(flow(tokens))
            if tokens[0] == ",":
                tokens.pop(0)
        return tokens.pop(0) and items
    if token == "{":
        items = {}
        while tokens[0] != "}":
            key = tokens.pop(0)
            assert tokens.pop(0) == ":", key
            items[key] = flow(tokens)
            if tokens[0] == ",":
                tokens.pop(0)
        return tokens.pop(0) and items
    return scalar(token.strip())


def read_yaml(text):
    """The YAML that shipped configurations use: block and flow maps, flow lists, comments."""
    root, stack = {}, []
    stack.append((-1, root))
    text = re.sub(r"(^|\s)#.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\{[^{}]*(\{[^{}]*\}[^{}]*)*\}", lambda m: m[0].replace("\n", " "), text)  # a flow map on one line
    for line in filter(str.strip, text.splitlines()):
        indent = len(line) - len(line.lstrip())
        key, _, value = line.strip().partition(":")
        while stack[-1][0] >= indent:
            stack.pop()
        value = value.strip()
        if not value:
            stack[-1][1][key] = {}
            stack.append((indent, stack[-1][1][key]))
        elif value[0] in "[{":
            stack[-1][1][key] = flow([t for t in re.findall(r"\"[^\"]*\"|[\[\]{},]|:(?=\s)|[^\[\]{},:\s][^\[\]{},\"]*?(?=\s*(?:[\[\]{},]|:\s|$))", value)])
        else:
            stack[-1][1][key] = scalar(value)
    return root


def check_schema_is_what_the_program_prints():
    assert (ROOT / "configs/tfm.schema.json").read_text() == output(BIN / "tfm-train", "--json-schema"), \
        "configs/tfm.schema.json differs from what tfm-train --json-schema prints; replace it"
    keys = re.findall(r"^\| `([\w.]+)`", output(BIN / "tfm-train", "--keys"), re.MULTILINE)
    assert len(keys) > 100

    def named(schema, path=""):
        for form in [schema, *schema.get("anyOf", [])]:
            for name, child in form.get("properties", {}).items():
                yield path + name, child
                yield from named(child, path + name + ".")
    assert dict.fromkeys(k for k, _ in named(SCHEMA)) == dict.fromkeys(keys)
    assert all(child["description"] for _, child in named(SCHEMA))
    standard = dict(named(SCHEMA))
    assert standard["optimizer.lr"]["default"] == 6e-4 and standard["parallel.data"]["default"] == "auto"
    assert standard["model.bias"]["default"] is True and "default" not in standard["model.d_model"]


def check_shipped_configurations_fit():
    files = sorted((ROOT / "configs").glob("*.yaml"))
    assert len(files) > 10
    for file in files:
        text = file.read_text()
        assert text.startswith("# yaml-language-server: $schema=tfm.schema.json\n"), file
        assert problems(read_yaml(text), SCHEMA) == [], (file, problems(read_yaml(text), SCHEMA))
        dumped = read_yaml(output(BIN / "tfm-train", file, "--dump-config"))
        assert len(dumped["model"]) > 30 and problems(dumped, SCHEMA) == [], (file, problems(dumped, SCHEMA))


def check_wrong_configurations_do_not_fit():
    good = {"model": {"family": "decoder", "vocab_size": "50k", "d_model": 64, "n_layers": 2, "n_heads": 4, "dropout": {"ffn": 0.1}},
            "data": {"train": {"type": "tokens", "path": ["a.bin", {"path": "b.bin", "weight": 2}]}}, "optimizer": {"betas": [0.9, 0.95]},
            "eval": {"metrics": ["accuracy"], "stop": {"patience": 3}}, "parallel": None}
    for train in ({"type": "tokens", "path": ["a.bin", {"path": "b.bin", "weight": 2}]}, {"type": "text", "path": {"path": "a.txt", "weight": 2}}):
        for steps in (5, "5k", "5e0k", ".5E+1M", "0.5Gi", "5.k"):
            fits = {**good, "data": {"train": train}, "train": {"steps": steps}}
            assert problems(fits, SCHEMA) == [], problems(fits, SCHEMA)
    for path, value in (("optimizer.learning_rate", 1e-3), ("trian", {}), ("model.family", "gpt"), ("model.d_model", "wide"), ("model.d_model", 1.5),
                        ("model.d_model", 0), ("model.dropout", 1), ("model.dropout.ffn", "none"), ("model.bias", "yes"), ("model.bias", 1),
                        ("model.norm_eps", 0), ("model.preset", "gpt5"), ("train.steps", "5x"), ("train.steps", "auto"), ("train.steps", "05k"), ("train.steps", "e3k"), ("train.steps", ".k"), ("model.dropout", None),
                        ("data.train.path", {"weight": 2}), ("data.train.path", {"path": "a", "wieght": 2}), ("data.train.path", [None]),
                        ("train.seed", -1), ("train.seed", "1k"), ("parallel.zero", 4), ("parallel.data", "all"), ("optimizer.type", "lion"),
                        ("optimizer.betas", [0.9]), ("optimizer.betas", 0.9), ("optimizer.betas", [0.9, 1]), ("optimizer", 5), ("precision", "fp8"),
                        ("data.train.type", "csv"), ("data.train.path", [{"path": "a", "wieght": 2}]),
                        ("data.train.path", [{"weight": 2}]), ("eval.metrics", ["bleurt"]), ("eval.stop", {"metric": "loss"}), ("checkpoint.dir", 5),
                        ("model", {"family": "decoder"})):
        bad = copy.deepcopy(good)
        *sections, last = path.split(".")
        at = bad
        for section in sections:
            at[section] = at.get(section) or {}
            at = at[section]
        at[last] = value
        assert problems(bad, SCHEMA), (path, value)
    for missing in ("model", "data"):
        assert problems({k: v for k, v in good.items() if k != missing}, SCHEMA)
    for instead in ({"preset": "gpt2-124m"}, {"init": "folder"}):
        assert problems({**good, "model": instead}, SCHEMA) == []


def complete(script, line):
    """What bash offers for the end of a line, as its completion function says."""
    words = line.split(" ")
    code = f"""set -u; source {script}
      COMP_LINE={json.dumps(line)}; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=({' '.join(map(json.dumps, words))}); COMP_CWORD={len(words) - 1}
      given=($(complete -p "${{COMP_WORDS[0]##*/}}")); [[ "${{given[*]}}" =~ -F\\ ([a-z_]+) ]]
      ${{BASH_REMATCH[1]}} "${{COMP_WORDS[0]}}"; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert not done.stderr, done.stderr
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def check_completion(made):
    folder = made / "bash-completion/completions"
    for program in PROGRAMS:
        subprocess.run(["bash", "-c", f"source {folder / program}; complete -p {program}"], check=True, capture_output=True)
    script = folder / "tfm-train"
    for line, expected in (("tfm-train cfg.yaml optimizer.l", ["optimizer.lr="]), ("tfm-train cfg.yaml model.family=", ["encoder", "decoder", "encoder_decoder"]),
                           ("tfm-train cfg.yaml model.family=enc", ["encoder", "encoder_decoder"]), ("tfm-train cfg.yaml device=c", ["cpu", "cuda"]),
                           ("mpirun_tfm/tfm-train cfg.yaml model.bias=", ["true", "false"]), ("tfm-train cfg.yaml --du", ["--dump-config"]),
                           ("tfm-generate ck --top", ["--top-k", "--top-p"]), ("tfm-data pre", ["prepare"]), ("tfm-data --vo", ["--vocab-size"]),
                           ("tfm-convert ex", ["export"]), ("tfm-bench coll", ["collectives"]), ("tfm-data optimizer.l", []),
                           ("mpirun -np 2 --bind-to none tfm-train cfg.yaml optimizer.l", ["optimizer.lr="]), ("srun -n 2 bin/tfm-train --du", ["--dump-config"]),
                           ("mpiexec -n 2 tfm-generate ck --top", ["--top-k", "--top-p"]), ("mpirun -np 2 other --du", []),
                           ("tfm-eval ck parallel.tens", ["parallel.tensor="]), ("tfm-train cfg.yaml eval.metrics=b", ["bleu"])):
        assert complete(script, line) == expected, (line, complete(script, line))
    with tempfile.TemporaryDirectory() as folder:
        spaced = pathlib.Path(folder) / "two words"
        spaced.mkdir()
        for path in (pathlib.Path(folder), spaced):
            (path / "run.yaml").write_text("")
        for start in (f"{folder}/two\\ words/ru", f'"{spaced}/ru', f"'{spaced}/ru"):
            for before in ("", "'a b' ", "a\\ b ", "data.tokenizer="):
                assert complete(script, f"tfm-train {before}{start}") == [f"{spaced}/run.yaml"], (before, start)
        assert complete(script, f"tfm-train {folder}/ru") == [f"{folder}/run.yaml"]
        assert complete(script, f"tfm-train cfg.yaml data.tokenizer={folder}/ru") == [f"{folder}/run.yaml"]


def check_man_pages(made):
    pages = [made / "man/man1" / f"{p}.1" for p in PROGRAMS] + [made / "man/man5/tfm-configuration.5"]
    for page in pages:
        text = page.read_text()
        assert text.startswith(f".TH {page.stem.upper()} ".replace("-", "\\-")), page
        if page.suffix == ".1":
            assert re.search(rf"^\.SH EXAMPLES\n(\.TP\n)?\.B .*{page.stem} ".replace("-", r"\\-"), text, re.MULTILINE), page
            for option in set(re.findall(r"(?<![\w-])--[a-z][\w-]*", output(BIN / page.stem, "--help"))):
                assert option.replace("-", "\\-") in text, (page, option)
        if shutil.which("mandoc"):
            subprocess.run(["mandoc", "-T", "lint", "-W", "error", page], check=True)
        if shutil.which("man") and shutil.which("groff"):
            warned = subprocess.run(["man", "--warnings", "-l", "-Tutf8", page], capture_output=True, text=True, check=True)
            assert not warned.stderr and len(warned.stdout) > 500, (page, warned.stderr)
    # What a program has several of is explained one by one, and a usage is whole.
    for program, lines in (("tfm-bench", [".SS tfm\\-bench step", ".SS tfm\\-bench kernels"]), ("tfm-data", [".B info FILE [\\-\\-seq\\-len N]"]),
                           ("tfm-convert", [".B tfm\\-convert import HF_DIR OUT_DIR [\\-\\-force]"]),
                           ("tfm-probe", [r"[mpirun \-np N] tfm\-probe MODEL_DIR \-\-batch IN.safetensors \-\-out OUT.safetensors [OPTION...] "
                                          "[section.key=value ...]"])):
        assert set(lines) <= set((made / "man/man1" / f"{program}.1").read_text().splitlines()), program
    keys = re.findall(r"^\| `([\w.]+)`", output(BIN / "tfm-train", "--keys"), re.MULTILINE)
    assert not [k for k in keys if k not in pages[-1].read_text()]


with tempfile.TemporaryDirectory() as folder:
    output(sys.executable, ROOT / "launch/make_reference.py", BIN, folder)
    for check in (check_schema_is_what_the_program_prints, check_shipped_configurations_fit, check_wrong_configurations_do_not_fit,
                  check_completion, check_man_pages):
        check(*[pathlib.Path(folder)] * check.__code__.co_argcount)
        print(check.__name__, "ok")
