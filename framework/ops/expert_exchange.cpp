#include "kernels/elementwise.h"
#include "ops/dropout_add.h"
#include "ops/experts.h"

namespace tfm::ops {
namespace {

struct Dispatch final : graph::StagedOp {
  enum In { choice, place, slot, offsets, before };
  enum Out {
    sent_place,
    sent_slot,
    choice_here,
    place_here,
    slot_here,
    offsets_here,
    row_here,
    excess
  };

  std::int64_t slots, experts, ranks, room;
  bool wants_rows;
  ActivationRegion tokens;

  std::int64_t sent() const { return ranks * room; }
  std::int64_t bytes() const { return sent() * size_of(DType::i32); }
  std::string_view kind() const override { return "dispatch"; }
  graph::Saved saved() const override { return {}; }
  graph::Work work(graph::Phase) const override { return {.kernels = 2}; }
  std::int64_t workspace_bytes(graph::Phase) const override { return 2 * bytes(); }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase) const override {
    return {static_cast<std::size_t>(wants_rows) + 1,
            {comm::Collective::all_to_all, comm::Axis::expert, bytes()}};
  }
  graph::Exchanged exchanged(graph::Phase, std::size_t k, const graph::Exec& e) const override {
    return {{e.workspace() + static_cast<std::int64_t>(k) * bytes(), DType::i32, {sent()}},
            k == 0 ? e.out(choice_here) : e.out(row_here)};
  }
  void stage(graph::Phase p, std::size_t k, graph::Exec& e) const override {
    device::on(e.stream(), [&](auto& s) {
      const auto at = [&](auto name) { return e.out(name).template ptr<std::int32_t>(); };
      const auto given = [&](auto name) { return e.in(name).template ptr<std::int32_t>(); };
      if (k == 0) {
        auto* const sent_choice = reinterpret_cast<std::int32_t*>(e.workspace());
        kernels::SendSlotsArgs a{.slots = slots,
                                 .experts = experts,
                                 .ranks = ranks,
                                 .room = room,
                                 .choice = given(choice),
                                 .place = given(place),
                                 .slot = given(slot),
                                 .offsets = given(offsets),
                                 .sent_place = at(sent_place),
                                 .sent_slot = at(sent_slot),
                                 .sent_choice = sent_choice,
                                 .sent_row = wants_rows ? sent_choice + sent() : nullptr,
                                 .dropout = {.now = e.numbers()},
                                 .rows = dropout_place(tokens),
                                 .before = e.in(before).template ptr<double>(),
                                 .excess = e.out(excess).template ptr<double>(),
                                 .even = static_cast<double>(slots) / static_cast<double>(ranks)};
        a.rows.top_k = tokens.top_k;
        kernels::send_slots(s, a);
      } else if (k == exchanges(p).size()) {
        kernels::sort_slots(s, {sent(), experts / ranks, at(choice_here), at(place_here),
                                at(slot_here), at(offsets_here)});
      }
    });
  }
};

// Sends the slots of x, or takes back what became of them: each is the transpose of the other.
struct MoveSlots final : graph::StagedOp {
  enum In { x, place, slot };
  enum Out { y };

  std::int64_t tokens, cols, top_k, sent;
  DType dtype;
  bool back;

  std::int64_t bytes() const { return sent * cols * size_of(dtype); }
  bool sends(graph::Phase p) const { return (p == graph::Phase::backward) == back; }
  Tensor staging(const graph::Exec& e) const { return {e.workspace(), dtype, {sent, cols}}; }
  static const Tensor& from(graph::Phase p, const graph::Exec& e) {
    return p == graph::Phase::backward ? e.grad_out(y) : e.in(x);
  }
  static graph::GradSlot to(graph::Phase p, const graph::Exec& e) {
    return p == graph::Phase::backward ? e.grad_in(x) : graph::GradSlot{e.out(y)};
  }

