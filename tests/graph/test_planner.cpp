// Gradients that several values share in memory, and steps that are joined, against central
// differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>

#include "core/philox.h"
#include "graph/planner.h"
#include "ops/fusion.h"
#include "ops/ops.h"

namespace tfm {
namespace {

constexpr std::int64_t kRows = 3, kWidth = 4;
const ops::ActivationRegion kPlace{{.sequence_length = kRows}, 0, 0, kWidth};

// Kinds of the ops that are computed again.
std::vector<std::string> recomputed_in(const graph::Program& program) {
  std::vector<std::string> kinds;
  for (const graph::Instruction& s : program.instructions())
    if (s.phase == graph::Phase::recompute)
      kinds.emplace_back(program.recording().nodes()[static_cast<std::size_t>(s.node)].op->kind());
  return kinds;
}

// sum(seed * output) of a recording whose leaves are parameters (kRows, kWidth), (kWidth, kWidth)
// and, if `build` takes a fourth, (kWidth), and its gradients.
class Sum {
 public:
  template <class Build>
  explicit Sum(Build&& build, graph::Recompute recompute = graph::Recompute::none,
               bool join = false, bool overlap = false) {
    auto tape = std::make_shared<graph::Recorder>(DType::f64);
    const graph::Value x = leaf(*tape, "x", {kRows, kWidth}),
                       w = leaf(*tape, "w", {kWidth, kWidth}),
                       u = leaf(*tape, "u", {kWidth, kWidth});
    if constexpr (std::is_invocable_v<Build, graph::Recorder&, graph::Value, graph::Value,
                                      graph::Value, graph::Value>)
      output_ = build(*tape, x, w, u, leaf(*tape, "b", {kWidth}));
    else
      output_ = build(*tape, x, w, u);
    graph::PlanOptions options{
        .recompute = recompute, .outputs = {output_}, .seeds = {output_}, .device = join};
    if (join) options.fusions = ops::fusions();
    options.overlap = overlap;
    program_ = graph::plan(tape, options);
    graph::Bindings b;
    b.data.resize(tape->values().size());
    b.gradients.resize(tape->values().size());
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      b.data[i] = {data_[i].data(), DType::f64, shapes_[i]};
      b.gradients[i] = {gradients_[i].data(), DType::f64, shapes_[i]};
    }
    for (std::size_t v = 0; v < b.data.size(); ++v)
      if (const graph::ValueInfo& info = tape->values()[v]; info.fill) {
        constants_.emplace_back(static_cast<std::size_t>(info.shape.elements()));
        info.fill(b.data[v] = {constants_.back().data(), DType::f64, info.shape});
      }
    arena_.assign(static_cast<std::size_t>(program_.arena_bytes() / 8 + 1), std::nan(""));
    program_.bind(reinterpret_cast<std::byte*>(arena_.data()), b);
  }

