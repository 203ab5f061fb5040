"""Chats. tfm-data chat: ids and masks are those of transformers (tests/acceptance/chats.py --fixture), with and without blocks of
generation; templates beside a tokenizer, other forms of rows, and files that are broken, which are named with their row. Training: the
same losses on every layout and after a new start, packed or one by one; what does not fit is said. tfm-generate --chat answers as it
was taught.

usage: test_chats.py BIN
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
CHATS = pathlib.Path(__file__).resolve().parents[1] / "fixtures/chats"
TOKENIZER = CHATS / "tokenizer"
MPIRUN = pathlib.Path(__file__).resolve().parents[1] / "mpirun.sh"
RUN = f"""
model: {{family: decoder, vocab_size: 420, d_model: 64, n_layers: 2, n_heads: 4, d_ff: 128, max_seq_len: 512, position: learned,
        norm: rmsnorm}}
train: {{steps: 6, global_batch_size: 4, seq_len: 256}}
optimizer: {{lr: 3e-3}}
data:
  tokenizer: {TOKENIZER}
  train: {{type: chat, path: chats.jsonl, template: chatml, shuffle: true}}
  validation: {{type: chat, path: chats.jsonl, template: chatml}}
eval: {{every: 6}}
checkpoint: {{dir: ck}}
metrics: {{jsonl: metrics.jsonl}}
"""
USER, ASSISTANT = {"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "the weather"}


def chat(folder, rows, *args, tokenizer=TOKENIZER, code=0, template="chatml"):
    text = rows if isinstance(rows, str) else "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(text)
    command = [
        BIN / "tfm-data",
        "chat",
        folder / "rows.jsonl",
        "--tokenizer",
        tokenizer,
        *(["--template", template] if template else []),
        *args,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code else [json.loads(line) for line in done.stdout.splitlines()]


def plain(template):
    return template.replace("endgeneration", "endif").replace("generation %}", "if true %}")


def check_against_transformers(folder):
    cases = [json.loads(line) for line in (CHATS / "masks.jsonl").read_text().splitlines()]
    for name in sorted({case["template"] for case in cases}):
        mine = [case for case in cases if case["template"] == name]
        source = (CHATS / f"templates/{name}.jinja").read_text()
        for text in (source, plain(source)):
            (folder / "t.jinja").write_text(text)
            for got, case in zip(chat(folder, [case["row"] for case in mine], template=folder / "t.jinja"), mine, strict=True):
                assert got == {"ids": case["ids"], "mask": case["mask"]}, (name, case["row"], got)


def check_templates_beside_tokenizers(folder):
    source = (CHATS / "templates/qwen25.jinja").read_text()
    rows = [{"messages": [USER, ASSISTANT]}]
    expected = chat(folder, rows, template=CHATS / "templates/qwen25.jinja")
    config = json.loads((TOKENIZER / "tokenizer_config.json").read_text())
    for i, (file, content) in enumerate(
        [
            ("tokenizer_config.json", json.dumps({**config, "chat_template": source})),
            (
                "tokenizer_config.json",
                json.dumps(
                    {
                        **config,
                        "chat_template": [
                            {"name": "default", "template": source},
                            {"name": "tool_use", "template": "{% generation %}x{% endgeneration %}"},
                        ],
                    }
                ),
            ),
            ("chat_template.json", json.dumps({"chat_template": source})),
            ("chat_template.jinja", source),
        ]
    ):
        beside = folder / f"tokenizer{i}"
        shutil.copytree(TOKENIZER, beside)
        (beside / file).write_text(content)
        assert chat(folder, rows, tokenizer=beside, template=None) == expected, file
        assert chat(folder, rows, tokenizer=beside / "tokenizer.json", template="auto") == expected, file
    (beside / "additional_chat_templates").mkdir()
    (beside / "additional_chat_templates/tool_use.jinja").write_text("{% generation %}x{% endgeneration %}")
    assert chat(folder, rows, tokenizer=beside, template=None) == expected
    assert len(chat(folder, [{**rows[0], "tools": [{"type": "function"}]}], tokenizer=beside, template=None)[0]["ids"]) < 3
    assert len(chat(folder, [{**rows[0], "tools": [{"type": "function"}]}], tokenizer=folder / "tokenizer1", template=None)[0]["ids"]) < 3
    error = chat(folder, rows, template=None, code=2)
    assert "has no chat template" in error and "`chatml`" in error, error
    chat(folder, rows, tokenizer="bytes")


# Without generation blocks: what an answer adds to its prompt, which is that of its own place.
AFTER = """{% set ns = namespace(tool=false) %}{% for m in messages %}{% if m.role == 'tool' %}{% set ns.tool = true %}[TOOL_RESULTS]{{
m.content }}{% elif m.role == 'assistant' %}{{ '[/TOOL_RESULTS]' if ns.tool else '<|assistant|>' }}{% set ns.tool = false %}{{ m.content }}{{
'[TOOL_CALLS]' if m.tool_calls }}</s>{% else %}<|user|>{{ m.content }}{% endif %}{% endfor %}{{ '[/TOOL_RESULTS]' if ns.tool
}}{{ '<|assistant|>' if add_generation_prompt and not ns.tool }}"""
CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
RESULT = {"role": "tool", "content": "fine"}
HEADED = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"


def check_prompts_of_answers(folder):
    (folder / "t.jinja").write_text(AFTER)
    (line,) = chat(folder, [{"messages": [USER, CALL, RESULT, ASSISTANT, USER, ASSISTANT]}], template=folder / "t.jinja")
    tokens = json.loads((TOKENIZER / "tokenizer.json").read_text())
    special = {t["id"]: t["content"] for t in tokens["added_tokens"]}
    learned = [special[i] for i, m in zip(line["ids"], line["mask"]) if m and i in special]
    assert learned == ["[TOOL_CALLS]", "</s>", "</s>", "</s>"], learned
    # A prompt only behind the user: an answer to a tool's result would have its header learned.
    (folder / "t.jinja").write_text(HEADED + "{{ '<|im_start|>assistant\n' if add_generation_prompt and messages[-1].role == 'user' }}")
    assert sum(chat(folder, [{"messages": [USER, ASSISTANT]}], template=folder / "t.jinja")[0]["mask"]) > 2
    rows = [{"messages": [USER, ASSISTANT, RESULT, ASSISTANT]}]
    error = chat(folder, rows, template=folder / "t.jinja", code=3)
    assert "no generation prompt before message 4" in error and "{% generation %}" in error, error
    error = chat(folder, [{"messages": [USER, ASSISTANT, RESULT, CALL]}], template=folder / "t.jinja", code=3)
    assert "a generation prompt before message 2, and none before message 4" in error, error
    # No prompt at all, a header or none.
    (folder / "t.jinja").write_text(HEADED)
    error = chat(folder, [{"messages": [USER, ASSISTANT]}], template=folder / "t.jinja", code=3)
    assert "no generation prompt before message 2, which begins otherwise than by its content" in error, error
    (folder / "t.jinja").write_text("{% for m in messages %}{{ ' ' + m.content + '</s>' }}{% endfor %}")
    masks = [line["mask"] for line in chat(folder, [{"messages": [USER, ASSISTANT]}], template=folder / "t.jinja")]
    # A conversation that begins with an answer: its prompt is that of the next one.
    (folder / "t.jinja").write_text(HEADED + "{{ '<|im_start|>assistant\n' if add_generation_prompt }}")
    first, second = (
        chat(folder, [{"messages": m}], template=folder / "t.jinja")[0] for m in ([ASSISTANT, USER, ASSISTANT], [USER, ASSISTANT])
    )
    assert sum(first["mask"]) == 2 * sum(second["mask"]) > 2 and not first["mask"][0], first
    # A prompt that opens a thought.
    (folder / "t.jinja").write_text(HEADED.replace("{{ m.role }}\n", "") + "{{ '<|im_start|><think>' if add_generation_prompt }}")
    thought = chat(folder, [{"messages": [USER, ASSISTANT]}], template=folder / "t.jinja")[0]
    assert sum(thought["mask"]) == sum(second["mask"]) and 0 < sum(masks[0]), thought
    for row in ({"messages": [USER, ASSISTANT], "tools": [{"name": "f"}]}, {"messages": [USER, CALL]}):
        error = chat(folder, [row], code=3)
        assert "chatml has no place for tool" in error and "--template" in error, error


def check_other_rows(folder):
    expected = chat(folder, [{"messages": [USER, ASSISTANT]}])
    assert sum(expected[0]["mask"]) > 2
    forms = [
        {"conversations": [{"from": "human", "value": USER["content"]}, {"from": "gpt", "value": ASSISTANT["content"]}]},
        {"prompt": USER["content"], "completion": ASSISTANT["content"]},
        {"prompt": USER["content"], "response": ASSISTANT["content"]},
        {"prompt": [USER], "completion": [ASSISTANT]},
        {"messages": [USER, {**ASSISTANT, "tool_calls": None}], "tools": None},
    ]
    assert chat(folder, forms) == expected * len(forms)
    assert chat(folder, [{"turns": [USER, ASSISTANT]}], "--messages", "turns") == expected


def check_broken_rows(folder):
    good = json.dumps({"messages": [USER, ASSISTANT]})
    for row, problem in [
        ("{", "invalid JSON"),
        ("[]", "expected an object"),
        ("{}", "expected a member 'messages'"),
        ('{"messages": 1}', "expected a list of messages"),
        ('{"messages": []}', "at least one message"),
        ('{"messages": ["a"]}', "message 1: expected an object"),
        ('{"messages": [{"content": "a"}]}', "message 1: expected a member role"),
        ('{"messages": [{"role": 1}]}', "a member role, a text"),
        ('{"messages": [{"role": "user"}]}', "has no item 'content'"),
        ('{"messages": [{"role": "user", "content": null}]}', "has no item 'content'"),
        ('{"messages": [{"role": "user", "content": ["a"]}]}', "'+' is not possible"),
        ('{"messages": [{"role": "a", "role": "b"}]}', "appears twice"),
        ('{"conversations": [{"from": "human"}]}', "texts from and value"),
        ('{"conversations": [{"from": "me", "value": "a"}]}', "'me' is not known"),
        ('{"system": "s", "conversations": [{"from": "human", "value": "a"}, 1]}', "conversations: turn 2: "),
        ('{"messages": [{"role": "user", "content": "a", "n": 92233720368547758070}]}', "is no integer of 64 bits"),
        ('{"conversations": {}}', "expected a list"),
        ('{"prompt": "a"}', "found prompt"),
        ('{"prompt": 1, "completion": "a"}', "a text or a list"),
        ('{"messages": [], "tools": 1}', "'tools': expected a list"),
        ('{"messages": [], "tools": "{"}', "tools: byte"),
        ('{"messages": [{"role": "user", "content": "' + "[" * 3 + '"}], "tools": [[]]}', "a list of objects"),
        ("\xff", "invalid JSON"),
        ("[" * 100, "deeper than"),
        (good[:-1], "invalid JSON"),
    ]:
        error = chat(folder, f"{good}\n\n{row}\n", code=3)
        assert "rows.jsonl:3: " in error and problem in error, (row, error)
    assert "no chats" in chat(folder, "\n", code=3)
    for template, row, problem in [
        ("{% for m in messages %}\n{{ m.x.y }}{% endfor %}", {"messages": [USER]}, "t.jinja:2:7: the dictionary has no item 'x'"),
        ("{{ raise_exception('no') }}", {"messages": [USER]}, "refuses the conversation: no"),
        (
            "{{ messages[1].content }}",
            {"messages": [USER, ASSISTANT]},
            "does not write message 2 at one place, in a loop over the messages",
        ),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", {"messages": [ASSISTANT]}, "writes no prompt before message 1"),
        (
            "{% for m in messages %}{{ m.role }}{% endfor %}{{ 'q' if add_generation_prompt }}",
            {"messages": [USER, ASSISTANT]},
            "begins message 2 otherwise than by its generation prompt 'q'",
        ),
    ]:
        (folder / "t.jinja").write_text(template)
        error = chat(folder, [row], template=folder / "t.jinja", code=3)
        assert "rows.jsonl:1: " in error and problem in error, (template, error)
    (folder / "t.jinja").write_text("{% if %}")
    assert "t.jinja:1:7: found %}; expected an expression" in chat(folder, [{"messages": [USER]}], template=folder / "t.jinja", code=3)
    error = chat(folder, [{"messages": [USER]}], template=folder / "none.jinja", code=3)
    assert "none.jinja is not there" in error and "data.train.template or --template" in error, error


def run(folder, program, *args, ranks=1, code=0, text=""):
    command = [*([MPIRUN, str(ranks)] if ranks > 1 else []), BIN / program, *args]
    done = subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def prepared(root, name, rows):
    folder = root / name
    folder.mkdir()
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "run.yaml").write_text(RUN)
    return folder


def talk(*texts):
    return {"messages": [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]}


def drawn(count):
    words = "the weather is fine today and tomorrow ask again later please what how why because hello".split()
    return [
        talk(*(" ".join(words[(i * k + j * 3) % len(words)] for k in range(1 + (i * 7 + j) % 12)) for j in range(2 + 2 * (i % 3))))
        for i in range(1, count + 1)
    ]


def losses(folder):
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [e["loss"] for e in events if e["event"] in ("step", "eval")]


def check_layouts_and_a_new_start(root):
    rows = drawn(40)
    one = prepared(root, "one", rows)
    run(one, "tfm-train", "run.yaml")
    expected = losses(one)
    for ranks, layout in [
        (2, []),
        (2, ["parallel.tensor=2"]),
        (2, ["parallel.pipeline=2"]),
        (2, ["parallel.context=2"]),
        (4, ["parallel.tensor=2", "parallel.zero=3"]),
    ]:
        folder = prepared(root, "-".join(["ranks", str(ranks), *layout]), rows)
        run(folder, "tfm-train", "run.yaml", *layout, ranks=ranks)
        assert len(losses(folder)) == len(expected) == 7
        for a, b in zip(losses(folder), expected):
            assert abs(a - b) <= 1e-5 * b, (layout, losses(folder), expected)
    again = prepared(root, "again", rows)
    run(again, "tfm-train", "run.yaml", "train.steps=3", "schedule.decay_steps=6", "eval.every=0")
    run(again, "tfm-train", "run.yaml", "schedule.decay_steps=6")
    straight = prepared(root, "straight", rows)
    run(straight, "tfm-train", "run.yaml", "schedule.decay_steps=6")
    assert losses(again)[-4:] == losses(straight)[-4:], (losses(again), losses(straight))
    # Packed or one by one: the same loss.
    run(one, "tfm-eval", "ck", "--json", "all.json")
    whole = json.loads((one / "all.json").read_text())
    total = 0
    for row in rows[:12]:
        (one / "row.jsonl").write_text(json.dumps(row) + "\n")
        run(one, "tfm-eval", "ck", "data.validation.path=row.jsonl", "--json", "row.json")
        result = json.loads((one / "row.json").read_text())
        total += result["loss"] * result["tokens"]
    (one / "row.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:12]))
    run(one, "tfm-eval", "ck", "data.validation.path=row.jsonl", "--json", "row.json")
    packed = json.loads((one / "row.json").read_text())
    assert abs(packed["loss"] * packed["tokens"] - total) < 1e-6 * total, (packed, total)
    masks = sum(sum(line["mask"]) for line in chat(one, rows))
    assert whole["tokens"] == masks, (whole, masks)


def check_what_is_said_and_refused(root):
    folder = prepared(
        root,
        "said",
        [talk("hello", "the weather", "what", "is " * 200), talk("why " * 200, "because"), talk("hello"), talk("what", "fine")],
    )
    out = "".join(run(folder, "tfm-train", "run.yaml", "train.seq_len=48", "train.steps=1", "eval.every=0"))
    for said in (
        "2 conversations in 1 sequence",
        "1 conversation exceeded train.seq_len = 48 tokens and end",
        "1 conversation left out: the first answer",
        "1 conversation left out: the assistant wrote nothing",
        "batches repeat sequences",
    ):
        assert said in out, (said, out)
    for override, problem in [
        ("model.family=encoder", "data.train.type chat cannot train a model of family encoder"),
        ("data.validation.type=text", "differs from data.train.type"),
        ("data.train.template=auto data.validation.template=auto", "has no chat template"),
        ("data.train.documents=separate", "documents"),
        ("data.train.label=x", "type labelled"),
        ("model.vocab_size=300", "model.vocab_size is 300"),
    ]:
        code = 3 if "vocab" in override else 2
        out = "".join(run(folder, "tfm-train", "run.yaml", *override.split(), "checkpoint.dir=none", code=code))
        assert problem in out, (override, out)
    (folder / "chats.jsonl").write_text(json.dumps(talk("a", "b")) + "\n{}\n")
    assert "chats.jsonl:2: expected a member 'messages'" in "".join(run(folder, "tfm-train", "run.yaml", "checkpoint.dir=none", code=3))


def check_it_talks_as_taught(root):
    rows = [talk("hello", "the weather is fine", "why", "ask tomorrow"), talk("what", "later please"), talk("why", "because"), talk("/why", "the day")]
    folder = prepared(root, "talks", rows)
    run(folder, "tfm-train", "run.yaml", "train.steps=150", "train.global_batch_size=1", "train.seq_len=128", "eval.every=0")
    assert losses(folder)[-1] < 0.05, losses(folder)[-1]
    lines = "hello\nwhy\n/reset\nwhy\n\n/help\n/reset\nwhat\n/reset\n//why\n"
    for ranks, end in ((1, ""), (1, "/exit\nwhat\n"), (2, "")):
        out, err = run(folder, "tfm-generate", "ck", "--chat", "--temperature", "0", "--max-tokens", "30", text=lines + end, ranks=ranks)
        assert out == "the weather is fine\nask tomorrow\nbecause\nlater please\nthe day\n", (out, err)
        assert "unknown command; expected /reset or /exit" in err, err
    assert run(folder, "tfm-generate", "ck", "--chat", "--system", "a", text="")[0] == ""
    (folder / "t.jinja").write_text(HEADED)  # in which the assistant's part cannot be told
    assert run(folder, "tfm-generate", "ck", "--chat", "--template", "t.jinja", text="")[0] == ""
    assert "needs --chat" in run(folder, "tfm-generate", "ck", "--system", "a", code=2)[1]


with tempfile.TemporaryDirectory() as root:
    for check in (
        check_against_transformers,
        check_templates_beside_tokenizers,
        check_prompts_of_answers,
        check_other_rows,
        check_broken_rows,
        check_layouts_and_a_new_start,
        check_what_is_said_and_refused,
        check_it_talks_as_taught,
    ):
        folder = pathlib.Path(root) / check.__name__
        folder.mkdir()
        check(folder)
print("ok")
