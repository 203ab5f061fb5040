// Collectives and training on several ranks with tensors in a device's memory, through the host and
// by NCCL. Built twice: the device is the block emulator, or a GPU that the ranks may share.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>

#include "../../distributed/job.h"
#include "comm/device_mesh.h"
#include "comm/flight_recorder.h"
#include "find_device.h"
#include "inference/inference.h"
#include "kernels/elementwise.h"
#include "models/registry.h"
#include "support/batch.h"
#include "verify/layout.h"

namespace tfm {
namespace {

using test::job;

class Backends : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!test::find_device()) GTEST_SKIP() << "no GPU";
    device_.emplace(device::Device::gpu(job().local_rank(), 1));
  }
  comm::Mesh mesh(const comm::Layout& layout) {
    return comm::rank_context(*device_, comm::make_mesh(job(), layout),
                              {.backend = *config::value_of<comm::Backend>(GetParam())})
        .tensors;
  }

  std::optional<device::Device> device_;
};

// A value that every rank can compute for every other rank; sums of eight are exact in every type.
int value(int rank, std::int64_t i, int salt) {
  return static_cast<int>((rank * 7 + i * 3 + salt) % 13 - 6);
}

template <class T>
class OnDevice {
 public:
  OnDevice(device::Device& device, std::int64_t n)
      : device_(device),
        memory_(device.allocate(n * static_cast<std::int64_t>(sizeof(T)))),
        n_(n) {}
  template <class F>
  OnDevice(device::Device& device, std::int64_t n, F&& f) : OnDevice(device, n) {
    std::vector<T> host;
    for (std::int64_t i = 0; i < n; ++i) host.push_back(T(static_cast<Accum<T>>(f(i))));
    device::upload(device.stream(), memory_.get(), host.data(),
                   n * static_cast<std::int64_t>(sizeof(T)));
  }
  Tensor tensor() const { return part(0, n_); }
  Tensor part(std::int64_t first, std::int64_t n) const {
    return {memory_.get() + first * static_cast<std::int64_t>(sizeof(T)), dtype_of<T>, {n}};
  }
  // Of elements [first, first + n): how many are not f(i).
  template <class F>
  std::int64_t wrong(F&& f, std::int64_t first, std::int64_t n) const {
    std::vector<T> host(static_cast<std::size_t>(n_));
    device::download(device_.stream(), host.data(), memory_.get(),
                     n_ * static_cast<std::int64_t>(sizeof(T)));
    std::int64_t count = 0;
    for (std::int64_t i = first; i < first + n; ++i)
      count +=
          static_cast<double>(static_cast<Accum<T>>(host[static_cast<std::size_t>(i)])) != f(i);
    return count;
  }
  template <class F>
  std::int64_t wrong(F&& f) const {
    return wrong(f, 0, n_);
  }

 private:
  device::Device& device_;
  std::shared_ptr<std::byte> memory_;
  std::int64_t n_;
};