  double run(graph::MicroBatch batch = {}) {
    const Tensor seed = program_.gradient(output_), y = program_.value(output_);
    for (std::int64_t i = 0; i < seed.elements(); ++i)
      seed.ptr<double>()[i] = std::sin(static_cast<double>(3 * i + 1));
    const std::vector<double> s(seed.ptr<double>(), seed.ptr<double>() + seed.elements());
    program_.run({&stream_, &mesh_, {.micro_batch = batch}});
    double sum = 0;
    for (std::int64_t i = 0; i < y.elements(); ++i)
      sum += s[static_cast<std::size_t>(i)] * y.ptr<double>()[i];
    return sum;
  }
  void expect_gradients() {
    run();
    const auto got = gradients_;
    for (std::size_t v = 0; v < data_.size(); ++v)
      for (std::size_t i = 0; i < data_[v].size(); ++i) {
        const double at = data_[v][i], h = 1e-6;
        data_[v][i] = at + h;
        const double up = run();
        data_[v][i] = at - h;
        const double down = run();
        data_[v][i] = at;
        EXPECT_NEAR(got[v][i], (up - down) / (2 * h), 1e-8) << "leaf " << v << " element " << i;
      }
  }
  // "linear + activation backward" for each pair of steps that are run at once.
  std::vector<std::string> pairs() const {
    std::vector<std::string> found;
    const auto kind = [&](std::size_t i) {
      return std::string(program_.recording()
                             .nodes()[static_cast<std::size_t>(program_.instructions()[i].node)]
                             .op->kind());
    };
    for (std::size_t i = 1; i < program_.instructions().size(); ++i)
      if (program_.instructions()[i].fusion)
        found.push_back(kind(i - 1) + " + " + kind(i) + " " +
                        std::string(graph::name_of(program_.instructions()[i].phase)));
    return found;
  }
  std::vector<std::string> backward_steps() const {
    using Kind = graph::Instruction::Kind;
    using Gradients = graph::Instruction::Gradients;
    std::vector<std::string> names;
    for (const graph::Instruction& s : program_.instructions()) {
      if (s.phase != graph::Phase::backward) continue;
      const std::string op(
          program_.recording().nodes()[static_cast<std::size_t>(s.node)].op->kind());
      names.push_back(s.kind == Kind::start                      ? "start"
                      : s.kind == Kind::wait                     ? "wait"
                      : s.gradients == Gradients::of_parameters  ? op + " of parameters"
                      : s.gradients == Gradients::of_activations ? op + " of activations"
                                                                 : op);
    }
    return names;
  }
  std::vector<std::string> recomputed() const { return recomputed_in(program_); }
  std::vector<comm::CollectiveCall> collectives() const { return program_.collectives({}); }
  int joined() const {
    return static_cast<int>(std::ranges::count_if(
        program_.instructions(), [](const graph::Instruction& s) { return s.fusion != nullptr; }));
  }
  std::int64_t moved_bytes() const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < program_.instructions().size(); ++i)
      sum += program_.moved_bytes(i, false);
    return sum;
  }
  const std::vector<std::vector<double>>& gradients() const { return gradients_; }
  const graph::Program& program() const { return program_; }
  // Gradients that residual steps did not have to write.
  int shared() const {
    int n = 0;
    for (const graph::Instruction& s : program_.instructions()) {
      const graph::Node& node = program_.recording().nodes()[static_cast<std::size_t>(s.node)];
      for (std::size_t k = 0; k < s.grad_in.size() && node.op->kind() == "residual"; ++k)
        n += s.phase == graph::Phase::backward && node.in[k] >= 0 && s.grad_in[k].buffer < 0;
    }
    return n;
  }

 private:
  graph::Value leaf(graph::Recorder& r, const std::string& name, Shape shape) {
    const std::size_t n = static_cast<std::size_t>(shape.elements());
    shapes_.push_back(shape);
    data_.emplace_back(n);
    gradients_.emplace_back(n);
    for (std::size_t i = 0; i < n; ++i)
      data_.back()[i] = std::cos(static_cast<double>(7 * i + 2 * data_.size()));
    return r.parameter(static_cast<int>(data_.size()) - 1, name, shape);
  }

  std::vector<Shape> shapes_;
  std::vector<std::vector<double>> data_, gradients_;
  std::list<std::vector<double>> constants_;
  std::vector<double> arena_;
  graph::Program program_;
  graph::Value output_;
  cpu::Stream stream_;
  comm::Mesh mesh_ = comm::single_mesh();
};

graph::Value tanh(graph::Recorder& r, graph::Value x) {
  return ops::activation(r, x, kernels::Activation::tanh, false);
}

TEST(SharedGradients, OfABranchAndItsResidual) {
  Sum s([](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u) {
    const graph::Value a = ops::linear(r, x, w);
    return tanh(r, ops::dropout_add(r, ops::linear(r, tanh(r, a), u), a, 0, kPlace));
  });
  s.expect_gradients();
  EXPECT_EQ(s.shared(), 2);
}

TEST(SharedGradients, NotWhereTheBranchAddsToWhatItStillReads) {
  Sum s([](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u) {
    const graph::Value a = ops::linear(r, x, w);
    return tanh(r, ops::dropout_add(r, ops::linear(r, a, u), a, 0,
                                    kPlace));  // reads its gradient while it writes that of a
  });
  s.expect_gradients();
  EXPECT_EQ(s.shared(), 1);
}

