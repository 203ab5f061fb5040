#pragma once
// Attention on the CPU.
#include "kernels/attention.h"
#include "support/attention_case.h"

namespace tfm::test {

// Forward and backward through the public functions. Nothing around or between rows may change.
template <class T>
AttentionResult run_attention(const Data<T>& d, int threads) {
  const auto& r = d.r;
  Guarded<T> q(d.query_rows()), keys(d.key_value_rows()), dout(d.dout_rows());
  Guarded<T> out(r.batch * r.queries * d.out_stride), dq(q.size()), dkv(keys.size());
  Guarded<Accum<T>> lse(r.batch * r.heads * r.queries), bias(r.bias),
      dbias(r.batch * std::ssize(r.bias));
  kernels::AttentionArgs<T> a = attention_args(d);
  a.q = q, a.k = keys, a.v = keys + d.kv_width(), a.out = out, a.lse = lse;
  if (!r.k_segments.empty()) a.k_segments = r.k_segments.data();
  if (!r.q_segments.empty()) a.q_segments = r.q_segments.data();
  if (!r.prefixes.empty()) a.prefixes = r.prefixes.data();
  if (!r.bias.empty()) a.bias = bias;
  cpu::Stream s{threads};
  kernels::attention(s, a);
  kernels::attention_backward(
      s, kernels::AttentionBackwardArgs<T>{a, dout, dq, dkv, dkv + d.kv_width(),
                                           r.bias.empty() ? nullptr : dbias.data()});
  return attention_result(d, out.values(), lse.values(), dq.values(), dkv.values(), dbias.values());
}

}  // namespace tfm::test
