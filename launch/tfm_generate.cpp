// tfm-generate: continues a text with a decoder, translates lines with an encoder-decoder, at any
// layout.
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <optional>

#include "comm/consensus.h"
#include "data/pairs.h"
#include "data/run_data.h"
#include "inference/loaded_model.h"
#include "inference/text_format.h"
#include "inference/text_generator.h"
#include "launch/programs.h"
#include "launch/support/input.h"
#include "launch/support/translation.h"
#include "text/unicode.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/stream_decoder.h"

namespace {

using namespace tfm;

constexpr const char* kHelp =
    R"(usage: [mpirun -np N] tfm-generate MODEL_DIR [section.key=value ...] [options]
  MODEL_DIR          a checkpoint (step-00000500, best), a directory of checkpoints or the folder
                     of a run (uses the latest), or a Hugging Face directory
decoder (continues a prompt):
  --prompt TEXT      prompt (default: standard input)
  --max-tokens N     number of tokens to generate (default: 100)
  --temperature X    sampling temperature; 0: greedy (default: 1)
  --top-k N          sample from the N most likely tokens; 0: all (default: 0)
  --top-p X          sample from the most likely tokens with total probability X (default: 1, all)
  --seed N           random seed of the sampling (default: 1234)
  --chat             talk: a line of standard input is a turn of the user; /reset forgets the
                     conversation, /exit ends it, // begins a turn that begins with /
                     (--max-tokens of an answer: default 1024)
  --system TEXT      what a conversation begins with
  --template T       chat template: a file, or chatml (default: the tokenizer's, or that of the run)
encoder-decoder (translates standard input line by line):
  --beam N           beam size (default: 1, greedy)
  --length-penalty X
                     rank hypotheses by sum of log-probabilities / tokens^X (default: 1)
  --max-tokens N     maximum length of a translation (default: twice the source length plus 50)
both:
  --tokenizer T      tokenizer to use instead of the model's own
  parallel.tensor=N  tensor-parallel size (default: the most ranks that can share the heads);
                     lines are split over the replicas
  parallel.expert=N  ranks that share the experts of a layer (default: 1)
  device=cuda        run on GPUs (default: on CPUs, regardless of the training device)
  --help, --version
A text ends at the tokenizer's end of document, and at eos_token_id of a model from Hugging Face; an
answer also at the token that ends a turn in the chat template.
A translation has none of such a model's bad_words_ids.
The special tokens of a tokenizer.json go around the prompt or line only for a model from Hugging
Face that was not trained on, as in transformers.
)";

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

inference::Sampler sampler_of(const launch::Arguments& args) {
  return inference::Sampler({.temperature = args.real("--temperature", 1),
                             .top_k = args.integer("--top-k", 0, 0),
                             .top_p = args.real("--top-p", 1),
                             .seed = static_cast<std::uint64_t>(args.integer(
                                 "--seed", 1234, 0, std::numeric_limits<std::int64_t>::max()))});
}

void continue_text(const launch::Arguments& args, inference::LoadedModel& model,
                   const tokenizer::Tokenizer& tokenizer, const inference::TextFormat& format) {
  inference::Sampler sampler = sampler_of(args);
  const std::int64_t max_tokens = args.integer("--max-tokens", 100, 0);
  const bool lead = model.rank_context.mesh.rank() == 0;
  const std::string prompt =
      args.has("--prompt") ? args.get("--prompt") : launch::Input(model.rank_context.mesh).text();
  std::vector<std::int32_t> ids = format.encode(tokenizer, prompt);
  if (ids.empty())
    throw Error(args.has("--prompt") ? ExitCode::usage : ExitCode::input,
                "the prompt is empty; expected text in --prompt or on standard input");
  for (const std::int32_t id : ids)
    data::check_known(id, model.config.model.vocab_size, "the tokenizer");
  inference::TextGenerator generator(*model.model, model.rank_context, model.weights(),
                                     model.config.model.vocab_size, model.config.model.max_seq_len,
                                     std::ssize(ids) + max_tokens,
                                     model.config.model.sees_prefixes() ? std::ssize(ids) : 0);
  tokenizer::StreamDecoder decoder(tokenizer, ids);
  if (lead) print(prompt);
  generator.generate(ids, max_tokens, sampler, format.end_ids, [&](std::int32_t id) {
    if (!lead) return;
    print(decoder.add(id));
    std::fflush(stdout);
  });
  if (lead) print("\n");
}

// What was said so far, and the prompt that asks for an answer to it.
class Conversation {
 public:
  Conversation(const tokenizer::ChatTemplate& chats, std::string system)
      : chats_(chats), system_(std::move(system)) {
    reset();
  }
  void reset() {
    messages_.clear();
    if (!system_.empty()) add("system", system_);
  }
  void add(const char* role, const std::string& text) {
    text::jinja::Dict message;
    message.set("role", role);
    message.set("content", text::well_formed(text));
    messages_.emplace_back(std::move(message));
  }
  // Forgets the oldest turns until fewer than `context` tokens are left; `forgotten`: some were.
  std::vector<std::int32_t> prompt(std::int64_t context, bool& forgotten) {
    const std::ptrdiff_t first = system_.empty() ? 0 : 1;
    while (true) {
      std::vector<std::int32_t> ids =
          chats_.prompt({text::jinja::Value::sequence(messages_), nullptr, "the conversation"});
      if (std::ssize(ids) < context || std::ssize(messages_) < first + 3) return ids;
      messages_.erase(messages_.begin() + first, messages_.begin() + first + 2);
      forgotten = true;
    }
  }

