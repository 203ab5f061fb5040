#include <algorithm>
#include <map>
#include <set>

#include "graph/verify_impl.h"

namespace tfm::graph {
namespace {

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

// The members of a bucket's buffer must lie at their offsets, and nothing may touch the buffer
// during the exchange.
void check_bucket(const Program& p, const Exchange& x, int start, int wait) {
  const bool parameters = x.of == Exchange::Of::parameters, shares = x.of == Exchange::Of::shares;
  const Summed summed = p.sharded().summed;
  if (x.of == Exchange::Of::updated) return;
  if ((x.buffer >= 0) != (parameters ? p.sharded().parameters
                          : shares   ? summed == Summed::every_run_over_replicas
                                     : summed != Summed::at_last))
    internal_error("a bucket is in a buffer that was not to be, or is not");
  if (x.buffer < 0) return;
  const DType type = parameters ? p.recording().dtype() : accum_type(p.recording().dtype());
  const auto element = size_of(type);
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
      const Instruction& s = p.instructions()[i];
      if (std::ranges::count(parameters ? s.out : s.in, x.buffer) != 1)
        internal_error("a bucket's buffer is not live while it is exchanged");
      continue;
    }
    for_each_buffer(p.instructions()[i], [&](int b) {
      if (b == x.buffer || p.buffers()[b].within == x.buffer)
        internal_error(describe(p, b) + " is touched while its bucket is exchanged");
    });
  }
}

// Every collective must start once and be waited for once, after its start and right before the
// pass's next stage. Steps between them must not touch its tensors, except that they may read what
// the pass reads and that Op::beside() of the pass may run.
void check_exchanges(const Program& p) {
  using Kind = Instruction::Kind;
  std::vector<int> starts(p.exchanges().size(), -1), waits = starts;
  for (int i = 0; i < static_cast<int>(p.instructions().size()); ++i) {
    const Instruction& s = p.instructions()[i];
    if (s.kind == Kind::compute) continue;
    auto& at = s.kind == Kind::start ? starts : waits;
    if (at[s.exchange] >= 0) internal_error("a collective is run twice");
    at[s.exchange] = i;
  }
  for (std::size_t x = 0; x < starts.size(); ++x) {
    if (starts[x] < 0 || waits[x] < starts[x] || (x > 0 && starts[x] < starts[x - 1]) ||
        starts[x] != p.exchanges()[x].start || waits[x] != p.exchanges()[x].wait)
      internal_error("a collective is out of order");
    const Instruction& start = p.instructions()[starts[x]];
    const Exchange& of = p.exchanges()[x];
    if (of.call != declared(p, of, start))
      internal_error("a collective is not the one that was declared");
    if (of.bucket >= 0) {
      check_bucket(p, of, starts[x], waits[x]);
      continue;
    }
    const std::string& node = p.recording().nodes()[start.node].name;
    const auto stage = [&](int step, int k) {
      const Instruction& s = p.instructions()[step];
      if (s.kind != Kind::compute || s.node != start.node || s.phase != start.phase ||
          s.stage != k || s.beside)
        internal_error("a stage of " + node + " is missing");
    };
    const int k = static_cast<int>(p.exchanges()[x].k);
    const auto beside = [&](int step) {
      const Instruction& s = p.instructions()[step];
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
      const Instruction& s = p.instructions()[i];
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

// Every bucket must be reduced once, after the steps that write its gradients. Every gradient must
// be written unless it is listed in parameters_without_gradient().
void check_reductions(const Program& p) {
  std::vector<int> times(p.buckets().size());
  const auto reduces = [](const Exchange& x) { return x.of == Exchange::Of::gradients; };
  for (const Exchange& x : p.exchanges())
    if (reduces(x)) ++times[static_cast<std::size_t>(x.bucket)];
  std::map<int, int> summed_at;  // by bucket: wait of its reduction
  for (const Exchange& x : p.exchanges()) {
    if (reduces(x)) summed_at[x.bucket] = x.wait;
    if (x.of != Exchange::Of::shares) continue;
    const auto found = summed_at.find(x.bucket);
    if (found == summed_at.end() || found->second > x.start)
      internal_error("replicas add up a bucket before it is reduced");
    found->second = static_cast<int>(p.instructions().size());  // once
  }
  for (std::size_t b = 0; b < p.buckets().size(); ++b)
    if (const auto found = summed_at.find(static_cast<int>(b));
        p.buckets()[b].across.bytes > 0 &&
        (found == summed_at.end() || found->second < static_cast<int>(p.instructions().size())))
      internal_error("replicas do not add up a bucket");
  const auto wanted = [](const BucketUse& b) { return b.reduce.bytes > 0; };
  for (std::size_t b = 0; b < times.size(); ++b)
    if (times[b] != wanted(p.buckets()[b])) internal_error("a bucket is not reduced exactly once");
  if (std::ranges::any_of(p.buckets(), wanted)) {
    std::set<int> written;
    for (const Instruction& s : p.instructions())
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
  for (int i = 0; i < static_cast<int>(p.instructions().size()); ++i)
    for (const GradRef& g : p.instructions()[i].grad_in) {
      if (g.buffer < 0) continue;
      const int parameter = p.recording().values()[p.buffers()[g.buffer].value].parameter;
      if (auto it = reduced_at.find(parameter); it != reduced_at.end() && it->second < i)
        internal_error(describe(p, g.buffer) + " is written after its bucket was reduced");
    }
}

// No step may read a parameter before its last update has been gathered.
void check_updated(const Program& p) {
  if (p.sharded().parameters) return;
  std::vector<int> gathered_at(p.buckets().size(), static_cast<int>(p.instructions().size()));
  for (const Exchange& x : p.exchanges())
    if (x.of == Exchange::Of::updated) gathered_at[x.bucket] = x.wait;
  std::map<int, int> whole_from;  // by parameter: step from which it is whole
  for (std::size_t b = 0; b < p.buckets().size(); ++b)
    for (const BucketUse::Member& m : p.buckets()[b].members)
      if (p.buckets()[b].gather.bytes > 0)
        whole_from[m.parameter] = std::max(whole_from[m.parameter], gathered_at[b]);
  for (int i = 0; i < static_cast<int>(p.instructions().size()); ++i)
    for (const int b : p.instructions()[i].in) {
      if (b < 0 || p.buffers()[b].value < 0) continue;
      const ValueInfo& v = p.recording().values()[p.buffers()[b].value];
      if (const auto it = whole_from.find(v.parameter);
          it != whole_from.end() && !v.borrowed && i < it->second)
        internal_error(v.name + " is read before its update is gathered");
    }
}

}  // namespace

void verify_exchanges(const Program& program) {
  check_exchanges(program);
  check_reductions(program);
  check_updated(program);
}

}  // namespace tfm::graph
