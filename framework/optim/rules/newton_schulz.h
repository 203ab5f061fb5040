#pragma once
// Newton-Schulz iterations: x becomes, about, the nearest orthogonal matrix (Jordan et al. 2024).
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"
#include "nn/parameter.h"

namespace tfm::optim {

// Bytes of the workspace for matrices of at most `elements` elements and `side` rows or columns,
// whichever are fewer; `dtype` is the type of the parameters.
inline std::int64_t newton_schulz_bytes(std::int64_t elements, std::int64_t side, DType dtype) {
  constexpr std::int64_t kGranule = nn::ParameterSet::kGranule;
  return round_up(elements, kGranule) * size_of(accum_type(dtype)) +
         2 * round_up(side * side, kGranule) * size_of(dtype);
}

// Of a row-major matrix of accum_type(dtype), as gradients of parameters of type `dtype` are. The
// factors and results of the products are of `dtype`; the matrix is scaled to norm 1 before it is
// rounded to that.
void orthogonalize(device::AnyStream stream, DType dtype, void* matrix, std::int64_t rows,
                   std::int64_t cols, std::int64_t steps, void* workspace);

}  // namespace tfm::optim
