// tfm-bench: measures scaling, kernels, collectives and steps.
#include <cstring>

#include "launch/bench/bench.h"
#include "launch/programs.h"

namespace {

using namespace tfm;

constexpr const char* kHelp =
    R"(usage: tfm-bench scaling CONFIG.yaml [section.key=value ...] [options]
  Trains with each number of ranks, without evaluations and checkpoints. Reports the median step
  time, tokens per second with the least and the most of the repeats, the efficiency of a rank
  against the fewest ranks measured (none where ranks have more threads than cores together), and
  the tokens per second that the planner predicts from rates of cores measured here (device: cuda:
  those of an h200; length buckets: full batches of the longest). A point that the configuration
  does not allow is skipped with the reason; exit code 2 where that is all of them. Each rank uses
  OMP_NUM_THREADS threads, 1 if it is not set.
    --ranks 1,2,4      numbers of ranks (default: 1,2,4,... up to the number of cores)
    --launcher TEXT    what starts the ranks, such as "srun -n {ranks}" (default: mpirun on this
                       machine); the working directory must be shared by their hosts
    --weak             weak scaling: the global batch, in sequences or tokens, is the configured one
                       times the ranks (default: strong scaling, with the configured global batch)
    --axes tensor,pipeline
                       axes that the ranks are put on, one after the other: data, shard (data with
                       ZeRO 3), tensor, pipeline, context; the others stay as configured (default:
                       all as configured)
    --steps N          timed steps (default: 10)
    --warmup N         warmup steps before them (default: 3)
    --repeats N        rounds over all points, of which medians are reported (default: 1)
    --csv FILE         write the points as CSV
usage: [mpirun -np N] tfm-bench step CONFIG.yaml [section.key=value ...] [options]
  Breaks the step time down by phase and by op, averaged over the ranks. Ops are timed with a
  synchronization after each one, so on a GPU they take longer than in a step of training, whose
  time is reported too. Bytes are those of the tensors read and written.
    --steps N          timed steps (default: 10)
    --warmup N         warmup steps before them (default: 2)
    --random-data      use random token ids instead of the configured data (also used with
                       train.global_batch_tokens, with all batches of the longest bucket)
usage: tfm-bench kernels [CONFIG.yaml] [section.key=value ...] [options]
  Times every op of the training program (default: GPT-2 124M with few sequences) by itself,
  forward and backward, and compares it with its roofline: the time its FLOPs and bytes need at
  the measured rates of a large matrix product and a copy. Above 100 %: tensors were in a cache.
    --device-file FILE
                       describe this machine for tfm-plan --device: also measures large products and
                       attention in fp32 and bf16, on all cores
usage: [mpirun -np N] tfm-bench collectives [options]
  Time and bandwidth of all_reduce, reduce_scatter and all_gather. `bytes` is the size of the
  whole tensor; bus bandwidth as in nccl-tests: bytes / seconds times 2 (N - 1) / N for
  all_reduce, times (N - 1) / N for the others.
    --bytes 1Mi,16Mi   tensor sizes (default: 64Ki,1Mi,16Mi,64Mi)
    --device cpu|cuda  device of the tensors (default: cpu)
    --network-file FILE
                       describe the network for tfm-plan --node or --network: latency and bandwidth
                       from all_gather and reduce_scatter of the smallest and the largest size
all of them:
    --json FILE        write the results as JSON
    --svg FILE         write a chart
    --help, --version
)";

struct Measurement {
  const char* name;
  std::vector<launch::OptionSpec> options;
  int (*run)(const launch::Arguments&);
  launch::MeantKey meant_key = config::meant_key;  // null: takes no configuration keys
};

int run(int argc, char** argv) {
  const launch::OptionSpec json{"--json"}, svg{"--svg"};
  const Measurement all[] = {{"scaling",
                              {{"--ranks"},
                               {"--launcher"},
                               {"--weak", false},
                               {"--axes"},
                               {"--steps"},
                               {"--warmup"},
                               {"--repeats"},
                               {"--csv"},
                               json,
                               svg},
                              launch::bench_scaling},
                             {"step",
                              {{"--steps"}, {"--warmup"}, {"--random-data", false}, json, svg},
                              launch::bench_step},
                             {"kernels", {{"--device-file"}, json, svg}, launch::bench_kernels},
                             {"collectives",
                              {{"--bytes"}, {"--device"}, {"--network-file"}, json, svg},
                              launch::bench_collectives,
                              nullptr}};
  for (const Measurement& m : all)
    if (argc > 1 && std::strcmp(argv[1], m.name) == 0) {
      const launch::Arguments args(argc - 1, argv + 1, m.options, m.meant_key);
      args.check_outputs({"--json", "--csv", "--svg", "--device-file", "--network-file"});
      return m.run(args);
    }
  throw Error(ExitCode::usage, std::string(argc > 1 ? std::string("'") + argv[1] + "': " : "") +
                                   "expected scaling, step, kernels or collectives; see --help");
}

}  // namespace

int tfm::launch::bench_main(int argc, char** argv) {
  return tfm::launch::guarded(argc, argv, kHelp, run);
}
