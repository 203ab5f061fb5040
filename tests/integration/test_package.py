"""find_package(tfm) works from an install tree: installs the build, builds tests/package against it and runs it. What is packed may be read
by all, and is whole."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
build = pathlib.Path(sys.argv[1]).resolve().parent


def check_own_mixer(folder):
    """A program outside the project has a mixer of its own: the same losses on two ranks, in the memory that was planned, before and
    after a resume, and the same text."""
    example, build = root / "docs/examples/mixer", folder / "mixer"
    for command in (["-G", "Ninja", "-S", example, "-B", build, f"-DCMAKE_PREFIX_PATH={folder}/installed"], ["--build", build]):
        subprocess.run(["cmake", *command], check=True, stdout=subprocess.DEVNULL)
    assert len((example / "main.cpp").read_text().splitlines()) <= 100

    def average(name, *arguments, ranks=1):
        work = folder / name
        if not work.exists():
            work.mkdir()
            shutil.copy(example / "cfg.yaml", work)
            (work / "text.txt").write_text("".join(f"line {i} of a text of {i * 7 % 13} words\n" for i in range(800)))
        command = [*([root / "tests/mpirun.sh", "2"] if ranks > 1 else []), build / "average", *arguments]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def events(name, kind):
        return [e for e in map(json.loads, (folder / name / "metrics.jsonl").read_text().splitlines()) if e["event"] == kind]

    average("one", "cfg.yaml")
    average("two", "train", "cfg.yaml", "parallel.tensor=2", "train.steps=10", "schedule.decay_steps=20", ranks=2)
    average("two", "train", "cfg.yaml", "parallel.tensor=2", ranks=2)
    one, two = ([e["loss"] for e in events(name, "step")] for name in ("one", "two"))
    assert len(one) == 20 and all(abs(a - b) <= 1e-6 * a for a, b in zip(one, two, strict=True)), (one, two)
    assert events("two", "start")[0]["planned_bytes"] == events("two", "end")[0]["arena_high_water_bytes"]
    assert str(events("two", "start")[0]["planned_bytes"]) in average("two", "plan", "cfg.yaml", "parallel.tensor=2", "--ranks", "2")
    assert "equal to the single-rank run" in average("two", "verify", "cfg.yaml", "parallel.tensor=2", ranks=2)
    generate = ["generate", "checkpoints", "--prompt", "line 7", "--max-tokens", "12", "--temperature", "0"]
    assert average("one", *generate) == average("two", *generate)


with tempfile.TemporaryDirectory() as folder:
    def run(*command):
        subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL)

    run("cmake", "--install", build, "--prefix", f"{folder}/installed")
    run("cmake", "-G", "Ninja", "-S", root / "tests/package", "-B", f"{folder}/build", f"-DCMAKE_PREFIX_PATH={folder}/installed")
    run("cmake", "--build", f"{folder}/build")
    run(f"{folder}/build/uses_tfm")
    check_own_mixer(pathlib.Path(folder))
    loads = subprocess.run(["ldd", f"{folder}/installed/bin/tfm-train"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert f"libtfm_kernels.so => {folder}/installed/" in loads, loads
    run(f"{folder}/installed/bin/tfm-train", "--version")
    programs = sorted(p.name for p in pathlib.Path(f"{folder}/installed/bin").glob("tfm-*"))
    share = pathlib.Path(f"{folder}/installed/share")
    for file in ["tfm/configs/tfm.schema.json", "man/man5/tfm-configuration.5", *(f"man/man1/{p}.1" for p in programs),
                 *(f"bash-completion/completions/{p}" for p in programs)]:
        assert (share / file).stat().st_size > 0, file
    for file in ("supervise.sh", "recipes/openmpi.sh", "recipes/mpich.sh", "recipes/slurm.sbatch"):
        assert os.access(share / "tfm/launch" / file, os.X_OK), file
    # Examples run in a copy of it, without the source tree.
    shutil.copytree(share / "tfm", f"{folder}/examples")
    subprocess.run([f"{folder}/installed/bin/tfm-train", "configs/tiny_decoder.yaml", "--check"], cwd=f"{folder}/examples", check=True)
    for file in ("launch/quickstart.sh", "launch/quickstart/make_data.awk", "docs/install.md", "CHANGELOG.md"):
        assert (share / "doc/tfm/examples" / file).is_file(), file
    for file in ("recipes/hostfile", "recipes/kubernetes.yaml"):
        assert (share / "tfm/launch" / file).is_file(), file

# A package, and what cpack makes on the way, lies in the build, wherever it is called.
assert f'set(CPACK_PACKAGE_DIRECTORY "{build}")' in (build / "CPackConfig.cmake").read_text()

# No build uses CUDA unasked.
for preset in json.loads((root / "CMakePresets.json").read_text())["configurePresets"]:
    assert preset["name"] in ("base", "cuda") or preset["cacheVariables"]["TFM_CUDA"] == "OFF", preset
assert re.search(r'^option\(TFM_CUDA ".*" OFF\)$', (root / "framework/cmake/options.cmake").read_text(), re.MULTILINE)

# Folders of the source and of the build may have spaces.
for argument in (root / "launch/make_reference.py", build / "bin", build / "share"):
    assert f'"{argument}"' in (build / "cmake_install.cmake").read_text(), argument

# Packed by somebody whose files are nobody else's to read.
with tempfile.TemporaryDirectory() as name:
    folder, out = pathlib.Path(name) / "tree", pathlib.Path(name) / "out"
    (folder / "bin").mkdir(parents=True)
    out.mkdir()
    (folder / "bin/program").write_bytes(os.urandom(100000))
    (folder / "text").write_text("text")
    for path, mode in ((folder / "bin/program", 0o700), (folder / "text", 0o600), (folder / "bin", 0o700)):
        path.chmod(mode)

    def pack(limit):
        """With a limit of the bytes of a file, which a write meets as it would a full disk."""
        code = ("import pathlib, resource, sys; sys.path.insert(0, sys.argv[1]); import package; "
                f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
                "package.write_tarball(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))")
        return subprocess.run([sys.executable, "-B", "-c", code, root / "launch", folder, out / "x.tar.gz"], capture_output=True, text=True)

    done = pack(20000)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "x.tar.gz: cannot be written" in done.stderr, done.stderr
    assert not list(out.iterdir()), "a part of a file is left"
    done = pack(10 ** 7)
    assert done.returncode == 0, done.stderr
    with tarfile.open(out / "x.tar.gz") as tar:
        modes = {m.name: m.mode for m in tar}
    assert modes == {"x/bin": 0o755, "x/bin/program": 0o755, "x/text": 0o644}, modes
    script, = re.findall(r'^set\(CPACK_PRE_BUILD_SCRIPTS "(.*)"\)', (build / "CPackConfig.cmake").read_text(), re.MULTILINE)
    subprocess.run(["cmake", f"-DCPACK_TEMPORARY_DIRECTORY={folder}", "-P", script], check=True)
    assert (folder / "bin").stat().st_mode & 0o777 == 0o755 and (folder / "text").stat().st_mode & 0o777 == 0o600
print("ok")
