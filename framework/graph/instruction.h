#pragma once
// What a program is a list of: instructions, the buffers that they use and the collectives among
// them.
#include "graph/fusion.h"

namespace tfm::graph {

// Where a tensor of a step lives: an index into Program::buffers, or -1.
struct Buffer {
  enum class Kind : std::uint8_t { value, recomputed, gradient, workspace, bucket };
  Kind kind = Kind::value;
  int value = -1;  // of the recording; -1 for workspace, scratch and buckets
  bool persistent =
      false;  // parameter, input or constant (or a parameter's gradient): outside the arena
  bool seeded = false;    // written by the caller before the run
  bool kept = false;      // read by the caller after the run
  bool lasting = false;   // between runs, too
  bool carried = false;   // from one section to another: in a slot
  bool in_front = false;  // of the arena: a gradient in whose memory earlier steps have tensors
  std::int64_t bytes = 0;
  int first = -1, last = -1;  // steps between which it is live
  std::int64_t offset = 0;    // in the arena, of one that is carried in a slot; below 0 in front
  int within = -1;            // a bucket's buffer, in whose memory this one lies
  bool in_arena() const { return !persistent && within < 0; }
};

struct GradRef {
  int buffer = -1;
  bool accumulate = false;
};

// The computing steps of a node's pass, in stages (graph/op.h), and between these the start and the
// wait of a collective, with what the pass computes beside it: all list the same tensors, but where
// a pass is made in two by `gradients`.
struct Instruction {
  enum class Kind : std::uint8_t { compute, start, wait };
  enum class Gradients : std::uint8_t { all, of_activations, of_parameters };

  Kind kind = Kind::compute;
  Phase phase = Phase::forward;
  int node = -1;        // -1: a bucket's collective
  int visit = 0;        // of a layer: steps in a row that were recorded for the same one
  int section = 0;      // number of the Section it belongs to, in ascending order
  int stage = 0;        // of a computing step
  bool beside = false;  // it runs beside collective `stage`, behind that stage
  int exchange = -1;    // of a start and a wait: an index into Program::exchanges()
  Gradients gradients = Gradients::all;  // that a step of a backward pass makes
  std::vector<int> in, out, grad_out;
  std::vector<GradRef> grad_in;
  int workspace = -1, scratch = -1;
  const StepPair* pair = nullptr;  // is run at once with the step before it, by this row of a table
};

// A collective of the program.
struct Exchange {
  // Of a bucket: parameters that are gathered for use, or, into their own memory, after an update;
  // gradients; shares of their sums.
  enum class Of : std::uint8_t { pass, parameters, updated, gradients, shares };

  comm::CollectiveCall call;
  Of of = Of::pass;
  int bucket = -1;            // or
  std::size_t k = 0;          // collective k of its node's pass
  int buffer = -1;            // of a bucket that is whole while it is used only
  int start = -1, wait = -1;  // steps
  bool overlaps() const { return wait > start + 1; }
  bool message() const { return call.peer >= 0; }
};

// A part of a program that runs on its own: of several micro-batches forward passes may come before
// the first backward pass. A program has the forward passes of its chunks in their order, then the
// backward passes from the last chunk's on.
struct Section {
  enum class Of : std::uint8_t { program, forward, backward };
  Of of = Of::program;
  int chunk = 0;  // see Recorder::next_chunk()
  friend bool operator==(const Section&, const Section&) = default;
};

// f(buffer) for all that a step uses.
template <class F>
void for_each_buffer(const Instruction& s, F&& f) {
  for (const std::vector<int>* some : {&s.in, &s.out, &s.grad_out})
    for (int b : *some)
      if (b >= 0) f(b);
  for (const GradRef& g : s.grad_in)
    if (g.buffer >= 0) f(g.buffer);
  for (int b : {s.workspace, s.scratch})
    if (b >= 0) f(b);
}

}  // namespace tfm::graph
