#include "data/source_files.h"

#include <algorithm>

#include "data/special_ids.h"
#include "data/token_origin.h"
#include "io/glob.h"

namespace tfm::data {
namespace {

bool names_tokens(const config::SourcePath& p) {
  return std::ranges::all_of(files_of(p), is_token_file);
}

}  // namespace

std::vector<std::string> files_of(const config::SourcePath& p) {
  if (p.path.empty()) return {p.source, p.target};
  try {
    return io::expand_glob(p.path);
  } catch (const Error&) {
    return {p.path};
  }
}

bool holds_tokens(const config::SourceConfig& c) {
  using enum config::SourceType::Files;
  return c.kind().files == tokens ||
         (c.kind().files == any && std::ranges::all_of(c.paths, names_tokens));
}

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

DocumentEnds document_ends(const config::Config& config, const config::SourceConfig& c,
                           const tokenizer::Tokenizer& tokenizer) {
  const bool apart = c.documents != config::Documents::joined;
  if (!apart && c.fim.rate == 0) return {};
  if (c.document_end >= 0) return {apart, static_cast<std::int32_t>(c.document_end)};
  // Without a name, the special ids are not those of the files.
  if (config.data.tokenizer.empty() && all_know_documents(c)) return {apart, std::nullopt};
  const auto end = tokenizer.document_end();
  if (!end && !all_know_documents(c))
    throw Error(ExitCode::usage,
                (apart ? "documents is " + word(c.documents) : std::string("fim cuts documents")) +
                    ", but data.tokenizer " + config.data.tokenizer_or_bytes() +
                    " has no end-of-document token; expected a vocabulary with <|endoftext|>, "
                    "<|end_of_text|>, </s>, [SEP] or <eos>, or document_end" +
                    (apart ? ", or documents joined" : ""));
  return {apart, end};
}

SourceSpec source_spec(const config::SourceConfig& c, std::optional<std::int32_t> document_end) {
  SourceSpec spec{.text = !holds_tokens(c),
                  .paths = {},
                  .weighted = c.weighted,
                  .field = c.field,
                  .shuffle = c.shuffle,
                  .document_end = document_end};
  for (const config::SourcePath& p : c.paths) spec.paths.push_back({p.path, p.weight});
  return spec;
}

std::string special_use(const config::ModelConfig& m, const config::SourceConfig& c) {
  if (std::string use = objective_of(c).special_use(m, c); !use.empty()) return use;
  if (c.documents != config::Documents::joined && c.document_end < 0 && !all_know_documents(c))
    return "documents: " + word(c.documents) + " needs the id that ends a document";
  return "";
}

void check_special_ids(const config::Config& config, const config::SourceConfig& c,
                       const tokenizer::Tokenizer& tokenizer) {
  if (!holds_tokens(c)) return;
  const bool named = !config.data.tokenizer.empty();
  const std::string use = named ? "" : special_use(config.model, c);
  if (!named && use.empty()) return;
  std::string of;  // the tokenizer's fingerprint, once a file has one
  for (const config::SourcePath& p : c.paths)
    for (const std::string& path : files_of(p)) {
      const TokenFile file(path);
      const auto origin = read_origin(file);
      if (origin && of.empty()) of = fingerprint(tokenizer);
      if (named) check_origin(file, origin, of, config.data.tokenizer);
      if (named || (origin && origin->fingerprint == of)) continue;
      throw Error(
          ExitCode::usage,
          use + ", and data.tokenizer does not say which tokenizer made the ids of " + file.name() +
              "; set data.tokenizer" + (origin ? ", which was " + origin->tokenizer : " to it") +
              (objective_of(c).special_use(config.model, c).empty() ? ", or set document_end"
                                                                    : ""));
    }
}

bool uses_tokenizer(const config::ModelConfig& m, const config::SourceConfig& c) {
  return !holds_tokens(c) || !special_use(m, c).empty();
}
OpenedSource open_documents(Opening& o, std::int64_t sample_length) {
  const config::SourceConfig& c = o.source;
  check_special_ids(o.config, c, o.tokenizer);
  const DocumentEnds ends = document_ends(o.config, c, o.tokenizer);
  SourceSpec spec = source_spec(c, ends.id);
  if (c.kind().plain_text())
    spec.document_begin = document_begin(o.config.data.add_begin, o.tokenizer, "data.tokenizer");
  Source& source = *o.sources.emplace_back(open_source(spec, o.tokenizer, sample_length));
  source.check_ids(o.config.model.vocab_size);
  if (const std::string file =
          ends.separate && holds_tokens(c) ? source.without_documents(ends.id) : "";
      !file.empty())
    o.note("documents is " + word(c.documents) + ", but nothing ends a document in " + file +
               (ends.id ? ": no id " + std::to_string(*ends.id) + " is among its first ids" : "") +
               "; attention and labels cross its documents",
           true);
  o.tokens = source.tokens();
  return {source, ends};
}

Samples open_samples(Opening& o, std::int64_t sample_length) {
  const config::SourceConfig& c = o.source;
  const std::int64_t batch = o.config.train.global_batch_size;
  const auto [source, ends] = open_documents(o, sample_length);
  if (const std::string text = source.left_out(); !text.empty()) o.note(text);
  if (o.endless && source.samples() < batch)
    o.note(counted(source.samples(), "sample") + " of " + std::to_string(source.seq_len()) +
           " tokens for a train.global_batch_size of " + std::to_string(batch) +
           ": batches repeat samples");
  return {source, Sampler(source.samples(), o.endless && c.shuffle, o.config.train.seed), ends};
}

}  // namespace tfm::data
