"""The live line of a terminal: there with one, not there without, and the lines above it whole.

usage: test_progress.py BIN_FOLDER
"""
import os
import pathlib
import pty
import random
import re
import subprocess
import sys
import tempfile
import termios
import struct
import fcntl

BIN = pathlib.Path(sys.argv[1]).resolve()
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 64, n_layers: 2, n_heads: 4, max_seq_len: 64}
train: {steps: 60, global_batch_size: 16, seq_len: 64}
data:
  train: {type: text, path: text.txt, shuffle: true}
  validation: {type: text, path: text.txt}
eval: {every: 30}
checkpoint: {dir: checkpoints, every: 30, resume: never}
metrics: {log_every: 10}
"""


def on_terminal(program, *args, stdout="terminal", term="xterm", extra=None, columns=100):
    """What a program writes to a terminal, and to its standard output where that is a pipe."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": term, **(extra or {})}
    process = subprocess.Popen([str(BIN / program), *map(str, args)], stdin=subprocess.DEVNULL, stderr=slave,
                               stdout=slave if stdout == "terminal" else subprocess.PIPE, env=environment)
    os.close(slave)
    written = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # nobody has the terminal open any more
            break
        if not part:
            break
        written += part
    piped = process.stdout.read().decode() if process.stdout else ""
    assert process.wait(timeout=300) == 0, written.decode()
    os.close(master)
    return written.decode(), piped


def screen(written):
    """The lines that stay, and each state that the live line had, as a terminal shows them."""
    lines, live, row, column = [], [], "", 0
    for token in re.findall(r"\r\n|\r|\n|\x1b\[K|[^\r\n\x1b]+", written):
        if token in ("\r\n", "\n"):
            lines.append(row.rstrip())
            row, column = "", 0
        elif token == "\r":
            column = 0
        elif token == "\x1b[K":
            row = row[:column]
        else:
            row = row[:column] + token + row[column + len(token):]
            column += len(token)
            live.append(row)
    assert row.strip() == "", f"the live line was left behind: {row!r}"
    return lines, live


def check_training():
    quiet = subprocess.run([BIN / "tfm-train", "cfg.yaml"], capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert "\x1b" not in quiet.stdout + quiet.stderr and "\r" not in quiet.stdout + quiet.stderr
    stays = lambda lines: [re.sub(r"\d[\d.]*(k|M|G)? tok/s.*| \| \d+ MiB in .*|peak of .*", "", line) for line in lines]
    expected = stays(quiet.stdout.splitlines())
    assert sum("step " in line and "| loss" in line for line in expected) >= 6, expected
    written, _ = on_terminal("tfm-train", "cfg.yaml")
    lines, live = screen(written)
    assert stays(lines) == expected, (stays(lines), expected)
    assert any(re.match(r"\[#+-*\] \d+/60 \| loss \d\.\d{4} \| [\d.]+k? tok/s \| eta \d+s", state) for state in live), live
    assert all(len(state) < 50 for state in screen(on_terminal("tfm-train", "cfg.yaml", columns=50)[0])[1] if state.startswith("["))
    written, piped = on_terminal("tfm-train", "cfg.yaml", stdout="pipe")
    assert screen(written)[0] == [] and stays(piped.splitlines()) == expected and "\x1b" not in piped
    for term in ("dumb", ""):
        written, _ = on_terminal("tfm-train", "cfg.yaml", term=term)
        assert "\x1b" not in written and stays(written.splitlines()) == expected
    lines, live = screen(on_terminal("tfm-train", "cfg.yaml", "train.global_batch_size=256", "train.steps=30", "metrics.log_every=1")[0])
    left = lambda texts, start: dict(m.groups() for text in texts if (m := re.match(start + r"(\d+)/30 .*eta (\w+)$", text)))
    logged, shown = left(lines, "step "), left(live, r"\[[#-]*\] ")
    assert len(logged) == 30 and len(shown) >= 5 and shown.items() <= logged.items(), (logged, shown)
    colors = re.compile(r"\x1b\[[\d;]*m")
    assert not colors.search(on_terminal("tfm-train", "cfg.yaml", extra={"NO_COLOR": "1"})[0])


def check_tools():
    draw = random.Random(5)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9))) for _ in range(600000)]
    pathlib.Path("long.txt").write_text(" ".join(draw.choices(words, k=1500000)))
    pathlib.Path("longer.txt").write_text((pathlib.Path("long.txt").read_text() + "\n") * 4)
    for args, tasks in [(["train-tokenizer", "--input", "long.txt", "--vocab-size", 64000, "--output", "tokenizer.json"], ["merging pairs"]),
                        (["prepare", "--input", "longer.txt", "--tokenizer", "tokenizer.json", "--output", "long.bin"], ["reading longer.txt"])]:
        lines, live = screen(on_terminal("tfm-data", *args)[0])
        assert len(lines) == 1, lines
        for task in tasks:
            shown = [state for state in live if state.startswith(task)]
            assert shown and re.search(r" \d+\.\d% \| .* of .* \| .*/s \| eta \d+", shown[-1]), (task, live[-3:])
            done = [float(re.search(r" ([\d.]+)%", state)[1]) for state in shown]
            assert done == sorted(done) and done[-1] <= 100, done
    with open("text.txt", "a") as file:
        file.write(pathlib.Path("long.txt").read_text()[:300000])
    lines, live = screen(on_terminal("tfm-eval", "checkpoints", "--text", "text.txt")[0])
    assert any(state.startswith("evaluating ") and "eta" in state for state in live), live[-3:]
    assert [line.split()[0] for line in lines] == ["loss", "perplexity", "accuracy", "bits_per_byte", "word_perplexity", "tokens"], lines


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pathlib.Path("cfg.yaml").write_text(CONFIG)
    pathlib.Path("text.txt").write_text("".join(f"{n} times {n} is {n * n}. " for n in range(2000)))
    for check in (check_training, check_tools):
        check()
        print(check.__name__, "ok", flush=True)