TEST(SharedGradients, NotWhereAnotherReaderComesFirst) {
  Sum s([](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u) {
    const graph::Value a = ops::linear(r, x, w), y = ops::linear(r, tanh(r, a), u),
                       late = tanh(r, a);
    return tanh(r, ops::dropout_add(r, late, ops::dropout_add(r, y, a, 0, kPlace), 0, kPlace));
  });
  s.expect_gradients();
  EXPECT_EQ(s.shared(), 3);
}

TEST(SharedGradients, NotWhereABranchHasTwoReaders) {
  Sum s([](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u) {
    const graph::Value a = ops::linear(r, x, w), y = ops::linear(r, tanh(r, a), u);
    return ops::dropout_add(r, ops::dropout_add(r, y, a, 0, kPlace), y, 0, kPlace);
  });
  s.expect_gradients();
  EXPECT_LE(s.shared(), 2);
}

TEST(SharedGradients, NotOfOneValueTwice) {
  Sum s([](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value) {
    const graph::Value a = ops::linear(r, x, w);
    return tanh(r, ops::dropout_add(r, a, a, 0, kPlace));
  });
  s.expect_gradients();
  EXPECT_EQ(s.shared(), 0);
}

TEST(SharedGradients, AlongALongStream) {
  Sum s([](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u) {
    graph::Value a = ops::linear(r, x, w);
    for (int layer = 0; layer < 4; ++layer)
      a = ops::dropout_add(r, ops::linear(r, tanh(r, a), layer % 2 ? u : w), a, 0, kPlace);
    return a;
  });
  s.expect_gradients();
  EXPECT_EQ(s.shared(), 8);
}

TEST(SharedGradients, OfTheResidualAloneUnderDropout) {
  Sum s([](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u) {
    const graph::Value a = ops::linear(r, x, w);
    return tanh(r, ops::dropout_add(r, ops::linear(r, tanh(r, a), u), a, 0.5, kPlace));
  });
  s.expect_gradients();
  EXPECT_EQ(s.shared(), 1);
}

// Two blocks: norm, linear, GELU, linear, residual.
graph::Value blocks(graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u) {
  const graph::Value gain = r.constant("gain", {kWidth}, DType::f64, [](Tensor t) {
    for (std::int64_t i = 0; i < kWidth; ++i) t.ptr<double>()[i] = 1 + 0.1 * static_cast<double>(i);
  });
  for (int block = 0; block < 2; ++block) {
    const graph::Recorder::Checkpoint scope(r);
    const graph::Value h = ops::activation(r, ops::linear(r, ops::norm(r, x, {}, gain), w),
                                           kernels::Activation::gelu_tanh, false);
    x = ops::dropout_add(r, ops::linear(r, h, u), x, 0, kPlace);
  }
  return ops::norm(r, x, {}, gain);
}

TEST(RecomputeScope, RefusesAnotherInside) {
  graph::Recorder r(DType::f32);
  {
    const graph::Recorder::Named layer(r, "layers.3");
    const graph::Recorder::Checkpoint outer(r);
    try {
      const graph::Recorder::Checkpoint inner(r);
      ADD_FAILURE() << "a nested scope";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("layers.3"), std::string::npos) << e.what();
    }
    const graph::Value y = ops::activation(r, r.parameter(0, "x", {kRows, kWidth}),
                                           kernels::Activation::gelu_tanh, false);
    EXPECT_EQ(r.info(y).scope, 0) << "the outer scope stays";
  }
  const graph::Recorder::Checkpoint after(r);
}

TEST(RandomStream, IsNewForEveryOpOfARecording) {
  graph::Recorder r(DType::f32);
  const graph::Recorder::Named layer(r, "layers.3");
  EXPECT_EQ(r.random_stream("dropout"), stream_of("layers.3.dropout"));
  EXPECT_THROW(r.random_stream("dropout"), Error);
}

TEST(JoinedSteps, ComputeTheSame) {
  for (const graph::Recompute recompute :
       {graph::Recompute::none, graph::Recompute::selective, graph::Recompute::full}) {
    Sum apart(blocks, recompute), joined(blocks, recompute, true);
    EXPECT_EQ(apart.joined(), 0);
    EXPECT_GE(joined.joined(), 4)
        << "a residual and a norm twice, an activation's and a linear layer's backward pass twice";
    joined.expect_gradients();
    apart.run();
    joined.run();
    EXPECT_EQ(apart.gradients(), joined.gradients());
    if (recompute == graph::Recompute::none) {
      const std::int64_t activation = 2 * kRows * kWidth, norm = activation + kWidth + 2 * kRows;
      EXPECT_EQ(apart.moved_bytes() - joined.moved_bytes(),
                ((2 + 2 * 2) * kRows * kWidth + 2 * (activation + norm)) * 8)
          << "sums read again; gradients written and read; activations and norms made again";
    }
  }
}

