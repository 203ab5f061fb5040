#pragma once
// The files of a data source, and the ids that begin and end documents in them.
#include "config/config.h"
#include "data/next_token.h"
#include "data/objective.h"

namespace tfm::data {

// A pattern that matches no file counts as a name.
std::vector<std::string> files_of(const config::SourcePath& path);
// Whether the files hold ids instead of text.
bool holds_tokens(const config::SourceConfig& source);
// Whether each file says itself where documents begin.
bool all_know_documents(const config::SourceConfig& source);
// What ends documents, where they are kept apart or rearranged (fim). Error(usage) if nothing does.
DocumentEnds document_ends(const config::Config& config, const config::SourceConfig& source,
                           const tokenizer::Tokenizer& tokenizer);
// What a source needs of a tokenizer besides the ids in its token files; empty: nothing.
std::string special_use(const config::ModelConfig& model, const config::SourceConfig& source);
// Refuses special ids of `bytes` for token files that another tokenizer may have made, and a
// tokenizer that is known to be another.
void check_special_ids(const config::Config& config, const config::SourceConfig& source,
                       const tokenizer::Tokenizer& tokenizer);
// Whether the source is encoded, or needs special ids.
bool uses_tokenizer(const config::ModelConfig& model, const config::SourceConfig& source);

SourceSpec source_spec(const config::SourceConfig& source,
                       std::optional<std::int32_t> document_end);
// A source without its samples, with its notes; nothing is left out.
struct OpenedSource {
  Source& source;
  DocumentEnds documents;
};
OpenedSource open_documents(Opening& opening, std::int64_t sample_length);
struct Samples {
  Source& source;
  Sampler sampler;
  DocumentEnds documents;
};
// Opens the samples of a source, with notes about what they leave out, too.
Samples open_samples(Opening& opening, std::int64_t sample_length);

}  // namespace tfm::data
