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
  if (b.kind == Buffer::Kind::bucket) return "a bucket";
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
      for (; b >= 0; b = p.buffers()[b].within) {
        if (ranges[b].first < 0) ranges[b].first = i;
        ranges[b].last = i + joined;
      }
    });
  }
  for (std::size_t b = 0; b < ranges.size();
       ++b) {  // what a caller writes before or reads after the run
    const Buffer& buf = p.buffers()[b];
    if (buf.kept) ranges[b].last = static_cast<int>(p.steps().size());
    if (buf.seeded) ranges[b].first = 0;
    if (buf.lasting) ranges[b] = {0, static_cast<int>(p.steps().size())};
  }
  return ranges;
}

// Whether all that `x` takes in front of the arena is memory of gradients.
bool lies_on_gradients(const Program& p, const Buffer& x) {
  if (x.in_front) return x.offset >= -p.bytes_in_front() && x.offset + x.bytes <= 0;
  const std::int64_t end = std::min<std::int64_t>(0, x.offset + x.bytes);
  std::int64_t rest = std::max<std::int64_t>(0, end - x.offset);
  if (rest > 0)
    for (const Buffer& g : p.buffers())
      if (g.in_front)
        rest -= std::max<std::int64_t>(
            0, std::min(end, g.offset + g.bytes) - std::max(x.offset, g.offset));
  return rest == 0;
}

void check_overlap(const Program& p) {
  const auto ranges = live_ranges(p);
  std::vector<int> by_start;
  for (std::size_t b = 0; b < ranges.size(); ++b)
    if ((p.buffers()[b].in_arena() || p.buffers()[b].in_front) && ranges[b].first >= 0)
      by_start.push_back(static_cast<int>(b));
  std::ranges::stable_sort(by_start, {}, [&](int b) { return ranges[b].first; });
  struct Alive {
    int buffer, last;
    std::int64_t begin, end;
  };
  std::vector<Alive> alive;
  for (const int b : by_start) {
    std::erase_if(alive, [&](const Alive& other) { return other.last < ranges[b].first; });
    const Buffer& x = p.buffers()[b];
    const std::int64_t at = p.place_of(x),
                       end = x.carried ? p.arena_bytes() - (p.slots() - 1) * p.slot_bytes()
                                       : p.arena_bytes() - p.slots() * p.slot_bytes();
    if (x.offset % 64 != 0 || at + x.bytes > end || !lies_on_gradients(p, x))
      internal_error(describe(p, b) + " lies outside its part of the arena");
    for (const Alive& other : alive)
      if (at < other.end && other.begin < at + x.bytes)
        internal_error(describe(p, b) + " and " + describe(p, other.buffer) +
                       " share memory while both are live");
    alive.push_back({b, ranges[b].last, at, at + x.bytes});
  }
}

// A program of sections: none changes what another one of the same micro-batch reads.
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
  for (std::size_t i = 1; i < p.steps().size(); ++i)
    if (p.steps()[i].section < p.steps()[i - 1].section)
      internal_error("the sections are out of order");
  // What is in a program's own memory is exchanged within a section.
  for (const Exchange& x : p.exchanges())
    if ((x.bucket < 0 || x.buffer >= 0) && crosses(x.start, x.wait))
      internal_error("a collective is under way between the sections");
}

const Op& op_of(const Program& p, const Instruction& s) {
  return *p.recording().nodes()[s.node].op;
}

// A pass reads with its first step and has written with its last one; between them are its stages.
bool begins(const Instruction& s) {
  return s.kind == Instruction::Kind::compute && s.stage == 0 && !s.beside;
}
bool ends(const Program& p, const Instruction& s) {
  return s.kind == Instruction::Kind::compute && !s.beside &&
         s.stage == static_cast<int>(op_of(p, s).exchanges(s.phase).size());
}

bool makes_outputs(const Program& p, const Instruction& s) {
  return s.phase != Phase::backward || op_of(p, s).forward_with_backward();
}