template <class T>
void expect_collectives(device::Device& device, comm::Communicator& c, std::int64_t part,
                        int salt) {
  const std::int64_t n = part * c.size(), mine = part * c.rank();
  const auto own = [&](std::int64_t i) { return value(c.rank(), i, salt); };
  const auto sum = [&](std::int64_t i) {
    double s = 0;
    for (int r = 0; r < c.size(); ++r) s += value(r, i, salt);
    return s;
  };
  const auto max = [&](std::int64_t i) {
    int m = value(0, i, salt);
    for (int r = 1; r < c.size(); ++r) m = std::max(m, value(r, i, salt));
    return m;
  };
  const auto gathered = [&](std::int64_t i) {
    return value(static_cast<int>(i / std::max<std::int64_t>(part, 1)),
                 i % std::max<std::int64_t>(part, 1), salt);
  };

  OnDevice<T> all(device, n, own), highest(device, n, own);
  c.all_reduce(all.tensor());
  c.all_reduce(highest.tensor(), comm::Collective::all_reduce_max);
  EXPECT_EQ(all.wrong(sum), 0) << "all_reduce";
  EXPECT_EQ(highest.wrong(max), 0) << "all_reduce_max";

  OnDevice<T> in(device, n, own), out(device, part), in_place(device, n, own);
  c.reduce_scatter(in.tensor(), out.tensor());
  c.reduce_scatter(in_place.tensor(), in_place.part(mine, part));
  EXPECT_EQ(in.wrong(own), 0) << "the input of reduce_scatter is kept";
  EXPECT_EQ(out.wrong([&](std::int64_t i) { return sum(mine + i); }), 0) << "reduce_scatter";
  EXPECT_EQ(in_place.wrong(sum, mine, part), 0) << "reduce_scatter in place";
  c.all_gather(out.tensor(), in.tensor());
  c.all_gather(in_place.part(mine, part), in_place.tensor());
  EXPECT_EQ(in.wrong(sum), 0) << "all_gather";
  EXPECT_EQ(in_place.wrong(sum), 0) << "all_gather in place";
  OnDevice<T> piece(device, part, own), pieces(device, n);
  c.all_gather(piece.tensor(), pieces.tensor());
  EXPECT_EQ(pieces.wrong(gathered), 0) << "all_gather puts rank r's into part r";

  OnDevice<T> swapped(device, n), back(device, n);
  c.all_to_all(pieces.tensor(), swapped.tensor());
  EXPECT_EQ(swapped.wrong([&](std::int64_t i) {
    return value(c.rank(), i % std::max<std::int64_t>(part, 1), salt);
  }),
            0)
      << "all_to_all of what all have";
  c.finish(c.start(comm::Collective::all_to_all, swapped.tensor(), back.tensor()));
  EXPECT_EQ(back.wrong(gathered), 0) << "all_to_all there and back";

  OnDevice<T> next(device, n), after(device, n);
  c.ring_shift(pieces.tensor(), next.tensor());
  EXPECT_EQ(next.wrong(gathered), 0) << "ring_shift of what all have";
  const OnDevice<T> first(device, n, own);
  c.ring_shift(first.tensor(), next.tensor());
  c.finish(c.start(comm::Collective::ring_shift, next.tensor(), after.tensor()));
  const auto before = [&](int hops) {
    return [&, r = (c.rank() + 2 * c.size() - hops) % c.size()](std::int64_t i) {
      return value(r, i, salt);
    };
  };
  EXPECT_EQ(next.wrong(before(1)), 0) << "ring_shift";
  EXPECT_EQ(after.wrong(before(2)), 0) << "ring_shift of two hops";

  for (int root = 0; root < c.size(); ++root) {
    OnDevice<T> sent(device, n, own);
    c.broadcast(sent.tensor(), root);
    EXPECT_EQ(sent.wrong([&](std::int64_t i) { return value(root, i, salt); }), 0)
        << "broadcast from " << root;
  }
  c.barrier();
}

TEST_P(Backends, AsTheHosts) {
  for (const comm::Layout& layout : test::layouts()) {
    const comm::Mesh m = mesh(layout);
    for (const comm::AxisSet axes : layout.groups())
      for (const std::int64_t part : {0, 1, 7, 1000, 70001}) {
        SCOPED_TRACE(testing::Message()
                     << layout.str() << ", " << comm::name_of(axes) << " axis, " << part);
        const int salt = static_cast<int>(part % 7) + m.place(comm::kWorld - axes);
        expect_collectives<float>(*device_, m.group(axes), part, salt);
        if (part > 1000) continue;
        expect_collectives<double>(*device_, m.group(axes), part, salt);
        expect_collectives<bf16>(*device_, m.group(axes), part, salt);
        expect_collectives<f16>(*device_, m.group(axes), part, salt);
        expect_collectives<std::int32_t>(*device_, m.group(axes), part, salt);
        expect_collectives<std::int64_t>(*device_, m.group(axes), part, salt);
      }
  }
}

