#include "plan/layouts.h"

#include <algorithm>

#include "config/admitted.h"
#include "config/rules.h"
#include "config/settings.h"
#include "core/error.h"
#include "data/batch_shapes.h"
#include "nn/placement.h"

namespace tfm::plan {

struct LayoutKey {
  const char* name;
  // Numbers to try; without, all that the key admits.
  std::vector<std::int64_t> (*numbers)(const config::Config& given, int ranks) = nullptr;
  bool (*matters)(const config::Config&) = nullptr;  // else the given value stays
  const char* auto_with_others = nullptr;  // a key that is as given with the given value only
};

namespace {

constexpr const char* kMicroBatch = "train.micro_batch_size";
constexpr const char* kMicroTokens = "train.micro_batch_tokens";
constexpr const char* kDataRanks = "parallel.data";
constexpr const char* kLayersPerStage = "parallel.layers_per_stage";
constexpr const char* kAutomatic = "auto";

config::Config with(const config::Config& c, const std::string& key, const std::string& value) {
  return config::with_overrides(c, {key + "=" + value}, "layout");
}

// No rule of reading a configuration concerns it: resolve() has them all.
config::Config with_micro_batch(config::Config c, std::int64_t size) {
  c.train.set_micro_batch(size);
  return c;
}
config::Config with_automatic_micro_batch(config::Config c) {
  c.train.micro_batch_size = c.train.micro_batch_tokens = 0;
  return c;
}

// Half or twice as many tokens as those of `resolved`, again and again: from one sequence of the
// longest to all that a replica has.
std::vector<std::int64_t> numbers_of_tokens(const config::Config& resolved) {
  const std::int64_t replicas = config::layout_of(resolved).size(nn::kBatchAxes);
  std::int64_t n = resolved.train.micro_batch(), most = 0;
  for (const nn::BatchShape& s : data::batch_shapes(resolved))
    most = std::max(most, ceil_div(s.sequences, replicas) * s.length);
  while (n > resolved.train.seq_len) n /= 2;
  std::vector<std::int64_t> all;
  for (; n < most; n *= 2) all.push_back(n);
  all.push_back(most);
  return all;
}

// The first problem, without its place.
std::string problem_of(const Error& e) {
  const std::string text = e.what(), before = "error: ";
  const auto at = text.find(before);
  const auto begin = at == std::string::npos ? 0 : at + before.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::vector<std::int64_t> any(const config::Config&, int ranks) { return config::divisors(ranks); }

// A limit of the search: ranks that share a sequence have this many positions of it each, at least.
constexpr std::int64_t kLeastPositions = 2048;

std::vector<std::int64_t> context_sizes(const config::Config& given, int ranks) {
  std::vector<std::int64_t> sizes = config::divisors(ranks);
  std::erase_if(sizes, [&](std::int64_t n) {
    return n > 1 && n != given.parallel.context && given.train.seq_len / n < kLeastPositions;
  });
  return sizes;
}

}  // namespace

// Ranks along each axis, the outermost loop first. What is left of the ranks are data ranks.
constexpr LayoutKey kGridKeys[] = {
    {.name = "parallel.context", .numbers = context_sizes},
    {.name = "parallel.context_exchange",
     .matters = [](const config::Config& c) { return c.parallel.context > 1; }},
    {.name = "parallel.pipeline", .numbers = any},
    {.name = "parallel.tensor", .numbers = any},
    {.name = "parallel.sequence",
     .matters = [](const config::Config& c) { return c.parallel.tensor > 1; }},
};
constexpr LayoutKey kSchedule = {
    .name = "parallel.schedule",
    .matters = [](const config::Config& c) { return c.parallel.pipeline > 1; },
    .auto_with_others = "parallel.virtual_stages"};
constexpr LayoutKey kZero = {.name = "parallel.zero"},
                    kRecompute = {.name = "recompute", .auto_with_others = "recompute_layers"};

Layouts::Layouts(config::Config given, int ranks, From from)
    : given_(std::move(given)),
      given_settings_(config::values_by_key(given_)),
      ranks_(ranks),
      from_(from) {
  given_.places = {};  // every candidate would have a copy
}

std::vector<config::Config> Layouts::variants(const config::Config& config,
                                              const LayoutKey& key) const {
  if (key.matters && !key.matters(config)) return {config};
  std::vector<std::string> values = config::admitted_values(
      key.name, key.numbers ? key.numbers(given_, ranks_) : std::vector<std::int64_t>{});
  if (from_ == From::given) {
    const std::string& given = given_settings_.at(key.name);
    const auto at = std::ranges::find(values, given);
    if (at == values.end() && given != kAutomatic) return {config};
    if (at != values.end()) values.erase(values.begin(), at);
  }
  std::vector<config::Config> all;
  for (const std::string& value : values) {
    try {
      std::vector<std::string> overrides{std::string(key.name) + "=" + value};
      if (key.auto_with_others && value != given_settings_.at(key.name))
        overrides.push_back(std::string(key.auto_with_others) + "=" + kAutomatic);
      all.push_back(config::with_overrides(config, overrides, "layout"));
    } catch (const Error&) {  // a rule between keys excludes it
    }
  }
  return all;
}

std::vector<Layouts::Grid> Layouts::grids() const {
  std::vector<config::Config> all{given_};
  if (from_ == From::first)
    for (const char* key : {kLayersPerStage, kDataRanks}) all[0] = with(all[0], key, kAutomatic);
  for (const LayoutKey& key : kGridKeys) {
    std::vector<config::Config> more;
    for (const config::Config& c : all)
      std::ranges::move(variants(c, key), std::back_inserter(more));
    all = std::move(more);
  }
  std::vector<Grid> grids;
  for (config::Config& c : all) {
    Grid grid{std::move(c), {}};
    resolve(with_automatic_micro_batch(grid.config), &grid.refusal);
    grids.push_back(std::move(grid));
  }
  return grids;
}

std::vector<Layouts::Grid> Layouts::schedules(const Grid& grid) const {
  std::vector<Grid> all;
  for (config::Config& c : variants(grid.config, kSchedule)) {
    Grid& one = all.emplace_back(std::move(c), std::string());
    resolve(with_automatic_micro_batch(one.config), &one.refusal);
  }
  return all;
}

std::vector<config::Config> Layouts::zero_stages(const Grid& grid) const {
  const auto one = resolve(with_automatic_micro_batch(grid.config));
  const bool shares = one && config::layout_of(*one).size(nn::kTokenAxes) > 1;
  if (!shares) {  // stages 2 and 3 would need more memory
    config::Config c = grid.config;
    c.parallel.zero = std::min<std::int64_t>(c.parallel.zero, 1);
    return {c};
  }
  std::vector<config::Config> all = variants(grid.config, kZero);
  std::erase_if(all,
                [&](const config::Config& c) { return !resolve(with_automatic_micro_batch(c)); });
  return all;
}

std::vector<config::Config> Layouts::recomputations(const config::Config& config) const {
  return variants(config, kRecompute);
}

std::vector<config::Config> Layouts::micro_batches(const config::Config& config) const {
  const config::Config automatic = with_automatic_micro_batch(config);
  const auto one = resolve(automatic);
  if (!one) return {};
  const config::Config& base = from_ == From::given ? config : automatic;
  const std::int64_t replica = ceil_div(data::batch_shapes(*one).back().sequences,
                                        config::layout_of(*one).size(nn::kBatchAxes));
  std::vector<std::int64_t> sizes;
  if (base.train.counts_tokens())
    sizes = numbers_of_tokens(*one);
  else if (config.train.global_batch_tokens == 0)
    sizes = config::divisors(replica);
  else  // other lengths have other numbers of sequences: any size will do
    for (std::int64_t n = 1; n <= replica; n *= 2) sizes.push_back(n);
  std::vector<config::Config> all;
  if (from_ == From::given) {
    const std::int64_t given = config.train.micro_batch(),
                       most = given > 0 ? given : one->train.micro_batch();
    const bool apart = given == 0 || config.train.counts_tokens();  // may be none of `sizes`
    if (apart) all.push_back(config);
    std::erase_if(sizes, [&](std::int64_t n) { return n > most - apart; });
    std::ranges::reverse(sizes);
  }
  for (const std::int64_t n : sizes) all.push_back(with_micro_batch(base, n));
  return all;
}

std::optional<config::Config> Layouts::resolve(const config::Config& config,
                                               std::string* refusal) const {
  config::Config resolved = config;
  try {
    config::resolve_for_ranks(resolved, ranks_);
    data::batch_shapes(resolved);  // which the layout may make too long
    return resolved;
  } catch (const Error& e) {
    if (refusal) *refusal = problem_of(e);
    return std::nullopt;
  }
}

std::vector<std::string> Layouts::changes(const config::Config& to) const {
  std::vector<std::string> all;
  const auto after = config::values_by_key(to);
  const auto compare = [&](const char* key) {
    if (given_settings_.at(key) != after.at(key))
      all.push_back(std::string(key) + "=" + after.at(key));
  };
  for (const char* key : {kDataRanks, kLayersPerStage}) compare(key);
  for (const LayoutKey& key : kGridKeys) compare(key.name);
  for (const char* key : {kSchedule.name, kSchedule.auto_with_others, kZero.name, kRecompute.name,
                          kRecompute.auto_with_others, kMicroBatch, kMicroTokens})
    compare(key);
  return all;
}

}  // namespace tfm::plan
