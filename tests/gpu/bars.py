"""What kernels and models should reach on a GPU, and its clocks while they run."""
import csv
import io
import statistics
import subprocess
import tempfile

# Of data sheets and published runs: dense products of bf16 in FLOP/s, copies in bytes/s.
REACHED = {"H200": (790e12, 4.3e12), "H100": (790e12, 3.0e12)}
# Of the roofline of the product's and the copy's measured rates. Products with sums over 768 terms have few of them for a tile; other
# kernels move memory, of which a copy's rate is what they can have.
FRACTIONS = {"linear": {"gpt2-124m": 0.80, "llama-1b": 0.90}, "cross_entropy": 0.86, "attention": 0.80}
MEMORY_BOUND = 0.90
# TFLOP/s of forward and backward by (length, head size), causal; cuDNN's and FlashAttention's published rates on Hopper.
ATTENTION = {(1024, 64): (290, 230), (4096, 128): (590, 470)}
# Tokens/s of one H200: products at the measured rates of the model's shapes, attention at the published ones, all else at 92 % of a copy.
GOALS = {"gpt2-124m": 639e3, "gpt2-1.5b": 59.8e3, "llama-1b": 70.2e3, "bert-large": 280e3, "transformer-big": 425e3}


def of_kernel(op, model):
    bar = FRACTIONS.get(op, MEMORY_BOUND)
    return bar[model] if isinstance(bar, dict) else bar


def of_device(name):
    """Rates of products and copies that a GPU of this name should reach: nine tenths of those above; None where it is not among them."""
    return next(((0.9 * product, 0.9 * copy) for part, (product, copy) in REACHED.items() if part in name), None)


class Clocks:
    """Samples the GPU while a block runs; afterwards `text` says its clock, power and temperature."""
    FIELDS = {"clocks.sm": "MHz", "power.draw": "W", "temperature.gpu": "C"}

    def __enter__(self):
        self.text, self.out = "", tempfile.TemporaryFile("w+")
        try:
            self.child = subprocess.Popen(["nvidia-smi", "--query-gpu=" + ",".join(self.FIELDS), "--format=csv,noheader,nounits", "-lms", "200"],
                                          stdout=self.out, stderr=subprocess.DEVNULL)
        except OSError as failure:
            self.child, self.text = None, str(failure)
        return self

    def __exit__(self, *_):
        if self.child:
            self.child.terminate()
            self.child.wait()
            self.out.seek(0)
            self.text = summary(self.out.read())
        self.out.close()


def summary(samples):
    """Median, least and most of each field."""
    rows = [[float(x) for x in line.split(",")] for line in samples.splitlines() if line.count(",") == 2 and "[" not in line]
    if not rows:
        return "nvidia-smi gave no samples"
    return ", ".join(f"{name} {statistics.median(x):.0f} ({min(x):.0f} to {max(x):.0f}) {unit}"
                     for (name, unit), x in zip(Clocks.FIELDS.items(), zip(*rows)))


# Nsight Compute's counters: time, and the shares of what multiprocessors and memory can do.
COUNTERS = {"gpu__time_duration.sum": "seconds", "sm__throughput.avg.pct_of_peak_sustained_elapsed": "compute",
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "memory"}


def heaviest(report, most=10):
    """Of `ncu --csv --page raw --print-units base` the kernels with the largest sums of time: (name, calls, seconds, compute and memory
    percent, weighted by time)."""
    lines = report.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return []
    kernels = {}
    for row in list(csv.DictReader(io.StringIO("\n".join(lines[begin:]))))[1:]:  # the first has the units
        seconds = 1e-9 * float(row["gpu__time_duration.sum"].replace(",", ""))
        sums = kernels.setdefault(row["Kernel Name"], [0, 0.0, 0.0, 0.0])
        sums[0] += 1
        sums[1] += seconds
        for i, name in enumerate(list(COUNTERS)[1:], 2):
            sums[i] += seconds * float(row[name].replace(",", ""))
    ranked = sorted(kernels.items(), key=lambda item: -item[1][1])[:most]
    return [(name, calls, seconds, compute / seconds, memory / seconds) for name, (calls, seconds, compute, memory) in ranked if seconds > 0]
