// Attention where ranks share out every sequence and pass keys and values round (Liu et al. 2023):
// at hop h a rank has those of the rank h before it, and computes with them while they travel on.
// Of these only two hops' are held. Outputs are joined by their log-sum-exps. In backward sums of
// the gradients of keys and values follow them one hop behind, and so come home with one hop more.
#include <array>

#include "ops/context_attention.h"

namespace tfm::ops {
namespace {

template <class T>
struct RingAttention final : ContextAttention<T> {
  using Base = ContextAttention<T>;
  using Base::options, Base::batch, Base::queries, Base::keys, Base::own_elements;
  using typename Base::Block;
  using Wide = Accum<T>;
  static constexpr std::int64_t kWide = size_of(dtype_of<Wide>) / size_of(dtype_of<T>);

  graph::Work work(graph::Phase phase) const override {
    const std::int64_t of_queries = queries().chunk_tokens() * Base::q_width(),
                       of_keys = keys(0).chunk_tokens() * Base::kv_width();
    graph::Work w = Base::work(phase);
    std::int64_t blocks = 0;
    for (int hop = 0; hop < ranks(); ++hop) each_block(hop, [&](const HopBlock&) { ++blocks; });
    // What a block makes is written, and read to be added to a sum.
    w.extra_elements = blocks * (2 + 2 * kWide) * of_queries;
    if (phase == graph::Phase::backward)
      w.extra_elements += (blocks + 2 * ranks()) * (2 + 2 * kWide) * of_keys;
    w.kernels = static_cast<int>(blocks) * (w.kernels + 2);
    return w;
  }
  std::int64_t workspace_bytes(graph::Phase phase) const override { return place(phase, kPieces); }
  std::int64_t scratch_bytes(graph::Phase phase, DType) const override {
    // No block takes more than one seen whole.
    return Base::scratch_of(phase, block(0, 0, 0),
                            {.beyond = {.repeats = options.visible.beyond.repeats}});
  }

  std::vector<comm::CollectiveCall> exchanges(graph::Phase phase) const override {
    std::vector<comm::CollectiveCall> calls;
    const int hops = phase == graph::Phase::backward ? ranks() + 1 : ranks() - 1;
    for (int hop = 0; hop < hops; ++hop)
      calls.push_back({comm::Collective::ring_shift, comm::Axis::context,
                       travels(phase, hop).elements * static_cast<std::int64_t>(sizeof(T))});
    return calls;
  }
  graph::Exchanged exchanged(graph::Phase phase, std::size_t k,
                             const graph::Exec& e) const override {
    const int hop = static_cast<int>(k);
    const Travels t = travels(phase, hop);
    const auto tensor = [&](T* buffer) {
      return Tensor{buffer + t.first, dtype_of<T>, {t.elements}};
    };
    const Tensor out = tensor(buffer(phase, hop + 1, e));
    if (hop == 0 && !Base::self()) return {Tensor{e.in(Base::kv).data, out.dtype, out.shape}, out};
    return {tensor(buffer(phase, hop, e)), out};
  }
  double share_beside(graph::Phase phase, std::size_t k) const override {
    const auto hop = static_cast<int>(k);
    return hop < (phase == graph::Phase::backward ? ranks() : ranks() - 1) ? 1.0 / ranks() : 0;
  }
  void beside(graph::Phase phase, std::size_t k, graph::Exec& e) const override {
    const int hop = static_cast<int>(k);
    phase == graph::Phase::backward ? backward_of(hop, e) : forward_of(phase, hop, e);
  }
  void stage(graph::Phase phase, std::size_t k, graph::Exec& e) const override {
    const int hop = static_cast<int>(k);
    if (hop == 0 && Base::self()) Base::pack(e, keys_at(phase, 0, e));
    if (phase == graph::Phase::backward) {
      if (hop > 1 && hop <= ranks()) add_own_sum(hop, e);
      if (hop > ranks()) finish_backward(e);
    } else if (hop == ranks() - 1) {
      forward_of(phase, hop, e);
      convert(e, queries().tokens(), Base::q_width(), sum_of_queries(phase, e), Base::q_width(),
              e.out(Base::y).template ptr<T>(), Base::q_width());
      for (int q = 0; q < 2; ++q) Base::add_sinks(e, queries_of(q, e));
    }
  }

 private:
  int ranks() const { return options.share.ranks; }
  // Whose keys and values are here at a hop.
  int owner(int hop) const { return (options.share.rank - hop + ranks()) % ranks(); }

