#include <algorithm>
#include <map>
#include <set>

#include "graph/planner.h"

namespace tfm::graph {
namespace {

// Live ranges are derived again from the steps alone, not taken from the planner.
struct LiveRange {
  int first = -1, last = -1;
};

std::string describe(const Program& p, int buffer) {
  const Buffer& b = p.buffers()[buffer];
  return b.value < 0 ? "a workspace"
                     : p.recording().values()[b.value].name +
                           (b.kind == Buffer::Kind::gradient ? " (gradient)" : "");
}

std::vector<LiveRange> live_ranges(const Program& p) {
  std::vector<LiveRange> ranges(p.buffers().size());
  for (int i = 0; i < static_cast<int>(p.steps().size()); ++i) {
    const Instruction& s = p.steps()[i];
    const bool joined = p.joined(static_cast<std::size_t>(i));
    for_each_buffer(s, [&](int b) {
      if (ranges[b].first < 0) ranges[b].first = i;
      ranges[b].last = i + joined;
    });
  }
  for (std::size_t b = 0; b < ranges.size();
       ++b) {  // what a caller writes before or reads after the run
    const Buffer& buf = p.buffers()[b];
    if (buf.last >= static_cast<int>(p.steps().size())) ranges[b].last = buf.last;
    if (buf.seeded) ranges[b].first = 0;
  }
  return ranges;
}

void check_overlap(const Program& p) {
  const auto ranges = live_ranges(p);
  std::multimap<int, int> starts;
  for (std::size_t b = 0; b < ranges.size(); ++b)
    if (!p.buffers()[b].persistent && ranges[b].first >= 0)
      starts.emplace(ranges[b].first, static_cast<int>(b));
  std::set<int> alive;
  for (const auto& [first, b] : starts) {
    std::erase_if(alive, [&, at = first](int other) { return ranges[other].last < at; });
    const Buffer& x = p.buffers()[b];
    if (x.offset % 64 != 0 || x.offset + x.bytes > p.arena_bytes())
      internal_error(describe(p, b) + " lies outside the arena");
    for (int other : alive) {
      const Buffer& y = p.buffers()[other];
      if (x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes)
        internal_error(describe(p, b) + " and " + describe(p, other) +
                       " share memory while both are live");
    }
    alive.insert(b);
  }
}

void check_order(const Program& p) {
  std::set<int> written;
  for (std::size_t b = 0; b < p.buffers().size(); ++b)
    if ((p.buffers()[b].persistent && p.buffers()[b].kind == Buffer::Kind::value) ||
        p.buffers()[b].seeded)
      written.insert(static_cast<int>(b));
  std::set<int> reduced;
  for (const Instruction& s : p.steps()) {
    if (s.phase == Phase::reduce) {
      if (!reduced.insert(s.bucket).second)
        internal_error("bucket " + std::to_string(s.bucket) + " is reduced twice");
      continue;
    }
    const std::string& node = p.recording().nodes()[s.node].name;
    if (s.join != Join::no &&
        (!s.pair || &s == &p.steps()[0] || (&s)[-1].phase != s.phase || (&s)[-1].join != Join::no))
      internal_error(node + " is joined with a step that it cannot be run with");
    if (s.join != Join::no && (&s)[-1].scratch >= 0 &&
        (s.scratch < 0 || p.buffers()[s.scratch].bytes < p.buffers()[(&s)[-1].scratch].bytes))
      internal_error(node + " lacks the scratch memory of the step that it is joined with");
    for (int b : s.in)
      if (b >= 0 && !written.contains(b))
        internal_error(node + " reads " + describe(p, b) + " before it is written");
    const bool one_pass = p.recording().nodes()[s.node].op->forward_with_backward();
    for (int b : s.out)
      if (b >= 0 && s.phase == Phase::backward && !one_pass && !written.contains(b))
        internal_error(node + " reads " + describe(p, b) + " before it is written");
    for (int b : s.grad_out)
      if (b >= 0 && !written.contains(b))
        internal_error(node + " reads " + describe(p, b) + " before it is written");
    for (int b : s.out) written.insert(b);
    for (const GradRef& g : s.grad_in) {
      if (g.buffer < 0) continue;
      if (g.accumulate != written.contains(g.buffer))
        internal_error(node + (g.accumulate ? " adds to " : " overwrites ") +
                       describe(p, g.buffer));
      written.insert(g.buffer);
    }
  }
}

// A gradient that values share by Op::passes_gradient still holds what was added up for a value
// when its producer reads it.
void check_shared(const Program& p) {
  const auto& values = p.recording().values();
  std::map<int, int> version;  // of a buffer: writes to it so far
  std::map<int, std::pair<int, int>>
      holds;  // by value: its gradient's buffer, and the version that is its own
  for (const Instruction& s : p.steps()) {
    if (s.phase != Phase::backward) continue;
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

void check_reductions(const Program& p, const std::vector<BucketUse>& buckets) {
  std::map<int, std::size_t> reduced_at;
  for (std::size_t i = 0; i < p.steps().size(); ++i)
    if (p.steps()[i].phase == Phase::reduce)
      for (int parameter : buckets[p.steps()[i].bucket].parameters) {
        auto [it, fresh] = reduced_at.emplace(parameter, i);
        if (!fresh) it->second = std::min(it->second, i);
      }
  for (std::size_t i = 0; i < p.steps().size(); ++i)
    for (const GradRef& g : p.steps()[i].grad_in) {
      if (g.buffer < 0 || !p.buffers()[g.buffer].persistent) continue;
      const int parameter = p.recording().values()[p.buffers()[g.buffer].value].parameter;
      if (auto it = reduced_at.find(parameter); it != reduced_at.end() && it->second < i)
        internal_error(describe(p, g.buffer) + " is written after its bucket was reduced");
    }
}

}  // namespace

void verify(const Program& program) {
  check_overlap(program);
  check_order(program);
  check_shared(program);
  check_reductions(program, program.buckets());
}

}  // namespace tfm::graph
