// What sharding must not change: whole configurations on every layout of the job, and the loss over
// a split vocabulary.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "comm/consensus.h"
#include "graph/planner.h"
#include "job.h"
#include "models/registry.h"
#include "ops/losses.h"
#include "support/batch.h"
#include "support/model_fixture.h"
#include "verify/layout.h"

namespace tfm {
namespace {

using test::job;

const std::vector<std::string> kModels{
    "family: decoder, n_layers: 2, n_heads: 8, d_head: 8, d_ff: 32, vocab_size: 101, dropout: 0.2",
    "family: decoder, n_layers: 2, n_heads: 16, n_kv_heads: 8, d_head: 8, d_ff: 40, vocab_size: "
    "97, position: rope, norm: rmsnorm, activation: swiglu, bias: false, "
    "tie_embeddings: false, dropout: {attention: 0.3}",
    "family: decoder, n_layers: 2, n_heads: 8, d_head: 8, d_ff: 24, vocab_size: 50, position: "
    "alibi, norm_position: post, activation: geglu, scale_embeddings: true, "
    "dropout: {embedding: 0.1, residual: 0.2, ffn: 0.3}",
    "family: encoder, n_layers: 2, n_heads: 8, d_head: 8, d_ff: 32, vocab_size: 61, norm_position: "
    "post, embedding_norm: true, type_vocab_size: 2, "
    "head_transform: true, next_sentence: true, head_bias: true, dropout: 0.1",
    "family: encoder_decoder, n_encoder_layers: 2, n_decoder_layers: 1, n_heads: 16, n_kv_heads: "
    "8, d_head: 4, d_ff: 32, vocab_size: 61, "
    "position: relative, relative: {buckets: 8, max_distance: 12}, norm: rmsnorm, bias: false, "
    "scale_attention: false, scale_logits: true, dropout: {residual: 0.1, ffn: 0.1, output: 0.2}",
    "family: encoder_decoder, n_encoder_layers: 1, n_decoder_layers: 2, n_heads: 8, d_head: 8, "
    "d_ff: 32, vocab_size: 50, source_vocab_size: 43, position: sinusoidal, "
    "sinusoid: halves, norm_position: post, scale_embeddings: true, tie_embeddings: decoder, "
    "head_bias: true, dropout: 0.2",
    "family: encoder_decoder, n_layers: 1, n_heads: 8, d_head: 8, d_ff: 32, vocab_size: 50, "
    "position_offset: 2, embedding_norm: true, norm_eps_outside: true, norm_eps: 0.01, "
    "norm_position: post, tie_embeddings: none, dropout: {embedding: 0.2, output: 0.2}",
    "family: decoder, n_layers: 2, n_heads: 16, n_kv_heads: 8, d_head: 8, d_ff: 40, vocab_size: "
    "97, position: rope, norm: rmsnorm, activation: swiglu, bias: false, qkv_bias: true, "
    "qk_norm: true",
    "family: encoder_decoder, n_layers: 1, n_heads: 8, d_head: 8, d_ff: 32, vocab_size: 50, "
    "qk_norm: true, attention: {sinks: true}, dropout: 0.2",
    "family: decoder, n_layers: 2, n_heads: 8, d_head: 6, d_ff: 32, vocab_size: 50, position: "
    "rope, norm: rmsnorm, dropout: 0.1, attention: {type: latent, q_rank: 24, kv_rank: 16, "
    "rope_size: 2, value_size: 6}, layers: [a, b], layer_kinds: {a: {}, b: {qkv_bias: false, "
    "attention: {q_rank: 0, value_size: 3, window: 4}}}",
    "family: decoder, n_layers: 2, n_heads: 16, d_head: 6, d_ff: 32, vocab_size: 50, position: "
    "none, norm: rmsnorm, dropout: {residual: 0.1, ffn: 0.1}, attention: {type: gated_delta, "
    "key_heads: 8, value_size: 4}, layers: [a, b], layer_kinds: {a: {bias: false}, b: {attention: "
    "{key_heads: 16, value_size: 8, convolution: 3}}}",
    "family: decoder, n_layers: 2, n_heads: 16, d_head: 6, d_ff: 32, vocab_size: 50, position: "
    "none, norm: rmsnorm, dropout: {residual: 0.1, ffn: 0.1}, attention: {type: mamba2, key_heads: "
    "8, value_size: 4}, layers: [a, b], layer_kinds: {a: {bias: false}, b: {attention: "
    "{value_size: "
    "0}}}",
    "family: encoder_decoder, n_layers: 1, n_heads: 8, d_head: 6, d_ff: 32, vocab_size: 50, "
    "position: learned, dropout: {residual: 0.1, ffn: 0.1}, attention: {type: linear}",
    "family: encoder_decoder, n_layers: 1, n_heads: 16, n_kv_heads: 8, d_head: 8, d_ff: 32, "
    "vocab_size: 50, norm: rmsnorm, norm_position: inner, qk_norm: whole, dropout: 0.2",
    "family: encoder_decoder, n_layers: 1, n_heads: 16, n_kv_heads: 8, d_head: 8, d_ff: 32, "
    "vocab_size: 50, norm: rmsnorm, norm_position: both, norm_plus_one: true, qk_norm: true, "
    "softcap: 0.5, attention: {softcap: 0.5, query_scalar: 3}, scale_embeddings: rounded, dropout: "
    "0.2",
    "family: decoder, n_layers: 3, n_heads: 8, d_head: 8, d_ff: 32, vocab_size: 50, position: "
    "rope, "
    "dropout: 0.1, layers: [a, b, c], layer_kinds: {a: {}, b: {n_heads: 16, n_kv_heads: 8, d_ff: "
    "64, activation: swiglu, rope: {theta: 100}}, c: {position: none, norm: rmsnorm, bias: false, "
    "attention: {window: 3, strided: {step: 4}}}}",
    "family: encoder, n_layers: 3, n_heads: 8, d_head: 8, d_ff: 32, vocab_size: 50, norm_position: "
    "post, dropout: 0.1, layers: [a, b], layer_kinds: {a: {d_ff: 48, activation: relu, attention: "
    "{blocks: {size: 3, random: 1}}}, b: "
    "{position: rope, norm_position: pre, dropout: {ffn: 0}, attention: {window: 5, global_tokens: "
    "2, global_projections: true}}}",
    "family: encoder_decoder, n_layers: 2, n_heads: 8, d_head: 8, d_ff: 32, vocab_size: 50, "
    "position: relative, dropout: 0.1, encoder_layers: [a], decoder_layers: [a, b], layer_kinds: "
    "{a: {activation: relu, attention: {window: 4}}, b: {d_ff: 64, d_head: 4, norm: rmsnorm, "
    "position: none}}",
};
// The objective that fits the family.
std::string data_of(const std::string& model) {
  const bool pairs = model.find("encoder_decoder") != model.npos,
             mlm = model.find("family: encoder,") != model.npos;
  const bool documents = mlm || (!pairs && model.find("position: ") != model.npos);  // of some
  return std::string("data: {train: {type: ") +
         (model.find("tie_embeddings: none") != model.npos ? "denoise"
          : pairs                                          ? "pairs"
          : mlm                                            ? "mlm"
                                                           : "tokens") +
         ", path: none.bin" + (documents ? ", documents: separate" : "") + "}" +
         (mlm ? ", restart_positions: true" : "") + "}\n";
}

class Layouts : public testing::TestWithParam<std::tuple<std::size_t, bool, int>> {};

TEST_P(Layouts, EqualASingleRank) {
  const auto [model, sequence, zero] = GetParam();
  if ((job().size() > 2 && (zero == 1 || zero == 2)) ||
      (job().size() > 4 && sequence != (zero == 3)))
    GTEST_SKIP() << "a part of the configurations on many ranks";
  for (const comm::Layout& layout : test::layouts()) {
    if (job().size() == 4 && ((sequence && layout[comm::Axis::tensor] == 1) ||
                              (zero > 0 && layout.size(comm::kData) == 1)))
      continue;  // groups of one: two ranks have them
    config::Config config = config::parse_config(
        "model: {d_model: 64, " + kModels[model] + "}\n" + data_of(kModels[model]), "test",
        {"parallel.tensor=" + std::to_string(layout[comm::Axis::tensor]),
         "loss.label_smoothing=0.1",
         std::string("parallel.sequence=") + (sequence ? "true" : "false"),
         "parallel.zero=" + std::to_string(zero), "train.seq_len=16",
         "train.global_batch_size=" + std::to_string(layout.size(comm::kData)),
         "recompute=selective"});
    config::resolve_for_ranks(config, job().size());
    const comm::Mesh mesh = test::mesh_of(layout);
    for (const verify::Finding& f :
         verify::verify_layout(verify::shrink(config), mesh, device::Device::cpu(1)))
      EXPECT_TRUE(f.ok()) << layout.str() << ": " << f.check << " " << f.worst << " " << f.error;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Layouts,
                         testing::Combine(testing::Range<std::size_t>(0, kModels.size()),
                                          testing::Bool(), testing::Range(0, 4)));

// Models computed by an independent program, wherever their sizes divide by the ranks of a layout.
TEST(ModelFixtures, LossAndGradientsOnEveryLayout) {
  int compared = 0;
  for (const std::string folder : {"models", "decoder"})
    for (const std::string& name : test::names_in(folder)) {
      for (const comm::Layout& layout : test::layouts()) {
        const test::Fixture alone(name);
        const config::ModelConfig& m = alone.config().model;
        const std::int64_t rows = alone.shape.length * alone.shape.sequences /
                                  layout.size(comm::kData),
                           source = alone.shape.source_length * alone.shape.sequences /
                                    layout.size(comm::kData);
        if (alone.shape.sequences % layout.size(comm::kData) ||
            m.n_heads % layout[comm::Axis::tensor] || m.n_kv_heads % layout[comm::Axis::tensor] ||
            m.attention.key_heads % layout[comm::Axis::tensor] ||
            m.d_ff % layout[comm::Axis::tensor])
          continue;
        const bool sequence =
            rows % layout[comm::Axis::tensor] == 0 && source % layout[comm::Axis::tensor] == 0;
        const test::Fixture f(
            name,
            {"parallel.tensor=" + std::to_string(layout[comm::Axis::tensor]),
             std::string("parallel.sequence=") + (sequence ? "true" : "false"),
             "train.micro_batch_size=" +
                 std::to_string(alone.shape.sequences / layout.size(comm::kData))},
            job().size());
        nn::BatchShape part = f.shape;
        part.sequences /= layout.size(comm::kData);
        const comm::Mesh mesh = test::mesh_of(layout);
        train::Engine engine(plan::make_step_plan(f.config(), mesh, DType::f32, part), 1);
        f.load_parameters(engine);
        auto inputs = f.inputs(engine.plan().largest().training);
        const train::StepResult r = test::compute_gradients(
            engine, 1, [&](std::int64_t first, std::int64_t count, const BatchFields& fields) {
              for (auto& [field, to] : fields) {
                const auto width =
                    static_cast<std::int64_t>(inputs.at(field).size()) / f.shape.sequences;
                std::copy_n(inputs.at(field).begin() + first * width, count * width, to.begin());
              }
            });
        const std::string where = name + " on " + layout.str();
        const double loss = f.get<float>("loss")[0];
        EXPECT_NEAR(r.loss, loss, 1e-6 * std::abs(loss) + 1e-6) << where;
        for (nn::PartSlice p : engine.model().parameters().slices()) {
          const auto expected = f.get<float>("grad." + p.name);
          const float* gradient = static_cast<const float*>(engine.flat().gradients) + p.offset;
          p.offset = 0;
          std::vector<float> difference(static_cast<std::size_t>(p.elements()));
          nn::ParameterSet::scatter(p, expected.data(), difference.data());
          for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= gradient[i];
          EXPECT_LE(test::norm(difference), 1e-4 * test::norm(expected) + 2e-7 * r.grad_norm)
              << where << ": " << p.name;
        }
        ++compared;
      }
    }
  RecordProperty("compared", compared);
  EXPECT_GE(compared, job().size() <= 2   ? 80
                      : job().size() == 4 ? 30
                                          : 10)
      << "too few fixtures divide by these layouts";
}

// 16-bit numbers: another layout changes only the rounding of sums.
TEST(Precision, HalvesTrainOnEveryLayout) {
  for (const std::string precision : {"bf16", "fp16"})
    for (const comm::Layout& layout : test::layouts()) {
      std::vector<double> losses[3];
      for (int run = 0; run < 3; ++run) {  // alone, then ZeRO 0 and 3
        config::Config c = config::parse_config(
            "model: {d_model: 64, " + kModels[1] + "}\n" + data_of(kModels[1]), "test",
            {"parallel.tensor=" + std::to_string(run == 0 ? 1 : layout[comm::Axis::tensor]),
             "parallel.zero=" + std::to_string(run == 2 ? 3 : 0), "precision=" + precision,
             "train.seq_len=16", "train.global_batch_size=8", "optimizer.ema=0.5"});
        config::resolve_for_ranks(c, run == 0 ? 1 : job().size());
        train::Engine e(
            plan::make_step_plan(c, run == 0 ? comm::single_mesh() : test::mesh_of(layout)), 1);
        e.initialize_parameters();
        const test::FillBatch read = [](std::int64_t first, std::int64_t count,
                                        const BatchFields& f) {
          const auto width = static_cast<std::int64_t>(f.at(Field::ids).size()) / count;
          for (std::int64_t i = 0; i < count * width; ++i)
            for (const Field field : {Field::ids, Field::labels})
              f.at(field)[static_cast<std::size_t>(i)] =
                  static_cast<std::int32_t>((first * width + i) * 7 % 97);
        };
        for (int step = 1; step <= 5; ++step)
          losses[run].push_back(test::train_step(e, step, 1e-2, read).loss);
        e.swap_average();
        losses[run].push_back(test::evaluate(e, 8, read).mean());
      }
      EXPECT_EQ(losses[1], losses[2]) << precision << ": ZeRO on " << layout.str();
      for (std::size_t i = 0; i < losses[0].size(); ++i)
        EXPECT_NEAR(losses[1][i], losses[0][i], 0.01 * losses[0][i])
            << precision << " on " << layout.str();
    }
}

TEST(Devices, ARankKnowsWhetherItsGpuIsItsOwn) {
  const comm::Mesh mesh = test::mesh_of({job().size(), 1});
  const std::string rank = std::to_string(job().rank());
  const auto is = [](const comm::GpuSharing& p, bool one_node, bool own_gpus) {
    return p.one_node == one_node && p.own_gpus == own_gpus;
  };
  const bool alone = job().size() == 1;
  EXPECT_TRUE(is(comm::gpu_sharing(mesh.world(), "a", rank), true, true));
  EXPECT_TRUE(is(comm::gpu_sharing(mesh.world(), "a", "0"), true, alone));
  EXPECT_TRUE(is(comm::gpu_sharing(mesh.world(), "a", std::to_string(std::max(1, job().rank()))),
                 true, alone))
      << "ranks 0 and 1 share one";
  EXPECT_TRUE(is(comm::gpu_sharing(mesh.world(), "a" + rank, "0"), alone, true))
      << "equal names on different nodes";
}

#ifndef TFM_CUDA
TEST(Devices, NcclIsRefusedWhereItIsNotBuiltIn) {
  static char anywhere;
  device::Device device(std::shared_ptr<cuda::Stream>(std::shared_ptr<void>(),
                                                      reinterpret_cast<cuda::Stream*>(&anywhere)),
                        1);
  try {
    comm::device_mesh(test::mesh_of({job().size(), 1}), device, {.backend = config::Backend::nccl});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::environment);
    EXPECT_NE(std::string(e.what()).find("this build has no NCCL"), std::string::npos);
  }
}

// A device with memory of its own, for which the host's stands: batches, weights and collectives
// take the way through copies.
TEST(Devices, CopiesChangeNothing) {
  for (const std::string precision : {"fp32", "bf16"})
    for (const comm::Layout& layout : test::layouts()) {
      std::vector<double> losses[2];
      for (const bool apart : {false, true}) {
        config::Config c = config::parse_config(
            "model: {d_model: 64, " + kModels[1] + "}\n" + data_of(kModels[1]), "test",
            {"parallel.tensor=" + std::to_string(layout[comm::Axis::tensor]), "parallel.zero=3",
             "precision=" + precision, "train.seq_len=16", "train.global_batch_size=8",
             "optimizer.ema=0.5", std::string("device=") + (apart ? "cuda" : "cpu")});
        config::resolve_for_ranks(c, job().size());
        static char anywhere;
        const std::shared_ptr<cuda::Stream> stream(std::shared_ptr<void>(),
                                                   reinterpret_cast<cuda::Stream*>(&anywhere));
        train::Engine e(plan::make_step_plan(c, test::mesh_of(layout)),
                        apart ? device::Device(stream, 1) : device::Device::cpu(1));
        e.initialize_parameters();
        const test::FillBatch read = [](std::int64_t first, std::int64_t count,
                                        const BatchFields& f) {
          const auto width = static_cast<std::int64_t>(f.at(Field::ids).size()) / count;
          for (std::int64_t i = 0; i < count * width; ++i)
            for (const Field field : {Field::ids, Field::labels})
              f.at(field)[static_cast<std::size_t>(i)] =
                  static_cast<std::int32_t>((first * width + i) * 7 % 97);
        };
        for (int step = 1; step <= 3; ++step)
          losses[apart].push_back(test::train_step(e, step, 1e-2, read).loss);
        e.swap_average();
        losses[apart].push_back(test::evaluate(e, 8, read).mean());
      }
      EXPECT_EQ(losses[0], losses[1]) << precision << " on " << layout.str();
    }
}
#endif

TEST(SplitVocabulary, SmoothedLossAndGradientsEqualTheDenseOnes) {
  // Logits are x w^T with an identity for x, so that w's gradient is the logits'; V divides by no
  // number of ranks but one.
  constexpr std::int64_t kRows = 5, kVocabulary = 13;
  const int ranks = job().size();
  const comm::Mesh mesh = test::mesh_of({1, ranks});
  const std::int64_t share = ceil_div(kVocabulary, ranks);
  const std::int64_t begin = std::min(kVocabulary, share * job().rank()),
                     end = std::min(kVocabulary, begin + share);
  const std::vector<std::int32_t> labels{0, 12, -1, 7, 3};
  for (const double factor : {1.0, 1000.0}) {
    std::mt19937 random(11);
    std::normal_distribution<double> normal(0, factor);
    std::vector<double> logits(kRows * kVocabulary);
    for (double& l : logits) l = static_cast<float>(normal(random));

    auto tape = std::make_shared<graph::Recorder>(DType::f32);
    const graph::Value x = tape->parameter(0, "x", {kRows, kRows}),
                       w = tape->parameter(1, "w", {share, kRows});
    const graph::Value y = tape->input("labels", {kRows}, DType::i32);
    const graph::Value loss = ops::linear_cross_entropy(*tape, x, w, {}, y,
                                                        {.vocab_size = kVocabulary,
                                                         .vocab_begin = begin,
                                                         .vocab_end = end,
                                                         .shards = job().size(),
                                                         .smoothing = 0.1,
                                                         .chunk_rows = 2});
    graph::Program program = graph::plan(tape, {.outputs = {loss}});
    std::vector<float> identity(kRows * kRows), weight(share * kRows), dx(identity.size()),
        dw(weight.size(), 99);
    for (std::int64_t r = 0; r < kRows; ++r) identity[r * kRows + r] = 1;
    for (std::int64_t v = begin; v < end; ++v)
      for (std::int64_t r = 0; r < kRows; ++r)
        weight[(v - begin) * kRows + r] = static_cast<float>(logits[r * kVocabulary + v]);
    graph::Bindings b;
    b.data.resize(tape->values().size());
    b.gradients.resize(tape->values().size());
    b.data[x.id] = {identity.data(), DType::f32, {kRows, kRows}},
    b.gradients[x.id] = {dx.data(), DType::f32, {kRows, kRows}};
    b.data[w.id] = {weight.data(), DType::f32, {share, kRows}},
    b.gradients[w.id] = {dw.data(), DType::f32, {share, kRows}};
    b.data[y.id] = {const_cast<std::int32_t*>(labels.data()), DType::i32, {kRows}};
    std::vector<double> arena(static_cast<std::size_t>(program.arena_bytes() / 8 + 1),
                              std::nan(""));
    program.bind(reinterpret_cast<std::byte*>(arena.data()), b);
    cpu::Stream stream{1};
    program.run({&stream, &mesh, {}});

    double expected = 0;
    for (std::int64_t r = 0; r < kRows; ++r) {
      const double* row = logits.data() + r * kVocabulary;
      double max = row[0], sum = 0, all = 0;
      for (int v = 0; v < kVocabulary; ++v) max = std::max(max, row[v]), all += row[v];
      for (int v = 0; v < kVocabulary; ++v) sum += std::exp(row[v] - max);
      if (labels[r] >= 0)
        expected += std::log(sum) + max - 0.9 * row[labels[r]] - 0.1 / kVocabulary * all;
      for (std::int64_t v = begin; v < begin + share; ++v) {
        const double g = v >= end || labels[r] < 0 ? 0
                                                   : std::exp(row[v] - max) / sum -
                                                         0.9 * (v == labels[r]) - 0.1 / kVocabulary;
        EXPECT_NEAR(dw[(v - begin) * kRows + r], g, 2e-6)
            << "row " << r << " id " << v << " factor " << factor;
        EXPECT_TRUE(v < end || dw[(v - begin) * kRows + r] == 0) << "padding";
      }
    }
    EXPECT_NEAR(*program.value(loss).ptr<double>(), expected, 1e-6 * expected);
    double high = *program.value(loss).ptr<double>(), low = -high;
    mesh.world().all_reduce({&high, DType::f64, {1}}, comm::Collective::all_reduce_max);
    mesh.world().all_reduce({&low, DType::f64, {1}}, comm::Collective::all_reduce_max);
    EXPECT_EQ(high, -low) << "ranks disagree";
  }
}

TEST(SplitVocabulary, AccuracyCountsTheFirstOfEqualLogits) {
  constexpr std::int64_t kRows = 5, kVocabulary = 13;
  const int ranks = job().size();
  const comm::Mesh mesh = test::mesh_of({1, ranks});
  const std::int64_t share = ceil_div(kVocabulary, ranks);
  const std::int64_t begin = std::min(kVocabulary, share * job().rank()),
                     end = std::min(kVocabulary, begin + share);
  // Rows: the first of two; the only one; not counted; the second of two; not the best.
  std::vector<std::int32_t> labels{0, 12, -1, 7, 3};
  const std::vector<std::vector<std::int64_t>> best{{0, 12}, {12}, {1}, {2, 7}, {4}};
  std::vector<float> identity(kRows * kRows), weight(share * kRows);
  for (std::int64_t r = 0; r < kRows; ++r) {
    identity[r * kRows + r] = 1;
    for (const std::int64_t v : best[r])
      if (v >= begin && v < end) weight[(v - begin) * kRows + r] = 5;
  }
  auto tape = std::make_shared<graph::Recorder>(DType::f32);
  const graph::Value x = tape->parameter(0, "x", {kRows, kRows}),
                     w = tape->parameter(1, "w", {share, kRows});
  const graph::Value y = tape->input("labels", {kRows}, DType::i32);
  const graph::Value loss = ops::linear_cross_entropy(*tape, x, w, {}, y,
                                                      {.vocab_size = kVocabulary,
                                                       .vocab_begin = begin,
                                                       .vocab_end = end,
                                                       .shards = job().size(),
                                                       .chunk_rows = 2,
                                                       .accuracy = true});
  const graph::Value correct{loss.id + 1};
  graph::Program program = graph::plan(tape, {.training = false, .outputs = {loss, correct}});
  graph::Bindings b;
  b.data.resize(tape->values().size());
  b.data[x.id] = {identity.data(), DType::f32, {kRows, kRows}};
  b.data[w.id] = {weight.data(), DType::f32, {share, kRows}};
  b.data[y.id] = {labels.data(), DType::i32, {kRows}};
  std::vector<double> arena(static_cast<std::size_t>(program.arena_bytes() / 8 + 1), std::nan(""));
  program.bind(reinterpret_cast<std::byte*>(arena.data()), b);
  cpu::Stream stream{1};
  program.run({&stream, &mesh, {}});
  EXPECT_EQ(*program.value(correct).ptr<double>(), 2);
}

}  // namespace
}  // namespace tfm
