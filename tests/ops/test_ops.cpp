// Every op: gradients against central differences in float64, float against double, accumulation,
// repeatability, guard bands, and the rule that an op without a case fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <set>

#include "cases.h"
#include "graph/planner.h"

namespace tfm::test {
namespace {

constexpr std::int64_t kGuard = 16;

constexpr StepNumbers kNumbers{.first_sequence = 1, .step = 3};

// Ranks that have the same, as many as an op takes them for: what one computes is a function of
// what all have.
class Twins final : public comm::Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(Tensor t, comm::Collective) override {
    with_float(t.dtype, [&]<class T>() {
      for (std::int64_t i = 0; i < t.elements(); ++i)
        t.ptr<T>()[i] = static_cast<T>(2 * static_cast<Accum<T>>(t.ptr<T>()[i]));
    });
  }
  void broadcast(Tensor, int) override {}
  void barrier() override {}
  void all_gather(Tensor in, Tensor out) override {
    for (std::int64_t at = 0; at < out.bytes(); at += in.bytes())
      std::memcpy(static_cast<std::byte*>(out.data) + at, in.data,
                  static_cast<std::size_t>(in.bytes()));
  }
  void ring_shift(Tensor in, Tensor out) override {
    std::memcpy(out.data, in.data, static_cast<std::size_t>(in.bytes()));
  }
  // These mirror each other: what one sends to the other it receives from it.
  void all_to_all(Tensor in, Tensor out) override {
    std::memcpy(out.data, in.data, static_cast<std::size_t>(in.bytes()));
  }
  void reduce_scatter(Tensor in, Tensor out) override {
    with_float(in.dtype, [&]<class T>() {
      const std::int64_t n = out.elements();
      for (std::int64_t i = 0; i < n; ++i) {
        Accum<T> sum = 0;
        for (std::int64_t at = i; at < in.elements(); at += n)
          sum += static_cast<Accum<T>>(in.ptr<T>()[at]);
        out.ptr<T>()[i] = static_cast<T>(sum);
      }
    });
  }
  Ticket start(comm::Collective kind, Tensor in, Tensor out) override {
    run(kind, in, out);
    return 0;
  }
  void finish(Ticket) override {}
};

comm::Mesh mesh_of_twins() {
  comm::Mesh mesh = comm::single_mesh();
  for (const comm::Axis a : {comm::Axis::context, comm::Axis::expert})
    mesh.handle(a) = std::make_shared<Twins>();
  return mesh;
}

// One op, recorded, planned and bound to memory of its own; the loss is sum(seed * output).
template <class T>
class Harness {
 public:
  explicit Harness(const OpCase& c, unsigned numbers = 7) {
    auto tape = std::make_shared<graph::Recorder>(dtype_of<T>);
    std::vector<graph::Value> inputs;
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      inputs.push_back(tape->parameter(static_cast<int>(i), "input" + std::to_string(i),
                                       c.inputs[i],
                                       i < c.activations ? dtype_of<T> : dtype_of<Accum<T>>));
    output_ = c.build(*tape, inputs);
    const graph::Op& last = *tape->nodes().back().op;
    fused_ = last.forward_with_backward() || last.makes_loss();
    graph::PlanOptions options{.outputs = {output_}};
    if (!fused_) options.seeds = {output_};
    program_ = graph::plan(tape, options);

    std::mt19937 random(numbers);
    std::normal_distribution<double> normal;
    graph::Bindings b;
    b.data.resize(tape->values().size());
    b.gradients.resize(tape->values().size());
    for (const graph::Value v : inputs) {
      const graph::ValueInfo& info = tape->info(v);
      const auto size = static_cast<std::size_t>(info.shape.elements() + 2 * kGuard);
      data_.emplace_back(size, T(99));
      gradients_.emplace_back(size, Accum<T>(99));
      halves_.emplace_back(info.gradient == dtype_of<T> ? size : 0, T(99));
      for (std::int64_t i = 0; i < info.shape.elements(); ++i)
        data_.back()[kGuard + i] = static_cast<T>(static_cast<Accum<T>>(normal(random)));
      b.data[v.id] = {data_.back().data() + kGuard, dtype_of<T>, info.shape};
      b.gradients[v.id] = {gradient_memory(gradients_.size() - 1) + kGuard * size_of(info.gradient),
                           info.gradient, info.shape};
    }
    for (std::size_t v = 0; v < tape->values().size(); ++v)
      if (const graph::ValueInfo& info = tape->values()[v]; info.role == graph::Role::input)
        b.data[v] = {const_cast<std::int32_t*>(kIntegers.at(info.name).data()), DType::i32,
                     info.shape};
      else if (info.fill)
        info.fill(
            b.data[v] = {
                constants_.emplace_back(static_cast<std::size_t>(info.bytes() / 4 + 1)).data(),
                info.dtype, info.shape});
    arena_.assign(static_cast<std::size_t>(program_.arena_bytes() / 8 + 1), std::nan(""));
    program_.bind(reinterpret_cast<std::byte*>(arena_.data()), b);
    const std::int64_t n = tape->info(output_).shape.elements();
    for (std::int64_t i = 0; i < n; ++i)
      seed_.push_back(static_cast<T>(static_cast<Accum<T>>(normal(random))));
  }

