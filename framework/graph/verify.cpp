#include <algorithm>
#include <map>

#include "device/arena.h"
#include "graph/planner.h"
#include "graph/verify_impl.h"

namespace tfm::graph {

std::string describe(const Program& p, int buffer) {
  const Buffer& b = p.buffers()[buffer];
  if (b.kind == Buffer::Kind::bucket) return "a bucket";
  return b.value < 0 ? "a workspace"
                     : p.recording().values()[b.value].name +
                           (b.kind == Buffer::Kind::gradient ? " (gradient)" : "");
}

namespace {

// Derived from the steps alone, not taken from the planner.
struct LiveRange {
  int first = -1, last = -1;
};

std::vector<LiveRange> live_ranges(const Program& p) {
  std::vector<LiveRange> ranges(p.buffers().size());
  for (int i = 0; i < static_cast<int>(p.instructions().size()); ++i) {
    const Instruction& s = p.instructions()[i];
    const bool fused = p.fused_with_next(static_cast<std::size_t>(i));
    for_each_buffer(s, [&](int b) {
      for (; b >= 0; b = p.buffers()[b].within) {
        if (ranges[b].first < 0) ranges[b].first = i;
        ranges[b].last = i + fused;
      }
    });
  }
  for (std::size_t b = 0; b < ranges.size();
       ++b) {  // what a caller writes before or reads after the run
    const Buffer& buf = p.buffers()[b];
    if (buf.kept) ranges[b].last = static_cast<int>(p.instructions().size());
    if (buf.seeded) ranges[b].first = 0;
    if (buf.lasting) ranges[b] = {0, static_cast<int>(p.instructions().size())};
  }
  return ranges;
}

// Begin -> end of each gradient in front of the arena.
std::map<std::int64_t, std::int64_t> ends_of_gradients(const Program& p) {
  std::map<std::int64_t, std::int64_t> ends;
  for (const Buffer& g : p.buffers())
    if (g.in_front && g.bytes > 0) ends[g.offset] = g.offset + g.bytes;
  return ends;
}

// Whether the part of `x` in front of the arena lies only on memory of gradients.
bool lies_on_gradients(const Program& p, const Buffer& x,
                       const std::map<std::int64_t, std::int64_t>& gradients) {
  if (x.in_front) return x.offset >= -p.bytes_in_front() && x.offset + x.bytes <= 0;
  const std::int64_t end = std::min<std::int64_t>(0, x.offset + x.bytes);
  for (std::int64_t at = x.offset; at < end;) {
    const auto next = gradients.upper_bound(at);
    if (next == gradients.begin() || std::prev(next)->second <= at) return false;
    at = std::prev(next)->second;
  }
  return true;
}

void check_overlap(const Program& p) {
  const auto ranges = live_ranges(p);
  std::vector<int> by_start;
  for (std::size_t b = 0; b < ranges.size(); ++b)
    if ((p.buffers()[b].in_arena() || p.buffers()[b].in_front) && ranges[b].first >= 0)
      by_start.push_back(static_cast<int>(b));
  std::ranges::stable_sort(by_start, {}, [&](int b) { return ranges[b].first; });
  const auto gradients = ends_of_gradients(p);
  struct Alive {
    int buffer;
    std::int64_t end;
  };
  std::map<std::int64_t, Alive> alive;     // by their begins
  std::multimap<int, std::int64_t> until;  // their begins, by the last step
  for (const int b : by_start) {
    const auto over = until.lower_bound(ranges[b].first);
    for (auto at = until.begin(); at != over; at = until.erase(at)) alive.erase(at->second);
    const Buffer& x = p.buffers()[b];
    const std::int64_t at = p.place_of(x),
                       end = x.carried ? p.arena_bytes() - (p.slots() - 1) * p.slot_bytes()
                                       : p.arena_bytes() - p.slots() * p.slot_bytes();
    if (x.offset % device::kAlignment != 0 || at + x.bytes > end ||
        !lies_on_gradients(p, x, gradients))
      internal_error(describe(p, b) + " lies outside its part of the arena");
    // Live buffers are disjoint, so of those that begin before the end of x the last one ends last.
    const auto next = alive.lower_bound(at + x.bytes);
    if (next != alive.begin() && std::prev(next)->second.end > at)
      internal_error(describe(p, b) + " and " + describe(p, std::prev(next)->second.buffer) +
                     " share memory while both are live");
    if (x.bytes == 0) continue;
    alive[at] = {b, at + x.bytes};
    until.emplace(ranges[b].last, at);
  }
}

// With slots, no section may change what another section of the same micro-batch reads.
void check_sections(const Program& p) {
  if (p.slots() == 0) return;
  const auto ranges = live_ranges(p);
  const auto crosses = [&](int first, int last) {
    return p.section_at(first) != p.section_at(last);
  };
  for (std::size_t b = 0; b < ranges.size(); ++b) {
    const Buffer& x = p.buffers()[b];
    if (x.in_arena() && !x.lasting && !x.carried && ranges[b].first >= 0 &&
        crosses(ranges[b].first, ranges[b].last))
      internal_error(describe(p, static_cast<int>(b)) + " is not kept between the sections");
  }
  for (std::size_t i = 1; i < p.instructions().size(); ++i)
    if (p.instructions()[i].section < p.instructions()[i - 1].section)
      internal_error("the sections are out of order");
  // Exchanges of memory in the arena must end in the section in which they start.
  for (const Exchange& x : p.exchanges())
    if ((x.bucket < 0 || x.buffer >= 0) && crosses(x.start, x.wait))
      internal_error("a collective is under way between the sections");
}

// The first step of a pass reads its inputs; after its last one its results are written.
bool begins(const Instruction& s) {
  return s.kind == Instruction::Kind::compute && s.stage == 0 && !s.beside;
}
bool ends(const Program& p, const Instruction& s) {
  return s.kind == Instruction::Kind::compute && !s.beside &&
         s.stage == static_cast<int>(op_of(p, s).exchanges(s.phase).size());
}

// A stage after the first must follow the wait of the preceding collective directly.
void check_stage(const Program& p, std::size_t i) {
  const Instruction& s = p.instructions()[i];
  if (s.stage == 0 || s.beside) return;
  const Instruction& wait = p.instructions()[i - 1];
  if (wait.kind != Instruction::Kind::wait || wait.node != s.node || wait.phase != s.phase ||
      static_cast<int>(p.exchanges()[wait.exchange].k) + 1 != s.stage)
    internal_error("a collective of " + p.recording().nodes()[s.node].name + " is missing");
}

void check_fused(const Program& p, std::size_t i) {
  const Instruction& s = p.instructions()[i];
  if (!s.fusion) return;
  const std::string& node = p.recording().nodes()[s.node].name;
  if (i == 0 || p.instructions()[i - 1].phase != s.phase || p.instructions()[i - 1].fusion ||
      !begins(s) || !ends(p, s) || !begins(p.instructions()[i - 1]) ||
      !ends(p, p.instructions()[i - 1]))
    internal_error(node + " is fused with a step that it cannot be run with");
  const Instruction& before = p.instructions()[i - 1];
  if (before.scratch >= 0 &&
      (s.scratch < 0 || p.buffers()[s.scratch].bytes < p.buffers()[before.scratch].bytes))
    internal_error(node + " lacks the scratch memory of the step that it is fused with");
}

void check_order(const Program& p) {
  std::vector<bool> written(p.buffers().size());
  const auto given = [&](const Buffer& b) {
    if (b.seeded) return true;
    if (!b.persistent || b.kind != Buffer::Kind::value) return false;
    const ValueInfo& v = p.recording().values()[b.value];
    return !p.sharded().parameters || v.role != Role::parameter || v.borrowed;
  };
  for (std::size_t b = 0; b < p.buffers().size(); ++b) written[b] = given(p.buffers()[b]);
  for (std::size_t i = 0; i < p.instructions().size(); ++i) {
    const Instruction& s = p.instructions()[i];
    if (s.kind == Instruction::Kind::wait && s.phase == Phase::gather)
      for (int b : s.out) written[b] = true;
    if (s.kind != Instruction::Kind::compute) continue;
    check_stage(p, i);
    check_fused(p, i);
    const std::string& node = p.recording().nodes()[s.node].name;
    const auto reads = [&](int b) {
      const bool in_bucket =
          b >= 0 && p.buffers()[b].within >= 0 && p.buffers()[b].kind == Buffer::Kind::value;
      if (b >= 0 && !written[in_bucket ? p.buffers()[b].within : b])
        internal_error(node + " reads " + describe(p, b) + " before it is written");
    };
    if (begins(s)) {
      std::ranges::for_each(s.in, reads);
      if (!makes_outputs(p, s)) std::ranges::for_each(s.out, reads);
      std::ranges::for_each(s.grad_out, reads);
    }
    if (!ends(p, s)) continue;
    for (int b : s.out)
      if (b >= 0) written[b] = true;
    for (const GradRef& g : s.grad_in) {
      if (g.buffer < 0) continue;
      if (g.accumulate != written[g.buffer])
        internal_error(node + (g.accumulate ? " adds to " : " overwrites ") +
                       describe(p, g.buffer));
      written[g.buffer] = true;
    }
  }
}

// A gradient buffer that values share (Op::passes_gradient) must still hold the gradient of a value
// when the value's producer reads it.
void check_shared(const Program& p) {
  const auto& values = p.recording().values();
  std::map<int, int> version;  // by buffer: number of writes so far
  std::map<int, std::pair<int, int>>
      holds;  // by value: its gradient's buffer, and the version that is its own
  for (const Instruction& s : p.instructions()) {
    if (s.phase != Phase::backward || !ends(p, s) ||
        s.gradients == Instruction::Gradients::of_parameters)
      continue;
    const Node& node = p.recording().nodes()[s.node];
    for (std::size_t k = 0; k < node.out.size(); ++k)
      if (const int b = s.grad_out[k];
          b >= 0 && !p.buffers()[b].seeded && holds[node.out[k]] != std::pair(b, version[b]))
        internal_error(node.name + " reads a gradient of " + values[node.out[k]].name +
                       " that was added to for another value");
    for (std::size_t k = 0; k < node.in.size(); ++k) {
      const bool passed = node.in[k] >= 0 && node.op->passes_gradient().contains(k) &&
                          s.grad_in[k].buffer < 0 && !s.grad_out.empty() && s.grad_out[0] >= 0;
      if (passed && values[node.in[k]].wants_grad)
        holds[node.in[k]] = {s.grad_out[0], version[s.grad_out[0]]};
    }
    for (std::size_t k = 0; k < node.in.size(); ++k)
      if (const int b = s.grad_in[k].buffer; b >= 0) {
        if (std::ranges::find(s.grad_out, b) != s.grad_out.end())
          internal_error(node.name + " writes " + describe(p, b) + " while it reads it");
        holds[node.in[k]] = {b, ++version[b]};
      }
  }
}

}  // namespace

void verify(const Program& program) {
  check_overlap(program);
  check_sections(program);
  check_order(program);
  check_shared(program);
  verify_exchanges(program);
}

}  // namespace tfm::graph
