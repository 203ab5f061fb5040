#include "kernels/cuda/attention_cudnn_graph.h"

#include <limits>
#include <optional>

namespace tfm::kernels {
namespace {

namespace cudnn = cuda::cudnn;

template <class T>
constexpr cudnnDataType_t kType =
    dtype_of<T> == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;

// The tensors of attention in cuDNN's order of dimensions, (B, H, rows, columns).
template <class T>
class Attention {
 public:
  explicit Attention(const AttentionArgs<T>& a) : a_(a) {}

  cudnn::Graph graph;

  cudnn::Tensor rows(std::int64_t heads, std::int64_t length, std::int64_t stride) {
    return graph.operand(kType<T>, {a_.batch, heads, length, a_.head_size},
                         {length * stride, a_.head_size, stride, 1});
  }
  cudnn::Tensor transposed(std::int64_t heads, std::int64_t length, std::int64_t stride) {
    return graph.operand(kType<T>, {a_.batch, heads, a_.head_size, length},
                         {length * stride, a_.head_size, 1, stride});
  }
  cudnn::Tensor q_rows() { return rows(a_.heads, a_.queries, a_.q_stride); }
  cudnn::Tensor kv_rows() { return rows(a_.kv_heads, a_.keys, a_.kv_stride); }
  cudnn::Tensor kv_transposed() { return transposed(a_.kv_heads, a_.keys, a_.kv_stride); }
  cudnn::Tensor out_rows() { return rows(a_.heads, a_.queries, a_.out_stride); }
  cudnn::Tensor lse() {
    return graph.operand(CUDNN_DATA_FLOAT, per_query(), {a_.heads * a_.queries, a_.queries, 1, 1});
  }

  cudnn::Extents per_query() const { return {a_.batch, a_.heads, a_.queries, 1}; }
  cudnn::Tensor query_values() { return graph.result(CUDNN_DATA_FLOAT, per_query()); }
  cudnn::Tensor scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return graph.result(type, {a_.batch, a_.heads, a_.queries, a_.keys});
  }
  cudnn::Tensor pointwise(cudnnPointwiseMode_t mode, const cudnn::Tensor& x,
                          const cudnn::Tensor& y) {
    return graph.pointwise(mode, x, y, scores());
  }

  // Real queries and keys of each sequence, the last operands, where there is padding.
  void add_lengths() {
    if (!a_.k_segments) return;
    const auto per_sequence = [&] {
      return graph.operand(CUDNN_DATA_INT32, {a_.batch, 1, 1, 1}, {1, 1, 1, 1});
    };
    q_lengths_ = per_sequence(), kv_lengths_ = per_sequence();
  }
  const cudnn::Tensor* q_lengths() const { return q_lengths_ ? &*q_lengths_ : nullptr; }
  const cudnn::Tensor* kv_lengths() const { return kv_lengths_ ? &*kv_lengths_ : nullptr; }
  // -inf where either is none of them.
  cudnn::Tensor padded(const cudnn::Tensor& x) {
    if (!q_lengths_) return x;
    const auto below = [&](const cudnn::Tensor& index, const cudnn::Tensor& lengths) {
      return graph.pointwise(CUDNN_POINTWISE_CMP_LT, index, lengths, scores(CUDNN_DATA_BOOLEAN));
    };
    const cudnn::Tensor row = graph.index(x, 2), column = graph.index(x, 3);
    const cudnn::Tensor row_seen = below(row, *q_lengths_),
                        column_seen = below(column, *kv_lengths_);
    const cudnn::Tensor seen = graph.pointwise(CUDNN_POINTWISE_LOGICAL_AND, row_seen, column_seen,
                                               scores(CUDNN_DATA_BOOLEAN));
    return graph.select(seen, x, graph.constant(-std::numeric_limits<float>::infinity()), scores());
  }

