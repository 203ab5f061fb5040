#include "optim/rules/newton_schulz.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/muon.h"

namespace tfm::optim {
namespace {

constexpr double kLeastNorm = 1e-7;

template <class From, class To, class Stream>
void convert(Stream& stream, std::int64_t rows, std::int64_t cols, const From* from, To* to) {
  kernels::convert_rows(stream,
                        kernels::ConvertRowsArgs<From, To>{rows, cols, from, cols, to, cols});
}

// A polynomial that brings the singular values of x near 1, `steps` times. Returns where the result
// is: x or `next`, which has room for another x.
template <class P, class Stream>
P* iterate(Stream& stream, P* x, P* next, std::int64_t rows, std::int64_t cols, std::int64_t steps,
           P* squares) {
  using T = Accum<P>;
  constexpr T a = T(3.4445), b = T(-4.7750), c = T(2.0315);
  const bool wide = rows <= cols;
  const std::int64_t n = rows * cols, side = std::min(rows, cols);
  P *const gram = squares, *const polynomial =
                               squares + round_up(side * side, nn::ParameterSet::kGranule);
  const auto copy = [&](std::int64_t count, const P* from, P* to) {
    kernels::copy(stream, kernels::CopyArgs<P>{count, from, to});
  };
  for (std::int64_t step = 0; step < steps; ++step, std::swap(x, next)) {
    kernels::gemm(stream, kernels::GemmArgs<P>{.transpose_a = !wide,
                                               .transpose_b = wide,
                                               .m = side,
                                               .n = side,
                                               .k = n / side,
                                               .a = x,
                                               .lda = cols,
                                               .b = x,
                                               .ldb = cols,
                                               .c = gram,
                                               .ldc = side});
    copy(side * side, gram, polynomial);
    kernels::gemm(stream, kernels::GemmArgs<P>{.m = side,
                                               .n = side,
                                               .k = side,
                                               .alpha = c,
                                               .a = gram,
                                               .lda = side,
                                               .b = gram,
                                               .ldb = side,
                                               .beta = b,
                                               .c = polynomial,
                                               .ldc = side});
    copy(n, x, next);
    kernels::gemm(stream, kernels::GemmArgs<P>{.m = rows,
                                               .n = cols,
                                               .k = side,
                                               .a = wide ? polynomial : x,
                                               .lda = wide ? side : cols,
                                               .b = wide ? x : polynomial,
                                               .ldb = wide ? cols : side,
                                               .beta = a,
                                               .c = next,
                                               .ldc = cols});
  }
  return x;
}

template <class P, class Stream>
void orthogonalize(Stream& stream, Accum<P>* matrix, std::int64_t rows, std::int64_t cols,
                   std::int64_t steps, P* workspace) {
  const std::int64_t n = rows * cols, room = round_up(n, nn::ParameterSet::kGranule);
  kernels::normalize(stream, kernels::NormalizeArgs<Accum<P>>{n, kLeastNorm, matrix});
  if constexpr (std::is_same_v<P, Accum<P>>) {
    P* const x = iterate(stream, matrix, workspace, rows, cols, steps, workspace + room);
    if (x != matrix) kernels::copy(stream, kernels::CopyArgs<P>{n, x, matrix});
  } else {
    convert(stream, rows, cols, matrix, workspace);
    const P* const x =
        iterate(stream, workspace, workspace + room, rows, cols, steps, workspace + 2 * room);
    convert(stream, rows, cols, x, matrix);
  }
}

}  // namespace

void orthogonalize(device::AnyStream stream, DType dtype, void* matrix, std::int64_t rows,
                   std::int64_t cols, std::int64_t steps, void* workspace) {
  device::on(stream, [&](auto& s) {
    with_float(dtype, [&]<class P>() {
      orthogonalize(s, static_cast<Accum<P>*>(matrix), rows, cols, steps,
                    static_cast<P*>(workspace));
    });
  });
}

}  // namespace tfm::optim
