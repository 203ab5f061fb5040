#include "data/run_data.h"

#include <algorithm>

#include "data/batch_shapes.h"
#include "data/hidden_tokens.h"
#include "io/glob.h"

namespace tfm::data {
namespace {

// What ends a document that is kept apart from others; none where they are joined.
std::optional<std::int32_t> document_end(const config::Config& config,
                                         const config::SourceConfig& c,
                                         const tokenizer::Tokenizer& tokenizer) {
  if (c.documents != config::Documents::separate) return std::nullopt;
  const auto end =
      tokenizer.end_of_document() ? tokenizer.end_of_document() : tokenizer.special_ids().end;
  if (!end)
    throw Error(ExitCode::usage, "documents: separate, but data.tokenizer " +
                                     config.data.tokenizer +
                                     " has no id that ends a document; expected " +
                                     "a vocabulary with <|endoftext|>, <|end_of_text|>, </s> or "
                                     "[SEP], or documents: joined");
  return end;
}

SourceSpec source_spec(const config::SourceConfig& c, std::optional<std::int32_t> document_end) {
  // Objectives that hide tokens read token files or text.
  const auto is_tokens = [](const config::SourcePath& p) { return p.path.ends_with(".bin"); };
  const bool either =
      c.type == config::SourceType::mlm || c.type == config::SourceType::span_corruption;
  const config::SourceType type = !either ? c.type
                                  : std::all_of(c.paths.begin(), c.paths.end(), is_tokens)
                                      ? config::SourceType::tokens
                                      : config::SourceType::text;
  SourceSpec spec{.type = type,
                  .paths = {},
                  .field = c.field,
                  .shuffle = c.shuffle,
                  .document_end = document_end};
  for (const config::SourcePath& p : c.paths) spec.paths.push_back({p.path, p.weight});
  return spec;
}

std::unique_ptr<Pairs> open_pairs(const config::Config& config, const config::SourceConfig& c,
                                  const tokenizer::Tokenizer& tokenizer, bool shuffle) {
  std::vector<PairLength> lengths;
  for (const nn::BatchShape& s : batch_shapes(config)) lengths.push_back({s.length, s.sequences});
  return std::make_unique<Pairs>(pair_files(c), tokenizer, std::move(lengths),
                                 config.model.vocab_size, shuffle, config.train.seed,
                                 config.model.decoder_start);
}

}  // namespace

PairSpec pair_files(const config::SourceConfig& c) {
  PairSpec spec{.source = c.source, .target = c.target, .files = {}};
  for (const config::SourcePath& p : c.paths)
    for (const std::string& file : io::expand_glob(p.path)) spec.files.push_back(file);
  return spec;
}

std::unique_ptr<Batcher> RunData::open(const config::Config& config, const config::SourceConfig& c,
                                       bool endless) {
  const std::int64_t length = config.train.seq_len, batch = config.train.global_batch_size,
                     vocabulary = config.model.vocab_size;
  const std::uint64_t seed = config.train.seed;
  const std::string key = endless ? "data.train: " : "data.validation: ";
  if (c.type == config::SourceType::pairs) {
    auto pairs = open_pairs(config, c, *tokenizer, endless && c.shuffle);
    if (endless) tokens = pairs->tokens();
    if (pairs->cut() > 0)
      notes.push_back(
          key + std::to_string(pairs->cut()) + (pairs->cut() == 1 ? " sentence" : " sentences") +
          " exceeded train.seq_len = " + std::to_string(length) + " tokens and were truncated");
    return pairs;
  }
  const SpanLengths spans = c.type == config::SourceType::span_corruption
                                ? span_lengths(length, c.mask_probability, c.mean_span_length)
                                : SpanLengths{};
  const std::int64_t raw = c.type == config::SourceType::mlm
                               ? length - MaskedTokens::specials(*tokenizer, c.next_sentence)
                           : spans.raw > 0 ? spans.raw
                                           : length;
  const auto end = document_end(config, c, *tokenizer);
  sources.push_back(open_source(source_spec(c, end), *tokenizer, raw));
  Source& source = *sources.back();
  source.check_ids(vocabulary);
  if (const std::string text = source.left_out(); !text.empty()) notes.push_back(key + text);
  if (endless) tokens = source.tokens();
  const SampleOrder order(source.samples(), endless && c.shuffle, seed);
  if (c.type == config::SourceType::mlm)
    return std::make_unique<MaskedTokens>(
        source, order, *tokenizer, batch,
        MaskedTokens::Options{length, vocabulary, c.mask_probability, seed, end, c.next_sentence},
        endless);
  if (c.type == config::SourceType::span_corruption)
    return std::make_unique<SpanCorruption>(source, order, *tokenizer, batch, spans, vocabulary,
                                            seed, endless, config.model.decoder_start);
  return std::make_unique<NextToken>(source, order, batch, endless, end);
}

RunData::RunData(const config::Config& config)
    : tokenizer(tokenizer::load_tokenizer(config.data.tokenizer)) {
  train = open(config, config.data.train, true);
  if (config.data.validation) validation = open(config, *config.data.validation, false);
}

RunData::RunData(const config::Config& config, const config::SourceConfig& source)
    : tokenizer(tokenizer::load_tokenizer(config.data.tokenizer)),
      validation(open(config, source, false)) {}

std::int64_t RunData::validation_batches(const config::Config& config) const {
  if (!validation) return 0;
  return config.eval.batches == 0 ? validation->batches()
                                  : std::min(validation->batches(), config.eval.batches);
}

RunData::Lines RunData::validation_lines(const config::Config& config) const {
  Lines all, some;
  each_pair(pair_files(*config.data.validation),
            [&](std::string_view source, std::string_view target, const std::string&,
                const std::string&) {
              all.source.emplace_back(source);
              all.target.emplace_back(target);
            });
  for (std::int64_t i = 0; i < validation_batches(config); ++i)
    for (const std::int64_t pair : dynamic_cast<const Pairs&>(*validation).pairs_of(i)) {
      some.source.push_back(all.source[static_cast<std::size_t>(pair)]);
      some.target.push_back(all.target[static_cast<std::size_t>(pair)]);
    }
  return some;
}

}  // namespace tfm::data
