#!/usr/bin/env python3
"""Compares the ids and masks of `tfm-data chat` with transformers' return_assistant_tokens_mask for drawn chats.

usage: python3 tests/acceptance/chats.py BIN_DIR [--chats 1000] [--seed 1] [--fixture]

Needs `transformers` 5.24, `tokenizers` and `jinja2`. Templates are those of tests/fixtures/chats/templates, each as it is, with its
blocks of generation, and without them (which transformers cannot mark: the marks must be those of the template with blocks).
Tokenizers are trained here: byte-level BPE as GPT-2's, Llama 3's and Qwen's, and BPE over U+2581 with bytes to fall back on, as
Gemma's and Mistral's. --fixture writes tests/fixtures/chats/tokenizer and tests/fixtures/chats/masks.jsonl, a few of the same.
"""

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHATS = ROOT / "tests/fixtures/chats"
SPECIAL = [
    "<unk>",
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|end|>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
]
WORDS = (
    "the weather is fine today and tomorrow ask again later please what how why because 12 345 6,7 "
    "hello Hi THERE it's don't naïve straße 東京 大阪 😀 👩‍👩‍👧 "
    "é e\u0301 x=1; {a} \\n <b> </b> <think> </think> \t (yes) [no] – … ﬁ ½ user assistant model system"
).split(" ")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": 'Says "how" it <is>.',
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["place"],
            },
        },
    }
]


def text_of(draw, most=12):
    words = [draw.choice(WORDS) for _ in range(draw.randint(1, most))]
    text = "".join(w + draw.choice([" ", " ", " ", "  ", "\n", "\n\n", ""]) for w in words)
    return text if draw.random() < 0.3 else text.strip() or "a"


def chat_of(draw, template):
    messages, tools = [], None
    if draw.random() < 0.5:
        messages.append({"role": "system", "content": text_of(draw)})
    calls = template in ("llama3", "qwen25", "qwen3", "mistral")
    for _ in range(draw.randint(1, 4)):
        messages.append({"role": "user", "content": text_of(draw, 20)})
        if calls and draw.random() < 0.2:
            tools = TOOLS
            arguments = {
                "place": draw.choice(["Zürich", "東京", 'a "b"']),
                "days": draw.randint(1, 9),
                "exact": draw.choice([True, None, 0.5]),
            }
            call = {
                "id": f"id{draw.randint(1000000, 9999999)}",
                "type": "function",
                "function": {"name": "weather", "arguments": arguments},
            }
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            messages.append({"role": "tool", "content": '{"sun": true}', "tool_call_id": call["id"]})
        answer = {"role": "assistant", "content": text_of(draw, 20)}
        if template == "qwen3" and draw.random() < 0.4:
            if draw.random() < 0.5:
                answer["reasoning_content"] = text_of(draw)
            else:
                answer["content"] = f"<think>\n{text_of(draw).strip()}\n</think>\n\n" + answer["content"].strip()
        messages.append(answer)
    row = {"messages": messages}
    if tools or (calls and draw.random() < 0.2):
        row["tools"] = TOOLS
    return row


def train(folder, kind, size):
    draw = random.Random(5)
    tokenizer = Tokenizer(models.BPE(unk_token=None if kind == "bytes" else "<unk>", byte_fallback=kind != "bytes"))
    texts = [text_of(draw, 60) for _ in range(400)] + ["assistant\nuser\nsystem\nmodel\n"] * 20
    special = [AddedToken(t, special=True, normalized=False) for t in SPECIAL]
    if kind == "bytes":
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
        tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
        alphabet = []
        special += [AddedToken(f"<0x{byte:02X}>", special=False, normalized=False) for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts if kind == "bytes" else [w for t in texts for w in re.findall(r" ?[^ ]+| +", t)], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if not t["content"].startswith("<0x")]
    (folder / "tokenizer.json").write_text(json.dumps(state, ensure_ascii=False, indent=1))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "clean_up_tokenization_spaces": False}
        )
    )


def expected_of(tokenizer, template, row):
    out = tokenizer.apply_chat_template(
        row["messages"], tools=row.get("tools"), chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    return {"ids": out["input_ids"], "mask": out["assistant_masks"]}


def plain(template):
    return template.replace("endgeneration", "endif").replace("generation %}", "if true %}")


def fixture():
    train(CHATS / "tokenizer", "bytes", 420)
    tokenizer = transformers.AutoTokenizer.from_pretrained(CHATS / "tokenizer")
    draw, lines = random.Random(9), []
    for path in sorted((CHATS / "templates").glob("*.jinja")):
        for _ in range(3):
            row = chat_of(draw, path.stem)
            lines.append({"template": path.stem, "row": row, **expected_of(tokenizer, path.read_text(), row)})
    (CHATS / "masks.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--chats", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fixture", action="store_true")
    args = parser.parse_args()
    if args.fixture:
        return fixture()
    wrong = 0
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for kind in ("bytes", "metaspace"):
            train(work / kind, kind, 700)
            tokenizer = transformers.AutoTokenizer.from_pretrained(work / kind)
            for path in sorted((CHATS / "templates").glob("*.jinja")):
                draw, source = random.Random(f"{args.seed} {path.stem}"), path.read_text()
                rows = [chat_of(draw, path.stem) for _ in range(args.chats)]
                (work / "chats.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
                expected = [expected_of(tokenizer, source, row) for row in rows]
                for form, text in (("blocks", source), ("plain", plain(source))):
                    (work / "t.jinja").write_text(text)
                    done = subprocess.run(
                        [f"{args.bin}/tfm-data", "chat", work / "chats.jsonl", "--tokenizer", work / kind, "--template", work / "t.jinja"],
                        capture_output=True,
                        text=True,
                    )
                    got = [json.loads(line) for line in done.stdout.splitlines()]
                    bad = [i for i, (a, b) in enumerate(zip(got, expected)) if a != b]
                    same_ids = sum(a["ids"] == b["ids"] for a, b in zip(got, expected))
                    tokens, marked = (sum(len(e["ids"]) for e in expected), sum(sum(e["mask"]) for e in expected))
                    print(f"{kind:9} {path.stem:7} {form:6}: {len(rows)} chats, {same_ids} with equal ids, {len(got) - len(bad)} equal,"
                          f" {marked} of {tokens} tokens of the assistant {done.stderr.strip()}")
                    if bad:
                        i = bad[0]
                        print(
                            "first:",
                            json.dumps(rows[i], ensure_ascii=False),
                            tokenizer.convert_ids_to_tokens(expected[i]["ids"]),
                            got[i],
                            expected[i],
                            sep="\n",
                        )
                    wrong += len(rows) - len(got) + len(bad)
    print(wrong, "wrong")
    return 1 if wrong else 0


sys.exit(main())