  // -inf where s > t + S - T.
  cudnn::Tensor masked(const cudnn::Tensor& x) {
    if (!extents_of(a_).masked()) return x;
    cudnn::Tensor last = graph.index(x, 2);
    if (a_.keys != a_.queries) {  // cuDNN recognizes this form
      last = graph.pointwise(CUDNN_POINTWISE_ADD, last,
                             graph.constant(static_cast<std::int32_t>(a_.keys)),
                             scores(CUDNN_DATA_INT32));
      last = graph.pointwise(CUDNN_POINTWISE_SUB, last,
                             graph.constant(static_cast<std::int32_t>(a_.queries)),
                             scores(CUDNN_DATA_INT32));
    }
    const cudnn::Tensor seen = graph.pointwise(CUDNN_POINTWISE_CMP_GE, last, graph.index(x, 3),
                                               scores(CUDNN_DATA_BOOLEAN));
    return graph.select(seen, x, graph.constant(-std::numeric_limits<float>::infinity()), scores());
  }

 private:
  const AttentionArgs<T>& a_;
  std::optional<cudnn::Tensor> q_lengths_, kv_lengths_;
};

// x (B, H, T, S) of float, as (B, H, S, T) of the elements' type.
template <class T>
cudnn::Tensor across(cudnn::Graph& graph, const cudnn::Tensor& x) {
  const auto [batch, heads, queries, keys] = x.sizes;
  return graph.reshape(x, graph.result(kType<T>, {batch, heads, keys, queries},
                                       {heads * queries * keys, queries * keys, 1, keys}));
}

// to (B, G, S, D) = a (B, H, S, T) b (B, H, T, D), summed over the heads of each of the G groups.
template <class T>
void multiply_groups(cudnn::Graph& graph, const cudnn::Tensor& a, const cudnn::Tensor& b,
                     const cudnn::Tensor& to, const cudnn::Lengths& lengths) {
  if (to.sizes[1] == a.sizes[1]) {
    graph.matmul(a, b, to, lengths);
    return;
  }
  const cudnn::Tensor heads =
      graph.result(kType<T>, {a.sizes[0], a.sizes[1], a.sizes[2], b.sizes[3]});
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, graph.matmul(a, b, heads, lengths), to);
}

}  // namespace

template <class T>
cudnn::Graph attention_graph(const AttentionArgs<T>& args) {
  Attention<T> a(args);
  cudnn::Graph& graph = a.graph;
  const cudnn::Tensor q = a.q_rows(), k = a.kv_transposed(), v = a.kv_rows(), out = a.out_rows(),
                      lse = a.lse();
  a.add_lengths();
  const cudnn::Tensor product =
      graph.matmul(q, k, a.scores(), {.rows = a.q_lengths(), .columns = a.kv_lengths()});
  const cudnn::Tensor score =
      a.masked(a.padded(a.pointwise(CUDNN_POINTWISE_MUL, product, graph.constant(args.scale))));
  const cudnn::Tensor largest = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, score, a.query_values());
  const cudnn::Tensor weight = graph.pointwise(
      CUDNN_POINTWISE_EXP, a.pointwise(CUDNN_POINTWISE_SUB, score, largest), a.scores());
  const cudnn::Tensor sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, weight, a.query_values());
  graph.pointwise(CUDNN_POINTWISE_ADD, largest,
                  graph.pointwise(CUDNN_POINTWISE_LOG, sum, a.query_values()), lse);
  graph.matmul(graph.pointwise(CUDNN_POINTWISE_DIV, weight, sum, a.scores(kType<T>)), v, out,
               {.rows = a.q_lengths(), .terms = a.kv_lengths()});
  return std::move(graph);
}

