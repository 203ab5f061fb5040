#pragma once
// The parts of a Program: instructions, the buffers that they use, and the collectives among them.
#include "graph/fusion.h"

namespace tfm::graph {

// Memory of one tensor, workspace or bucket, and the steps between which it is live. Instructions
// refer to buffers by their index in Program::buffers(), or -1 for none.
struct Buffer {
  enum class Kind : std::uint8_t { value, recomputed, gradient, workspace, bucket };
  Kind kind = Kind::value;
  int value = -1;  // value of the recording; -1 for workspaces, scratch memory and buckets
  // Bound outside the arena: a parameter, input or constant, or the gradient of a parameter.
  bool persistent = false;
  bool seeded = false;   // written by the caller before the run
  bool kept = false;     // read by the caller after the run
  bool lasting = false;  // live in the whole run and between runs
  bool carried = false;  // live in several sections: lies in the slot of its micro-batch
  // A gradient in front of the arena. Tensors of earlier steps may share its memory.
  bool in_front = false;
  std::int64_t bytes = 0;
  int first = -1, last = -1;  // steps between which it is live; -1: unused
  std::int64_t offset = 0;    // in bytes, in the arena or its slot; < 0: in front of the arena
  int within = -1;            // bucket buffer that contains this one; -1: none
  bool in_arena() const { return !persistent && within < 0; }
};

// A gradient that a step assigns or adds to.
struct GradRef {
  int buffer = -1;
  bool accumulate = false;
};

// One step of a program. A node's pass has a computing step for each of its stages (Op::stage), and
// between two stages the start and the wait of a collective and the computation that overlaps it
// (Op::beside). All of them list the same buffers, except that a backward pass may be split in two
// by `gradients`. The collective of a bucket has a start and a wait only.
struct Instruction {
  enum class Kind : std::uint8_t { compute, start, wait };
  enum class Gradients : std::uint8_t { all, of_activations, of_parameters };

  Kind kind = Kind::compute;
  Phase phase = Phase::forward;
  int node = -1;        // index into Recorder::nodes(); -1: collective of a bucket
  int visit = 0;        // consecutive steps of one recompute scope are a visit of its layer
  int section = 0;      // number of its Section in program order
  int stage = 0;        // stage of the pass, in a computing step
  bool beside = false;  // runs Op::beside() during collective `stage`, not a stage
  int exchange = -1;    // start and wait: index into Program::exchanges()
  Gradients gradients = Gradients::all;  // gradients that a backward step makes
  std::vector<int> in, out, grad_out;
  std::vector<GradRef> grad_in;
  int workspace = -1, scratch = -1;
  const Fusion* fusion = nullptr;  // fusion that runs this step together with the previous one
};

// A collective of the program.
struct Exchange {
  enum class Of : std::uint8_t {
    pass,        // collective of a node's pass
    parameters,  // gathers the sharded parameters of a bucket for use
    updated,     // gathers the updated parameters of a bucket into their own memory
    gradients,   // reduces the gradients of a bucket
    shares       // sums this rank's share of a bucket's reduced gradients over replicas
  };

  comm::CollectiveCall call;
  Of of = Of::pass;
  int bucket = -1;    // index into Program::buckets(); -1: Of::pass
  std::size_t k = 0;  // Of::pass: index among the collectives of the pass
  int buffer = -1;    // temporary buffer of the whole bucket; -1: memory bound to the bucket
  int start = -1, wait = -1;  // steps
  bool overlaps() const { return wait > start + 1; }
  bool message() const { return call.peer >= 0; }
};

// A part of a program that can run on its own, so that the forward passes of several micro-batches
// can precede the first backward pass. A program consists of the forward sections of its chunks in
// ascending order, then their backward sections in descending order.
struct Section {
  enum class Of : std::uint8_t { program, forward, backward };
  Of of = Of::program;
  int chunk = 0;  // see Recorder::next_chunk()
  friend bool operator==(const Section&, const Section&) = default;
};

// Calls f(buffer) for every buffer that a step uses.
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
