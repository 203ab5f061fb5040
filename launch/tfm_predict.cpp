// tfm-predict: the labels of lines of text, by heads of types classify, tag and regress, or their
// vectors, by one of type embed.
#include <algorithm>
#include <cstdio>

#include "data/embedding_texts.h"
#include "data/labelled.h"
#include "inference/embeddings.h"
#include "inference/predictions.h"
#include "inference/text_format.h"
#include "io/safetensors.h"
#include "launch/programs.h"
#include "launch/support/input.h"
#include "launch/support/program.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace tfm;

constexpr const char* kHelp =
    R"(usage: [mpirun -np N] tfm-predict MODEL_DIR [section.key=value ...] [options] < TEXTS
  MODEL_DIR          a checkpoint (step-00000500, best), a directory of checkpoints or the folder
                     of a run (uses the latest), or a Hugging Face directory
input: a text on each line of standard input; two with a tab between them where the model was trained
on pairs (data.train.text_pair)
output: for each line one with tabs between columns, for each head in order: of classify the class and
its probability; of tag the class of each word, with spaces between them; of regress the number.
An empty line stays empty. A word beyond train.seq_len, or without a token, has `-`.
  --embed FILE       write the vectors of the lines instead, as tensor embedding (N, C) of a
                     safetensors file, or with - a JSON list on each line of standard output; of a
                     model with a head of type embed, or of any other encoder or decoder with, for
                     example, model.heads='[{type: embed, pool: mean, normalize: true}]'. The vector
                     of an empty line is zeros
  --head NAME        of this head alone
  --all              of classify the probability of every class, as CLASS:PROBABILITY
  --tokenizer T      tokenizer to use instead of the model's own
  parallel.tensor=N  tensor-parallel size (default: the most ranks that can share the heads);
                     lines are split over the replicas
  parallel.expert=N  ranks that share the experts of a layer (default: 1)
  device=cuda        run on GPUs (default: on CPUs, regardless of the training device)
  --help, --version
)";

std::string rounded(double x, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, format, x);
  return text;
}

std::string class_name(const config::HeadConfig& head, std::int32_t label) {
  return head.labels.empty() ? std::to_string(label) : head.labels[static_cast<std::size_t>(label)];
}

// A column of the output, for each text that the predictions have.
class Column {
 public:
  Column(const config::HeadConfig& head, bool all_classes,
         std::vector<inference::Prediction> predictions)
      : head_(head), all_classes_(all_classes), predictions_(std::move(predictions)) {}

  // The next text, whose first token is at a position of its sequence.
  std::string next(const std::string& line, const tokenizer::Tokenizer& tokenizer,
                   std::int64_t begin) {
    const std::int64_t text = text_++;
    if (head_.type == "tag") return tags(text, line, tokenizer, begin);
    const inference::Prediction& p = predictions_[at_++];
    if (head_.type == "regress") return rounded(p.scores[0], "%.6g");
    if (!all_classes_)
      return class_name(head_, p.best()) + "\t" + rounded(p.probability(p.best()), "%.4f");
    std::string all;
    for (std::int32_t c = 0; c < head_.classes; ++c)
      all += (c > 0 ? "\t" : "") + class_name(head_, c) + ":" + rounded(p.probability(c), "%.4f");
    return all;
  }

 private:
  std::string tags(std::int64_t text, const std::string& line,
                   const tokenizer::Tokenizer& tokenizer, std::int64_t begin) {
    std::vector<std::optional<std::size_t>> first;
    data::encode_words(line, tokenizer, first);
    std::string all;
    for (const std::optional<std::size_t>& token : first) {
      const bool here = token && at_ < predictions_.size() && predictions_[at_].text == text &&
                        predictions_[at_].position == begin + static_cast<std::int64_t>(*token);
      all += (all.empty() ? "" : " ") +
             (here ? class_name(head_, predictions_[at_].best()) : std::string("-"));
      at_ += here;
    }
    return all;
  }