TEST(RecomputeScope, KeepsOnCpusNoOutputsThatOneScopeReads) {
  using Kinds = std::vector<std::string>;
  EXPECT_EQ(Sum(blocks).recomputed(), (Kinds{"activation", "norm", "activation", "norm"}));
  EXPECT_EQ(Sum(blocks, graph::Recompute::none, true).recomputed(), Kinds{}) << "of a GPU";
  const auto behind = [](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value) {
    const graph::Value gain = r.constant("gain", {kWidth}, DType::f64,
                                         [](Tensor t) { std::ranges::fill(t.span<double>(), 1); });
    for (int block = 0; block < 2; ++block) {
      const graph::Recorder::Checkpoint scope(r);
      x = ops::norm(r, ops::dropout_add(r, ops::linear(r, x, w), x, 0, kPlace), {}, gain);
    }
    return x;
  };
  EXPECT_EQ(Sum(behind).recomputed(), Kinds{}) << "the next scope reads them";
  EXPECT_EQ(Sum(behind, graph::Recompute::selective).recomputed(), (Kinds{"residual", "residual"}));
  EXPECT_EQ(Sum([](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value) {
              const graph::Recorder::Checkpoint scope(r);
              const graph::Value gain = r.constant("gain", {kWidth}, DType::f64, [](Tensor t) {
                std::ranges::fill(t.span<double>(), 1);
              });
              const graph::Value h = ops::norm(r, ops::linear(r, x, w), {}, gain);
              return ops::dropout_add(r, h, x, 0, kPlace);
            }).recomputed(),
            Kinds{})
      << "no backward pass reads it";
}

TEST(RecomputeScope, KeepsOnCpusNoOutputsOfActivationsInFullPrecision) {
  const auto recomputed = [](DType dtype, bool device) {
    auto tape = std::make_shared<graph::Recorder>(dtype);
    int leaves = 0;
    const auto leaf = [&](const char* name, std::int64_t rows) {
      return tape->parameter(leaves++, name, {rows, kWidth});
    };
    const graph::Value x = leaf("x", kRows), w = leaf("w", kWidth), u = leaf("u", kWidth);
    graph::Value y;
    {
      const graph::Recorder::Checkpoint scope(*tape);
      const graph::Value h =
          ops::activation(*tape, ops::linear(*tape, x, w), kernels::Activation::gelu_tanh, false);
      y = ops::dropout_add(*tape, ops::linear(*tape, h, u), x, 0, kPlace);
    }
    return recomputed_in(graph::plan(tape, {.outputs = {y}, .seeds = {y}, .device = device}));
  };
  using Kinds = std::vector<std::string>;
  EXPECT_EQ(recomputed(DType::f32, false), Kinds{"activation"});
  EXPECT_EQ(recomputed(DType::f64, false), Kinds{"activation"});
  EXPECT_EQ(recomputed(DType::bf16, false), Kinds{});
  EXPECT_EQ(recomputed(DType::f32, true), Kinds{}) << "of a GPU";
}

// A linear layer with a bias, an activation, and another linear layer; in front, if `region`, the
// entry of a tensor-parallel region.
auto biased(kernels::Activation act, bool region = false) {
  return [=](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u, graph::Value b) {
    graph::Value h = tanh(r, x);
    if (region) h = ops::copy_to_tp_region(r, h);
    return ops::linear(r, ops::activation(r, ops::linear(r, h, w, b), act, false), u);
  };
}

