// Token by token with kept keys and values against whole sequences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "inference/text_generator.h"
#include "inference/translator.h"
#include "io/safetensors.h"
#include "models/registry.h"
#include "support/batch.h"
#include "train/engine.h"

namespace tfm {
namespace {

constexpr std::int64_t kVocabulary = 37;
const comm::RankContext kSite{device::Device::cpu(1), comm::single_mesh(), comm::single_mesh()};

config::Config config_of(const std::string& model) {
  const bool pairs = model.find("encoder_decoder") != std::string::npos;
  config::Config c = config::parse_config(
      "model: {" + model +
          ", vocab_size: 37, d_model: 32, n_layers: 2, n_heads: 4, d_ff: 64, max_seq_len: 16, "
          "init_std: 0.3}\n"
          "train: {seq_len: 16, global_batch_size: 4}\ndata: {train: {type: " +
          (pairs                                      ? std::string("pairs, source: a, target: b")
           : model.find("prefix: true") != model.npos ? "prefix_lm, path: a.bin"
                                                      : "tokens, path: a.bin") +
          "}, tokenizer: bytes}\n",
      "test", {});
  config::resolve_for_ranks(c, 1);
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

// Four sequences of twelve tokens, two to a source; after six tokens they change places as beams
// do, then three come at once.
TEST_P(Generated, EqualsWholeSequences) {
  const config::Config config = config_of(GetParam());
  const auto model = models::make_model(config, comm::single_mesh());
  std::vector<double> flat(static_cast<std::size_t>(model->parameters().flat_elements()));
  model->parameters().initialize(3, flat.data(), 1);
  constexpr std::int64_t sequences = 4, beams = 2, length = 12, source_length = 8,
                         half = length / 2, together = 3;
  std::vector<std::int32_t> ids = random(sequences * length),
                            source = random(sequences / beams * source_length),
                            mask(source.size(), 0);
  std::fill(mask.begin() + 5, mask.begin() + source_length, -1);
  std::vector<std::int32_t> source_twice, mask_twice;
  for (std::int64_t s = 0; s < sequences; ++s)
    for (std::int64_t i = 0; i < source_length; ++i) {
      source_twice.push_back(source[static_cast<std::size_t>(s / beams * source_length + i)]);
      mask_twice.push_back(mask[static_cast<std::size_t>(s / beams * source_length + i)]);
    }

  const nn::BatchShape step{.sequences = sequences,
                            .length = together,
                            .source_length = config.model.translates() ? source_length : 0,
                            .capacity = 16,
                            .beams = beams};
  inference::Generation generation(*model, kSite, {model->parameters(), flat.data(), DType::f64},
                                   step, kVocabulary);
  inference::Inference inference(
      *model, kSite, {model->parameters(), flat.data(), DType::f64},
      {.sequences = sequences, .length = length, .source_length = source_length}, kVocabulary);
  const std::vector<std::int64_t> parents{1, 1, 3, 2};
  const auto compare = [&](std::int64_t from, std::int64_t to, std::int64_t tokens) {
    inference.run(
        {{Field::ids, ids}, {Field::source_ids, source_twice}, {Field::source_mask, mask_twice}});
    for (std::int64_t t = from + tokens - 1; t < to; t += tokens) {
      std::vector<std::int32_t> next;
      for (std::int64_t s = 0; s < sequences; ++s)
        next.insert(next.end(), ids.begin() + s * length + t + 1 - tokens,
                    ids.begin() + s * length + t + 1);
      generation.step(next);
      for (std::int64_t s = 0; s < sequences; ++s) {
        const std::vector<double> whole = inference.row(s * length + t);
        for (std::int64_t id = 0; id < kVocabulary; ++id)
          ASSERT_NEAR(generation.logits()[static_cast<std::size_t>(s * kVocabulary + id)],
                      whole[static_cast<std::size_t>(id)], 1e-10)
              << s << " " << t;
      }
    }
  };
  generation.start({{Field::source_ids, source}, {Field::source_mask, mask}});
  compare(0, half, 1);
  const std::vector<std::int32_t> before = ids;
  for (std::int64_t s = 0; s < sequences; ++s)
    std::copy_n(before.begin() + parents[static_cast<std::size_t>(s)] * length, half,
                ids.begin() + s * length);
  generation.reorder(parents);
  compare(half, half + together, together);
  compare(half + together, length, 1);
}

// y (B, 2): the id before, and this one, which `last` (B, 1) keeps.
struct Remember final : graph::Op {
  enum In { ids, last };
  enum Out { y };
  std::string_view kind() const override { return "remember"; }
  graph::Saved saved() const override { return {}; }
  void forward(graph::Exec& e) const override {
    for (std::int64_t b = 0; b < e.in(ids).elements(); ++b) {
      double &kept = e.in(last).ptr<double>()[b], *const row = e.out(y).ptr<double>() + 2 * b;
      row[0] = kept;
      row[1] = kept = e.in(ids).ptr<std::int32_t>()[b];
    }
  }
  void backward(graph::Exec&) const override { FAIL() << "forward only"; }
};

// A model whose only state is one row for each sequence.
class Memory final : public nn::Model {
 public:
  Memory() : parameters_(comm::Layout(), 0) { parameters_.finish(); }
  const nn::ParameterSet& parameters() const override { return parameters_; }
  nn::Recording record_loss(const nn::BatchShape& shape, DType dtype, bool) const override {
    return {shape, dtype};
  }
  nn::Recording record_logits(const nn::BatchShape& shape, DType dtype,
                              std::string_view) const override {
    return {shape, dtype};
  }
  nn::Recording record_encoder(const nn::BatchShape& shape, DType dtype) const override {
    return {shape, dtype};
  }
  nn::Recording record_decode(const nn::BatchShape& shape, DType dtype) const override {
    nn::Recording rec(shape, dtype);
    const graph::Value ids = rec.input(Field::ids);
    const auto states = rec.add_states({{nn::StateSpec::Kind::fixed, 1}});
    rec.logits = rec.tape->apply(std::make_unique<Remember>(), {ids, states.front()},
                                 {{{shape.sequences, 2}, dtype, false}});
    return rec;
  }

 private:
  nn::ParameterSet parameters_;
};

TEST(Generation, MovesFixedStatesWithTheirBeamsAndClearsThem) {
  const Memory model;
  double none = 0;
  inference::Generation g(model, kSite, {model.parameters(), &none, DType::f64},
                          {.sequences = 4, .length = 1, .capacity = 8, .beams = 4}, 2);
  const auto before = [&](std::vector<std::int32_t> ids) {
    g.step(ids);
    std::vector<double> kept;
    for (std::size_t b = 0; b < ids.size(); ++b) kept.push_back(g.logits()[2 * b]);
    return kept;
  };
  g.start();
  EXPECT_EQ(before({1, 2, 3, 4}), (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(before({5, 6, 7, 8}), (std::vector<double>{1, 2, 3, 4}));
  g.reorder(std::vector<std::int64_t>{1, 0, 2, 1});
  EXPECT_EQ(before({9, 9, 9, 9}), (std::vector<double>{6, 5, 7, 6}));
  g.start();
  EXPECT_EQ(before({1, 2, 3, 4}), (std::vector<double>{0, 0, 0, 0}));
}

INSTANTIATE_TEST_SUITE_P(
    Models, Generated,
    testing::Values(
        "family: decoder, position: learned, position_offset: 2",
        "family: decoder, position: sinusoidal, n_kv_heads: 2",
        "family: decoder, position: rope, norm: rmsnorm, activation: swiglu, n_kv_heads: 1",
        "family: decoder, position: alibi, attention: {window: 2, strided: {step: 3, reach: 6}}",
        "family: decoder, position: relative", "family: decoder, position: none",
        "family: decoder, position: alibi, layers: [a, b], layer_kinds: {a: {attention: {window: "
        "1}}, b: {attention: {window: 5}}}",
        "family: decoder, position: rope, n_kv_heads: 2, attention: {window: 5, global_tokens: 2}",
        "family: decoder, position: rope, attention: {window: 3}, rope: {scaling: {type: longrope, "
        "original_max_seq_len: 8}}, longrope: {short_factor: [1, 1, 1, 1], long_factor: [1, 2, 2, "
        "3]}",
        "family: decoder, position: relative, layers: [a, b], layer_kinds: {a: {attention: "
        "{window: 3}}, b: {attention: {blocks: {size: 2, random: 1}}}}",
        "family: encoder_decoder, position: alibi, attention: {window: 4, "
        "global_tokens: 1}",
        "family: decoder, position: rope, attention: {type: latent, kv_rank: 12}",
        "family: decoder, position: rope, d_head: 12, attention: {type: latent, q_rank: 10, "
        "kv_rank: 7, rope_size: 6, value_size: 5, window: 4}, experts: {count: 6, top_k: 2, "
        "router: sigmoid, groups: 3, top_groups: 2, balance: {type: bias}}",
        "family: encoder_decoder, position: rope, attention: {type: latent, q_rank: 8}",
        "family: decoder, position: none, attention: {type: gated_delta}",
        "family: decoder, position: none, attention: {type: mamba2}",
        "family: decoder, position: none, attention: {type: linear}",
        "family: encoder_decoder, position: sinusoidal, attention: {type: linear}",
        "family: decoder, position: rope, norm: rmsnorm, bias: false, layers: [a, b], layer_kinds: "
        "{a: {position: none, attention: {type: gated_delta, key_heads: 2, value_size: 12, "
        "convolution: 3}}, b: {}}",
        "family: decoder, position: rope, norm: rmsnorm, layers: [a, b], layer_kinds: {a: "
        "{position: "
        "none, attention: {type: mamba2, key_heads: 2, value_size: 12, convolution: 3}}, b: {}}",
        "family: encoder_decoder, position: sinusoidal, encoder_layers: [a], decoder_layers: [b], "
        "layer_kinds: {a: {}, b: {attention: {type: gated_delta, value_size: 4}}}",
        "family: encoder_decoder, position: rope, norm: rmsnorm, norm_position: inner, qk_norm: "
        "whole, n_kv_heads: 2",
        "family: decoder, position: rope, norm: rmsnorm, norm_position: both, norm_plus_one: true, "
        "softcap: 0.5, layers: [a, b], layer_kinds: {a: {attention: {window: 3, softcap: 0.5}}, b: "
        "{attention: {softcap: 2, query_scalar: 3}}}",
        "family: encoder_decoder, position: relative, softcap: 0.5, attention: {softcap: 0.5}",
        "family: decoder, position: rope, bias: false, activation: swiglu, experts: {count: 5, "
        "top_k: 3, d_ff: 16, shared: 1, shared_gate: true}",
        "family: encoder_decoder, position: relative, experts: {count: 4, top_k: 1, every: 2, "
        "router: sigmoid}",
        "family: decoder, position: rope, layers: [a, b], layer_kinds: {a: {n_kv_heads: 2, rope: "
        "{theta: 100}}, b: {position: alibi, qk_norm: true, norm: rmsnorm}}",
        "family: encoder_decoder, position: sinusoidal, norm_position: post, activation: relu",
        "family: encoder_decoder, position: relative, n_kv_heads: 2",
        "family: encoder_decoder, position: learned, tie_embeddings: none",
        "family: encoder_decoder, position: rope", "family: encoder_decoder, position: alibi"),
    [](const auto& info) {
      std::string name;
      for (const char c : info.param) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

TEST(Generation, OfWindowsKeepsWhatTheyReach) {
  const auto bytes = [](const std::string& attention, std::int64_t capacity) {
    const auto model = models::make_model(
        config_of("family: decoder, position: rope, attention: " + attention), comm::single_mesh());
    return inference::Generation::bytes(*model, {.sequences = 1, .length = 1, .capacity = capacity},
                                        DType::f64);
  };
  EXPECT_EQ(bytes("{window: 9}", 18), bytes("{window: 9}", 1 << 16));
  EXPECT_LT(bytes("{window: 9}", 12), bytes("{window: 9}", 18));
  EXPECT_LT(bytes("{window: 9, global_tokens: 1}", 18), bytes("{window: 9, global_tokens: 1}", 24));
}

// Texts of a model of random weights, from 5 tokens on past its context of 16.
class Texts : public testing::Test {
 protected:
  static constexpr std::int64_t kContext = 16, kTokens = 40;
  Texts() : flat_(static_cast<std::size_t>(model_->parameters().flat_elements())) {
    model_->parameters().initialize(3, flat_.data(), 1);
  }
  inference::Weights weights() { return {model_->parameters(), flat_.data(), DType::f64}; }
  std::vector<std::int32_t> text(const inference::SamplerOptions& options,
                                 const std::vector<std::int32_t>& ends = {}) {
    inference::TextGenerator generator(*model_, kSite, weights(), kVocabulary, kContext,
                                       kPrompt.size() + kTokens);
    inference::Sampler sampler(options);
    std::vector<std::int32_t> ids = kPrompt, told;
    generator.generate(ids, kTokens, sampler, ends, [&](std::int32_t id) { told.push_back(id); });
    ids.erase(ids.begin(), ids.begin() + std::ssize(kPrompt));
    std::vector<std::int32_t> expected = ids;
    if (!ids.empty() && std::ranges::count(ends, ids.back()) > 0) expected.pop_back();
    EXPECT_EQ(told, expected);
    return ids;
  }
  // The same by reading the whole window anew for each token.
  template <class Draw>
  std::vector<std::int32_t> reference(const Draw& draw) {
    std::vector<std::int32_t> ids = kPrompt;
    for (std::uint32_t n = 0; n < kTokens; ++n) {
      const auto length = std::min<std::int64_t>(std::ssize(ids), kContext);
      inference::Inference whole(*model_, kSite, weights(), {.sequences = 1, .length = length},
                                 kVocabulary);
      whole.run({{Field::ids, std::span(ids).last(static_cast<std::size_t>(length))}});
      ids.push_back(draw(whole.row(length - 1), n));
    }
    return {ids.begin() + std::ssize(kPrompt), ids.end()};
  }
  const std::vector<std::int32_t> kPrompt{3, 1, 4, 1, 5};
  const config::Config config_ = config_of("family: decoder, position: rope");
  const std::unique_ptr<nn::Model> model_ = models::make_model(config_, comm::single_mesh());
  std::vector<double> flat_;
};

// The prompt is read as one, within the context and past it.
TEST(PrefixTexts, AreThoseOfReadingTheWholeAnew) {
  const config::Config config =
      config_of("family: decoder, position: rope, attention: {prefix: true}");
  const auto model = models::make_model(config, comm::single_mesh());
  std::vector<double> flat(static_cast<std::size_t>(model->parameters().flat_elements()));
  model->parameters().initialize(3, flat.data(), 1);
  const inference::Weights weights{model->parameters(), flat.data(), DType::f64};
  std::vector<std::int32_t> ids{3, 1, 4, 1, 5, 9, 2};
  inference::TextGenerator generator(*model, kSite, weights, kVocabulary, 16, 7 + 20, 7);
  for (int n = 0; n < 20; ++n) {
    const auto length = std::min<std::int64_t>(std::ssize(ids), 16),
               gone = std::ssize(ids) - length;
    std::vector<std::int32_t> prefix{
        static_cast<std::int32_t>(std::max<std::int64_t>(0, 7 - gone))};
    inference::Inference whole(*model, kSite, weights, {.sequences = 1, .length = length},
                               kVocabulary);
    const auto window = std::span(ids).last(static_cast<std::size_t>(length));
    whole.run({{Field::ids, window}, {Field::prefix, prefix}});
    const std::vector<double> expected = whole.row(length - 1), got = generator.logits(ids);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << n;
    if (n == 0) {
      prefix[0] = 0;
      whole.run({{Field::ids, window}, {Field::prefix, prefix}});
      EXPECT_GT(std::abs(whole.row(length - 1)[0] - expected[0]), 1e-6) << "by the causal mask";
    }
    ids.push_back(static_cast<std::int32_t>(std::ranges::max_element(got) - got.begin()));
  }
}

TEST_F(Texts, GreedyOnesTakeTheMostLikelyToken) {
  const auto greedy = reference([](const std::vector<double>& logits, std::uint32_t) {
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) -
                                     logits.begin());
  });
  EXPECT_EQ(text({.temperature = 0}), greedy);
  for (const std::uint64_t seed : {1, 2}) EXPECT_EQ(text({.top_k = 1, .seed = seed}), greedy);
}

TEST_F(Texts, AreAFunctionOfTheSeed) {
  const auto drawn = text({.seed = 5});
  EXPECT_EQ(text({.seed = 5}), drawn);
  EXPECT_NE(text({.seed = 6}), drawn);
  const inference::Sampler sampler({.seed = 5});
  EXPECT_EQ(reference([&](const auto& logits, std::uint32_t n) { return sampler.pick(logits, n); }),
            drawn);
}

TEST_F(Texts, DrawEachTokenAnew) {
  std::ranges::fill(flat_, 0);  // all tokens are equally likely
  const auto drawn = text({.seed = 5});
  EXPECT_GT(std::set(drawn.begin(), drawn.end()).size(), 15u);  // of 40 draws of 37 tokens
}

TEST_F(Texts, StopBehindTheEnd) {
  const auto whole = text({.seed = 5});
  const auto end = std::find(whole.begin(), whole.end(), whole[9]);
  EXPECT_EQ(text({.seed = 5}, {kVocabulary, *end}), (std::vector(whole.begin(), end + 1)));
  EXPECT_EQ(text({.seed = 5}, {kVocabulary}), whole);
}

// Without label smoothing, whatever training has; the output layer is repeated, so that each logit
// has an equal one.
TEST(Score, IsThatOfTheLogits) {
  config::Config config = config_of("family: decoder");
  config.loss.label_smoothing = 0.3;
  config.train.global_batch_size = config.train.micro_batch_size = 2;
  config.train.seq_len = 5;
  train::Engine engine(plan::make_step_plan(config, comm::single_mesh()), 1);
  engine.initialize_parameters();
  const nn::ParameterSet& parameters = engine.model().parameters();
  auto* flat = static_cast<float*>(engine.flat().parameters);
  for (const nn::PartSlice& p : parameters.slices())
    if (p.name == "embedding.weight")
      std::copy_n(flat + p.offset, 18 * config.model.d_model,
                  flat + p.offset + 18 * config.model.d_model);
  inference::Inference inference(engine.model(), kSite, {parameters, flat},
                                 {.sequences = 2, .length = 5}, kVocabulary);
  std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
      labels{-1, 36, 0, 4, -1, 1, -1, 2, 3, 0};
  inference.run({{Field::ids, ids}});
  double loss = 0;
  std::int64_t counted = 0, correct = 0;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    const auto x = inference.row(static_cast<std::int64_t>(r));
    const auto best = static_cast<std::int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
    ASSERT_LT(best, 36);
    const auto twin = (best + 18) % 36;  // products may round its logit in another way
    EXPECT_TRUE(best < twin ||
                x[static_cast<std::size_t>(best)] > x[static_cast<std::size_t>(twin)])
        << "the first of two";
    if (r == 1) labels[r] = twin;
    if (r % 4 == 0) labels[r] = best;
    if (labels[r] < 0) continue;
    double sum = 0;
    for (const double v : x) sum += std::exp(v);
    loss += std::log(sum) - x[static_cast<std::size_t>(labels[r])];
    ++counted;
    correct += labels[r] == best;
  }
  const inference::Totals t = test::evaluate(
      engine, 2, [&](std::int64_t first, std::int64_t count, const BatchFields& fields) {
        std::copy_n(ids.begin() + first * 5, count * 5, fields.at(Field::ids).begin());
        std::copy_n(labels.begin() + first * 5, count * 5, fields.at(Field::labels).begin());
      });
  EXPECT_NEAR(t.loss[0], loss, 1e-5);
  EXPECT_EQ(t.labels[0], counted);
  EXPECT_EQ(t.correct[0], correct);
  EXPECT_GE(correct, 3);
}

// In memory that training plans for, and that it leaves as training left it.
TEST(Translations, AreTheSameInIdleMemory) {
  const std::string text =
      "model: {family: encoder_decoder, vocab_size: 300, d_model: 16, n_layers: 2, n_heads: 2, "
      "max_seq_len: 150, init_std: 0.3}\n"
      "train: {seq_len: 8, global_batch_size: 1}\neval: {every: 1, metrics: bleu, beam: 9}\n"
      "data: {train: {type: pairs, source: a, target: b}, validation: {type: pairs, source: a, "
      "target: b}}\n";
  config::Config config = config::parse_config(text, "test", {});
  config::resolve_for_ranks(config, 1);
  plan::StepPlan plan = plan::make_step_plan(config, comm::single_mesh());
  const std::int64_t planned = plan.memory.total();
  train::Engine engine(std::move(plan), 1);
  EXPECT_EQ(engine.arena_high_water(), planned);
  config.eval.metrics.clear();
  EXPECT_LT(plan::make_step_plan(config, comm::single_mesh()).memory.total(), planned)
      << "this test is of translations that need more than training";
  engine.initialize_parameters();
  const auto tokenizer = tokenizer::load_tokenizer("bytes");
  std::vector<std::string> lines;
  for (std::size_t length = 0; length < 160; length += 3)
    lines.emplace_back(length, static_cast<char>('a' + length % 26));
  const auto translate = [&](std::span<std::byte> memory) {
    std::fill(memory.begin(), memory.end(), std::byte{0xff});  // NaN
    return inference::Translator(*engine.plan().translator, config.model, kSite,
                                 {engine.model().parameters(), engine.flat().parameters},
                                 *tokenizer, {.beams = 9}, memory)
        .translate(lines);
  };
  EXPECT_EQ(translate(engine.idle_memory()), translate({}));
}

// Of logits that are all equal, so that the first id is taken until the limit.
TEST(Translations, AreAsLongAsAskedWithRelativePositions) {
  for (const auto& [position, longest] :
       {std::pair{"relative", std::size_t{40}}, {"sinusoidal", std::size_t{16}}}) {
    config::Config config =
        config_of(std::string("family: encoder_decoder, position: ") + position);
    config.model.vocab_size = 300;
    const auto model = models::make_model(config, comm::single_mesh());
    std::vector<float> zeros(static_cast<std::size_t>(model->parameters().flat_elements()));
    const auto tokenizer = tokenizer::load_tokenizer("bytes");
    const auto lengths = [&](std::int64_t max_tokens) {
      std::vector<std::size_t> all;
      inference::Translator translator(*model, config.model, kSite,
                                       {model->parameters(), zeros.data()}, *tokenizer,
                                       {.max_tokens = max_tokens});
      for (const std::string& line : translator.translate({"ab", "abcdefg"}))
        all.push_back(line.size());
      return all;
    };
    EXPECT_EQ(lengths(40), (std::vector{longest, longest})) << position;
    EXPECT_EQ(lengths(0), (std::vector<std::size_t>{16, 16})) << position;
  }
}

// Against the transformers library: tests/fixtures/make_generated.py.
class Library : public testing::TestWithParam<std::string> {};

TEST_P(Library, GivesTheSameTokens) {
  const io::SafetensorsReader file(std::string(TFM_SOURCE_DIR) + "/tests/fixtures/generated/" +
                                   GetParam() + ".safetensors");
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
  const nlohmann::json settings{
      {"model", given["model"]},
      {"train", {{"seq_len", 16}}},
      {"data", {{"train", {{"type", "pairs"}, {"source", "a"}, {"target", "b"}}}}}};
  config::Config config = config::parse_config(settings.dump(), "fixture", {});
  config::resolve_for_ranks(config, 1);
  const auto model = models::make_model(config, comm::single_mesh());
  std::vector<double> flat(static_cast<std::size_t>(model->parameters().flat_elements()));
  for (const nn::PartSlice& p : model->parameters().slices()) {
    const auto whole = numbers(p.name, float{});
    nn::ParameterSet::scatter(p, std::vector<double>(whole.begin(), whole.end()).data(),
                              flat.data());
  }
  auto source = ids("source_ids"), mask = ids("source_mask");
  const std::int64_t sentences = file.tensors().at("source_ids").shape[0],
                     length = std::ssize(source) / sentences, tokens = given["max_tokens"];
  int compared = 0;
  for (const auto& [name, info] : file.tensors()) {
    if (!name.starts_with("beam.")) continue;
    const std::int64_t beams = name[5] - '0';
    const inference::BeamOptions options{.beams = beams,
                                         .length_penalty = std::stod(name.substr(7)),
                                         .end = given["end"],
                                         .max_tokens = tokens};
    std::vector<inference::BeamSearch> searches(static_cast<std::size_t>(sentences),
                                                inference::BeamSearch(options, given["begin"]));
    inference::Generation generation(*model, kSite, {model->parameters(), flat.data(), DType::f64},
                                     {.sequences = sentences * beams,
                                      .length = 1,
                                      .source_length = length,
                                      .capacity = tokens,
                                      .beams = beams},
                                     13);
    generation.start({{Field::source_ids, source}, {Field::source_mask, mask}});
    inference::search(generation, searches);
    const auto expected = ids(name);
    for (std::size_t i = 0; i < searches.size(); ++i, ++compared) {
      std::vector<std::int32_t> padded = searches[i].best();
      padded.resize(static_cast<std::size_t>(tokens), -1);
      EXPECT_TRUE(std::equal(padded.begin(), padded.end(),
                             expected.begin() + static_cast<std::ptrdiff_t>(i) * tokens))
          << name << " " << i;
    }
  }
  EXPECT_EQ(compared, 9 * sentences);
}

INSTANTIATE_TEST_SUITE_P(Models, Library, testing::Values("t5", "bart", "marian"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tfm
