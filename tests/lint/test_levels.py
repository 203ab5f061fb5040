"""A file includes only lower levels or its own folder; prints the table of sizes and fails above the budgets."""
import pathlib
import re
import sys

LEVELS = {"core": 0, "device": 1, "tensor": 2, "kernels": 3, "comm": 3, "graph": 4, "ops": 5, "nn": 6, "optim": 7, "data": 7,
          "train": 8, "models": 9, "launch": 10}
SOURCE, HEADER, FUNCTION, OP = 400, 200, 60, 120
FOLDER_OF = {"mpi": "framework/comm", "nccl": "framework/comm", "cuda": "framework/device/cuda", "cublas": "framework/device/cuda",
             "cudnn": "framework/device/cuda"}


def level_of(path):
    parts = path.parts
    return parts[1] if parts[0] == "framework" else parts[0]


def blocks(lines, start):
    """(line number, lines) of each block whose first line matches and which ends with a brace at the same indent."""
    for i, line in enumerate(lines):
        if found := re.match(start, line):
            end = next((j for j in range(i, len(lines)) if lines[j].startswith(found[1] + "}")), i)
            yield i + 1, end - i + 1


# A definition at file level or one level inside a class.
DEFINITION = r"((?:  )?)(?!namespace|class|struct|enum|if|for|while|switch|else|do|return|try|catch)[\w:~<\[].*\).*\{$"
OP_CLASS = r"()(?:class|struct) \w+.* : (?:Op|TensorCollective) \{$"


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    errors, sizes = [], {}
    for folder in ("framework", "models", "launch"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cpp", ".inl", ".cu", ".cuh"):
                continue
            path = file.relative_to(root)
            own = level_of(path)
            lines = file.read_text().splitlines()
            budget = HEADER if file.suffix in (".h", ".cuh") else SOURCE
            count, most, function = sizes.get(own, (0, 0, 0))
            functions = list(blocks(lines, DEFINITION))
            longest = max([n for _, n in functions], default=0)
            sizes[own] = (count + len(lines), max(most, len(lines)), max(function, longest))
            for what, limit, found in (("function", FUNCTION, functions), ("op", OP, blocks(lines, OP_CLASS))):
                errors += [f"{path}:{at}: the {what} has {n} lines, the budget is {limit}" for at, n in found if n > limit]
            if len(lines) > budget:
                errors.append(f"{path}: {len(lines)} lines, the budget is {budget}")
            for number, line in enumerate(lines, 1):
                found = re.match(r"#include [<\"](mpi|cuda|nccl|cublas|cudnn)\w*\.h", line)
                if found and str(path.parent) != FOLDER_OF[found[1]]:
                    errors.append(f"{path}:{number}: {line} belongs in {FOLDER_OF[found[1]]}")
                found = re.match(r'#include "(\w+)/', line)
                if not found or found[1] not in LEVELS:
                    continue
                if found[1] != own and LEVELS[found[1]] >= LEVELS[own]:
                    errors.append(f"{path}:{number}: level {own} includes {found[1]}")
    print(f"{'level':10} {'lines':>7} {'longest file':>13} {'function':>9}")
    for name in sorted(sizes, key=lambda n: LEVELS[n]):
        print(f"{name:10} {sizes[name][0]:7} {sizes[name][1]:13} {sizes[name][2]:9}")
    for e in errors:
        print("error:", e)
    sys.exit(1 if errors else 0)


main()
