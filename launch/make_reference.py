#!/usr/bin/env python3
"""Writes man pages and shell completion from what the programs say of themselves: --help, --version, and the keys of a configuration; and
from README.md, which has examples.

usage: make_reference.py BIN_FOLDER OUT_FOLDER    writes OUT_FOLDER/man/man{1,5}/* and OUT_FOLDER/bash-completion/completions/*
"""
import json
import pathlib
import re
import subprocess
import sys

SOURCES = pathlib.Path(__file__).resolve().parent


def output(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


def flatten(schema, path=""):
    """(dotted key, its schema) of every key, sections included."""
    for name, child in schema.get("properties", {}).items():
        yield path + name, child
        for form in [child, *child.get("anyOf", [])]:
            yield from flatten(form, path + name + ".")


def words(schema):
    """The words that a value may be."""
    found = []
    for form in schema.get("anyOf", []):
        items = form.get("items", {}).get("anyOf", [])
        for choice in [form, *items]:
            found += [str(w).lower() if isinstance(w, bool) else w for w in choice.get("enum", [])]
            found += ["true", "false"] if choice.get("type") == "boolean" else []
    return list(dict.fromkeys(found))


def roff(text):
    """Text that means nothing to roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def title(name, section, version, date="", manual="tfm"):
    return f'.TH {roff(name.upper())} {section} "{date}" "{version}" "{manual}"\n'


def purpose(program):
    """The first sentence of the comment that its source begins with."""
    comment = ""
    for line in (SOURCES / f"{program.replace('-', '_')}.cpp").read_text().splitlines():
        if not line.startswith("//"):
            break
        comment += line[2:]
    return re.match(r"\s*[\w-]+: (.*?)\.?$", comment)[1]


def examples_of(program):
    """(command, what it does) of the lines of README.md's section on programs."""
    block = re.search(r"^## Programs\n+```sh\n(.*?)^```", (SOURCES.parent / "README.md").read_text(), re.DOTALL | re.MULTILINE)[1]
    for line in block.splitlines():
        command, _, comment = line.partition(" # ")
        if re.match(rf"(mpirun \S+ \d+ )?{program} ", command):
            yield command.strip(), comment.strip()


def man_of_program(program, help_, version, others):
    """Usage lines become the synopsis, lines that begin with an option its description. Of a program with several usages each is explained
    apart: under a heading of its own, or where they are one list as an option is."""
    page = title(program, 1, version) + f".SH NAME\n{roff(program)} \\- {roff(purpose(program))}\n.SH SYNOPSIS\n"
    help_ = re.sub(r"^(usage:.*)\n {9,}(?=\[)", r"\1 ", help_, flags=re.MULTILINE)  # a usage of two lines
    usage = [line for line in help_.splitlines() if re.match(r"(usage:|\s+tfm-\w+ )", line)]
    plain = {line: re.sub(r"^usage:\s*|^\s+", "", line) for line in usage}
    page += "\n.br\n".join(map(roff, plain.values())) + "\n.SH DESCRIPTION\n"
    apart = sum(line.startswith("usage:") for line in usage) > 1
    tagged, paragraph = False, False  # whether a line goes on with an option's text, or with a paragraph
    for line in help_.splitlines():
        option = re.match(r"\s+((?:--|[a-z_.]+=|[A-Z_]+ |[a-z-]+ (?=--|FILE))\S*(?: ?\S+)*?)(?:\s{2,}(\S.*)|$)", line)
        if apart and (line in usage or re.match(r"\S.*:$", line)):
            tagged, paragraph = False, False
            page += f".SS {roff(re.search(program + ' [a-z]+', plain[line])[0] if line in usage else line.rstrip(':'))}\n"
        elif len(usage) > 1 and line in usage:
            tagged, paragraph = True, False
            page += f".TP\n.B {roff(plain[line])}\n"
        elif option and (option[2] or re.search(r"(^|[ [])--", option[1])) and line not in usage:
            tagged, paragraph = option[1] != "--help, --version", False
            page += f".TP\n.B {roff(option[1])}\n" if tagged else f".PP\n{roff(option[1])}\n"
            page += f"{roff(option[2])}\n" if option[2] else ""
        elif line in usage or not line.strip():
            tagged = paragraph = False
        elif tagged and line.startswith("      ") or paragraph:
            page += roff(line.strip()) + "\n"
        else:
            page += f".PP\n{roff(line.strip())}\n"
            tagged, paragraph = False, True
    page += ".SH EXAMPLES\n"
    for command, comment in examples_of(program):
        page += f".TP\n.B {roff(command)}\n{roff(comment[:1].upper() + comment[1:])}\n" if comment else f".PP\n.B {roff(command)}\n"
    page = re.sub(r"^(\.S[HS] .*\n)\.PP\n", r"\1", page, flags=re.MULTILINE)
    see = ", ".join(f".BR {roff(o)} (1)" for o in others if o != program).split(", ")
    return page + ".SH SEE ALSO\n" + " ,\n".join(see) + " ,\n.BR tfm\\-configuration (5)\n"


def man_of_configuration(schema, version):
    page = title("tfm-configuration", 5, version) + (
        ".SH NAME\ntfm\\-configuration \\- keys of a configuration of tfm\n.SH DESCRIPTION\n"
        "A configuration is a YAML file; every key may also be given as an argument\n.IR section.key=value .\n")
    for key, child in flatten(schema):
        if "properties" in child:
            page += f".SS {roff(key)}\n{roff(child['description'])}\n"
            continue
        text = roff(child["description"])
        others = [form for form in child["anyOf"] if "enum" not in form and form.get("type") != "boolean"]
        text += f"\n.br\n{'Also' if others else 'One of'} {roff(', '.join(words(child)))}." if words(child) else ""
        text += f"\n.br\nDefault: {roff(json.dumps(child['default']))}." if "default" in child else ""
        page += f".TP\n.B {roff(key)}\n{text}\n"
    return page + ".SH SEE ALSO\n.BR tfm\\-train (1)\n"


def subcommands(help_):
    named = re.findall(r"^(?:usage:)?\s+(?:\[.*?\] )?tfm-\w+ ([a-z]\w*)\b", help_, re.MULTILINE)
    return named + (re.findall(r"^  ([a-z][\w-]*) ", help_, re.MULTILINE) if " COMMAND" in help_ else [])


COMPLETION = r"""# bash completion of tfm's programs; written by launch/make_reference.py
declare -gA _tfm_options=(
{options})
declare -gA _tfm_keys=(
{keys})
_tfm_takes_keys=" {takes_keys} "

# Files whose names begin with a word, which may begin with a quote or have backslashes.
_tfm_files() {{
  local start=$1
  if [[ $start == [\"\']* ]]; then start=${{start:1}}; else start=${{start//\\/}}; fi
  compgen -f -- "$start"
}}

_tfm() {{
  # Not COMP_WORDS, which `=` and `:` split. A space in quotes or after a backslash is part of a word.
  local line=${{COMP_LINE:0:COMP_POINT}} program=${{1##*/}} word key
  local part=$'([^[:space:]"\'\\\\]|\\\\.|"[^"]*("|$)|\'[^\']*(\'|$))'
  COMPREPLY=()
  [[ $line =~ ^($part*[[:space:]]+)*($part*)$ ]] || return 0
  word=${{BASH_REMATCH[5]}}
  if [[ $word == *=* && $word != -* ]]; then
    key=${{word%%=*}}
    COMPREPLY=($(compgen -W "${{_tfm_keys[$key]-}}" -- "${{word#*=}}"))
    [[ ${{#COMPREPLY[@]}} -gt 0 ]] || mapfile -t COMPREPLY < <(_tfm_files "${{word#*=}}")
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "${{_tfm_options[$program]-}}" -- "$word"))
  else
    mapfile -t COMPREPLY < <(compgen -W "${{_tfm_options[$program]-}}" -X '-*' -- "$word"; _tfm_files "$word")
    if [[ -n $word && $_tfm_takes_keys == *" $program "* ]]; then
      local keys
      keys=$(compgen -W "${{!_tfm_keys[*]}}" -S = -- "$word")
      if [[ -n $keys ]]; then
        compopt -o nospace +o filenames 2>/dev/null
        COMPREPLY+=($keys)
      fi
    fi
  fi
}}
# Behind a launcher: `mpirun -np 2 tfm-train `.
_tfm_launched() {{
  local line=${{COMP_LINE:0:COMP_POINT}}
  COMPREPLY=()
  [[ $line =~ [[:space:]]([^[:space:]]*/)?({alternatives})[[:space:]] ]] || return 0
  compopt -o filenames 2>/dev/null
  _tfm "${{BASH_REMATCH[2]}}"
}}
complete -o filenames -F _tfm {programs}
for _tfm_launcher in {launchers}; do
  complete -p "$_tfm_launcher" &>/dev/null || complete -o bashdefault -o default -F _tfm_launched "$_tfm_launcher"
done
unset _tfm_launcher
"""
LAUNCHERS = ("mpirun", "mpiexec", "srun")


def options_of(help_):
    """Those that stand at the start of a line or in a usage, not in what is said of them."""
    starts = (re.sub(r"(?<=\S)  .*", "", line) for line in help_.splitlines() if len(line) - len(line.lstrip()) <= 8)
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", "\n".join(starts))))


def completion(helps, schema):
    def quoted(pairs):
        return "".join(f"  [{name}]='{' '.join(w.split())}'\n" for name, w in pairs)

    options = [(p, " ".join(subcommands(h) + options_of(h))) for p, h in helps.items()]
    keys = [(k, " ".join(words(c))) for k, c in flatten(schema) if "properties" not in c]
    return COMPLETION.format(options=quoted(options), keys=quoted(keys), programs=" ".join(helps), alternatives="|".join(helps),
                             launchers=" ".join(LAUNCHERS), takes_keys=" ".join(p for p, h in helps.items() if "section.key=value" in h))


def main():
    binaries, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    names = sorted(f.stem.replace("_", "-") for f in SOURCES.glob("tfm_*.cpp"))
    helps = {name: output(binaries / name, "--help") for name in names}
    schema = json.loads(output(binaries / "tfm-train", "--json-schema"))
    version = output(binaries / "tfm-train", "--version").replace("tfm-train", "tfm").strip()
    for folder in ("man/man1", "man/man5", "bash-completion/completions"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name, help_ in helps.items():
        (out / f"man/man1/{name}.1").write_text(man_of_program(name, help_, version, names))
    for name in (*helps, *LAUNCHERS[:2]):  # a Slurm has a completion of its own
        (out / "bash-completion/completions" / name).write_text(completion(helps, schema))
    (out / "man/man5/tfm-configuration.5").write_text(man_of_configuration(schema, version))


main()
