// compare() finds what goes wrong in a run: one number of one run at a time is changed before it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/registry.h"
#include "verify/layout.h"
#include "verify/save_and_load.h"

namespace tfm {
namespace {

using verify::LayoutTraces;
using verify::Trace;

config::Config config_with(int zero) {
  config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 31, d_model: 16, n_layers: 1, n_heads: 2, d_ff: 24}\n"
      "data: {train: {type: tokens, path: none.bin}}\n",
      "test",
      {"parallel.zero=" + std::to_string(zero), "train.seq_len=6", "train.global_batch_size=4",
       "train.micro_batch_size=2"});
  config::resolve_for_ranks(c, 1);
  return c;
}

// check -> the tensor that it names, of those that found something.
using Found = std::map<std::string, std::string>;

Found found(const std::vector<verify::Finding>& findings) {
  Found wrong;
  for (const verify::Finding& f : findings)
    if (!f.ok()) wrong[f.check] = f.worst;
  return wrong;
}

const LayoutTraces& traces(int zero) {
  static std::map<int, LayoutTraces> all;
  const auto [at, fresh] = all.try_emplace(zero);
  if (fresh)
    at->second =
        verify::trace_layout(config_with(zero), comm::single_mesh(), device::Device::cpu(1));
  return at->second;
}

Found found_with(int zero, Trace LayoutTraces::*which, const std::function<void(Trace&)>& change) {
  LayoutTraces changed = traces(zero);
  change(changed.*which);
  return found(verify::compare(config_with(zero), comm::single_mesh(), changed));
}

std::vector<std::string> part_names() {
  const auto model = models::make_model(config_with(0), comm::single_mesh());
  std::vector<std::string> names;
  for (const nn::PartSlice& p : model->parameters().slices()) names.push_back(p.name);
  return names;
}

constexpr const char *kInitial = "initial weights", *kGradients = "gradient of every parameter",
                     *kParameters = "parameters after 5 steps";

TEST(VerifyLayout, FindsNothingWhereNothingIsWrong) {
  for (const int zero : {0, 1})
    EXPECT_EQ(found(verify::verify_layout(config_with(zero), comm::single_mesh(),
                                          device::Device::cpu(1))),
              Found{});
}

TEST(VerifyLayout, ComparesWithRecomputationOrWithout) {
  using enum config::Recompute;
  for (const auto& [given, other] : {std::pair{none, full}, {selective, none}, {full, none}}) {
    config::Config c = config_with(0);
    c.recompute = given;
    EXPECT_EQ(verify::with_other_recompute(c).recompute, other);
  }
}

// In the reference as in the layout, in every part.
TEST(VerifyLayout, NamesThePartWithOneWrongElement) {
  const std::vector<std::string> names = part_names();
  ASSERT_GT(names.size(), 8u);
  for (std::size_t part = 0; part < names.size(); ++part) {
    const auto last = [part](auto& parts) -> double& { return parts[part].back(); };
    const auto which = part % 2 == 0 ? &LayoutTraces::single : &LayoutTraces::layout;
    EXPECT_EQ(found_with(0, which, [&](Trace& t) { last(t.initial) += 1e-14; }),
              (Found{{kInitial, names[part]}}));
    EXPECT_EQ(found_with(0, which, [&](Trace& t) { last(t.gradients) += 1e-5; }),
              (Found{{kGradients, names[part]}}));
    EXPECT_EQ(found_with(0, which, [&](Trace& t) { last(t.parameters) += 1e-5; }),
              (Found{{kParameters, names[part]}}));
  }
}

// Gradients of a run with ZeRO are those of the run without.
TEST(VerifyLayout, FindsAWrongGradientBesideZero) {
  EXPECT_EQ(found_with(1, &LayoutTraces::no_zero, [](Trace& t) { t.gradients[2][3] += 1e-5; }),
            (Found{{kGradients, part_names()[2]}}));
}

