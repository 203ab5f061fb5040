// Every family against independent implementations (tests/fixtures/make_decoder.py,
// make_models.py): logits, loss, every gradient, 20 steps.
#include <gtest/gtest.h>

#include <set>

#include "data/batch_shapes.h"
#include "inference/inference.h"
#include "kernels/scratch.h"
#include "support/batch.h"
#include "support/model_fixture.h"

namespace tfm {
namespace {

using test::Fixture;
using test::kFixtures;
using test::names_in;
using test::norm;

class ModelFixture : public testing::TestWithParam<std::string> {};

TEST_P(ModelFixture, LogitsLossAndGradients) {
  const Fixture f(GetParam());
  train::Engine engine(plan::make_step_plan(f.config(), comm::single_mesh(), DType::f32, f.shape),
                       2);
  f.load_parameters(engine);
  auto inputs = f.inputs(engine.plan().largest().training);
  const train::StepResult r = test::compute_gradients(
      engine, 1, [&](std::int64_t, std::int64_t, const BatchFields& fields) {
        for (auto& [name, to] : fields)
          std::copy(inputs.at(name).begin(), inputs.at(name).end(), to.begin());
      });
  const double loss = f.get<float>("loss")[0];
  EXPECT_NEAR(r.loss, loss, 1e-6 * std::abs(loss) + 1e-6);
  const auto* grads = static_cast<const float*>(engine.flat().gradients);
  // A gradient that is zero in exact arithmetic (a key's bias, anything before the softmax of one
  // key) is rounding noise.
  const double noise = 2e-7 * r.grad_norm;
  for (const nn::PartSlice& p : engine.model().parameters().slices()) {
    const auto expected = f.get<float>("grad." + p.name);
    ASSERT_EQ(static_cast<std::int64_t>(expected.size()), p.elements()) << p.name;
    std::vector<float> difference(expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      difference[i] = grads[p.offset + static_cast<std::int64_t>(i)] - expected[i];
    EXPECT_LE(norm(difference), 1e-4 * norm(expected) + noise) << p.name;
  }

  inference::Inference inference(engine.model(), engine.rank_context(),
                                 {engine.model().parameters(), engine.flat().parameters}, f.shape,
                                 f.config().model.vocab_size);
  BatchFields fields;
  for (auto& [name, values] : inputs) fields[name] = values;
  inference.run(fields);
  const auto logits = f.get<float>("logits");
  double worst = 0, largest = 0;
  for (std::size_t row = 0; row < inputs.at(Field::ids).size(); ++row) {
    const auto got = inference.row(static_cast<std::int64_t>(row));
    for (std::size_t v = 0; v < got.size(); ++v) {
      const auto expected = static_cast<double>(logits[row * got.size() + v]);
      worst = std::max(worst, std::abs(got[v] - expected));
      largest = std::max(largest, std::abs(expected));
    }
  }
  EXPECT_LE(worst, 2e-5 * std::max(1.0, largest / 5));  // rounding grows with the logits
}
std::string file_name(const testing::TestParamInfo<std::string>& info) {
  return std::filesystem::path(info.param).filename().string();
}
INSTANTIATE_TEST_SUITE_P(Decoders, ModelFixture, testing::ValuesIn(names_in("decoder")), file_name);
INSTANTIATE_TEST_SUITE_P(Families, ModelFixture, testing::ValuesIn(names_in("models")), file_name);

// What a recording says of padding is in the plan of its attention's scratch memory.
TEST(RightPadding, IsKnownToEveryAttention) {
  for (const std::string family : {"encoder", "encoder_decoder"})
    for (const bool right_padded : {true, false}) {
      config::Config c = config::parse_config(
          "model: {family: " + family +
              ", vocab_size: 64, d_model: 128, n_layers: 1, n_heads: 2, "
              "max_seq_len: 64, dropout: 0}\ndata: {train: {type: " +
              (family == "encoder" ? "mlm" : "pairs") +
              ", path: none.bin}}\ntrain: {seq_len: 64, global_batch_size: 2, steps: 1}\n",
          "test", {});
      config::resolve_for_ranks(c, 1);
      nn::BatchShape shape = data::batch_shapes(c).at(0);
      EXPECT_TRUE(shape.right_padded);
      shape.right_padded = right_padded;
      const auto model = models::make_model(c, comm::single_mesh());
      const nn::Recording rec = model->record_loss(shape, DType::bf16, true);
      std::multiset<std::int64_t> found, wanted;
      for (const graph::Node& node : rec.tape->nodes())
        if (node.op->kind() == "attention")
          found.insert(node.op->scratch_bytes(graph::Phase::forward, DType::bf16));
      kernels::AttentionExtents a{2, 2, 2, 64, 64, 64};
      a.segments = true, a.lengths = right_padded;
      wanted.insert(kernels::attention_scratch(a, 2));
      if (family == "encoder_decoder") {
        wanted.insert(kernels::attention_scratch(a, 2));  // cross-attention
        wanted.insert(kernels::attention_scratch({2, 2, 2, 64, 64, 64, Visibility::causal()}, 2));
      }
      EXPECT_EQ(found, wanted) << family;
    }
}

// A model that knows positions by their distance alone, or whose positions restart with each
// document, says of documents in one sequence what it says of each alone.
TEST(Documents, ApartInASequenceAreAsAlone) {
  const std::vector<std::int64_t> lengths{5, 9, 1, 10, 7};
  const std::int64_t total = 32;
  for (const std::string position :
       {"rope", "alibi", "learned", "sinusoidal",
        "relative, relative: {buckets: 8, max_distance: 12}", "none",
        "none, attention: {type: gated_delta, key_heads: 2}", "none, attention: {type: mamba2}",
        "none, attention: {type: linear}"}) {
    config::Config c = config::parse_config(
        "model: {family: decoder, vocab_size: 60, d_model: 32, n_layers: 3, n_heads: 4, "
        "position: " +
            position +
            "}\n"
            "data: {restart_positions: true, train: {type: tokens, path: none.bin, documents: "
            "separate}}\n",
        "test", {"train.seq_len=32", "train.global_batch_size=1", "model.init_std=0.3"});
    config::resolve_for_ranks(c, 1);
    std::vector<std::int32_t> ids, labels, documents;
    for (std::size_t d = 0; d < lengths.size(); ++d)
      for (std::int64_t t = 0; t < lengths[d]; ++t) {
        ids.push_back(
            static_cast<std::int32_t>((d * 17 + static_cast<std::size_t>(t * t) * 7) % 60));
        labels.push_back(
            t + 1 == lengths[d]
                ? -1
                : static_cast<std::int32_t>((d * 5 + static_cast<std::size_t>(t) * 11) % 60));
        documents.push_back(static_cast<std::int32_t>(d));
      }
    ASSERT_EQ(std::ssize(ids), total);
    const auto loss = [&](train::Engine& engine, std::int64_t first, std::int64_t count) {
      engine.initialize_parameters();
      const auto copy = [&](const std::vector<std::int32_t>& from, const BatchFields& fields,
                            Field field) {
        if (const auto to = fields.find(field); to != fields.end())
          std::copy_n(from.begin() + first, count, to->second.begin());
      };
      return test::evaluate(engine, 1,
                            [&](std::int64_t, std::int64_t, const BatchFields& f) {
                              copy(ids, f, Field::ids), copy(labels, f, Field::labels),
                                  copy(documents, f, Field::mask);
                            })
          .loss[0];
    };
    train::Engine packed(plan::make_step_plan(c, comm::single_mesh()), 1);
    double alone = 0;
    std::int64_t first = 0;
    for (const std::int64_t length : lengths) {
      train::Engine one(plan::make_step_plan(c, comm::single_mesh(), DType::f32,
                                             nn::BatchShape{.sequences = 1, .length = length}),
                        1);
      alone += loss(one, first, length);
      first += length;
    }
    EXPECT_NEAR(loss(packed, 0, total), alone, 1e-6 * alone) << position;
    const nn::BatchShape joined{.sequences = 1, .length = total};
    train::Engine whole(plan::make_step_plan(c, comm::single_mesh(), DType::f32, joined), 1);
    EXPECT_GT(std::abs(loss(whole, 0, total) - alone), 1e-4 * alone) << position;
  }
}

class StepsFixture : public testing::TestWithParam<std::string> {};

TEST_P(StepsFixture, TwentySteps) {
  const Fixture f(GetParam());
  train::Engine engine(plan::make_step_plan(f.config(), comm::single_mesh()), 2);
  f.load_parameters(engine);
  const auto tokens = f.get<std::int64_t>("tokens");
  const auto losses = f.get<double>("losses"), norms = f.get<double>("grad_norms"),
             lrs = f.get<double>("lrs");
  const std::int64_t T = f.config().train.seq_len, G = f.config().train.global_batch_size;
  const optim::Schedule schedule = plan::schedule_of(f.config());
  for (std::int64_t s = 1; s <= 20; ++s) {
    EXPECT_NEAR(schedule.at(s), lrs[s - 1], 1e-12) << "step " << s;
    const train::StepResult r =
        test::train_step(engine, s, schedule.at(s),
                         [&](std::int64_t first, std::int64_t count, const BatchFields& fields) {
                           const auto in = fields.at(Field::ids), out = fields.at(Field::labels);
                           for (std::int64_t i = 0; i < count * T; ++i) {
                             const std::int64_t at = ((s - 1) * G + first) * T + i;
                             in[i] = static_cast<std::int32_t>(tokens[at]);
                             out[i] = static_cast<std::int32_t>(tokens[at + 1]);
                           }
                         });
    EXPECT_NEAR(r.loss, losses[s - 1], 1e-5 * losses[s - 1]) << "step " << s;
    EXPECT_NEAR(r.grad_norm, norms[s - 1], 1e-4 * norms[s - 1]) << "step " << s;
  }
  const auto* flat = static_cast<const float*>(engine.flat().parameters);
  for (const nn::PartSlice& p : engine.model().parameters().slices()) {
    // Softmax does not change when all scores of a row shift: without rotation a key's bias has
    // gradient zero, and Adam turns the sign of rounding noise into whole steps, in every
    // implementation.
    if (p.name.ends_with("key.bias") && f.config().model.position != config::Position::rope)
      continue;
    const auto expected = f.get<float>("final." + p.name);
    std::vector<float> difference(expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      difference[i] = flat[p.offset + static_cast<std::int64_t>(i)] - expected[i];
    EXPECT_LE(norm(difference), 1e-4 * norm(expected)) << p.name;
  }
}
INSTANTIATE_TEST_SUITE_P(All, StepsFixture, testing::ValuesIn(names_in("decoder_steps")),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).filename().string();
                         });

}  // namespace
}  // namespace tfm
