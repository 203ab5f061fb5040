// What the stages of a pipeline hand to each other. Messages between two ranks are told apart by
// tags: an even one for values and the next one for their gradients.
#include "kernels/elementwise.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

using enum comm::Collective;

Tensor in_workspace(const graph::Exec& e, const Tensor& like) {
  return {e.workspace(), like.dtype, like.shape};
}

// Nothing but an exchange in each pass.
struct Message : graph::StagedOp {
  int peer = 0, tag = 0;
  std::int64_t bytes = 0;
  comm::Purpose purpose = comm::Purpose::activations;
  graph::Saved saved() const override { return {}; }
  bool crosses_ranks() const override { return true; }
  std::int64_t workspace_bytes(graph::Phase p) const override {
    return p == graph::Phase::backward ? bytes : 0;
  }
  bool keeps_workspace(graph::Phase) const override { return true; }
  graph::Work work(graph::Phase) const override { return {.kernels = 0}; }
  comm::CollectiveCall call(comm::Collective kind, int of) const {
    return {kind, comm::Axis::pipeline, bytes, purpose, peer, of};
  }
  void stage(graph::Phase, std::size_t, graph::Exec&) const override {}
};

struct Send final : Message {
  enum In { x };
  std::string_view kind() const override { return "send"; }
  std::int64_t workspace_bytes(graph::Phase p) const override {
    return p == graph::Phase::backward ? 0 : bytes;
  }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase p) const override {
    return {p == graph::Phase::backward ? call(receive, tag + 1) : call(send, tag)};
  }
  graph::Exchanged exchanged(graph::Phase p, std::size_t, const graph::Exec& e) const override {
    if (p != graph::Phase::backward) return {e.in(x), in_workspace(e, e.in(x))};
    const graph::GradSlot& d = e.grad_in(x);
    TFM_CHECK(d && !d.accumulate, "what is sent is used by later stages last");
    return {d.tensor, d.tensor};
  }
};

struct Receive final : Message {
  enum Out { y };
  std::string_view kind() const override { return "receive"; }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase p) const override {
    return {p == graph::Phase::backward ? call(send, tag + 1) : call(receive, tag)};
  }
  graph::Exchanged exchanged(graph::Phase p, std::size_t, const graph::Exec& e) const override {
    if (p != graph::Phase::backward) return {e.out(y), e.out(y)};
    TFM_CHECK(e.grad_out(y), "every stage uses what it receives");
    return {e.grad_out(y), in_workspace(e, e.grad_out(y))};
  }
};

// Of a parameter that several stages use: those that borrow it send their gradients to its owner,
// which adds them to its own.
struct BorrowedGradient final : Message {
  enum In { weight };
  std::string_view kind() const override { return "borrowed_gradient"; }
  bool of_whole_gradients() const override { return true; }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase p) const override {
    if (p != graph::Phase::backward) return {};
    return {call(send, tag)};
  }
  graph::Exchanged exchanged(graph::Phase, std::size_t, const graph::Exec& e) const override {
    const Tensor& sum = e.grad_in(weight).tensor;
    return {sum, in_workspace(e, sum)};
  }
};

struct LentGradient final : Message {
  enum In { weight };
  std::vector<int> borrowers;
  std::string_view kind() const override { return "lent_gradient"; }
  bool keeps_workspace(graph::Phase) const override { return false; }
  bool of_whole_gradients() const override { return true; }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase p) const override {
    std::vector<comm::CollectiveCall> all;
    if (p == graph::Phase::backward)
      for (const int b : borrowers)
        all.push_back({receive, comm::Axis::pipeline, bytes, purpose, b, tag});
    return all;
  }
  graph::Exchanged exchanged(graph::Phase, std::size_t, const graph::Exec& e) const override {
    const Tensor t = in_workspace(e, e.grad_in(weight).tensor);
    return {t, t};
  }
  void stage(graph::Phase p, std::size_t k, graph::Exec& e) const override {
    if (p != graph::Phase::backward || k == 0) return;
    const Tensor& sum = e.grad_in(weight).tensor;
    device::on(e.stream(), [&](auto& s) {
      with_accum(sum.dtype, [&]<class T>() {
        kernels::copy(s, kernels::CopyArgs<T>{sum.elements(), in_workspace(e, sum).ptr<T>(),
                                              sum.ptr<T>(), true});
      });
    });
  }
};

template <class M>
std::unique_ptr<M> message(int peer, int tag, std::int64_t bytes) {
  auto op = std::make_unique<M>();
  op->peer = peer, op->tag = tag, op->bytes = bytes;
  return op;
}

}  // namespace

void send(graph::Recorder& r, graph::Value x, int to, int tag) {
  r.apply(message<Send>(to, tag, r.info(x).bytes()), {x}, {});
}

graph::Value receive(graph::Recorder& r, const Shape& shape, int from, int tag) {
  const std::int64_t bytes = Tensor{nullptr, r.dtype(), shape}.bytes();
  return r.apply(message<Receive>(from, tag, bytes), {}, {{shape, r.dtype()}});
}

void borrowed_gradient(graph::Recorder& r, graph::Value weight, int owner, int tag) {
  const graph::ValueInfo& info = r.info(weight);
  const std::int64_t bytes = Tensor{nullptr, info.gradient, info.shape}.bytes();
  auto op = message<BorrowedGradient>(owner, tag, bytes);
  op->purpose = comm::Purpose::borrowed;
  r.apply(std::move(op), {weight}, {});
}

void lent_gradient(graph::Recorder& r, graph::Value weight, const std::vector<int>& borrowers,
                   int tag) {
  const graph::ValueInfo& info = r.info(weight);
  auto op = message<LentGradient>(-1, tag, Tensor{nullptr, info.gradient, info.shape}.bytes());
  op->borrowers = borrowers, op->purpose = comm::Purpose::borrowed;
  r.apply(std::move(op), {weight}, {});
}

}  // namespace tfm::ops
