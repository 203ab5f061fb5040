// Messages between the stages of a pipeline by NCCL, whose stand-in adds as the host does: training
// through it has the bits of training through host memory, with the collectives that were declared.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "../../distributed/turns.h"
#include "comm/flight_recorder.h"
#include "device/cuda/stream.h"
#include "fake_nccl.h"
#include "find_device.h"
#include "kernels/elementwise.h"

namespace tfm {
namespace {

using test::job;

const test::ModelCase kTied{"family: decoder, n_layers: 4", "type: tokens", 4},
    kSpeech{"family: encoder_decoder, n_encoder_layers: 2, n_decoder_layers: 2, position: relative",
            "type: pairs", 4};

struct Case {
  comm::Layout::Sizes sizes;
  int stages_of_rank, zero;
  const test::ModelCase& model = kTied;
  std::string precision = "fp32";
};

// Of two stages or more, on all ranks of the job.
std::vector<Case> cases() {
  if (job().size() == 2)
    return {{{.pipeline = 2}, 1, 0},          {{.pipeline = 2}, 1, 1},
            {{.pipeline = 2}, 2, 0},          {{.pipeline = 2}, 2, 3},
            {{.pipeline = 2}, 1, 0, kSpeech}, {{.pipeline = 2}, 2, 1, kSpeech, "bf16"}};
  if (job().size() == 4)
    return {{{.pipeline = 4}, 1, 0},
            {{.data = 2, .pipeline = 2}, 1, 1},
            {{.data = 2, .pipeline = 2}, 2, 3},
            {{.tensor = 2, .pipeline = 2}, 1, 0, kTied, "bf16"},
            {{.tensor = 2, .pipeline = 2}, 2, 1},
            {{.pipeline = 4}, 1, 3, kSpeech},
            {{.data = 2, .pipeline = 2}, 2, 1, kSpeech}};
  return {};
}

// Three micro-batches, which is no multiple of the stages.
config::Config config_of(const Case& c, const std::string& backend) {
  const std::int64_t batch = 3 * c.sizes.data;
  std::vector<std::string> overrides{"train.global_batch_size=" + std::to_string(batch),
                                     "train.micro_batch_size=1",
                                     "parallel.zero=" + std::to_string(c.zero),
                                     "precision=" + c.precision,
                                     "device=cuda",
                                     "parallel.backend=" + backend};
  if (c.stages_of_rank > 1)
    overrides.insert(overrides.end(),
                     {"parallel.schedule=interleaved",
                      "parallel.virtual_stages=" + std::to_string(c.stages_of_rank)});
  return test::config_of(c.model, c.sizes, overrides);
}

using Lines = std::vector<std::string>;

struct Trained {
  std::vector<double> numbers;
  std::vector<std::byte> weights;
  Lines declared, executed;  // of the last step
  int messages = 0;          // by NCCL, in that step
};

Trained trained(const Case& c, const std::string& backend) {
  const comm::Mesh mesh = comm::make_mesh(job(), c.sizes);
  train::Engine e(plan::make_step_plan(config_of(c, backend), mesh), device::Device::gpu(0, 1));
  e.initialize_parameters();
  Trained all;
  const auto step = [&](std::int64_t number) {
    const train::StepResult r = test::train_step(e, number, 1e-2, test::fill_documents);
    all.numbers.insert(all.numbers.end(), {r.loss, r.grad_norm});
  };
  step(1);
  for (int i = 0; i < 2; ++i)
    all.numbers.push_back(test::evaluate(e, e.plan().shapes[0].batch, test::fill_documents).mean());
  const auto events = [&] { return mesh.recorder->recent(mesh.rank()); };
  const std::uint64_t before = events().back().ordinal;
  all.messages = -emulator::nccl.messages;
  step(2);
  all.messages += emulator::nccl.messages;
  const std::vector<int> stages = mesh.layout.group(mesh.rank(), comm::Axis::pipeline);
  const auto line = [](comm::Collective kind, comm::AxisSet axes, std::int64_t bytes, int peer) {
    return std::string(name_of(kind)) + " " + name_of(axes) + " " + std::to_string(bytes) + " " +
           std::to_string(peer);
  };
  for (const comm::CollectiveCall& call : e.plan().collectives())
    all.declared.push_back(line(call.kind, call.axes, call.bytes,
                                call.peer < 0 ? -1 : stages[static_cast<std::size_t>(call.peer)]));
  for (const comm::Event& event : events())
    if (event.ordinal > before)
      all.executed.push_back(line(event.op, event.axes, event.bytes, event.peer));
  EXPECT_LT(all.executed.size(), comm::FlightRecorder::kEvents);
  EXPECT_EQ(e.arena_high_water(), e.plan().memory.total());
  EXPECT_EQ(e.graphs(), 0) << "passes of stages are not captured";
  const auto weights = e.whole_parameters();
  all.weights.resize(static_cast<std::size_t>(e.model().parameters().flat_elements()) *
                     size_of(e.plan().dtype));
  device::download(e.device().stream(), all.weights.data(), weights.get(), std::ssize(all.weights));
  return all;
}

TEST(StageMessages, ByNcclTrainWithTheBitsOfTheHosts) {
  test::find_device();
  for (const Case& c : cases()) {
    SCOPED_TRACE(comm::Layout(c.sizes).str() + ", " + std::to_string(c.stages_of_rank) +
                 " stages on each rank, ZeRO " + std::to_string(c.zero) + ", " + c.model.model);
    const Trained host = trained(c, "mpi"), nccl = trained(c, "nccl");
    EXPECT_EQ(host.numbers, nccl.numbers);
    EXPECT_EQ(host.weights, nccl.weights);
    EXPECT_EQ(nccl.executed, nccl.declared);
    const auto messages = std::ranges::count_if(nccl.declared, [](const std::string& line) {
      return line.starts_with("send") || line.starts_with("receive");
    });
    EXPECT_GT(messages, 0);
    EXPECT_EQ(nccl.messages, messages) << "each by NCCL";
    EXPECT_EQ(host.messages, 0);
  }
}

// Between the first two ranks of the job.
class Channels : public testing::Test {
 protected:
  static constexpr std::int64_t kElements = 1000;
  Channels() {
    emulator::runtime = {};
    emulator::runtime.late = true;
  }
  ~Channels() override {
    emulator::finish_all();
    emulator::runtime = {};
  }
  void SetUp() override {
    if (job().size() == 1) GTEST_SKIP() << "one rank has nobody to write to";
    host_ = comm::make_mesh(job(), comm::Layout::Sizes{.pipeline = job().size()});
  }
  comm::Mesh connected(const std::set<comm::Channel>& channels) {
    comm::DeviceMeshOptions options{.backend = comm::Backend::nccl};
    for (const comm::Channel& c : channels)
      if (c.from == job().rank() || c.to == job().rank()) options.channels.insert(c);
    return comm::device_mesh(host_, device_, options);
  }
  cuda::Stream& stream() { return *std::get<cuda::Stream*>(device_.stream()); }
  Tensor tensor() {
    memory_.push_back(device_.allocate(kElements * 4));
    return {memory_.back().get(), DType::f32, {kElements}};
  }
  void fill(const Tensor& t, float value) {
    kernels::fill(stream(), kernels::FillArgs<float>{kElements, value, t.ptr<float>()});
  }
  float last(const Tensor& t) {
    return device::download_value(device_.stream(), t.ptr<float>() + kElements - 1);
  }

