// docs/results/cudnn-plans.txt: which attention is cuDNN's, from plans that it makes: case,
// forward, backward, workspace.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <iostream>

#include "described.h"

namespace tfm::test {
namespace {

namespace cudnn = cuda::cudnn;
using Args = kernels::AttentionBackwardArgs<bf16>;

std::string mebibytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / 0x1p20);
  return text;
}

// Parts of backward, and what cuDNN asks for.
std::string backward_of(const CudnnCase& c, const Args& g) {
  const auto way = kernels::library_attention_backward(extents_of(c));
  if (!way) return "own kernel | more than 2.5 GiB";
  const auto graph = attention_graph(part_of(g, way->part, 0, 0));
  const cudnn::Plan plan(graph, {.properties = h200()});
  const std::int64_t parts =
      ceil_div(c.batch, way->part.batch) * ceil_div(c.kv_heads, way->part.groups);
  return "cuDNN" + (parts > 1 ? ", " + std::to_string(parts) + " parts" : std::string()) + " | " +
         mebibytes(plan.workspace());
}

using Change = std::function<void(kernels::AttentionArgs<bf16>&)>;
std::string row(const CudnnCase& c, const std::string& what = "", const Change& change = {}) {
  Args g = args_of<bf16>(c);
  if (change) change(g.forward);
  const std::string name = "| " + describe(c) + (what.empty() ? "" : ", " + what) + " | ";
  EXPECT_EQ(cudnn_computes(g), cudnn_computes(g.forward));
  if (!cudnn_computes(g)) return name + "own kernel | own kernel | |\n";
  EXPECT_NO_THROW(cudnn::Plan(attention_graph(g.forward), {.properties = h200()}));
  return name + "cuDNN | " + backward_of(c, g) + " |\n";
}

std::string table() {
  static const std::int32_t segments[1] = {};
  static const float bias[1] = {};
  std::string text;
  for (std::int64_t length : {64, 1024, 4096, 8192, 16384, 32768}) {
    for (std::int64_t size : {64, 96, 128}) text += row({2, 16, 16, length, length, size, true});
    text += row({2, 32, 8, length, length, 128, true});
  }
  text += row({16, 12, 12, 1024, 1024, 64, true});
  text += row({64, 16, 16, 512, 512, 64, false});
  text += row({64, 16, 16, 128, 512, 64, false});
  text += row({4, 16, 4, 2048, 512, 128, false});
  text += row({4, 16, 4, 512, 2048, 128, true});
  for (std::int64_t length : {64, 512, 4096})
    for (std::int64_t size : {64, 96, 128})
      text += row({length == 512 ? 64 : 2, 16, 16, length, length, size, false, true});
  text += row({2, 32, 8, 1024, 1024, 128, false, true});
  text += row({64, 16, 16, 128, 512, 64, false, true});
  text += row({4, 16, 4, 2048, 512, 128, false, true});
  text += row({1, 64, 1, 65536, 65536, 128, true});
  text += row({64, 16, 16, 512, 512, 64, false}, "dropout", [](auto& a) { a.dropout.p = 0.1f; });
  text += row({64, 16, 16, 512, 512, 64, false}, "padding between keys",
              [](auto& a) { a.k_segments = segments; });
  text += row({2, 16, 16, 1024, 1024, 64, true, true});
  text += row({2, 16, 16, 1024, 1024, 64, true}, "documents",
              [](auto& a) { a.k_segments = a.q_segments = segments; });
  text += row({2, 16, 16, 1024, 1024, 64, true}, "a bias", [](auto& a) { a.bias = bias; });
  text += row({2, 16, 16, 32, 1024, 64, false}, "fewer than 64 queries");
  text += row({2, 16, 16, 1024, 512, 64, true}, "queries without a key");
  text += row({2, 16, 16, 1024, 1024, 100, true}, "heads not of whole 16 bytes");
  return text;
}

TEST(Cudnn, TableIsTheRecordedOne) {
  std::stringstream recorded;
  recorded << std::ifstream(TFM_SOURCE_DIR "/docs/results/cudnn-plans.txt").rdbuf();
  const std::string rows = table();
  std::cout << rows;
  EXPECT_EQ(recorded.str(), rows);
}

}  // namespace
}  // namespace tfm::test