TEST(JoinedSteps, SumTheGradientOfABiasOnTheWay) {
  for (const kernels::Activation act : {kernels::Activation::gelu, kernels::Activation::silu}) {
    Sum apart(biased(act)), joined(biased(act), graph::Recompute::none, true);
    EXPECT_EQ(joined.pairs(), (std::vector<std::string>{"activation + linear backward"}));
    joined.expect_gradients();
    EXPECT_EQ(apart.moved_bytes() - joined.moved_bytes(),
              kRows * kWidth * static_cast<std::int64_t>(sizeof(double)))
        << "the sum reads the gradient no more, the products do";
    for (const bool first : {true, false}) {
      apart.run({.first = first}), joined.run({.first = first});
      EXPECT_EQ(apart.gradients(), joined.gradients()) << (first ? "assigned" : "added to");
    }
  }
}

TEST(JoinedSteps, LeaveWorkBesideACollective) {
  const auto pairs = [](bool overlap) {
    return Sum(biased(kernels::Activation::relu, true), graph::Recompute::none, true, overlap)
        .pairs();
  };
  using Pairs = std::vector<std::string>;
  EXPECT_EQ(pairs(false), (Pairs{"activation + linear backward"}));
  EXPECT_EQ(pairs(true), Pairs{}) << "the gradient of the weights hides the exchange";
}

// What a row of the table says of ops, phase and options, and nothing else, is run at once.
TEST(JoinedSteps, AreThoseOfTheTable) {
  const auto pairs = [](auto&& build) { return Sum(build, graph::Recompute::full, true).pairs(); };
  using Pairs = std::vector<std::string>;
  EXPECT_EQ(pairs(blocks), (Pairs{"residual + norm forward", "residual + norm forward",
                                  "linear + activation backward", "linear + activation backward"}));
  EXPECT_EQ(pairs([](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u) {
              const graph::Value gain = r.constant("gain", {kWidth}, DType::f64, [](Tensor t) {
                std::ranges::fill(t.span<double>(), 1);
              });
              const graph::Recorder::Checkpoint scope(r);
              const graph::Value sum = ops::dropout_add(r, ops::linear(r, x, w), x, 0, kPlace);
              return ops::linear(r, ops::norm(r, sum, {}, gain), u);
            }),
            (Pairs{"residual + norm forward", "residual + norm recompute"}));
  const auto behind = [](kernels::Activation act) {
    return [act](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u) {
      return ops::linear(r, ops::activation(r, ops::linear(r, x, w), act, false), u);
    };
  };
  EXPECT_EQ(pairs(behind(kernels::Activation::gelu_tanh)), (Pairs{"linear + activation backward"}));
  EXPECT_EQ(pairs(behind(kernels::Activation::relu)), Pairs{}) << "another activation, and no bias";
  using kernels::Activation;
  EXPECT_EQ(pairs(biased(Activation::gelu)), (Pairs{"activation + linear backward"}));
  EXPECT_EQ(pairs(biased(Activation::relu)), (Pairs{"activation + linear backward"}));
  EXPECT_EQ(pairs(biased(Activation::gelu_tanh)), (Pairs{"linear + activation backward"}))
      << "the pair that comes first";
  EXPECT_EQ(pairs([](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u) {
              const graph::Value h =
                  ops::activation(r, ops::linear(r, x, w), kernels::Activation::gelu_tanh, false);
              return ops::dropout_add(r, ops::linear(r, h, u), h, 0, kPlace);
            }),
            Pairs{})
      << "a gradient that has two sources";
}

// x goes through an activation into two layers; in front of one is the entry of a tensor-parallel
// region, whose backward pass exchanges.
graph::Value two_branches(graph::Recorder& r, graph::Value x, graph::Value w, graph::Value u) {
  const graph::Value a = ops::activation(r, x, kernels::Activation::gelu_tanh, false),
                     b = ops::activation(r, x, kernels::Activation::relu, false),
                     left = ops::linear(r, ops::copy_to_tp_region(r, a), w),
                     right = ops::linear(r, b, u);
  return ops::dropout_add(r, right, left, 0, kPlace);
}

TEST(Collectives, AreWaitedForByTheFirstStepThatNeedsThem) {
  const auto order = [](bool overlap) {
    return Sum(two_branches, graph::Recompute::none, false, overlap).backward_steps();
  };
  using Steps = std::vector<std::string>;
  EXPECT_EQ(order(false), (Steps{"residual", "linear", "linear", "copy_to_tp_region", "start",
                                 "wait", "copy_to_tp_region", "activation", "activation"}));
  EXPECT_EQ(order(true), (Steps{"residual", "linear", "linear of activations", "copy_to_tp_region",
                                "start", "linear of parameters", "activation", "wait",
                                "copy_to_tp_region", "activation"}));
}

