// tfm-bench: measures.
#include <cstring>

#include "launch/bench/bench.h"

namespace {

using namespace tfm;

constexpr const char* kHelp =
    "usage: tfm-bench scaling CONFIG.yaml [section.key=value ...]\n"
    "  Starts tfm-train under mpirun for each number of ranks: strong scaling (the configuration's "
    "global batch) and weak scaling (the\n"
    "  global batch grows with the ranks). Medians over the timed steps; a rank has "
    "OMP_NUM_THREADS threads, 1 where it is not set.\n"
    "    --ranks 1,2,4      numbers of ranks (default 1,2,4,... up to the cores)\n"
    "    --steps N          timed steps (default 10)\n"
    "    --warmup N         steps before them (default 3)\n"
    "usage: [mpirun -np N] tfm-bench step CONFIG.yaml [section.key=value ...]\n"
    "  The configuration's step by phase and by kind of op; means over the ranks. Ops are timed "
    "one by one: the device is waited for after\n"
    "  each of them, so on a GPU they are slower than in a run, whose step is given, too. Bytes "
    "are those of tensors read and written.\n"
    "    --steps N          timed steps (default 10)\n"
    "    --warmup N         steps before them (default 2)\n"
    "    --random-data      random ids instead of the configuration's data; so are batches by "
    "length, all of the longest one\n"
    "usage: tfm-bench kernels [CONFIG.yaml] [section.key=value ...]\n"
    "  Every op of the configuration's training program (default: GPT-2 124M on few sequences) "
    "alone, forward and backward, against the time\n"
    "  that its FLOPs and bytes take at the rates of a large matrix product and of a copy, which "
    "are measured before. Above 100 %: the tensors\n"
    "  were still in a cache.\n"
    "usage: [mpirun -np N] tfm-bench collectives\n"
    "  Seconds and bandwidths of all_reduce, reduce_scatter and all_gather. `bytes` are those of "
    "the whole tensor; bus bandwidth is bytes /\n"
    "  seconds times 2 (N - 1) / N for all_reduce, (N - 1) / N for the others, as nccl-tests "
    "define it.\n"
    "    --bytes 1Mi,16Mi   sizes (default 64Ki,1Mi,16Mi,64Mi)\n"
    "    --device cpu|cuda  where the tensors are (default cpu)\n"
    "all: --json FILE for machines, --svg FILE a picture; --help, --version\n";

struct Measurement {
  const char* name;
  std::vector<launch::OptionSpec> options;
  int (*run)(const launch::Arguments&);
};

int run(int argc, char** argv) {
  const launch::OptionSpec json{"--json"}, svg{"--svg"};
  const Measurement all[] = {
      {"scaling", {{"--ranks"}, {"--steps"}, {"--warmup"}, json, svg}, launch::bench_scaling},
      {"step",
       {{"--steps"}, {"--warmup"}, {"--random-data", false}, json, svg},
       launch::bench_step},
      {"kernels", {json, svg}, launch::bench_kernels},
      {"collectives", {{"--bytes"}, {"--device"}, json, svg}, launch::bench_collectives}};
  for (const Measurement& m : all)
    if (argc > 1 && std::strcmp(argv[1], m.name) == 0)
      return m.run(launch::Arguments(argc - 1, argv + 1, m.options));
  throw Error(ExitCode::usage,
              std::string(argc > 1 ? std::string("'") + argv[1] + "': " : "") +
                  "expected scaling, step, kernels or collectives; --help tells more");
}

}  // namespace

int main(int argc, char** argv) { return tfm::launch::guarded(argc, argv, kHelp, run); }
