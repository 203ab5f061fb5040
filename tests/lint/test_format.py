"""C++ and CUDA files are as clang-format 14 writes them. `test_format.py --fix` formats what is not; names of files limit it to them."""
import pathlib
import re
import shutil
import subprocess
import sys

MAJOR = 14
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".inl"}
ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_formatter():
    """A clang-format of the expected version, or None and what was found instead. Other versions format some lines otherwise."""
    found = []
    for name in (f"clang-format-{MAJOR}", "clang-format"):
        if not shutil.which(name):
            continue
        version = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        if re.search(rf"version {MAJOR}\.", version):
            return name, version
        found.append(f"{name}: {version}")
    return None, "; ".join(found) or "no clang-format"


def main():
    arguments = sys.argv[1:]
    fix = "--fix" in arguments
    formatter, version = find_formatter()
    if not formatter:
        print(f"skipped: clang-format {MAJOR} is needed, found {version}; on Debian 12: apt-get install clang-format-{MAJOR}")
        return
    named = [pathlib.Path(a).resolve() for a in arguments if pathlib.Path(a).is_file()]
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    all_files = [ROOT / f for f in listed.stdout.splitlines()] if listed.returncode == 0 else \
        [f for folder in ("framework", "models", "launch", "tests") for f in (ROOT / folder).rglob("*")]
    files = [f for f in (named or all_files) if f.suffix in SUFFIXES and f.is_file()]
    if not files and not named:
        sys.exit(f"error: no C++ or CUDA file in {ROOT}")
    checked = subprocess.run([formatter, "--dry-run", "-Werror", *files], capture_output=True, text=True, cwd=ROOT)
    wrong = [file for file in files if f"{file}:" in checked.stderr]
    if checked.returncode != (1 if wrong else 0):
        sys.exit(f"error: {formatter} ended with {checked.returncode}\n{checked.stderr}")
    if fix and wrong:
        subprocess.run([formatter, "-i", *wrong], check=True, cwd=ROOT)
    for file in wrong:
        print(f"{'formatted' if fix else 'error'}: {file.relative_to(ROOT)}" + ("" if fix else f": clang-format {MAJOR} would change it; run tests/lint/test_format.py --fix"))
    print(f"{len(files)} files, {len(wrong)} {'formatted' if fix else 'to format'}")
    sys.exit(1 if wrong and not fix else 0)


main()
