#!/usr/bin/env python3
"""Each code point through the components of a tokenizer.json that read Unicode's tables, against the PyPI package `tokenizers`.

usage: tests/acceptance/unicode.py BIN_FOLDER [COMPONENT...]
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and chr(c) not in "\n\r"]


def alphabet():
    """GPT-2's character of each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


def bert(**flags):
    return {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False, **flags}


NORMALIZERS = {
    "clean_text": bert(clean_text=True), "handle_chinese_chars": bert(handle_chinese_chars=True), "strip_accents": bert(strip_accents=True),
    "lowercase": bert(lowercase=True),
    "BertNormalizer": bert(clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True),
    **{name: {"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")},
    "Strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "Precompiled": json.loads((pathlib.Path(__file__).resolve().parents[1] / "fixtures/tokenizers/t5.json").read_text())["normalizer"],
}
PRE_TOKENIZERS = {
    "BertPreTokenizer": {"type": "BertPreTokenizer"}, "Punctuation": {"type": "Punctuation", "behavior": "Isolated"},
    "WhitespaceSplit": {"type": "WhitespaceSplit"}, "Whitespace": {"type": "Whitespace"},
    "Digits": {"type": "Digits", "individual_digits": True},
    **{pattern: {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
       for pattern in (r"\s+", r"\w+", r"\d+", *(fr"\p{{{p}}}" for p in "L LC Lu Ll Lt Lm Lo N Nd Nl No M Mn Mc Me P S Z C Cc Cf Cn Han Latin Arabic".split()),
                       r"[^\s\p{L}\p{N}]+", r"\P{L}+", r"\P{C}", r"[^\w\s]+", r"[\w]+", *(fr"[[:{p}:]]" for p in "digit punct word space cntrl xdigit".split()))},
}


def tokenizer_file(name):
    """The bytes of the normalized text, or the words that a text is cut into."""
    if name in NORMALIZERS:
        pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                 "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": alphabet(), "merges": []}
    else:
        pre = PRE_TOKENIZERS[name]
        model = {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                 "vocab": {"?": 0, "a": 1, "##a": 2}}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": NORMALIZERS.get(name),
            "pre_tokenizer": pre, "post_processor": None, "decoder": None, "model": model}


def text_of(name, c):
    """In places where composition, order, clusters and the ends of a text matter."""
    return f"a{c}b\u0301{c}e\u0327{c}\u0316\u0301\xbc{c} {c}" if name in NORMALIZERS else f"a{c}a-{c}-"


def different(bin_folder, name, folder):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(tokenizer_file(name)))
    texts = [text_of(name, chr(c)) for c in POINTS]
    lines = subprocess.run([bin_folder / "tfm-data", "encode", "--tokenizer", path], input="\n".join([*texts, ""]).encode(),
                           stdout=subprocess.PIPE, check=True).stdout.decode().split("\n")
    library = Tokenizer.from_file(str(path))
    for at in range(0, len(texts), 100000):
        expected = library.encode_batch(texts[at:at + 100000], add_special_tokens=False)
        yield from (c for c, e, ours in zip(POINTS[at:], expected, lines[at:]) if " ".join(map(str, e.ids)) != ours.strip())


def main():
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[2:] or [*NORMALIZERS, *PRE_TOKENIZERS]:
            wrong = list(different(pathlib.Path(sys.argv[1]), name, pathlib.Path(folder)))
            failed |= bool(wrong)
            print(f"{name}: {len(wrong)} of {len(POINTS)} code points differ {' '.join(f'U+{c:04X}' for c in wrong[:20])}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