TEST(VerifyLayout, FindsWrongNumbers) {
  const std::string losses = "losses of 5 steps", none;
  for (const auto which : {&LayoutTraces::single, &LayoutTraces::layout}) {
    Found first{{"loss of step 1", none}, {losses, none}}, later{{losses, none}};
    if (which == &LayoutTraces::layout)
      for (Found* f : {&first, &later}) (*f)["recompute on vs. off"] = none;
    EXPECT_EQ(found_with(0, which, [](Trace& t) { t.losses[0] *= 1 + 1e-7; }), first);
    EXPECT_EQ(found_with(0, which, [](Trace& t) { t.losses[4] *= 1 - 1e-7; }), later);
    EXPECT_EQ(found_with(0, which, [](Trace& t) { t.norms[4] *= 1 + 1e-7; }),
              (Found{{"gradient norm", none}}));
  }
  EXPECT_EQ(
      found_with(0, &LayoutTraces::other_recompute, [](Trace& t) { t.losses[3] *= 1 + 1e-15; }),
      (Found{{"recompute on vs. off", none}}))
      << "these are bit-equal";
  EXPECT_EQ(found_with(1, &LayoutTraces::no_zero, [](Trace& t) { t.losses[3] *= 1 + 1e-15; }),
            (Found{{"ZeRO on vs. off", none}}))
      << "these are bit-equal";
}

TEST(VerifyLayout, FindsWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(found_with(0, &LayoutTraces::layout, [&](Trace& t) { t.gradients[1][0] = nan; }),
            (Found{{kGradients, part_names()[1]}}));
  EXPECT_EQ(found_with(0, &LayoutTraces::layout, [&](Trace& t) { t.norms[2] = nan; }),
            (Found{{"gradient norm", ""}}));
}

// Weights and the optimizer's state, as the checkpoint gave them back.
TEST(VerifyLayout, FindsWhatACheckpointDoesNotBringBack) {
  const auto restored = [](const std::function<float*(const train::Engine&)>& of) {
    return verify::save_and_load(config_with(0), comm::single_mesh(), device::Device::cpu(1),
                                 [&](train::Engine& e) { of(e)[1] += 1; });
  };
  const verify::Finding weights =
      restored([](const train::Engine& e) { return static_cast<float*>(e.flat().parameters); });
  EXPECT_FALSE(weights.ok());
  EXPECT_NE(weights.worst.find("model/"), std::string::npos);
  for (const std::size_t k : {0u, 1u}) {
    const verify::Finding state = restored([k](const train::Engine& e) {
      return static_cast<float*>(e.flat().state) + e.optimizer().shards().states[k].offset;
    });
    EXPECT_FALSE(state.ok());
    EXPECT_NE(state.worst.find(k == 0 ? "adam.m/" : "adam.v/"), std::string::npos);
  }
}

