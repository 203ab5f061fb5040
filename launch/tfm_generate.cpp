// tfm-generate: continues a text with a decoder, translates lines with an encoder-decoder, at any
// layout.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "comm/consensus.h"
#include "data/pairs.h"
#include "inference/loaded_model.h"
#include "inference/text_generator.h"
#include "inference/translator.h"
#include "launch/support/program.h"

namespace {

using namespace tfm;

constexpr const char* kHelp =
    R"(usage: [mpirun -np N] tfm-generate MODEL_DIR [section.key=value ...] [options]
  MODEL_DIR          a checkpoint (step-00000500, best), or a directory of checkpoints (uses the
                     latest)
decoder (continues a prompt):
  --prompt TEXT      prompt (default: standard input)
  --max-tokens N     number of tokens to generate (default: 100)
  --temperature X    sampling temperature; 0: greedy (default: 1)
  --top-k N          sample from the N most likely tokens; 0: all (default: 0)
  --top-p X          sample from the most likely tokens with total probability X (default: 1, all)
  --seed N           random seed of the sampling (default: 1234)
encoder-decoder (translates standard input line by line):
  --beam N           beam size (default: 1, greedy)
  --length-penalty X rank hypotheses by sum of log-probabilities / tokens^X (default: 1)
  --max-tokens N     maximum length of a translation (default: twice the source length plus 50)
both:
  --tokenizer T      tokenizer to use instead of the model's own
  parallel.tensor=N  tensor-parallel size (default: all ranks); lines are split over the replicas
  device=cuda        run on GPUs (default: on CPUs, regardless of the training device)
  --help, --version
)";

void continue_text(const launch::Arguments& args, inference::LoadedModel& model,
                   const tokenizer::Tokenizer& tokenizer) {
  inference::Sampler sampler({.temperature = args.real("--temperature", 1),
                              .top_k = args.integer("--top-k", 0, 0),
                              .top_p = args.real("--top-p", 1),
                              .seed = static_cast<std::uint64_t>(args.integer(
                                  "--seed", 1234, 0, std::numeric_limits<std::int64_t>::max()))});
  const std::int64_t max_tokens = args.integer("--max-tokens", 100, 0);
  const bool lead = model.rank_context.mesh.rank() == 0;
  std::string prompt = args.get("--prompt");
  if (!args.has("--prompt") && lead) prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  prompt = comm::broadcast_string(model.rank_context.mesh.world(), prompt);
  std::vector<std::int32_t> ids = tokenizer.encode(prompt);
  if (ids.empty())
    throw Error(ExitCode::usage,
                "the prompt is empty; expected text in --prompt or on standard input");
  for (const std::int32_t id : ids)
    data::check_known(id, model.config.model.vocab_size, "the tokenizer");
  inference::TextGenerator generator(*model.model, model.rank_context, model.weights(),
                                     model.config.model.vocab_size, model.config.model.max_seq_len,
                                     std::ssize(ids) + max_tokens);
  if (lead) std::printf("%s", prompt.c_str());
  generator.generate(ids, max_tokens, sampler, tokenizer.end_of_document(), [&](std::int32_t id) {
    if (!lead || id >= tokenizer.vocab_size()) return;
    std::printf("%s", tokenizer.decode(std::span(&id, 1)).c_str());
    std::fflush(stdout);
  });
  if (lead) std::printf("\n");
}

// At most `most` lines of standard input, on every rank; empty at its end.
std::vector<std::string> read_lines(const comm::Mesh& mesh, std::size_t most) {
  std::string text;
  if (mesh.rank() == 0)
    for (std::string line; most > 0 && std::getline(std::cin, line); --most) text += line + "\n";
  text = comm::broadcast_string(mesh.world(), text);
  std::vector<std::string> lines;
  for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    if (!lines.back().empty() && lines.back().back() == '\r') lines.back().pop_back();
  }
  return lines;
}

void translate(const launch::Arguments& args, inference::LoadedModel& model,
               const tokenizer::Tokenizer& tokenizer) {
  inference::Translator translator(*model.model, model.config.model, model.rank_context,
                                   model.weights(), tokenizer,
                                   {.beams = args.integer("--beam", 1, 1),
                                    .length_penalty = args.real("--length-penalty", 1),
                                    .max_tokens = args.integer("--max-tokens", 0, 1)});
  const bool lead = model.rank_context.mesh.rank() == 0;
  constexpr std::size_t together = 4096;
  while (true) {
    const std::vector<std::string> lines = read_lines(model.rank_context.mesh, together);
    if (lines.empty()) break;
    for (const std::string& line : translator.translate(lines))
      if (lead) std::printf("%s\n", line.c_str());
    if (lead) std::fflush(stdout);
  }
  if (lead && translator.cut() > 0)
    std::fprintf(stderr, "warning: %lld lines exceeded %lld tokens and were truncated\n",
                 static_cast<long long>(translator.cut()),
                 static_cast<long long>(model.config.model.max_seq_len - 1));
}

void only_for(const launch::Arguments& args, const std::string& family,
              const std::vector<const char*>& options) {
  for (const char* option : options)
    if (args.has(option))
      throw Error(ExitCode::usage, std::string(option) + " needs a model of family " + family);
}

int run(int argc, char** argv) {
  const launch::Arguments args(argc, argv,
                               {{"--prompt"},
                                {"--max-tokens"},
                                {"--temperature"},
                                {"--top-k"},
                                {"--top-p"},
                                {"--seed"},
                                {"--tokenizer"},
                                {"--beam"},
                                {"--length-penalty"}});
  const std::string dir = inference::checkpoint_path(args.only("model directory"));
  launch::Launch launch;
  const config::Config config = inference::inference_config(dir, args.overrides(), launch.ranks);
  if (!config.model.decodes())
    throw Error(
        ExitCode::usage,
        dir +
            " is an encoder, which cannot generate text; expected a decoder or an encoder_decoder");
  if (config.model.translates())
    only_for(args, "decoder",
             {"--prompt", args.real("--temperature", 0) > 0 ? "--temperature" : "--top-k",
              "--top-k", "--top-p"});
  else
    only_for(args, "encoder_decoder", {"--beam", "--length-penalty"});
  const auto tokenizer = tokenizer::load_tokenizer(args.get("--tokenizer", config.data.tokenizer));
  inference::LoadedModel model = inference::load_model(dir, config, launch.rank_context(config));
  config.model.translates() ? translate(args, model, *tokenizer)
                            : continue_text(args, model, *tokenizer);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return tfm::launch::guarded(argc, argv, kHelp, run); }