TEST(Collectives, GradientsAreRightWhereOtherStepsRunBeside) {
  Sum(two_branches, graph::Recompute::none, false, true).expect_gradients();
  Sum beside(two_branches, graph::Recompute::none, false, true), alone(two_branches);
  beside.run(), alone.run();
  EXPECT_EQ(beside.gradients(), alone.gradients());
}

// The gradient of a shortcut shares its memory with that of the layer's output, which the gradient
// of the layer's weights still reads when the collective adds to it.
TEST(Collectives, LeaveRoomForGradientsThatShareMemory) {
  const auto shortcut = [](graph::Recorder& r, graph::Value x, graph::Value w, graph::Value) {
    const graph::Value a = ops::activation(r, x, kernels::Activation::gelu_tanh, false);
    return ops::dropout_add(r, a, ops::linear(r, ops::copy_to_tp_region(r, a), w), 0, kPlace);
  };
  Sum(shortcut, graph::Recompute::none, false, true).expect_gradients();
}

TEST(Collectives, AreThoseThatThePlanLists) {
  const Sum sum(two_branches, graph::Recompute::none, false, true);
  EXPECT_EQ(sum.collectives(),
            (std::vector<comm::CollectiveCall>{
                {comm::Collective::all_reduce_sum, comm::Axis::tensor, kRows * kWidth * 8}}));
}

// A copy of a program, in which anything can be changed.
struct Changed {
  explicit Changed(const graph::Program& p) : program(p) {}
  std::vector<graph::Buffer>& buffers() {
    return const_cast<std::vector<graph::Buffer>&>(program.buffers());
  }
  std::vector<graph::Instruction>& steps() {
    return const_cast<std::vector<graph::Instruction>&>(program.instructions());
  }
  std::vector<graph::Exchange>& exchanges() {
    return const_cast<std::vector<graph::Exchange>&>(program.exchanges());
  }
  void expect_refused(const std::string& what) const {
    EXPECT_ANY_THROW(graph::verify(program)) << what;
  }
  graph::Program program;
};

// First and last use of each buffer of the arena, with what the caller writes and reads.
std::vector<std::pair<int, int>> uses_of(const graph::Program& p) {
  std::vector<std::pair<int, int>> uses(p.buffers().size(), {-1, -1});
  const int steps = static_cast<int>(p.instructions().size());
  for (int i = 0; i < steps; ++i)
    graph::for_each_buffer(p.instructions()[static_cast<std::size_t>(i)], [&](int b) {
      auto& [first, last] = uses[static_cast<std::size_t>(b)];
      first = first < 0 ? i : first;
      last = i;
    });
  for (std::size_t b = 0; b < uses.size(); ++b) {
    if (p.buffers()[b].seeded) uses[b].first = 0;
    if (p.buffers()[b].kept) uses[b].second = steps;
  }
  return uses;
}

std::list<Sum> programs() {
  std::list<Sum> all;
  all.emplace_back(blocks, graph::Recompute::full);
  all.emplace_back(blocks);
  all.emplace_back(two_branches, graph::Recompute::none, false, true);
  return all;
}

TEST(VerifiedPrograms, KeepLiveTensorsApart) {
  for (const Sum& sum : programs()) {
    const graph::Program& whole = sum.program();
    ASSERT_NO_THROW(graph::verify(whole));
    const auto uses = uses_of(whole);
    int pairs = 0;
    for (std::size_t a = 0; a < uses.size(); ++a) {
      const graph::Buffer& x = whole.buffers()[a];
      if (!x.in_arena() || uses[a].first < 0 || x.bytes == 0) continue;
      for (const std::int64_t offset : {x.offset + 8, std::int64_t{-64}, whole.arena_bytes()}) {
        Changed moved(whole);
        moved.buffers()[a].offset = offset;
        moved.expect_refused("lies elsewhere");
      }
      for (std::size_t b = 0; b < uses.size(); ++b) {
        const graph::Buffer& y = whole.buffers()[b];
        if (a == b || !y.in_arena() || uses[b].first < 0 || y.bytes == 0 ||
            uses[a].second < uses[b].first || uses[b].second < uses[a].first)
          continue;
        ++pairs;
        Changed together(whole);
        together.buffers()[a].offset = y.offset;
        together.expect_refused("two are live in one place");
      }
    }
    EXPECT_GT(pairs, 10);
  }
}