// Sums in another order are within 1e-9 of each part's size, or of a millionth of the largest
// part's where a part is zero; weights after five steps within 1e-7.
TEST(VerifyLayout, BoundsAreRelativeToEachPart) {
  const std::vector<std::string> names = part_names();
  const auto rms = [](const std::vector<double>& part) {
    double squares = 0;
    for (const double x : part) squares += x * x;
    return std::sqrt(squares / static_cast<double>(part.size()));
  };
  const Trace& single = traces(0).single;
  double largest = 0;
  for (const auto& part : single.gradients) largest = std::max(largest, rms(part));
  for (const std::size_t part : {std::size_t{0}, names.size() - 1}) {
    for (const auto& [times, wrong] : {std::pair{0.5, false}, {2.0, true}}) {
      EXPECT_EQ(found_with(0, &LayoutTraces::layout,
                           [&](Trace& t) {
                             t.gradients[part] = single.gradients[part];
                             t.gradients[part][1] -= times * 1e-9 * rms(single.gradients[part]);
                           }),
                (wrong ? Found{{kGradients, names[part]}} : Found{}));
      EXPECT_EQ(found_with(0, &LayoutTraces::layout,
                           [&](Trace& t) {
                             t.parameters[part] = single.parameters[part];
                             t.parameters[part][1] += times * 1e-7 * rms(single.parameters[part]);
                           }),
                (wrong ? Found{{kParameters, names[part]}} : Found{}));
    }
  }
  for (const auto& [times, wrong] : {std::pair{0.5, false}, {2.0, true}}) {
    LayoutTraces zero = traces(0);
    std::ranges::fill(zero.single.gradients[2], 0.0);
    std::ranges::fill(zero.layout.gradients[2], 0.0);
    zero.layout.gradients[2][0] = times * 1e-9 * 1e-6 * largest;
    EXPECT_EQ(found(verify::compare(config_with(0), comm::single_mesh(), zero)),
              (wrong ? Found{{kGradients, names[2]}} : Found{}));
  }
  for (const auto& [times, wrong] : {std::pair{0.5, false}, {2.0, true}}) {
    EXPECT_EQ(found_with(0, &LayoutTraces::layout,
                         [&](Trace& t) { t.norms[1] = single.norms[1] * (1 + times * 1e-9); }),
              (wrong ? Found{{"gradient norm", ""}} : Found{}));
  }
}

TEST(VerifyLayout, FindsMemoryThatWasNotPlanned) {
  for (const std::int64_t more : {-1, 1})
    EXPECT_EQ(found_with(0, &LayoutTraces::layout, [&](Trace& t) { t.taken += more; }),
              (Found{{"memory taken as planned", ""}}));
}

// The same bits only where sums have the same order with ZeRO as without: in stage 1, in
// deterministic runs, of replicas whose number is a power of two, and where devices keep the order.
TEST(VerifyLayout, ZeroIsExactWhereSumsHaveTheSameOrder) {
  using enum config::Numerics;
  struct Case {
    std::int64_t zero, replicas;
    config::Numerics numerics;
    bool fixed_order, exact;
  };
  for (const Case& c :
       {Case{1, 1, normal, true, true}, Case{1, 1, normal, false, false},
        Case{1, 2, normal, true, true}, Case{1, 3, normal, true, false},
        Case{1, 4, normal, true, true}, Case{1, 6, deterministic, true, false},
        Case{2, 1, normal, true, false}, Case{2, 1, deterministic, true, true},
        Case{3, 2, deterministic, true, true}, Case{3, 1, deterministic, false, false}}) {
    config::Config config = config_with(1);
    config.parallel.zero = c.zero, config.parallel.replicas = c.replicas;
    config.numerics = c.numerics;
    LayoutTraces changed = traces(1);
    changed.layout.fixed_order = c.fixed_order;
    const auto all = verify::compare(config, comm::single_mesh(), changed);
    const auto zero = std::ranges::find(all, "ZeRO on vs. off", &verify::Finding::check);
    ASSERT_NE(zero, all.end());
    EXPECT_EQ(zero->bound, c.exact ? 0 : 1e-9)
        << c.zero << " " << c.replicas << " " << c.fixed_order;
  }
  const auto without = verify::compare(config_with(0), comm::single_mesh(), traces(0));
  EXPECT_EQ(std::ranges::count(without, "ZeRO on vs. off", &verify::Finding::check), 0);
}

