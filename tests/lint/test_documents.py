"""What the documents name is there: links, files, tests, programs, their options and keys; the version is the same everywhere.

usage: test_documents.py BIN_FOLDER
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.argv[1]).resolve()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("configs/*.md"), *ROOT.glob(".github/**/*.md")])
TOP = {"framework", "models", "launch", "configs", "tests", "docs", ".github", ".ci"}
SOURCES = (".h", ".cpp", ".cu", ".inl", ".py", ".sh", ".cmake", ".svg", ".md")  # a bare name with one of these is a file of the tree
EXTENSION = re.compile(r"\.[a-z]\w*$")


def fenced(text):
    """(line number, line, inside a fence) of each line."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
            continue
        yield number, line, inside


def anchors(document):
    """Names of the headings, as links spell them."""
    for _, line, inside in fenced(document.read_text()):
        if not inside and (found := re.match(r"#+ (.*)", line)):
            yield re.sub(r"[^\w\- ]", "", found[1].lower()).replace(" ", "-")


def broken_link(document, target):
    if re.match(r"[a-z]+:", target):
        return None
    path, _, anchor = target.partition("#")
    file = (document.parent / path).resolve() if path else document
    if not file.exists():
        return f"link to '{path}', which does not exist"
    if anchor and anchor not in anchors(file):
        return f"link to '{target}': {file.name} has no heading '{anchor}'"
    return None


def expand(name):
    """a.{h,cpp} -> a.h, a.cpp"""
    found = re.search(r"\{([^{}]*)\}", name)
    if not found:
        return [name]
    return [n for part in found[1].split(",") for n in expand(name[:found.start()] + part + name[found.end():])]


def missing_file(name):
    """Of a name in backticks: what is not in the tree, or None."""
    if not re.fullmatch(r"[\w./{},*-]+", name) or name.startswith(("/", "-", "*", "~", "build/", "runs/", "data/")):
        return None
    first, slash, _ = name.partition("/")
    if not slash and not (name.endswith(SOURCES) and not name.startswith(".")):
        return None
    if slash and first not in TOP and not EXTENSION.search(name):
        return None  # a ratio, a tensor's name
    for part in expand(name):
        bases = [ROOT, ROOT / "framework", ROOT / "docs"]
        if not any(list(b.glob(part.rstrip("/"))) for b in bases) and not (not slash and list(ROOT.glob(f"[!.b]*/**/{part}"))):
            return part
    return None


def tests_of_the_tree():
    names = set()
    for file in (ROOT / "tests").rglob("*.cpp"):
        names |= {f"{suite}.{name}" for suite, name in re.findall(r"TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", file.read_text())}
    for file in (ROOT / "tests").rglob("*.py"):
        names |= {f"{file.name} {name}" for name in re.findall(r"^def (check_\w+)", file.read_text(), re.MULTILINE)}
    return names


def missing_test(name, tests):
    if re.fullmatch(r"[A-Z]\w*\.[A-Z]\w*", name) or re.fullmatch(r"test_\w+\.py check_\w+", name):
        return None if name in tests else name
    return None


