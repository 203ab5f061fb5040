#include "train/translator.h"

#include <algorithm>

namespace tfm {
namespace {

constexpr std::int64_t kSentences = 32, kSequences = 128;  // of a batch at most: sentences, sentences * beams

std::int64_t bucket(std::int64_t length) { return round_up(length, length <= 64 ? 8 : 32); }

}  // namespace

void search(Generation& generation, std::span<BeamSearch> searches) {
  const std::size_t beams = searches[0].ids().size(), logits = generation.logits().size() / searches.size();
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
    for (std::size_t i = 0; i < searches.size(); ++i) searches[i].advance(generation.logits().subspan(i * logits, logits));
  }
}

Translator::Translator(LoadedModel& model, const Tokenizer& tokenizer, const TranslatorOptions& options, int threads)
    : model_(model), tokenizer_(tokenizer), options_(options), special_(sentence_ids(tokenizer, model.config.model.decoder_start)), threads_(threads),
      sentences_(std::clamp<std::int64_t>(kSequences / options.beams, 1, kSentences)) {
  check_known(std::max(special_.begin, special_.end), model.config.model.vocab_size, "the tokenizer");
}

std::int64_t Translator::limit(const Source& source) const {
  const std::int64_t most = options_.max_tokens > 0 ? options_.max_tokens : 2 * std::ssize(source.ids) + 50;
  return std::min(most, model_.config.model.max_seq_len);
}

// The longest first: what runs out of memory does so at once.
std::vector<Translator::Source> Translator::encode(const std::vector<std::string>& lines) {
  const auto most = static_cast<std::size_t>(model_.config.model.max_seq_len);
  std::vector<Source> sources;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    Source s{i, tokenizer_.encode(lines[i])};
    for (const std::int32_t id : s.ids) check_known(id, model_.config.model.vocab_size, "the tokenizer");
    if (s.ids.size() + 1 > most) s.ids.resize(most - 1), ++cut_;
    s.ids.push_back(special_.end);
    sources.push_back(std::move(s));
  }
  std::stable_sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.ids.size() > b.ids.size(); });
  return sources;
}

Generation& Translator::generation(std::int64_t sentences, std::int64_t source_length, std::int64_t capacity) {
  const BatchShape shape{.sequences = sentences * options_.beams, .length = 1, .source_length = source_length, .capacity = capacity,
                         .beams = options_.beams};
  if (!generation_ || generation_->shape() != shape) {
    generation_.reset();
    generation_.emplace(*model_.model, model_.mesh, model_.flat.data(), shape, model_.config.model.vocab_size, threads_);
  }
  return *generation_;
}

void Translator::translate(std::span<const Source> batch, Targets& targets) {
  const std::int64_t most = model_.config.model.max_seq_len;
  const std::int64_t length = std::min(bucket(std::ssize(batch[0].ids)), most);
  Generation& g = generation(std::ssize(batch), length, std::min(bucket(limit(batch[0])), most));
  std::vector<BeamSearch> searches;
  std::vector<std::int32_t> ids(batch.size() * static_cast<std::size_t>(length), special_.end), mask(ids.size(), -1);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    searches.emplace_back(BeamOptions{options_.beams, options_.length_penalty, special_.end, limit(batch[i])}, special_.begin);
    const auto row = static_cast<std::ptrdiff_t>(i) * length;
    std::copy(batch[i].ids.begin(), batch[i].ids.end(), ids.begin() + row);
    std::fill_n(mask.begin() + row, batch[i].ids.size(), 0);
  }
  g.start({{"source_ids", ids}, {"source_mask", mask}});
  search(g, searches);
  for (std::size_t i = 0; i < batch.size(); ++i) targets[batch[i].line] = searches[i].best();
}

// Every line was translated on one data rank.
void Translator::share(Targets& targets) const {
  Communicator& data = *model_.mesh.data;
  std::int64_t width = 0;
  for (const auto& t : targets) width = std::max(width, std::ssize(t));
  data.all_reduce({&width, DType::i64, {1}}, Collective::all_reduce_max);
  std::vector<std::int32_t> all(targets.size() * static_cast<std::size_t>(width), 0);  // id + 1
  for (std::size_t i = 0; i < targets.size(); ++i)
    for (std::size_t t = 0; t < targets[i].size(); ++t) all[i * static_cast<std::size_t>(width) + t] = targets[i][t] + 1;
  data.all_reduce({all.data(), DType::i32, {std::ssize(all)}});
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i].clear();
    for (std::size_t t = i * static_cast<std::size_t>(width); t < (i + 1) * static_cast<std::size_t>(width) && all[t] > 0; ++t)
      targets[i].push_back(all[t] - 1);
  }
}

std::string Translator::text(std::vector<std::int32_t> ids) const {
  const SpecialIds s = tokenizer_.special_ids();
  std::erase_if(ids, [&](std::int32_t id) {
    const auto special = {s.pad, s.begin, s.end, s.mask, s.classify, s.separate};
    return id >= tokenizer_.vocab_size() || std::ranges::find(special, id) != special.end();
  });
  std::string text = tokenizer_.decode(ids);
  std::replace_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::vector<std::string> Translator::translate(const std::vector<std::string>& lines) {
  const std::vector<Source> sources = encode(lines);
  Targets targets(lines.size());
  const auto each = static_cast<std::size_t>(sentences_), ranks = static_cast<std::size_t>(model_.mesh.layout.data);
  for (std::size_t first = static_cast<std::size_t>(model_.mesh.data_rank) * each; first < sources.size(); first += each * ranks)
    translate(std::span(sources).subspan(first, std::min(each, sources.size() - first)), targets);
  share(targets);
  std::vector<std::string> out;
  for (auto& t : targets) out.push_back(text(std::move(t)));
  return out;
}

}  // namespace tfm
