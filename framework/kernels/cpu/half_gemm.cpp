#include "kernels/cpu/half_gemm.h"

#include <compare>
#include <cstdlib>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>

#include "kernels/cpu/amx_gemm.h"
#include "kernels/cpu/dot_gemm.h"
#include "kernels/cpu/float_gemm.h"
#include "kernels/cpu/onednn_isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

constexpr std::int64_t kBlock = 1024;
// Terms of the floats that a product by conversion keeps: up to 16 MiB of each factor.
constexpr std::int64_t kDepth = 4096;
// Columns of one primitive: some implementations allocate C in float.
constexpr std::int64_t kPanel = 4096;
constexpr std::size_t kCachedProducts = 256;  // of 0.1 MB each
// Elements of C from which on B is packed first, in the layout that oneDNN asks for. Below, packing
// costs more than the 3 to 8 % (output layer's weights: 27 %) that it saves on a Zen 4.
constexpr std::int64_t kPackedFrom = 3 << 19;

// Cache key of a primitive, which divides its work among the threads it was created for.
struct Key {
  dnnl::memory::data_type type, c_type;
  bool transpose_a, transpose_b, bias;
  std::int64_t m, n, k, lda, ldb, ldc;
  float alpha, beta;
  int threads;
  auto operator<=>(const Key&) const = default;
};

struct Product {
  dnnl::memory::desc a, b, bias, c, scratch;
  dnnl::matmul primitive;  // empty: oneDNN has only its reference implementation
  dnnl::memory::desc packed_b;
  dnnl::reorder pack;  // from b to packed_b; empty: the primitive takes b
};

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::primitive_attr attributes(const Key& key) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops after;
  if (key.alpha != 1)
#if DNNL_VERSION_MAJOR >= 3
    after.append_eltwise(dnnl::algorithm::eltwise_linear, key.alpha, 0.0f);
#else
    after.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, key.alpha, 0.0f);
#endif
  if (key.beta != 0) after.append_sum(key.beta);
  attr.set_post_ops(after);
  return attr;
}

dnnl::matmul::primitive_desc describe(const Product& p, const dnnl::memory::desc& b,
                                      const Key& key) {
  const dnnl::primitive_attr attr = attributes(key);
  constexpr bool or_empty = true;
#if DNNL_VERSION_MAJOR >= 3
  return key.bias ? dnnl::matmul::primitive_desc(engine(), p.a, b, p.bias, p.c, attr, or_empty)
                  : dnnl::matmul::primitive_desc(engine(), p.a, b, p.c, attr, or_empty);
#else
  return {key.bias ? dnnl::matmul::desc(p.a, b, p.bias, p.c) : dnnl::matmul::desc(p.a, b, p.c),
          attr, engine(), or_empty};
#endif
}

bool of_reference(const dnnl::matmul::primitive_desc& made) {
  return !made || std::string_view(made.impl_info_str()).starts_with("ref");
}

