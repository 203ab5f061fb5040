#!/usr/bin/env python3
"""Prints GPU, driver and versions of the libraries that a program started here finds, as one JSON object."""
import ctypes
import importlib.metadata
import json
import subprocess


def version(library, function, by_pointer):
    try:
        call = getattr(ctypes.CDLL(library), function)
    except (OSError, AttributeError) as failure:
        return str(failure)
    if not by_pointer:
        call.restype = ctypes.c_size_t
        return call()
    number = ctypes.c_int()
    call(ctypes.byref(number))
    return number.value


def gpu():
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=60)
        return done.stdout.strip() or done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as failure:
        return str(failure)


def torch():
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


print(json.dumps({
    "gpu, driver": gpu(), "torch": torch(),
    "cudart": version("libcudart.so.13", "cudaRuntimeGetVersion", True), "cublasLt": version("libcublasLt.so.13", "cublasLtGetVersion", False),
    "cudnn": version("libcudnn.so.9", "cudnnGetVersion", False), "nccl": version("libnccl.so.2", "ncclGetVersion", True)}))
