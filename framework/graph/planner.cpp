#include "graph/planner.h"

#include <algorithm>
#include <map>

#include "device/memory.h"

namespace tfm::graph {

class Planner {
 public:
  Planner(std::shared_ptr<const Recorder> recording, const PlanOptions& options)
      : options_(options), nodes_(recording->nodes()), values_(recording->values()) {
    program_.recording_ = std::move(recording);
    program_.buckets_ = options.buckets;
    const std::size_t n = values_.size();
    forward_.assign(n, -1);
    late_.assign(n, -1);
    gradient_.assign(n, -1);
    written_.assign(n, false);
    ready_.assign(n, -1);
    consumers_.resize(n);
    for (int node = 0; node < static_cast<int>(nodes_.size()); ++node)
      for (int v : nodes_[node].in)
        if (v >= 0) consumers_[v].push_back(node);
    decide_dropped();
  }

  Program run() {
    if (options_.training)
      for (Value v : options_.seeds) {
        program_.buffers_[touch(gradient_of(v.id))].seeded = true;
        written_[v.id] = true;
      }
    for (int n = 0; n < static_cast<int>(nodes_.size()); ++n)
      if (!(options_.training && nodes_[n].op->forward_with_backward())) emit_forward(n, false);
    if (options_.training)
      for (int n = static_cast<int>(nodes_.size()); n-- > 0;) emit_backward(n);
    for (Value v : options_.outputs) touch(forward_of(v.id));
    join();
    insert_reductions();
    place();
    return std::move(program_);
  }

 private:
  int now() const { return static_cast<int>(program_.steps_.size()); }

  void decide_dropped() {
    dropped_.assign(values_.size(), false);
    if (!options_.training || options_.recompute == Recompute::none) return;
    for (const Node& node : nodes_)
      if (node.scope >= 0 && (options_.recompute == Recompute::full || node.op->cheap()))
        for (int v : node.out) dropped_[v] = true;
    for (const Node& node : nodes_)
      for (int v : node.in)
        if (v >= 0 && values_[v].scope != node.scope) dropped_[v] = false;
    for (Value v : options_.outputs) dropped_[v.id] = false;
  }

  int buffer(Buffer::Kind kind, int value, std::int64_t bytes, bool persistent) {
    program_.buffers_.push_back(
        {.kind = kind, .value = value, .persistent = persistent, .bytes = bytes});
    return static_cast<int>(program_.buffers_.size()) - 1;
  }
  int forward_of(int v) {
    if (forward_[v] < 0)
      forward_[v] =
          buffer(Buffer::Kind::value, v, values_[v].bytes(), values_[v].role != Role::activation);
    return forward_[v];
  }
  int gradient_of(int v) {
    if (gradient_[v] < 0)
      gradient_[v] = buffer(
          Buffer::Kind::gradient, v,
          values_[v].shape.elements() * static_cast<std::int64_t>(size_of(values_[v].gradient)),
          values_[v].role == Role::parameter);
    return gradient_[v];
  }
  int touch(int b) {
    Buffer& buf = program_.buffers_[b];
    if (buf.first < 0) buf.first = now();
    buf.last = now();
    return b;
  }
  int workspace(std::int64_t bytes) {
    return bytes > 0 ? touch(buffer(Buffer::Kind::workspace, -1, bytes, false)) : -1;
  }
  void take_workspaces(const Op& op, Instruction& s) {
    s.workspace = workspace(op.workspace_bytes(s.phase));
    if (!options_.device) return;
    const std::int64_t scratch = op.scratch_bytes(s.phase, program_.recording_->dtype());
    s.scratch = workspace(scratch > 0 ? scratch + device::scratch_piece(1)
                                      : 0);  // it is to start at a multiple of that
  }
  int current(int v) { return late_[v] >= 0 ? late_[v] : forward_of(v); }

  void emit_forward(int n, bool again) {
    const Node& node = nodes_[n];
    Instruction s{.phase = again ? Phase::recompute : Phase::forward, .node = n};
    for (int v : node.in) s.in.push_back(v < 0 ? -1 : touch(again ? current(v) : forward_of(v)));
    for (int v : node.out) {
      if (again) late_[v] = buffer(Buffer::Kind::recomputed, v, values_[v].bytes(), false);
      s.out.push_back(touch(again ? late_[v] : forward_of(v)));
    }
    take_workspaces(*node.op, s);
    program_.steps_.push_back(std::move(s));
  }

  // Makes value v readable in backward: what was dropped is computed again, its own inputs first.
  void need(int v) {
    if (v < 0 || !dropped_[v] || late_[v] >= 0) return;
    for (int input : nodes_[values_[v].producer].in) need(input);
    emit_forward(values_[v].producer, true);
  }

