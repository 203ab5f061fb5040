#pragma once
// Vectors of texts, and how well they find documents.
#include <span>
#include <string>
#include <vector>

#include "data/embedding_texts.h"
#include "inference/loaded_model.h"

namespace tfm::inference {

// (texts, d_model), row-major, of the head of type embed, on every rank. Collective.
std::vector<float> embeddings(LoadedModel& model, const config::Config& config,
                              const data::EmbeddingTexts& texts);

// For each query how many documents stand before its own, which has its index, by their product
// with it; of equal ones the earlier stands first. Both are (N, width), row-major.
std::vector<std::int64_t> nearer_documents(std::span<const float> queries,
                                           std::span<const float> documents, std::int64_t width,
                                           int threads);
// recall_at_1, recall_at_10: the share of queries of which fewer documents are nearer; mrr: the
// mean of 1 / (1 + nearer documents).
std::vector<std::pair<std::string, double>> retrieval_scores(std::span<const std::int64_t> nearer);

// The scores of the pairs of a source, among the documents of all. Empty on all ranks but the
// first. Collective.
std::vector<std::pair<std::string, double>> retrieval_scores(LoadedModel& model,
                                                             const config::Config& config,
                                                             const config::SourceConfig& source,
                                                             const tokenizer::Tokenizer& tokenizer);

}  // namespace tfm::inference
