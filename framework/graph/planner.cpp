#include "graph/planner.h"

#include <algorithm>
#include <utility>

#include "device/memory.h"
#include "graph/planner_impl.h"

namespace tfm::graph {
Planner::Planner(std::shared_ptr<const Recorder> recording, const PlanOptions& options)
    : options_(options), nodes_(recording->nodes()), values_(recording->values()) {
  program_.recording_ = std::move(recording);
  program_.buckets_ = options.buckets;
  program_.sharded_ = options.sharded;
  program_.slots_ = options.slots;
  program_.front_bytes_ = options.gradients_in_front;
  const std::size_t n = values_.size();
  forward_.assign(n, -1);
  late_.assign(n, -1);
  gradient_.assign(n, -1);
  written_.assign(n, false);
  consumers_.resize(n);
  for (int node = 0; node < static_cast<int>(nodes_.size()); ++node)
    for (int v : nodes_[node].in)
      if (v >= 0) consumers_[v].push_back(node);
  for (int b = 0; b < static_cast<int>(options.buckets.size()); ++b)
    for (const BucketUse::Member& m : options.buckets[b].members) {
      homes_.resize(std::max(homes_.size(), static_cast<std::size_t>(m.parameter) + 1));
      if (Home& home = homes_[static_cast<std::size_t>(m.parameter)]; home.bucket < 0)
        home = {b, m.offset};
    }
  decide_dropped();
}

Program Planner::run() {
  if (options_.training)
    for (Value v : options_.seeds) {
      program_.buffers_[gradient_of(v.id)].seeded = true;
      written_[v.id] = true;
    }
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n)
    if (!(options_.training && nodes_[n].op->forward_with_backward())) emit_forward(n, false);
  if (options_.training)
    for (int n = static_cast<int>(nodes_.size()); n-- > 0;) emit_backward(n);
  for (Value v : options_.outputs) program_.buffers_[forward_of(v.id)].kept = true;
  find_live_ranges();
  fuse();
  count_visits();
  cut_into_stages();
  if (options_.overlap) wait_late();
  options_.sharded.parameters ? insert_gathers() : gather_updated();
  if (options_.training) insert_reductions();
  number_exchanges();
  if (options_.gradients_in_front > 0) put_in_front();
  find_live_ranges();
  bound_arena();
  return std::move(program_);
}

bool Planner::saved_by_consumers(int v) const {
  return std::ranges::any_of(consumers_[v], [&](int c) {
    const Saved saved = nodes_[c].op->saved();
    for (std::size_t k = 0; k < nodes_[c].in.size(); ++k)
      if (nodes_[c].in[k] == v && saved.inputs.contains(k)) return true;
    return false;
  });
}

bool Planner::drops_outputs(const Node& node) const {
  if (node.scope < 0) return false;
  const int first = node.out[0];
  if (!options_.device && node.op->free_on_cpus(values_[first].dtype) && saved_by_consumers(first))
    return true;
  return node.scope < options_.recompute_scopes &&
         (options_.recompute == Recompute::full ||
          (options_.recompute == Recompute::selective && node.op->cheap()));
}

void Planner::decide_dropped() {
  dropped_.assign(values_.size(), false);
  if (!options_.training) return;
  for (const Node& node : nodes_)
    if (drops_outputs(node))
      for (int v : node.out) dropped_[v] = true;
  for (const Node& node : nodes_)
    for (int v : node.in)
      if (v >= 0 && values_[v].scope != node.scope) dropped_[v] = false;
  for (Value v : options_.outputs) dropped_[v.id] = false;
  // The outputs of a node are recomputed together or not at all.
  for (const Node& node : nodes_)
    if (!std::ranges::all_of(node.out, [&](int v) { return dropped_[v]; }))
      for (int v : node.out) dropped_[v] = false;
}

int Planner::buffer(Buffer::Kind kind, int value, std::int64_t bytes, bool persistent) {
  program_.buffers_.push_back(
      {.kind = kind, .value = value, .persistent = persistent, .bytes = bytes});
  return static_cast<int>(program_.buffers_.size()) - 1;
}

int Planner::forward_of(int v) {
  if (forward_[v] < 0)
    forward_[v] =
        buffer(Buffer::Kind::value, v, values_[v].bytes(), values_[v].role != Role::activation);
  return forward_[v];
}

