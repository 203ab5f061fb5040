#pragma once
// Padding of keys: lengths of sequences, and the results of attention at padding for kernels that
// leave them undefined.
#include "kernels/attention.h"

namespace tfm::kernels {

// keys (B): number of keys up to the last one that is not padding.
template <class T>
void count_real(cuda::Stream&, const AttentionArgs<T>&, std::int32_t* keys);
// queries (B): a.queries; keys (B): as above, but at least 1.
template <class T>
void count_real(cuda::Stream&, const AttentionArgs<T>&, std::int32_t* queries, std::int32_t* keys);

// For right-padded sequences: sets out to 0 and lse to -inf in sequences without any key.
template <class T>
void clear_padding(cuda::Stream&, const AttentionArgs<T>&);
// For right-padded sequences: sets dk and dv of padding to 0, and dq of sequences without any key.
template <class T>
void clear_padding(cuda::Stream&, const AttentionBackwardArgs<T>&);

}  // namespace tfm::kernels
