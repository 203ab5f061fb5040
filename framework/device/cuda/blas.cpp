#include "device/cuda/blas.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <optional>
#include <vector>

#include "core/error.h"
#include "device/cuda/measure.h"
#include "device/cuda/scratch.h"
#include "device/memory.h"

namespace tfm::cuda {
namespace {

// With 32 MiB, products of 2,304 columns ran up to 10 % slower on an H200.
constexpr std::int64_t kWorkspace = std::int64_t{64} << 20;
// The heuristics' first proposals are mostly, not always the fastest.
constexpr int kCandidates = 32;

void check(cublasStatus_t status, std::source_location at = std::source_location::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string what = std::string(at.file_name()) + ":" + std::to_string(at.line()) +
                           ": cuBLASLt reports " + cublasLtGetStatusName(status) + ": " +
                           cublasLtGetStatusString(status);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) fail_for_memory(what);
  throw Error(ExitCode::environment, what);
}

// Sets one attribute of a description or preference.
template <class Setter, class Object, class Attribute, class V>
void set(Setter setter, Object object, Attribute attribute, V value) {
  check(setter(object, attribute, &value, sizeof value));
}

cublasLtEpilogue_t name_of(Epilogue e) {
  return e == Epilogue::bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DGELU;
}

std::string key_of(const Product& p, bool tf32) {
  std::string key;
  for (const std::int64_t field :
       {p.m, p.n, p.k, p.lda, p.ldb, p.ldc, std::int64_t{p.factors}, std::int64_t{p.product},
        std::int64_t{p.transpose_a}, std::int64_t{p.transpose_b}, std::int64_t{p.reads_c},
        static_cast<std::int64_t>(p.epilogue), std::int64_t{p.align_a}, std::int64_t{p.align_b},
        std::int64_t{p.align_c}, std::int64_t{tf32}})
    key += (key.empty() ? "" : " ") + std::to_string(field);
  return key;
}

}  // namespace

// cuBLASLt is column-major: a row-major matrix is the transpose of what it sees, so the product is
// D^T = op(B)^T op(A)^T.
struct Blas::Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool chosen = false;  // final
  cublasStatus_t refused = CUBLAS_STATUS_SUCCESS;

  Plan(const Product& p, cublasComputeType_t float_compute) {
    const bool is_double = p.factors == CUDA_R_64F;
    const bool is_float = p.factors == CUDA_R_32F;
    check(cublasLtMatmulDescCreate(&operation,
                                   is_double  ? CUBLAS_COMPUTE_64F
                                   : is_float ? float_compute
                                              : CUBLAS_COMPUTE_32F,
                                   is_double ? CUDA_R_64F : CUDA_R_32F));
    set(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_TRANSA,
        p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_TRANSB,
        p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.epilogue != Epilogue::none)
      set(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
          name_of(p.epilogue));
    if (p.epilogue == Epilogue::gelu_gradient)
      set(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.ldc);
    else if (p.epilogue != Epilogue::none)
      set(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
          p.factors);
    auto layout = [](cublasLtMatrixLayout_t& to, cudaDataType_t type, std::int64_t rows,
                     std::int64_t cols, bool transposed, std::int64_t ld) {
      if (transposed) std::swap(rows, cols);
      check(cublasLtMatrixLayoutCreate(&to, type, static_cast<std::uint64_t>(cols),
                                       static_cast<std::uint64_t>(rows), ld));
    };
    layout(a, p.factors, p.m, p.k, p.transpose_a, p.lda);
    layout(b, p.factors, p.k, p.n, p.transpose_b, p.ldb);
    layout(c, p.product, p.m, p.n, false, p.ldc);
  }
  ~Plan() {
    for (auto l : {a, b, c}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulDescDestroy(operation);
  }
};

Blas::Blas(Stream& stream, const std::filesystem::path& folder)
    : stream_(stream),
      float_compute_(stream.numerics().tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F),
      workspace_(device::allocate(stream, kWorkspace)),
      file_(algorithm_path(folder, "products-cublaslt-" + std::to_string(cublasLtGetVersion()),
                           stream.device())) {
  check(cublasLtCreate(&handle_));
}
Blas::~Blas() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

cublasStatus_t Blas::start(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                           const Operands& o) {
  return cublasLtMatmul(handle_, plan.operation, o.alpha, o.b, plan.b, o.a, plan.a, o.beta, o.c,
                        plan.c, o.d, plan.c, &algorithm, workspace_.get(), kWorkspace,
                        stream_.get());
}