  // At node n of the backward pass: all that is left to do with the gradient of `a` is to read it
  // once, before anything is added to that of `b`.
  bool read_before_written(int n, int a, int b) const {
    const int reader = values_[a].producer;
    return reader >= 0 && std::ranges::all_of(consumers_[a], [&](int c) { return c >= n; }) &&
           std::ranges::all_of(consumers_[b], [&](int c) { return c >= n || c < reader; });
  }

  // Whether the gradient of node n's input k, which equals that of the first output, takes over its
  // memory.
  bool shares_gradient(int n, std::size_t k) {
    const Node& node = nodes_[n];
    const int v = node.in[k], out = node.out[0];
    if (v < 0 || !node.op->passes_gradient().contains(k)) return false;
    const ValueInfo &in = values_[v], &made = values_[out];
    if (!written_[out] || !in.wants_grad || in.role != Role::activation || gradient_[v] >= 0)
      return false;
    if (in.gradient != made.gradient || in.shape != made.shape ||
        std::ranges::count(node.in, v) > 1)
      return false;
    std::vector<int>& owners = owners_[gradient_[out]];
    if (owners.size() > 1) return false;
    if (owners.size() == 1 && !read_before_written(n, v, owners[0]) &&
        !read_before_written(n, owners[0], v))
      return false;
    owners.push_back(v);
    return true;
  }

  void emit_backward(int n) {
    const Node& node = nodes_[n];
    const bool one_pass = node.op->forward_with_backward();
    const bool reached =
        std::any_of(node.out.begin(), node.out.end(), [&](int v) { return written_[v]; });
    const auto wants_grad = [&](int v) { return v >= 0 && values_[v].wants_grad; };
    const bool wanted = std::ranges::any_of(node.in, wants_grad);
    if (!one_pass && !(reached && wanted)) return;
    const Saved saved = node.op->saved();
    for (std::size_t k = 0; k < node.in.size(); ++k)
      if (saved.inputs.contains(k)) need(node.in[k]);
    for (std::size_t k = 0; k < node.out.size(); ++k)
      if (saved.outputs.contains(k) && !one_pass) need(node.out[k]);

    Instruction s{.phase = Phase::backward, .node = n};
    for (std::size_t k = 0; k < node.in.size(); ++k)
      s.in.push_back(node.in[k] >= 0 && saved.inputs.contains(k) ? touch(current(node.in[k])) : -1);
    for (std::size_t k = 0; k < node.out.size(); ++k)
      s.out.push_back(one_pass || saved.outputs.contains(k) ? touch(current(node.out[k])) : -1);
    for (int v : node.out) {
      s.grad_out.push_back(!one_pass && written_[v] ? touch(gradient_of(v)) : -1);
      std::erase(owners_[gradient_[v]], v);
    }
    for (std::size_t k = 0; k < node.in.size(); ++k) {
      const int v = node.in[k];
      GradRef g;
      if (shares_gradient(n, k)) {
        gradient_[v] = gradient_[node.out[0]];
        written_[v] = true;
      } else if (wants_grad(v)) {
        g = {touch(gradient_of(v)), written_[v]};
        written_[v] = true;
        ready_[v] = now();
      }
      s.grad_in.push_back(g);
    }
    take_workspaces(*node.op, s);
    program_.steps_.push_back(std::move(s));
  }

  // Whether step i does nothing but go on with what the one before it makes.
  bool continues(std::size_t i) const {
    const Instruction &before = program_.steps_[i - 1], &s = program_.steps_[i];
    if (before.join != Join::no || before.phase != s.phase) return false;
    if (s.phase != Phase::backward) return s.in[0] == before.out[0];
    const GradRef made = before.grad_in[0];
    const bool alone = made.buffer >= 0 && made.buffer == s.grad_out[0] && !made.accumulate &&
                       program_.buffers_[made.buffer].last == static_cast<int>(i);
    return alone && s.grad_in[0].buffer >= 0;
  }

  // Whether step i and the one before it are a pair of a table.
  bool joins(std::size_t i, std::span<const StepPair> table, Join how) {
    Instruction& s = program_.steps_[i];
    const Op &before = *nodes_[program_.steps_[i - 1].node].op, &op = *nodes_[s.node].op;
    const auto found = std::ranges::find_if(
        table, [&](const StepPair& pair) { return pair.matches(before, op, s.phase); });
    if (found == table.end()) return false;
    s.join = how;
    s.pair = &*found;
    return true;
  }

