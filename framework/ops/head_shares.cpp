#include "ops/head_shares.h"

#include "device/memory.h"
#include "kernels/elementwise.h"

namespace tfm::ops {
namespace {

struct ShareRows final : graph::StagedOp {
  enum In { x };
  enum Out { y };

  Rows rows;
  kernels::HeadSections sections;
  DType dtype;
  bool to_heads;  // else to positions

  std::int64_t bytes() const { return rows.tokens() * sections.cols() * size_of(dtype); }
  std::string_view kind() const override { return to_heads ? "share_heads" : "share_positions"; }
  graph::Saved saved() const override { return {}; }
  graph::Work work(graph::Phase) const override {
    return {.extra_elements = 2 * rows.tokens() * sections.cols(), .kernels = 2};
  }
  // What is sent, and what is received.
  std::int64_t received_at() const { return device::scratch_piece(bytes()); }
  std::int64_t workspace_bytes(graph::Phase) const override { return received_at() + bytes(); }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase) const override {
    return {{comm::Collective::all_to_all, comm::Axis::context, bytes()}};
  }
  graph::Exchanged exchanged(graph::Phase, std::size_t, const graph::Exec& e) const override {
    const Shape shape{rows.tokens() * sections.cols()};
    return {{e.workspace(), dtype, shape}, {e.workspace() + received_at(), dtype, shape}};
  }
  void stage(graph::Phase p, std::size_t k, graph::Exec& e) const override {
    const bool backward = p == graph::Phase::backward, first = k == 0;
    const graph::GradSlot to = !backward ? graph::GradSlot{e.out(y)} : e.grad_in(x);
    if (!first && !to) return;
    with_float(dtype, [&]<class T>() {
      T* const sent = reinterpret_cast<T*>(e.workspace());
      T* const received = reinterpret_cast<T*>(e.workspace() + received_at());
      const Tensor& from = backward ? e.grad_out(y) : e.in(x);
      device::on(e.stream(), [&](auto& s) {
        kernels::head_shares(s, kernels::HeadSharesArgs<T>{
                                    rows, sections, first == (to_heads == backward), first,
                                    first ? from.ptr<T>() : received,
                                    first ? sent : to.tensor.ptr<T>(), !first && to.accumulate});
      });
    });
  }
};

graph::Value share_rows(graph::Recorder& r, graph::Value x, const kernels::HeadSections& sections,
                        const Rows& rows, bool to_heads) {
  if (rows.share.ranks == 1) return x;
  auto op = std::make_unique<ShareRows>();
  op->rows = rows;
  op->sections = sections;
  const DType dtype = op->dtype = r.info(x).dtype;
  op->to_heads = to_heads;
  const std::int64_t cols = sections.cols(), ranks = rows.share.ranks;
  const Shape shape =
      to_heads ? Shape{rows.tokens() * ranks, div_exact(cols, ranks)} : Shape{rows.tokens(), cols};
  return r.apply(std::move(op), {x}, {{shape, dtype}});
}

struct ShareOf final : graph::Op {
  enum In { x };
  enum Out { y };

  SequenceShare share;
  kernels::HeadSections sections;
  std::int64_t each;  // elements of a head's column

  std::string_view kind() const override { return "share_of"; }
  graph::Saved saved() const override { return {}; }
  bool cheap() const override { return true; }

  template <class T>
  void copy(graph::Exec& e, const T* from, T* to, bool backward) const {
    sections.each_part(
        share.ranks, share.rank, [&](std::int64_t first, std::int64_t place, std::int64_t n) {
          const std::int64_t all = first * each, own = place * each;
          device::on(e.stream(), [&](auto& s) {
            kernels::copy(s, kernels::CopyArgs<T>{n * each, from + (backward ? own : all),
                                                  to + (backward ? all : own), backward});
          });
        });
  }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype,
               [&]<class T>() { copy(e, e.in(x).ptr<T>(), e.out(y).ptr<T>(), false); });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot dx = e.grad_in(x);
    if (!dx) return;
    with_float(dx.tensor.dtype, [&]<class T>() {
      if (!dx.accumulate)
        device::on(e.stream(), [&](auto& s) {
          kernels::fill(s, kernels::FillArgs<T>{dx.tensor.elements(), T{}, dx.tensor.ptr<T>()});
        });
      copy(e, e.grad_out(y).ptr<T>(), dx.tensor.ptr<T>(), true);
    });
  }
};

}  // namespace

Rows whole(const Rows& rows) { return {rows.sequences, rows.sequence_length}; }

graph::Value share_heads(graph::Recorder& r, graph::Value x, const kernels::HeadSections& sections,
                         const Rows& rows) {
  return share_rows(r, x, sections, rows, true);
}

graph::Value share_positions(graph::Recorder& r, graph::Value x,
                             const kernels::HeadSections& sections, const Rows& rows) {
  return share_rows(r, x, sections, rows, false);
}

graph::Value share_of(graph::Recorder& r, graph::Value parameter,
                      const kernels::HeadSections& sections, const SequenceShare& share) {
  if (share.ranks == 1) return parameter;
  auto op = std::make_unique<ShareOf>();
  op->share = share;
  op->sections = sections;
  const Shape all = r.info(parameter).shape;
  op->each = div_exact(all.elements(), sections.cols());
  Shape own = all;
  own[0] = div_exact(sections.cols(), share.ranks);
  return r.apply(
      std::move(op), {parameter},
      {{.shape = own, .dtype = r.info(parameter).dtype, .gradient = r.info(parameter).gradient}});
}

}  // namespace tfm::ops
