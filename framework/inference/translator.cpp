#include "inference/translator.h"

#include <algorithm>
#include <set>

#include "core/task.h"

namespace tfm::inference {
namespace {

// Limits of a batch: sentences, sentences * beams, source tokens.
constexpr std::int64_t kSentences = 32, kSequences = 128, kTokens = 4096;

std::int64_t bucket(std::int64_t length) { return round_up(length, length <= 64 ? 8 : 32); }

// Sentences of a batch whose longest source has `longest` tokens.
std::int64_t sentences_of(const TranslatorOptions& o, std::int64_t longest) {
  return std::clamp<std::int64_t>(std::min(kSequences / o.beams, kTokens / bucket(longest)), 1,
                                  kSentences);
}

std::int64_t start_of(const TextFormat& format, std::int64_t model_start) {
  return format.start_id >= 0 && format.model_start == model_start ? format.start_id : model_start;
}

// Maximum length of the translation of `source` tokens, end tokens included. Relative positions
// have no last one: the length that is asked for counts.
std::int64_t limit(const TranslatorOptions& o, const config::ModelConfig& m, std::int64_t source) {
  if (o.max_tokens > 0 && m.position == config::Position::relative) return o.max_tokens;
  return std::min(o.max_tokens > 0 ? o.max_tokens : 2 * source + 50, m.max_seq_len);
}

// Shape of a batch whose longest source has `longest` tokens.
nn::BatchShape shape_of(const TranslatorOptions& o, const config::ModelConfig& m,
                        std::int64_t sentences, std::int64_t longest) {
  return {.sequences = sentences * o.beams,
          .length = 1,
          .source_length = std::min(bucket(longest), m.max_seq_len),
          .right_padded = true,
          .capacity =
              std::min(bucket(limit(o, m, longest)), std::max(limit(o, m, longest), m.max_seq_len)),
          .beams = o.beams};
}

}  // namespace

TranslatorOptions translation_of(const config::Config& c) {
  return {.beams = c.eval.beam, .length_penalty = c.eval.length_penalty};
}

std::int64_t translation_bytes(const nn::Model& model, const config::ModelConfig& config,
                               const TranslatorOptions& options, DType dtype) {
  std::set<nn::BatchShape> shapes;
  for (std::int64_t longest = 1; longest <= config.max_seq_len; ++longest)
    shapes.insert(shape_of(options, config, sentences_of(options, longest), longest));
  std::int64_t most = 0;
  for (const nn::BatchShape& s : shapes) most = std::max(most, Generation::bytes(model, s, dtype));
  return most;
}

void search(Generation& generation, std::span<BeamSearch> searches) {
  const std::size_t beams = searches[0].ids().size(),
                    logits = generation.logits().size() / searches.size();
  std::vector<std::int32_t> ids(searches.size() * beams);
  std::vector<std::int64_t> parents(ids.size());
  while (!std::ranges::all_of(searches, &BeamSearch::done)) {
    for (std::size_t at = 0; at < ids.size(); ++at) {
      const BeamSearch& s = searches[at / beams];
      ids[at] = s.ids()[at % beams];
      parents[at] = static_cast<std::int64_t>(at / beams * beams) + s.parents()[at % beams];
    }
    if (beams > 1) generation.reorder(parents);
    generation.step(ids);
    for (std::size_t i = 0; i < searches.size(); ++i)
      searches[i].advance(generation.logits().subspan(i * logits, logits));
  }
}

Translator::Translator(const nn::Model& model, const config::ModelConfig& config,
                       const comm::RankContext& rank_context, const Weights& weights,
                       const tokenizer::Tokenizer& tokenizer, const TranslatorOptions& options,
                       std::span<std::byte> memory)
    : model_(model),
      config_(config),
      rank_context_(rank_context),
      weights_(weights),
      tokenizer_(tokenizer),
      options_(options),
      special_(data::sentence_ids(tokenizer, start_of(options.format, config.decoder_start))),
      memory_(memory) {
  data::check_known(std::max(special_.begin, special_.end), config.vocab_size, "the tokenizer");
}

// Longest first: if memory does not suffice, the first batch fails.
std::vector<Translator::Source> Translator::encode(const std::vector<std::string>& lines) {
  const auto most = static_cast<std::size_t>(config_.max_seq_len);
  std::vector<Source> sources;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Source s{i, options_.format.encode(tokenizer_, lines[i])};
    const bool blank =
        options_.format.special_tokens ? tokenizer_.encode(lines[i]).empty() : s.ids.empty();
    if (blank) continue;
    if (options_.format.special_tokens && !s.ids.empty() && s.ids.back() == special_.source_end)
      s.ids.pop_back();
    for (const std::int32_t id : s.ids)
      data::check_known(id, config_.source_vocabulary(), "the tokenizer",
                        config_.source_vocab_size > 0 ? "source_vocab_size" : "vocab_size");
    if (s.ids.size() + 1 > most) s.ids.resize(most - 1), ++cut_;
    s.ids.push_back(special_.source_end);
    sources.push_back(std::move(s));
  }
  std::stable_sort(sources.begin(), sources.end(),
                   [](const Source& a, const Source& b) { return a.ids.size() > b.ids.size(); });
  return sources;
}

