// What `auto` becomes, against plans of all there is to choose from.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

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

// Above 4096 tokens, behind more sizes that do not fit than are tried in a row: alone in its step
// it shares the memory of gradients, here of a large vocabulary.
TEST(Choose, TheLargestThoughManySmallerOnesDoNotFit) {
  const config::Config c = config::parse_config(
      "model: {family: encoder, vocab_size: 16000000, d_model: 64, n_layers: 4, n_heads: 4, "
      "position: rope, dropout: 0, heads: [{type: classify, classes: 3}]}\n"
      "data: {train: {type: labelled, path: a.tsv}}\n",
      "test",
      {"train.seq_len=1024", "train.global_batch_size=60", "train.micro_batch_size=auto",
       "recompute=none", "device=cuda"});
  std::map<std::int64_t, Planned> sizes;
  for (const std::int64_t size : {1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60}) {
    config::Config with = c;
    with.train.set_micro_batch(size);
    sizes[size] = planned(with, 1, memory_of(1));
  }
  const std::int64_t memory = sizes[60].bytes;
  ASSERT_LE(sizes[4].bytes, memory);
  for (const std::int64_t size : {12, 15, 20, 30}) ASSERT_GT(sizes[size].bytes, memory) << size;
  ASSERT_LT(sizes[60].seconds, 0.99 * sizes[10].seconds);
  const plan::Choice largest = plan::choose(c, 1, memory_of(memory));
  EXPECT_EQ(largest.layout.micro_batch(), 60) << largest.micro_batch_text;
  EXPECT_NE(largest.micro_batch_text.find("all sequences of a rank"), std::string::npos);
  EXPECT_LE(plan::choose(c, 1, memory_of(memory - 1)).layout.micro_batch(), 10);
}

// Of what is said, the numbers are those of the plans.
TEST(Choose, SaysWhyWithNumbers) {
  const config::Config c = choose_config(
      kSmall, {"model.dropout=0.1", "train.micro_batch_size=16", "train.global_batch_size=16"});
  const auto with = [&](config::Recompute r, std::int64_t layers = 0) {
    config::Config one = c;
    one.recompute = r, one.recompute_layers = layers;
    return planned(one, 1, memory_of(1));
  };
  const auto gb = [](std::int64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g GB", static_cast<double>(bytes) / 1e9);
    return std::string(text);
  };
  using enum config::Recompute;
  const std::int64_t all = with(none).bytes, one = with(selective, 1).bytes,
                     two = with(selective, 2).bytes;
  ASSERT_GT(one, two);
  EXPECT_EQ(plan::choose(c, 1, memory_of(all)).recompute_text,
            "none (auto: fits in " + gb(all) + " with micro-batch 16)");
  const std::string unfit = " (auto: none takes " + gb(all) + " and does not fit in ";
  EXPECT_EQ(plan::choose(c, 1, memory_of(one)).recompute_text,
            "selective in 1 block" + unfit + gb(one) + ")");
  EXPECT_EQ(plan::choose(c, 1, memory_of(two)).recompute_text,
            "selective in 2 blocks" + unfit + gb(two) + ")");
  EXPECT_EQ(plan::choose(c, 1, memory_of(1000)).recompute_text,
            "full (auto: does not fit in 1e-06 GB even so)");
  plan::DeviceModel reserved = memory_of(all);
  reserved.reserve_bytes = 1;
  EXPECT_NE(plan::choose(c, 1, reserved).layout.recompute, none) << "what is reserved is left";
  config::Config free = c;
  free.train.micro_batch_size = 0;
  const plan::Choice least = plan::choose(free, 1, memory_of(1000));
  config::Config smallest = c;
  smallest.train.micro_batch_size = 1, smallest.recompute = full;
  EXPECT_EQ(least.micro_batch_text, "1 (auto: the smallest; it takes " +
                                        gb(planned(smallest, 1, memory_of(1)).bytes) +
                                        " and does not fit in 1e-06 GB)");
}