  // Chunk q of this rank's queries against chunk k of the keys here. `first_...`: nothing of this
  // pass, or hop, comes before it for these queries or keys.
  struct HopBlock {
    int q, k;
    bool first_of_queries, first_of_keys;
  };
  Block block(int hop, int q, int k) const {
    const Rows keys = this->keys(owner(hop));
    return {queries().start(q), queries().chunk_length(), keys.start(k), keys.chunk_length()};
  }
  // Blocks of which nothing is seen are left out, but for one of each chunk.
  bool computes(int hop, int q, int k) const {
    const Block of = block(hop, q, k);
    return (hop == 0 && q == k) ||
           Base::visible(of).seen({0, of.queries}, {0, of.keys}) != Seen::none;
  }
  template <class F>
  void each_block(int hop, F&& f) const {
    for (int q = 0; q < 2; ++q)
      for (int k = 0; k < 2; ++k)
        if (computes(hop, q, k))
          f(HopBlock{q, k, hop == 0 && (k == 0 || !computes(0, q, 0)),
                     q == 0 || !computes(hop, 0, k)});
  }

  // The workspace: bias; two buffers, each with sums of gradients (backward) and then keys and
  // values; sums for the queries; a block's output and log-sum-exp, or the hop's sums of gradients
  // and a block's gradients of keys and values.
  static constexpr std::size_t kPieces = 6;
  std::int64_t place(graph::Phase phase, std::size_t i) const {
    const auto wide = static_cast<std::int64_t>(sizeof(Wide)),
               narrow = static_cast<std::int64_t>(sizeof(T));
    const bool backward = phase == graph::Phase::backward;
    const std::int64_t sums = queries().tokens() * Base::q_width() * wide,
                       buffer = own_elements() * (narrow + (backward ? wide : 0)),
                       chunk = queries().chunk_tokens();
    const std::array<std::int64_t, kPieces> bytes{
        Base::bias_bytes(phase, block(0, 0, 0)),
        buffer,
        buffer,
        sums,
        backward ? own_elements() * wide : chunk * Base::q_width() * narrow,
        backward ? own_elements() / 2 * narrow : chunk * options.heads * wide};
    std::int64_t at = 0;
    for (std::size_t p = 0; p < i; ++p) at += device::scratch_piece(bytes[p]);
    return at;
  }
  template <class W>
  W* at(graph::Phase phase, std::size_t i, const graph::Exec& e) const {
    return reinterpret_cast<W*>(e.workspace() + place(phase, i));
  }
  T* buffer(graph::Phase phase, int hop, const graph::Exec& e) const {
    return at<T>(phase, static_cast<std::size_t>(1 + hop % 2), e);
  }
  Wide* sum_of_queries(graph::Phase phase, const graph::Exec& e) const {
    return at<Wide>(phase, 3, e);
  }
  // Sums in elements of T.
  std::int64_t sum_elements(graph::Phase phase) const {
    return phase == graph::Phase::backward ? own_elements() * kWide : 0;
  }
  T* keys_at(graph::Phase phase, int hop, const graph::Exec& e) const {
    if (hop == 0 && !Base::self()) return e.in(Base::kv).template ptr<T>();
    return buffer(phase, hop, e) + sum_elements(phase);
  }
  // Of the sums for the keys of a hop, those that have come; this rank adds its own to them.
  Wide* sum_of_keys(int hop, const graph::Exec& e) const {
    return reinterpret_cast<Wide*>(buffer(graph::Phase::backward, hop, e));
  }
  // What is made at a hop. With the first one no sums come: its own take their place.
  Wide* own_sum(int hop, const graph::Exec& e) const {
    return hop == 0 ? sum_of_keys(1, e) : at<Wide>(graph::Phase::backward, 4, e);
  }

  // Of a buffer, in elements: keys and values until the last rank has them, behind the first hop
  // sums of gradients.
  struct Travels {
    std::int64_t first, elements;
  };
  Travels travels(graph::Phase phase, int hop) const {
    const std::int64_t sums = sum_elements(phase), keys = hop < ranks() - 1 ? own_elements() : 0;
    return hop == 0 ? Travels{sums, keys} : Travels{0, sums + keys};
  }

  // Chunk q of the queries against a block of keys, which are yet to be given.
  kernels::AttentionArgs<T> queries_of(int q, const graph::Exec& e, const Block& of) const {
    kernels::AttentionArgs<T> a = Base::args(e, of);
    const std::int64_t rows = q * queries().chunk_tokens();
    a.q += rows * a.q_stride, a.out += rows * a.out_stride, a.lse += rows * a.heads;
    return a;
  }
  kernels::AttentionArgs<T> queries_of(int q, const graph::Exec& e) const {
    return queries_of(q, e, block(0, q, q));
  }
  kernels::AttentionArgs<T> args_of(graph::Phase phase, int hop, const HopBlock& b,
                                    const graph::Exec& e) const {
    kernels::AttentionArgs<T> a = queries_of(b.q, e, block(hop, b.q, b.k));
    a.k = keys_at(phase, hop, e) + b.k * keys(0).chunk_tokens() * Base::kv_width();
    a.v = a.k + Base::kv_width() / 2, a.kv_stride = Base::kv_width();
    return a;
  }
  void forward_of(graph::Phase phase, int hop, graph::Exec& e) const {
    each_block(hop, [&](const HopBlock& b) {
      kernels::AttentionArgs<T> a = args_of(phase, hop, b, e);
      const kernels::AttentionMergeArgs<T> merge{
          .batch = batch,
          .heads = a.heads,
          .queries = a.queries,
          .head_size = a.head_size,
          .part = at<T>(phase, 4, e),
          .part_lse = at<Wide>(phase, 5, e),
          .out = sum_of_queries(phase, e) + b.q * queries().chunk_tokens() * Base::q_width(),
          .lse = a.lse,
          .first = b.first_of_queries};
      a.out = at<T>(phase, 4, e), a.lse = at<Wide>(phase, 5, e);
      Base::expand_bias(e, block(hop, b.q, b.k));
      device::on(e.stream(), [&](auto& s) {
        kernels::attention(s, a);
        kernels::attention_merge(s, merge);
      });
    });
  }