  template <class Other>
  void seed_from(const Harness<Other>& other) {
    seed_.assign(other.seed_.begin(), other.seed_.end());
  }

  double run(bool accumulate = false) {
    if (!fused_)
      std::memcpy(program_.gradient(output_).data, seed_.data(), seed_.size() * sizeof(T));
    program_.run({&stream_, &mesh_, {.seed = 5, .micro_batch = {.first = !accumulate}}, &kNumbers});
    for (std::size_t k = 0; k < halves_.size() && sizeof(T) == 2; ++k)
      std::copy(halves_[k].begin(), halves_[k].end(), gradients_[k].begin());
    if (fused_) return *program_.value(output_).template ptr<double>();
    double loss = 0;
    const T* y = program_.value(output_).template ptr<T>();
    for (std::size_t i = 0; i < seed_.size(); ++i)
      loss += static_cast<double>(y[i]) * static_cast<double>(seed_[i]);
    return loss;
  }
  std::vector<double> output() const {
    const Tensor y = program_.value(output_);
    if (fused_) return {*y.template ptr<double>()};
    return {y.template ptr<T>(), y.template ptr<T>() + y.elements()};
  }
  std::vector<std::vector<T>> data_;
  std::vector<std::vector<Accum<T>>> gradients_;
  std::vector<T> seed_;

 private:
  template <class>
  friend class Harness;
  std::byte* gradient_memory(std::size_t k) {
    if constexpr (sizeof(T) == 2)
      if (!halves_[k].empty()) return reinterpret_cast<std::byte*>(halves_[k].data());
    return reinterpret_cast<std::byte*>(gradients_[k].data());
  }