Generation& Translator::generation(const nn::BatchShape& shape) {
  if (!generation_ || generation_->shape() != shape) {
    generation_.reset();
    generation_.emplace(model_, rank_context_, weights_, shape, config_.vocab_size, memory_);
  }
  return *generation_;
}

void Translator::translate(std::span<const Source> batch, Targets& targets) {
  Generation& g =
      generation(shape_of(options_, config_, std::ssize(batch), std::ssize(batch[0].ids)));
  const std::int64_t length = g.shape().source_length;
  std::vector<BeamSearch> searches;
  std::vector<std::int32_t> ids(batch.size() * static_cast<std::size_t>(length),
                                special_.source_end),
      mask(ids.size(), -1);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::vector<std::int32_t>& source = batch[i].ids;
    searches.emplace_back(
        BeamOptions{options_.beams, options_.length_penalty, special_.end, options_.format.end_ids,
                    options_.format.banned_ids, limit(options_, config_, std::ssize(source))},
        special_.begin);
    const auto row = static_cast<std::ptrdiff_t>(i) * length;
    std::copy(source.begin(), source.end(), ids.begin() + row);
    std::fill_n(mask.begin() + row, source.size(), 0);
  }
  g.start({{Field::source_ids, ids}, {Field::source_mask, mask}});
  search(g, searches);
  for (std::size_t i = 0; i < batch.size(); ++i) targets[batch[i].line] = searches[i].best();
}

// Gives every rank all translations. Each line was translated by one replica; others have no ids
// of it.
void Translator::share(Targets& targets) const {
  comm::Communicator& data = rank_context_.mesh.group(nn::kBatchAxes);
  std::int64_t width = 0;
  for (const auto& t : targets) width = std::max(width, std::ssize(t));
  data.all_reduce({&width, DType::i64, {1}}, comm::Collective::all_reduce_max);
  std::vector<std::int32_t> all(targets.size() * static_cast<std::size_t>(width), 0);  // id + 1
  for (std::size_t i = 0; i < targets.size(); ++i)
    for (std::size_t t = 0; t < targets[i].size(); ++t)
      all[i * static_cast<std::size_t>(width) + t] = targets[i][t] + 1;
  data.all_reduce({all.data(), DType::i32, {std::ssize(all)}}, comm::Collective::all_reduce_max);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i].clear();
    for (std::size_t t = i * static_cast<std::size_t>(width);
         t < (i + 1) * static_cast<std::size_t>(width) && all[t] > 0; ++t)
      targets[i].push_back(all[t] - 1);
  }
}

std::string Translator::text(std::vector<std::int32_t> ids) const {
  const tokenizer::SpecialIds s = tokenizer_.special_ids();
  std::erase_if(ids, [&](std::int32_t id) {
    const auto special = {s.pad, s.begin, s.end, s.mask, s.classify, s.separate};
    return !tokenizer_.knows(id) || std::ranges::find(special, id) != special.end();
  });
  std::string text = tokenizer_.decode(ids);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::vector<std::string> Translator::translate(const std::vector<std::string>& lines,
                                               const std::function<bool()>& go_on) {
  std::vector<Source> sources = encode(lines);
  Targets targets(lines.size() + 1);
  Task task("translating", std::ssize(sources));
  std::size_t size = 0;
  for (std::size_t first = 0, batch = 0; first < sources.size(); first += size, ++batch) {
    size = static_cast<std::size_t>(sentences_of(options_, std::ssize(sources[first].ids)));
    while (!memory_.empty() && sources.size() < first + size)
      sources.push_back(
          {lines.size(), {special_.end}});  // fills the batch: `memory_` is sized for whole ones
    size = std::min(size, sources.size() - first);
    // Ranks that share experts need each other for every token: they translate the same lines.
    constexpr comm::AxisSet replicas = nn::kBatchAxes - nn::kExpertAxes;
    const auto ranks = static_cast<std::size_t>(rank_context_.mesh.layout.size(replicas)),
               turn = batch % ranks;
    if (turn == static_cast<std::size_t>(rank_context_.mesh.place(replicas)))
      translate(std::span(sources).subspan(first, size), targets);
    task.add(static_cast<std::int64_t>(size));
    if (turn < ranks - 1) continue;
    rank_context_.mesh.group(nn::kBatchAxes).barrier();  // no rank waits for more than a batch
    if (!go_on()) return {};
  }
  targets.pop_back();
  share(targets);
  std::vector<std::string> out;
  for (auto& t : targets) out.push_back(text(std::move(t)));
  return out;
}

}  // namespace tfm::inference