TEST_P(Backends, SayWhichTensorsGoThroughTheHost) {
  const int ranks = job().size();
  const bool nccl = GetParam() == std::string("nccl");
  const auto text = [&](const comm::Layout& layout) { return comm::transport_of(mesh(layout)); };
  const std::string data = text(ranks), pipeline = text(comm::Layout::Sizes{.pipeline = ranks});
  const std::string host = "host memory, which is slower";
  if (ranks == 1) {
    EXPECT_EQ(data + pipeline, "");
    return;
  }
  EXPECT_EQ(data, nccl ? "NCCL" : host);
  EXPECT_EQ(pipeline, nccl ? "NCCL" : host);
}

TEST_P(Backends, ManyStartedCollectivesAmongOthers) {
  for (const comm::Layout& layout : test::layouts()) {
    const comm::Mesh m = mesh(layout);
    comm::Communicator& data = m.group(comm::kData);
    const std::vector<std::int64_t> parts{40000, 3, 0, 100000, 1, 25000};
    std::deque<OnDevice<float>> v;
    std::vector<comm::Communicator::Ticket> tickets;
    const auto sum = [&](std::int64_t i) {
      double s = 0;
      for (int r = 0; r < data.size(); ++r) s += value(r, i, m.coordinate(comm::Axis::tensor));
      return s;
    };
    for (std::size_t k = 0; k < parts.size(); ++k) {
      v.emplace_back(*device_, parts[k] * data.size(), [&](std::int64_t i) {
        return value(data.rank(), i, m.coordinate(comm::Axis::tensor));
      });
      tickets.push_back(
          k % 2 == 0 ? data.start(comm::Collective::reduce_scatter, v[k].tensor(),
                                  v[k].part(parts[k] * data.rank(), parts[k]))
                     : data.start(comm::Collective::all_reduce_sum, v[k].tensor(), v[k].tensor()));
      for (comm::Communicator* among : {&m.group(comm::Axis::tensor), &data}) {
        const OnDevice<double> one(*device_, 1, [&](std::int64_t) { return 1; });
        among->all_reduce(one.tensor());
        EXPECT_EQ(one.wrong([&](std::int64_t) { return among->size(); }), 0);
      }
    }
    for (std::size_t k = 0; k < parts.size(); ++k) {
      data.finish(tickets[k]);
      const std::int64_t first = k % 2 == 0 ? parts[k] * data.rank() : 0,
                         n = k % 2 == 0 ? parts[k] : parts[k] * data.size();
      EXPECT_EQ(v[k].wrong(sum, first, n), 0) << k;
    }
  }
}

constexpr const char* kModel =
    "{family: decoder, d_model: 32, n_layers: 2, n_heads: 4, d_ff: 64, vocab_size: 37, "
    "max_seq_len: 32, dropout: 0.2}";

