#pragma once
// The plain computation that attention's kernels are measured against, and how far from it they may
// be.
#include "support/attention_case.h"

namespace tfm::test {

// The definition and its derivative, every intermediate result passed through `round`.
template <class Round>
AttentionResult plain_attention(const reference::Attention& r, const Values& q, const Values& k,
                                const Values& v, const Values& dout, Round round) {
  AttentionResult x{Values(q.size()), Values(r.batch * r.heads * r.queries, -INFINITY),
                    Values(q.size()), Values(k.size()),
                    Values(v.size()), Values(r.bias.size())};
  Values weight(r.keys), factor(r.keys), gradient(r.keys);
  for (std::int64_t row = 0; row < r.batch * r.heads * r.queries; ++row) {
    const std::int64_t b = row / r.queries / r.heads, h = row / r.queries % r.heads,
                       t = row % r.queries, g = h / (r.heads / r.kv_heads);
    const std::int64_t at = ((b * r.queries + t) * r.heads + h) * r.size,
                       distances = r.queries + r.keys - 1;
    const auto kv = [&](std::int64_t s) { return ((b * r.keys + s) * r.kv_heads + g) * r.size; };
    const auto bias = [&](std::int64_t s) { return h * distances + s - t + r.queries - 1; };
    const auto product = [&](const Values& a, std::int64_t i, const Values& c, std::int64_t j) {
      double sum = 0;
      for (std::int64_t d = 0; d < r.size; ++d) sum += a[i + d] * c[j + d];
      return round(sum);
    };
    double sum = 0, delta = 0;
    for (std::int64_t s = 0; s < r.keys; ++s) {
      if (!r.visible(b, t, s)) continue;
      weight[s] = std::exp(
          round(round(r.capped(round(product(q, at, k, kv(s)) * r.scale))) + r.added(h, t, s)));
      sum += weight[s];
    }
    if (sum == 0) continue;
    x.lse[row] = std::log(sum);
    for (std::int64_t s = 0; s < r.keys; ++s) {
      if (!r.visible(b, t, s)) continue;
      factor[s] = reference::dropout_factor(r.p, r.key, r.element(b, h, t, s));
      weight[s] = round(weight[s] / sum);
      for (std::int64_t d = 0; d < r.size; ++d)
        x.out[at + d] += round(weight[s] * factor[s]) * v[kv(s) + d];
      gradient[s] = product(dout, at, v, kv(s)) * factor[s];
      delta += weight[s] * gradient[s];
    }
    for (std::int64_t s = 0; s < r.keys; ++s) {
      if (!r.visible(b, t, s)) continue;
      const double score = round(weight[s] * (gradient[s] - delta)),
                   share = r.softcap > 0
                               ? std::tanh(round(product(q, at, k, kv(s)) * r.scale) / r.softcap)
                               : 0,
                   scaled = round(score * (1 - share * share) * r.scale);
      if (!r.bias.empty()) x.dbias[bias(s)] += score;
      for (std::int64_t d = 0; d < r.size; ++d) {
        x.dq[at + d] += scaled * k[kv(s) + d];
        x.dk[kv(s) + d] += scaled * q[at + d];
        x.dv[kv(s) + d] += round(weight[s] * factor[s]) * dout[at + d];
      }
    }
  }
  for (Values* y : {&x.out, &x.dq, &x.dk, &x.dv})
    for (double& value : *y) value = round(value);
  return x;
}

inline double largest_difference(const Values& a, const Values& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double e = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]);
    if (!(e <= worst)) worst = e;
    if (std::isnan(e)) return INFINITY;
  }
  return worst;
}

// The result in float64, and that of the plain computation in type T.
template <class T>
struct Wanted {
  explicit Wanted(const Data<T>& d)
      : exact(plain_attention(d.r, d.q, d.k, d.v, d.dout, [](double x) { return x; })),
        plain(plain_attention(d.r, d.q, d.k, d.v, d.dout, round_to<T>)) {}
  AttentionResult exact, plain;
};
// Empty, or what is too far from float64: `out` twice as far as the plain computation, gradients
// three times.
template <class T>
std::string complaint(const Wanted<T>& wanted, const AttentionResult& got) {
  const auto& [want, plain] = wanted;
  std::string text;
  const auto compare = [&](const char* name, Values AttentionResult::*x, double times) {
    const double error = largest_difference(got.*x, want.*x),
                 bound = times * largest_difference(plain.*x, want.*x) + 1e-5;
    if (!(error <= bound))
      text += std::string(name) + " is off by " + std::to_string(error) + ", allowed " +
              std::to_string(bound) + "; ";
  };
  compare("out", &AttentionResult::out, 2), compare("dq", &AttentionResult::dq, 3),
      compare("dk", &AttentionResult::dk, 3), compare("dv", &AttentionResult::dv, 3);
  compare("dbias", &AttentionResult::dbias, 3);
  if (const double error = largest_difference(got.lse, want.lse); !(error <= 1e-4))
    text += "lse is off by " + std::to_string(error);
  return text;
}
template <class T>
std::string complaint(const Data<T>& d, const AttentionResult& got) {
  return complaint(Wanted<T>(d), got);
}

inline bool same(const AttentionResult& a, const AttentionResult& b) {
  return same_bits(a.out, b.out) && same_bits(a.lse, b.lse) && same_bits(a.dq, b.dq) &&
         same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv) && same_bits(a.dbias, b.dbias);
}

}  // namespace tfm::test
