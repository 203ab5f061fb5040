// The engine: memory known exactly before launch, no allocation inside a step, reference parameter
// counts, recompute's bits.
#include <dnnl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include "models/registry.h"
#include "plan/run_memory.h"
#include "support/batch.h"
#include "train/engine.h"

namespace {
std::atomic<std::int64_t> allocations{0};
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t n) {
  ++allocations;
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(n ? n : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace tfm {
namespace {

config::Config config_with(const std::string& model,
                           const std::vector<std::string>& overrides = {}) {
  const bool encoder = model.find("bert") != model.npos;
  const bool pairs = model.find("t5") != model.npos || model.find("bart") != model.npos ||
                     model.find("transformer") != model.npos;
  const std::string family = encoder || pairs ? "" : "family: decoder, ";
  config::Config c = config::parse_config("model: {" + family + model + "}\ndata: {train: {type: " +
                                              (encoder ? "mlm"
                                               : pairs ? "pairs"
                                                       : "tokens") +
                                              ", path: none.bin}}\n",
                                          "test", overrides);
  config::resolve_for_ranks(c, 1);
  return c;
}

const test::FillBatch kBatch = [](std::int64_t first, std::int64_t, const BatchFields& fields) {
  const auto ids = fields.at(Field::ids), labels = fields.at(Field::labels);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>((static_cast<std::size_t>(first) * 7 + i * 13) % 61);
    labels[i] = static_cast<std::int32_t>((i * 29 + 3) % 61);
  }
};

std::string random_model(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<const char*> list) {
    return std::string(*(list.begin() + random() % list.size()));
  };
  const int heads = 1 + static_cast<int>(random() % 4),
            head = 2 * (1 + static_cast<int>(random() % 5));
  const int kv = heads % 2 == 0 && random() % 2 ? heads / 2 : heads;
  return "vocab_size: " + std::to_string(61 + random() % 50) +
         ", d_model: " + std::to_string(2 * (3 + random() % 14)) +
         ", n_layers: " + std::to_string(1 + random() % 3) + ", n_heads: " + std::to_string(heads) +
         ", n_kv_heads: " + std::to_string(kv) + ", d_head: " + std::to_string(head) +
         ", d_ff: " + std::to_string(3 + random() % 40) +
         ", position: " + pick({"learned", "sinusoidal", "rope", "alibi", "none"}) +
         ", norm: " + pick({"layernorm", "rmsnorm"}) + ", norm_position: " + pick({"pre", "post"}) +
         ", activation: " + pick({"relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"}) +
         ", bias: " + pick({"true", "false"}) + ", tie_embeddings: " + pick({"true", "false"}) +
         ", dropout: " + pick({"0.0", "0.2"});
}

TEST(Engine, PlannedMemoryIsTheHighWaterMarkInFiftyRandomConfigurations) {
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    const std::string model = random_model(random);
    std::vector<train::StepResult> results;
    for (const char* recompute : {"none", "selective", "full"}) {
      const config::Config c = config_with(
          model, {std::string("recompute=") + recompute, "train.seq_len=12",
                  "train.global_batch_size=4", "train.micro_batch_size=2",
                  "optimizer.type=" + config::word(static_cast<config::OptimizerType>(i % 6))});
      plan::StepPlan plan = plan::make_step_plan(c, comm::single_mesh());
      const std::int64_t planned = plan.memory.total();
      train::Engine engine(std::move(plan), 1);
      EXPECT_EQ(engine.arena_high_water(), planned) << model;
      engine.initialize_parameters();
      test::train_step(engine, 1, 1e-3, kBatch);
      results.push_back(test::train_step(engine, 2, 1e-3, kBatch));
      EXPECT_TRUE(std::isfinite(results.back().loss)) << model;
      EXPECT_EQ(results.back().loss, results.front().loss) << recompute << ": " << model;
      EXPECT_EQ(results.back().grad_norm, results.front().grad_norm) << recompute << ": " << model;
    }
  }
}

// In a step of one micro-batch: until gradients are written, and not what lies between them.
TEST(Engine, ActivationsUseTheMemoryOfGradients) {
  const std::string model = "n_layers: 4, d_model: 72, n_heads: 3, d_ff: 200, vocab_size: 61";
  const auto engine_of = [&](int micro_batches) {
    train::Engine e(plan::make_step_plan(config_with(model, {"train.seq_len=16",
                                                             "train.global_batch_size=" +
                                                                 std::to_string(4 * micro_batches),
                                                             "train.micro_batch_size=4"}),
                                         comm::single_mesh()),
                    2);
    e.initialize_parameters();
    return e;
  };
  const auto activations = [](const train::Engine& e) {
    return e.plan().memory.categories.at(plan::kActivations);
  };
  train::Engine clean = engine_of(1), e = engine_of(1);
  const auto gradients = e.plan().memory.categories.at(plan::kGradients);
  EXPECT_LE(activations(e) + gradients / 2, activations(engine_of(2)));

  const nn::ParameterSet& parameters = e.model().parameters();
  std::vector<bool> written(static_cast<std::size_t>(parameters.flat_elements()));
  for (int i = 0; i < parameters.size(); ++i) {
    const Tensor g = e.optimizer().gradient(e.flat(), i);
    std::fill_n(g.ptr<float>(), g.elements(), std::nanf(""));
    std::fill_n(written.begin() + parameters.offset(i), g.elements(), true);
  }
  std::ranges::fill(e.idle_memory(), std::byte{0xff});
  const train::StepResult expected = test::train_step(clean, 1, 1e-3, kBatch),
                          r = test::train_step(e, 1, 1e-3, kBatch);
  EXPECT_EQ(r.loss, expected.loss);
  EXPECT_EQ(r.grad_norm, expected.grad_norm);
  std::int64_t between = 0;
  for (std::size_t i = 0; i < written.size(); ++i)
    if (!written[i]) {
      ++between;
      EXPECT_EQ(static_cast<const float*>(e.flat().gradients)[i], 0) << i;
    }
  EXPECT_GT(between, 0);
}

TEST(Engine, RecomputeSavesMemory) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const auto activations = [&](const std::string& recompute, const std::string& layers = "auto") {
      const config::Config c = config_with(
          "preset: gpt2-124m, dropout: 0.1",
          {"precision=" + precision, "recompute=" + recompute, "recompute_layers=" + layers,
           "train.micro_batch_size=4", "train.seq_len=256"});
      return plan::make_step_plan(c, comm::single_mesh()).largest().train_program.arena_bytes();
    };
    EXPECT_LT(activations("selective"), activations("none"));
    EXPECT_LT(activations("full"), activations("selective") / 2);
    for (const char* recompute : {"selective", "full"}) {
      std::int64_t before = activations("none");
      for (int layers = 1; layers <= 12; ++layers) {
        const std::int64_t bytes = activations(recompute, std::to_string(layers));
        EXPECT_LT(bytes, before) << precision << ", " << recompute << " in " << layers;
        before = bytes;
      }
      EXPECT_EQ(before, activations(recompute));
    }
  }
}

TEST(Engine, AStepAllocatesNothing) {
  if (dnnl_version()->major > 2) GTEST_SKIP() << "oneDNN 3 allocates memory in each product";
  const config::Config c =
      config_with("vocab_size: 64, d_model: 32, n_layers: 2, n_heads: 4, dropout: 0.1",
                  {"train.seq_len=16", "train.global_batch_size=4", "train.micro_batch_size=2",
                   "recompute=selective"});
  train::Engine engine(plan::make_step_plan(c, comm::single_mesh()), 1);
  engine.initialize_parameters();
  std::vector<std::int32_t> ids(4 * 16), labels(ids.size());
  const Batch batch{.sequences = 4, .fields = {{Field::ids, ids}, {Field::labels, labels}}};
  kBatch(0, 4, batch.fields);
  for (int s = 1; s <= 2; ++s) engine.train_step(s, 1e-3, batch);
  const std::int64_t before = allocations;
  for (int s = 3; s <= 10; ++s) engine.train_step(s, 1e-3, batch);
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace tfm