// `variant`: "masked", an encoder, which predicts every seventh token; "experts".
std::vector<double> losses(device::Device device, const comm::Mesh& mesh,
                           const std::string& precision, const std::string& backend, int zero,
                           const std::string& exchange = "gather",
                           const std::string& optimizer = "adamw",
                           const std::string& variant = "") {
  std::string text =
      std::string("model: ") + kModel + "\ndata: {train: {type: tokens, path: none.bin}}\n";
  const bool masked = variant == "masked", experts = variant == "experts";
  if (masked)
    text.replace(text.find("decoder"), 7, "encoder").replace(text.find("tokens"), 6, "mlm");
  config::Config c = config::parse_config(
      text, "test",
      {"train.seq_len=" + std::string(masked ? "32" : "8"), "train.global_batch_size=4",
       "optimizer.ema=0.5", "precision=" + precision,
       std::string("device=") + (device.is_cpu() ? "cpu" : "cuda"),
       "parallel.tensor=" + std::to_string(mesh.layout[comm::Axis::tensor]),
       "parallel.pipeline=" + std::to_string(mesh.layout[comm::Axis::pipeline]),
       "parallel.context=" + std::to_string(mesh.layout[comm::Axis::context]),
       "parallel.context_exchange=" + exchange, "parallel.zero=" + std::to_string(zero),
       "parallel.bucket_bytes=4Ki", "parallel.backend=" + backend, "optimizer.type=" + optimizer,
       "optimizer.lr=1e-2", "optimizer.muon.ns_steps=2",
       std::string("model.experts.count=") + (experts ? "4" : "0"),
       "parallel.expert=" + std::to_string(mesh.layout[comm::Axis::expert]),
       "parallel.expert_bound=0.5"});
  config::resolve_for_ranks(c, mesh.layout.world());
  const bool stages = mesh.layout[comm::Axis::pipeline] > 1;
  train::Engine e(plan::make_step_plan(c, mesh), std::move(device));
  e.initialize_parameters();
  const test::FillBatch read = [=](std::int64_t first, std::int64_t count, const BatchFields& f) {
    const auto width = static_cast<std::int64_t>(f.at(Field::ids).size()) / count;
    for (std::int64_t i = 0; i < count * width; ++i)
      for (const Field field : {Field::ids, Field::labels})
        f.at(field)[static_cast<std::size_t>(i)] =
            masked && field == Field::labels && (first * width + i) % 7 > 0
                ? -1
                : static_cast<std::int32_t>((first * width + i) * 7 % 37);
    if (const auto mask = f.find(Field::mask); mask != f.end()) std::ranges::fill(mask->second, 0);
  };
  std::vector<double> all;
  // Plain, recorded, replayed; experts begin anew where they need more room.
  for (int step = 1; step <= (experts ? 6 : 3); ++step) {
    const train::StepResult r = test::train_step(e, step, 1e-2, read);
    all.insert(all.end(), {r.loss, r.grad_norm});
  }
  EXPECT_TRUE(e.graphs() > 0 || backend != "nccl" || mesh.layout.world() == 1 || stages);
  EXPECT_EQ(e.replans() > 0, mesh.layout[comm::Axis::expert] > 1);
  e.swap_average();
  all.push_back(test::evaluate(e, 4, read).mean());
  if (masked || experts || stages || mesh.layout[comm::Axis::context] > 1) return all;
  c.parallel.sequence = false;
  const auto generator = models::make_model(c, mesh);
  const auto parameters = e.whole_parameters();
  inference::Generation generation(*generator, e.rank_context(),
                                   {e.model().parameters(), parameters.get(), e.plan().dtype},
                                   {.sequences = 2, .length = 1, .capacity = 4}, 37);
  for (std::int32_t t = 0; t < 3; ++t) generation.step(std::vector<std::int32_t>{t, 5 * t});
  double square = 0;
  for (const double x : generation.logits()) square += x * x;
  all.push_back(std::sqrt(square));
  return all;
}

// The same on a layout of all ranks, computed once for equal arguments.
const std::vector<double>& losses_on(const comm::Layout& layout, const device::Device& device,
                                     const std::string& precision, const std::string& backend,
                                     int zero, std::string exchange,
                                     const std::string& optimizer = "adamw",
                                     const std::string& variant = "") {
  if (layout[comm::Axis::context] == 1) exchange = "gather";
  static std::map<std::string, std::vector<double>> known;
  std::string key = layout.str();
  for (const std::string& argument :
       {precision, backend, std::to_string(zero), exchange, optimizer, variant})
    key += " " + argument;
  const auto [at, fresh] = known.try_emplace(key);
  if (fresh)
    at->second = losses(device, comm::make_mesh(job(), layout), precision, backend, zero, exchange,
                        optimizer, variant);
  return at->second;
}