int Planner::gradient_of(int v) {
  if (gradient_[v] < 0)
    gradient_[v] = buffer(Buffer::Kind::gradient, v,
                          values_[v].shape.elements() * size_of(values_[v].gradient),
                          values_[v].role == Role::parameter);
  return gradient_[v];
}

int Planner::workspace(std::int64_t bytes) {
  return bytes > 0 ? buffer(Buffer::Kind::workspace, -1, bytes, false) : -1;
}

void Planner::take_workspaces(const Op& op, Instruction& s) {
  s.workspace = workspace(op.workspace_bytes(s.phase));
  if (s.workspace >= 0) program_.buffers_[s.workspace].lasting = op.keeps_workspace(s.phase);
  if (!options_.device) return;
  const std::int64_t scratch = op.scratch_bytes(s.phase, program_.recording_->dtype());
  // With room to align its start.
  s.scratch = workspace(scratch > 0 ? scratch + device::scratch_piece(1) : 0);
}

void Planner::emit_forward(int n, bool again) {
  const Node& node = nodes_[n];
  const Phase phase = again ? Phase::recompute : Phase::forward;
  Instruction s{.phase = phase, .node = n, .section = section_of(n, phase)};
  for (int v : node.in) s.in.push_back(v < 0 ? -1 : again ? current(v) : forward_of(v));
  for (int v : node.out) {
    if (again) late_[v] = buffer(Buffer::Kind::recomputed, v, values_[v].bytes(), false);
    s.out.push_back(again ? late_[v] : forward_of(v));
  }
  take_workspaces(*node.op, s);
  program_.instructions_.push_back(std::move(s));
}

// Makes value v available in backward: recomputes it if it was dropped, after its inputs.
void Planner::need(int v) {
  if (v < 0 || !dropped_[v] || late_[v] >= 0) return;
  for (int input : nodes_[values_[v].producer].in) need(input);
  emit_forward(values_[v].producer, true);
}

// Whether, at node n of the backward pass, the gradient of `a` is complete, and its producer reads
// it before anything is added to the gradient of `b`.
bool Planner::read_before_written(int n, int a, int b) const {
  const int reader = values_[a].producer;
  return reader >= 0 && std::ranges::all_of(consumers_[a], [&](int c) { return c >= n; }) &&
         std::ranges::all_of(consumers_[b], [&](int c) { return c >= n || c < reader; });
}

// Whether the gradient of node n's input k, which equals that of the first output, shares its
// memory. If so, registers the input as an owner.
bool Planner::shares_gradient(int n, std::size_t k) {
  const Node& node = nodes_[n];
  const int v = node.in[k];
  if (v < 0 || !node.op->passes_gradient().contains(k)) return false;
  const int out = node.out[0];
  const ValueInfo &in = values_[v], &made = values_[out];
  if (!written_[out] || !in.wants_grad || in.role != Role::activation || gradient_[v] >= 0)
    return false;
  if (in.gradient != made.gradient || in.shape != made.shape || std::ranges::count(node.in, v) > 1)
    return false;
  std::vector<int>& owners = owners_[gradient_[out]];
  if (owners.size() > 1) return false;
  if (owners.size() == 1 && !read_before_written(n, v, owners[0]) &&
      !read_before_written(n, owners[0], v))
    return false;
  owners.push_back(v);
  return true;
}

void Planner::emit_backward(int n) {
  const Node& node = nodes_[n];
  const bool one_pass = node.op->forward_with_backward();
  const bool reached = node.op->makes_loss() || std::any_of(node.out.begin(), node.out.end(),
                                                            [&](int v) { return written_[v]; });
  const auto wants_grad = [&](int v) { return v >= 0 && values_[v].wants_grad; };
  const bool wanted = std::ranges::any_of(node.in, wants_grad);
  if (!one_pass && !(reached && wanted) && !node.op->crosses_ranks()) return;
  const Saved saved = node.op->saved();
  for (std::size_t k = 0; k < node.in.size(); ++k)
    if (saved.inputs.contains(k)) need(node.in[k]);
  for (std::size_t k = 0; k < node.out.size(); ++k)
    if (saved.outputs.contains(k) && !one_pass) need(node.out[k]);

  Instruction s{.phase = Phase::backward, .node = n, .section = section_of(n, Phase::backward)};
  for (std::size_t k = 0; k < node.in.size(); ++k)
    s.in.push_back(node.in[k] >= 0 && saved.inputs.contains(k) ? current(node.in[k]) : -1);
  for (std::size_t k = 0; k < node.out.size(); ++k)
    s.out.push_back(one_pass || saved.outputs.contains(k) ? current(node.out[k]) : -1);
  for (int v : node.out) {
    s.grad_out.push_back(!one_pass && written_[v] ? gradient_of(v) : -1);
    std::erase(owners_[gradient_[v]], v);
  }
  for (std::size_t k = 0; k < node.in.size(); ++k) {
    const int v = node.in[k];
    GradRef g;
    if (shares_gradient(n, k)) {
      gradient_[v] = gradient_[node.out[0]];
      written_[v] = true;
    } else if (wants_grad(v)) {
      g = {gradient_of(v), written_[v]};
      written_[v] = true;
    }
    s.grad_in.push_back(g);
  }
  take_workspaces(*node.op, s);
  program_.instructions_.push_back(std::move(s));
}

