#pragma once
// Attention on the executor, and the plain computation it is measured against.
#include "../attention_case.h"
#include "device_case.h"
#include "kernels/attention.h"

namespace tfm::test {

// The definition and its derivative, every intermediate result passed through `round`.
template <class Round>
AttentionResult plain_attention(const reference::Attention& r, const Values& q, const Values& k, const Values& v,
                                const Values& dout, Round round) {
  AttentionResult x{Values(q.size()), Values(r.batch * r.heads * r.queries, -INFINITY),
                    Values(q.size()), Values(k.size()),
                    Values(v.size()), Values(r.bias.size())};
  Values weight(r.keys), factor(r.keys), gradient(r.keys);
  for (std::int64_t row = 0; row < r.batch * r.heads * r.queries; ++row) {
    const std::int64_t b = row / r.queries / r.heads, h = row / r.queries % r.heads, t = row % r.queries,
                       g = h / (r.heads / r.kv_heads);
    const std::int64_t at = ((b * r.queries + t) * r.heads + h) * r.size, distances = r.queries + r.keys - 1;
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
      weight[s] = std::exp(round(round(product(q, at, k, kv(s)) * r.scale) + (r.bias.empty() ? 0 : r.bias[bias(s)])));
      sum += weight[s];
    }
    if (sum == 0) continue;
    x.lse[row] = std::log(sum);
    for (std::int64_t s = 0; s < r.keys; ++s) {
      if (!r.visible(b, t, s)) continue;
      const std::int64_t head = (r.sequence_offset + b) * r.heads_total + r.head_offset + h;
      factor[s] = reference::dropout_factor(r.p, r.key, (head * r.queries + t) * ((r.keys + 3) / 4 * 4) + s);
      weight[s] = round(weight[s] / sum);
      for (std::int64_t d = 0; d < r.size; ++d) x.out[at + d] += round(weight[s] * factor[s]) * v[kv(s) + d];
      gradient[s] = product(dout, at, v, kv(s)) * factor[s];
      delta += weight[s] * gradient[s];
    }
    for (std::int64_t s = 0; s < r.keys; ++s) {
      if (!r.visible(b, t, s)) continue;
      const double score = round(weight[s] * (gradient[s] - delta)), scaled = round(score * r.scale);
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

template <class T>
double round_to(double x) {
  return static_cast<double>(static_cast<Wide<T>>(static_cast<T>(static_cast<Wide<T>>(x))));
}

// Forward and backward through the public functions; all rows `gap`ped as Data says. Nothing between rows may change.
template <class T>
AttentionResult run_attention(const Data<T>& d) {
  const auto& r = d.r;
  const std::int64_t q_width = r.heads * r.size, kv_width = r.kv_heads * r.size;
  Values kv = spread(d.k, kv_width, d.kv_stride);
  for (std::size_t i = 0; i < d.v.size(); ++i) kv[i / kv_width * d.kv_stride + kv_width + i % kv_width] = d.v[i];
  Buffer<T> q("q", spread(d.q, q_width, d.q_stride)), keys("k and v", kv), dout("dout", spread(d.dout, q_width, d.out_stride));
  Buffer<T> out("out", r.batch * r.queries * d.out_stride), dq("dq", r.batch * r.queries * d.q_stride),
      dkv("dk and dv", std::ssize(kv));
  Buffer<Wide<T>> lse("lse", r.batch * r.heads * r.queries), bias("bias", r.bias), dbias("dbias", r.batch * std::ssize(r.bias));
  const Values q_seg(r.q_segments.begin(), r.q_segments.end()), k_seg(r.k_segments.begin(), r.k_segments.end());
  Buffer<std::int32_t> q_segments("q_segments", q_seg), k_segments("k_segments", k_seg);
  const auto given = [](auto& buffer, bool is) { return is ? &buffer[0] : nullptr; };
  const kernels::AttentionArgs<T> a{.batch = r.batch,
                                    .heads = r.heads,
                                    .kv_heads = r.kv_heads,
                                    .queries = r.queries,
                                    .keys = r.keys,
                                    .head_size = r.size,
                                    .q = q,
                                    .k = keys,
                                    .v = keys + kv_width,
                                    .q_stride = d.q_stride,
                                    .kv_stride = d.kv_stride,
                                    .out = out,
                                    .out_stride = d.out_stride,
                                    .lse = lse,
                                    .scale = static_cast<Wide<T>>(r.scale),
                                    .causal = r.causal,
                                    .k_segments = given(k_segments, !k_seg.empty()),
                                    .q_segments = given(q_segments, !q_seg.empty()),
                                    .bias = given(bias, !r.bias.empty()),
                                    .dropout = {r.p, r.key},
                                    .sequence_offset = r.sequence_offset,
                                    .head_offset = r.head_offset,
                                    .heads_total = r.heads_total};
  kernels::attention(device_stream(), a);
  executor::set_read_only(out), executor::set_read_only(lse);
  kernels::attention_backward(device_stream(),
                              kernels::AttentionBackwardArgs<T>{a, dout, dq, dkv, dkv + kv_width, given(dbias, !r.bias.empty())});
  const auto untouched = [](const Values& rows, std::int64_t width, std::int64_t stride) {
    for (std::size_t i = width; i < rows.size(); i += stride) EXPECT_TRUE(std::isnan(rows[i])) << "written between rows";
  };
  untouched(out.values(), q_width, d.out_stride), untouched(dq.values(), q_width, d.q_stride),
      untouched(dkv.values(), 2 * kv_width, d.kv_stride);
  return {gather(out.values(), q_width, d.out_stride),
          lse.values(),
          gather(dq.values(), q_width, d.q_stride),
          gather(dkv.values(), kv_width, d.kv_stride),
          gather(dkv.values(), kv_width, d.kv_stride, kv_width),
          r.bias.empty() ? Values() : sum_of_sequences(dbias.values(), r.batch)};
}

// Data, which keeps a reference to r, that the type holds exactly. A gap of 8 elements leaves rows at multiples of 16 bytes,
// where tensor cores work.
template <class T>
Data<T> device_data(const reference::Attention& r, std::int64_t gap = 8) {
  Data<T> d(r, gap);
  for (Values* v : {&d.q, &d.k, &d.v, &d.dout}) *v = rounded<T>(*v);
  return d;
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

// Empty, or what is too far from float64: `out` twice as far as the plain computation in type T, gradients three times.
template <class T>
std::string complaint(const Data<T>& d, const AttentionResult& got) {
  const AttentionResult want = plain_attention(d.r, d.q, d.k, d.v, d.dout, [](double x) { return x; });
  const AttentionResult plain = plain_attention(d.r, d.q, d.k, d.v, d.dout, round_to<T>);
  std::string text;
  const auto compare = [&](const char* name, Values AttentionResult::*x, double times) {
    const double error = largest_difference(got.*x, want.*x), bound = times * largest_difference(plain.*x, want.*x) + 1e-5;
    if (!(error <= bound))
      text += std::string(name) + " is off by " + std::to_string(error) + ", allowed " + std::to_string(bound) + "; ";
  };
  compare("out", &AttentionResult::out, 2), compare("dq", &AttentionResult::dq, 3), compare("dk", &AttentionResult::dk, 3),
      compare("dv", &AttentionResult::dv, 3);
  compare("dbias", &AttentionResult::dbias, 3);
  if (const double error = largest_difference(got.lse, want.lse); !(error <= 1e-4))
    text += "lse is off by " + std::to_string(error);
  return text;
}

inline bool same(const AttentionResult& a, const AttentionResult& b) {
  return same_bits(a.out, b.out) && same_bits(a.lse, b.lse) && same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) &&
         same_bits(a.dv, b.dv) && same_bits(a.dbias, b.dbias);
}

}  // namespace tfm::test