Product create(const Key& key) {
  using Dims = dnnl::memory::dims;
  const auto matrix = [](std::int64_t rows, std::int64_t cols, dnnl::memory::data_type type,
                         bool transposed, std::int64_t ld) {
    return dnnl::memory::desc({rows, cols}, type, transposed ? Dims{1, ld} : Dims{ld, 1});
  };
  Product p{.a = matrix(key.m, key.k, key.type, key.transpose_a, key.lda),
            .b = matrix(key.k, key.n, key.type, key.transpose_b, key.ldb),
            .bias = matrix(1, key.n, key.type, false, key.n),
            .c = matrix(key.m, key.n, key.c_type, false, key.ldc)};
  dnnl::matmul::primitive_desc made = describe(p, p.b, key);
  if (of_reference(made)) return p;
  if (key.m * key.n >= kPackedFrom) {
    const dnnl::memory::desc any({key.k, key.n}, key.type, dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc packed = describe(p, any, key);
    if (!of_reference(packed) && packed.weights_desc() != p.b) {
      made = packed;
      p.packed_b = made.weights_desc();
      p.pack = dnnl::reorder(dnnl::reorder::primitive_desc(engine(), p.b, engine(), p.packed_b));
    }
  }
  p.scratch = made.scratchpad_desc();
  p.primitive = dnnl::matmul(made);
  return p;
}

// Creating a primitive takes 0.1 to 0.5 ms. oneDNN's own cache would keep up to 1024 more.
std::shared_ptr<const Product> cached(const Key& key) {
  static std::mutex mutex;
  static std::map<Key, std::shared_ptr<const Product>> products;
  const std::lock_guard lock(mutex);
  if (const auto it = products.find(key); it != products.end()) return it->second;
  if (products.empty()) dnnl::set_primitive_cache_capacity(0);
  if (products.size() >= kCachedProducts) products.clear();
  return products[key] = std::make_shared<const Product>(create(key));
}

template <class T>
constexpr dnnl::memory::data_type type_of = std::is_same_v<T, bf16>  ? dnnl::memory::data_type::bf16
                                            : std::is_same_v<T, f16> ? dnnl::memory::data_type::f16
                                                                     : dnnl::memory::data_type::f32;

std::int64_t bytes_of(const dnnl::memory::desc& desc) {
  return static_cast<std::int64_t>(desc.get_size());
}

// False: oneDNN has only its reference implementation.
template <class T, class C>
bool library_product(const GemmArgs<T, C>& g, int threads) {
  if (g.bias && g.alpha != 1) return false;  // alpha would scale the bias, too
  // oneDNN 3.7 steps by 1 from row to row of such a C, and from column to column of such an op(A).
  if ((g.n == 1 && g.ldc > 1) || (g.m == 1 && g.transpose_a && g.lda > 1)) return false;
  const TeamSize team(threads);
  const Key key{type_of<T>, type_of<C>, g.transpose_a, g.transpose_b, g.bias != nullptr,
                g.m,        g.n,        g.k,           g.lda,         g.ldb,
                g.ldc,      g.alpha,    g.beta,        threads};
  const std::shared_ptr<const Product> p = cached(key);
  if (!p->primitive) return false;
  const auto operand = [](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, engine(), const_cast<void*>(data));
  };
  thread_local dnnl::stream stream(engine());
  dnnl::memory b = operand(p->b, g.b);
  if (p->pack) {
    dnnl::memory packed(p->packed_b, engine(),
                        scratch<std::byte, struct Packed>(bytes_of(p->packed_b)));
    p->pack.execute(stream, b, packed);
    b = packed;
  }
  std::unordered_map<int, dnnl::memory> args{
      {DNNL_ARG_SRC, operand(p->a, g.a)},
      {DNNL_ARG_WEIGHTS, b},
      {DNNL_ARG_DST, operand(p->c, g.c)},
      {DNNL_ARG_SCRATCHPAD,
       operand(p->scratch, scratch<std::byte, struct Scratchpad>(bytes_of(p->scratch) + 1))}};
  if (g.bias) args.emplace(DNNL_ARG_BIAS, operand(p->bias, g.bias));
  p->primitive.execute(stream, args);
  stream.wait();
  return true;
}

template <class From, class To>
void convert_rows(cpu::Stream& stream, const From* from, std::int64_t from_stride, To* to,
                  std::int64_t to_stride, std::int64_t rows, std::int64_t cols) {
  parallel(stream, rows, rows * cols,
           [&](std::int64_t r) { convert_row(from + r * from_stride, to + r * to_stride, cols); });
}

// Intel processors with AVX512-FP16 multiply bf16 by AVX512-BF16 at half their rate in fp32. They
// have AMX, too, but a hypervisor may hide it.
bool has_slow_dots() {
#ifdef __x86_64__
  const bool asked_for = std::getenv("ONEDNN_MAX_CPU_ISA") || std::getenv("DNNL_MAX_CPU_ISA");
  return !asked_for && __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512fp16");
#else
  return false;
#endif
}

template <class T, class C>
void converting(cpu::Stream& stream, const GemmArgs<T, C>& g) {
  has_float_gemm() ? float_gemm(stream, g) : half_gemm_by_conversion(stream, g);
}

}  // namespace

template <class T>
bool multiplies_natively() {
  static const bool native = [] {
    if constexpr (std::is_same_v<T, bf16>)
      return onednn_has(dnnl::cpu_isa::avx512_core_bf16) && (has_amx() || !has_slow_dots());
#if DNNL_VERSION_MAJOR >= 3
    return onednn_has(dnnl::cpu_isa::avx512_core_fp16);
#else
    return false;
#endif
  }();
  return native;
}