  std::string_view kind() const override { return back ? "return_slots" : "send_slots"; }
  graph::Saved saved() const override {
    return {.inputs = back ? graph::OperandSet{slot} : graph::OperandSet{place}};
  }
  graph::Work work(graph::Phase) const override { return {.extra_elements = 2 * sent * cols}; }
  std::int64_t workspace_bytes(graph::Phase) const override { return bytes(); }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase) const override {
    return {{comm::Collective::all_to_all, comm::Axis::expert, bytes()}};
  }
  graph::Exchanged exchanged(graph::Phase p, std::size_t, const graph::Exec& e) const override {
    return sends(p) ? graph::Exchanged{staging(e), to(p, e).tensor}
                    : graph::Exchanged{from(p, e), staging(e)};
  }
  void stage(graph::Phase p, std::size_t k, graph::Exec& e) const override {
    if (sends(p) != (k == 0)) return;
    with_float(dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        T* const moved = staging(e).ptr<T>();
        if (k == 0)
          return kernels::gather_slots(
              s, kernels::GatherSlotsArgs<T>{sent, cols, top_k, e.in(slot).ptr<std::int32_t>(),
                                             from(p, e).ptr<T>(), moved});
        const graph::GradSlot d = to(p, e);
        kernels::combine_slots(
            s, kernels::CombineSlotsArgs<T>{tokens, cols, top_k, e.in(place).ptr<std::int32_t>(),
                                            nullptr, moved, d.tensor.ptr<T>(), d.accumulate});
      });
    });
  }
};

graph::Value move_slots(graph::Recorder& r, graph::Value x, const Sent& sent, std::int64_t tokens,
                        bool back) {
  auto op = std::make_unique<MoveSlots>();
  const std::int64_t slots = r.info(sent.place).shape[0];
  op->sent = r.info(sent.slot).shape[0];
  op->tokens = tokens;
  op->top_k = div_exact(slots, tokens);
  op->dtype = r.info(x).dtype;
  op->back = back;
  op->cols = div_exact(r.info(x).shape.elements(), back ? op->sent : tokens);
  const Shape shape{back ? tokens : op->sent, op->cols};
  const DType dtype = op->dtype;
  return r.apply(std::move(op), {x, sent.place, sent.slot}, {{shape, dtype}});
}

}  // namespace

Sent dispatch(graph::Recorder& r, const Routing& routing, const DispatchOptions& o) {
  auto op = std::make_unique<Dispatch>();
  const std::int64_t slots = op->slots = r.info(routing.slot).shape[0];
  op->experts = r.info(routing.offsets).shape[0] - 1;
  op->ranks = o.ranks;
  op->room = o.room;
  op->wants_rows = o.wants_rows;
  op->tokens = {.rows = o.rows, .top_k = r.info(routing.weights).shape[1]};
  const std::int64_t received = op->sent();
  const graph::OutputSpec by_slot{{op->slots}, DType::i32, false},
      by_row{{received}, DType::i32, false}, choice{{received, 1}, DType::i32, false},
      offsets{{div_exact(op->experts, op->ranks) + 1}, DType::i32, false},
      rows{{o.wants_rows ? received : 0}, DType::i32, false}, excess{{1}, DType::f64, false};
  const graph::Value first = r.apply(
      std::move(op), {routing.choice, routing.place, routing.slot, routing.offsets, o.excess},
      {by_slot, by_row, choice, by_row, by_row, offsets, rows, excess});
  const auto output = [&](Dispatch::Out which) { return graph::Value{first.id + which}; };
  Sent sent{.place = output(Dispatch::sent_place),
            .slot = output(Dispatch::sent_slot),
            .excess = output(Dispatch::excess)};
  if (o.wants_rows) sent.rows_here = output(Dispatch::row_here);
  sent.here.choice = output(Dispatch::choice_here);
  sent.here.place = output(Dispatch::place_here);
  sent.here.slot = output(Dispatch::slot_here);
  sent.here.offsets = output(Dispatch::offsets_here);
  sent.here.weights = move_slots(r, routing.weights, sent, slots, false);
  sent.here.expected = slots;
  return sent;
}

graph::Value send_slots(graph::Recorder& r, graph::Value x, const Sent& sent) {
  return move_slots(r, x, sent, r.info(x).shape[0], false);
}

graph::Value return_slots(graph::Recorder& r, graph::Value y, const Sent& sent,
                          std::int64_t tokens) {
  return move_slots(r, y, sent, tokens, true);
}

}  // namespace tfm::ops
