// What `auto` becomes, against plans of all there is to choose from.
#include <gtest/gtest.h>

#include "core/error.h"
#include "plan/choose.h"
#include "plan/prediction.h"
#include "plan/rank_plans.h"
#include "plan/suggest.h"

namespace tfm {
namespace {

using Overrides = std::vector<std::string>;

config::Config choose_config(const std::string& model, Overrides overrides = {}) {
  overrides.insert(overrides.begin(), {"recompute=auto", "train.micro_batch_size=auto"});
  const bool pairs = model.find("encoder_decoder") != model.npos;
  return config::parse_config("model: {" + model + "}\ndata: {train: " +
                                  (pairs ? "{type: pairs, source: a, target: b}"
                                         : std::string(model.find("encoder") != model.npos
                                                           ? "{type: mlm, path: none.bin}"
                                                           : "{type: tokens, path: none.bin}")) +
                                  "}\n",
                              "test", overrides);
}

struct Planned {
  std::int64_t bytes = 0;
  double seconds = 0;
};

// Of every rank, not only of those that a choice looks at.
Planned planned(config::Config c, int ranks, const plan::DeviceModel& device) {
  config::resolve_for_ranks(c, ranks);
  const plan::RankPlans plans(c);
  Planned p{.seconds = plan::predict(plans.stages(), device).seconds()};
  plans.each([&](const plan::StepPlan& q, std::int64_t) {
    p.bytes = std::max(p.bytes, q.memory.total());
  });
  return p;
}

plan::DeviceModel device_named(const std::string& name) {
  if (name == "cpu") return plan::cpu_model(plan::reference_core(), 64'000'000'000, 8, 2, 4);
  return plan::gpu_model(*config::value_of<plan::Target>(name));
}

constexpr const char* kChosenModels[] = {
    "family: decoder, vocab_size: 50257, d_model: 768, n_layers: 4, n_heads: 12",
    "family: decoder, vocab_size: 32000, d_model: 4096, n_layers: 6, n_heads: 32, n_kv_heads: 8, "
    "d_ff: 14336, norm: rmsnorm, activation: swiglu, position: rope, bias: false",
    "family: decoder, vocab_size: 50257, d_model: 1600, n_layers: 8, n_heads: 25",
    "family: encoder, vocab_size: 30522, d_model: 1024, n_layers: 24, n_heads: 16",
    "family: encoder_decoder, vocab_size: 37000, d_model: 1024, n_encoder_layers: 3, "
    "n_decoder_layers: 3, n_heads: 16, d_ff: 4096",
};

// Of a chosen micro-batch those that are larger.
std::vector<std::int64_t> larger_sizes(const config::Config& chosen) {
  const config::TrainConfig& t = chosen.train;
  const std::int64_t size = t.micro_batch();
  std::vector<std::int64_t> all;
  if (t.counts_tokens()) {
    const std::int64_t replica = t.global_batch_tokens / chosen.parallel.data;
    for (std::int64_t n = 2 * size; n < 2 * replica; n *= 2) all.push_back(std::min(n, replica));
  } else {
    const std::int64_t replica = t.global_batch_size / chosen.parallel.data;
    for (std::int64_t n = size + 1; n <= replica; ++n)
      if (replica % n == 0) all.push_back(n);
  }
  return all;
}

// Checks a choice and counts what ended it.
void check(const config::Config& read, int ranks, const plan::DeviceModel& device,
           std::map<std::string, int>& ends) {
  const plan::Choice choice = plan::choose(read, ranks, device);
  SCOPED_TRACE(device.name + ": micro-batch " + choice.micro_batch_text + ", recompute " +
               choice.recompute_text);
  const auto with = [&](std::int64_t size, config::Recompute recompute) {
    config::Config c = read;
    c.train.set_micro_batch(size), c.recompute = recompute;
    return planned(c, ranks, device);
  };
  config::Config as_chosen = read;
  choice.layout.apply(as_chosen);
  config::resolve_for_ranks(as_chosen, ranks);
  EXPECT_EQ(as_chosen.recompute, choice.layout.recompute);
  const std::int64_t size = choice.layout.micro_batch();
  const Planned mine = planned(as_chosen, ranks, device);
  EXPECT_LE(mine.bytes, device.usable_bytes());
  std::string end = "all sequences";
  for (const std::int64_t larger : larger_sizes(as_chosen)) {
    const Planned other = with(larger, choice.layout.recompute);
    const bool fits = other.bytes <= device.usable_bytes();
    EXPECT_TRUE(!fits || other.seconds > 0.99 * mine.seconds) << larger << " is faster";
    if (end == "all sequences") {
      end = fits ? "gain" : "memory";
      const std::string unit = read.train.counts_tokens() ? " tokens" : "";
      EXPECT_NE(choice.micro_batch_text.find(std::to_string(larger) + unit + " would take"),
                std::string::npos);
      EXPECT_EQ(choice.micro_batch_text.find("the largest that fits") != std::string::npos, !fits);
    }
  }
  ++ends[end];
  if (choice.layout.recompute == config::Recompute::none) return;
  EXPECT_GT(with(size, config::Recompute::none).bytes, device.usable_bytes());
  config::Config fewer = as_chosen;
  fewer.recompute_layers = choice.layout.recompute_layers - 1;
  if (choice.layout.recompute_layers > 1) {
    EXPECT_GT(planned(fewer, ranks, device).bytes, device.usable_bytes());
    ++ends["some layers"];
  }
  ++ends["recompute"];
}

TEST(Choose, FitsAndNoLargerOneIsWorthItsMemory) {
  std::map<std::string, int> ends;
  int configurations = 0;
  for (const char* model : kChosenModels)
    for (const char* device : {"h200", "a100-40gb", "cpu"})
      for (const auto& [overrides, ranks] :
           {std::pair{Overrides{"train.global_batch_size=96", "train.seq_len=512"}, 2},
            std::pair{Overrides{"train.global_batch_size=512", "train.seq_len=2048",
                                "precision=bf16", "parallel.zero=1"},
                      4}}) {
        Overrides all = overrides;
        all.push_back(device == std::string("cpu") ? "device=cpu" : "device=cuda");
        all.push_back("model.max_seq_len=2048");
        check(choose_config(model, all), ranks, device_named(device), ends);
        ++configurations;
      }
  EXPECT_EQ(configurations, 30);
  for (const char* end : {"all sequences", "gain", "memory", "recompute", "some layers"})
    EXPECT_GT(ends[end], 0) << end << " is not among them";
}

const std::string kSmall =
    "family: decoder, vocab_size: 100, d_model: 64, n_layers: 3, n_heads: 4, dropout: 0";

plan::DeviceModel memory_of(std::int64_t bytes) {
  plan::DeviceModel d = plan::gpu_model(plan::Target::h200);
  d.memory_bytes = bytes, d.reserve_bytes = 0;
  return d;
}

TEST(Choose, OnProcessorsMoreThan4096TokensGainNothing) {
  const config::Config c =
      choose_config(kSmall, {"train.seq_len=128", "train.global_batch_size=96"});
  const plan::Choice choice = plan::choose(c, 1, device_named("cpu"));
  EXPECT_EQ(choice.layout.micro_batch(), 32);
  EXPECT_EQ(choice.layout.recompute, config::Recompute::none);
}

// Beside 13 sequences cuDNN's backward takes one at a time, beside 11 all of them.
TEST(Choose, ALargerOneMayFitWhereASmallerDoesNot) {
  const config::Config c = choose_config(
      "family: decoder, vocab_size: 1000, d_model: 1600, n_heads: 25, n_kv_heads: 1, d_ff: 64, "
      "n_layers: 2, activation: gelu, norm: rmsnorm, bias: false, position: rope",
      {"train.global_batch_size=143", "train.seq_len=4096", "precision=bf16", "recompute=full",
       "device=cuda"});
  const auto bytes = [&](std::int64_t size) {
    config::Config one = c;
    one.train.set_micro_batch(size);
    config::resolve_for_ranks(one, 1);
    return planned(one, 1, memory_of(std::int64_t{1} << 40)).bytes;
  };
  ASSERT_GT(bytes(11), bytes(13));
  const plan::Choice choice = plan::choose(c, 1, memory_of(bytes(13)));
  EXPECT_EQ(choice.layout.micro_batch(), 13) << choice.micro_batch_text;
  EXPECT_NE(choice.micro_batch_text.find("; 143 would take"), std::string::npos)
      << choice.micro_batch_text;
}

TEST(Choose, WhatTheConfigurationSaysStays) {
  const auto chosen = [](const Overrides& overrides, std::int64_t bytes) {
    return plan::choose(choose_config(kSmall, overrides), 1, memory_of(bytes));
  };
  const plan::Choice both = chosen({"recompute=none", "train.micro_batch_size=2"}, 1 << 20);
  EXPECT_EQ(both.layout.micro_batch(), 2);
  EXPECT_EQ(both.layout.recompute, config::Recompute::none);
  EXPECT_EQ(both.micro_batch_text + both.recompute_text, "");
  const plan::Choice size = chosen({"train.micro_batch_size=16"}, std::int64_t{1} << 40);
  EXPECT_EQ(size.layout.micro_batch(), 16);
  EXPECT_EQ(size.micro_batch_text, "");
  EXPECT_NE(size.recompute_text, "");
  // Of a given size only recomputation is left to save memory.
  const config::Config c =
      choose_config(kSmall, {"model.dropout=0.1", "train.micro_batch_size=16"});
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  for (const config::Recompute r :
       {config::Recompute::none, config::Recompute::selective, config::Recompute::full}) {
    config::Config with = c;
    with.recompute = r;
    const std::int64_t bytes = planned(with, 1, memory_of(1)).bytes;
    EXPECT_LT(bytes, before);
    EXPECT_EQ(plan::choose(c, 1, memory_of(bytes)).layout.recompute, r);
    const plan::Choice most = plan::choose(c, 1, memory_of(before - 1));
    EXPECT_EQ(most.layout.recompute, r);
    if (r == config::Recompute::selective) {
      EXPECT_EQ(most.layout.recompute_layers, 1);
    }
    before = bytes;
  }
}

TEST(Choose, TheLeastWhereNothingFits) {
  const plan::Choice choice = plan::choose(choose_config(kSmall), 1, memory_of(1000));
  EXPECT_EQ(choice.layout.micro_batch(), 1);
  EXPECT_EQ(choice.layout.recompute, config::Recompute::full);
  EXPECT_NE(choice.micro_batch_text.find("does not fit"), std::string::npos);
}

TEST(Choose, AResumedRunKeepsItsChoiceWhereItFits) {
  const config::Config c = choose_config(kSmall, {"train.global_batch_size=32"});
  const auto resumed = [&](std::int64_t size, int ranks, std::int64_t bytes) {
    return plan::choose(
        c, ranks, memory_of(bytes),
        plan::EarlierChoice{"run/step-5",
                            {.recompute = config::Recompute::selective, .micro_batch_size = size}});
  };
  const std::int64_t large = std::int64_t{1} << 40;
  const plan::Choice kept = resumed(2, 1, large);
  EXPECT_EQ(kept.layout.micro_batch(), 2);
  EXPECT_EQ(kept.layout.recompute, config::Recompute::selective);
  EXPECT_EQ(kept.micro_batch_text, "2 (auto: as in run/step-5)");
  EXPECT_EQ(kept.recompute_text, "selective (auto: as in run/step-5)");
  const plan::Choice again = resumed(16, 4, large);  // 8 sequences a rank
  EXPECT_EQ(again.layout.micro_batch(), plan::choose(c, 4, memory_of(large)).layout.micro_batch());
  EXPECT_NE(again.micro_batch_text.find("not as in run/step-5: the 8 sequences"),
            std::string::npos);
  config::Config two = c;
  two.train.micro_batch_size = 2, two.recompute = config::Recompute::selective;
  const std::int64_t less = planned(two, 1, memory_of(1)).bytes - 1;
  const plan::Choice fitting = resumed(2, 1, less);
  EXPECT_LE(fitting.layout.micro_batch(), 2);
  EXPECT_NE(fitting.recompute_text.find("not as in run/step-5: micro-batch 2 with recompute "
                                        "selective takes"),
            std::string::npos);
}

TEST(Choose, TokensOfBatchesByLengthFitAndNoMoreAreWorthTheirMemory) {
  plan::DeviceModel small = device_named("a100-40gb");
  small.memory_bytes = 15'000'000'000;
  std::map<std::string, int> ends;
  for (const plan::DeviceModel& device : {device_named("h200"), small, device_named("cpu")})
    for (const auto& [tokens, ranks] : {std::pair{"128Ki", 1}, {"2Mi", 2}, {"16Ki", 4}})
      check(choose_config(kChosenModels[4], {"train.seq_len=256", "model.max_seq_len=256",
                                             std::string("train.global_batch_tokens=") + tokens,
                                             device.name == "cpu" ? "device=cpu" : "device=cuda"}),
            ranks, device, ends);
  for (const char* end : {"all sequences", "gain", "memory"})
    EXPECT_GT(ends[end], 0) << end << " is not among them";
}

TEST(Choose, TokensOfBatchesByLengthAreCutToFit) {
  const config::Config c = choose_config(
      kChosenModels[4],
      {"train.global_batch_tokens=8k", "train.seq_len=64", "recompute=none", "device=cpu"});
  const auto bytes = [&](std::int64_t tokens) {
    config::Config with = c;
    with.train.micro_batch_tokens = tokens;
    return planned(with, 1, memory_of(1)).bytes;
  };
  EXPECT_EQ(plan::choose(c, 1, memory_of(bytes(1024))).layout.micro_batch(), 1024);
  EXPECT_EQ(plan::choose(c, 1, memory_of(bytes(1024) - 1)).layout.micro_batch(), 512);
  EXPECT_EQ(plan::choose(c, 1, memory_of(1)).layout.micro_batch(), 64);  // one sequence
}

// 97 sequences are 7 micro-batches of 14, and one that is empty.
TEST(Choose, MemoryIsNotSpentOnWhatFillsTheLastMicroBatch) {
  const config::Config c =
      choose_config(kChosenModels[4], {"train.global_batch_tokens=25k", "train.seq_len=256",
                                       "model.max_seq_len=256", "device=cpu"});
  EXPECT_EQ(plan::choose(c, 1, device_named("cpu")).layout.micro_batch(), 4096);
}

TEST(Choose, NoMicroBatchIsEmpty) {
  config::Config c = choose_config(kChosenModels[4], {"train.global_batch_tokens=25k"});
  for (const int stages : {1, 2, 3})
    for (std::int64_t sequences = 1; sequences < 40; ++sequences)
      for (std::int64_t most = 1; most < 12; ++most) {
        c.train.micro_batch_tokens = most * 32;
        const plan::ShapePlan s = plan::divided(c, comm::Layout({.pipeline = stages}),
                                                {.sequences = sequences, .length = 32});
        EXPECT_LE(s.shape.sequences, most);
        EXPECT_EQ(s.micro_batches, ceil_div(sequences, s.shape.sequences));
        if (stages > 1) {
          EXPECT_GE(s.micro_batches, std::min<std::int64_t>(sequences, 2 * stages));
        }
      }
  // 9 on two stages: 1 at a time takes as long as 10, 2 at a time as 12.
  c.train.micro_batch_tokens = 9 * 32;
  EXPECT_EQ(plan::divided(c, comm::Layout({.pipeline = 2}), {.sequences = 9, .length = 32})
                .shape.sequences,
            1);
}

TEST(Choose, OfWhatNoRanksCanHaveSaysWhy) {
  EXPECT_THROW(plan::choose(choose_config(kSmall, {"train.global_batch_size=7"}), 2, memory_of(1)),
               Error);
}

TEST(Choose, AFitIsFoundForAutomaticRecomputation) {
  const config::Config c = choose_config(kSmall, {"train.micro_batch_size=16"});
  config::Config full = c;
  full.recompute = config::Recompute::full;
  const auto fit = plan::nearest_fit(c, 1, planned(full, 1, memory_of(1)).bytes);
  ASSERT_TRUE(fit.has_value());
}

TEST(Choose, AFitKeepsTokensThatNoChoiceHas) {
  const config::Config c =
      choose_config(kChosenModels[4],
                    {"train.global_batch_tokens=8k", "train.seq_len=128", "model.max_seq_len=128",
                     "train.micro_batch_tokens=100", "recompute=none", "device=cpu"});
  config::Config full = c;
  full.recompute = config::Recompute::full;
  for (const config::Config& fitting : {c, full}) {
    const auto fit = plan::nearest_fit(c, 1, planned(fitting, 1, memory_of(1)).bytes);
    ASSERT_TRUE(fit.has_value());
    EXPECT_EQ(fit->choice == plan::LayoutChoice::of(c),
              fitting.recompute == config::Recompute::none);
  }
}

TEST(DeviceModel, GpusAreKnownByTheNamesOfTheirDriver) {
  using enum plan::Target;
  const auto target = [](const char* name, double gigabytes) {
    return plan::target_of(name, static_cast<std::int64_t>(gigabytes * 1e9));
  };
  EXPECT_EQ(target("NVIDIA H200", 150), h200);
  EXPECT_EQ(target("NVIDIA H100 80GB HBM3", 85), h100);
  EXPECT_EQ(target("NVIDIA A100-SXM4-80GB", 85), a100);
  EXPECT_EQ(target("NVIDIA A100-PCIE-40GB", 42), a100_40gb);
  EXPECT_EQ(target("NVIDIA H100 PCIe", 85), std::nullopt);
  EXPECT_EQ(target("NVIDIA B200", 190), b200);
  EXPECT_EQ(target("NVIDIA L40S", 48), l40s);
  EXPECT_EQ(target("NVIDIA H200 NVL", 150), std::nullopt);
  EXPECT_EQ(target("NVIDIA GeForce RTX 4090", 24), std::nullopt);
}

}  // namespace
}  // namespace tfm
