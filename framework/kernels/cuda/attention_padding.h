#pragma once
// Padding of keys: up to where each sequence is real, and what attention's results are where it is
// not, for kernels that leave that open.
#include "kernels/attention.h"

namespace tfm::kernels {

// keys (B): those up to the last one that is not padding.
template <class T>
void count_real(cuda::Stream&, const AttentionArgs<T>&, std::int32_t* keys);
// queries (B): all of them; keys (B): as above, but at least one.
template <class T>
void count_real(cuda::Stream&, const AttentionArgs<T>&, std::int32_t* queries, std::int32_t* keys);

// Of right-padded sequences. Where one has no key at all, out becomes 0 and lse -inf.
template <class T>
void clear_padding(cuda::Stream&, const AttentionArgs<T>&);
// dk and dv of padding become 0, of sequences without a key dq, too.
template <class T>
void clear_padding(cuda::Stream&, const AttentionBackwardArgs<T>&);

}  // namespace tfm::kernels