// A resumed run takes over what it chose, each in its own unit.
TEST(Choose, AResumedRunKeepsTokensAndBlocks) {
  const config::Config c = choose_config(
      kChosenModels[4], {"train.global_batch_tokens=8k", "train.seq_len=64", "device=cpu"});
  const plan::Choice tokens =
      plan::choose(c, 1, memory_of(std::int64_t{1} << 40),
                   plan::EarlierChoice{"a",
                                       {.recompute = config::Recompute::full,
                                        .recompute_layers = 2,
                                        .micro_batch_tokens = 256}});
  EXPECT_EQ(tokens.layout.micro_batch_tokens, 256);
  EXPECT_EQ(tokens.layout.micro_batch_size, 0);
  EXPECT_EQ(tokens.layout.recompute_layers, 2);
  EXPECT_EQ(tokens.micro_batch_text, "256 tokens (auto: as in a)");
  EXPECT_EQ(tokens.recompute_text, "full in 2 blocks (auto: as in a)");
  // What the configuration sets is not taken over.
  const config::Config set =
      choose_config(kSmall, {"train.global_batch_size=32", "train.micro_batch_size=8"});
  const plan::Choice own = plan::choose(
      set, 1, memory_of(std::int64_t{1} << 40),
      plan::EarlierChoice{"a", {.recompute = config::Recompute::selective, .micro_batch_size = 2}});
  EXPECT_EQ(own.layout.micro_batch(), 8);
  EXPECT_EQ(own.layout.recompute, config::Recompute::selective);
  EXPECT_EQ(own.micro_batch_text, "");
}

// Every change in the documented order, from the innermost loop outwards, against all of them.
TEST(Choose, TheNearestFitIsTheFirstOfAll) {
  const config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 100, d_model: 64, n_layers: 4, n_heads: 4, dropout: "
      "0.1}\ndata: {train: {type: tokens, path: none.bin}}\n",
      "test",
      {"train.seq_len=64", "train.global_batch_size=8", "train.micro_batch_size=4",
       "parallel.sequence=false", "recompute=selective"});
  struct One {
    config::Config config;
    std::int64_t bytes;
  };
  std::vector<One> all;
  for (const std::int64_t pipeline : {1, 2, 4})
    for (const std::int64_t tensor : {1, 2, 4})
      for (const bool sequence : {false, true})
        for (const std::int64_t zero : {0, 1, 2, 3})
          for (const auto recompute : {config::Recompute::selective, config::Recompute::full})
            for (const std::int64_t micro : {4, 2, 1}) {
              if (pipeline * tensor > 4 || (sequence && tensor == 1)) continue;
              if (pipeline * tensor == 4 && zero > 0) continue;  // there is nothing to share
              config::Config one = c;
              one.parallel.pipeline = pipeline, one.parallel.tensor = tensor;
              one.parallel.sequence = sequence, one.parallel.zero = zero;
              one.recompute = recompute, one.train.micro_batch_size = micro;
              config::Config resolved = one;
              try {
                config::resolve_for_ranks(resolved, 4);
              } catch (const Error&) {
                continue;
              }
              all.push_back({one, plan::plan_of_fullest(resolved).memory.total()});
            }
  std::vector<std::int64_t> limits;
  for (const One& one : all) limits.push_back(one.bytes);
  std::ranges::sort(limits);
  std::set<std::string> outermost;
  for (std::size_t i = 0; i < limits.size(); i += 13) {
    const auto first =
        std::ranges::find_if(all, [&](const One& one) { return one.bytes <= limits[i]; });
    const auto fit = plan::nearest_fit(c, 4, limits[i]);
    ASSERT_TRUE(fit.has_value());
    EXPECT_EQ(fit->bytes, first->bytes);
    const auto changes = plan::changes_of(c, fit->choice);
    EXPECT_EQ(fit->choice, plan::LayoutChoice::of(first->config))
        << limits[i] << " " << (changes.empty() ? "" : changes[0].key);
    outermost.insert(changes.empty() ? "" : changes[0].key);
  }
  EXPECT_FALSE(plan::nearest_fit(c, 4, limits.front() - 1));
  for (const char* key : {"parallel.zero", "parallel.tensor"})
    EXPECT_TRUE(outermost.contains(key)) << key;
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
