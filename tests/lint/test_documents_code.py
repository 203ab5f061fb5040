"""The complete C++ files of the documents compile: every block of C++ that includes a header. An architecture is the one in the tree, and so
is every excerpt: a block whose first line is a comment with the path of a file or folder. "// ..." in it stands for lines left out.

usage: test_documents_code.py BIN_FOLDER    (with compile_commands.json in the folder above)
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve().parent


def command():
    """That of a program, which sees the headers of every room, without the file and its object."""
    entry = next(e for e in json.loads((BUILD / "compile_commands.json").read_text()) if e["file"].endswith("launch/tfm_train.cpp"))
    words = shlex.split(entry["command"])
    words = words[next(i for i, w in enumerate(words) if pathlib.Path(w).name != "ccache"):]
    return words[:words.index("-o")] + ["-fsyntax-only", "-Werror", "-x", "c++"], entry["directory"]


def words(text):
    """Of C++, without comments."""
    return re.sub(r"//.*", "", text).split()


def excerpts():
    """(document, path, lines) of each excerpt."""
    for document in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]):
        for path, lines in re.findall(r"^```cpp\n// ((?:framework|models|launch)/[\w/.]+)\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL):
            yield document, path, lines


def wrong_excerpts():
    for document, path, lines in excerpts():
        at = ROOT / path
        files = [f for f in at.iterdir() if f.is_file()] if at.is_dir() else [at] if at.exists() else []
        texts = [" ".join(f.read_text().split()) for f in files]
        parts = [" ".join(part.split()) for part in re.split(r"^ *// \.\.\.$", lines, flags=re.MULTILINE)]
        if not any(all(part in text for part in parts) for text in texts):
            missing = next((part for part in parts if not any(part in text for text in texts)), lines)
            yield f"{document.relative_to(ROOT)}: an excerpt is not in {path}: {missing[:200]}"


def main():
    wrong = list(wrong_excerpts())
    if wrong or len(list(excerpts())) < 5:
        sys.exit("\n".join(wrong) or "docs/training-step.md has excerpts")
    if not (BUILD / "compile_commands.json").exists():
        return print(f"skipped: no compile_commands.json in {BUILD}")
    options, directory = command()
    errors, found = [], 0
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "block.cpp"
        for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
            for block in re.findall(r"^```cpp\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL):
                if not re.search(r"^#include ", block, re.MULTILINE):
                    continue
                found += 1
                same = re.search(r"^Architecture (\w+)\(\)", block, re.MULTILINE)
                if same and words(block) != words((ROOT / f"framework/huggingface/{same[1]}.cpp").read_text()):
                    errors.append(f"{document.relative_to(ROOT)}: a block differs from framework/huggingface/{same[1]}.cpp in more than comments")
                file.write_text(block)
                done = subprocess.run([*options, file], cwd=directory, capture_output=True, text=True)
                if done.returncode:
                    errors.append(f"{document.relative_to(ROOT)}: a block does not compile:\n{done.stderr[:3000]}")
    assert found >= 2, "docs/extending.md has an op and an architecture"
    print("\n".join(errors) or f"{found} blocks ok")
    sys.exit(1 if errors else 0)


main()
