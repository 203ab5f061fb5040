#include "inference/embeddings.h"

#include <algorithm>

#include "core/task.h"
#include "data/batch_shapes.h"
#include "data/loader.h"
#include "inference/inference.h"
#include "kernels/gemm.h"

namespace tfm::inference {

std::vector<float> embeddings(LoadedModel& model, const config::Config& config,
                              const data::EmbeddingTexts& texts) {
  const comm::Mesh& mesh = model.rank_context.mesh;
  const std::int64_t width = config.model.d_model;
  const nn::BatchShape shape = data::forward_shape(config, mesh.layout);
  Inference inference(*model.model, model.rank_context, model.weights(), shape, width,
                      config.model.head_of_type("embed")->name);
  data::DataLoader loader(texts,
                          {data::DataLoader::rank_shape(inference.recording(), shape.sequences)},
                          data::LoaderOptions::of(mesh, texts.batches()));
  std::vector<float> all(static_cast<std::size_t>(texts.texts() * width));
  Task task("embedding", texts.batches());
  std::int64_t before = 0;  // texts of earlier batches
  for (std::int64_t i = 0; i < texts.batches(); ++i) {
    for (std::int64_t round = 0; round < loader.rounds(i); ++round) {
      const Batch& batch = loader.load(i, round);
      inference.run(batch.fields);
      for (std::int64_t at = 0; at < batch.sequences; ++at) {
        const std::vector<double> row = inference.row(at);  // collective over the tensor group
        std::ranges::copy(row, all.begin() + (before + batch.first + at) * width);
      }
    }
    before += texts.batch(i).sequences;
    task.add(1);
    mesh.group(nn::kBatchAxes).barrier();  // no rank waits longer for another than for a batch
  }
  mesh.group(nn::kBatchAxes).all_reduce({all.data(), DType::f32, {std::ssize(all)}});
  return all;
}

std::vector<std::int64_t> nearer_documents(std::span<const float> queries,
                                           std::span<const float> documents, std::int64_t width,
                                           int threads) {
  constexpr std::int64_t kAtOnce = 64;
  const std::int64_t n = std::ssize(documents) / width;
  std::vector<float> products(static_cast<std::size_t>(kAtOnce * n));
  std::vector<std::int64_t> nearer;
  cpu::Stream stream{threads};
  for (std::int64_t first = 0; first < n; first += kAtOnce) {
    const std::int64_t rows = std::min(kAtOnce, n - first);
    kernels::gemm(stream, kernels::GemmArgs<float>{.transpose_b = true,
                                                   .m = rows,
                                                   .n = n,
                                                   .k = width,
                                                   .a = queries.data() + first * width,
                                                   .lda = width,
                                                   .b = documents.data(),
                                                   .ldb = width,
                                                   .c = products.data(),
                                                   .ldc = n});
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row =
          std::span(products).subspan(static_cast<std::size_t>(r * n), static_cast<std::size_t>(n));
      const float own = row[static_cast<std::size_t>(first + r)];
      const auto earlier = row.first(static_cast<std::size_t>(first + r));
      nearer.push_back(std::ranges::count_if(row, [own](float x) { return x > own; }) +
                       std::ranges::count(earlier, own));
    }
  }
  return nearer;
}

std::vector<std::pair<std::string, double>> retrieval_scores(std::span<const std::int64_t> nearer) {
  const auto n = static_cast<double>(nearer.size());
  std::vector<std::pair<std::string, double>> scores;
  for (const std::int64_t k : {1, 10})
    scores.emplace_back(
        "recall_at_" + std::to_string(k),
        static_cast<double>(std::ranges::count_if(nearer, [k](std::int64_t x) { return x < k; })) /
            n);
  double sum = 0;
  for (const std::int64_t x : nearer) sum += 1 / static_cast<double>(1 + x);
  scores.emplace_back("mrr", sum / n);
  return scores;
}

std::vector<std::pair<std::string, double>> retrieval_scores(
    LoadedModel& model, const config::Config& config, const config::SourceConfig& source,
    const tokenizer::Tokenizer& tokenizer) {
  data::TextPairs pairs = data::text_pairs(source);
  const std::size_t n = pairs.queries.size();
  std::vector<std::string> texts = std::move(pairs.queries);
  std::ranges::move(pairs.documents, std::back_inserter(texts));
  const std::vector<float> all =
      embeddings(model, config, data::EmbeddingTexts(config, tokenizer, texts));
  if (model.rank_context.mesh.rank() != 0) return {};
  const std::int64_t width = config.model.d_model;
  const auto half = static_cast<std::size_t>(width) * n;
  const std::span<const float> vectors = all;
  return retrieval_scores(nearer_documents(vectors.first(half), vectors.subspan(half), width,
                                           model.rank_context.device.threads()));
}

}  // namespace tfm::inference