TEST(VerifyLayout, ShrinksToAMomentWithEveryOption) {
  const auto shrunk = [](const std::string& model, std::vector<std::string> overrides,
                         const std::string& data = "{type: tokens, path: none.bin}") {
    config::Config c = config::parse_config("model: {" + model + "}\ndata: {train: " + data + "}\n",
                                            "test", overrides);
    return verify::shrink(c);
  };
  const std::string decoder =
      "family: decoder, vocab_size: 50000, d_model: 768, n_layers: 12, n_heads: 12";
  const config::Config one =
      shrunk(decoder, {"train.seq_len=1024", "parallel.data=3", "parallel.sequence=false"});
  EXPECT_EQ(one.model.n_layers, 2);
  EXPECT_EQ(one.model.d_head, 8);
  EXPECT_EQ(one.model.d_model, 12 * 8);
  EXPECT_EQ(one.model.d_ff, 12);
  EXPECT_EQ(one.model.vocab_size, 211);
  EXPECT_EQ(one.model.max_seq_len, 64);
  EXPECT_EQ(one.train.seq_len, 16);
  EXPECT_EQ(one.train.micro_batch_size, 2);
  EXPECT_EQ(one.train.global_batch_size, 4 * 3);
  EXPECT_EQ(one.parallel.bucket_bytes, 64 << 10);
  const config::Config split =
      shrunk(decoder, {"train.seq_len=1024", "parallel.data=1", "parallel.tensor=3",
                       "parallel.context=2", "parallel.pipeline=2", "parallel.schedule=interleaved",
                       "parallel.virtual_stages=3", "parallel.bucket_bytes=1000"});
  EXPECT_EQ(split.model.n_layers, 6) << "a block for each chunk of each stage";
  EXPECT_EQ(split.model.d_ff, 12 * 3);
  EXPECT_EQ(split.train.seq_len, 24) << "a multiple of tensor ranks times two chunks of each part";
  EXPECT_EQ(split.parallel.bucket_bytes, 1000);
  const config::Config small = shrunk(
      "family: decoder, vocab_size: 31, d_model: 16, n_layers: 1, n_heads: 4, d_ff: 8, "
      "max_seq_len: 20",
      {"train.seq_len=10", "parallel.sequence=false", "parallel.data=1"});
  EXPECT_EQ(small.model.n_layers, 1);
  EXPECT_EQ(small.model.d_head, 4);
  EXPECT_EQ(small.model.d_ff, 8);
  EXPECT_EQ(small.model.vocab_size, 31);
  EXPECT_EQ(small.model.max_seq_len, 20);
  EXPECT_EQ(small.train.seq_len, 10);
  const config::Config stages = shrunk(
      decoder, {"parallel.data=1", "parallel.pipeline=2", "parallel.layers_per_stage=[5, 7]"});
  EXPECT_TRUE(stages.parallel.layers_per_stage.empty());
  const config::Config kept =
      shrunk("family: decoder, vocab_size: 31, d_model: 16, n_layers: 2, n_heads: 2",
             {"parallel.data=1", "parallel.pipeline=2", "parallel.layers_per_stage=[1, 1]"});
  EXPECT_EQ(kept.parallel.layers_per_stage.size(), 2u);
  const config::Config experts =
      shrunk(decoder + ", experts: {count: 8, top_k: 2, d_ff: 96, shared: 1, shared_d_ff: 100}",
             {"parallel.data=1", "parallel.tensor=2"});
  EXPECT_EQ(experts.model.experts.d_ff, 24);
  EXPECT_EQ(experts.model.experts.shared_d_ff, 24);
  EXPECT_EQ(experts.model.experts.count, 8);
  for (const auto& [group, batch] : {std::pair{0, 8}, {4, 16}, {1, 16}}) {
    const config::Config pairs = shrunk(
        "family: encoder, vocab_size: 300, d_model: 16, n_layers: 1, n_heads: 2, heads: "
        "[{type: embed, group: " +
            (group > 0 ? std::to_string(group) : "auto") + "}]",
        {"parallel.data=2"}, "{type: labelled, path: a.tsv, text_pair: b}");
    EXPECT_EQ(pairs.train.micro_batch_size, 4) << "two pairs";
    EXPECT_EQ(pairs.train.global_batch_size, batch);
    EXPECT_EQ(pairs.model.head_of_type("embed")->group, std::min(group, 2));
  }
}

}  // namespace
}  // namespace tfm
