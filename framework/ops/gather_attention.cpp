// Attention where ranks share out every sequence, each of which gathers the keys and values of all.
// What is gathered lives as long as a pass.
#include "ops/context_attention.h"

namespace tfm::ops {
namespace {

template <class T>
struct GatherAttention final : ContextAttention<T> {
  using Base = ContextAttention<T>;
  using Base::options, Base::batch, Base::queries, Base::keys, Base::own_elements;
  using typename Base::Block;

  graph::Work work(graph::Phase phase) const override {
    graph::Work w = Base::work(phase);
    w.extra_elements = (phase == graph::Phase::backward ? 7 : 2) * all_elements();
    w.kernels *= 2;
    return w;
  }
  std::int64_t workspace_bytes(graph::Phase phase) const override {
    return place(phase, phase == graph::Phase::backward ? 3 : 2);
  }
  std::int64_t scratch_bytes(graph::Phase phase, DType) const override {
    const auto scratch = [&](const Block& of) {
      return Base::scratch_of(phase, of, Base::visible(of));
    };
    return std::max(scratch(of_chunk(0)), scratch(of_chunk(1)));
  }

  std::vector<comm::CollectiveCall> exchanges(graph::Phase phase) const override {
    const std::int64_t bytes = all_elements() * static_cast<std::int64_t>(sizeof(T));
    std::vector<comm::CollectiveCall> calls{
        {comm::Collective::all_gather, comm::Axis::context, bytes}};
    if (phase == graph::Phase::backward)
      calls.push_back({comm::Collective::reduce_scatter, comm::Axis::context, bytes});
    return calls;
  }
  graph::Exchanged exchanged(graph::Phase phase, std::size_t k,
                             const graph::Exec& e) const override {
    const Tensor all = tensor(by_rank(phase, e), options.share.ranks);
    if (k == 0) return {Base::self() ? own(phase, e) : e.in(Base::kv), all};
    return {all, Base::self() ? own(phase, e) : e.grad_in(Base::kv).tensor};
  }
  void stage(graph::Phase phase, std::size_t k, graph::Exec& e) const override {
    const bool backward = phase == graph::Phase::backward;
    if (k == 0 && Base::self()) Base::pack(e, own(phase, e).template ptr<T>());
    if (k == 1) {
      reorder(e, by_rank(phase, e), by_position(phase, e), true);
      backward ? backward_of_chunks(e) : forward_of_chunks(phase, e);
    }
    if (k == 2 && Base::self())
      unpack(e, own(phase, e), e.grad_in(Base::q).tensor.template ptr<T>());
  }

 private:
  std::int64_t all_elements() const { return batch * options.keys * Base::kv_width(); }

  // The workspace: bias, own keys and values side by side, then pieces for those of all ranks.
  static std::int64_t piece(std::int64_t elements) {
    return device::scratch_piece(elements * static_cast<std::int64_t>(sizeof(T)));
  }
  std::int64_t place(graph::Phase phase, int i) const {
    return device::scratch_piece(Base::bias_bytes(phase, of_chunk(0))) +
           (Base::self() ? piece(own_elements()) : 0) + i * piece(all_elements());
  }
  T* at(graph::Phase phase, int i, const graph::Exec& e) const {
    return reinterpret_cast<T*>(e.workspace() + place(phase, i));
  }
  T* by_rank(graph::Phase phase, const graph::Exec& e) const { return at(phase, 0, e); }
  T* by_position(graph::Phase phase, const graph::Exec& e) const { return at(phase, 1, e); }
  Tensor tensor(T* data, std::int64_t ranks) const {
    return {data, dtype_of<T>, {keys(0).tokens() * ranks, Base::kv_width()}};
  }
  Tensor own(graph::Phase phase, const graph::Exec& e) const {
    return tensor(reinterpret_cast<T*>(e.workspace() + place(phase, 0) - piece(own_elements())), 1);
  }

