#include "inference/label_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace tfm::inference {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

// How often each class is true, predicted, and both.
struct Counts {
  double truth = 0, predicted = 0, both = 0;
  double f1() const { return ratio(2 * both, truth + predicted); }
};
std::map<std::int32_t, Counts> counts_of(Classes truth, Classes predicted) {
  std::map<std::int32_t, Counts> all;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    ++all[truth[i]].truth;
    ++all[predicted[i]].predicted;
    all[truth[i]].both += truth[i] == predicted[i];
  }
  return all;
}

// Ranks from 1; equal values have the mean of theirs.
std::vector<double> ranks_of(std::span<const double> x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return x[i]; });
  std::vector<double> ranks(x.size());
  for (std::size_t first = 0, end; first < order.size(); first = end) {
    for (end = first + 1; end < order.size() && x[order[end]] == x[order[first]];) ++end;
    for (std::size_t i = first; i < end; ++i)
      ranks[order[i]] = (static_cast<double>(first + end) + 1) / 2;
  }
  return ranks;
}

// The prefix and the type of a class; of O the prefix alone.
std::pair<char, std::string_view> parts_of(std::string_view name) {
  if (name.size() < 3 || name[1] != '-') return {'O', {}};
  return {name[0], name.substr(2)};
}

using Entity = std::tuple<std::string_view, std::size_t, std::size_t>;  // type, begin, end
std::set<Entity> entities_of(Classes words, std::span<const std::string> names,
                             std::span<const std::size_t> begins) {
  std::set<Entity> all;
  std::set<std::size_t> first(begins.begin(), begins.end());
  char before = 'O';
  std::string_view type;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= words.size(); ++i) {
    const bool over = i == words.size() || first.contains(i);
    if (over && before != 'O') all.emplace(type, begin, i), before = 'O';
    if (i == words.size()) break;
    const auto [prefix, own] = parts_of(names[static_cast<std::size_t>(words[i])]);
    const auto cuts = [](char one, const char* those) {
      return std::string_view(those).find(one) != std::string_view::npos;
    };
    if (cuts(before, "OES") || cuts(prefix, "OBS") || own != type) {
      if (before != 'O') all.emplace(type, begin, i);
      begin = i;
    }
    before = prefix, type = own;
  }
  return all;
}

}  // namespace

double accuracy(Classes truth, Classes predicted) {
  if (truth.empty()) return kNone;
  double right = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) right += truth[i] == predicted[i];
  return right / static_cast<double>(truth.size());
}

double f1_of_class(Classes truth, Classes predicted, std::int32_t positive) {
  return counts_of(truth, predicted)[positive].f1();
}

double f1_macro(Classes truth, Classes predicted) {
  const auto counts = counts_of(truth, predicted);
  double sum = 0;
  for (const auto& [label, of] : counts) sum += of.f1();
  return counts.empty() ? kNone : sum / static_cast<double>(counts.size());
}

double matthews(Classes truth, Classes predicted) {
  const auto n = static_cast<double>(truth.size());
  double right = 0, both = 0, of_truth = 0, of_predicted = 0;
  for (const auto& [label, of] : counts_of(truth, predicted)) {
    right += of.both;
    both += of.truth * of.predicted;
    of_truth += of.truth * of.truth;
    of_predicted += of.predicted * of.predicted;
  }
  return ratio(right * n - both, std::sqrt((n * n - of_truth) * (n * n - of_predicted)));
}

double pearson(std::span<const double> x, std::span<const double> y) {
  if (x.size() < 2) return kNone;
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n,
               mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double a = x[i] - mean_x, b = y[i] - mean_y;
    xx += a * a, yy += b * b, xy += a * b;
  }
  const auto constant = [](std::span<const double> v) {
    return std::ranges::all_of(v, [&](double one) { return one == v[0]; });
  };
  if (constant(x) || constant(y)) return kNone;
  return std::clamp(xy / std::sqrt(xx) / std::sqrt(yy), -1.0, 1.0);
}

double spearman(std::span<const double> x, std::span<const double> y) {
  return pearson(ranks_of(x), ranks_of(y));
}

bool names_entities(std::span<const std::string> classes) {
  const auto entity = [](const std::string& name) {
    return name.size() > 2 && name[1] == '-' && std::string_view("BIES").find(name[0]) < 4;
  };
  return std::ranges::any_of(classes, entity) &&
         std::ranges::all_of(classes, [&](const auto& c) { return c == "O" || entity(c); });
}

double f1_of_entities(Classes truth, Classes predicted, std::span<const std::string> names,
                      std::span<const std::size_t> begins) {
  const auto real = entities_of(truth, names, begins),
             found = entities_of(predicted, names, begins);
  double both = 0;
  for (const Entity& e : found) both += real.contains(e);
  return ratio(2 * both, static_cast<double>(real.size() + found.size()));
}

}  // namespace tfm::inference
