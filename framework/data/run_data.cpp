#include "data/run_data.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>

#include "core/strings.h"
#include "data/batch_shapes.h"
#include "data/objective.h"
#include "data/source_files.h"
#include "data/token_origin.h"
#include "io/glob.h"
#include "io/text_stream.h"
#include "text/documents.h"

namespace tfm::data {
namespace {

// What is said where there is no room for text.
std::string no_room(const config::Config& config, const config::SourceConfig& c,
                    const tokenizer::Tokenizer& tokenizer) {
  const std::int64_t length = config.train.seq_len,
                     room = objective_of(c).sample_length(config, c, tokenizer);
  if (room >= 1) return "";
  return "train.seq_len " + std::to_string(length) + " leaves no room for text between the " +
         std::to_string(length - room) + " ids that the tokenizer adds; expected at least " +
         std::to_string(length - room + 1);
}

// The key of a source that names its files.
std::string path_key(const config::SourceConfig& c, const std::string& section) {
  return section + (c.paths.empty() ? ".source" : ".path");
}

// Whether ids end documents in the data. In other text, which ends with its file, none does.
bool ids_end_documents(const config::SourceConfig& c) {
  const auto has_lines = [](const config::SourcePath& p) {
    return std::ranges::any_of(files_of(p), text::is_json_lines);
  };
  return holds_tokens(c) || std::ranges::any_of(c.paths, has_lines);
}

// Whether the tokenizer has the ids that an objective needs, within the vocabulary.
void check_tokenizer(const config::Config& config, const config::SourceConfig& c,
                     const tokenizer::Tokenizer& tokenizer) {
  const std::int64_t vocabulary = config.model.vocab_size;
  const auto check_room = [&](const std::string& spec, const tokenizer::Tokenizer& side,
                              const std::string& key, std::int64_t rows) {
    if (const std::int64_t ids = side.vocab_size(); !holds_tokens(c) && ids > rows)
      throw Error(ExitCode::input, spec + ": the tokenizer has ids up to " +
                                       std::to_string(ids - 1) + ", but model." + key + " is " +
                                       std::to_string(rows) + "; expected at least " +
                                       std::to_string(ids));
  };
  const bool two = config.model.source_vocab_size > 0;
  const config::DataConfig& data = config.data;
  check_room(data.source_tokenizer.empty() ? data.tokenizer_or_bytes() : data.source_tokenizer,
             tokenizer, two ? "source_vocab_size" : "vocab_size", config.model.source_vocabulary());
  check_room(data.tokenizer_or_bytes(), tokenizer.target(), "vocab_size", vocabulary);
  const auto end = document_ends(config, c, tokenizer).id;
  if (end && *end >= vocabulary && ids_end_documents(c))
    throw Error(ExitCode::usage, "the end-of-document id " + std::to_string(*end) +
                                     " of data.tokenizer " + config.data.tokenizer_or_bytes() +
                                     " is outside model.vocab_size " + std::to_string(vocabulary) +
                                     "; expected at least " + std::to_string(*end + 1) +
                                     ", or documents joined and no fim");
  objective_of(c).check_tokenizer(config, c, tokenizer);
}

// Whether a source is encoded, or needs special ids.
bool any_uses_tokenizer(const config::Config& c) {
  return uses_tokenizer(c.model, c.data.train) ||
         (c.data.validation && uses_tokenizer(c.model, *c.data.validation));
}

// A model's directory without a tokenizer is an error only where one is used.
std::unique_ptr<tokenizer::Tokenizer> load_tokenizer(const config::Config& config, bool used) {
  const std::string spec = config.data.tokenizer_or_bytes();
  std::error_code ignored;
  try {
    return tokenizer::load_tokenizer(spec, config.data.source_tokenizer);
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
      const config::SourcePath& p = c.paths[i];
      for (const std::string& file : p.path.empty() ? files_of(p) : io::expand_glob(p.path))
        tokens ? static_cast<void>(TokenFile(file)) : objective_of(c).check_file(file, config, c);
    });
  if (!tokenizer || !opened || !tokens) return;
  problems.collect(path_key(c, section), [&] {
    check_special_ids(config, c, *tokenizer);
    const auto source = open_source(source_spec(c, std::nullopt), *tokenizer,
                                    objective_of(c).sample_length(config, c, *tokenizer));
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
                   [&] { tokenizer = load_tokenizer(config, any_uses_tokenizer(config)); });
  const config::DataConfig& data = config.data;
  bool sound = objective_of(data.train).check(config, data.train, "data.train", problems);
  if (data.validation)
    sound &=
        objective_of(*data.validation).check(config, *data.validation, "data.validation", problems);
  if (sound)
    problems.collect("model.max_seq_len", [&] {
      const std::int64_t length = batch_shapes(config).back().length,
                         most = data.validation ? objective_of(*data.validation)
                                                      .most_labels(config, *data.validation)
                                                : 0;
      if (most > length)
        problems.add({"data.validation.mask_probability", "data.validation.mean_span_length"},
                     "targets of data.validation have " + std::to_string(most) +
                         " tokens, and batches hold " + std::to_string(length) +
                         ", for those of data.train; expected the mask_probability and "
                         "mean_span_length of data.train");
    });
  const bool fits = sound && tokenizer && problems.collect("data.tokenizer", [&] {
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
  const std::int64_t ids = config.model.source_vocab_size > 0
                               ? tokenizer.target().vocab_size()
                               : std::max(tokenizer.vocab_size(), tokenizer.target().vocab_size()),
                     vocabulary = config.model.vocab_size;
  if (2 * ids >= vocabulary) return "";
  return "the tokenizer " + config.data.tokenizer_or_bytes() + " makes " + std::to_string(ids) +
         " of the " + std::to_string(vocabulary) +
         " ids that the model has; set data.tokenizer if that is not the model's";
}

std::unique_ptr<Dataset> RunData::open(const config::Config& config, const config::SourceConfig& c,
                                       bool endless) {
  Opening opening{config, c, *tokenizer, endless};
  auto dataset = objective_of(c).open(opening);
  std::ranges::move(opening.sources, std::back_inserter(sources));
  std::ranges::move(opening.notes, std::back_inserter(notes));
  if (endless) tokens = opening.tokens;
  return dataset;
}

RunData::RunData(const config::Config& config) : tokenizer(checked_tokenizer(config)) {
  if (!config.data.tokenizer.empty()) tokenizer_fingerprint = fingerprint_of_sides(*tokenizer);
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
                 [&] { tokenizer = load_tokenizer(config, uses_tokenizer(config.model, source)); });
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
  for (const Field field : {Field::ids, Field::labels, Field::sentence_labels, Field::token_labels,
                            Field::numbers, Field::source_ids})
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
  for (const PairSpec& spec : pair_files(*config.data.validation))
    each_pair(spec, [&](std::string_view source, std::string_view target, const std::string&,
                        const std::string&) {
      all.source.emplace_back(source);
      all.target.emplace_back(target);
    });
  for (std::int64_t i = 0; i < validation_batches(config); ++i)
    for (const std::int64_t pair : validation->items_of(i)) {
      some.source.push_back(all.source[static_cast<std::size_t>(pair)]);
      some.target.push_back(all.target[static_cast<std::size_t>(pair)]);
    }
  return some;
}

}  // namespace tfm::data