// A later stage stands right behind the wait of the collective in front of it.
void check_stage(const Program& p, std::size_t i) {
  const Instruction& s = p.steps()[i];
  if (s.stage == 0 || s.beside) return;
  const Instruction& wait = p.steps()[i - 1];
  if (wait.kind != Instruction::Kind::wait || wait.node != s.node || wait.phase != s.phase ||
      static_cast<int>(p.exchanges()[wait.exchange].k) + 1 != s.stage)
    internal_error("a collective of " + p.recording().nodes()[s.node].name + " is missing");
}

void check_joined(const Program& p, std::size_t i) {
  const Instruction& s = p.steps()[i];
  if (!s.pair) return;
  const std::string& node = p.recording().nodes()[s.node].name;
  if (i == 0 || p.steps()[i - 1].phase != s.phase || p.steps()[i - 1].pair || !begins(s) ||
      !ends(p, s) || !begins(p.steps()[i - 1]) || !ends(p, p.steps()[i - 1]))
    internal_error(node + " is joined with a step that it cannot be run with");
  const Instruction& before = p.steps()[i - 1];
  if (before.scratch >= 0 &&
      (s.scratch < 0 || p.buffers()[s.scratch].bytes < p.buffers()[before.scratch].bytes))
    internal_error(node + " lacks the scratch memory of the step that it is joined with");
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
  for (std::size_t i = 0; i < p.steps().size(); ++i) {
    const Instruction& s = p.steps()[i];
    if (s.kind == Instruction::Kind::wait && s.phase == Phase::gather)
      for (int b : s.out) written[b] = true;
    if (s.kind != Instruction::Kind::compute) continue;
    check_stage(p, i);
    check_joined(p, i);
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

comm::CollectiveCall declared(const Program& p, const Exchange& x, const Instruction& start) {
  switch (x.of) {
    case Exchange::Of::pass:
      return op_of(p, start).exchanges(start.phase).at(x.k);
    case Exchange::Of::parameters:
    case Exchange::Of::updated:
      return p.buckets().at(x.bucket).gather;
    case Exchange::Of::gradients:
      return p.buckets().at(x.bucket).reduce;
    case Exchange::Of::shares:
      return p.buckets().at(x.bucket).across;
  }
  internal_error("unhandled enum value");
}

// Of what is exchanged as one: every view lies where its bucket has it, in a buffer of that bucket
// which nothing else touches during the exchange.
void check_bucket(const Program& p, const Exchange& x, int start, int wait) {
  const bool parameters = x.of == Exchange::Of::parameters;
  if (x.of == Exchange::Of::shares || x.of == Exchange::Of::updated) return;
  if ((x.buffer >= 0) != (parameters ? p.sharded().parameters : p.sharded().gradients))
    internal_error("a bucket is sharded that was not to be, or is not");
  if (x.buffer < 0) return;
  const DType type = parameters ? p.recording().dtype() : accum_type(p.recording().dtype());
  const auto element = static_cast<std::int64_t>(size_of(type));
  const BucketUse& bucket = p.buckets()[x.bucket];
  if (p.buffers()[x.buffer].bytes != bucket.elements * element)
    internal_error("a bucket's buffer is of another size");
  for (const Buffer& b : p.buffers()) {
    if (b.within != x.buffer) continue;
    const ValueInfo& value = p.recording().values()[b.value];
    const auto found =
        std::ranges::find(bucket.members, value.parameter, &BucketUse::Member::parameter);
    if (found == bucket.members.end() ||
        b.offset != p.buffers()[x.buffer].offset + found->offset * element || found->offset < 0 ||
        found->offset + value.shape.elements() > bucket.elements)
      internal_error(value.name + " lies outside of its bucket");
  }
  for (int i = start; i <= wait; ++i) {
    if (i == start || i == wait) {
      const Instruction& s = p.steps()[i];
      if (std::ranges::count(parameters ? s.out : s.in, x.buffer) != 1)
        internal_error("a bucket's buffer is not live while it is exchanged");
      continue;
    }
    for_each_buffer(p.steps()[i], [&](int b) {
      if (b == x.buffer || p.buffers()[b].within == x.buffer)
        internal_error(describe(p, b) + " is touched while its bucket is exchanged");
    });
  }
}

// Every collective starts once and is waited for once, behind it and in front of its pass's next
// stage; what is between these two steps does not touch its tensors, but for reading what its pass
// reads, and for what that computes beside it.
void check_exchanges(const Program& p) {
  using Kind = Instruction::Kind;
  std::vector<int> starts(p.exchanges().size(), -1), waits = starts;
  for (int i = 0; i < static_cast<int>(p.steps().size()); ++i) {
    const Instruction& s = p.steps()[i];
    if (s.kind == Kind::compute) continue;
    auto& at = s.kind == Kind::start ? starts : waits;
    if (at[s.exchange] >= 0) internal_error("a collective is run twice");
    at[s.exchange] = i;
  }
  for (std::size_t x = 0; x < starts.size(); ++x) {
    if (starts[x] < 0 || waits[x] < starts[x] || (x > 0 && starts[x] < starts[x - 1]) ||
        starts[x] != p.exchanges()[x].start || waits[x] != p.exchanges()[x].wait)
      internal_error("a collective is out of order");
    const Instruction& start = p.steps()[starts[x]];
    const Exchange& of = p.exchanges()[x];
    if (of.call != declared(p, of, start))
      internal_error("a collective is not the one that was declared");
    if (of.bucket >= 0) {
      check_bucket(p, of, starts[x], waits[x]);
      continue;
    }
    const std::string& node = p.recording().nodes()[start.node].name;
    const auto stage = [&](int step, int k) {
      const Instruction& s = p.steps()[step];
      if (s.kind != Kind::compute || s.node != start.node || s.phase != start.phase ||
          s.stage != k || s.beside)
        internal_error("a stage of " + node + " is missing");
    };
    const int k = static_cast<int>(p.exchanges()[x].k);
    const auto beside = [&](int step) {
      const Instruction& s = p.steps()[step];
      return s.beside && s.node == start.node && s.phase == start.phase && s.stage == k;
    };
    const bool before = beside(starts[x] - 1);
    stage(starts[x] - 1 - before, k);
    stage(waits[x] + 1, k + 1);
    int times = before;
    for (int i = starts[x] + 1; i < waits[x]; ++i) times += beside(i);
    if (times != (op_of(p, start).share_beside(start.phase, of.k) > 0))
      internal_error("what " + node + " computes beside a collective is missing");
    std::set<int> read, made;
    for (const GradRef& g : start.grad_in) made.insert(g.buffer);
    for (int b : {start.workspace, start.scratch}) made.insert(b);
    for (int b : start.out) (makes_outputs(p, start) ? made : read).insert(b);
    for (const auto* some : {&start.in, &start.grad_out}) read.insert(some->begin(), some->end());
    for (int i = starts[x] + 1; i < waits[x]; ++i) {
      const Instruction& s = p.steps()[i];
      if (beside(i)) continue;
      for_each_buffer(s, [&](int b) {
        if (made.contains(b))
          internal_error(describe(p, b) + " is touched while a collective of " + node + " uses it");
      });
      for (int b : s.out)
        if (b >= 0 && makes_outputs(p, s) && read.contains(b))
          internal_error(describe(p, b) + " is written while a collective of " + node +
                         " reads it");
      for (const GradRef& g : s.grad_in)
        if (g.buffer >= 0 && read.contains(g.buffer))
          internal_error(describe(p, g.buffer) + " is written while a collective of " + node +
                         " reads it");
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

// Every bucket is reduced once, behind the steps that write its gradients; every gradient of a
// parameter is written that is said to be.
void check_reductions(const Program& p) {
  std::vector<int> times(p.buckets().size());
  const auto reduces = [](const Exchange& x) { return x.of == Exchange::Of::gradients; };
  for (const Exchange& x : p.exchanges())
    if (reduces(x)) ++times[static_cast<std::size_t>(x.bucket)];
  std::map<int, int> summed_at;  // of a bucket: by its replica
  for (const Exchange& x : p.exchanges()) {
    if (reduces(x)) summed_at[x.bucket] = x.wait;
    if (x.of != Exchange::Of::shares) continue;
    const auto found = summed_at.find(x.bucket);
    if (found == summed_at.end() || found->second > x.start)
      internal_error("replicas add up a bucket before it is reduced");
    found->second = static_cast<int>(p.steps().size());  // once
  }
  for (std::size_t b = 0; b < p.buckets().size(); ++b)
    if (const auto found = summed_at.find(static_cast<int>(b));
        p.buckets()[b].across.bytes > 0 &&
        (found == summed_at.end() || found->second < static_cast<int>(p.steps().size())))
      internal_error("replicas do not add up a bucket");
  const auto wanted = [](const BucketUse& b) { return b.reduce.bytes > 0; };
  for (std::size_t b = 0; b < times.size(); ++b)
    if (times[b] != wanted(p.buckets()[b])) internal_error("a bucket is not reduced exactly once");
  if (std::ranges::any_of(p.buckets(), wanted)) {
    std::set<int> written;
    for (const Instruction& s : p.steps())
      for (const GradRef& g : s.grad_in)
        if (g.buffer >= 0) written.insert(p.buffers()[g.buffer].value);
    const std::vector<int> without = p.parameters_without_gradient();
    for (std::size_t v = 0; v < p.recording().values().size(); ++v) {
      const ValueInfo& value = p.recording().values()[v];
      if (value.parameter >= 0 && !written.contains(static_cast<int>(v)) &&
          std::ranges::find(without, value.parameter) == without.end())
        internal_error("the gradient of " + value.name + " is not written");
    }
  }
  std::map<int, int> reduced_at;
  for (const Exchange& x : p.exchanges())
    if (reduces(x))
      for (const BucketUse::Member& m : p.buckets()[x.bucket].members) {
        auto [it, fresh] = reduced_at.emplace(m.parameter, x.start);
        if (!fresh) it->second = std::min(it->second, x.start);
      }
  for (int i = 0; i < static_cast<int>(p.steps().size()); ++i)
    for (const GradRef& g : p.steps()[i].grad_in) {
      if (g.buffer < 0) continue;
      const int parameter = p.recording().values()[p.buffers()[g.buffer].value].parameter;
      if (auto it = reduced_at.find(parameter); it != reduced_at.end() && it->second < i)
        internal_error(describe(p, g.buffer) + " is written after its bucket was reduced");
    }
}

// Nothing reads a parameter before its last update has been gathered.
void check_updated(const Program& p) {
  if (p.sharded().parameters) return;
  std::vector<int> gathered_at(p.buckets().size(), static_cast<int>(p.steps().size()));
  for (const Exchange& x : p.exchanges())
    if (x.of == Exchange::Of::updated) gathered_at[x.bucket] = x.wait;
  std::map<int, int> whole_from;  // of a parameter: step
  for (std::size_t b = 0; b < p.buckets().size(); ++b)
    for (const BucketUse::Member& m : p.buckets()[b].members)
      if (p.buckets()[b].gather.bytes > 0)
        whole_from[m.parameter] = std::max(whole_from[m.parameter], gathered_at[b]);
  for (int i = 0; i < static_cast<int>(p.steps().size()); ++i)
    for (const int b : p.steps()[i].in) {
      if (b < 0 || p.buffers()[b].value < 0) continue;
      const ValueInfo& v = p.recording().values()[p.buffers()[b].value];
      if (const auto it = whole_from.find(v.parameter);
          it != whole_from.end() && !v.borrowed && i < it->second)
        internal_error(v.name + " is read before its update is gathered");
    }
}

}  // namespace

void verify(const Program& program) {
  check_overlap(program);
  check_sections(program);
  check_order(program);
  check_exchanges(program);
  check_shared(program);
  check_reductions(program);
  check_updated(program);
}

}  // namespace tfm::graph