  // Into the last columns of rows of queries, keys and values.
  void unpack(const graph::Exec& e, const Tensor& own, T* rows) const {
    const std::int64_t width = Base::kv_width();
    device::on(e.stream(), [&](auto& s) {
      kernels::copy_rows(s,
                         kernels::CopyRowsArgs<T>{own.shape[0], width, own.template ptr<T>(), width,
                                                  rows + Base::q_width(), Base::query_stride()});
    });
  }
  // Between all ranks' rows one rank after the other, and whole sequences.
  void reorder(const graph::Exec& e, T* ranks, T* positions, bool to_positions) const {
    for (int r = 0; r < options.share.ranks; ++r)
      for (int k = 0; k < 2; ++k) {
        const Rows of = keys(r);
        const std::int64_t cols = of.chunk_length() * Base::kv_width(),
                           stride = options.keys * Base::kv_width();
        T* const chunk = ranks + (r * of.tokens() + k * of.chunk_tokens()) * Base::kv_width();
        T* const first = positions + of.start(k) * Base::kv_width();
        device::on(e.stream(), [&](auto& s) {
          if (to_positions)
            kernels::copy_rows(s,
                               kernels::CopyRowsArgs<T>{batch, cols, chunk, cols, first, stride});
          else
            kernels::copy_rows(s,
                               kernels::CopyRowsArgs<T>{batch, cols, first, stride, chunk, cols});
        });
      }
  }

  Block of_chunk(int k) const {
    return {queries().start(k), queries().chunk_length(), 0, options.keys};
  }
  kernels::AttentionArgs<T> chunk_args(graph::Phase phase, const graph::Exec& e, int k) const {
    kernels::AttentionArgs<T> a = Base::args(e, of_chunk(k));
    const std::int64_t rows = k * queries().chunk_tokens();
    a.q += rows * a.q_stride, a.out += rows * a.out_stride, a.lse += rows * a.heads;
    a.k = by_position(phase, e), a.v = a.k + Base::kv_width() / 2, a.kv_stride = Base::kv_width();
    return a;
  }
  void forward_of_chunks(graph::Phase phase, graph::Exec& e) const {
    for (int k = 0; k < 2; ++k) {
      Base::expand_bias(e, of_chunk(k));
      device::on(e.stream(), [&](auto& s) { kernels::attention(s, chunk_args(phase, e, k)); });
      Base::add_sinks(e, chunk_args(phase, e, k));
    }
  }
  void backward_of_chunks(graph::Exec& e) const {
    constexpr graph::Phase kPhase = graph::Phase::backward;
    const Tensor dq = Base::query_gradients(e);
    T *const sum = at(kPhase, 2, e), *const more = by_rank(kPhase, e);
    for (int k = 0; k < 2; ++k) {
      const kernels::AttentionArgs<T> a = chunk_args(kPhase, e, k);
      const std::int64_t rows = k * queries().chunk_tokens();
      // dk and dv are strided as keys are.
      const T* const dy = e.grad_out(Base::y).template ptr<T>() + rows * a.out_stride;
      Base::sinks_gradient(e, a, dy, k > 0);
      Base::backward(e, of_chunk(k), a, dy, dq.template ptr<T>() + rows * a.q_stride,
                     k == 0 ? sum : more, k > 0);
    }
    device::on(e.stream(), [&](auto& s) {
      kernels::copy(s, kernels::CopyArgs<T>{all_elements(), more, sum, true});
    });
    reorder(e, more, sum, false);
  }
};

}  // namespace

template <class T>
std::unique_ptr<Attention<T>> gather_attention() {
  return std::make_unique<GatherAttention<T>>();
}
template std::unique_ptr<Attention<float>> gather_attention();
template std::unique_ptr<Attention<double>> gather_attention();
template std::unique_ptr<Attention<bf16>> gather_attention();
template std::unique_ptr<Attention<f16>> gather_attention();

}  // namespace tfm::ops
