// Start and wait steps of a program's collectives.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "graph/planner_impl.h"

namespace tfm::graph {

// Whether a pass makes gradients of parameters that can be computed while the next pass
// communicates.
bool Planner::has_time_beside(const Instruction& s, const Instruction& next) const {
  const auto makes = [&](bool parameter) {
    return std::ranges::any_of(s.grad_in, [&](const GradRef& g) {
      return g.buffer >= 0 && program_.buffers_[g.buffer].persistent == parameter;
    });
  };
  return options_.overlap && s.phase == Phase::backward && next.phase == Phase::backward &&
         s.section == next.section && !s.fusion && !next.fusion && op_of(s).parameters_apart() &&
         makes(true) && makes(false) && !calls_of(next).empty() &&
         !depend(only(s, Instruction::Gradients::of_parameters), next);
}

Instruction Planner::only(Instruction s, Instruction::Gradients gradients) const {
  s.gradients = gradients;
  for (GradRef& g : s.grad_in)
    if (g.buffer >= 0 && program_.buffers_[g.buffer].persistent !=
                             (gradients == Instruction::Gradients::of_parameters))
      g = {};
  return s;
}

// Until here, a step is a whole pass of a node. Without overlap, Op::beside() runs before its
// collective starts.
void Planner::cut_into_stages() {
  using Kind = Instruction::Kind;
  using Gradients = Instruction::Gradients;
  std::vector<Instruction> passes = std::exchange(program_.instructions_, {});
  std::optional<Instruction> beside;  // runs while the next pass communicates
  std::vector<Instruction>& steps = program_.instructions_;
  steps.reserve(passes.size());
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const bool apart = i + 1 < passes.size() && has_time_beside(passes[i], passes[i + 1]);
    Instruction s = apart ? only(passes[i], Gradients::of_activations) : std::move(passes[i]);
    std::size_t k = 0;
    for (comm::CollectiveCall call : calls_of(s)) {
      if (call.purpose == comm::Purpose::none) call.purpose = nodes_[s.node].purpose;
      steps.push_back(s);
      program_.exchanges_.push_back({.call = call, .k = k});
      Instruction at = s;
      at.exchange = static_cast<int>(program_.exchanges_.size()) - 1;
      at.kind = Kind::start;
      steps.push_back(at);
      if (beside) steps.push_back(*std::exchange(beside, {}));
      if (op_of(s).share_beside(s.phase, k) > 0) {
        s.beside = true;
        steps.insert(options_.overlap ? steps.end() : steps.end() - 1, s);
        s.beside = false;
      }
      at.kind = Kind::wait;
      steps.push_back(at);
      s.stage = static_cast<int>(++k);
    }
    steps.push_back(std::move(s));
    if (apart) beside = only(passes[i], Gradients::of_parameters);
  }
}

// Whether the steps touch a common buffer that one of them writes.
bool Planner::depend(const Instruction& a, const Instruction& b) const {
  const auto writes = [&](const Instruction& s, int buffer) {
    const bool makes = s.phase != Phase::backward || op_of(s).forward_with_backward();
    return buffer == s.workspace || buffer == s.scratch ||
           (makes && std::ranges::find(s.out, buffer) != s.out.end()) ||
           std::ranges::find(s.grad_in, buffer, &GradRef::buffer) != s.grad_in.end();
  };
  bool found = false;
  for_each_buffer(a, [&](int x) {
    for_each_buffer(b, [&](int y) { found |= x == y && (writes(a, x) || writes(b, x)); });
  });
  return found;
}

// Moves the wait of a pass's only collective, and the stage after it, to the first step that
// depends on them.
void Planner::wait_late() {
  std::vector<Instruction>& steps = program_.instructions_;
  for (std::size_t i = steps.size(); i-- > 0;) {
    if (steps[i].kind != Instruction::Kind::wait || calls_of(steps[i]).size() > 1) continue;
    std::size_t next = i + 2;
    const auto free = [&](std::size_t at) {
      if (options_.slots > 0 && steps[i].section != steps[at].section) return false;
      return !depend(steps[i], steps[at]);  // the stage has the buffers of its wait
    };
    while (next < steps.size() && free(next) && (!program_.fused_with_next(next) || free(next + 1)))
      next += program_.fused_with_next(next) ? 2 : 1;
    std::rotate(steps.begin() + static_cast<std::ptrdiff_t>(i),
                steps.begin() + static_cast<std::ptrdiff_t>(i) + 2,
                steps.begin() + static_cast<std::ptrdiff_t>(next));
  }
}

