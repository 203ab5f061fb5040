// Rows of a router, for CPUs and GPUs.
#include <cmath>

#include "kernels/router.h"

namespace tfm::kernels {
namespace {

template <class T>
constexpr T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

// Expert e's score with the bias, by which it is chosen.
template <class T>
constexpr T preference(const RouteArgs<T>& a, const T* scores, std::int64_t e) {
  return a.bias ? scores[e] + a.bias[e] : scores[e];
}

// The sum of the two best of a group.
template <class T>
constexpr T group_preference(const RouteArgs<T>& a, const T* scores, std::int64_t group) {
  const std::int64_t size = a.options.experts / a.options.groups, first = group * size;
  T best = preference(a, scores, first), second = 0;
  for (std::int64_t e = first + 1; e < first + size; ++e) {
    const T p = preference(a, scores, e);
    if (e == first + 1 || p > second) second = p > best ? best : p;
    if (p > best) best = p;
  }
  return best + second;
}

// A bit for each group, 1: fewer than top_groups groups come before it.
template <class T>
constexpr std::uint64_t open_groups(const RouteArgs<T>& a, const T* scores) {
  const RouterOptions& o = a.options;
  if (o.top_groups == o.groups) return ~std::uint64_t{0};
  std::uint64_t open = 0;
  for (std::int64_t g = 0; g < o.groups; ++g) {
    const T own = group_preference(a, scores, g);
    std::int64_t before = 0;
    for (std::int64_t h = 0; h < o.groups; ++h) {
      const T other = group_preference(a, scores, h);
      before += other > own || (other == own && h < g);
    }
    if (before < o.top_groups) open |= std::uint64_t{1} << g;
  }
  return open;
}

// In nats, of probabilities that are scores divided by `total`.
template <class T>
constexpr T entropy_of(const RouteArgs<T>& a, std::int64_t n, T total) {
  const RouterOptions& o = a.options;
  const T* const scores = a.scores + n * o.experts;
  T sum = 0;
  if (!o.sigmoid) {
    for (std::int64_t e = 0; e < o.experts; ++e)
      sum += scores[e] > 0 ? scores[e] * a.logits[n * o.experts + e] : T{0};
    return a.lse[n] - sum;
  }
  for (std::int64_t e = 0; e < o.experts; ++e)
    sum += scores[e] > 0 ? scores[e] * std::log(scores[e]) : T{0};
  return std::log(total) - sum / total;
}

// What scores are divided by to be probabilities.
template <class T>
constexpr T score_sum(const RouterOptions& o, const T* scores) {
  if (!o.sigmoid) return 1;
  T sum = 0;
  for (std::int64_t e = 0; e < o.experts; ++e) sum += scores[e];
  return sum;
}

// Scores of token n, its choices and their weights.
template <class T>
constexpr void route_row(const RouteArgs<T>& a, std::int64_t n) {
  const RouterOptions& o = a.options;
  const T* const x = a.logits + n * o.experts;
  T* const scores = a.scores + n * o.experts;
  T most = x[0], sum = 0;
  for (std::int64_t e = 1; e < o.experts; ++e) most = x[e] > most ? x[e] : most;
  for (std::int64_t e = 0; e < o.experts; ++e) sum += scores[e] = std::exp(x[e] - most);
  a.lse[n] = most + std::log(sum);
  for (std::int64_t e = 0; e < o.experts; ++e)
    scores[e] = o.sigmoid ? sigmoid(x[e]) : scores[e] / sum;

  std::int32_t* const choice = a.choice + n * o.top_k;
  T* const weights = a.weights + n * o.top_k;
  a.entropy[n] = entropy_of(a, n, score_sum(o, scores));
  T total = 0;
  const std::int64_t of_group = o.experts / o.groups;
  const std::uint64_t open = open_groups(a, scores);
  for (std::int64_t k = 0; k < o.top_k; ++k) {
    std::int64_t best = -1;
    for (std::int64_t g = 0; g < o.groups; ++g) {
      if ((open >> g & 1) == 0) continue;
      for (std::int64_t e = g * of_group; e < (g + 1) * of_group; ++e) {
        bool taken = false;
        for (std::int64_t j = 0; j < k; ++j) taken |= choice[j] == e;
        if (!taken && (best < 0 || preference(a, scores, e) > preference(a, scores, best)))
          best = e;
      }
    }
    choice[k] = static_cast<std::int32_t>(best);
    total += scores[best];
  }
  const T factor = static_cast<T>(o.scale) / (o.normalize ? total : T{1});
  for (std::int64_t k = 0; k < o.top_k; ++k) weights[k] = scores[choice[k]] * factor;
}

// Whether the token at a position of a sequence is none of padding.
template <class Args>
constexpr bool counts_at(const Args& a, std::int64_t sequence, std::int64_t position) {
  return !a.mask || a.mask[sequence * a.options.rows.sequence_length + position] >= 0;
}

// Of expert e in sequence b.
constexpr void limit_slots_of(const LimitSlotsArgs& a, std::int64_t b, std::int64_t e) {
  const RouterOptions& o = a.options;
  const std::int64_t length = o.rows.sequence_length;
  std::int64_t taken = 0;
  for (std::int64_t k = 0; k < o.top_k; ++k)
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int64_t slot = (b * length + t) * o.top_k + k;
      if (a.choice[slot] != e) continue;
      const bool keeps = counts_at(a, b, t) && taken < o.capacity;
      taken += keeps;
      a.kept[slot] = keeps ? static_cast<std::int32_t>(e) : -1;
    }
}

// Gradients of the logits of token n in sequence b; `counted`: by statistics.
template <class T>
constexpr void route_row_backward(const RouteBackwardArgs<T>& a, std::int64_t n, std::int64_t b,
                                  bool counted) {
  const RouterOptions& o = a.options;
  const T* const scores = a.scores + n * o.experts;
  T* const dx = a.dlogits + n * o.experts;
  const T* const of =
      counted && a.dstatistics ? a.dstatistics + b * routing_statistics(o.experts) : nullptr;
  // Statistics count probabilities, which are scores divided by their sum.
  T tokens = 0, mean = 0;
  const T sum = score_sum(o, scores);
  for (std::int64_t e = 0; of && e < o.experts; ++e)
    tokens += a.counts[b * o.experts + e] / static_cast<T>(o.top_k);
  for (std::int64_t e = 0; of && o.sigmoid && e < o.experts; ++e)
    mean += scores[e] / sum * of[e] / tokens;
  for (std::int64_t e = 0; e < o.experts; ++e) dx[e] = of ? (of[e] / tokens - mean) / sum : T{0};
  // Weights add theirs.
  const std::int32_t* const choice = a.choice + n * o.top_k;
  const T *const weights = a.weights + n * o.top_k, *const dweights = a.dweights + n * o.top_k;
  T total = 0, inner = 0;
  for (std::int64_t k = 0; a.dweights && k < o.top_k; ++k) {
    total += scores[choice[k]];
    inner += dweights[k] * weights[k];
  }
  for (std::int64_t k = 0; a.dweights && k < o.top_k; ++k) {
    const T d = static_cast<T>(o.scale) * dweights[k];
    dx[choice[k]] += o.normalize ? (d - inner) / total : d;
  }
  // From scores to logits.
  T dot = 0;
  for (std::int64_t e = 0; e < o.experts; ++e) dot += scores[e] * dx[e];
  const T dz = of ? 2 * a.lse[n] * of[o.experts] / tokens : T{0};
  for (std::int64_t e = 0; e < o.experts; ++e) {
    const T s = scores[e];
    dx[e] = (o.sigmoid ? dx[e] * s * (1 - s) : s * (dx[e] - dot)) +
            dz * std::exp(a.logits[n * o.experts + e] - a.lse[n]);
  }
}

// The number of tokens of a sequence that are not padding.
template <class T>
constexpr std::int64_t real_tokens(const RouteArgs<T>& a, std::int64_t sequence) {
  const std::int64_t length = a.options.rows.sequence_length;
  if (!a.mask) return length;
  std::int64_t n = 0;
  for (std::int64_t t = 0; t < length; ++t) n += counts_at(a, sequence, t);
  return n;
}

template <class T>
constexpr void load_error_of(const LoadErrorArgs<T>& a, std::int64_t e) {
  T own = 0, all = 0;
  for (std::int64_t b = 0; a.counts_choices && b < a.sequences; ++b)
    for (std::int64_t i = 0; i < a.experts; ++i) {
      const T count = a.counts[b * a.experts + i];
      all += count;
      own += i == e ? count : T{0};
    }
  const T error = static_cast<T>(a.experts) * own - all;
  a.error[e] = a.accumulate ? a.error[e] + error : error;
}

// Element i of the sums.
template <class T>
constexpr void router_load_of(const RouterLoadArgs<T>& a, std::int64_t i) {
  double sum = i > a.experts ? *a.rows : 0;
  for (std::int64_t b = 0; i <= a.experts && b < a.sequences; ++b)
    sum += i == a.experts
               ? static_cast<double>(a.statistics[(b + 1) * routing_statistics(a.experts) - 1])
           : a.counts_choices ? static_cast<double>(a.counts[b * a.experts + i])
                              : 0.0;
  a.load[i] = sum;
}

// Adds the term of one sequence.
template <class T>
constexpr double router_term_of(const RouterTermArgs<T>& a, std::int64_t b) {
  const T* const of = a.statistics + b * routing_statistics(a.experts);
  if (a.term == RouterTerm::z) return static_cast<double>(of[a.experts]);
  double choices = 0, sum = 0;
  for (std::int64_t e = 0; e < a.experts; ++e) {
    const auto count = static_cast<double>(a.counts[b * a.experts + e]);
    choices += count;
    sum += count * static_cast<double>(of[e]);
  }
  return choices > 0 ? static_cast<double>(a.experts) * sum / choices : 0;
}

template <class T>
constexpr void router_term_row_backward(const RouterTermBackwardArgs<T>& a, std::int64_t b) {
  const double scale = a.scale ? *a.scale : 1;
  double choices = 0;
  for (std::int64_t e = 0; e < a.experts; ++e)
    choices += static_cast<double>(a.counts[b * a.experts + e]);
  for (std::int64_t e = 0; e < routing_statistics(a.experts); ++e) {
    double d = 0;
    if (a.term == RouterTerm::z)
      d = e == a.experts ? scale : 0;
    else if (e < a.experts && choices > 0)
      d = scale * static_cast<double>(a.experts) *
          static_cast<double>(a.counts[b * a.experts + e]) / choices;
    T& to = a.dstatistics[b * routing_statistics(a.experts) + e];
    to = a.accumulate ? to + static_cast<T>(d) : static_cast<T>(d);
  }
}

// Tokens of sequence b that count.
template <class Args>
constexpr auto tokens_of(const Args& a, std::int64_t b) {
  auto choices = *a.counts * 0;
  for (std::int64_t e = 0; e < a.experts; ++e) choices += a.counts[b * a.experts + e];
  return choices / static_cast<decltype(choices)>(a.top_k);
}

// Element i of the sums.
template <class T>
constexpr T sum_of_routing(const SumRoutingArgs<T>& a, std::int64_t i) {
  T sum = a.before ? a.before[i] : T{0};
  if (i >= a.experts && !a.counts_choices) return sum;
  for (std::int64_t b = 0; b < a.sequences; ++b)
    if (i < a.experts)
      sum += tokens_of(a, b) * a.statistics[b * routing_statistics(a.experts) + i];
    else
      sum += i < 2 * a.experts ? a.counts[b * a.experts + i - a.experts] : tokens_of(a, b);
  return sum;
}

template <class T>
constexpr void sum_routing_row_backward(const SumRoutingBackwardArgs<T>& a, std::int64_t b) {
  const T tokens = tokens_of(a, b);
  for (std::int64_t e = 0; e < routing_statistics(a.experts); ++e) {
    T& to = a.dstatistics[b * routing_statistics(a.experts) + e];
    const T d = e < a.experts ? tokens * a.dsums[e] : T{0};
    to = a.accumulate ? to + d : d;
  }
}

// d loss / d (sum of the probability of expert e).
template <class Args>
constexpr double batch_balance_slope(const Args& a, std::int64_t e) {
  const auto tokens = static_cast<double>(a.totals[2 * a.experts]);
  return tokens > 0 ? static_cast<double>(a.experts) *
                          static_cast<double>(a.totals[a.experts + e]) / (tokens * tokens)
                    : 0;
}
template <class T>
constexpr void batch_balance_all(const BatchBalanceArgs<T>& a) {
  *a.loss = 0;
  for (std::int64_t e = 0; e < a.experts; ++e)
    *a.loss += batch_balance_slope(a, e) * static_cast<double>(a.sums[e]);
}
template <class T>
constexpr void batch_balance_element_backward(const BatchBalanceBackwardArgs<T>& a,
                                              std::int64_t i) {
  a.dsums[i] =
      i < a.experts ? static_cast<T>((a.scale ? *a.scale : 1) * batch_balance_slope(a, i)) : T{0};
}

}  // namespace
}  // namespace tfm::kernels
