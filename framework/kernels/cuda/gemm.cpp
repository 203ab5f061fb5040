// Matrix products: shapes for cuBLASLt (device/cuda/blas.h), and cases that it does not support.
#include "kernels/gemm.h"

#include <string>
#include <type_traits>

#include "device/cuda/blas.h"
#include "device/cuda/measure.h"
#include "device/cuda/scratch.h"
#include "kernels/elementwise.h"

namespace tfm::kernels {
namespace {

template <class T>
constexpr cudaDataType_t kType = std::is_same_v<T, double>  ? CUDA_R_64F
                                 : std::is_same_v<T, float> ? CUDA_R_32F
                                 : std::is_same_v<T, bf16>  ? CUDA_R_16BF
                                                            : CUDA_R_16F;

// Bytes, at most 16, that both the start and the length of a row are multiples of.
template <class T>
std::int32_t alignment(const T* p, std::int64_t ld) {
  const std::uintptr_t bits =
      reinterpret_cast<std::uintptr_t>(p) | static_cast<std::uintptr_t>(ld) * sizeof(T) | 16;
  return static_cast<std::int32_t>(bits & -bits);
}

template <class T, class C>
cuda::Product product_of(const GemmArgs<T, C>& g, cuda::Epilogue epilogue) {
  return {.m = g.m,
          .n = g.n,
          .k = g.k,
          .lda = g.lda,
          .ldb = g.ldb,
          .ldc = g.ldc,
          .factors = kType<T>,
          .product = kType<C>,
          .transpose_a = g.transpose_a,
          .transpose_b = g.transpose_b,
          .reads_c = g.beta != 0,
          .epilogue = epilogue,
          .align_a = alignment(g.a, g.lda),
          .align_b = alignment(g.b, g.ldb),
          .align_c = alignment(g.c, g.ldc)};
}

// Of a product of 16-bit factors in which a matrix has rows of, say, 50,257 elements, cuBLASLt only
// has kernels of a fraction of the others' speed, even if each row starts on 16 bytes. It goes in
// two: what is beyond whole vectors of 16 bytes, and the rest. False: it goes in one.
template <class T, class C>
bool in_two(cuda::Stream& stream, const GemmArgs<T, C>& g) {
  constexpr std::int64_t kVector = 8, kLeast = 512;  // elements; for which two launches pay
  const auto cut = [&](std::int64_t n, std::int64_t row) {
    return n >= kLeast && n % kVector != 0 && row % kVector == 0;
  };
  if (sizeof(T) > 2) return false;
  GemmArgs<T, C> main = g, rest = g;
  if (cut(g.n, g.ldc) && (g.transpose_b || cut(g.n, g.ldb))) {
    main.n -= rest.n = g.n % kVector;
    rest.b += g.transpose_b ? main.n * g.ldb : main.n;
    rest.c += main.n;
    if (g.bias) rest.bias += main.n;
  } else if (g.transpose_a && cut(g.m, g.lda)) {
    main.m -= rest.m = g.m % kVector;
    rest.a += main.m;
    rest.c += main.m * g.ldc;
  } else if (!g.bias && (g.transpose_a || cut(g.k, g.lda)) && (!g.transpose_b || cut(g.k, g.ldb)) &&
             !(g.transpose_a && !g.transpose_b)) {
    main.k -= rest.k = g.k % kVector;
    rest.a += g.transpose_a ? main.k * g.lda : main.k;
    rest.b += g.transpose_b ? main.k : main.k * g.ldb;
    main.beta = 1;
  } else {
    return false;
  }
  gemm(stream, rest);  // the small one first: it is rounded before the other is added
  gemm(stream, main);
  return true;
}

// k = 0: an empty sum.
template <class T>
void scale_rows(cuda::Stream& stream, const GemmArgs<T>& g) {
  for (std::int64_t r = 0; r < g.m; ++r) {
    T* c = g.c + r * g.ldc;
    if (g.beta == T{0})
      fill(stream, FillArgs<T>{g.n, T{0}, c});
    else
      copy(stream, CopyArgs<T>{g.n, c, c, false, g.beta});
  }
}

}  // namespace

template <class T, class C>
void gemm(cuda::Stream& stream, const GemmArgs<T, C>& g) {
  if (g.m <= 0 || g.n <= 0) return;
  TFM_CHECK(!g.bias || g.beta == Accum<T>{0}, "a bias needs beta 0");
  TFM_CHECK(sizeof(T) > 2 || (g.k > 0 && (!g.bias || sizeof(C) == 2)),
            "16-bit factors need terms, and a bias a 16-bit product");
  if (in_two(stream, g)) return;
  // cuBLASLt lacks it for doubles, and for some shapes.
  const bool epilogue = g.bias && !std::is_same_v<T, double> && g.k > 0;
  auto& blas = stream.own<cuda::Blas>();
  if (epilogue && blas.run_if_able(product_of(g, cuda::Epilogue::bias), &g.alpha, g.a, g.b, &g.beta,
                                   g.c, g.bias))
    return;
  if (g.k > 0)
    blas.run(product_of(g, cuda::Epilogue::none), &g.alpha, g.a, g.b, &g.beta, g.c, nullptr);
  else if constexpr (std::is_same_v<T, C>)
    scale_rows(stream, g);
  if constexpr (std::is_same_v<T, C>)
    if (g.bias)
      for (std::int64_t r = 0, rows = g.ldc == g.n ? g.m : 1; r < g.m; r += rows)
        add_bias(stream, AddBiasArgs<T>{rows, g.n, g.bias, g.c + r * g.ldc});
}

namespace {

struct Epilogues {
  explicit Epilogues(cuda::Stream& stream)
      : choices(stream, "epilogues-cublaslt-" + std::to_string(cublasLtGetVersion())) {}
  cuda::Choices choices;
};

// `apart`: the product, then the activation's gradient from the stored product; `together`: the
// gradient in an epilogue, from the product before rounding. False: not supported by cuBLASLt.
template <class T>
bool apart(cuda::Stream& stream, const GemmActivationBackwardArgs<T>& a) {
  gemm(stream, a.product);
  activation_backward(stream, a.activation);
  return true;
}
template <class T>
bool together(cuda::Stream& stream, const GemmActivationBackwardArgs<T>& a) {
  GemmArgs<T> g = a.product;
  g.c = a.activation.dx;
  return stream.own<cuda::Blas>().run_if_able(product_of(g, cuda::Epilogue::gelu_gradient),
                                              &g.alpha, g.a, g.b, &g.beta, g.c, a.activation.x);
}

}  // namespace

// Not by cuBLASLt's epilogue for sums: on an H200, for 65,536 rows and layers of 768 to 4,096, it
// made products 50 to 220 microseconds longer, while the sums alone take 29 to 131.
template <class T>
void linear_gradients(cuda::Stream& stream, const LinearGradientsArgs<T>& a) {
  gemm(stream, a.product());
  if (a.db) column_sum(stream, ColumnSumArgs<T>{a.rows, a.out, a.out, a.dy, a.db, a.accumulate_db});
}

template <class T>
void gemm_activation_backward(cuda::Stream& stream, const GemmActivationBackwardArgs<T>& a) {
  const GemmArgs<T>& g = a.product;
  TFM_CHECK(g.c == a.activation.dy && g.beta == Accum<T>{0},
            "the product is the activation's gradient");
  TFM_CHECK(
      g.m == a.activation.rows && g.n == a.activation.cols && g.ldc == g.n && !a.activation.gated,
      "the matrices lie alike");
  const bool able = sizeof(T) == 2 && a.activation.kind == Activation::gelu_tanh &&
                    !a.activation.accumulate && g.m > 0 && g.n > 0 && g.k > 0 &&
                    alignment(a.activation.x, g.ldc) == 16 &&
                    alignment(a.activation.dx, g.ldc) == 16;
  const auto key = [&] {
    std::string text = "gelu";
    for (const std::int64_t field :
         {std::int64_t{g.transpose_a}, std::int64_t{g.transpose_b}, g.m, g.n, g.k, g.lda, g.ldb,
          std::int64_t{kType<T>}, std::int64_t{alignment(g.a, g.lda)},
          std::int64_t{alignment(g.b, g.ldb)}})
      text += " " + std::to_string(field);
    return text;
  };
  if (able &&
      stream.own<Epilogues>().choices.fastest(
          key(), {[&] { return apart(stream, a); }, [&] { return together(stream, a); }}) == 1 &&
      together(stream, a))
    return;
  apart(stream, a);
}

#define TFM_INSTANTIATE(T) \
  template void gemm_activation_backward(cuda::Stream&, const GemmActivationBackwardArgs<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)
TFM_INSTANTIATE(bf16)
TFM_INSTANTIATE(f16)
template void linear_gradients(cuda::Stream&, const LinearGradientsArgs<float>&);
template void linear_gradients(cuda::Stream&, const LinearGradientsArgs<double>&);
template void linear_gradients(cuda::Stream&, const LinearGradientsArgs<bf16>&);
template void linear_gradients(cuda::Stream&, const LinearGradientsArgs<f16>&);
template void gemm(cuda::Stream&, const GemmArgs<float>&);
template void gemm(cuda::Stream&, const GemmArgs<double>&);
template void gemm(cuda::Stream&, const GemmArgs<bf16>&);
template void gemm(cuda::Stream&, const GemmArgs<f16>&);
template void gemm(cuda::Stream&, const GemmArgs<bf16, float>&);
template void gemm(cuda::Stream&, const GemmArgs<f16, float>&);

}  // namespace tfm::kernels