  std::vector<std::vector<T>>
      halves_;  // gradients of 16-bit activations, which a run copies to gradients_
  graph::Value output_;
  bool fused_ = false;
  graph::Program program_;
  std::vector<double> arena_;
  std::vector<std::vector<std::int32_t>> constants_;
  cpu::Stream stream_{2};
  comm::Mesh mesh_ = mesh_of_twins();
};

class Ops : public testing::TestWithParam<OpCase> {};

TEST_P(Ops, GradientEqualsCentralDifferences) {
  Harness<double> h(GetParam());
  h.run();
  const auto gradients = h.gradients_;
  for (std::size_t k = 0; k < gradients.size(); ++k)
    for (std::size_t i = kGuard; i + kGuard < gradients[k].size(); ++i) {
      double& x = h.data_[k][i];
      const double keep = x, e = 1e-4;
      const auto at = [&](double value) {
        x = value;
        return h.run();
      };
      const double d =
          (8 * (at(keep + e) - at(keep - e)) - (at(keep + 2 * e) - at(keep - 2 * e))) / (12 * e);
      x = keep;
      EXPECT_NEAR(gradients[k][i], d, 1e-6 * std::max(1.0, std::abs(d)))
          << "input " << k << " element " << i - kGuard;
    }
}

TEST_P(Ops, FloatAgreesWithDouble) {
  Harness<float> single(GetParam());
  Harness<double> twice(GetParam());
  for (std::size_t k = 0; k < single.data_.size(); ++k)
    for (std::size_t i = 0; i < single.data_[k].size(); ++i) twice.data_[k][i] = single.data_[k][i];
  EXPECT_NEAR(single.run(), twice.run(), 1e-4);
  for (std::size_t k = 0; k < single.gradients_.size(); ++k)
    for (std::size_t i = 0; i < single.gradients_[k].size(); ++i)
      EXPECT_NEAR(single.gradients_[k][i], twice.gradients_[k][i],
                  1e-5 * std::max(1.0, std::abs(twice.gradients_[k][i])));
}

// Against float64 from the same numbers: what is rounded once to 16 bits, with room for the
// rounding of what it is made of.
template <class T>
void half_agrees_with_double(const OpCase& c, double epsilon) {
  if (c.cancels) GTEST_SKIP() << "gradients cancel";
  Harness<T> half(c);
  Harness<double> twice(c);
  for (std::size_t k = 0; k < half.data_.size(); ++k)
    std::copy(half.data_[k].begin(), half.data_[k].end(), twice.data_[k].begin());
  half.run();
  twice.seed_from(half);
  twice.run();
  const auto compare = [&](const auto& got, const auto& want, double roundings,
                           const std::string& what) {
    double largest = 0;
    for (const double w : want) largest = std::max(largest, w == 99 ? 0 : std::abs(w));
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(static_cast<double>(got[i]), static_cast<double>(want[i]),
                  roundings * epsilon * largest)
          << what << " element " << i;
  };
  compare(half.output(), twice.output(), 2, "output");
  for (std::size_t k = 0; k < half.gradients_.size(); ++k)
    compare(half.gradients_[k], twice.gradients_[k], 3, "gradient " + std::to_string(k));
}
TEST_P(Ops, BrainFloatAgreesWithDouble) { half_agrees_with_double<bf16>(GetParam(), 0x1p-8); }
TEST_P(Ops, HalfAgreesWithDouble) { half_agrees_with_double<f16>(GetParam(), 0x1p-11); }

TEST_P(Ops, AccumulatesAndRepeats) {
  Harness<float> h(GetParam());
  h.run();
  const auto once = h.gradients_;
  h.run();
  EXPECT_EQ(once, h.gradients_) << "a second run differs";
  h.run(true);
  for (std::size_t k = 0; k < once.size(); ++k)
    for (std::size_t i = kGuard; i + kGuard < once[k].size(); ++i)
      EXPECT_NEAR(h.gradients_[k][i], 2 * once[k][i], 1e-5 * std::max(1.0f, std::abs(once[k][i])));
}

TEST_P(Ops, WritesNothingOutsideItsGradients) {
  Harness<float> h(GetParam());
  h.run();
  for (const auto& g : h.gradients_)
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(g[i], 99.0f);
      EXPECT_EQ(g[g.size() - 1 - i], 99.0f);
    }
}

TEST(Embedding, OnlyThePaddingRowGetsNoGradient) {
  constexpr std::int64_t rows = 7, cols = 5, padding = 3;
  constexpr double scale = 1.5;
  const OpCase c{
      "embedding", "padding", {{rows, cols}}, [](graph::Recorder& r, const auto& in) {
        return ops::embedding(r, r.input("ids", {8}, DType::i32), in[0], {0, rows, scale, padding});
      }};
  Harness<double> h(c);
  h.run();
  std::vector<double> expected(rows * cols);
  const std::vector<std::int32_t>& ids = kIntegers.at("ids");
  ASSERT_EQ(std::count(ids.begin(), ids.end(), padding), 2);
  for (std::size_t i = 0; i < ids.size(); ++i)
    for (std::int64_t k = 0; k < cols && ids[i] >= 0 && ids[i] != padding; ++k)
      expected[static_cast<std::size_t>(ids[i] * cols + k)] +=
          scale * h.seed_[i * cols + static_cast<std::size_t>(k)];
  for (std::size_t k = 0; k < expected.size(); ++k)
    EXPECT_DOUBLE_EQ(h.gradients_[0][kGuard + k], expected[k]) << "element " << k;
}

