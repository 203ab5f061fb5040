"""A file includes its own room and lower ones only, and knows nothing of verification below its room; sizes of files, functions, ops and
rooms stay within their budgets."""
import pathlib
import re
import sys

# Lower rooms first. Rooms of one line do not include each other.
FLOORS = ["core", "io device", "kernels comm text", "graph config tokenizer", "ops", "nn", "optim models data huggingface",
          "checkpoint", "inference", "plan telemetry", "train report", "verify", "launch"]
LEVELS = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms.split()}
SOURCE, HEADER, FUNCTION, OP = 500, 240, 75, 140
# Known to be longer, and by how much at most.
OVER = {("framework/ops/cross_entropy.cpp", "op"): 210}
SHARE = 0.2  # of all lines, in one folder
FOLDER_OF = {"mpi": "framework/comm", "nccl": "framework/comm", "cuda": "framework/device/cuda", "cublas": "framework/device/cuda",
             "cudnn": "framework/device/cuda", "hwloc": "launch/support"}

# Who names an axis of the grid of ranks; all others ask for sets of axes by what they are for (nn/placement.h).
NAMES_AXES = {"framework/nn/placement.h", *(f"framework/ops/{op}.cpp" for op in (
    "collectives", "gather_attention", "ring_attention", "cross_entropy", "messages", "pool", "router", "expert_exchange",
    "head_shares"))}


def room_of(path):
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
OP_CLASS = r"()(?:class|struct) \w+.* : .*(?:\w*Op|TensorCollective) \{$"


def check_includes(path, lines):
    own = room_of(path)
    for number, line in enumerate(lines, 1):
        found = re.match(r"#include [<\"](mpi|cuda|nccl|cublas|cudnn|hwloc)\w*\.h", line)
        if found and str(path.parent) != FOLDER_OF[found[1]]:
            yield f"{path}:{number}: {line} belongs in {FOLDER_OF[found[1]]}"
        found = re.match(r'#include "(\w+)/', line)
        if found and found[1] in LEVELS and found[1] != own and LEVELS[found[1]] >= LEVELS[own]:
            yield f"{path}:{number}: room {own} includes {found[1]}, which is not below it"


def check_axes(path, lines):
    if room_of(path) == "comm" or str(path) in NAMES_AXES:
        return
    for number, line in enumerate(lines, 1):
        if re.search(r"\bAxis::\w", line):
            yield f"{path}:{number}: names an axis; expected a set of axes of nn/placement.h"


# What only framework/verify and the programs may name.
VERIFICATION = r"\bverify::|\bReferenceStep\b|Interference|round_inner|tfm-verify"


def check_verification(path, lines):
    own = room_of(path)
    for number, line in enumerate(lines, 1):
        if LEVELS[own] < LEVELS["verify"] and (found := re.search(VERIFICATION, line)):
            yield f"{path}:{number}: room {own} mentions {found[0]}, which is of verify, above it"


def check_namespace(path, text):
    """What a header declares is in its room's namespace."""
    own = room_of(path)
    names = {"core": {"tfm"}, "device": {"tfm::device", "tfm::cpu", "tfm::cuda"},
             "kernels": {"tfm::kernels", "tfm::cuda"}}.get(own, {f"tfm::{own}"})
    for name in re.findall(r"^namespace (tfm[\w:]*) \{", text, re.MULTILINE):
        if not any(name == n or name.startswith(n + "::") for n in names):
            yield f"{path}: namespace {name}; expected {' or '.join(sorted(names))}"


def types_of(text):
    """Types defined at namespace level, with their namespace; those of unnamed namespaces belong to their file."""
    namespaces = []
    for line in text.splitlines():
        if found := re.match(r"namespace ([\w:]+)? ?\{$", line):
            namespaces.append(found[1] or "")
        elif re.match(r"\}  // namespace", line) and namespaces:
            namespaces.pop()
        elif (found := re.match(r"(?:struct|class|enum class) (\w+)\b(?!::).*\{", line)) and "" not in namespaces and found[1] != "alignas":
            yield "::".join(namespaces) + "::" + found[1]


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    errors, sizes, folders, types = [], {}, {}, {}
    for folder in ("framework", "models", "launch"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cpp", ".inl", ".cu", ".cuh"):
                continue
            path = file.relative_to(root)
            text = file.read_text()
            lines = text.splitlines()
            own = room_of(path)
            if own not in LEVELS:
                errors.append(f"{path}: room {own} is not in FLOORS of {pathlib.Path(__file__).name}")
                continue
            budget = OVER.get((str(path), "file"), HEADER if file.suffix in (".h", ".cuh") else SOURCE)
            functions = list(blocks(lines, DEFINITION))
            count, most, function = sizes.get(own, (0, 0, 0))
            sizes[own] = (count + len(lines), max(most, len(lines)), max([function, *(n for _, n in functions)]))
            folders[path.parent] = folders.get(path.parent, 0) + len(lines)
            for what, limit, found in (("function", FUNCTION, functions), ("op", OP, blocks(lines, OP_CLASS))):
                limit = OVER.get((str(path), what), limit)
                errors += [f"{path}:{at}: the {what} has {n} lines, the budget is {limit}" for at, n in found if n > limit]
            if len(lines) > budget and file.suffix != ".inl":
                errors.append(f"{path}: {len(lines)} lines, the budget is {budget}")
            for name in types_of(text):
                if other := types.get(name):
                    errors.append(f"{path}: {name} is defined in {other}, too: two types of one name break the one-definition rule")
                types[name] = path
            errors += check_includes(path, lines)
            errors += check_axes(path, lines)
            errors += check_verification(path, lines)
            if not (own == "launch" and path.parent == pathlib.Path("launch")):
                errors += check_namespace(path, text)
    total = sum(folders.values())
    for folder, lines in folders.items():
        if lines > SHARE * total:
            errors.append(f"{folder}: {lines} of {total} lines, the budget is {SHARE:.0%}")
    print(f"{'room':12} {'lines':>7} {'share':>6} {'longest file':>13} {'function':>9}")
    for name in sorted(sizes, key=lambda n: LEVELS[n]):
        lines, longest, function = sizes[name]
        print(f"{name:12} {lines:7} {lines / total:6.1%} {longest:13} {function:9}")
    for e in errors:
        print("error:", e)
    sys.exit(1 if errors else 0)


main()
