// The collectives that a plan declares are those that the flight recorder sees: kinds, axes, bytes
// and order, of training steps and of evaluations, on every layout of the job's ranks.
#include <gtest/gtest.h>

#include "comm/flight_recorder.h"
#include "job.h"
#include "ops/losses.h"
#include "support/batch.h"
#include "train/engine.h"

namespace tfm {
namespace {

using test::job;

struct Family {
  std::string name, model, data;
};
const std::vector<Family> kFamilies{
    {"Decoder", "family: decoder, n_layers: 1", "type: tokens"},
    {"UntiedDecoder", "family: decoder, n_layers: 1, tie_embeddings: false, bias: false",
     "type: tokens"},
    {"Encoder",
     "family: encoder, n_layers: 1, type_vocab_size: 2, head_transform: true, next_sentence: true",
     "type: mlm, next_sentence: true"},
    {"EncoderDecoder", "family: encoder_decoder, n_layers: 1", "type: pairs"},
};
// Options of layers that could bring collectives of their own.
const std::vector<Family> kMembers{
    {"Llama",
     "family: decoder, n_layers: 2, position: rope, norm: rmsnorm, activation: swiglu, bias: "
     "false, "
     "qk_norm: true, n_kv_heads: 8",
     "type: tokens"},
    {"Bert", "family: encoder, n_layers: 1, norm_position: post", "type: mlm"},
    {"T5",
     "family: encoder_decoder, n_layers: 1, position: relative, norm: rmsnorm, bias: false, "
     "tie_embeddings: false",
     "type: pairs"},
};

config::Config config_of(const Family& f, const comm::Layout& layout,
                         std::vector<std::string> overrides) {
  overrides.insert(overrides.end(),
                   {"parallel.tensor=" + std::to_string(layout[comm::Axis::tensor]),
                    "parallel.bucket_bytes=8Ki", "train.seq_len=8"});
  config::Config config = config::parse_config(
      "model: {" + f.model +
          ", vocab_size: 40, d_model: 32, n_heads: 8, d_ff: 32, dropout: 0.1}\n"
          "data: {train: {" +
          f.data + ", path: none.bin}}\n",
      "test", overrides);
  config::resolve_for_ranks(config, job().size());
  return config;
}

std::string text_of(comm::Collective kind, comm::AxisSet axes, std::int64_t bytes) {
  return std::string(comm::name_of(kind)) + " " + comm::name_of(axes) + " " + std::to_string(bytes);
}

using Lines = std::vector<std::string>;  // one for each call

Lines declared(const std::vector<comm::CollectiveCall>& calls) {
  Lines lines;
  for (const comm::CollectiveCall& c : calls) lines.push_back(text_of(c.kind, c.axes, c.bytes));
  return lines;
}

// What `work` did.
Lines executed(const comm::Mesh& mesh, const std::function<void()>& work) {
  const auto seen = [&] {
    std::uint64_t all = 0;
    for (const std::uint64_t n : mesh.recorder->status(mesh.rank()).entered) all += n;
    return static_cast<std::ptrdiff_t>(all);
  };
  const std::ptrdiff_t before = seen();
  work();
  const std::ptrdiff_t calls = seen() - before;
  const std::vector<comm::Event> events = mesh.recorder->recent(mesh.rank());
  EXPECT_LE(calls, std::ssize(events)) << "more than the recorder remembers";
  Lines lines;
  for (auto e = events.end() - std::min(calls, std::ssize(events)); e != events.end(); ++e)
    lines.push_back(text_of(e->op, e->axes, e->bytes));
  return lines;
}

void fill(std::int64_t, std::int64_t, const BatchFields& fields) {
  for (const auto& [field, values] : fields) {
    const FieldKind kind = info_of(field).kind;
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = kind == FieldKind::mask ? 0
                  : kind == FieldKind::answer || kind == FieldKind::type
                      ? static_cast<std::int32_t>(i % 2)
                      : static_cast<std::int32_t>(i * 7 % 40);
  }
}

// Two steps and an evaluation of each shape; the last evaluation batch is not full.
void expect_declared(const config::Config& config, const comm::Mesh& mesh) {
  train::Engine engine(plan::make_step_plan(config, mesh), 1);
  engine.initialize_parameters();
  for (std::size_t s = 0; s < engine.plan().shapes.size(); ++s) {
    const plan::ShapePlan& shape = engine.plan().shapes[s];
    const std::string where = mesh.layout.str() + ", shape " + std::to_string(s);
    for (std::int64_t step = 1; step <= 2; ++step) {
      const Lines lines = executed(mesh, [&] { test::train_step(engine, step, 1e-3, fill, s); });
      EXPECT_EQ(lines, declared(engine.plan().collectives(shape)))
          << "step " << step << ", " << where;
      EXPECT_EQ(lines.empty(), job().size() == 1);
    }
    const std::int64_t run = shape.shape.sequences * mesh.layout.size(comm::kData);
    for (const std::int64_t runs : {1, 2}) {
      const Lines lines = executed(mesh, [&] { test::evaluate(engine, run * runs, fill, s); });
      EXPECT_EQ(lines, declared(engine.plan().evaluation_collectives(shape, runs * run))) << where;
      EXPECT_EQ(lines.empty(), job().size() == 1);
    }
    const std::int64_t some = run + 1;
    EXPECT_EQ(executed(mesh, [&] { test::evaluate(engine, some, fill, s); }),
              declared(engine.plan().evaluation_collectives(shape, some)))
        << where;
  }
  mesh.world().barrier();
}

class Plan : public testing::TestWithParam<std::tuple<std::size_t, int, std::string, bool, int>> {};

TEST_P(Plan, DeclaresTheCollectivesThatRun) {
  const auto& [family, zero, recompute, sequence, micro_batches] = GetParam();
  if (job().size() > 4 && (recompute != "full" || micro_batches == 1 || zero == 2))
    GTEST_SKIP() << "an eighth of the configurations on many ranks";
  for (const comm::Layout& layout : test::layouts()) {
    const comm::Mesh& mesh = test::mesh_of(layout);
    const config::Config config = config_of(
        kFamilies[family], layout,
        {std::string("parallel.sequence=") + (sequence ? "true" : "false"),
         "parallel.zero=" + std::to_string(zero), "recompute=" + recompute,
         "train.micro_batch_size=1",
         "train.global_batch_size=" + std::to_string(layout.size(comm::kData) * micro_batches)});
    expect_declared(config, mesh);
  }
}

std::string name_of(const testing::TestParamInfo<Plan::ParamType>& info) {
  const auto& [family, zero, recompute, sequence, micro_batches] = info.param;
  return kFamilies[family].name + "_zero" + std::to_string(zero) + "_" + recompute +
         (sequence ? "_sequence_" : "_") + std::to_string(micro_batches);
}

INSTANTIATE_TEST_SUITE_P(Collectives, Plan,
                         testing::Combine(testing::Range<std::size_t>(0, kFamilies.size()),
                                          testing::Range(0, 4),
                                          testing::Values("none", "selective", "full"),
                                          testing::Bool(), testing::Values(1, 3)),
                         name_of);

class PlanOf : public testing::TestWithParam<std::tuple<std::size_t, std::string>> {};

TEST_P(PlanOf, DeclaresTheCollectivesThatRun) {
  const auto& [member, precision] = GetParam();
  if (job().size() > 4 && precision != "bf16") GTEST_SKIP() << "one precision on many ranks";
  for (const comm::Layout& layout : test::layouts())
    expect_declared(
        config_of(kMembers[member], layout,
                  {"precision=" + precision, "parallel.zero=3", "recompute=selective",
                   "parallel.sequence=true", "train.micro_batch_size=2",
                   "train.global_batch_size=" + std::to_string(layout.size(comm::kData) * 4)}),
        test::mesh_of(layout));
}

std::string name_of_member(const testing::TestParamInfo<PlanOf::ParamType>& info) {
  const auto& [member, precision] = info.param;
  return kMembers[member].name + "_" + precision;
}

INSTANTIATE_TEST_SUITE_P(Collectives, PlanOf,
                         testing::Combine(testing::Range<std::size_t>(0, kMembers.size()),
                                          testing::Values("fp32", "bf16", "fp16")),
                         name_of_member);

class PlanOfOptimizer : public testing::TestWithParam<std::tuple<std::string, int, std::string>> {};

TEST_P(PlanOfOptimizer, DeclaresTheCollectivesThatRun) {
  const auto& [type, zero, precision] = GetParam();
  for (const comm::Layout& layout : test::layouts())
    for (const Family& family : {kFamilies[2], kMembers[0]})
      expect_declared(
          config_of(family, layout,
                    {"optimizer.type=" + type, "parallel.zero=" + std::to_string(zero),
                     "precision=" + precision, "train.micro_batch_size=1",
                     "train.global_batch_size=" + std::to_string(layout.size(comm::kData) * 2)}),
          test::mesh_of(layout));
}

INSTANTIATE_TEST_SUITE_P(Collectives, PlanOfOptimizer,
                         testing::Combine(testing::Values("sgd", "lamb", "adafactor", "muon"),
                                          testing::Values(0, 1, 3),
                                          testing::Values("fp32", "bf16")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_zero" +
                                  std::to_string(std::get<1>(info.param)) + "_" +
                                  std::get<2>(info.param);
                         });

TEST(PlanOfBatchesByLength, DeclaresTheCollectivesThatRun) {
  for (const comm::Layout& layout : test::layouts())
    for (const char* zero : {"parallel.zero=0", "parallel.zero=1", "parallel.zero=3"})
      expect_declared(config_of(kFamilies[3], layout,
                                {zero, "train.seq_len=24", "train.global_batch_tokens=48",
                                 "train.micro_batch_size=2"}),
                      test::mesh_of(layout));
}

TEST(PlanOfPipelines, DeclaresTheCollectivesThatRun) {
  for (const comm::Layout& l : test::layouts()) {
    if (l.size(comm::kData) % 2 != 0) continue;
    const comm::Layout layout(
        {.data = l.size(comm::kData) / 2, .tensor = l[comm::Axis::tensor], .pipeline = 2});
    for (const Family& family : {kFamilies[2], kFamilies[3], kMembers[0], kMembers[2]})
      for (const int zero : {0, 1, 2})
        expect_declared(
            config_of(family, layout,
                      {"parallel.pipeline=2", "parallel.zero=" + std::to_string(zero),
                       std::string("parallel.schedule=") + (zero == 1 ? "1f1b" : "interleaved"),
                       "recompute=selective", "train.micro_batch_size=1",
                       zero == 1 ? "optimizer.type=adafactor" : "optimizer.type=adamw",
                       "train.global_batch_size=" + std::to_string(layout.size(comm::kData) * 2),
                       "model.n_layers=4"}),
            test::mesh_of(layout));
  }
}

TEST(PlanOfContexts, DeclaresTheCollectivesThatRun) {
  for (const comm::Layout& l : test::layouts()) {
    if (l.size(comm::kData) % 2 != 0 || job().size() > 4) continue;
    const comm::Layout layout(
        {.data = l.size(comm::kData) / 2, .tensor = l[comm::Axis::tensor], .context = 2});
    for (const Family& family : {kFamilies[2], kFamilies[3]})
      for (const int zero : {0, 1, 3})
        expect_declared(
            config_of(family, layout,
                      {"parallel.context=2",
                       std::string("parallel.context_exchange=") + (zero == 1 ? "gather" : "ring"),
                       "parallel.zero=" + std::to_string(zero), "recompute=selective",
                       "train.micro_batch_size=1",
                       zero == 1 ? "optimizer.type=muon" : "optimizer.type=adamw",
                       "train.global_batch_size=" + std::to_string(layout.size(comm::kData) * 2)}),
            test::mesh_of(layout));
  }
}

TEST(PlanOfReplicas, DeclaresTheCollectivesThatRun) {
  for (const comm::Layout& layout : test::layouts())
    for (const int zero : {1, 2, 3})
      if (const int data = layout.size(comm::kData); data % 2 == 0) {
        const config::Config c = config_of(
            kFamilies[1], layout,
            {"parallel.replicas=2", "parallel.zero=" + std::to_string(zero),
             "train.micro_batch_size=1", "train.global_batch_size=" + std::to_string(data * 2)});
        expect_declared(c, test::mesh_of(config::layout_of(c)));
      }
}

// A loss that exchanges its sums once a chunk: the last chunk has fewer rows.
TEST(PlanOfChunks, DeclaresTheCollectivesThatRun) {
  constexpr std::int64_t rows = 40, width = 4, vocabulary = 16;
  const int ranks = job().size();
  const comm::Mesh& mesh = test::mesh_of({1, ranks});
  const std::int64_t part = vocabulary / ranks;
  auto tape = std::make_shared<graph::Recorder>(DType::f32);
  const graph::Value x = tape->parameter(0, "x", {rows, width}),
                     weight = tape->parameter(1, "weight", {part, width}),
                     labels = tape->input("labels", {rows}, DType::i32);
  const graph::Value loss =
      ops::linear_cross_entropy(*tape, x, weight, {}, labels,
                                {.vocab_size = vocabulary,
                                 .vocab_begin = part * mesh.coordinate(comm::Axis::tensor),
                                 .vocab_end = part * (mesh.coordinate(comm::Axis::tensor) + 1),
                                 .shards = ranks,
                                 .chunk_rows = 16});
  graph::Program program = graph::plan(tape, {.outputs = {loss}});
  std::vector<float> memory(2 * (rows + part) * width, 0.5f);
  std::vector<std::int32_t> ids(rows, 3);
  graph::Bindings b;
  b.data.resize(tape->values().size());
  b.gradients.resize(tape->values().size());
  float* at = memory.data();
  for (const graph::Value v : {x, weight})
    for (Tensor* t :
         {&b.data[static_cast<std::size_t>(v.id)], &b.gradients[static_cast<std::size_t>(v.id)]}) {
      *t = {at, DType::f32, tape->info(v).shape};
      at += t->elements();
    }
  b.data[static_cast<std::size_t>(labels.id)] = {ids.data(), DType::i32, {rows}};
  std::vector<double> arena(static_cast<std::size_t>(program.arena_bytes() / 8 + 1));
  program.bind(reinterpret_cast<std::byte*>(arena.data()), b);
  cpu::Stream stream{1};
  const std::vector<comm::CollectiveCall> calls = program.collectives({});
  if (ranks > 1) {
    EXPECT_EQ(calls.size(), 3u) << "chunks";
    EXPECT_EQ(executed(mesh, [&] { program.run({&stream, &mesh, {}}); }), declared(calls));
  }
  mesh.world().barrier();
}

}  // namespace
}  // namespace tfm