template <class T>
cudnn::Graph attention_graph(const AttentionBackwardArgs<T>& g) {
  const AttentionArgs<T>& args = g.forward;
  Attention<T> a(args);
  cudnn::Graph& graph = a.graph;
  const cudnn::Tensor q = a.q_rows(), k = a.kv_transposed(), v = a.kv_transposed(),
                      out = a.out_rows(), lse = a.lse();
  const cudnn::Tensor dout = a.out_rows(), dq = a.q_rows(), dk = a.kv_rows(), dv = a.kv_rows();
  a.add_lengths();
  const cudnn::Lengths of_scores{.rows = a.q_lengths(), .columns = a.kv_lengths()},
      of_keys{.rows = a.kv_lengths(), .terms = a.q_lengths()},
      of_queries{.rows = a.q_lengths(), .terms = a.kv_lengths()};
  const cudnn::Tensor scale = graph.constant(args.scale);

  const cudnn::Tensor product =
      graph.pointwise(CUDNN_POINTWISE_MUL, dout, out, graph.result(CUDNN_DATA_FLOAT, out.sizes));
  const cudnn::Tensor sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, product, a.query_values());
  // Not virtual, and scaled (without dropout by 1), as engines expect it.
  const cudnn::Tensor delta =
      graph.pointwise(CUDNN_POINTWISE_MUL, sum, graph.constant(1.0f), graph.scratch(sum.sizes));

  const cudnn::Tensor score =
      a.pointwise(CUDNN_POINTWISE_MUL, graph.matmul(q, k, a.scores(), of_scores), scale);
  const cudnn::Tensor weight =
      graph.pointwise(CUDNN_POINTWISE_EXP,
                      a.masked(a.padded(a.pointwise(CUDNN_POINTWISE_SUB, score, lse))), a.scores());
  multiply_groups<T>(graph, across<T>(graph, weight), dout, dv, of_keys);

  cudnn::Tensor dscore =
      a.pointwise(CUDNN_POINTWISE_SUB, graph.matmul(dout, v, a.scores(), of_scores), delta);
  dscore =
      a.pointwise(CUDNN_POINTWISE_MUL, a.pointwise(CUDNN_POINTWISE_MUL, dscore, weight), scale);
  multiply_groups<T>(graph, across<T>(graph, dscore), q, dk, of_keys);

  const auto [batch, heads, columns, keys] = k.sizes;
  const auto [over_batch, over_heads, over_columns, over_keys] = k.strides;
  const cudnn::Tensor k_rows = graph.result(kType<T>, {batch, heads, keys, columns},
                                            {over_batch, over_heads, over_keys, over_columns});
  graph.reshape(k, k_rows);
  // The engine whose blocks of keys add up in memory. The one that this graph has without the
  // identity sums in order, from the stored gradients of all scores, and took 1.2 to 1.8 times as
  // long on an H200.
  graph.pointwise(CUDNN_POINTWISE_IDENTITY,
                  graph.matmul(dscore, k_rows, graph.scratch(dq.sizes), of_queries), dq);
  return std::move(graph);
}

template <class T>
AttentionArgs<T> part_of(const AttentionArgs<T>& whole, AttentionPart size, std::int64_t sequence,
                         std::int64_t group) {
  AttentionArgs<T> a = whole;
  const std::int64_t heads = whole.heads / whole.kv_heads, head = group * heads,
                     D = whole.head_size;
  a.batch = size.batch, a.kv_heads = size.groups, a.heads = size.groups * heads;
  a.q += sequence * a.queries * a.q_stride + head * D;
  a.k += sequence * a.keys * a.kv_stride + group * D;
  a.v += sequence * a.keys * a.kv_stride + group * D;
  a.out += sequence * a.queries * a.out_stride + head * D;
  a.lse += (sequence * whole.heads + head) * a.queries;
  return a;
}
template <class T>
AttentionBackwardArgs<T> part_of(const AttentionBackwardArgs<T>& whole, AttentionPart size,
                                 std::int64_t sequence, std::int64_t group) {
  AttentionBackwardArgs<T> g = whole;
  g.forward = part_of(whole.forward, size, sequence, group);
  g.dout += g.forward.out - whole.forward.out;
  g.dq += g.forward.q - whole.forward.q;
  g.dk += g.forward.k - whole.forward.k;
  g.dv += g.forward.v - whole.forward.v;
  return g;
}

#define TFM_INSTANTIATE(Args)                         \
  template cudnn::Graph attention_graph(const Args&); \
  template Args part_of(const Args&, AttentionPart, std::int64_t, std::int64_t);
TFM_INSTANTIATE(AttentionArgs<bf16>)
TFM_INSTANTIATE(AttentionArgs<f16>)
TFM_INSTANTIATE(AttentionBackwardArgs<bf16>)
TFM_INSTANTIATE(AttentionBackwardArgs<f16>)

}  // namespace tfm::kernels
