"""The quick start's steps with programs that are built: the model it trains reads dates that it has not seen.

usage: test_quickstart.py BIN
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    done = subprocess.run([ROOT / "launch/quickstart.sh"], env={**os.environ, "BIN": str(pathlib.Path(sys.argv[1]).resolve())},
                          capture_output=True, text=True, timeout=840)
    print(done.stdout[-3000:], done.stderr[-3000:])
    assert done.returncode == 0, f"exit code {done.returncode}"
    answers = (ROOT / "runs/quickstart/test.answers").read_text().splitlines()
    truth = (ROOT / "data/quickstart/test.iso").read_text().splitlines()
    right = sum(a == t for a, t in zip(answers, truth))
    assert len(answers) == len(truth) == 500 and right >= 475, f"{right} of {len(truth)} right"
    held_out = set(truth)
    training = (ROOT / "data/quickstart/train.iso").read_text().splitlines()
    assert not held_out & set(training), "a held-out date is the answer to a training pair"
    one = subprocess.run([pathlib.Path(sys.argv[1]) / "tfm-generate", ROOT / "runs/quickstart/checkpoints"],
                         input="the day after the 31st of October, 2031\n", capture_output=True, text=True)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\n", one.stdout), one


main()
