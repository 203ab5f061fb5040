// Token by token with kept keys and values against whole sequences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "core/safetensors.h"
#include "models/registry.h"
#include "train/translator.h"

namespace tfm {
namespace {

constexpr std::int64_t kVocabulary = 37;

Config config_of(const std::string& model) {
  const bool pairs = model.find("encoder_decoder") != std::string::npos;
  Config c = parse_config("model: {" + model + ", vocab_size: 37, d_model: 32, n_layers: 2, n_heads: 4, d_ff: 64, max_seq_len: 16, init_std: 0.3}\n"
                          "train: {seq_len: 16, global_batch_size: 4}\ndata: {train: {type: " +
                              (pairs ? "pairs, source: a, target: b" : std::string("tokens, path: a.bin")) + "}, tokenizer: bytes}\n",
                          "test", {});
  resolve_for_ranks(c, 1);
  return c;
}

class Generated : public testing::TestWithParam<std::string> {
 protected:
  std::vector<std::int32_t> random(std::int64_t n) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
    for (auto& id : ids) id = static_cast<std::int32_t>(random_() % kVocabulary);
    return ids;
  }
  std::mt19937 random_{7};
};

// Four sequences of twelve tokens, two to a source; after six tokens they change places as beams do, then three come at once.
TEST_P(Generated, EqualsWholeSequences) {
  const Config config = config_of(GetParam());
  const auto model = make_model(config, single_mesh());
  std::vector<double> flat(static_cast<std::size_t>(model->parameters().flat_elements()));
  model->parameters().initialize(3, flat.data(), 1);
  constexpr std::int64_t sequences = 4, beams = 2, length = 12, source_length = 8, half = length / 2, together = 3;
  std::vector<std::int32_t> ids = random(sequences * length), source = random(sequences / beams * source_length), mask(source.size(), 0);
  std::fill(mask.begin() + 5, mask.begin() + source_length, -1);
  std::vector<std::int32_t> source_twice, mask_twice;
  for (std::int64_t s = 0; s < sequences; ++s)
    for (std::int64_t i = 0; i < source_length; ++i) {
      source_twice.push_back(source[static_cast<std::size_t>(s / beams * source_length + i)]);
      mask_twice.push_back(mask[static_cast<std::size_t>(s / beams * source_length + i)]);
    }

  const BatchShape step{.sequences = sequences, .length = together, .source_length = config.model.translates() ? source_length : 0,
                        .capacity = 16, .beams = beams};
  Generation generation(*model, single_mesh(), flat.data(), step, kVocabulary, 1, DType::f64);
  Inference inference(*model, single_mesh(), flat.data(), {.sequences = sequences, .length = length, .source_length = source_length}, kVocabulary, 1,
                      DType::f64);
  const std::vector<std::int64_t> parents{1, 1, 3, 2};
  const auto compare = [&](std::int64_t from, std::int64_t to, std::int64_t tokens) {
    inference.run({{"ids", ids}, {"source_ids", source_twice}, {"source_mask", mask_twice}});
    for (std::int64_t t = from + tokens - 1; t < to; t += tokens) {
      std::vector<std::int32_t> next;
      for (std::int64_t s = 0; s < sequences; ++s)
        next.insert(next.end(), ids.begin() + s * length + t + 1 - tokens, ids.begin() + s * length + t + 1);
      generation.step(next);
      for (std::int64_t s = 0; s < sequences; ++s) {
        const std::vector<double> whole = inference.row(s * length + t);
        for (std::int64_t id = 0; id < kVocabulary; ++id)
          ASSERT_NEAR(generation.logits()[static_cast<std::size_t>(s * kVocabulary + id)], whole[static_cast<std::size_t>(id)], 1e-10) << s << " " << t;
      }
    }
  };
  generation.start({{"source_ids", source}, {"source_mask", mask}});
  compare(0, half, 1);
  const std::vector<std::int32_t> before = ids;
  for (std::int64_t s = 0; s < sequences; ++s)
    std::copy_n(before.begin() + parents[static_cast<std::size_t>(s)] * length, half, ids.begin() + s * length);
  generation.reorder(parents);
  compare(half, half + together, together);
  compare(half + together, length, 1);
}

INSTANTIATE_TEST_SUITE_P(Models, Generated,
                         testing::Values("family: decoder, position: learned, position_offset: 2", "family: decoder, position: sinusoidal, n_kv_heads: 2",
                                         "family: decoder, position: rope, norm: rmsnorm, activation: swiglu, n_kv_heads: 1",
                                         "family: decoder, position: alibi", "family: decoder, position: relative", "family: decoder, position: none",
                                         "family: encoder_decoder, position: sinusoidal, norm_position: post, activation: relu",
                                         "family: encoder_decoder, position: relative, n_kv_heads: 2",
                                         "family: encoder_decoder, position: learned, tie_embeddings: none",
                                         "family: encoder_decoder, position: rope", "family: encoder_decoder, position: alibi"),
                         [](const auto& info) {
                           std::string name;
                           for (const char c : info.param) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(Score, IsThatOfTheLogits) {
  const Config config = config_of("family: decoder");
  const auto model = make_model(config, single_mesh());
  std::vector<float> flat(static_cast<std::size_t>(model->parameters().flat_elements()));
  model->parameters().initialize(3, flat.data(), 1);
  Inference inference(*model, single_mesh(), flat.data(), {.sequences = 2, .length = 5}, kVocabulary, 1);
  std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, labels{-1, 36, 0, 4, -1, 1, -1, 2, 3, 0};
  inference.run({{"ids", ids}});
  Inference::Score expected;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    const auto x = inference.row(static_cast<std::int64_t>(r));
    const auto best = static_cast<std::int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
    if (r % 4 == 0) labels[r] = best;
    if (labels[r] < 0) continue;
    double sum = 0;
    for (const double v : x) sum += std::exp(v);
    expected.loss += std::log(sum) - x[static_cast<std::size_t>(labels[r])];
    ++expected.labels;
    expected.correct += labels[r] == best;
  }
  const Inference::Score s = inference.score(labels);
  EXPECT_NEAR(s.loss, expected.loss, 1e-9);
  EXPECT_EQ(s.labels, expected.labels);
  EXPECT_EQ(s.correct, expected.correct);
}

// Against the transformers library: tests/fixtures/make_generated.py.
class Library : public testing::TestWithParam<std::string> {};

TEST_P(Library, GivesTheSameTokens) {
  const SafetensorsReader file(std::string(TFM_SOURCE_DIR) + "/tests/fixtures/generated/" + GetParam() + ".safetensors");
  const auto numbers = [&]<class T>(const std::string& name, T) {
    const auto bytes = file.bytes(name);
    std::vector<T> v(bytes.size() / sizeof(T));
    std::memcpy(v.data(), bytes.data(), bytes.size());
    return v;
  };
  const auto ids = [&](const std::string& name) {
    const auto wide = numbers(name, std::int64_t{});
    return std::vector<std::int32_t>(wide.begin(), wide.end());
  };
  const auto given = nlohmann::json::parse(file.metadata().at("config"));
  const nlohmann::json settings{{"model", given["model"]}, {"train", {{"seq_len", 16}}},
                                {"data", {{"train", {{"type", "pairs"}, {"source", "a"}, {"target", "b"}}}}}};
  Config config = parse_config(settings.dump(), "fixture", {});
  resolve_for_ranks(config, 1);
  const auto model = make_model(config, single_mesh());
  std::vector<double> flat(static_cast<std::size_t>(model->parameters().flat_elements()));
  for (const PartSlice& p : model->parameters().slices()) {
    const auto whole = numbers(p.name, float{});
    ParameterSet::scatter(p, std::vector<double>(whole.begin(), whole.end()).data(), flat.data());
  }
  auto source = ids("source_ids"), mask = ids("source_mask");
  const std::int64_t sentences = file.tensors().at("source_ids").shape[0], length = std::ssize(source) / sentences, tokens = given["max_tokens"];
  int compared = 0;
  for (const auto& [name, info] : file.tensors()) {
    if (!name.starts_with("beam.")) continue;
    const std::int64_t beams = name[5] - '0';
    const BeamOptions options{.beams = beams, .length_penalty = std::stod(name.substr(7)), .end = given["end"], .max_tokens = tokens};
    std::vector<BeamSearch> searches(static_cast<std::size_t>(sentences), BeamSearch(options, given["begin"]));
    Generation generation(*model, single_mesh(), flat.data(),
                          {.sequences = sentences * beams, .length = 1, .source_length = length, .capacity = tokens, .beams = beams}, 13, 1, DType::f64);
    generation.start({{"source_ids", source}, {"source_mask", mask}});
    search(generation, searches);
    const auto expected = ids(name);
    for (std::size_t i = 0; i < searches.size(); ++i, ++compared) {
      std::vector<std::int32_t> padded = searches[i].best();
      padded.resize(static_cast<std::size_t>(tokens), -1);
      EXPECT_TRUE(std::equal(padded.begin(), padded.end(), expected.begin() + static_cast<std::ptrdiff_t>(i) * tokens)) << name << " " << i;
    }
  }
  EXPECT_EQ(compared, 9 * sentences);
}

INSTANTIATE_TEST_SUITE_P(Models, Library, testing::Values("t5", "bart", "marian"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tfm