TEST(Attention, RefusesToAddToTheGradientsItAssigns) {
  const OpCase c{"attention", "direct", {{8, 12}}, [](graph::Recorder& r, const auto& in) {
                   return ops::attention(
                       r, {in[0]},
                       {.heads = 1, .kv_heads = 1, .head_size = 4, .queries = 4, .keys = 4});
                 }};
  Harness<float> h(c);
  EXPECT_NO_THROW(h.run());
  EXPECT_THROW(h.run(true), Error);
}

// Of pairs all together and in groups, of triples, and of texts alone: the logits are products with
// the documents of the group, of which a label is the index.
TEST(Contrastive, LossIsThatOfEachQueryAmongTheDocumentsOfItsGroup) {
  constexpr std::int64_t cols = 5;
  constexpr double scale = 1.5;
  struct Case {
    std::string labels;
    std::int64_t rows, texts, group;
  };
  for (const Case& c :
       {Case{"next_of_pairs", 8, 2, 2}, {"of_triples", 6, 3, 0}, {"few", 8, 1, 0}}) {
    Harness<double> h({"contrastive", "values", {{c.rows, cols}}, [&](auto& r, const auto& in) {
                         return ops::contrastive(
                             r, in[0], r.input(c.labels, {c.rows}, DType::i32),
                             {.texts = c.texts, .group = c.group, .scale = scale});
                       }});
    const auto logit = [&](std::int64_t query, std::int64_t document) {
      double sum = 0;
      for (std::int64_t k = 0; k < cols; ++k)
        sum += h.data_[0][kGuard + query * cols + k] * h.data_[0][kGuard + document * cols + k];
      return scale * sum;
    };
    double expected = 0;
    const std::vector<std::int32_t>& labels = kIntegers.at(c.labels);
    for (std::int64_t q = 0; q < c.rows; ++q) {
      const std::int32_t label = labels[static_cast<std::size_t>(q)];
      if (label < 0) continue;
      const std::int64_t size = c.group == 0 ? c.rows : c.group * c.texts, first = q / size * size;
      std::vector<double> logits;
      for (std::int64_t d = first; d < first + size; ++d)
        if (c.texts == 1 || d % c.texts > 0) logits.push_back(logit(q, d));
      double all = 0;
      for (const double x : logits) all += std::exp(x);
      expected += std::log(all) - logits[static_cast<std::size_t>(label)];
    }
    EXPECT_NEAR(h.run(), expected, 1e-12 * expected) << c.labels;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Ops, testing::ValuesIn(op_cases()),
                         [](const auto& info) { return info.param.kind + "_" + info.param.name; });

TEST(OpList, EveryOpHasACase) {
  std::set<std::string> tested{
      // Forward only: tests/inference.
      "absorbed_heads", "absorbed_values", "cached_attention", "continued_convolution",
      "continued_delta", "continued_linear_attention", "continued_state_space",
      // Of several ranks: in float64 in tests/distributed/test_pipeline.cpp.
      "send", "receive", "borrowed_gradient", "lent_gradient"};
  for (const OpCase& c : op_cases()) tested.insert(c.kind);
  const std::regex line(R"(kind\(\) const override \{\s*return ([^;]*);)"), word("\"([a-z_]+)\"");
  std::size_t found = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(TFM_SOURCE_DIR) + "/framework/ops")) {
    std::ifstream in(file.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (std::sregex_iterator l(text.begin(), text.end(), line), end; l != end; ++l) {
      const std::string names = (*l)[1];
      for (std::sregex_iterator w(names.begin(), names.end(), word); w != end; ++w, ++found)
        EXPECT_TRUE(tested.contains((*w)[1]))
            << file.path() << ": op '" << (*w)[1] << "' has no case in tests/ops/cases.cpp";
    }
  }
  EXPECT_GE(found, tested.size());
}

}  // namespace
}  // namespace tfm::test
