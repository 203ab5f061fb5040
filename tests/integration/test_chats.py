"""tfm-data chat: ids and masks are those of transformers (tests/acceptance/chats.py --fixture), with and without blocks of generation;
templates beside a tokenizer, other forms of rows, and files that are broken, which are named with their row.

usage: test_chats.py BIN
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
CHATS = pathlib.Path(__file__).resolve().parents[1] / "fixtures/chats"
TOKENIZER = CHATS / "tokenizer"
USER, ASSISTANT = {"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "the weather"}


def chat(folder, rows, *args, tokenizer=TOKENIZER, code=0, template="chatml"):
    text = rows if isinstance(rows, str) else "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(text)
    command = [BIN / "tfm-data", "chat", folder / "rows.jsonl", "--tokenizer", tokenizer, *(["--template", template] if template else []), *args]
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
    for i, (file, content) in enumerate([
            ("tokenizer_config.json", json.dumps({**config, "chat_template": source})),
            ("tokenizer_config.json", json.dumps({**config, "chat_template": [{"name": "default", "template": source}, {"name": "tool_use", "template": "{% generation %}x{% endgeneration %}"}]})),
            ("chat_template.json", json.dumps({"chat_template": source})), ("chat_template.jinja", source)]):
        beside = folder / f"tokenizer{i}"
        shutil.copytree(TOKENIZER, beside)
        (beside / file).write_text(content)
        assert chat(folder, rows, tokenizer=beside, template=None) == expected, file
        assert chat(folder, rows, tokenizer=beside / "tokenizer.json", template="auto") == expected, file
    assert len(chat(folder, [{**rows[0], "tools": [{"type": "function"}]}], tokenizer=folder / "tokenizer1", template=None)[0]["ids"]) < 3
    error = chat(folder, rows, template=None, code=2)
    assert "has no chat template" in error and "`chatml`" in error, error
    chat(folder, rows, tokenizer="bytes")


def check_other_rows(folder):
    expected = chat(folder, [{"messages": [USER, ASSISTANT]}])
    assert sum(expected[0]["mask"]) > 2
    forms = [{"conversations": [{"from": "human", "value": USER["content"]}, {"from": "gpt", "value": ASSISTANT["content"]}]},
             {"prompt": USER["content"], "completion": ASSISTANT["content"]}, {"prompt": USER["content"], "response": ASSISTANT["content"]},
             {"prompt": [USER], "completion": [ASSISTANT]}, {"messages": [USER, {**ASSISTANT, "tool_calls": None}], "tools": None}]
    assert chat(folder, forms) == expected * len(forms)
    assert chat(folder, [{"turns": [USER, ASSISTANT]}], "--messages", "turns") == expected


def check_broken_rows(folder):
    good = json.dumps({"messages": [USER, ASSISTANT]})
    for row, problem in [
            ("{", "invalid JSON"), ("[]", "expected an object"), ("{}", "expected a member 'messages'"), ('{"messages": 1}', "expected a list of messages"),
            ('{"messages": []}', "at least one message"), ('{"messages": ["a"]}', "message 1: expected an object"),
            ('{"messages": [{"content": "a"}]}', "message 1: expected a member role"), ('{"messages": [{"role": 1}]}', "a member role, a text"),
            ('{"messages": [{"role": "user"}]}', "has no item 'content'"), ('{"messages": [{"role": "user", "content": null}]}', "has no item 'content'"),
            ('{"messages": [{"role": "user", "content": ["a"]}]}', "'+' is not possible"), ('{"messages": [{"role": "a", "role": "b"}]}', "appears twice"),
            ('{"conversations": [{"from": "human"}]}', "texts from and value"), ('{"conversations": [{"from": "me", "value": "a"}]}', "'me' is not known"),
            ('{"conversations": {}}', "expected a list"), ('{"prompt": "a"}', "found prompt"), ('{"prompt": 1, "completion": "a"}', "a text or a list"),
            ('{"messages": [], "tools": 1}', "'tools': expected a list"), ('{"messages": [], "tools": "{"}', "tools: byte"),
            ('{"messages": [{"role": "user", "content": "' + "[" * 3 + '"}], "tools": [[]]}', "a list of objects"), ("\xff", "invalid JSON"),
            ("[" * 100, "deeper than"), (good[:-1], "invalid JSON")]:
        error = chat(folder, f"{good}\n\n{row}\n", code=3)
        assert "rows.jsonl:3: " in error and problem in error, (row, error)
    assert "no chats" in chat(folder, "\n", code=3)
    for template, row, problem in [
            ("{% for m in messages %}\n{{ m.x.y }}{% endfor %}", {"messages": [USER]}, "t.jinja:2:7: the dictionary has no item 'x'"),
            ("{{ raise_exception('no') }}", {"messages": [USER]}, "refuses the conversation: no"),
            ("{{ messages[1].content }}", {"messages": [USER, ASSISTANT]}, "does not write message 2 at one place, in a loop over the messages"),
            ("{% for m in messages %}{{ m.content }}{% endfor %}", {"messages": [ASSISTANT]}, "writes no prompt before message 1"),
            ("{% for m in messages %}{{ m.role }}{% endfor %}{{ 'q' if add_generation_prompt }}", {"messages": [USER, ASSISTANT]},
             "begins message 2 otherwise than by its generation prompt 'q'")]:
        (folder / "t.jinja").write_text(template)
        error = chat(folder, [row], template=folder / "t.jinja", code=3)
        assert "rows.jsonl:1: " in error and problem in error, (template, error)
    (folder / "t.jinja").write_text("{% if %}")
    assert "t.jinja:1:7: found %}; expected an expression" in chat(folder, [{"messages": [USER]}], template=folder / "t.jinja", code=3)
    error = chat(folder, [{"messages": [USER]}], template=folder / "none.jinja", code=3)
    assert "none.jinja" in error, error


with tempfile.TemporaryDirectory() as root:
    for check in (check_against_transformers, check_templates_beside_tokenizers, check_other_rows, check_broken_rows):
        folder = pathlib.Path(root) / check.__name__
        folder.mkdir()
        check(folder)
print("ok")
