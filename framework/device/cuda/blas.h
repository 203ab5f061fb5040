#pragma once
// Matrix products by cuBLASLt. The algorithm for a shape is the fastest of those that cuBLASLt's
// heuristics propose for it, with a bias also of those without. It is timed at the first product of
// that shape and kept in a file for other ranks and later runs. The first proposal is used instead
// with Numerics::deterministic, during graph capture, or if there is no memory for timing or the
// choice cannot be kept in the file.
#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "device/cuda/algorithm_file.h"

namespace tfm::cuda {

class Stream;

// Computation fused into a product, with one more operand, `extra`:
//   bias           n elements of the factors' type, which are added to every row;
//   gelu_gradient  the input of GELU (tanh), laid out as C: the product is multiplied by the
//                  derivative of GELU there. Its start and rows are multiples of 16 bytes.
enum class Epilogue { none, bias, gelu_gradient };

// Description of D (m,n) = alpha op(A) op(B) + beta C, row-major: all that the choice of an
// algorithm depends on. Leading dimensions are in elements.
struct Product {
  std::int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  cudaDataType_t factors = CUDA_R_32F, product = CUDA_R_32F;
  bool transpose_a = false, transpose_b = false;
  bool reads_c = false;  // beta != 0
  Epilogue epilogue = Epilogue::none;
  std::int32_t align_a = 16, align_b = 16, align_c = 16;  // alignment in bytes, at most 16
  auto operator<=>(const Product&) const = default;
};

class Blas {
 public:
  // Choices are kept in `folder`, in a file named after the cuBLASLt version and the device. With
  // an empty folder they are not kept.
  explicit Blas(Stream& stream, const std::filesystem::path& folder = cache_folder());
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // alpha and beta point to float, or to double if the product is double. C must not overlap A or
  // B.
  void run(const Product& p, const void* alpha, const void* a, const void* b, const void* beta,
           void* c, const void* extra);
  // The same, but returns false if cuBLASLt reports an error, such as that it has no algorithm.
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
  // By the heuristics, the best first. None: plan.refused says why.
  std::vector<cublasLtMatmulAlgo_t> proposals(const Product& p, Plan& plan);
  bool accepts(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm);
  bool adopt(Plan& plan, const Algorithm& known);  // false if cuBLASLt rejects it
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