def wrong_versions(cmake, changelog, citation, tags):
    """Problems of the version in the texts of CMakeLists.txt, CHANGELOG.md and CITATION.cff, and of the tags of the commit."""
    version = re.search(r"^project\(tfm VERSION (\d+\.\d+\.\d+) ", cmake, re.MULTILINE)[1]
    sections = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (unreleased|\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    if len(sections) != len(re.findall(r"^## ", changelog, re.MULTILINE)) or not sections:
        yield "CHANGELOG.md: expected sections '## [X.Y.Z] - YYYY-MM-DD', the newest perhaps '- unreleased'"
        return
    order = [[int(n) for n in s.split(".")] for s, _ in sections]
    if order != sorted(order, reverse=True) or len({s for s, _ in sections}) != len(sections):
        yield "CHANGELOG.md: sections are not in the order of their versions, newest first"
    if any(date == "unreleased" for _, date in sections[1:]):
        yield "CHANGELOG.md: only the newest section may be unreleased"
    newest, date = sections[0]
    if newest != version:
        yield f"CHANGELOG.md: the newest section is {newest}, CMakeLists.txt has version {version}"
    fields = dict(re.findall(r"^([a-z-]+): *(\S.*?)$", citation, re.MULTILINE))
    if fields.get("version") != version:
        yield f"CITATION.cff: version is {fields.get('version')}, CMakeLists.txt has {version}"
    released = None if date == "unreleased" else date
    if fields.get("date-released", "").strip('"') != (released or ""):
        yield f"CITATION.cff: date-released is {fields.get('date-released')}, CHANGELOG.md says {date}"
    for tag in tags:
        if tag != f"v{version}" or not released:
            yield f"tag {tag} is on this commit, whose version is {version}, {date}"


def check_versions():
    """Of the tree; and the check itself finds what it is for."""
    cmake, changelog, citation = [(ROOT / name).read_text() for name in ("CMakeLists.txt", "CHANGELOG.md", "CITATION.cff")]
    listed = subprocess.run(["git", "tag", "--points-at", "HEAD", "--list", "v*"], cwd=ROOT, capture_output=True, text=True)
    old = ("project(tfm VERSION 1.2.3 ", "## [1.2.3] - 2030-01-02\n## [1.2.2] - 2029-01-02\n", "version: 1.2.3\ndate-released: 2030-01-02\n", ["v1.2.3"])
    assert not list(wrong_versions(*old))
    for place, text in [(0, old[0].replace("1.2.3", "1.2.4")), (1, old[1].replace("1.2.3", "1.3.0")), (1, old[1].replace("2030-01-02", "unreleased")),
                        (1, old[1].replace("2029-01-02", "unreleased")), (1, "## [1.2.2] - 2029-01-02\n" + old[1]), (1, "## Next\n" + old[1]),
                        (2, old[2].replace("1.2.3", "1.2.2")), (2, "version: 1.2.3\n"), (3, ["v1.2.2"])]:
        assert list(wrong_versions(*old[:place], text, *old[place + 1:])), text
    return list(wrong_versions(cmake, changelog, citation, listed.stdout.split() if listed.returncode == 0 else []))


class Programs:
    def __init__(self):
        self.help = {}
        for program in BIN.glob("tfm-*"):
            self.help[program.name] = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60).stdout
        keys = subprocess.run([BIN / "tfm-train", "--keys"], capture_output=True, text=True, timeout=60, check=True).stdout
        self.reference = keys
        self.keys = set(re.findall(r"^\| `([\w.]+)`", keys, re.MULTILINE))

    def wrong(self, command):
        """Problems of a line with a program's name in it."""
        for found in re.finditer(r"(?<![\w-])(tfm-[a-z]+)(?![\w.-])([^|;#>]*)", command):
            program, arguments = found.groups()
            if program not in self.help:
                yield f"program '{program}' is not in {BIN}"
                continue
            for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", arguments):
                if not re.search(re.escape(option) + r"(?![a-z-])", self.help[program]):
                    yield f"{program} --help does not name '{option}'"
            for key in re.findall(r"(?<=\s)([a-z_]+(?:\.[a-z_]+)*)=", arguments):
                if key not in self.keys:
                    yield f"'{key}' is not a key of a configuration"


def main():
    programs, tests, errors = Programs(), tests_of_the_tree(), []
    count = {"links": 0, "names": 0, "commands": 0}
    if not programs.help or not programs.keys:
        sys.exit(f"error: {BIN} has no program")
    for document in DOCUMENTS:
        def error(line, text):
            errors.append(f"{document.relative_to(ROOT)}:{line}: {text}")

        for number, line, inside in fenced(document.read_text()):
            spans = [line] if inside else re.findall(r"`([^`]+)`", line)
            for span in spans:
                if "tfm-" in span:
                    count["commands"] += 1
                    for problem in programs.wrong(span):
                        error(number, problem)
                if not inside:
                    count["names"] += 1
                    if name := missing_file(span):
                        error(number, f"'{name}' does not exist")
                    if name := missing_test(span, tests):
                        error(number, f"there is no test '{name}'")
            if not inside:
                for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", line):
                    count["links"] += 1
                    if problem := broken_link(document, target[0] or target[1]):
                        error(number, problem)
    rows = [row for row in programs.reference.splitlines() if not row.startswith("| `data.validation.")]
    if "\n".join(rows) not in (ROOT / "configs/keys.md").read_text():
        errors.append("configs/keys.md: its table differs from what tfm-train --keys prints without the keys of data.validation; "
                      "replace it")
    errors += check_versions()
    for e in errors:
        print("error:", e)
    print(f"{len(DOCUMENTS)} documents: {count['links']} links, {count['names']} names, {count['commands']} commands, {len(errors)} errors")
    sys.exit(1 if errors else 0)


main()
