"""A file includes only lower levels or its own folder; prints the table of sizes and fails above the budgets."""
import pathlib
import re
import sys

LEVELS = {"core": 0, "device": 1, "tensor": 2, "kernels": 3, "comm": 3, "graph": 4, "ops": 5, "nn": 6, "optim": 7, "data": 7,
          "train": 8, "models": 9, "launch": 10}
SOURCE, HEADER = 400, 200
MPI_FILES = {"framework/comm"}


def level_of(path):
    parts = path.parts
    return parts[1] if parts[0] == "framework" else parts[0]


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
            count, most = sizes.get(own, (0, 0))
            sizes[own] = (count + len(lines), max(most, len(lines)))
            if len(lines) > budget:
                errors.append(f"{path}: {len(lines)} lines, the budget is {budget}")
            for number, line in enumerate(lines, 1):
                if re.match(r"#include [<\"](mpi|cuda|nccl|cublas)\w*\.h", line) and str(path.parent) not in MPI_FILES:
                    errors.append(f"{path}:{number}: {line} belongs in {', '.join(MPI_FILES)}")
                found = re.match(r'#include "(\w+)/', line)
                if not found or found[1] not in LEVELS:
                    continue
                if found[1] != own and LEVELS[found[1]] >= LEVELS[own]:
                    errors.append(f"{path}:{number}: level {own} includes {found[1]}")
    print(f"{'level':10} {'lines':>7} {'longest file':>13}")
    for name in sorted(sizes, key=lambda n: LEVELS[n]):
        print(f"{name:10} {sizes[name][0]:7} {sizes[name][1]:13}")
    for e in errors:
        print("error:", e)
    sys.exit(1 if errors else 0)


main()