  // What the first of two joined steps uses lives on in the second, which gets scratch memory
  // enough for either.
  void join() {
    for (std::size_t i = 1; i < program_.steps_.size(); ++i) {
      if (!continues(i) || !(joins(i, options_.fusions, Join::one_pass) ||
                             joins(i, options_.overlaps, Join::beside)))
        continue;
      Instruction& s = program_.steps_[i];
      if (const int first = program_.steps_[i - 1].scratch; first >= 0 && s.scratch >= 0)
        program_.buffers_[s.scratch].bytes =
            std::max(program_.buffers_[s.scratch].bytes, program_.buffers_[first].bytes);
      else if (first >= 0)
        s.scratch = first;
      for_each_buffer(program_.steps_[i - 1], [&](int b) {
        int& last = program_.buffers_[b].last;
        last = std::max(last, static_cast<int>(i));
      });
    }
  }

  // A reduce step right after the step that makes the last gradient of its bucket final; buckets
  // keep their order.
  void insert_reductions() {
    if (!options_.training) return;
    std::vector<int> value_of;
    for (std::size_t v = 0; v < values_.size(); ++v) {
      const int p = values_[v].parameter;
      if (p < 0) continue;
      if (p >= static_cast<int>(value_of.size())) value_of.resize(p + 1, -1);
      value_of[p] = static_cast<int>(v);
      if (!written_[v]) program_.untouched_.push_back(p);
    }
    std::vector<std::vector<int>> after(program_.steps_.size());
    int earliest = -1;
    for (int b = 0; b < static_cast<int>(options_.buckets.size()); ++b) {
      int ready = std::max(earliest, 0);
      for (int p : options_.buckets[b].parameters)
        if (p < static_cast<int>(value_of.size()) && value_of[p] >= 0)
          ready = std::max(ready, ready_[value_of[p]]);
      if (program_.joined(static_cast<std::size_t>(ready))) ++ready;
      after[ready].push_back(b);
      earliest = ready;
    }
    std::vector<int> moved(program_.steps_.size());
    std::vector<Instruction> steps;
    for (std::size_t i = 0; i < program_.steps_.size(); ++i) {
      moved[i] = static_cast<int>(steps.size());
      steps.push_back(std::move(program_.steps_[i]));
      for (int b : after[i]) steps.push_back({.phase = Phase::reduce, .bucket = b});
    }
    for (Buffer& b : program_.buffers_) {
      if (b.first >= 0 && b.first < static_cast<int>(moved.size())) b.first = moved[b.first];
      b.last = b.last < static_cast<int>(moved.size()) ? (b.last >= 0 ? moved[b.last] : -1)
                                                       : static_cast<int>(steps.size());
    }
    program_.steps_ = std::move(steps);
  }

  // Largest first, each at the lowest offset that is free during its life.
  void place() {
    std::vector<int> order;
    for (int b = 0; b < static_cast<int>(program_.buffers_.size()); ++b)
      if (!program_.buffers_[b].persistent && program_.buffers_[b].first >= 0) order.push_back(b);
    auto& buffers = program_.buffers_;
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return buffers[a].bytes > buffers[b].bytes; });
    std::vector<int> placed;  // by offset
    for (int b : order) {
      Buffer& buf = buffers[b];
      const std::int64_t size = round_up(buf.bytes, 64);
      std::int64_t offset = 0;
      for (int p : placed) {
        const Buffer& other = buffers[p];
        if (other.first > buf.last || buf.first > other.last) continue;
        if (offset + size <= other.offset) break;
        offset = std::max(offset, other.offset + round_up(other.bytes, 64));
      }
      buf.offset = offset;
      program_.arena_bytes_ = std::max(program_.arena_bytes_, offset + size);
      placed.insert(
          std::upper_bound(placed.begin(), placed.end(), b,
                           [&](int x, int y) { return buffers[x].offset < buffers[y].offset; }),
          b);
    }
  }

  const PlanOptions& options_;
  const std::vector<Node>& nodes_;
  const std::vector<ValueInfo>& values_;
  Program program_;
  std::vector<int> forward_, late_, gradient_, ready_;
  std::vector<bool> written_, dropped_;
  std::vector<std::vector<int>> consumers_;  // of each value, nodes in order
  std::map<int, std::vector<int>>
      owners_;  // of a gradient taken over, by buffer: values whose producers have not read it yet
};

Program plan(std::shared_ptr<const Recorder> recording, const PlanOptions& options) {
  Program p = Planner(std::move(recording), options).run();
  verify(p);
  return p;
}

}  // namespace tfm::graph