  const config::HeadConfig& head_;
  bool all_classes_;
  std::vector<inference::Prediction> predictions_;
  std::size_t at_ = 0;  // of the predictions
  std::int64_t text_ = 0;
};

// Whether the tokenizer makes ids of it. `number`: for messages.
bool has_text(const std::string& line, bool pairs, std::int64_t number,
              const tokenizer::Tokenizer& tokenizer) {
  if (data::words_of(line).empty()) return false;
  const std::size_t tab = pairs ? line.find('\t') : line.size();
  if (tab == line.npos)
    throw Error(ExitCode::input, "line " + std::to_string(number) +
                                     ": no tab; expected two texts with a tab between them");
  return !tokenizer.encode(line.substr(0, tab)).empty() &&
         (!pairs || !tokenizer.encode(line.substr(tab + 1)).empty());
}

// What is said of a line without ids.
std::string nothing(const config::HeadConfig& head, const std::string& line) {
  std::string all;
  for (std::size_t n = head.type == "tag" ? data::words_of(line).size() : 0; n > 0; --n)
    all += all.empty() ? "-" : " -";
  return all;
}

// Sequences as long as the longest text needs.
std::int64_t length_for(const std::vector<std::string>& texts,
                        const tokenizer::Tokenizer& tokenizer, std::int64_t most) {
  std::size_t longest = 0;
  for (const std::string& text : texts)
    longest = std::max(longest, tokenizer.encode(text).size() + 3);  // and what goes around it
  return std::min(most, round_up(static_cast<std::int64_t>(longest), 16));
}

void predict(const launch::Arguments& args, inference::LoadedModel& model, config::Config config,
             const std::vector<const config::HeadConfig*>& heads,
             const tokenizer::Tokenizer& tokenizer, const std::vector<std::string>& lines,
             std::int64_t first_line) {
  std::vector<std::string> texts;
  std::vector<bool> given;
  for (const std::string& line : lines) {
    given.push_back(has_text(line, !config.data.train.text_pair.empty(),
                             first_line + std::ssize(given), tokenizer));
    if (given.back()) texts.push_back(line);
  }
  std::vector<Column> columns;
  std::int64_t begin = 0;
  if (!texts.empty()) {
    config.train.seq_len = length_for(texts, tokenizer, config.train.seq_len);
    const data::Labelled data(config, config.data.train, tokenizer, texts);
    begin = data.text_begins();
    for (const config::HeadConfig* head : heads)
      columns.emplace_back(*head, args.has("--all"),
                           inference::predictions(model, config, *head, data));
  }
  std::string all;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (std::size_t c = 0; c < heads.size(); ++c)
      all +=
          (c > 0 && given[i] ? "\t" : "") +
          (given[i] ? columns[c].next(lines[i], tokenizer, begin) : nothing(*heads[c], lines[i]));
    all += "\n";
  }
  if (model.rank_context.mesh.rank() == 0) {
    std::fwrite(all.data(), 1, all.size(), stdout);
    std::fflush(stdout);
  }
}

// The vectors of lines, zeros where a line has no text. On every rank.
std::vector<float> vectors_of(inference::LoadedModel& model, config::Config config,
                              const tokenizer::Tokenizer& tokenizer,
                              const std::vector<std::string>& lines) {
  std::vector<std::string> texts;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (!tokenizer.encode(lines[i]).empty()) texts.push_back(lines[i]), places.push_back(i);
  const auto width = static_cast<std::size_t>(config.model.d_model);
  std::vector<float> all(lines.size() * width);
  if (texts.empty()) return all;
  config.train.seq_len = length_for(texts, tokenizer, config.train.seq_len);
  const std::vector<float> vectors =
      inference::embeddings(model, config, data::EmbeddingTexts(config, tokenizer, texts));
  for (std::size_t i = 0; i < places.size(); ++i)
    std::copy_n(vectors.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                all.begin() + static_cast<std::ptrdiff_t>(places[i] * width));
  return all;
}

