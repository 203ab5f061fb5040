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
  const Values q_rows = d.query_rows(), kv_rows = d.key_value_rows();
  Buffer<T> q("q", q_rows), keys("k and v", kv_rows), dout("dout", d.dout_rows());
  Buffer<T> out("out", r.batch * r.queries * d.out_stride), dq("dq", std::ssize(q_rows)),
      dkv("dk and dv", std::ssize(kv_rows));
  Buffer<Accum<T>> lse("lse", r.batch * r.heads * r.queries), bias("bias", r.bias),
      dbias("dbias", r.batch * std::ssize(r.bias));
  Buffer<std::int32_t> q_segments("q_segments", {r.q_segments.begin(), r.q_segments.end()}),
      k_segments("k_segments", {r.k_segments.begin(), r.k_segments.end()}),
      prefixes("prefixes", {r.prefixes.begin(), r.prefixes.end()});
  kernels::AttentionArgs<T> a = attention_args(d);
  a.q = q, a.k = keys, a.v = keys + d.kv_width(), a.out = out, a.lse = lse;
  if (!r.k_segments.empty()) a.k_segments = k_segments;
  if (!r.q_segments.empty()) a.q_segments = q_segments;
  if (!r.prefixes.empty()) a.prefixes = prefixes;
  if (!r.bias.empty()) a.bias = bias;
  kernels::attention(device_stream(), a);
  emulator::set_read_only(out), emulator::set_read_only(lse);
  kernels::attention_backward(
      device_stream(), kernels::AttentionBackwardArgs<T>{a, dout, dq, dkv, dkv + d.kv_width(),
                                                         r.bias.empty() ? nullptr : &dbias[0]});
  return attention_result(d, out.values(), lse.values(), dq.values(), dkv.values(), dbias.values());
}

// Data, which keeps a reference to r, that the type holds exactly. A gap of 8 elements leaves rows
// at multiples of 16 bytes, where tensor cores work.
template <class T>
Data<T> device_data(const reference::Attention& r, std::int64_t gap = 8) {
  return rounded_data<T>(r, gap);
}

}  // namespace tfm::test
