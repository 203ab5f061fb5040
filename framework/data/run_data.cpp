#include "data/run_data.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>

#include "core/strings.h"
#include "data/batch_shapes.h"
#include "data/masked_lm.h"
#include "data/span_corruption.h"
#include "data/token_origin.h"
#include "io/glob.h"
#include "io/text_stream.h"
#include "text/documents.h"

namespace tfm::data {
namespace {

// A pattern that matches no file counts as a name; check_files() reports it.
std::vector<std::string> files_of(const config::SourcePath& p) {
  try {
    return io::expand_glob(p.path);
  } catch (const Error&) {
    return {p.path};
  }
}

bool names_tokens(const config::SourcePath& p) {
  return std::ranges::all_of(files_of(p), is_token_file);
}

bool holds_tokens(const config::SourceConfig& c) {
  return c.type == config::SourceType::tokens ||
         (c.hides() && std::ranges::all_of(c.paths, names_tokens));
}

// Whether each file says itself where documents begin.
bool all_know_documents(const config::SourceConfig& c) {
  const auto knows = [](const std::string& file) {
    try {
      return TokenFile(file).knows_documents();
    } catch (const Error&) {
      return true;  // check_files() reports it
    }
  };
  return holds_tokens(c) && std::ranges::all_of(c.paths, [&](const config::SourcePath& p) {
           return std::ranges::all_of(files_of(p), knows);
         });
}

// How documents are kept apart, if they are.
DocumentEnds document_ends(const config::Config& config, const config::SourceConfig& c,
                           const tokenizer::Tokenizer& tokenizer) {
  if (c.documents != config::Documents::separate) return {};
  if (c.document_end >= 0) return {true, static_cast<std::int32_t>(c.document_end)};
  // Without a name, the special ids are not those of the files.
  if (config.data.tokenizer.empty() && all_know_documents(c)) return {true, std::nullopt};
  const auto end = tokenizer.document_end();
  if (!end && !all_know_documents(c))
    throw Error(ExitCode::usage,
                "documents is separate, but data.tokenizer " + config.data.tokenizer_or_bytes() +
                    " has no end-of-document token; expected " +
                    "a vocabulary with <|endoftext|>, <|end_of_text|>, </s>, [SEP] or <eos>, "
                    "document_end, or documents joined");
  return {true, end};
}

SourceSpec source_spec(const config::SourceConfig& c, std::optional<std::int32_t> document_end) {
  const config::SourceType type = !c.hides()        ? c.type
                                  : holds_tokens(c) ? config::SourceType::tokens
                                                    : config::SourceType::text;
  SourceSpec spec{.type = type,
                  .paths = {},
                  .weighted = c.weighted,
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

SpanLengths spans_of(const config::Config& config, const config::SourceConfig& c) {
  return c.type == config::SourceType::span_corruption
             ? span_lengths(config.train.seq_len, c.mask_probability, c.mean_span_length)
             : SpanLengths{};
}

// Tokens of a sample, without the one that only serves as a label; below 1: seq_len is too short.
std::int64_t sample_length(const config::Config& config, const config::SourceConfig& c,
                           const tokenizer::Tokenizer& tokenizer) {
  const std::int64_t length = config.train.seq_len;
  if (c.type == config::SourceType::mlm)
    return length - MaskedLm::specials(tokenizer, c.next_sentence);
  return c.type == config::SourceType::span_corruption ? spans_of(config, c).raw : length;
}

// What is said where it is too short.
std::string no_room(const config::Config& config, const config::SourceConfig& c,
                    const tokenizer::Tokenizer& tokenizer) {
  if (sample_length(config, c, tokenizer) >= 1) return "";
  const std::int64_t added = MaskedLm::specials(tokenizer, c.next_sentence);
  return "train.seq_len " + std::to_string(config.train.seq_len) +
         " leaves no room for text between the " + std::to_string(added) +
         " ids that the tokenizer adds; expected at least " + std::to_string(added + 1);
}

bool check_spans(const config::Config& config, const config::SourceConfig& c,
                 const std::string& section, config::Problems& problems) {
  const bool is_short = config.train.seq_len < kLeastSource;
  return problems.collect(is_short ? "train.seq_len" : section + ".mask_probability",
                          [&] { spans_of(config, c); });
}

// Whether ids end documents in the data. In other text, which ends with its file, none does.
bool ids_end_documents(const config::SourceConfig& c) {
  const auto has_lines = [](const config::SourcePath& p) {
    return std::ranges::any_of(files_of(p), text::is_json_lines);
  };
  return holds_tokens(c) || std::ranges::any_of(c.paths, has_lines);
}

// The key of a source that names its files.
std::string path_key(const config::SourceConfig& c, const std::string& section) {
  return section + (c.paths.empty() ? ".source" : ".path");
}

// What a source needs of a tokenizer besides the ids in its token files; empty: nothing.
std::string special_use(const config::SourceConfig& c) {
  if (c.type == config::SourceType::mlm) return "type mlm needs the mask token";
  if (c.type == config::SourceType::span_corruption)
    return "type span_corruption needs the sentinel tokens";
  if (c.documents == config::Documents::separate && c.document_end < 0 && !all_know_documents(c))
    return "documents: separate needs the id that ends a document";
  return "";
}

// Refuses special ids of `bytes` for token files that another tokenizer may have made, and a
// tokenizer that is known to be another.
void check_special_ids(const config::Config& config, const config::SourceConfig& c,
                       const tokenizer::Tokenizer& tokenizer) {
  if (!holds_tokens(c)) return;
  const bool named = !config.data.tokenizer.empty();
  const std::string use = named ? "" : special_use(c);
  if (!named && use.empty()) return;
  std::string of;  // the tokenizer's fingerprint, once a file has one
  for (const config::SourcePath& p : c.paths)
    for (const std::string& path : files_of(p)) {
      const TokenFile file(path);
      const auto origin = read_origin(file);
      if (origin && of.empty()) of = fingerprint(tokenizer);
      if (named) check_origin(file, origin, of, config.data.tokenizer);
      if (named || (origin && origin->fingerprint == of)) continue;
      throw Error(ExitCode::usage,
                  use + ", and data.tokenizer does not say which tokenizer made the ids of " +
                      file.name() + "; set data.tokenizer" +
                      (origin ? ", which was " + origin->tokenizer : " to it") +
                      (c.type == config::SourceType::tokens ? ", or set document_end" : ""));
    }
}

// Whether the tokenizer has the ids that an objective needs, within the vocabulary.
void check_tokenizer(const config::Config& config, const config::SourceConfig& c,
                     const tokenizer::Tokenizer& tokenizer) {
  const std::int64_t vocabulary = config.model.vocab_size;
  const bool encodes = !holds_tokens(c);
  const std::int64_t ids = std::max(tokenizer.vocab_size(), tokenizer.target().vocab_size());
  if (encodes && ids > vocabulary)
    throw Error(ExitCode::input, config.data.tokenizer_or_bytes() +
                                     ": the tokenizer has ids up to " + std::to_string(ids - 1) +
                                     ", but model.vocab_size is " + std::to_string(vocabulary) +
                                     "; expected at least " + std::to_string(ids));
  const auto end = document_ends(config, c, tokenizer).id;
  if (end && *end >= vocabulary && ids_end_documents(c))
    throw Error(ExitCode::usage,
                "documents is separate, but the end-of-document id " + std::to_string(*end) +
                    " of data.tokenizer " + config.data.tokenizer_or_bytes() +
                    " is outside model.vocab_size " + std::to_string(vocabulary) +
                    "; expected at least " + std::to_string(*end + 1) + ", or documents joined");
  if (c.type == config::SourceType::text)
    document_begin(
        config.data.add_begin, tokenizer,
        "data.add_begin is true, but data.tokenizer " + config.data.tokenizer_or_bytes());
  if (c.type == config::SourceType::mlm)
    MaskedLm::check_tokenizer(tokenizer, vocabulary, c.next_sentence);
  if (c.type == config::SourceType::span_corruption)
    SpanCorruption::check_tokenizer(tokenizer, spans_of(config, c).spans, vocabulary,
                                    config.model.decoder_start);
  if (c.type != config::SourceType::pairs) return;
  const SentenceIds special = sentence_ids(tokenizer, config.model.decoder_start);
  check_known(std::max(special.begin, special.end), vocabulary,
              "data.tokenizer: the end-of-sequence token");
}

// Whether the source is encoded, or needs special ids.
bool uses_tokenizer(const config::SourceConfig& c) {
  return !holds_tokens(c) || !special_use(c).empty();
}
bool uses_tokenizer(const config::DataConfig& data) {
  return uses_tokenizer(data.train) || (data.validation && uses_tokenizer(*data.validation));
}

// A model's directory without a tokenizer is an error only where one is used.
std::unique_ptr<tokenizer::Tokenizer> load_tokenizer(const config::Config& config, bool used) {
  const std::string spec = config.data.tokenizer_or_bytes();
  std::error_code ignored;
  try {
    return tokenizer::load_tokenizer(spec);
  } catch (const Error& e) {
    if (!used && std::filesystem::is_directory(spec, ignored))
      return tokenizer::load_tokenizer("bytes");
    if (config.model.random_init() || !spec.starts_with(config.model.init)) throw;
    throw Error(
        e.code(),
        std::string(e.what()) +
            "; this is model.init's: set data.tokenizer to the model's, or to bytes if that "
            "is what it was trained on");
  }
}

// Opens every file of the source; reports those that cannot be read. Ids of token files are not
// read.
void check_files(const config::Config& config, const config::SourceConfig& c,
                 const std::string& section, const tokenizer::Tokenizer* tokenizer,
                 config::Problems& problems) {
  const bool tokens = holds_tokens(c);
  bool opened = true;
  for (const auto& [key, path] : {std::pair{".source", c.source}, {".target", c.target}})
    if (!path.empty()) opened &= problems.collect(section + key, [&] { io::check_text(path); });
  for (std::size_t i = 0; i < c.paths.size(); ++i)
    opened &= problems.collect(section + ".path[" + std::to_string(i) + "]", [&] {
      for (const std::string& file : io::expand_glob(c.paths[i].path))
        tokens ? static_cast<void>(TokenFile(file)) : io::check_text(file);
    });
  if (!tokenizer || !opened || !tokens) return;
  problems.collect(path_key(c, section), [&] {
    check_special_ids(config, c, *tokenizer);
    const auto source =
        open_source(source_spec(c, std::nullopt), *tokenizer, sample_length(config, c, *tokenizer));
    source->check_ids(config.model.vocab_size);
    std::vector<std::int32_t> first(static_cast<std::size_t>(source->seq_len()) + 1);
    source->read(0, first);
  });
}

std::unique_ptr<tokenizer::Tokenizer> checked_tokenizer(const config::Config& config) {
  config::Problems problems(config.places);
  auto tokenizer = check_data(config, problems);
  problems.throw_if_any();
  return tokenizer;
}

}  // namespace

std::unique_ptr<tokenizer::Tokenizer> check_data(const config::Config& config,
                                                 config::Problems& problems) {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  problems.collect("data.tokenizer",
                   [&] { tokenizer = load_tokenizer(config, uses_tokenizer(config.data)); });
  const config::DataConfig& data = config.data;
  bool spans = check_spans(config, data.train, "data.train", problems);
  if (data.validation && (spans || config.train.seq_len >= kLeastSource))
    spans &= check_spans(config, *data.validation, "data.validation", problems);
  if (spans)
    problems.collect("model.max_seq_len", [&] {
      const std::int64_t length = batch_shapes(config)[0].length;
      const std::int64_t target = data.validation ? spans_of(config, *data.validation).target : 0;
      if (target > length)
        problems.add({"data.validation.mask_probability", "data.validation.mean_span_length"},
                     "targets of data.validation have " + std::to_string(target) +
                         " tokens, and batches hold " + std::to_string(length) +
                         ", for those of data.train; expected the mask_probability and "
                         "mean_span_length of data.train");
    });
  const bool fits = spans && tokenizer && problems.collect("data.tokenizer", [&] {
    check_tokenizer(config, data.train, *tokenizer);
    if (data.validation) check_tokenizer(config, *data.validation, *tokenizer);
  });
  if (fits)
    for (const config::SourceConfig* c :
         {&data.train, data.validation ? &*data.validation : nullptr})
      if (const std::string text = c ? no_room(config, *c, *tokenizer) : ""; !text.empty()) {
        problems.add({"train.seq_len", "data.tokenizer"}, text);
        return tokenizer;
      }
  const tokenizer::Tokenizer* usable = fits ? tokenizer.get() : nullptr;
  check_files(config, data.train, "data.train", usable, problems);
  if (data.validation) check_files(config, *data.validation, "data.validation", usable, problems);
  return tokenizer;
}

std::string unused_ids(const config::Config& config, const tokenizer::Tokenizer& tokenizer) {
  const std::int64_t ids = std::max(tokenizer.vocab_size(), tokenizer.target().vocab_size()),
                     vocabulary = config.model.vocab_size;
  if (2 * ids >= vocabulary) return "";
  return "the tokenizer " + config.data.tokenizer_or_bytes() + " makes " + std::to_string(ids) +
         " of the " + std::to_string(vocabulary) +
         " ids that the model has; set data.tokenizer if that is not the model's";
}

PairSpec pair_files(const config::SourceConfig& c) {
  PairSpec spec{.source = c.source, .target = c.target, .files = {}};
  for (const config::SourcePath& p : c.paths)
    for (const std::string& file : io::expand_glob(p.path)) spec.files.push_back(file);
  return spec;
}

std::unique_ptr<Dataset> RunData::open(const config::Config& config, const config::SourceConfig& c,
                                       bool endless) {
  const std::int64_t length = config.train.seq_len, batch = config.train.global_batch_size,
                     vocabulary = config.model.vocab_size;
  const std::uint64_t seed = config.train.seed;
  const std::string key = endless ? "data.train: " : "data.validation: ";
  if (c.type == config::SourceType::pairs) {
    auto pairs = open_pairs(config, c, *tokenizer, endless && c.shuffle);
    if (endless) tokens = pairs->tokens();
    std::int64_t fewest = std::numeric_limits<std::int64_t>::max();  // pairs of a batch, by length
    for (const nn::BatchShape& s : batch_shapes(config)) fewest = std::min(fewest, s.sequences);
    if (endless && pairs->pairs() < fewest)
      notes.push_back(key + counted(pairs->pairs(), "sentence pair") + " for batches of " +
                      std::to_string(fewest) + ": no batch is full");
    if (pairs->cut() > 0)
      notes.push_back(key + counted(pairs->cut(), "sentence") + " exceeded train.seq_len = " +
                      std::to_string(length) + " tokens and were truncated");
    return pairs;
  }
  const SpanLengths spans = spans_of(config, c);
  check_special_ids(config, c, *tokenizer);
  const DocumentEnds ends = document_ends(config, c, *tokenizer);
  SourceSpec spec = source_spec(c, ends.id);
  if (c.type == config::SourceType::text)
    spec.document_begin = document_begin(config.data.add_begin, *tokenizer, "data.tokenizer");
  sources.push_back(open_source(spec, *tokenizer, sample_length(config, c, *tokenizer)));
  Source& source = *sources.back();
  source.check_ids(vocabulary);
  if (const std::string text = source.left_out(); !text.empty()) notes.push_back(key + text);
  if (const std::string file =
          ends.separate && holds_tokens(c) ? source.without_documents(ends.id) : "";
      !file.empty())
    notes.push_back(
        "warning: " + key + "documents is separate, but nothing ends a document in " + file +
        (ends.id ? ": no id " + std::to_string(*ends.id) + " is among its first ids" : "") +
        "; attention and labels cross its documents");
  if (endless) tokens = source.tokens();
  if (endless && source.samples() < batch)
    notes.push_back(key + counted(source.samples(), "sample") + " of " +
                    std::to_string(source.seq_len()) + " tokens for a train.global_batch_size of " +
                    std::to_string(batch) + ": batches repeat samples");
  const Sampler sampler(source.samples(), endless && c.shuffle, seed);
  if (c.type == config::SourceType::mlm)
    return std::make_unique<MaskedLm>(
        source, sampler, *tokenizer, batch,
        MaskedLm::Options{length, vocabulary, c.mask_probability, seed, ends, c.next_sentence},
        endless);
  if (c.type == config::SourceType::span_corruption)
    return std::make_unique<SpanCorruption>(source, sampler, *tokenizer, batch, spans, vocabulary,
                                            seed, endless, config.model.decoder_start);
  return std::make_unique<NextToken>(source, sampler, batch, endless, ends);
}

RunData::RunData(const config::Config& config) : tokenizer(checked_tokenizer(config)) {
  const config::SourceConfig& train_source = config.data.train;
  const auto& validation_source = config.data.validation;
  if (const std::string text = unused_ids(config, *tokenizer);
      !text.empty() && !holds_tokens(train_source))
    notes.push_back(text);
  config::at_key(config.places, path_key(train_source, "data.train"),
                 [&] { train = open(config, train_source, true); });
  if (!validation_source) return;
  config::at_key(config.places, path_key(*validation_source, "data.validation"),
                 [&] { validation = open(config, *validation_source, false); });
}

RunData::RunData(const config::Config& config, const config::SourceConfig& source,
                 const std::string& section) {
  config::at_key(config.places, "data.tokenizer",
                 [&] { tokenizer = load_tokenizer(config, uses_tokenizer(source)); });
  const auto open_source = [&] {
    check_tokenizer(config, source, *tokenizer);
    if (const std::string text = no_room(config, source, *tokenizer); !text.empty())
      throw Error(ExitCode::usage, text);
    validation = open(config, source, false);
  };
  section.empty() ? open_source()
                  : config::at_key(config.places, path_key(source, section), open_source);
}

std::int64_t RunData::validation_batches(const config::Config& config) const {
  if (!validation) return 0;
  return config.eval.batches == 0 ? validation->batches()
                                  : std::min(validation->batches(), config.eval.batches);
}

std::uint64_t fingerprint(const config::Config& config, const Dataset& data, std::int64_t index) {
  const Dataset::GlobalBatch batch = data.batch(index);
  std::string bytes = std::to_string(data.batches()) + ' ' + std::to_string(batch.shape) + ' ' +
                      std::to_string(batch.sequences);
  if (batch.sequences == 0) return std::hash<std::string>()(bytes);
  const nn::BatchShape shape = batch_shapes(config).at(batch.shape);
  std::map<Field, std::vector<std::int32_t>> values;
  BatchFields fields;
  for (const Field field : {Field::ids, Field::labels, Field::source_ids})
    if (shape.width(field) > 0) {
      values[field].resize(static_cast<std::size_t>(shape.width(field)));
      fields[field] = values[field];
    }
  constexpr std::int64_t kMost = 64;
  for (std::int64_t i = 0, n = std::min(batch.sequences, kMost); i < n; ++i) {
    data.fill(index, i * batch.sequences / n, 1, fields);
    for (const auto& [field, of] : values)
      bytes.append(reinterpret_cast<const char*>(of.data()), of.size() * sizeof of[0]);
  }
  return std::hash<std::string>()(bytes);
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