Planner::Home Planner::home_of(int v) const {
  const auto p = static_cast<std::size_t>(values_[v].parameter);
  if (p < homes_.size() && homes_[p].bucket >= 0) return homes_[p];
  internal_error("no bucket holds " + values_[v].name);
}

int Planner::bucket_buffer(int bucket, DType type) {
  return buffer(Buffer::Kind::bucket, -1, options_.buckets[bucket].elements * size_of(type), false);
}

// Puts a parameter, or its gradient, into a bucket's buffer.
void Planner::put_within(int b, int bucket_buffer, DType type) {
  Buffer& part = program_.buffers_[b];
  part.persistent = false;
  part.within = bucket_buffer;
  part.offset = home_of(part.value).offset * size_of(type);
}

// Places whole gradients in front of the arena. They are live from their first writers on.
void Planner::put_in_front() {
  const auto element = size_of(accum_type(program_.recording_->dtype()));
  for (std::size_t v = 0; v < values_.size(); ++v) {
    if (values_[v].role != Role::parameter || values_[v].borrowed || !written_[v]) continue;
    const Home home = home_of(static_cast<int>(v));
    Buffer& b = program_.buffers_[gradient_[v]];
    b.in_front = b.kept = true;
    b.offset =
        (options_.buckets[home.bucket].begin + home.offset) * element - options_.gradients_in_front;
  }
}

Instruction Planner::add_exchange(Exchange x) {
  const bool gathers = x.of == Exchange::Of::parameters || x.of == Exchange::Of::updated;
  Instruction s{.kind = Instruction::Kind::start,
                .phase = gathers ? Phase::gather : Phase::reduce,
                .exchange = static_cast<int>(program_.exchanges_.size())};
  if (x.buffer >= 0) (gathers ? s.out : s.in).push_back(x.buffer);
  program_.exchanges_.push_back(x);
  return s;
}

void Planner::find_visits() {
  const auto& steps = program_.instructions_;
  visits_.clear();
  for (std::size_t i = 0; i < steps.size(); ++i)
    while (std::ssize(visits_) <= steps[i].visit) visits_.push_back(steps[i].fusion ? i - 1 : i);
}

// Index of the first step of a visit, clamped to the program.
std::size_t Planner::first_of_visit(int visit) const {
  if (visit < 0) return 0;
  const auto at = static_cast<std::size_t>(visit);
  return at < visits_.size() ? visits_[at] : program_.instructions_.size();
}

// The first step of the section of step `at`, or of the program if it runs as a whole.
std::size_t Planner::begin_of_run(std::size_t at) const {
  const auto& steps = program_.instructions_;
  if (options_.slots == 0) return 0;
  const auto first = std::ranges::lower_bound(steps, steps[at].section, {}, &Instruction::section);
  return static_cast<std::size_t>(first - steps.begin());
}

// One past the last step of the section to which step at - 1 belongs.
std::size_t Planner::end_of_section(std::size_t at) const {
  const auto& steps = program_.instructions_;
  while (at < steps.size() && steps[at].section == program_.section_at(static_cast<int>(at) - 1))
    ++at;
  return at;
}

// Inserts instructions before each step and after the last one.
void Planner::insert(std::vector<std::vector<Instruction>> before) {
  std::size_t count = program_.instructions_.size();
  for (const std::vector<Instruction>& some : before) count += some.size();
  std::vector<Instruction> all;
  all.reserve(count);
  for (std::size_t i = 0; i < before.size(); ++i) {
    std::ranges::move(before[i], std::back_inserter(all));
    if (i < program_.instructions_.size()) all.push_back(std::move(program_.instructions_[i]));
  }
  program_.instructions_ = std::move(all);
}

// Inserts the starts and waits of gathers. Without overlap, each wait follows its start.
void Planner::insert(std::vector<std::vector<Instruction>> starts,
                     const std::vector<std::vector<Instruction>>& waits) {
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if (options_.overlap) {
      std::ranges::copy(waits[i], std::back_inserter(starts[i]));
      continue;
    }
    std::vector<Instruction> both;
    for (std::size_t k = 0; k < starts[i].size(); ++k)
      both.insert(both.end(), {starts[i][k], waits[i][k]});
    starts[i] = std::move(both);
  }
  insert(std::move(starts));
}

