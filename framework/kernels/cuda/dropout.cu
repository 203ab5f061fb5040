// Residual and dropout; see dropout_pack.h.
#include "kernels/cuda/dropout_pack.h"
#include "kernels/dropout.h"

namespace tfm::kernels {
namespace {

template <class T>
struct Store {
  Add<T> add;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    Accum<T> y[kPack];
    add.pack(row, c, part, y);
    store_pack(add.a.y + row * add.a.cols + c, part, y, add.a.accumulate);
  }
  __device__ void operator()(std::int64_t at, Part part) const {
    Accum<T> y[kPack];
    add.pack(at, part, y);
    store_pack(add.a.y + at, part, y, add.a.accumulate);
  }
};

}  // namespace

template <class T>
void dropout_add(cuda::Stream& stream, const DropoutAddArgs<T>& a) {
  const Store<T> store{Add<T>(a)};
  if (a.dropout.p == 0 && a.dropout.jitter == 0)
    over_array(stream, a.y, a.rows * a.cols, store);
  else
    over_rows(stream, a.rows, a.cols, store);
}

#define TFM_INSTANTIATE(T) template void dropout_add(cuda::Stream&, const DropoutAddArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