  device::Device device_{std::make_shared<cuda::Stream>(0), 1};
  std::vector<std::shared_ptr<std::byte>> memory_;
  comm::Mesh host_;
};

TEST_F(Channels, NeedADriverThatRunsOperationsSideBySide) {
  std::set<comm::Channel> both;
  for (int place = 0; place + 1 < job().size(); ++place)
    both.insert({{place, place + 1, 4}, {place + 1, place, 5}});
  emulator::runtime.driver = 12020;
  try {
    connected(both);
    ADD_FAILURE() << "a driver that is too old was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::environment);
    EXPECT_NE(std::string(e.what()).find("CUDA 12.2"), std::string::npos) << e.what();
  }
  emulator::runtime.driver = 12030;
  EXPECT_NO_THROW(connected(both));
}

// The sender writes over tensors as soon as it may.
TEST_F(Channels, NeedEachOfTheirWaits) {
  constexpr int kMessages = 3;
  long waits = 0;
  const auto arrive = [&](long ignored) {
    const Tensor t = tensor(), buffer = tensor();
    std::int32_t wrong = 0;
    {
      const comm::Mesh mesh = connected({{0, 1, 4}});
      comm::Messages& stages = *mesh.messages;
      emulator::runtime.event_waits = 0;
      if (job().rank() == 0) emulator::runtime.ignored_wait = ignored;
      for (int i = 1; i <= kMessages; ++i) {
        if (job().rank() == 0) {
          fill(t, static_cast<float>(i));
          try {
            stages.send(t, buffer, 1, 4);
          } catch (const Error&) {  // the stand-in has seen it
            wrong = 1;
            stages.send(t, buffer, 1, 4);
          }
          fill(t, -1);
        }
        if (job().rank() == 1) {
          stages.receive(t, 0, 4);
          wrong += last(t) != static_cast<float>(i);
        }
      }
      stages.complete_sends();
      waits = emulator::runtime.event_waits;
      emulator::runtime.ignored_wait = -1;
      fill(buffer, -1);
      stream().wait();
      emulator::finish_all();
    }
    host_.world().all_reduce({&wrong, DType::i32, {1}}, comm::Collective::all_reduce_max);
    return wrong == 0;
  };
  EXPECT_TRUE(arrive(-1));
  if (job().rank() == 0) {
    EXPECT_EQ(waits, 2 * kMessages + 1) << "two for each message, and one for all at the end";
  }
  for (long i = 1; i < 2 * kMessages + 1; ++i)  // the first waits for no message before it
    EXPECT_FALSE(arrive(i)) << "without wait " << i;
}

// Nothing else waits for it, the host as little as the kernels, but it has a name.
TEST_F(Channels, ASendThatWaitsHoldsUpNothingElse) {
  const comm::Mesh mesh = connected({{0, 1, 4}, {0, 1, 5}, {1, 0, 4}});
  comm::Messages& stages = *mesh.messages;
  const Tensor t = tensor(), buffer = tensor(), other = tensor();
  const auto meet = [&] { host_.world().barrier(); };
  const int rank = job().rank();
  const auto waiting = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto event = host_.recorder->status(rank).waiting;
    return event ? event->str() : "";
  };
  if (rank == 0) {
    fill(t, 7);
    stages.send(t, buffer, 1, 4);
    fill(t, 8);
    stages.send(t, other, 1, 5);
    stages.receive(t, 1, 4);
    EXPECT_EQ(last(t), 9);
    EXPECT_TRUE(waiting().starts_with("send #") &&
                waiting().find("to rank 1 on the pipeline axis") != std::string::npos)
        << waiting();
    meet();
  } else {
    if (rank == 1) {
      fill(t, 9);
      stages.send(t, buffer, 0, 4);
      stages.complete_sends();
      stream().wait();
    }
    meet();
    if (rank == 1) {
      stages.receive(t, 0, 5);  // not in the order in which they were sent
      EXPECT_EQ(last(t), 8);
      stages.receive(t, 0, 4);
      EXPECT_EQ(last(t), 7);
    }
  }
  stages.complete_sends();
  stream().wait();
  EXPECT_EQ(waiting(), "");
  meet();
}

TEST_F(Channels, AreThoseThatWereDeclared) {
  const int before = emulator::nccl.communicators;
  const comm::Mesh mesh = connected({{0, 1, 4}, {1, 0, 5}});
  EXPECT_EQ(emulator::nccl.communicators - before, 1 + (job().rank() < 2 ? 2 : 0))
      << "of the world, and of each channel";
  const Tensor t = tensor();
  EXPECT_ANY_THROW(mesh.messages->send(t, t, 1, 6));
  EXPECT_ANY_THROW(mesh.messages->receive(t, 1, 4));
}

}  // namespace
}  // namespace tfm
