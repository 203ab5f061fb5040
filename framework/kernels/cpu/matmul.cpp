#include "kernels/cpu/matmul.h"

#include <compare>
#include <cstddef>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "kernels/cpu/parallel.h"

namespace tfm::kernels {
namespace {

constexpr std::size_t kCachedProducts = 256;  // of 0.1 MB each
// Bytes of scratch memory of a product. Implementations that divide the terms of a tall C among
// many threads take one C for each.
constexpr std::int64_t kMostScratch = 32 << 20;
// Elements of C from which on B of 16 bits is packed first, in the layout that oneDNN asks for.
// Below, packing costs more than the 3 to 8 % (output layer's weights: 27 %) that it saves on a
// Zen 4.
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
  dnnl::matmul primitive;  // empty: none is of use
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
  attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
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

std::int64_t bytes_of(const dnnl::memory::desc& desc) {
  return static_cast<std::int64_t>(desc.get_size());
}

bool of_use(const dnnl::matmul::primitive_desc& made) {
  return made && !std::string_view(made.impl_info_str()).starts_with("ref") &&
         bytes_of(made.scratchpad_desc()) <= kMostScratch;
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
  if (!of_use(made)) return p;
  if (key.type != dnnl::memory::data_type::f32 && key.m * key.n >= kPackedFrom) {
    const dnnl::memory::desc any({key.k, key.n}, key.type, dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc packed = describe(p, any, key);
    if (of_use(packed) && packed.weights_desc() != p.b) {
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

}  // namespace

template <class T, class C>
bool matmul(const GemmArgs<T, C>& g, int threads) {
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

#define TFM_INSTANTIATE(T, C) template bool matmul(const GemmArgs<T, C>&, int);
TFM_INSTANTIATE(float, float)
TFM_INSTANTIATE(bf16, bf16)
TFM_INSTANTIATE(bf16, float)
TFM_INSTANTIATE(f16, f16)
TFM_INSTANTIATE(f16, float)

}  // namespace tfm::kernels