template <class T, class C>
void half_gemm(cpu::Stream& stream, const GemmArgs<T, C>& g) {
  const bool native = multiplies_natively<T>();
  if (row_gemm_takes(g, native ? kFewHalfRows : kFewRows)) return row_gemm(stream, g);
  if (!native) return converting(stream, g);
  if constexpr (std::is_same_v<T, bf16>) {
    if (has_amx()) return amx_gemm(stream, g);
    if (dot_gemm_takes(g)) return dot_gemm(stream, g);
  }
  cpu::Stream here{usable_threads(stream)};
  for (std::int64_t column = 0; column < g.n; column += kPanel) {
    GemmArgs<T, C> panel = g;
    panel.n = std::min(kPanel, g.n - column);
    panel.b += g.transpose_b ? column * g.ldb : column;
    panel.c += column;
    if (g.bias) panel.bias += column;
    if (!library_product(panel, here.threads)) converting(here, panel);
  }
}

// Blocks of C, their rows of op(A) and columns of op(B) as floats.
template <class T, class C>
void half_gemm_by_conversion(cpu::Stream& stream, const GemmArgs<T, C>& g) {
  cpu::Stream here{usable_threads(stream)};
  const std::int64_t most_m = std::min(g.m, kBlock), most_n = std::min(g.n, kBlock),
                     most_k = std::min(g.k, kDepth);
  float *a = scratch<float, struct BlockA>(most_m * most_k),
        *b = scratch<float, struct BlockB>(most_n * most_k),
        *c = scratch<float, struct BlockC>(most_m * most_n);
  const auto multiply = [&](std::int64_t row, std::int64_t m, std::int64_t col, std::int64_t n,
                            float* out, std::int64_t ldc) {
    for (std::int64_t term = 0; term < g.k; term += kDepth) {
      const std::int64_t k = std::min(kDepth, g.k - term);
      const auto stored = [&](const T* x, std::int64_t ld, bool along_k, std::int64_t first,
                              std::int64_t count, float* to) {
        along_k ? convert_rows(here, x + first * ld + term, ld, to, k, count, k)
                : convert_rows(here, x + term * ld + first, ld, to, count, k, count);
      };
      if (col == 0 || g.k > kDepth) stored(g.a, g.lda, !g.transpose_a, row, m, a);
      stored(g.b, g.ldb, g.transpose_b, col, n, b);
      gemm(here, GemmArgs<float>{.transpose_a = g.transpose_a,
                                 .transpose_b = g.transpose_b,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .alpha = g.alpha,
                                 .a = a,
                                 .lda = g.transpose_a ? m : k,
                                 .b = b,
                                 .ldb = g.transpose_b ? k : n,
                                 .beta = term == 0 ? g.beta : 1,
                                 .c = out,
                                 .ldc = ldc});
    }
  };
  for (std::int64_t row = 0; row < g.m; row += kBlock) {
    const std::int64_t m = std::min(kBlock, g.m - row);
    for (std::int64_t col = 0; col < g.n; col += kBlock) {
      const std::int64_t n = std::min(kBlock, g.n - col);
      C* out = g.c + row * g.ldc + col;
      if constexpr (std::is_same_v<C, float>) {
        multiply(row, m, col, n, out, g.ldc);
      } else {
        if (g.beta != 0) convert_rows(here, out, g.ldc, c, n, m, n);
        multiply(row, m, col, n, c, n);
        parallel(here, m, m * n, [&](std::int64_t r) {
          each<float>(n, [&](std::int64_t i, auto lanes) TFM_INLINE {
            const Vec<float> v = load(c + r * n + i, lanes);
            store(out + r * g.ldc + i, g.bias ? v + load(g.bias + col + i, lanes) : v, lanes);
          });
        });
      }
    }
  }
}

#define TFM_INSTANTIATE(T, C)                                   \
  template void half_gemm(cpu::Stream&, const GemmArgs<T, C>&); \
  template void half_gemm_by_conversion(cpu::Stream&, const GemmArgs<T, C>&);
TFM_INSTANTIATE(bf16, bf16)
TFM_INSTANTIATE(bf16, float)
TFM_INSTANTIATE(f16, f16)
TFM_INSTANTIATE(f16, float)
template bool multiplies_natively<bf16>();
template bool multiplies_natively<f16>();

}  // namespace tfm::kernels