bool Blas::accepts(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result;
  return cublasLtMatmulAlgoCheck(handle_, plan.operation, plan.b, plan.a, plan.c, plan.c,
                                 &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<std::size_t>(kWorkspace);
}

bool Blas::adopt(Plan& plan, const Algorithm& known) {
  const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(known);
  if (!accepts(plan, algorithm)) return false;
  plan.algorithm = algorithm;
  return plan.chosen = true;
}

std::vector<cublasLtMatmulAlgo_t> Blas::proposals(const Product& p, Plan& plan) {
  cublasLtMatmulPreference_t preference;
  check(cublasLtMatmulPreferenceCreate(&preference));
  set(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(kWorkspace));
  set(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
      static_cast<std::uint32_t>(p.align_b));
  set(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      static_cast<std::uint32_t>(p.align_a));
  set(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      static_cast<std::uint32_t>(p.align_c));
  set(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
      static_cast<std::uint32_t>(p.align_c));
  // Split-K never keeps partial sums in 16 bits. Sums in place are made one after the other.
  const bool halves = p.product == CUDA_R_16BF || p.product == CUDA_R_16F;
  set(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(halves || stream_.numerics().deterministic
                                     ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                     : CUBLASLT_REDUCTION_SCHEME_MASK));
  cublasLtMatmulHeuristicResult_t results[kCandidates];
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.b, plan.a, plan.c, plan.c,
                                     preference, kCandidates, results, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  std::vector<cublasLtMatmulAlgo_t> all;
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < found; ++i)
    if (results[i].state == CUBLAS_STATUS_SUCCESS) all.push_back(results[i].algo);
  if (all.empty())
    plan.refused = status != CUBLAS_STATUS_SUCCESS ? status : CUBLAS_STATUS_NOT_SUPPORTED;
  return all;
}

void Blas::choose(const Product& p, Plan& plan, Operands o) {
  const std::string key = key_of(p, float_compute_ == CUBLAS_COMPUTE_32F_FAST_TF32);
  const bool measured = !stream_.numerics().deterministic;
  const auto adopts = [&](const Algorithm& known) { return adopt(plan, known); };
  if (measured && file_.find(key, adopts)) return;
  std::vector<cublasLtMatmulAlgo_t> candidates = proposals(p, plan);
  plan.chosen = !measured || candidates.empty();
  if (candidates.empty()) return;
  plan.algorithm = candidates[0];
  if (stream_.capturing() || plan.chosen) return;
  if (p.epilogue == Epilogue::bias) {
    // With the algorithms proposed for it without a bias it takes up to 12 % less time (H200,
    // cuBLASLt 13.1).
    Product plain = p;
    plain.epilogue = Epilogue::none;
    Plan of_plain(plain, float_compute_);
    for (const cublasLtMatmulAlgo_t& algorithm : proposals(plain, of_plain)) {
      const auto same = [&](const cublasLtMatmulAlgo_t& other) {
        return std::bit_cast<Algorithm>(other) == std::bit_cast<Algorithm>(algorithm);
      };
      if (std::ranges::none_of(candidates, same) && accepts(plan, algorithm))
        candidates.push_back(algorithm);
    }
  }
  std::optional<Scratch<std::byte>> other;  // C must keep its content while it is an operand
  if (p.reads_c) try {
      o.d = other.emplace(stream_, p.m * p.ldc *
                                       (p.product == CUDA_R_64F   ? 8
                                        : p.product == CUDA_R_32F ? 4
                                                                  : 2));
    } catch (const device::OutOfMemory& e) {
      std::fprintf(stderr, "warning: algorithms are not timed, the default is used: %s\n",
                   e.what());
      plan.chosen = true;
      return;
    }
  const std::vector<float> times = milliseconds(stream_, candidates.size(), [&](std::size_t i) {
    return start(plan, candidates[i], o) == CUBLAS_STATUS_SUCCESS;
  });
  plan.algorithm =
      candidates[static_cast<std::size_t>(std::ranges::min_element(times) - times.begin())];
  plan.chosen = true;
  if (!file_.add(key, std::bit_cast<Algorithm>(plan.algorithm), adopts))
    plan.algorithm = candidates[0];  // the same proposal on all ranks
}

Blas::Plan& Blas::plan_of(const Product& p, const Operands& o) {
  auto& plan = plans_[p];
  if (!plan) plan = std::make_unique<Plan>(p, float_compute_);
  if (p.epilogue != Epilogue::none)
    set(cublasLtMatmulDescSetAttribute, plan->operation,
        p.epilogue == Epilogue::gelu_gradient ? CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER
                                              : CUBLASLT_MATMUL_DESC_BIAS_POINTER,
        o.extra);
  if (!plan->chosen) choose(p, *plan, o);
  return *plan;
}

void Blas::run(const Product& p, const void* alpha, const void* a, const void* b, const void* beta,
               void* c, const void* extra) {
  check(attempt(p, {alpha, a, b, beta, c, extra, c}));
}
bool Blas::run_if_able(const Product& p, const void* alpha, const void* a, const void* b,
                       const void* beta, void* c, const void* extra) {
  return attempt(p, {alpha, a, b, beta, c, extra, c}) == CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Blas::attempt(const Product& p, const Operands& o) {
  const Plan& plan = plan_of(p, o);
  return plan.refused != CUBLAS_STATUS_SUCCESS ? plan.refused : start(plan, plan.algorithm, o);
}

}  // namespace tfm::cuda
