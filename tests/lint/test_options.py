"""Options are enums or predicates after parsing: outside config/ no string is compared with the name of a value, and plan/ makes no
"key=value" of one."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARSERS = {"config", "huggingface", "tokenizer", "text", "io"}  # these rooms read names from files
OWN = {"start", "end", "best", "latest"}  # of metrics.jsonl and of checkpoint directories


def values():
    """The words of every option."""
    found = set()
    for file in [*ROOT.glob("framework/**/*.h"), *ROOT.glob("framework/config/*.cpp")]:
        for body in re.findall(r"Words<\d+> words\(\w+\) \{\s*return \{(.*?)\};", file.read_text(), re.DOTALL):
            found |= set(re.findall(r'"([^"]*)"', body)) - {""}
    return found | {"random", "auto", "never", "none", "bytes"}


def main():
    words, errors, looked = values() - OWN, [], 0
    assert {"adamw", "rope", "encoder", "h200", "megatron", "cuda"} <= words, words
    files = [f for top in ("framework", "models", "launch") for f in (ROOT / top).rglob("*") if f.suffix in (".h", ".cpp", ".cu", ".inl")]
    for file in files:
        path = file.relative_to(ROOT)
        if path.parts[0] == "framework" and path.parts[1] in PARSERS:
            continue
        looked += 1
        for number, line in enumerate(file.read_text().splitlines(), 1):
            for word in re.findall(r'[!=]= "([^"]+)"|"([^"]+)" [!=]= ', line):
                if (word[0] or word[1]) in words:
                    errors.append(f"{path}:{number}: compares a string with '{word[0] or word[1]}'; compare enums, or add a predicate to config/")
            if path.parts[:2] == ("framework", "plan") and (re.search(r'"[^"]*=[^"]*"', re.sub(r'"[^"=]*"', "_", line)) or "with_overrides" in line):
                errors.append(f"{path}:{number}: a setting as text; expected a member of plan::LayoutChoice")
    for e in errors:
        print("error:", e)
    print(f"{looked} files, {len(words)} names of values, {len(errors)} comparisons")
    assert looked > 150
    sys.exit(1 if errors else 0)


main()