TEST(VerifiedPrograms, ReadNothingBeforeItIsWritten) {
  for (const Sum& sum : programs()) {
    const graph::Program& whole = sum.program();
    int orders = 0, gradients = 0;
    for (std::size_t i = 0; i < whole.instructions().size(); ++i) {
      const graph::Instruction& s = whole.instructions()[i];
      if (s.kind != graph::Instruction::Kind::compute) continue;
      const bool goes_on = std::any_of(
          whole.instructions().begin() + static_cast<std::ptrdiff_t>(i) + 1,
          whole.instructions().end(), [&](const graph::Instruction& later) {
            return later.node == s.node && later.phase == s.phase && later.stage > s.stage;
          });
      for (std::size_t k = 0; k < s.grad_in.size() && !goes_on; ++k) {
        if (s.grad_in[k].buffer < 0) continue;
        ++gradients;
        Changed other(whole);
        other.steps()[i].grad_in[k].accumulate ^= true;
        other.expect_refused("a gradient is added to nothing, or lost");
      }
      if (i + 1 == whole.instructions().size()) continue;
      const graph::Instruction& next = whole.instructions()[i + 1];
      const bool needs =
          s.phase != graph::Phase::backward && std::ranges::any_of(s.out, [&](int b) {
            return b >= 0 && std::ranges::count(next.in, b);
          });
      if (!needs) continue;
      ++orders;
      Changed swapped(whole), without(whole);
      std::swap(swapped.steps()[i], swapped.steps()[i + 1]);
      swapped.expect_refused("a step comes before what it reads");
      without.steps().erase(without.steps().begin() + static_cast<std::ptrdiff_t>(i));
      without.expect_refused("a step is missing");
    }
    EXPECT_GT(orders, 0);
    EXPECT_GT(gradients, 4);
  }
}

TEST(VerifiedPrograms, ExchangeWhatIsDeclared) {
  const Sum sum(two_branches, graph::Recompute::none, false, true);
  const graph::Program& whole = sum.program();
  ASSERT_EQ(whole.exchanges().size(), 1U);
  const graph::Exchange x = whole.exchanges()[0];
  ASSERT_GT(x.wait, x.start + 1) << "steps run beside it";
  const auto start = static_cast<std::size_t>(x.start), wait = static_cast<std::size_t>(x.wait);
  const auto refused = [&](const std::string& what, auto&& change) {
    Changed other(whole);
    change(other);
    other.expect_refused(what);
  };
  refused("bytes", [](Changed& c) { c.exchanges()[0].call.bytes += 8; });
  refused("axes", [](Changed& c) { c.exchanges()[0].call.axes = comm::kData; });
  refused("kind",
          [](Changed& c) { c.exchanges()[0].call.kind = comm::Collective::all_reduce_max; });
  refused("start", [](Changed& c) { --c.exchanges()[0].start; });
  refused("wait", [](Changed& c) { --c.exchanges()[0].wait; });
  refused("waited for at once",
          [&](Changed& c) { std::swap(c.steps()[wait], c.steps()[wait - 1]); });
  refused("started twice", [&](Changed& c) { c.steps()[wait] = c.steps()[start]; });
  refused("never waited for", [&](Changed& c) {
    c.steps().erase(c.steps().begin() + static_cast<std::ptrdiff_t>(wait));
  });
  const int made = whole.instructions()[start].grad_in[0].buffer;
  ASSERT_GE(made, 0);
  for (std::size_t i = start + 1; i < wait; ++i) {
    refused("is read meanwhile", [&](Changed& c) { c.steps()[i].in[0] = made; });
    refused("is written meanwhile", [&](Changed& c) {
      c.steps()[i].grad_in.push_back({made, true});
    });
    for (const int read : whole.instructions()[start].grad_out)
      if (read >= 0)
        refused("its operand is written meanwhile", [&](Changed& c) {
          c.steps()[i].grad_in.push_back({read, true});
        });
  }
}

}  // namespace
}  // namespace tfm
