// Matrix products on the executor's streams: the CPU's, so that whole models run.
#include "kernels/gemm.h"

#include "device/cuda/stream.h"

namespace tfm::kernels {

template <class T, class C> void gemm(cuda::Stream&, const GemmArgs<T, C>& g) {
  cpu::Stream host;
  gemm(host, g);
}

template void gemm(cuda::Stream&, const GemmArgs<float>&);
template void gemm(cuda::Stream&, const GemmArgs<double>&);
template void gemm(cuda::Stream&, const GemmArgs<bf16>&);
template void gemm(cuda::Stream&, const GemmArgs<f16>&);
template void gemm(cuda::Stream&, const GemmArgs<bf16, float>&);
template void gemm(cuda::Stream&, const GemmArgs<f16, float>&);

}  // namespace tfm::kernels
