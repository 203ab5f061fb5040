#include "plan/layouts.h"

#include <algorithm>
#include <map>

#include "config/rules.h"
#include "core/error.h"
#include "data/batch_shapes.h"
#include "nn/placement.h"

namespace tfm::plan {
namespace {

using Choices = std::vector<LayoutChoice>;

LayoutChoice with_automatic_micro_batch(LayoutChoice c) {
  c.micro_batch_size = c.micro_batch_tokens = 0;
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

// The problem of the outermost axis, where a layout has several, is its refusal.
config::Places outermost_first() {
  config::Diagnostics none;
  const int source = none.add_file("layout", "");
  std::map<std::string, config::Mark> marks;
  for (const char* key : {"parallel.data", "parallel.context", "parallel.pipeline",
                          "parallel.tensor", "parallel.sequence", "parallel.expert"})
    marks.insert({key, {.line = static_cast<int>(marks.size()) + 1, .source = source}});
  return {none, marks, {.source = source}};
}

// A limit of the search: ranks that share a sequence have this many positions of it each, at least.
constexpr std::int64_t kLeastPositions = 2048;

std::vector<std::int64_t> context_sizes(const config::Config& given, int ranks) {
  std::vector<std::int64_t> sizes = config::divisors(ranks);
  std::erase_if(sizes, [&](std::int64_t n) {
    return n > 1 && n != given.parallel.context && given.train.seq_len / n < kLeastPositions;
  });
  return sizes;
}

template <class E>
std::vector<E> all_of_option() {
  std::vector<E> all;
  for (std::size_t i = 0; i < words(E{}).size(); ++i) all.push_back(static_cast<E>(i));
  return all;
}

}  // namespace

Layouts::Layouts(config::Config given, int ranks, From from)
    : given_(std::move(given)), start_(LayoutChoice::of(given_)), ranks_(ranks), from_(from) {
  given_.places = outermost_first();
  if (start_.recompute == config::Recompute::automatic) start_.recompute = config::Recompute::none;
}

config::Config Layouts::with(const LayoutChoice& choice) const {
  config::Config c = given_;
  choice.apply(c);
  return c;
}

template <class T>
Choices Layouts::with_each(const LayoutChoice& choice, T LayoutChoice::*key, std::vector<T> values,
                           std::int64_t LayoutChoice::*detail) const {
  const T start = start_.*key;
  if (from_ == From::given) {
    const auto at = std::ranges::find(values, start);
    values.erase(values.begin(), at);
    if (values.empty()) values = {start};
  }
  Choices all;
  for (const T value : values) {
    LayoutChoice one = choice;
    one.*key = value;
    if (detail && value != start) one.*detail = 0;
    if (config::is_consistent(with(one))) all.push_back(one);
  }
  return all;
}

// Ranks along each axis, the outermost loop first. What is left of the ranks are data ranks.
std::vector<Layouts::Grid> Layouts::grids() const {
  LayoutChoice first = LayoutChoice::of(given_);
  if (from_ == From::first) first.data = 0, first.balances_stages = true;
  Choices all{first};
  const auto expand = [&](const auto& variants) {
    Choices more;
    for (const LayoutChoice& c : all) std::ranges::move(variants(c), std::back_inserter(more));
    all = std::move(more);
  };
  const auto sizes_of = [&](std::int64_t LayoutChoice::*axis,
                            const std::vector<std::int64_t>& sizes) {
    expand([&](const LayoutChoice& c) { return with_each(c, axis, sizes); });
  };
  sizes_of(&LayoutChoice::context, context_sizes(given_, ranks_));
  expand([&](const LayoutChoice& c) {
    return c.context == 1 ? Choices{c}
                          : with_each(c, &LayoutChoice::context_exchange,
                                      all_of_option<config::ContextExchange>());
  });
  sizes_of(&LayoutChoice::pipeline, config::divisors(ranks_));
  sizes_of(&LayoutChoice::tensor, config::divisors(ranks_));
  expand([&](const LayoutChoice& c) {
    return c.tensor == 1 ? Choices{c} : with_each(c, &LayoutChoice::sequence, {false, true});
  });
  if (given_.model.layers_with_experts() > 0)
    sizes_of(&LayoutChoice::expert, config::divisors(ranks_));
  std::vector<Grid> grids;
  for (const LayoutChoice& c : all) grids.push_back(grid_of(c));
  return grids;
}

Layouts::Grid Layouts::grid_of(const LayoutChoice& choice) const {
  Grid grid{choice, {}};
  resolve(with_automatic_micro_batch(choice), &grid.refusal);
  return grid;
}

std::vector<Layouts::Grid> Layouts::schedules(const LayoutChoice& grid) const {
  Choices choices{grid};
  if (grid.pipeline > 1)
    choices = with_each(grid, &LayoutChoice::schedule, all_of_option<config::PipelineSchedule>(),
                        &LayoutChoice::virtual_stages);
  std::vector<Grid> all;
  for (const LayoutChoice& c : choices) all.push_back(grid_of(c));
  return all;
}

Choices Layouts::zero_stages(const LayoutChoice& grid) const {
  const auto one = resolve(with_automatic_micro_batch(grid));
  const bool shares = one && config::layout_of(*one).size(nn::kTokenAxes) > 1;
  if (!shares) {  // stages 2 and 3 would need more memory
    LayoutChoice c = grid;
    c.zero = std::min<std::int64_t>(c.zero, 1);
    return {c};
  }
  Choices all = with_each(grid, &LayoutChoice::zero, {0, 1, 2, 3});
  std::erase_if(all,
                [&](const LayoutChoice& c) { return !resolve(with_automatic_micro_batch(c)); });
  return all;
}

Choices Layouts::recomputations(const LayoutChoice& choice) const {
  using enum config::Recompute;
  return with_each(choice, &LayoutChoice::recompute, {none, selective, full},
                   &LayoutChoice::recompute_layers);
}

bool Layouts::counts_tokens(const LayoutChoice& c) const {
  return given_.train.global_batch_tokens > 0 && c.micro_batch_size == 0;
}

LayoutChoice Layouts::with_micro_batch(LayoutChoice c, std::int64_t size) const {
  (counts_tokens(c) ? c.micro_batch_tokens : c.micro_batch_size) = size;
  return c;
}

Choices Layouts::micro_batches(const LayoutChoice& choice) const {
  const LayoutChoice automatic = with_automatic_micro_batch(choice);
  const auto one = resolve(automatic);
  if (!one) return {};
  const LayoutChoice& base = from_ == From::given ? choice : automatic;
  const std::int64_t replica = ceil_div(data::batch_shapes(*one).back().sequences,
                                        config::layout_of(*one).size(nn::kBatchAxes));
  std::vector<std::int64_t> sizes;
  if (counts_tokens(base))
    sizes = numbers_of_tokens(*one);
  else if (given_.train.global_batch_tokens == 0)
    sizes = config::divisors(replica);
  else  // other lengths have other numbers of sequences: any size will do
    for (std::int64_t n = 1; n <= replica; n *= 2) sizes.push_back(n);
  Choices all;
  if (from_ == From::given) {
    const std::int64_t given = choice.micro_batch(),
                       most = given > 0 ? given : one->train.micro_batch();
    const bool apart = given == 0 || counts_tokens(choice);  // may be none of `sizes`
    if (apart) all.push_back(choice);
    std::erase_if(sizes, [&](std::int64_t n) { return n > most - apart; });
    std::ranges::reverse(sizes);
  }
  for (const std::int64_t n : sizes) all.push_back(with_micro_batch(base, n));
  return all;
}

std::optional<config::Config> Layouts::resolve(const LayoutChoice& choice,
                                               std::string* refusal) const {
  config::Config resolved = with(choice);
  try {
    config::resolve_for_ranks(resolved, ranks_);
    data::batch_shapes(resolved);  // which the layout may make too long
    return resolved;
  } catch (const Error& e) {
    if (refusal) *refusal = problem_of(e);
    return std::nullopt;
  }
}

}  // namespace tfm::plan
