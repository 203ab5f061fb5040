// The stand-in of cuBLASLt: column-major products in straight loops, and algorithms that differ
// only in what they cost.
#include <cublasLt.h>

#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "fake_runtime.h"

using tfm::emulator::runtime;

struct FakeOperation {
  cublasComputeType_t compute;
  cudaDataType_t scale, bias_type = CUDA_R_32F;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void *bias = nullptr, *aux = nullptr;
  std::int64_t aux_ld = 0;
  bool of_gradient() const { return epilogue == CUBLASLT_EPILOGUE_DGELU; }
};
struct FakeLayout {
  cudaDataType_t type;
  std::uint64_t rows, cols;
  std::int64_t ld;
};
struct FakePreference {};

namespace {

template <class V>
cublasStatus_t assign(V& to, const void* from, std::size_t bytes) {
  if (bytes != sizeof(V)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// f(T{}) for the type.
template <class F>
void typed(cudaDataType_t type, F&& f) {
  type == CUDA_R_32F   ? f(float{})
  : type == CUDA_R_64F ? f(double{})
  : type == CUDA_R_16F ? f(tfm::f16{})
                       : f(tfm::bf16{});
}

// Of GELU by tanh.
template <class W>
W gelu_derivative(W x) {
  const W c = W(0.7978845608028654), t = std::tanh(c * (x + W(0.044715) * x * x * x));
  return (1 + t) / 2 + x * (1 - t * t) / 2 * c * (1 + 3 * W(0.044715) * x * x);
}

template <class T, class C, class W>
void multiply(const FakeOperation& o, W alpha, const T* a, const FakeLayout& la, const T* b,
              const FakeLayout& lb, W beta, const C* c, C* d, const FakeLayout& ld,
              std::int64_t k) {
  for (std::int64_t j = 0; j < static_cast<std::int64_t>(ld.cols); ++j)
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(ld.rows); ++i) {
      W sum = 0;
      for (std::int64_t p = 0; p < k; ++p)
        sum += static_cast<W>(o.a == CUBLAS_OP_N ? a[i + p * la.ld] : a[p + i * la.ld]) *
               static_cast<W>(o.b == CUBLAS_OP_N ? b[p + j * lb.ld] : b[j + p * lb.ld]);
      sum *= alpha;
      if (beta != 0) sum += beta * static_cast<W>(c[i + j * ld.ld]);
      if (o.epilogue == CUBLASLT_EPILOGUE_BIAS)
        sum += static_cast<W>(static_cast<const T*>(o.bias)[i]);
      if (o.epilogue == CUBLASLT_EPILOGUE_DGELU)
        sum *= gelu_derivative(static_cast<W>(static_cast<const C*>(o.aux)[i + j * o.aux_ld]));
      d[i + j * ld.ld] = static_cast<C>(sum);
    }
}

// Extents that belong together, in types that go together.
bool fits(const FakeOperation& o, const FakeLayout& a, const FakeLayout& b, const FakeLayout& c) {
  const auto m = o.a == CUBLAS_OP_N ? a.rows : a.cols, k = o.a == CUBLAS_OP_N ? a.cols : a.rows;
  const auto inner = o.b == CUBLAS_OP_N ? b.rows : b.cols, n = o.b == CUBLAS_OP_N ? b.cols : b.rows;
  const bool whole = a.ld >= static_cast<std::int64_t>(a.rows) &&
                     b.ld >= static_cast<std::int64_t>(b.rows) &&
                     c.ld >= static_cast<std::int64_t>(c.rows);
  const bool is_double = a.type == CUDA_R_64F;
  const bool types = a.type == b.type && (c.type == a.type || c.type == CUDA_R_32F) &&
                     (o.scale == CUDA_R_64F) == is_double &&
                     (o.compute == CUBLAS_COMPUTE_64F) == is_double &&
                     (o.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || a.type == CUDA_R_32F);
  const auto able = [&] {
    if (o.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
    if (is_double || (o.of_gradient() && runtime.epilogue_cost == 0)) return false;
    if (o.epilogue == CUBLASLT_EPILOGUE_BIAS)
      return runtime.bias_epilogue && o.bias && o.bias_type == a.type && c.type == a.type;
    return o.aux && reinterpret_cast<std::uintptr_t>(o.aux) % 16 == 0 && o.aux_ld % 8 == 0 &&
           o.aux_ld >= static_cast<std::int64_t>(c.rows) && c.type == a.type;
  };
  const bool epilogue = able();
  return m == c.rows && n == c.cols && k == inner && k > 0 && whole && types && epilogue;
}

}  // namespace

const char* cublasLtGetStatusName(cublasStatus_t) { return "status"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "of the stand-in"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t*) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* o, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *o = new FakeOperation{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t o) {
  delete o;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t o,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* from, std::size_t bytes) {
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(o->a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(o->b, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(o->epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(o->bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(o->aux, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(o->aux_ld, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return assign(o->bias_type, from, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  *l = new FakeLayout{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = new FakePreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void*, std::size_t bytes) {
  return bytes == (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8u : 4u)
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t o,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (!fits(*o, *a, *b, *c)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const std::size_t proposed =
      runtime.cost.size() - (o->epilogue == CUBLASLT_EPILOGUE_BIAS ? runtime.unproposed : 0);
  for (std::size_t i = 0; i < proposed && *found < wanted; ++i)
    results[(*found)++] = {{{i, 7}}, 1024, CUBLAS_STATUS_SUCCESS, 1, {}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t o,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  *result = {*algorithm, 1024, CUBLAS_STATUS_SUCCESS, 1, {}};
  return fits(*o, *a, *b, *c) && algorithm->data[1] == 7 ? CUBLAS_STATUS_SUCCESS
                                                         : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t o, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t la, const void* b,
                              cublasLtMatrixLayout_t lb, const void* beta, const void* c,
                              cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t bytes, cudaStream_t stream) {
  if (!fits(*o, *la, *lb, *lc) || !fits(*o, *la, *lb, *ld)) return CUBLAS_STATUS_INVALID_VALUE;
  const std::uint64_t which = algorithm->data[0];
  if (which >= runtime.cost.size() || runtime.cost[which] == 0 || !workspace || bytes < 1024)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  runtime.clock += runtime.cost[which] * (o->of_gradient() ? runtime.epilogue_cost : 1);
  runtime.algorithms.push_back(which);
  runtime.gradient_epilogues += o->of_gradient();
  const auto k = static_cast<std::int64_t>(o->a == CUBLAS_OP_N ? la->cols : la->rows);
  runtime.product_flops +=
      2.0 * static_cast<double>(ld->rows) * static_cast<double>(ld->cols) * static_cast<double>(k);
  typed(la->type, [&]<class T>(T) {
    using W = tfm::Accum<T>;
    auto run = [&]<class C>(C) {
      tfm::emulator::submit(
          stream, [operation = *o, x = *static_cast<const W*>(alpha),
                   y = *static_cast<const W*>(beta), la = *la, lb = *lb, ld = *ld, a, b, c, d, k] {
            multiply(operation, x, static_cast<const T*>(a), la, static_cast<const T*>(b), lb, y,
                     static_cast<const C*>(c), static_cast<C*>(d), ld, k);
          });
    };
    ld->type == la->type ? run(T{}) : run(W{});
  });
  return CUBLAS_STATUS_SUCCESS;
}
