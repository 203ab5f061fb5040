// Initial weights of a directory.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "comm/communicator.h"
#include "core/error.h"
#include "inference/initial_weights.h"
#include "inference/loaded_model.h"
#include "models/registry.h"
#include "support/data_files.h"

namespace tfm {
namespace {

TEST(InitialWeights, OfClassesInAnotherOrderAreRefused) {
  const std::string path = TFM_SOURCE_DIR "/tests/fixtures/huggingface/bert_sequences_0";
  config::Config c = inference::checkpoint_config(path, {});
  std::vector<std::string>& labels = c.model.heads.at(0).labels;
  const auto why = [&] {
    const auto model = models::make_model(c, comm::single_mesh());
    try {
      inference::check_initial_weights(path, c.model, model->parameters());
      return std::string();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::usage);
      return std::string(e.what());
    }
  };
  ASSERT_EQ(labels, (std::vector<std::string>{"negative", "positive"}));
  EXPECT_EQ(why(), "");
  labels = {"positive", "negative"};
  EXPECT_NE(why().find("has the labels positive, negative, and the weights of"), std::string::npos);
  labels = {"good", "bad"};
  EXPECT_EQ(why(), "") << "other names for the same classes";
}

const std::string kWithHeads = TFM_SOURCE_DIR "/tests/fixtures/huggingface/";

using Parts = std::map<std::string, std::vector<float>>;

// Of each part the rank's slice, read in pieces.
Parts parts_of(const nn::ParameterSet& parameters, const nn::WeightSource& read,
               std::int64_t piece) {
  Parts all;
  for (const nn::PartSlice& p : parameters.slices()) {
    std::vector<float>& values = all[p.name];
    values.resize(static_cast<std::size_t>(p.elements()));
    for (std::int64_t first = 0; first < p.elements(); first += piece)
      read(p, first, std::min(piece, p.elements() - first), values.data() + first);
  }
  return all;
}

// Heads that learn labels may be new; whatever else is missing is not.
TEST(InitialWeights, OfNewHeadsAreDrawn) {
  const std::string path = kWithHeads + "bert_0";
  config::Config c = inference::checkpoint_config(path, {});
  const auto before = models::make_model(c, comm::single_mesh());
  const Parts theirs =
      parts_of(before->parameters(),
               inference::open_initial_weights(path, c.model, before->parameters()).read, 1 << 20);
  c.model.heads = {{.type = "classify", .name = "mood", .classes = 3, .labels = {}}};
  config::fill_derived(c.model, c.model.max_seq_len);
  const auto model = models::make_model(c, comm::single_mesh());
  const nn::ParameterSet& parameters = model->parameters();
  for (const std::string& unused : inference::check_initial_weights(path, c.model, parameters))
    EXPECT_TRUE(unused.starts_with("head.") || unused.starts_with("pooler.")) << unused;
  test::expect_error(ExitCode::input, {path, "mood"},
                     [&] { inference::open_initial_weights(path, c.model, parameters); });
  const auto weights = inference::open_initial_weights(path, c.model, parameters, 5);
  const Parts read = parts_of(parameters, weights.read, 7);
  for (const nn::PartSlice& p : parameters.slices()) {
    const bool added = std::ranges::count(weights.added, p.name) > 0;
    EXPECT_EQ(added, !theirs.contains(p.name)) << p.name;
    if (!added) {
      EXPECT_EQ(read.at(p.name), theirs.at(p.name)) << p.name;
      continue;
    }
    EXPECT_TRUE(p.name.starts_with("mood.") || p.name.starts_with("pooler.")) << p.name;
    std::vector<float> drawn(read.at(p.name).size());
    parameters.initialize(5, p, 0, p.elements(), drawn.data(), 1);
    EXPECT_EQ(read.at(p.name), drawn) << p.name;
  }
  EXPECT_TRUE(std::ranges::count(weights.added, "mood.weight"));
  EXPECT_TRUE(weights.provenance.find("\"model_type\":\"bert\"") != std::string::npos);
}

// A checkpoint of a model, whose average counts where it is there.
TEST(InitialWeights, OfACheckpointAreItsAverage) {
  const test::TemporaryFolder folder;
  config::Config c = inference::checkpoint_config(kWithHeads + "bert_0", {});
  const auto base = models::make_model(c, comm::single_mesh());
  c.model.heads.push_back({.type = "classify", .name = "mood", .classes = 3, .labels = {}});
  config::fill_derived(c.model, c.model.max_seq_len);
  const auto more = models::make_model(c, comm::single_mesh());
  const std::vector<float> ones(1 << 16, 1), twos(1 << 16, 2);
  std::vector<checkpoint::Chunk> chunks;
  const auto write = [&](const char* prefix, const std::vector<float>& values) {
    for (const nn::PartSlice& p : base->parameters().slices()) {
      checkpoint::Chunk chunk;
      chunk.name = prefix + p.name, chunk.full_shape = p.full, chunk.count = p.full.elements();
      ASSERT_LE(chunk.count, std::ssize(values));
      chunk.data = values.data();
      chunks.push_back(chunk);
    }
  };
  const auto path = [&](std::int64_t step) {
    checkpoint::CheckpointInfo info;
    info.step = step, info.extra = R"({"x":1})";
    info.config = config::dump_config(inference::checkpoint_config(kWithHeads + "bert_0", {}));
    const auto result = checkpoint::write_checkpoint(folder.str(), info, chunks, 0, {});
    EXPECT_EQ(result.error, "");
    return result.path;
  };
  const auto expect_all = [&](const std::string& dir, float value) {
    const auto weights = inference::open_initial_weights(dir, c.model, more->parameters(), 5);
    for (const auto& [name, values] : parts_of(more->parameters(), weights.read, 1 << 20)) {
      const bool added = name.starts_with("mood.");
      EXPECT_EQ(std::ranges::count(weights.added, name) > 0, added) << name;
      if (!added) {
        EXPECT_EQ(values, std::vector<float>(values.size(), value)) << name;
      }
    }
    EXPECT_EQ(weights.provenance, R"({"x":1})");
    EXPECT_THROW(inference::open_initial_weights(dir, c.model, more->parameters()), Error);
    EXPECT_TRUE(inference::check_initial_weights(dir, c.model, more->parameters()).empty());
  };
  write("model/", ones);
  expect_all(path(1), 1);
  write("ema/", twos);
  expect_all(path(2), 2);
}

// Rows and columns of a rank, in pieces that cut them, are those of the whole.
TEST(InitialWeights, OfARankAreItsSlices) {
  for (const char* name : {"llama_5", "gpt2_4", "bert_1"}) {
    const std::string path = kWithHeads + name;
    const config::Config c = inference::checkpoint_config(path, {});
    const auto whole = models::make_model(c, comm::single_mesh());
    const Parts all =
        parts_of(whole->parameters(),
                 inference::open_initial_weights(path, c.model, whole->parameters()).read, 1 << 20);
    int columns = 0, rows = 0;
    for (const int rank : {0, 1}) {
      const auto half = models::make_model(c, comm::Mesh(comm::Layout(1, 2), rank));
      const auto weights = inference::open_initial_weights(path, c.model, half->parameters());
      for (const std::int64_t piece : {std::int64_t{5}, std::int64_t{1} << 20}) {
        const Parts mine = parts_of(half->parameters(), weights.read, piece);
        for (const nn::PartSlice& p : half->parameters().slices()) {
          const std::int64_t width = p.full.rank() > 1 ? p.full[1] : 1;
          std::vector<float> expected;
          for (std::int64_t at = 0; at < p.full.elements(); ++at) {
            const std::int64_t place = p.axis == 1 ? at % width : at / width;
            if (p.axis < 0 || (place >= p.begin && place < p.end))
              expected.push_back(all.at(p.name)[static_cast<std::size_t>(at)]);
          }
          EXPECT_EQ(mine.at(p.name), expected) << name << " " << p.name;
          (p.axis == 1 ? columns : rows) += p.axis >= 0;
        }
      }
    }
    EXPECT_TRUE(columns > 0 && rows > 0) << name;
  }
}

}  // namespace
}  // namespace tfm
