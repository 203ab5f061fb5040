// compare() finds what goes wrong in a run: one number of one run at a time is changed before it.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tfm