void print_vectors(const std::vector<float>& all, std::size_t width) {
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i)
    text += (i % width == 0 ? "[" : ", ") + rounded(all[i], "%.9g") +
            (i % width == width - 1 ? "]\n" : "");
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void write_vectors(const std::string& file, const std::vector<float>& all, std::int64_t width) {
  io::SafetensorsWriter writer(file, {{"embedding", "F32", {std::ssize(all) / width, width}}});
  writer.write(std::span<const float>(all));
  writer.finish();
}

int embed(const std::string& file, inference::LoadedModel& model, const config::Config& config,
          const tokenizer::Tokenizer& tokenizer) {
  constexpr std::size_t together = 4096;
  launch::Input input(model.rank_context.mesh);
  const bool leads = model.rank_context.mesh.rank() == 0;
  std::vector<float> all;
  for (;;) {
    const std::vector<std::string> lines = input.lines(together);
    if (lines.empty()) break;
    const std::vector<float> vectors = vectors_of(model, config, tokenizer, lines);
    if (!leads) continue;
    if (file == "-")
      print_vectors(vectors, static_cast<std::size_t>(config.model.d_model));
    else
      all.insert(all.end(), vectors.begin(), vectors.end());
  }
  if (leads && file != "-") write_vectors(file, all, config.model.d_model);
  return 0;
}

int run(int argc, char** argv) {
  const launch::Arguments args(
      argc, argv, {{"--head"}, {"--all", false}, {"--embed"}, {"--tokenizer"}}, config::meant_key);
  launch::Launch launch;
  if (args.get("--embed") != "-") args.check_outputs({"--embed"});
  const std::string dir = launch.verified_path(args.only("model directory"));
  config::Config config = inference::inference_config(dir, args.overrides(), launch.ranks);
  std::vector<const config::HeadConfig*> heads = config.model.labelled_heads();
  std::erase_if(heads,
                [&](const auto* h) { return args.has("--head") && h->name != args.get("--head"); });
  const bool embeds = args.has("--embed");
  if (embeds && !config.model.embeds())
    throw Error(ExitCode::usage,
                dir +
                    ": the model has no head of type embed; expected one, such as model.heads="
                    "'[{type: embed, pool: mean, normalize: true}]'");
  if (embeds && (args.has("--head") || args.has("--all")))
    throw Error(ExitCode::usage, "--head and --all are of labels; remove them beside --embed");
  if (!embeds && config.model.embeds())
    throw Error(ExitCode::usage,
                dir + ": the model makes vectors; expected --embed FILE.safetensors or --embed -");
  if (heads.empty() && !embeds)
    throw Error(ExitCode::usage, dir + ": the model has no " +
                                     (args.has("--head") ? "head " + in_quotes(args.get("--head"))
                                                         : std::string("head for labels")) +
                                     "; expected one of type classify, tag or regress");
  if (args.has("--tokenizer")) config.data.tokenizer = args.get("--tokenizer");
  const auto tokenizer = tokenizer::load_tokenizer(config.data.tokenizer_or_bytes());
  launch::check_tokenizer(args, dir, *tokenizer, config.data);
  config.data.train.type = "labelled";
  config.data.train.mask_probability = 0;
  if (embeds) config.data.train.text_pair.clear();
  config.train.global_batch_size = 64;
  inference::LoadedModel model = inference::load_model(dir, config, launch.rank_context(config));
  if (embeds) return embed(args.get("--embed"), model, config, *tokenizer);
  constexpr std::size_t together = 4096;
  launch::Input input(model.rank_context.mesh);
  for (std::int64_t first_line = 1;;) {
    const std::vector<std::string> lines = input.lines(together);
    if (lines.empty()) return 0;
    predict(args, model, config, heads, *tokenizer, lines, first_line);
    first_line += std::ssize(lines);
  }
}

}  // namespace

int tfm::launch::predict_main(int argc, char** argv) {
  return tfm::launch::guarded(argc, argv, kHelp, run);
}
