// Suggested layouts against a plan of every layout there is.
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "data/batch_shapes.h"
#include "models/registry.h"
#include "plan/choose.h"
#include "plan/layouts.h"
#include "plan/least_time.h"
#include "plan/rank_plans.h"
#include "plan/suggest.h"

namespace tfm {
namespace {

using Overrides = std::vector<std::string>;
constexpr int kRanks = 8;

config::Config suggest_config(const Overrides& overrides = {}) {
  Overrides all{"train.seq_len=32", "train.global_batch_size=32"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return config::parse_config(
      "model: {family: decoder, vocab_size: 100, d_model: 64, n_layers: 3, n_heads: 4, dropout: "
      "0.1}\ndata: {train: {type: tokens, path: none.bin}}\n",
      "test", all);
}

// Batches of two lengths: of the longer one 8 sequences, of the shorter one 17, which need more.
config::Config pairs_config(const Overrides& overrides = {}) {
  return config::parse_config(
      "model: {family: encoder_decoder, vocab_size: 100, d_model: 32, n_layers: 2, n_heads: 2}\n"
      "train: {seq_len: 16, global_batch_tokens: 136}\n"
      "data: {train: {type: pairs, source: a.txt, target: b.txt}}\n",
      "test", overrides);
}

struct Layout {
  config::Config config;  // for the ranks
  double seconds = 0;
  std::int64_t bytes = 0;
  std::map<std::string, std::int64_t> sizes;
};

Layout layout_of(config::Config c, const plan::DeviceModel& device, int ranks = kRanks) {
  config::resolve_for_ranks(c, ranks);
  const plan::RankPlans plans(c);
  Layout layout{.config = c,
                .seconds = plan::predict(plans.stages(), device).seconds(),
                .sizes = plans.first().mesh.layout.sizes()};
  for (const plan::StepPlan* p : plans.stages())
    layout.bytes = std::max(layout.bytes, p->memory.total());
  return layout;
}

plan::DeviceModel device_of(std::int64_t bytes) {
  plan::DeviceModel d = plan::gpu_model(plan::Target::h200);
  d.launch = 0;
  d.node = {1e-7, 1e9};
  d.memory_bytes = bytes, d.reserve_bytes = 0;
  return d;
}

// Overrides for all sizes of a micro-batch where so many ranks share a batch.
std::vector<std::string> sizes_of(const config::Config& c, int replicas) {
  std::vector<std::string> sizes;
  if (c.train.global_batch_tokens == 0) {
    for (std::int64_t n = 1; n <= c.train.global_batch_size; n *= 2)
      sizes.push_back("train.micro_batch_size=" + std::to_string(n));
    return sizes;
  }
  std::int64_t least = 4096, most = 0;
  while (least > c.train.seq_len) least /= 2;
  for (const nn::BatchShape& s : data::batch_shapes(c))
    most = std::max(most, ceil_div(s.sequences, replicas) * s.length);
  for (std::int64_t n = least; n < 2 * most; n *= 2)
    sizes.push_back("train.micro_batch_tokens=" + std::to_string(std::min(n, most)));
  return sizes;
}

// All there are, by trying every value of every key.
std::vector<Layout> all_layouts(config::Config (*read)(const Overrides&), const Overrides& given,
                                const plan::DeviceModel& device) {
  std::vector<Layout> all;
  const auto add = [&](const Overrides& overrides) {
    try {
      Overrides both = given;
      both.insert(both.end(), overrides.begin(), overrides.end());
      all.push_back(layout_of(read(both), device));
    } catch (const Error&) {
    }
  };
  const config::Config as_given = read(given);
  const std::int64_t length = as_given.train.seq_len;
  for (const int context : {1, 2, 4, 8})
    for (const std::string_view exchange : words(config::ContextExchange{}))
      for (const int pipeline : {1, 2, 4, 8})
        for (const std::string_view schedule : words(config::PipelineSchedule{}))
          for (const int tensor : {1, 2, 3, 4, 8})
            for (const char* sequence : {"false", "true"})
              for (const std::string zero : {"0", "1", "2", "3"})
                for (const char* recompute : {"none", "selective", "full"})
                  for (const std::string& micro :
                       sizes_of(as_given, std::max(1, kRanks / (context * pipeline * tensor)))) {
                    if (tensor == 1 && sequence == std::string("true")) continue;
                    if (pipeline == 1 && schedule == "interleaved") continue;
                    if (context > 1 && length / context < 2048) continue;
                    if (context == 1 && exchange == "ring") continue;
                    // ZeRO has nothing to share out.
                    if (kRanks == pipeline * tensor && zero != "0") continue;
                    add({"parallel.context=" + std::to_string(context),
                         "parallel.context_exchange=" + std::string(exchange),
                         "parallel.pipeline=" + std::to_string(pipeline),
                         "parallel.schedule=" + std::string(schedule),
                         "parallel.tensor=" + std::to_string(tensor),
                         std::string("parallel.sequence=") + sequence, "parallel.zero=" + zero,
                         std::string("recompute=") + recompute, micro});
                  }
  return all;
}

struct Search {
  std::int64_t usable;
  Overrides given;
  bool products_alone = false;  // take time
};

TEST(Suggest, TheFastestThatFitOfAllThereAre) {
  for (const auto& [usable, given, products_alone] :
       {Search{std::int64_t{1} << 40, {}}, Search{1'500'000, {}},
        Search{std::int64_t{1} << 40, {"model.n_layers=4"}, true},
        Search{80'000'000, {"train.seq_len=4096", "train.global_batch_size=8"}}}) {
    plan::DeviceModel device = device_of(usable);
    if (products_alone) {
      device.wide = {
          .peak = 1e9, .product = 1e9, .head_64 = {{1e9}, {1e9}}, .head_128 = {{1e9}, {1e9}}};
      device.multiprocessors = 0;
      device.node.bandwidth = device.network.bandwidth = device.bandwidth = 1e15;
    }
    std::vector<Layout> all = all_layouts(suggest_config, given, device);
    const auto count = static_cast<std::int64_t>(all.size());
    const std::int64_t too_large =
        std::erase_if(all, [&, most = usable](const Layout& l) { return l.bytes > most; });
    EXPECT_EQ(too_large > 0, usable < 1'000'000'000) << "the limit should divide them";
    std::ranges::sort(all, {}, &Layout::seconds);
    const plan::Suggestions s = plan::suggest(suggest_config(given), kRanks, device);
    ASSERT_EQ(s.best.size(), 5u);
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_DOUBLE_EQ(s.best[i].times.seconds(), all[i].seconds) << i;
    // Every other one is accounted for.
    EXPECT_EQ(s.too_large.candidates + s.larger + s.slower.candidates + s.no_faster + s.bounded + 5,
              count);
    EXPECT_LE(s.slower.most, all.back().seconds);
    EXPECT_GE(s.slower.least, s.best.back().times.seconds());
    EXPECT_LT(s.planned, count) << "nothing was left out";
    EXPECT_TRUE(s.bounded > 0 || !products_alone);
  }
}

// A micro-batch that is the whole step may fit where a smaller one does not.
TEST(Suggest, TheLargestThoughASmallerOneDoesNotFit) {
  const auto read = [](int size) {
    return suggest_config({"train.seq_len=8", "train.global_batch_size=8",
                           "train.micro_batch_size=" + std::to_string(size)});
  };
  plan::DeviceModel device = device_of(std::int64_t{1} << 40);
  const Layout whole = layout_of(read(8), device, 1), half = layout_of(read(4), device, 1);
  ASSERT_LT(whole.bytes, half.bytes);
  ASSERT_LT(whole.seconds, half.seconds);
  device.memory_bytes = whole.bytes;
  const plan::Suggestions s = plan::suggest(read(1), 1, device);
  EXPECT_DOUBLE_EQ(s.best.at(0).times.seconds(), whole.seconds);
  config::Config chosen = read(1);
  chosen.train.micro_batch_size = 0;
  EXPECT_EQ(plan::choose(chosen, 1, device).layout.micro_batch_size, 8);
}

// With ZeRO 1 a rank keeps gradients of its own between micro-batches, and none where it has one.
TEST(Suggest, OneMicroBatchThoughTwoDoNotFit) {
  const auto read = [](int size) {
    return suggest_config({"train.seq_len=8", "train.global_batch_size=16", "parallel.zero=1",
                           "parallel.data=2", "train.micro_batch_size=" + std::to_string(size)});
  };
  plan::DeviceModel device = device_of(std::int64_t{1} << 40);
  const Layout whole = layout_of(read(8), device, 2), half = layout_of(read(4), device, 2);
  ASSERT_LT(whole.bytes, half.bytes);
  device.memory_bytes = whole.bytes;
  const plan::Suggestions s = plan::suggest(read(1), 2, device, 1000);
  EXPECT_EQ(std::ranges::count(s.best, whole.seconds,
                               [](const plan::Suggestion& l) { return l.times.seconds(); }),
            1);
}

// Some seem to fit by what decides their time, batches of the longest length, and do not.
TEST(Suggest, TheFastestThatFitWithBatchesOfEveryLength) {
  plan::DeviceModel device = device_of(std::int64_t{1} << 40);
  std::vector<Layout> all = all_layouts(pairs_config, {}, device);
  std::ranges::sort(all, {}, &Layout::seconds);
  const std::int64_t too_small = all[0].bytes - 1;
  plan::StagePlans longest(all[0].config, plan::Extent::largest);
  ASSERT_LE(longest.fullest().memory.total(), too_small);
  for (const std::int64_t usable : {device.memory_bytes, too_small}) {
    device.memory_bytes = usable;
    const auto count = static_cast<std::int64_t>(all.size());
    std::vector<Layout> fit = all;
    std::erase_if(fit, [&](const Layout& l) { return l.bytes > usable; });
    const plan::Suggestions s = plan::suggest(pairs_config(), kRanks, device);
    ASSERT_EQ(s.best.size(), 5u);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_DOUBLE_EQ(s.best[i].times.seconds(), fit[i].seconds) << i;
      EXPECT_LE(s.best[i].bytes, usable) << i;
      const auto sizes =
          sizes_of(pairs_config(), static_cast<int>(s.best[i].layout.size(nn::kBatchAxes)));
      const std::int64_t size = s.best[i].choice.micro_batch_tokens;
      EXPECT_EQ(std::ranges::count(sizes, "train.micro_batch_tokens=" + std::to_string(size)), 1)
          << size;
    }
    EXPECT_EQ(s.too_large.candidates + s.larger + s.slower.candidates + s.no_faster + s.bounded + 5,
              count);
  }
}

// Each part of a plan needs at least what the parts before it do, and none changes the time.
TEST(Suggest, PlansInPartsAreWholePlans) {
  const plan::DeviceModel device = device_of(std::int64_t{1} << 40);
  std::set<plan::Extent> larger;  // than those before
  for (const bool pairs : {false, true})
    for (const char* pipeline : {"1", "2"})
      for (const char* zero : {"0", "1", "2", "3"})
        for (const char* recompute : {"none", "full"}) {
          Overrides given{std::string("parallel.pipeline=") + pipeline,
                          std::string("parallel.zero=") + zero,
                          std::string("recompute=") + recompute};
          if (pairs)
            for (const char* translated :
                 {"eval.every=10", "eval.metrics=[bleu]", "data.tokenizer=t.json",
                  "data.validation.type=pairs", "data.validation.source=c.txt",
                  "data.validation.target=d.txt"})
              given.push_back(translated);
          config::Config c = pairs ? pairs_config(given) : suggest_config(given);
          config::resolve_for_ranks(c, kRanks);
          plan::StagePlans parts(c, plan::Extent::parameters), whole(c);
          std::int64_t bytes = parts.fullest().memory.total();
          for (const auto extent :
               {plan::Extent::timed, plan::Extent::largest, plan::Extent::whole}) {
            parts.extend(extent);
            const std::int64_t more = parts.fullest().memory.total();
            EXPECT_GE(more, bytes) << config::dump_config(c);
            EXPECT_EQ(parts.stages()[0]->largest().train_program.draft(),
                      extent == plan::Extent::timed);
            if (more > bytes) larger.insert(extent);
            bytes = more;
            EXPECT_EQ(plan::predict(parts.stages(), device).seconds(),
                      plan::predict(whole.stages(), device).seconds());
          }
          for (std::size_t i = 0; i < whole.stages().size(); ++i)
            EXPECT_EQ(parts.stages()[i]->memory.categories, whole.stages()[i]->memory.categories);
          EXPECT_EQ(parts.stages()[0]->memory.categories,
                    plan::make_step_plan(c, comm::Mesh(config::layout_of(c))).memory.categories);
        }
  EXPECT_TRUE(larger.contains(plan::Extent::timed));
  EXPECT_TRUE(larger.contains(plan::Extent::whole));
}

// Stages of which one plan is made are alike: the decoder's first and last stage are not, which
// have parts of the same sizes where they borrow one embedding and have as many layers.
TEST(Suggest, PlansOfStagesAreThoseOfRanks) {
  const plan::DeviceModel device = device_of(std::int64_t{1} << 40);
  for (const std::string tie : {"all", "inputs", "decoder", "none"})
    for (const std::string vocabulary : {"1000", "37000"})
      for (const int pipeline : {2, 3, 4, 5})
        for (const std::string schedule : {"1f1b", "interleaved"}) {
          const std::string recompute = (pipeline + schedule.size()) % 2 == 0 ? "none" : "full";
          config::Config c =
              pairs_config({"model.n_layers=6", "model.d_model=64", "model.position=sinusoidal",
                            "model.norm_position=post", "model.vocab_size=" + vocabulary,
                            "model.tie_embeddings=" + tie, "train.seq_len=256",
                            "train.global_batch_tokens=25000", "train.micro_batch_tokens=1024",
                            "parallel.pipeline=" + std::to_string(pipeline),
                            "parallel.schedule=" + schedule, "recompute=" + recompute});
          config::resolve_for_ranks(c, pipeline);
          const plan::RankPlans ranks(c);
          std::int64_t most = 0;
          for (const plan::StepPlan* p : ranks.stages()) most = std::max(most, p->memory.total());
          plan::StagePlans stages(c);
          EXPECT_EQ(stages.fullest().memory.total(), most) << config::dump_config(c);
          EXPECT_EQ(plan::predict(stages.stages(), device).seconds(),
                    plan::predict(ranks.stages(), device).seconds())
              << config::dump_config(c);
        }
}

TEST(Suggest, BucketsHoldAtLeastAnElement) {
  const plan::DeviceModel device = device_of(std::int64_t{1} << 40);
  config::Config c = suggest_config({"parallel.bucket_bytes=1"});
  config::resolve_for_ranks(c, kRanks);
  plan::LeastTime least(device);
  least.learn(c);
  const double bound = least.seconds(least.sizes_of(c))[0];
  EXPECT_LE(bound, plan::predict(plan::StagePlans(c).stages(), device).seconds() * (1 + 1e-9));
}

// Whatever layout another one has learnt from.
TEST(Suggest, NoLayoutIsFasterThanItsLeastTime) {
  const plan::DeviceModel device = device_of(std::int64_t{1} << 40);
  std::vector<config::Config> configs;
  for (const char* sizes : {"parallel.tensor=1", "parallel.tensor=2", "parallel.bucket_bytes=8Ki",
                            "parallel.bucket_bytes=40Ki", "numerics=deterministic"})
    for (const char* pipeline : {"1", "2 parallel.schedule=interleaved", "4"})
      for (const char* zero : {"0", "1", "2", "3"})
        for (const char* recompute : {"none", "full"})
          for (const char* micro : {"1", "4"}) {
            config::Config c = suggest_config(
                {"model.n_layers=4", sizes, std::string("parallel.pipeline=") + pipeline[0],
                 std::string(pipeline[1] ? pipeline + 2 : "parallel.schedule=1f1b"),
                 std::string("parallel.zero=") + zero, std::string("recompute=") + recompute,
                 std::string("train.micro_batch_size=") + micro});
            config::resolve_for_ranks(c, kRanks);
            configs.push_back(c);
          }
  std::vector<double> seconds;
  for (const config::Config& c : configs)
    seconds.push_back(plan::predict(plan::StagePlans(c).stages(), device).seconds());
  double closest = 0;
  for (const config::Config& teacher : configs) {
    plan::LeastTime least(device);
    least.learn(teacher);
    for (std::size_t i = 0; i < configs.size(); ++i) {
      const double bound = least.seconds(
          least.sizes_of(configs[i]))[static_cast<std::size_t>(configs[i].parallel.zero)];
      EXPECT_LE(bound, seconds[i] * (1 + 1e-9)) << config::dump_config(configs[i]);
      closest = std::max(closest, bound / seconds[i]);
    }
  }
  EXPECT_GT(closest, 0.8) << "it tells little";
}

// They are learned from stacks of few blocks.
TEST(LeastTime, KnowsTheTimeOfEachBlock) {
  const plan::DeviceModel device = device_of(std::int64_t{1} << 40);
  for (config::Config c : {suggest_config({"model.n_layers=5", "train.micro_batch_size=2"}),
                           suggest_config({"model.n_layers=2", "train.micro_batch_size=2"}),
                           pairs_config({"model.n_encoder_layers=5", "model.n_decoder_layers=6",
                                         "model.position=relative", "train.micro_batch_size=2"})}) {
    config::resolve_for_ranks(c, 1);
    const plan::StepPlan p = plan::make_step_plan(c, comm::single_mesh());
    plan::LeastTime least(device);
    const plan::LeastTime::MicroBatch& layers = *least.sizes_of(c).layers;
    for (const bool accumulating : {false, true}) {
      const auto& learned = accumulating ? layers.later : layers.first;
      std::vector<double> blocks(static_cast<std::size_t>(c.model.total_layers()));
      double all = 0;
      const auto seconds = plan::seconds_of_nodes(p, p.largest(), accumulating, device);
      for (std::size_t i = 0; i < seconds.size(); ++i) {
        all += seconds[i];
        const int block = p.largest().training.tape->nodes()[i].scope;
        if (block >= 0) blocks[static_cast<std::size_t>(block)] += seconds[i];
      }
      EXPECT_NEAR(learned.all, all, 1e-9 * all);
      ASSERT_EQ(learned.blocks.size(), blocks.size());
      for (std::size_t b = 0; b < blocks.size(); ++b)
        EXPECT_NEAR(learned.blocks[b], blocks[b], 1e-9 * all) << b;
    }
  }
}

TEST(Suggest, NoStageOfZeroTakesMemoryWhereNothingIsShared) {
  const auto best = [](const std::string& zero) {
    const plan::Suggestion s =
        plan::suggest(suggest_config({zero}), 1, device_of(4'000'000)).best.at(0);
    return std::pair(s.bytes, s.times.seconds());
  };
  for (const char* zero : {"parallel.zero=2", "parallel.zero=3"})
    EXPECT_EQ(best(zero), best("parallel.zero=1"));
}

TEST(Suggest, ChoicesMakeTheLayout) {
  const plan::DeviceModel device = device_of(2'000'000);
  const Overrides stages{"model.n_layers=6",
                         "parallel.data=2",
                         "parallel.tensor=2",
                         "parallel.pipeline=2",
                         "parallel.schedule=interleaved",
                         "parallel.virtual_stages=3",
                         "parallel.layers_per_stage=[1, 1, 1, 1, 1, 1]"};
  for (const Overrides& given : {Overrides{"parallel.data=4", "parallel.tensor=2"}, stages}) {
    const config::Config read = suggest_config(given);
    const plan::Suggestions s = plan::suggest(read, kRanks, device);
    ASSERT_FALSE(s.best.empty());
    std::set<Overrides> different;
    for (const plan::Suggestion& best : s.best) {
      Overrides overrides;
      for (const config::Change& c : plan::changes_of(read, best.choice))
        overrides.push_back(c.key + "=" + c.now);
      const Layout l = layout_of(config::with_overrides(read, overrides, "test"), device);
      EXPECT_EQ(l.sizes, best.layout.sizes());
      EXPECT_EQ(l.bytes, best.bytes);
      EXPECT_DOUBLE_EQ(l.seconds, best.times.seconds());
      different.insert(overrides);
    }
    EXPECT_EQ(different.size(), s.best.size());
    ASSERT_TRUE(s.given);
    EXPECT_EQ(s.given->choice.tensor, 2);
  }
}

// Ranks that share a sequence have 2048 positions of it each, but for the number that the
// configuration has.
TEST(Layouts, ContextRanksHaveManyPositions) {
  const auto contexts = [](const Overrides& overrides) {
    std::set<std::int64_t> all;
    for (const auto& grid :
         plan::Layouts(suggest_config(overrides), kRanks, plan::From::first).grids())
      all.insert(grid.choice.context);
    return all;
  };
  using Contexts = std::set<std::int64_t>;
  EXPECT_EQ(contexts({}), (Contexts{1}));
  EXPECT_EQ(contexts({"parallel.context=4"}), (Contexts{1, 4}));
  EXPECT_EQ(contexts({"train.seq_len=4096"}), (Contexts{1, 2}));
  EXPECT_EQ(contexts({"train.seq_len=4095"}), (Contexts{1}));
  EXPECT_EQ(contexts({"train.seq_len=8192", "parallel.context=8"}), (Contexts{1, 2, 4, 8}));
  // Of a short sequence it is suggested, too.
  const plan::Suggestions s = plan::suggest(suggest_config({"parallel.context=2"}), 2,
                                            device_of(std::int64_t{1} << 40), 1000);
  EXPECT_TRUE(std::ranges::any_of(
      s.best, [](const plan::Suggestion& one) { return one.choice.context == 2; }));
}

TEST(Layouts, SizesOfAMicroBatch) {
  const auto sizes = [](const config::Config& c, plan::From from, int ranks) {
    const plan::Layouts layouts(c, ranks, from);
    std::vector<std::int64_t> all;
    for (const plan::LayoutChoice& l : layouts.micro_batches(plan::LayoutChoice::of(c)))
      all.push_back(l.micro_batch());
    return all;
  };
  using Sizes = std::vector<std::int64_t>;
  const auto given = [](const std::string& size) {
    return suggest_config({"train.global_batch_size=24", "train.micro_batch_size=" + size});
  };
  EXPECT_EQ(sizes(given("4"), plan::From::first, 2), (Sizes{1, 2, 3, 4, 6, 12}));
  EXPECT_EQ(sizes(given("4"), plan::From::given, 2), (Sizes{4, 3, 2, 1}));
  EXPECT_EQ(sizes(given("12"), plan::From::given, 2), (Sizes{12, 6, 4, 3, 2, 1}));
  // Automatic is the largest, 12 of 32 tokens, and needs no size of its own.
  EXPECT_EQ(sizes(given("auto"), plan::From::given, 2), (Sizes{0, 6, 4, 3, 2, 1}));
  // Twice as many tokens from a sequence of the longest on, up to all that a rank has: of the 17
  // shorter ones 9, or 4 of the longer.
  const std::int64_t most = [] {
    std::int64_t tokens = 0;
    for (const nn::BatchShape& s : data::batch_shapes(pairs_config()))
      tokens = std::max(tokens, (s.sequences + 1) / 2 * s.length);
    return tokens;
  }();
  ASSERT_GT(most, 64);
  EXPECT_EQ(sizes(pairs_config(), plan::From::first, 2), (Sizes{16, 32, 64, most}));
  EXPECT_EQ(sizes(pairs_config({"train.micro_batch_tokens=48"}), plan::From::given, 2),
            (Sizes{48, 32, 16}));
  EXPECT_EQ(sizes(pairs_config({"train.micro_batch_size=3"}), plan::From::given, 2), (Sizes{2, 1}));
}

TEST(Layouts, VariantsOfMemoryStartAtWhatIsGiven) {
  const auto stages = [](const Overrides& overrides, plan::From from, int ranks) {
    const config::Config c = suggest_config(overrides);
    std::vector<std::int64_t> all;
    for (const auto& l : plan::Layouts(c, ranks, from).zero_stages(plan::LayoutChoice::of(c)))
      all.push_back(l.zero);
    return all;
  };
  using Stages = std::vector<std::int64_t>;
  EXPECT_EQ(stages({}, plan::From::first, 2), (Stages{0, 1, 2, 3}));
  EXPECT_EQ(stages({"parallel.zero=2"}, plan::From::first, 2), (Stages{0, 1, 2, 3}));
  EXPECT_EQ(stages({"parallel.zero=2"}, plan::From::given, 2), (Stages{2, 3}));
  EXPECT_EQ(stages({"parallel.zero=3"}, plan::From::given, 1), (Stages{1}));
  EXPECT_EQ(stages({"parallel.zero=0"}, plan::From::given, 1), (Stages{0}));
  EXPECT_EQ(stages({"parallel.tensor=2"}, plan::From::first, 2), (Stages{0}));
  const auto ways = [](const Overrides& overrides, plan::From from) {
    const config::Config c = suggest_config(overrides);
    std::vector<std::pair<std::string, std::int64_t>> all;
    for (const auto& l : plan::Layouts(c, 1, from).recomputations(plan::LayoutChoice::of(c)))
      all.emplace_back(config::word(l.recompute), l.recompute_layers);
    return all;
  };
  using Ways = std::vector<std::pair<std::string, std::int64_t>>;
  EXPECT_EQ(ways({"recompute=selective", "recompute_layers=2"}, plan::From::first),
            (Ways{{"none", 0}, {"selective", 2}, {"full", 0}}));
  EXPECT_EQ(ways({"recompute=selective", "recompute_layers=2"}, plan::From::given),
            (Ways{{"selective", 2}, {"full", 0}}));
  EXPECT_EQ(ways({"recompute=auto"}, plan::From::given),
            (Ways{{"none", 0}, {"selective", 0}, {"full", 0}}));
  const config::Config chunks =
      suggest_config({"model.n_layers=6", "parallel.pipeline=2", "parallel.schedule=interleaved",
                      "parallel.virtual_stages=3"});
  std::vector<std::int64_t> kept;
  for (const auto& g :
       plan::Layouts(chunks, 2, plan::From::first).schedules(plan::LayoutChoice::of(chunks)))
    kept.push_back(g.choice.virtual_stages);
  EXPECT_EQ(kept, (Stages{0, 3})) << "of the schedule that has them";
}

TEST(Layouts, ExpertRanksAreOfModelsWithExperts) {
  const auto experts = [](const Overrides& overrides) {
    std::set<std::int64_t> all;
    for (const auto& g : plan::Layouts(suggest_config(overrides), 4, plan::From::first).grids())
      if (g.refusal.empty()) all.insert(g.choice.expert);
    return all;
  };
  EXPECT_EQ(experts({}), (std::set<std::int64_t>{1}));
  EXPECT_EQ(experts({"model.experts.count=4", "model.experts.top_k=2", "model.experts.d_ff=32"}),
            (std::set<std::int64_t>{1, 2, 4}));
}

// What is suggested is a step of the whole batch, of a size that ranks share out.
TEST(Suggest, CountsWhatAStepHas) {
  const config::Config c = suggest_config();
  const plan::Suggestions s = plan::suggest(c, kRanks, device_of(std::int64_t{1} << 40), 50);
  ASSERT_GE(s.best.size(), 50u);
  ASSERT_TRUE(s.given);
  std::vector<plan::Suggestion> all = s.best;
  all.push_back(*s.given);
  double before = 0;
  for (const plan::Suggestion& one : all) {
    EXPECT_EQ(one.tokens, 32 * 32);
    EXPECT_EQ(one.micro_batch * one.micro_batches * one.layout.size(nn::kBatchAxes), 32);
    EXPECT_EQ(one.layout.world(), kRanks);
    config::Config chosen = c;
    one.choice.apply(chosen);
    config::resolve_for_ranks(chosen, kRanks);
    EXPECT_EQ(chosen.train.micro_batch_size, one.micro_batch);
    if (&one == &all.back()) break;
    EXPECT_GE(one.times.seconds(), before);
    before = one.times.seconds();
  }
  EXPECT_EQ(s.slower.candidates == 0, s.slower.most == 0);
  EXPECT_GE(s.slower.least, before);
  plan::Suggestions::Range range;
  for (const double x : {3.0, 2.0, 5.0, 4.0}) range.add(x);
  EXPECT_EQ(range.candidates, 4);
  EXPECT_EQ(range.least, 2);
  EXPECT_EQ(range.most, 5);
  EXPECT_FALSE(
      plan::suggest(suggest_config({"parallel.tensor=3"}), kRanks, device_of(std::int64_t{1} << 40))
          .given)
      << "which these ranks cannot run";
}

TEST(Suggest, SaysWhatIsLegalOfSizesThatDoNotDivide) {
  const plan::Suggestions s = plan::suggest(suggest_config(), kRanks, device_of(1 << 30));
  const auto refused = [&](const char* key, const char* legal) {
    return std::ranges::any_of(s.refused, [&](const plan::Suggestions::Refused& r) {
      return r.reason.find(key) != std::string::npos && r.reason.find(legal) != std::string::npos;
    });
  };
  EXPECT_TRUE(refused("n_heads 4", "are 1, 2, 4"));
  EXPECT_TRUE(refused("parallel.pipeline 4 needs as many layers", "are 1, 2"));
  const plan::Suggestions none = plan::suggest(suggest_config(), kRanks, device_of(1000));
  EXPECT_TRUE(none.best.empty());
  EXPECT_GT(none.too_large.least, 0);
}

TEST(RankPlans, EqualRanksArePlannedOnce) {
  for (const int vocabulary : {100, 101}) {
    config::Config c =
        suggest_config({"parallel.tensor=4", "model.vocab_size=" + std::to_string(vocabulary)});
    config::resolve_for_ranks(c, kRanks);
    const plan::RankPlans plans(c);
    std::set<const plan::StepPlan*> different;
    double flops = 0, expected = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const plan::StepPlan own = plan::make_step_plan(c, comm::Mesh(config::layout_of(c), rank));
      EXPECT_EQ(plans.of(rank).memory.categories, own.memory.categories) << rank;
      EXPECT_EQ(plans.of(rank).collectives(), own.collectives()) << rank;
      expected += own.matmul_flops();
      different.insert(&plans.of(rank));
    }
    plans.each([&](const plan::StepPlan& p, std::int64_t ranks) {
      flops += p.matmul_flops() * static_cast<double>(ranks);
    });
    EXPECT_DOUBLE_EQ(flops, expected);
    EXPECT_EQ(different.size(), vocabulary == 100 ? 1u : 2u);
  }
}

}  // namespace
}  // namespace tfm
