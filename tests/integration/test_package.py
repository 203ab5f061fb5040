"""find_package(tfm) works from an install tree: installs the build, builds tests/package against it and runs it."""
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
build = pathlib.Path(sys.argv[1]).parent
with tempfile.TemporaryDirectory() as folder:
    def run(*command):
        subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL)

    run("cmake", "--install", build, "--prefix", f"{folder}/installed")
    run("cmake", "-G", "Ninja", "-S", root / "tests/package", "-B", f"{folder}/build", f"-DCMAKE_PREFIX_PATH={folder}/installed")
    run("cmake", "--build", f"{folder}/build")
    run(f"{folder}/build/uses_tfm")
    loads = subprocess.run(["ldd", f"{folder}/installed/bin/tfm-train"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert f"libtfm_kernels.so => {folder}/installed/" in loads, loads
    run(f"{folder}/installed/bin/tfm-train", "--version")
    programs = sorted(p.name for p in pathlib.Path(f"{folder}/installed/bin").glob("tfm-*"))
    share = pathlib.Path(f"{folder}/installed/share")
    for file in ["tfm/tfm.schema.json", "man/man5/tfm-configuration.5", *(f"man/man1/{p}.1" for p in programs),
                 *(f"bash-completion/completions/{p}" for p in programs)]:
        assert (share / file).stat().st_size > 0, file
print("ok")
