#!/usr/bin/env python3
"""Each bug of tests/mutants names a text that its file has once.

usage: test_mutants.py
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mutants"))
from run import all_mutants

print(len(all_mutants()), "bugs")