 private:
  const tokenizer::ChatTemplate& chats_;
  std::string system_;
  text::jinja::List messages_;
};

// The same on all ranks, for templates that write the date.
std::time_t time_of_rank_0(const comm::Mesh& mesh) {
  return std::stoll(comm::broadcast_when_ready(
      mesh.world(), [] { return std::optional(std::to_string(std::time(nullptr))); }));
}

void talk(const launch::Arguments& args, inference::LoadedModel& model,
          const config::DataConfig& data, const tokenizer::Tokenizer& tokenizer,
          std::vector<std::int32_t> ends) {
  const comm::Mesh& mesh = model.rank_context.mesh;
  const tokenizer::ChatTemplate chats(
      args.get("--template", data.train.kind().chats ? data.train.chat_template : "auto"),
      data.tokenizer_or_bytes(), tokenizer, time_of_rank_0(mesh));
  if (const auto end = chats.turn_end()) ends.push_back(*end);
  inference::Sampler sampler = sampler_of(args);
  const config::ModelConfig& m = model.config.model;
  const std::int64_t most = args.integer("--max-tokens", 1024, 1);
  const bool lead = mesh.rank() == 0, terminal = lead && ::isatty(STDIN_FILENO);
  Conversation conversation(chats, args.get("--system"));
  const auto say = [&](const char* text) {
    if (lead) std::fprintf(stderr, "%s\n", text);
  };
  for (launch::Input input(mesh);;) {
    if (terminal) print("> "), std::fflush(stdout);
    const std::vector<std::string> lines = input.lines(1);
    if (lines.empty() || lines[0] == "/exit") break;
    std::string line = lines[0];
    if (line.find_first_not_of(" \t") == line.npos) continue;
    if (line == "/reset") {
      conversation.reset();
      continue;
    }
    if (line.starts_with("//")) {
      line.erase(0, 1);
    } else if (line.starts_with('/')) {
      say("unknown command; expected /reset or /exit, or // for a turn that begins with /");
      continue;
    }
    conversation.add("user", line);
    bool forgotten = false;
    std::vector<std::int32_t> ids = conversation.prompt(m.max_seq_len, forgotten);
    if (forgotten) say("the oldest turns exceed model.max_seq_len and are forgotten");
    if (std::ssize(ids) >= m.max_seq_len)
      say("the prompt exceeds model.max_seq_len; its last part is read");
    for (const std::int32_t id : ids) data::check_known(id, m.vocab_size, "the tokenizer");
    inference::TextGenerator generator(*model.model, model.rank_context, model.weights(),
                                       m.vocab_size, m.max_seq_len, std::ssize(ids) + most,
                                       m.sees_prefixes() ? std::ssize(ids) : 0);
    tokenizer::StreamDecoder decoder(tokenizer, ids);
    std::string answer;
    generator.generate(ids, most, sampler, ends, [&](std::int32_t id) {
      const std::string text = decoder.add(id);
      answer += text;
      if (lead) print(text), std::fflush(stdout);
    });
    conversation.add("assistant", answer);
    if (lead) print("\n"), std::fflush(stdout);
  }
  if (terminal) print("\n");
}

void translate(const launch::Arguments& args, inference::LoadedModel& model,
               const tokenizer::Tokenizer& tokenizer, const inference::TextFormat& format) {
  inference::Translator translator(*model.model, model.config.model, model.rank_context,
                                   model.weights(), tokenizer,
                                   launch::translator_options(args, format));
  const bool lead = model.rank_context.mesh.rank() == 0;
  constexpr std::size_t together = 4096;
  launch::Input input(model.rank_context.mesh);
  while (true) {
    const std::vector<std::string> lines = input.lines(together);
    if (lines.empty()) break;
    for (const std::string& line : translator.translate(lines))
      if (lead) print(line + "\n");
    if (lead) std::fflush(stdout);
  }
  if (lead) launch::say_what_was_cut(translator, model.config.model.max_seq_len);
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
                                {"--length-penalty"},
                                {"--chat", false},
                                {"--system"},
                                {"--template"}},
                               config::meant_key);
  launch::Launch launch;
  const std::string dir = launch.verified_path(args.only("model directory"));
  config::Config config = inference::inference_config(dir, args.overrides(), launch.ranks);
  if (!config.model.decodes())
    throw Error(
        ExitCode::usage,
        dir +
            " is an encoder, which cannot generate text; expected a decoder or an encoder_decoder");
  if (config.model.translates())
    only_for(args, "decoder",
             {"--chat", "--prompt", args.real("--temperature", 0) > 0 ? "--temperature" : "--top-k",
              "--top-k", "--top-p"});
  else
    only_for(args, "encoder_decoder", {"--beam", "--length-penalty"});
  for (const char* option : {"--system", "--template"})
    if (args.has(option) && !args.has("--chat"))
      throw Error(ExitCode::usage, std::string(option) + " needs --chat");
  if (args.has("--chat") && args.has("--prompt"))
    throw Error(ExitCode::usage, "--chat and --prompt are both given; expected one");
  if (args.has("--tokenizer")) config.data.tokenizer = args.get("--tokenizer");
  const auto tokenizer =
      tokenizer::load_tokenizer(config.data.tokenizer_or_bytes(), config.data.source_tokenizer);
  launch::check_tokenizer(args, dir, *tokenizer, config.data);
  inference::TextFormat format = inference::text_format(dir, *tokenizer);
  if (config.data.train.kind().plain_text())
    format.begin = data::document_begin(config.data.add_begin, *tokenizer, "data.tokenizer");
  if (rank_of_launch() == 0) {
    if (const std::string text = data::unused_ids(config, *tokenizer); !text.empty())
      std::fprintf(stderr, "warning: %s\n", text.c_str());
    launch::say_what_is_ignored(args, dir, format, config.model.translates());
  }
  inference::LoadedModel model = inference::load_model(dir, config, launch.rank_context(config));
  if (args.has("--chat"))
    talk(args, model, config.data, *tokenizer, format.end_ids);
  else if (config.model.translates())
    translate(args, model, *tokenizer, format);
  else
    continue_text(args, model, *tokenizer, format);
  return 0;
}

}  // namespace

int tfm::launch::generate_main(int argc, char** argv) {
  return tfm::launch::guarded(argc, argv, kHelp, run);
}