// On each of these layouts and with each ZeRO stage of a precision, against one rank of the host.
void expect_as_one_rank(const device::Device& device, const std::string& backend,
                        const std::vector<comm::Layout>& layouts,
                        const std::map<std::string, std::vector<int>>& zero_by_precision,
                        const std::string& exchange = "gather",
                        const std::string& optimizer = "adamw", const std::string& variant = "") {
  for (const auto& [precision, stages] : zero_by_precision) {
    const std::vector<double> alone = losses(device::Device::cpu(1), comm::single_mesh(), precision,
                                             "auto", 0, exchange, optimizer, variant);
    for (const comm::Layout& layout : layouts)
      for (const int zero : stages) {
        const std::vector<double> got =
            losses_on(layout, device, precision, backend, zero, exchange, optimizer, variant);
        for (std::size_t i = 0; i < got.size(); ++i)
          EXPECT_NEAR(got[i], alone[i], (precision == "bf16" ? 2e-2 : 2e-5) * alone[i])
              << optimizer << ", " << precision << ", ZeRO " << zero << " on " << layout.str()
              << ", figure " << i;
      }
  }
}

// Layouts with `ranks` data ranks or more, of which as many become ranks of another axis.
std::vector<comm::Layout> shared_out(int comm::Layout::Sizes::*axis, int ranks) {
  std::vector<comm::Layout> all;
  for (const comm::Layout& l : test::layouts()) {
    const int data = l.size(comm::kData);
    if (data % ranks != 0) continue;
    comm::Layout::Sizes sizes{.data = data / ranks, .tensor = l[comm::Axis::tensor]};
    sizes.*axis = ranks;
    all.emplace_back(sizes);
  }
  return all;
}

TEST_P(Backends, TrainAsOneRankDoes) {
  expect_as_one_rank(*device_, GetParam(), test::layouts(), {{"fp32", {0, 1, 3}}, {"bf16", {3}}});
}

TEST_P(Backends, TrainByRulesOfWholePartsAsOneRankDoes) {
  for (const char* optimizer : {"lamb", "adafactor", "muon"})
    expect_as_one_rank(*device_, GetParam(), test::layouts(), {{"fp32", {1, 3}}}, "gather",
                       optimizer);
}

TEST_P(Backends, TrainInStagesAsOneRankDoes) {
  expect_as_one_rank(*device_, GetParam(), shared_out(&comm::Layout::Sizes::pipeline, 2),
                     {{"fp32", {0, 2}}, {"bf16", {0, 2}}});
}

TEST_P(Backends, TrainOnSharesOfSequencesAsOneRankDoes) {
  for (const char* exchange : {"gather", "ring"})
    expect_as_one_rank(*device_, GetParam(), shared_out(&comm::Layout::Sizes::context, 2),
                       {{"fp32", {3}}, {"bf16", {1}}}, exchange);
  expect_as_one_rank(*device_, GetParam(), shared_out(&comm::Layout::Sizes::context, 4),
                     {{"fp32", {0}}}, "ring");
}

// Data ranks have different numbers of labels, and record the same graphs.
TEST_P(Backends, TrainMaskedTokensAsOneRankDoes) {
  expect_as_one_rank(*device_, GetParam(), test::layouts(), {{"fp32", {0, 3}}}, "gather", "adamw",
                     "masked");
  expect_as_one_rank(*device_, GetParam(), shared_out(&comm::Layout::Sizes::context, 2),
                     {{"fp32", {1}}}, "gather", "adamw", "masked");
}

// Some steps find no room for all rows, and are repeated. In 16 bits tokens may take other experts.
TEST_P(Backends, TrainExpertsOfSeveralRanksAsOneRankDoes) {
  std::vector<comm::Layout> layouts;
  for (const comm::Layout& l : test::layouts())
    if (const int data = l.size(comm::kData); data % 2 == 0)
      layouts.emplace_back(
          comm::Layout::Sizes{.data = data, .tensor = l[comm::Axis::tensor], .expert = 2});
  expect_as_one_rank(*device_, GetParam(), layouts, {{"fp32", {0, 1, 3}}}, "gather", "adamw",
                     "experts");
}

