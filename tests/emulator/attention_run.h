#pragma once
// Attention on the emulator.
#include "device_case.h"
#include "kernels/attention.h"
#include "support/attention_plain.h"

namespace tfm::test {

// Forward and backward through the public functions; all rows `gap`ped as Data says. Nothing
// between rows may change.
template <class T>
AttentionResult run_attention(const Data<T>& d) {
  const auto& r = d.r;
  const std::int64_t q_width = r.heads * r.size, kv_width = r.kv_heads * r.size;
  Values kv = spread(d.k, kv_width, d.kv_stride);
  for (std::size_t i = 0; i < d.v.size(); ++i)
    kv[i / kv_width * d.kv_stride + kv_width + i % kv_width] = d.v[i];
  Buffer<T> q("q", spread(d.q, q_width, d.q_stride)), keys("k and v", kv),
      dout("dout", spread(d.dout, q_width, d.out_stride));
  Buffer<T> out("out", r.batch * r.queries * d.out_stride),
      dq("dq", r.batch * r.queries * d.q_stride), dkv("dk and dv", std::ssize(kv));
  Buffer<Accum<T>> lse("lse", r.batch * r.heads * r.queries), bias("bias", r.bias),
      dbias("dbias", r.batch * std::ssize(r.bias));
  const Values q_seg(r.q_segments.begin(), r.q_segments.end()),
      k_seg(r.k_segments.begin(), r.k_segments.end());
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
                                    .scale = static_cast<Accum<T>>(r.scale),
                                    .causal = r.causal,
                                    .k_segments = given(k_segments, !k_seg.empty()),
                                    .q_segments = given(q_segments, !q_seg.empty()),
                                    .bias = given(bias, !r.bias.empty()),
                                    .dropout = {r.p, r.key},
                                    .sequence_offset = r.sequence_offset,
                                    .head_offset = r.head_offset,
                                    .heads_total = r.heads_total};
  kernels::attention(device_stream(), a);
  emulator::set_read_only(out), emulator::set_read_only(lse);
  kernels::attention_backward(device_stream(),
                              kernels::AttentionBackwardArgs<T>{a, dout, dq, dkv, dkv + kv_width,
                                                                given(dbias, !r.bias.empty())});
  const auto untouched = [](const Values& rows, std::int64_t width, std::int64_t stride) {
    for (std::size_t i = width; i < rows.size(); i += stride)
      EXPECT_TRUE(std::isnan(rows[i])) << "written between rows";
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

// Data, which keeps a reference to r, that the type holds exactly. A gap of 8 elements leaves rows
// at multiples of 16 bytes, where tensor cores work.
template <class T>
Data<T> device_data(const reference::Attention& r, std::int64_t gap = 8) {
  Data<T> d(r, gap);
  for (Values* v : {&d.q, &d.k, &d.v, &d.dout}) *v = rounded<T>(*v);
  return d;
}

}  // namespace tfm::test
