// What ZeRO shares out, and over how many replicas, changes no bit of a step of one micro-batch, or
// with deterministic numerics, and of others nothing but the order in which gradients are added up.
#include "support/weights.h"
#include "turns.h"

namespace tfm {
namespace {

using test::job;

const std::vector<test::ModelCase> kFamilies{
    {"family: decoder, n_layers: 2, n_kv_heads: 8, position: rope, norm: rmsnorm, activation: "
     "swiglu, bias: false, tie_embeddings: false, dropout: {attention: 0.3}",
     "type: tokens"},
    {"family: encoder, n_layers: 2, norm_position: post, embedding_norm: true, type_vocab_size: 2, "
     "head_transform: true, next_sentence: true, head_bias: true, dropout: 0.1",
     "type: mlm, next_sentence: true"},
    {"family: encoder_decoder, n_encoder_layers: 2, n_decoder_layers: 1, n_kv_heads: 8, position: "
     "relative, relative: {buckets: 8, max_distance: 12}, norm: rmsnorm, bias: false, dropout: 0.1",
     "type: pairs"},
    {"family: decoder, n_layers: 4, n_kv_heads: 8, position: rope, dropout: 0.1, layers: [a, b], "
     "layer_kinds: {a: {}, b: {d_ff: 72, activation: geglu, bias: false, position: none}}",
     "type: tokens"},
};

constexpr int kMicroBatches = 4;

int steps() { return job().size() > 4 ? 3 : job().size() > 2 ? 5 : 20; }

train::Engine engine_of(const test::ModelCase& model, const comm::Layout& layout,
                        const std::string& precision, int zero, int replicas, int micro_batches,
                        const std::string& numerics = "default",
                        const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides{
      "precision=" + precision,
      "parallel.zero=" + std::to_string(zero),
      "parallel.replicas=" + std::to_string(replicas),
      "numerics=" + numerics,
      "optimizer.ema=0.5",
      "train.global_batch_size=" + std::to_string(kMicroBatches * layout.size(comm::kData)),
      "train.micro_batch_size=" + std::to_string(kMicroBatches / micro_batches)};
  overrides.insert(overrides.end(), more.begin(), more.end());
  const config::Config c = test::config_of(model, layout, overrides);
  train::Engine e(plan::make_step_plan(c, test::mesh_of(config::layout_of(c))), 1);
  EXPECT_EQ(e.arena_high_water(), e.plan().memory.total());
  e.initialize_parameters();
  return e;
}

std::string name_of(const test::ModelCase& model, const comm::Layout& layout,
                    const std::string& precision, int zero, int replicas) {
  return model.model + ", " + precision + " on " + layout.str() + ", ZeRO " + std::to_string(zero) +
         ", " + std::to_string(replicas) + " replicas";
}

// Losses and norms of a run, and this rank's parameters at its end.
std::pair<std::vector<double>, std::vector<std::byte>> trained(train::Engine e, int steps) {
  std::vector<double> losses;
  for (int step = 1; step <= steps; ++step) {
    const train::StepResult r = test::train_step(e, step, 1e-2, test::fill_documents);
    losses.insert(losses.end(), {r.loss, r.grad_norm});
  }
  e.swap_average();
  losses.push_back(test::evaluate(e, e.plan().shapes[0].batch, test::fill_documents).mean());
  e.swap_average();
  std::vector<std::byte> parameters;
  const auto whole = e.whole_parameters();
  const auto element = size_of(e.plan().dtype);
  for (const nn::PartSlice& p : e.model().parameters().slices())
    parameters.insert(parameters.end(), whole.get() + p.offset * element,
                      whole.get() + (p.offset + p.elements()) * element);
  return {losses, parameters};
}

// On a layout, every stage of `stages` and number of replicas against no sharding.
void expect_same_bits(const test::ModelCase& model, const comm::Layout& layout,
                      const std::string& precision, const std::vector<int>& stages,
                      int micro_batches, const std::string& numerics) {
  const int most = layout.size(comm::kData) == job().size() ? steps() : 2;
  const auto run = [&](int zero, int replicas) {
    return trained(engine_of(model, layout, precision, zero, replicas, micro_batches, numerics),
                   most);
  };
  const auto none = run(0, 1);
  for (const int zero : stages)
    for (const int replicas : {1, 2}) {
      if (layout.size(comm::kData) % replicas != 0) continue;
      const auto shared = run(zero, replicas);
      const std::string where = name_of(model, layout, precision, zero, replicas);
      EXPECT_EQ(shared.first, none.first) << where;
      EXPECT_TRUE(shared.second == none.second) << where;
    }
}

// f(model, precision, layout); on many ranks, data ranks alone in fp32 and the others in bf16.
template <class F>
void each_case(F&& f) {
  for (const test::ModelCase& model : kFamilies)
    for (const std::string precision : {"fp32", "bf16"})
      for (const comm::Layout& layout : test::layouts()) {
        const int data = layout.size(comm::kData);
        if (job().size() > 2 && data == 1) continue;  // as on two ranks
        if (job().size() <= 4 || (precision == "fp32") == (data == job().size()))
          f(model, precision, layout);
      }
}

TEST(Zero, ChangesNoBitOfAStepOfOneMicroBatch) {
  each_case([](const auto& model, const std::string& precision, const comm::Layout& layout) {
    expect_same_bits(model, layout, precision, {1, 2, 3}, 1, "default");
    expect_same_bits(model, layout, precision, {1}, kMicroBatches, "default");
  });
}

TEST(Zero, ChangesNoBitWithDeterministicNumerics) {
  each_case([](const auto& model, const std::string& precision, const comm::Layout& layout) {
    expect_same_bits(model, layout, precision, {1, 2, 3}, kMicroBatches, "deterministic");
  });
  if (job().size() == 4)
    for (const test::ModelCase& model : kFamilies)
      expect_same_bits(model, comm::Layout({.data = 2, .pipeline = 2}), "bf16", {1, 2, 3},
                       kMicroBatches, "deterministic");
}

// Of widths that are no multiples of a vector's, so that ranks' shares end inside of rows.
TEST(Zero, ChangesNoBitOfMuon) {
  const test::ModelCase decoder{"family: decoder, n_layers: 2, n_kv_heads: 3, d_head: 6",
                                "type: tokens"};
  const comm::Layout layout({.data = job().size()});
  const auto run = [&](int zero) {
    return trained(
        engine_of(decoder, layout, "fp32", zero, 1, 1, "default",
                  {"optimizer.type=muon", "model.d_model=49", "model.n_heads=6", "model.d_ff=12"}),
        steps());
  };
  const auto none = run(0);
  for (const int zero : {1, 2, 3}) EXPECT_TRUE(run(zero) == none) << zero;
}

// Of all that this rank updates.
double error_of(train::Engine& e, const std::vector<std::vector<float>>& expected) {
  double difference = 0, norm = 0;
  for (const optim::PartRange& r : e.optimizer().shards().parts) {
    std::vector<float> w(static_cast<std::size_t>(r.count()));
    e.optimizer().get_weights(e.device().stream(), e.flat(), r, 0, r.count(), w.data());
    const float* x = expected[static_cast<std::size_t>(r.part)].data() + r.first;
    for (std::int64_t i = 0; i < r.count(); ++i) {
      const double d = static_cast<double>(w[i]) - x[i];
      difference += d * d, norm += static_cast<double>(x[i]) * x[i];
    }
  }
  return std::sqrt(difference / norm);
}

// In bf16 a sum that differs in its last bit may round a weight to the next number, which changes
// all that follows by more than the order of sums: there every step starts from the same weights.
TEST(Zero, AddsUpMicroBatchesToRounding) {
  const comm::Layout layout({.data = job().size()});
  for (const test::ModelCase& model : kFamilies)
    for (const std::string precision : {"fp32", "bf16"})
      for (const int zero : {2, 3})
        for (const int replicas : {1, 2}) {
          if (job().size() % replicas != 0) continue;
          const std::string where = name_of(model, layout, precision, zero, replicas);
          train::Engine plain = engine_of(model, layout, precision, 0, 1, kMicroBatches),
                        shared = engine_of(model, layout, precision, zero, replicas, kMicroBatches);
          for (int step = 1; step <= steps(); ++step) {
            const auto before = test::weights_of(plain);
            if (precision == "bf16")
              shared.set_weights([&](const nn::PartSlice& slice, std::int64_t first,
                                     std::int64_t count, void* out) {
                const auto part =
                    static_cast<std::size_t>(&slice - shared.model().parameters().slices().data());
                std::copy_n(before[part].begin() + first, count, static_cast<float*>(out));
              });
            const train::StepResult expected =
                                        test::train_step(plain, step, 1e-3, test::fill_documents),
                                    r = test::train_step(shared, step, 1e-3, test::fill_documents);
            EXPECT_NEAR(r.loss, expected.loss, 1e-6 * expected.loss) << where << ", step " << step;
            EXPECT_NEAR(r.grad_norm, expected.grad_norm, 1e-6 * expected.grad_norm) << where;
            EXPECT_LE(error_of(shared, test::weights_of(plain)), 1e-6)
                << where << ", step " << step;
          }
        }
}

}  // namespace
}  // namespace tfm