  // A block's gradients: those of queries come where their sum will be, in this precision.
  void backward_of(int hop, graph::Exec& e) const {
    constexpr graph::Phase kPhase = graph::Phase::backward;
    T* const dq = Base::query_gradients(e).template ptr<T>();
    T* const dkv = at<T>(kPhase, 5, e);
    const std::int64_t width = Base::kv_width(), of_keys = keys(0).chunk_tokens() * width;
    std::array<bool, 2> made{};
    each_block(hop, [&](const HopBlock& b) {
      const kernels::AttentionArgs<T> a = args_of(kPhase, hop, b, e);
      const std::int64_t rows = queries().chunk_tokens();
      T* const of_queries = dq + b.q * rows * a.q_stride;
      Base::backward(e, block(hop, b.q, b.k), a,
                     e.grad_out(Base::y).template ptr<T>() + b.q * rows * a.out_stride, of_queries,
                     dkv, !(b.q == 0 && b.first_of_queries));
      convert(e, rows, Base::q_width(), of_queries, a.q_stride,
              sum_of_queries(kPhase, e) + b.q * rows * Base::q_width(), Base::q_width(),
              !b.first_of_queries);
      convert(e, keys(0).chunk_tokens(), width, dkv, width, own_sum(hop, e) + b.k * of_keys, width,
              !b.first_of_keys);
      made[static_cast<std::size_t>(b.k)] = true;
    });
    for (int k = 0; k < 2; ++k)
      if (!made[static_cast<std::size_t>(k)])
        device::on(e.stream(), [&](auto& s) {
          kernels::fill(s,
                        kernels::FillArgs<Wide>{of_keys, Wide(0), own_sum(hop, e) + k * of_keys});
        });
  }
  // To the sums that have come with the hop before.
  void add_own_sum(int hop, graph::Exec& e) const {
    device::on(e.stream(), [&](auto& s) {
      kernels::copy(s, kernels::CopyArgs<Wide>{own_elements(), own_sum(hop - 1, e),
                                               sum_of_keys(hop, e), true});
    });
  }
  void finish_backward(graph::Exec& e) const {
    constexpr graph::Phase kPhase = graph::Phase::backward;
    T* const dq = Base::query_gradients(e).template ptr<T>();
    for (int q = 0; q < 2; ++q)
      Base::sinks_gradient(
          e, queries_of(q, e),
          e.grad_out(Base::y).template ptr<T>() + q * queries().chunk_tokens() * Base::q_width(),
          q > 0);
    convert(e, queries().tokens(), Base::q_width(), sum_of_queries(kPhase, e), Base::q_width(), dq,
            Base::query_stride());
    const std::int64_t width = Base::kv_width();
    convert(e, keys(0).tokens(), width, sum_of_keys(ranks() + 1, e), width,
            Base::self() ? dq + Base::q_width() : e.grad_in(Base::kv).tensor.template ptr<T>(),
            Base::self() ? Base::query_stride() : width);
  }

  template <class From, class To>
  static void convert(const graph::Exec& e, std::int64_t rows, std::int64_t cols, const From* x,
                      std::int64_t x_stride, To* y, std::int64_t y_stride,
                      bool accumulate = false) {
    device::on(e.stream(), [&](auto& s) {
      kernels::convert_rows(
          s, kernels::ConvertRowsArgs<From, To>{rows, cols, x, x_stride, y, y_stride, accumulate});
    });
  }
};

}  // namespace

template <class T>
std::unique_ptr<Attention<T>> ring_attention() {
  return std::make_unique<RingAttention<T>>();
}
template std::unique_ptr<Attention<float>> ring_attention();
template std::unique_ptr<Attention<double>> ring_attention();
template std::unique_ptr<Attention<bf16>> ring_attention();
template std::unique_ptr<Attention<f16>> ring_attention();

}  // namespace tfm::ops
