// The collectives that a plan lists are those that the flight recorder sees, in order.
#include <gtest/gtest.h>

#include "comm/flight_recorder.h"
#include "job.h"
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

std::string text_of(comm::Collective kind, comm::Axis axis, std::int64_t bytes) {
  return std::string(comm::name_of(kind)) + " " + std::string(comm::name_of(axis)) + " " +
         std::to_string(bytes);
}

// What is in the plan, one line for each call.
std::vector<std::string> planned(const plan::StepPlan& plan) {
  std::vector<std::string> lines;
  for (const graph::CollectiveUse& c : plan.collectives())
    lines.insert(lines.end(), static_cast<std::size_t>(c.count), text_of(c.kind, c.axis, c.bytes));
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

class Plan : public testing::TestWithParam<std::tuple<std::size_t, int, std::string, bool, int>> {};

TEST_P(Plan, ListsTheCollectivesOfAStep) {
  const auto& [family, zero, recompute, sequence, micro_batches] = GetParam();
  const Family& f = kFamilies[family];
  for (const comm::Layout& layout : test::layouts()) {
    config::Config config = config::parse_config(
        "model: {" + f.model +
            ", vocab_size: 40, d_model: 32, n_heads: 8, d_ff: 32, dropout: 0.1}\n"
            "data: {train: {" +
            f.data + ", path: none.bin}}\n",
        "test",
        {"parallel.tensor=" + std::to_string(layout.tensor),
         std::string("parallel.sequence=") + (sequence ? "true" : "false"),
         "parallel.zero=" + std::to_string(zero), "parallel.bucket_bytes=8Ki",
         "recompute=" + recompute, "train.seq_len=8", "train.micro_batch_size=1",
         "train.global_batch_size=" + std::to_string(layout.data * micro_batches)});
    config::resolve_for_ranks(config, job().size());
    const comm::Mesh mesh = comm::make_mesh(job(), layout);
    train::Engine engine(plan::make_step_plan(config, mesh), 1);
    ASSERT_EQ(engine.plan().largest().micro_batches, micro_batches);
    engine.initialize_parameters();
    const auto seen = [&] {
      std::uint64_t all = 0;
      for (const std::uint64_t n : mesh.recorder->status(mesh.rank()).entered) all += n;
      return static_cast<std::ptrdiff_t>(all);
    };
    for (std::int64_t step = 1; step <= 2; ++step) {
      const std::ptrdiff_t before = seen();
      test::train_step(engine, step, 1e-3, fill);
      const std::ptrdiff_t calls = seen() - before;
      const std::vector<comm::Event> events = mesh.recorder->recent(mesh.rank());
      ASSERT_LE(calls, std::ssize(events)) << "more than the recorder remembers";
      std::vector<std::string> recorded;
      for (auto e = events.end() - calls; e != events.end(); ++e)
        recorded.push_back(text_of(e->op, e->axis, e->bytes));
      EXPECT_EQ(recorded, planned(engine.plan()))
          << "step " << step << ", data " << layout.data << " x tensor " << layout.tensor;
      EXPECT_EQ(calls > 0, job().size() > 1);
    }
    mesh.world->barrier();
  }
}

std::string name_of(const testing::TestParamInfo<Plan::ParamType>& info) {
  const auto& [family, zero, recompute, sequence, micro_batches] = info.param;
  return kFamilies[family].name + "_zero" + std::to_string(zero) + "_" + recompute +
         (sequence ? "_sequence_" : "_") + std::to_string(micro_batches);
}

INSTANTIATE_TEST_SUITE_P(Collectives, Plan,
                         testing::Combine(testing::Range<std::size_t>(0, kFamilies.size()),
                                          testing::Values(0, 1),
                                          testing::Values("none", "selective", "full"),
                                          testing::Bool(), testing::Values(1, 3)),
                         name_of);

}  // namespace
}  // namespace tfm