// A buffer is live from the first step that uses it to the last one. Fused steps both use the
// buffers of either. Buffers that the caller writes are live from the start of the run, those it
// reads to its end.
void Planner::find_live_ranges() {
  for (Buffer& b : program_.buffers_) b.first = b.last = -1;
  const auto use = [&](int b, int at) {
    for (; b >= 0; b = program_.buffers_[b].within) {
      Buffer& buf = program_.buffers_[b];
      if (buf.first < 0) buf.first = at;
      buf.last = std::max(buf.last, at);
    }
  };
  const int steps = static_cast<int>(program_.instructions_.size());
  for (int i = 0; i < steps; ++i)
    for_each_buffer(program_.instructions_[i], [&](int b) {
      use(b, i);
      if (program_.fused_with_next(static_cast<std::size_t>(i))) use(b, i + 1);
    });
  for (Buffer& b : program_.buffers_) {
    if (b.seeded) b.first = 0, b.last = std::max(b.last, 0);
    if (b.kept) b.first = b.first < 0 ? steps : b.first, b.last = steps;
    if (b.lasting) b.first = 0, b.last = steps;
  }
}

// Whether step i can be fused with the previous one: it continues with that step's result.
bool Planner::continues(std::size_t i) const {
  const Instruction &before = program_.instructions_[i - 1], &s = program_.instructions_[i];
  if (before.fusion || before.phase != s.phase) return false;
  if (s.phase != Phase::backward)
    return !s.in.empty() && !before.out.empty() && s.in[0] == before.out[0];
  if (before.grad_in.empty() || s.grad_out.empty() || s.grad_in.empty()) return false;
  const GradRef made = before.grad_in[0];
  const bool alone = made.buffer >= 0 && made.buffer == s.grad_out[0] && !made.accumulate &&
                     program_.buffers_[made.buffer].last == static_cast<int>(i);
  return alone && s.grad_in[0].buffer >= 0;
}

// Fuses pairs of adjacent steps, unless the second can hide the collective of the next pass. It
// gets scratch memory that suffices for either.
void Planner::fuse() {
  auto& steps = program_.instructions_;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (!continues(i) || (i + 1 < steps.size() && has_time_beside(steps[i], steps[i + 1])))
      continue;
    Instruction& s = steps[i];
    const Op &before = *nodes_[steps[i - 1].node].op, &op = *nodes_[s.node].op;
    const auto found = std::ranges::find_if(
        options_.fusions, [&](const Fusion& p) { return p.matches(before, op, s.phase); });
    if (found == options_.fusions.end()) continue;
    s.fusion = &*found;
    if (const int first = steps[i - 1].scratch; first >= 0 && s.scratch >= 0)
      program_.buffers_[s.scratch].bytes =
          std::max(program_.buffers_[s.scratch].bytes, program_.buffers_[first].bytes);
    else if (first >= 0)
      s.scratch = first;
  }
}

void Planner::count_visits() {
  int visit = 0, last = -1;
  for (Instruction& s : program_.instructions_) {
    const int scope = nodes_[s.node].scope;
    visit += scope != std::exchange(last, scope);
    s.visit = visit;
  }
}

int Planner::section_of(int node, Phase phase) const {
  const int chunk = nodes_[node].chunk;
  return phase == Phase::forward ? chunk : 2 * nodes_.back().chunk + 1 - chunk;
}

Program plan(std::shared_ptr<const Recorder> recording, const PlanOptions& options) {
  Program p = Planner(std::move(recording), options).run();
  if (!options.draft) finish(p);
  return p;
}

void finish(Program& program) {
  if (!program.draft()) return;
  Planner::place(program);
  verify(program);
}

}  // namespace tfm::graph