// Gathers sharded parameters for each visit of a layer that uses them, unless the previous visit
// has gathered them. With overlap, the gather starts at the beginning of the previous visit.
void Planner::insert_gathers() {
  struct Gathered {
    int buffer = -1, visit = -1, section = 0;
  };
  const DType type = program_.recording_->dtype();
  std::vector<Instruction>& steps = program_.instructions_;
  std::vector<Gathered> now(options_.buckets.size());
  std::map<std::pair<int, int>, int> views;  // by the bucket's buffer and the value
  std::vector<std::vector<Instruction>> starts(steps.size() + 1), waits = starts;
  find_visits();
  for (std::size_t i = 0; i < steps.size(); ++i)
    for (int& b : steps[i].in) {
      const int v = b < 0 ? -1 : program_.buffers_[b].value;
      if (v < 0 || values_[v].role != Role::parameter || values_[v].borrowed) continue;
      const int bucket = home_of(v).bucket;
      Gathered& g = now[static_cast<std::size_t>(bucket)];
      if (g.buffer < 0 || steps[i].visit > g.visit + 1 ||
          (options_.slots > 0 && steps[i].section != g.section)) {
        g.section = steps[i].section;
        g.buffer = bucket_buffer(bucket, type);
        Instruction s = add_exchange({.call = options_.buckets[bucket].gather,
                                      .of = Exchange::Of::parameters,
                                      .bucket = bucket,
                                      .buffer = g.buffer});
        s.section = steps[i].section;
        const std::size_t at = steps[i].fusion ? i - 1 : i;
        starts[options_.overlap ? std::max(first_of_visit(steps[i].visit - 1), begin_of_run(i))
                                : at]
            .push_back(s);
        s.kind = Instruction::Kind::wait;
        waits[at].push_back(s);
      }
      g.visit = std::max(g.visit, steps[i].visit);
      auto [found, fresh] = views.emplace(std::pair(g.buffer, v), -1);
      if (fresh) {
        found->second = buffer(Buffer::Kind::value, v, values_[v].bytes(), false);
        put_within(found->second, g.buffer, type);
      }
      b = found->second;
    }
  insert(std::move(starts), waits);
}

// Gathers the parameters that the last update left in shares, into their own memory, before the
// first step that reads them. With overlap, all gathers start with the program or the section.
void Planner::gather_updated() {
  const std::vector<Instruction>& steps = program_.instructions_;
  std::vector<std::size_t> reader;  // by parameter: the first step that reads it
  for (std::size_t i = steps.size(); i-- > 0;)
    for (const int b : steps[i].in) {
      const int p = b < 0 ? -1 : values_[program_.buffers_[b].value].parameter;
      if (p < 0) continue;
      reader.resize(std::max(reader.size(), static_cast<std::size_t>(p) + 1), steps.size());
      reader[static_cast<std::size_t>(p)] = steps[i].fusion ? i - 1 : i;
    }
  std::vector<std::pair<std::size_t, int>> order;  // first reader, bucket
  for (int b = 0; b < std::ssize(options_.buckets); ++b) {
    std::size_t at = steps.size();
    for (const BucketUse::Member& m : options_.buckets[b].members)
      if (m.parameter < std::ssize(reader)) at = std::min(at, reader[m.parameter]);
    if (options_.buckets[b].gather.bytes > 0 && at < steps.size()) order.emplace_back(at, b);
  }
  if (order.empty()) return;
  std::ranges::sort(order);
  std::vector<std::vector<Instruction>> starts(steps.size() + 1), waits = starts;
  for (const auto& [at, b] : order) {
    Instruction s = add_exchange(
        {.call = options_.buckets[b].gather, .of = Exchange::Of::updated, .bucket = b});
    s.section = steps[at].section;
    starts[options_.overlap ? begin_of_run(at) : at].push_back(s);
    s.kind = Instruction::Kind::wait;
    waits[at].push_back(s);
  }
  insert(std::move(starts), waits);
}

// By parameter: the step after which its gradient is final, or -1.
std::vector<int> Planner::last_writers() const {
  std::vector<int> last;
  for (std::size_t i = 0; i < program_.instructions_.size(); ++i)
    for (const GradRef& g : program_.instructions_[i].grad_in) {
      const int v = g.buffer < 0 ? -1 : program_.buffers_[g.buffer].value;
      if (v < 0 || values_[v].role != Role::parameter) continue;
      const auto p = static_cast<std::size_t>(values_[v].parameter);
      if (p >= last.size()) last.resize(p + 1, -1);
      last[p] = static_cast<int>(i) + program_.fused_with_next(i);
    }
  return last;
}