TEST_P(Backends, CollectivesRunBesideOtherWork) {
  for (const comm::Layout& layout : test::layouts()) {
    const comm::Mesh m = mesh(layout);
    comm::Communicator& tensor = m.group(comm::Axis::tensor);
    constexpr std::int64_t n = 1000;
    const OnDevice<float> x(*device_, n,
                            [&](std::int64_t i) { return value(tensor.rank(), i, 3); }),
        y(*device_, n), z(*device_, n);
    const auto ticket = tensor.start(comm::Collective::all_reduce_sum, x.tensor(), x.tensor());
    device::on(device_->stream(), [&](auto& s) {
      kernels::fill(s, kernels::FillArgs<float>{n, 5, y.tensor().ptr<float>()});
    });
    tensor.finish(ticket);
    device::on(device_->stream(), [&](auto& s) {
      kernels::copy(s,
                    kernels::CopyArgs<float>{n, x.tensor().ptr<float>(), z.tensor().ptr<float>()});
    });  // after both
    EXPECT_EQ(y.wrong([](std::int64_t) { return 5; }), 0);
    EXPECT_EQ(z.wrong([&](std::int64_t i) {
      int sum = 0;
      for (int r = 0; r < tensor.size(); ++r) sum += value(r, i, 3);
      return sum;
    }),
              0);
  }
}

TEST_P(Backends, AreVerified) {
  const comm::Layout layout = test::layouts().back();
  config::Config c = config::parse_config(
      std::string("model: ") + kModel + "\ndata: {train: {type: tokens, path: none.bin}}\n", "test",
      {"train.seq_len=8", "train.global_batch_size=4", "device=cuda",
       "parallel.tensor=" + std::to_string(layout[comm::Axis::tensor]), "parallel.zero=3",
       std::string("parallel.backend=") + GetParam(), "recompute=selective"});
  config::resolve_for_ranks(c, layout.world());
  for (const verify::Finding& f :
       verify::verify_layout(verify::shrink(c), comm::make_mesh(job(), layout), *device_))
    EXPECT_TRUE(f.ok()) << f.check << " " << f.worst << " " << f.error;
}

INSTANTIATE_TEST_SUITE_P(Of, Backends, testing::Values("mpi", "nccl"),
                         [](const auto& info) { return info.param; });

#ifdef TFM_EMULATOR_RANKS  // its NCCL sums as the host does
TEST(Backend, OverlapChangesNoBit) {
  test::find_device();
  const auto expect_equal = [](const comm::Layout& layout, int zero) {
    std::vector<double> got[2];
    for (const bool nccl : {false, true})
      got[nccl] =
          losses_on(layout, device::Device::gpu(0, 1), "fp32", nccl ? "nccl" : "mpi", zero, "ring");
    EXPECT_EQ(got[0], got[1]) << "ZeRO " << zero << " on " << layout.str();
  };
  for (const comm::Layout& layout : test::layouts())
    for (const int zero : {0, 1, 3}) expect_equal(layout, zero);
  for (const int ranks : {2, 4})
    for (const comm::Layout& layout : shared_out(&comm::Layout::Sizes::context, ranks))
      expect_equal(layout, 0);
}

TEST(Backend, AReplayedStepIsRecordedAsOneWait) {
  if (job().size() == 1) GTEST_SKIP() << "one rank waits for nobody";
  emulator::runtime.late = false;  // what is late is seen by the recorder's thread later still
  const comm::Mesh mesh = comm::make_mesh(job(), {job().size(), 1});
  const long launches = emulator::runtime.graph_launches;
  int waits = 0;
  emulator::runtime.on_wait = [&] {
    const auto waiting = mesh.recorder->status(job().rank()).waiting;
    waits += emulator::runtime.graph_launches > launches && waiting &&
             waiting->op == comm::Collective::barrier && waiting->axes == comm::kWorld;
  };
  const std::shared_ptr<void> off(nullptr, [](void*) { emulator::runtime.on_wait = {}; });
  losses(device::Device::gpu(0, 1), mesh, "fp32", "nccl", 0);
  EXPECT_EQ(waits, 2) << "of the recorded step and the replayed one";
}
#endif

}  // namespace
}  // namespace tfm
