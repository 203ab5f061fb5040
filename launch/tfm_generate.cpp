// tfm-generate: continues a text with a decoder, at any tensor-parallel layout.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "comm/agree.h"
#include "data/tokenizer.h"
#include "launch/support/program.h"
#include "models/registry.h"
#include "train/checkpoint_model.h"
#include "train/inference.h"

namespace {

using namespace tfm;

constexpr const char* kHelp =
    "usage: [mpirun -np N] tfm-generate MODEL_DIR [section.key=value ...] [options]\n"
    "  MODEL_DIR          a checkpoint (step-00000500) or a directory of checkpoints\n"
    "  --prompt TEXT      the text to continue; without it standard input is read\n"
    "  --max-tokens N     tokens to add (default 100)\n"
    "  --temperature X    0 is greedy (default 1)\n"
    "  --top-k N          sample among the N most likely tokens (default 0: all)\n"
    "  --top-p X          sample among the most likely tokens that hold probability X (default 1: all)\n"
    "  --seed N           of sampling (default 1234)\n"
    "  --tokenizer T      instead of the one the model was trained with\n"
    "  --help, --version\n";

struct Sampling {
  double temperature = 1, top_p = 1;
  std::int64_t top_k = 0;
  std::uint64_t seed = 1234;

  // The n-th token from logits; the same on every rank.
  std::int32_t pick(const std::vector<double>& logits, std::uint32_t n) const {
    std::vector<std::int32_t> order(logits.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
    if (temperature == 0) return order[0];
    if (top_k > 0 && top_k < static_cast<std::int64_t>(order.size())) order.resize(static_cast<std::size_t>(top_k));
    std::vector<double> weight;
    double total = 0;
    for (auto id : order) total += weight.emplace_back(std::exp((logits[id] - logits[order[0]]) / temperature));
    std::size_t kept = 0;
    double mass = 0;
    while (kept < weight.size() && mass < top_p * total) mass += weight[kept++];
    const RandomKey key{seed, Purpose::sample, stream_of("generate"), n};
    double u = static_cast<double>(key.word(0)) * 0x1p-32 * mass;
    for (std::size_t i = 0; i + 1 < kept; ++i)
      if ((u -= weight[i]) < 0) return order[i];
    return order[kept - 1];
  }
};

Config inference_config(const std::string& dir, const std::vector<std::string>& overrides, int ranks) {
  Config c = checkpoint_config(dir, overrides);
  const bool tensor_given = std::any_of(overrides.begin(), overrides.end(), [](const auto& o) { return o.rfind("parallel.tensor=", 0) == 0; });
  if (!tensor_given) c.parallel.tensor = ranks;
  c.parallel.data = 0;
  c.parallel.sequence = false;
  c.train.micro_batch_size = 1;
  if (ranks % std::max<std::int64_t>(c.parallel.tensor, 1) == 0) c.train.global_batch_size = ranks / c.parallel.tensor;
  resolve_for_ranks(c, ranks);
  return c;
}

class Generator {
 public:
  Generator(LoadedModel model, int threads)
      : model_(std::move(model)), threads_(threads), context_(std::max(model_.config.model.max_seq_len, std::int64_t{1})) {}

  std::int32_t next(const std::vector<std::int32_t>& ids, const Sampling& sampling, std::uint32_t n) {
    const auto used = static_cast<std::int64_t>(std::min<std::size_t>(ids.size(), static_cast<std::size_t>(context_)));
    std::int64_t length = 16;  // one program per power of two; what follows the last id is not seen by it
    while (length < used) length *= 2;
    length = std::min(length, context_);
    if (!inference_ || length_ != length) {
      inference_.emplace(*model_.model, model_.mesh, model_.flat.data(), BatchShape{.sequences = 1, .length = length}, model_.config.model.vocab_size, threads_);
      length_ = length;
    }
    std::vector<std::int32_t> window(static_cast<std::size_t>(length), 0);
    std::copy(ids.end() - used, ids.end(), window.begin());
    inference_->run({{"ids", window}});
    return sampling.pick(inference_->row(used - 1), n);
  }

 private:
  LoadedModel model_;
  int threads_;
  std::int64_t context_, length_ = 0;
  std::optional<Inference> inference_;
};

int run(int argc, char** argv) {
  const Arguments args(argc, argv, {{"--prompt"}, {"--max-tokens"}, {"--temperature"}, {"--top-k"}, {"--top-p"}, {"--seed"}, {"--tokenizer"}});
  const std::string dir = checkpoint_path(args.only("model directory"));
  const Sampling sampling{args.real("--temperature", 1), args.real("--top-p", 1), args.integer("--top-k", 0, 0),
                          static_cast<std::uint64_t>(args.integer("--seed", 1234, 0))};
  const std::int64_t most = args.integer("--max-tokens", 100, 0);
  const Launch launch;
  const Config config = inference_config(dir, args.overrides(), launch.ranks);
  const Mesh mesh = launch.mesh(layout_of(config));
  const auto tokenizer = load_tokenizer(args.get("--tokenizer", config.data.tokenizer));
  std::string prompt = args.get("--prompt");
  if (!args.has("--prompt") && mesh.rank() == 0) prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  prompt = broadcast_string(*mesh.world, prompt);
  std::vector<std::int32_t> ids = tokenizer->encode(prompt);
  if (ids.empty()) throw Error(ExitCode::usage, "the prompt is empty; give some text with --prompt or on standard input");
  for (std::int32_t id : ids)
    if (id >= config.model.vocab_size)
      throw Error(ExitCode::input, "the tokenizer gives id " + std::to_string(id) + ", but the model knows ids below " +
                                       std::to_string(config.model.vocab_size) + "; use the tokenizer the model was trained with");
  Generator generator(load_model(dir, config, mesh, make_model), launch.threads);
  if (mesh.rank() == 0) std::printf("%s", prompt.c_str());
  for (std::int64_t n = 0; n < most; ++n) {
    ids.push_back(generator.next(ids, sampling, static_cast<std::uint32_t>(n)));
    if (tokenizer->end_of_document() == ids.back()) break;
    if (mesh.rank() == 0 && ids.back() < tokenizer->vocab_size())
      std::printf("%s", tokenizer->decode(std::span(&ids.back(), 1)).c_str()), std::fflush(stdout);
  }
  if (mesh.rank() == 0) std::printf("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return tfm::guarded(argc, argv, kHelp, run); }
