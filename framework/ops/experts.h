#pragma once
// Ops of mixture-of-experts layers. Sizes and the meaning of slots and routed rows are those of
// kernels/experts.h.
#include "graph/recorder.h"
#include "kernels/experts.h"
#include "kernels/router.h"

namespace tfm::ops {

// Scores of experts before any normalization, (N, E) of the accumulation type: x (N, C) W^T + b
// with W (E, C) and b (E) or absent.
graph::Value router_logits(graph::Recorder& r, graph::Value x, graph::Value weight,
                           graph::Value bias = {});

// Experts that tokens take. Padding, where mask (B T) int32 of whole sequences is negative, does
// not count in statistics and counts.
struct Routing {
  graph::Value weights;               // (N, K), of the accumulation type as the next two
  graph::Value statistics;            // (B, E + 2), of this rank's tokens
  graph::Value counts;                // (B, E)
  graph::Value choice;                // (N, K) int32, as the next three; -1: dropped
  graph::Value place, slot, offsets;  // (N K), (N K), (E + 1)
  // Slots that probably have an expert, for predictions; 0: all.
  std::int64_t expected = 0;
};
// `bias` (E) is added to the scores by which experts are chosen, or absent. Its gradient is that of
// no loss but the error of the load, see kernels::LoadErrorArgs.
Routing route(graph::Recorder& r, graph::Value logits, graph::Value mask, graph::Value bias,
              const kernels::RouterOptions& options);

// (E + 2) f64, see kernels::RouterLoadArgs. `here`: the routing of the rows that this rank's
// experts compute.
graph::Value router_load(graph::Recorder& r, const Routing& routing, const Routing& here,
                         const kernels::RouterOptions& options);

// before + the term of the loss of these routed tokens, (1) f64, a sum over sequences and, over the
// ranks that share them, a term; its gradient is scaled by StepNumbers::gradient_scale[objective].
// `before` may be absent. `makes_gradient`: false on ranks where another one makes it.
graph::Value router_term(graph::Recorder& r, kernels::RouterTerm term, const Routing& routing,
                         const kernels::RouterOptions& options, graph::Value before, int objective,
                         bool makes_gradient = true);

// Sums (2 E + 1) over the routed tokens, added to `before`, which may be absent; see
// kernels::SumRoutingArgs. No other op that wants a gradient may read them.
graph::Value sum_routing(graph::Recorder& r, const Routing& routing,
                         const kernels::RouterOptions& options, graph::Value before);
// The balance of all tokens and layers of a batch, (1) f64, whose sum over the ranks along `axes`,
// each with other tokens, is the loss; see kernels::BatchBalanceArgs. Gradients as router_term().
graph::Value batch_balance(graph::Recorder& r, graph::Value sums, comm::AxisSet axes, int objective,
                           bool makes_gradient);

// First layer of the experts: h (N K, F) = routed rows of x (N, C) W_e^T + b_e, with W (E F, C)
// and b (E F) or absent. Rows without an expert are zeros.
graph::Value experts_up(graph::Recorder& r, graph::Value x, const Routing& routing,
                        graph::Value weight, graph::Value bias);
// Second layer, and the sum over the experts of a token: y (N, C) = sum over k of weights (h W_e^T
// + b_e), with W (E C, F) and b (E C) or absent. `adds_bias`: false on ranks whose result is added
// to another one's, which adds it.
graph::Value experts_down(graph::Recorder& r, graph::Value h, const Routing& routing,
                          graph::Value weight, graph::Value bias, bool adds_bias = true);

// Experts that are shared out over the expert-parallel ranks, consecutive ones to each. Every
// rank sends every other one as many rows, of which those without a slot are skipped; R is their
// number on a rank, which is that of the rows it receives, too.
struct DispatchOptions {
  int ranks = 1;
  std::int64_t room = 0;    // rows from each rank to each
  bool wants_rows = false;  // Sent::rows_here
  Rows rows;                // of the tokens
  graph::Value excess;      // (1) f64, of layers before; may be absent
};
struct Sent {
  graph::Value place;      // (N K) int32, sent row of each slot
  graph::Value slot;       // (R) int32, slot of each sent row, or -1
  graph::Value rows_here;  // (R) int32, ActivationRegion::global of the received rows
  // (1) f64, the most of that of layers before and of the rows to a rank for which there was no
  // room, as a multiple of those of an even load.
  graph::Value excess;
  Routing here;  // of the received rows, tokens that take one expert of this rank
};
Sent dispatch(graph::Recorder& r, const Routing& routing, const DispatchOptions& options);
// Rows (R, C) that this rank receives of x (N, C).
graph::Value send_slots(graph::Recorder& r, graph::Value x, const Sent& sent);
// y (N, C): the sum over the slots of a token of what became of their rows (R, C).
graph::Value return_slots(graph::Recorder& r, graph::Value y, const Sent& sent,
                          std::int64_t tokens);

// y (N, C) = residual + sigmoid(gate) x, with gate (N, 1) of the accumulation type. No other op
// that wants a gradient may read x or gate.
graph::Value gated_add(graph::Recorder& r, graph::Value x, graph::Value gate,
                       graph::Value residual);

}  // namespace tfm::ops