// Places the gradients of a run in buffers of their buckets.
void Planner::put_gradients_into_buckets() {
  const DType type = accum_type(program_.recording_->dtype());
  for (int b = 0; b < static_cast<int>(options_.buckets.size()); ++b)
    bucket_gradients_.push_back(bucket_buffer(b, type));
  std::vector<std::map<std::int64_t, std::int64_t>> written(options_.buckets.size());
  for (int v = 0; v < static_cast<int>(values_.size()); ++v) {
    if (values_[v].role != Role::parameter || values_[v].borrowed || !written_[v]) continue;
    const Home home = home_of(v);
    put_within(gradient_[v], bucket_gradients_[home.bucket], type);
    written[home.bucket][home.offset] = home.offset + values_[v].shape.elements();
  }
  for (std::size_t b = 0; b < written.size(); ++b) {
    std::int64_t at = 0;
    auto& gaps = program_.gaps_.emplace_back();
    written[b][options_.buckets[b].elements] = options_.buckets[b].elements;
    for (const auto& [begin, end] : written[b]) {
      if (begin > at) gaps.emplace_back(at, begin - at);
      at = end;
    }
  }
}

// The reduction of a bucket starts right after the step that makes the last of its gradients final.
// If every run sums, or replicas sum their shares afterwards, it is waited for at once or, with
// overlap, after the next visit of a layer; otherwise at the end of the program.
void Planner::insert_reductions() {
  for (std::size_t v = 0; v < values_.size(); ++v)
    if (const int p = values_[v].parameter; p >= 0 && !written_[v])
      program_.untouched_.push_back(p);
  const bool every_run = options_.sharded.summed != Summed::at_last;
  if (every_run) put_gradients_into_buckets();
  const std::vector<int> writers = last_writers();
  std::vector<int> ready(options_.buckets.size(), -1), order(ready.size());
  for (std::size_t b = 0; b < ready.size(); ++b)
    for (const BucketUse::Member& m : options_.buckets[b].members)
      if (m.parameter < std::ssize(writers))
        ready[b] = std::max(ready[b], writers[static_cast<std::size_t>(m.parameter)]);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int b) { return ready[static_cast<std::size_t>(b)]; });
  find_visits();
  const std::size_t end = program_.instructions_.size();
  std::vector<std::vector<Instruction>> before(end + 1);
  const auto put = [&](std::size_t at, Instruction s) {  // in the section of step at - 1
    s.section = at > 0 ? program_.instructions_[at - 1].section : 0;
    before[at].push_back(std::move(s));
  };
  for (const int b : order) {
    Exchange x{.call = options_.buckets[b].reduce, .of = Exchange::Of::gradients, .bucket = b};
    if (every_run) x.buffer = bucket_gradients_[b];
    Instruction s = add_exchange(x);
    const auto at = static_cast<std::size_t>(ready[static_cast<std::size_t>(b)] + 1);
    put(at, s);
    s.kind = Instruction::Kind::wait;
    const comm::CollectiveCall& across = options_.buckets[b].across;
    std::size_t until = end;
    if (every_run || across.bytes > 0)
      until = options_.overlap && at > 0
                  ? std::clamp(first_of_visit(program_.instructions_[at - 1].visit + 2), at,
                               options_.slots > 0 ? end_of_section(at) : end)
                  : at;
    put(until, s);
    if (across.bytes == 0) continue;
    x = {.call = across, .of = Exchange::Of::shares, .bucket = b};
    const bool once = options_.sharded.summed != Summed::every_run_over_replicas;
    if (!once) x.buffer = bucket_gradients_[b];
    s = add_exchange(x);
    put(until, s);
    s.kind = Instruction::Kind::wait;
    put(options_.overlap && once ? end : until, s);
  }
  insert(std::move(before));
}

// Sorts exchanges by their starts.
void Planner::number_exchanges() {
  std::vector<Exchange> sorted;
  std::vector<int> number(program_.exchanges_.size());
  for (int i = 0; i < static_cast<int>(program_.instructions_.size()); ++i) {
    Instruction& s = program_.instructions_[i];
    if (s.kind == Instruction::Kind::start) {
      number[s.exchange] = static_cast<int>(sorted.size());
      sorted.push_back(program_.exchanges_[s.exchange]);
      sorted.back().start = i;
    }
    if (s.kind == Instruction::Kind::compute) continue;
    s.exchange = number[s.exchange];
    if (s.kind == Instruction::Kind::wait) sorted[s.exchange].wait = i;
  }
  program_.exchanges_ = std::move(sorted);
}

}  // namespace tfm::graph
