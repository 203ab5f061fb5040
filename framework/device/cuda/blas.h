#pragma once
// Matrix products by cuBLASLt. The algorithm of a shape is the fastest of those that its heuristics
// propose, measured at the first product of that shape and kept in a file for the next run; while a
// graph is captured, or where there is no memory to measure or the choice cannot be kept for other
// ranks, it is the first proposal.
#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "device/cuda/algorithm_file.h"

namespace tfm::cuda {

class Stream;

// What is done besides, with one more operand, `extra`. bias: n elements of the factors' type,
// added to every row. bias_gradient: m elements of the product's type, the sums of op(A)'s rows,
// which are written (CUBLASLT_EPILOGUE_BGRADB of the transposed product). gelu_gradient: a matrix
// that lies as C does; the product is multiplied with the derivative of GELU (by tanh) there. Its
// start and rows are multiples of 16 bytes.
enum class Epilogue { none, bias, bias_gradient, gelu_gradient };

// D (m,n) = alpha op(A) op(B) + beta C, row-major; all that an algorithm depends on.
struct Product {
  std::int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  cudaDataType_t factors = CUDA_R_32F, product = CUDA_R_32F;
  bool transpose_a = false, transpose_b = false;
  bool reads_c = false;  // beta is not 0
  Epilogue epilogue = Epilogue::none;
  std::int32_t align_a = 16, align_b = 16, align_c = 16;  // bytes, at most 16
  auto operator<=>(const Product&) const = default;
};

class Blas {
 public:
  // The file is named by the device and cuBLAS's version within `folder`; an empty folder: no file.
  explicit Blas(Stream& stream, const std::filesystem::path& folder = cache_folder());
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // alpha and beta: float, or double where the product is. C may not overlap A or B.
  void run(const Product& p, const void* alpha, const void* a, const void* b, const void* beta,
           void* c, const void* extra);
  // The same; false where cuBLASLt has no algorithm for it.
  bool run_if_able(const Product& p, const void* alpha, const void* a, const void* b,
                   const void* beta, void* c, const void* extra);

 private:
  struct Plan;
  struct Operands {
    const void *alpha, *a, *b, *beta, *c, *extra;
    void* d;
  };
  Plan& plan_of(const Product& p, const Operands& o);
  void choose(const Product& p, Plan& plan, Operands o);
  bool adopt(Plan& plan, const Algorithm& known);  // unless cuBLASLt refuses it
  cublasStatus_t attempt(const Product& p, const Operands& o);
  cublasStatus_t start(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Operands& o);

  Stream& stream_;
  cublasComputeType_t float_compute_;
  cublasLtHandle_t handle_ = nullptr;
  std::shared_ptr<std::byte> workspace_;
  AlgorithmFile file_;
  std::map<Product, std::unique_ptr<Plan>> plans_;
};

}  // namespace tfm::cuda
