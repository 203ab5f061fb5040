#include "graph/program.h"

#include <algorithm>
#include <cmath>

#include "comm/calls.h"
#include "device/arena.h"
#include "device/memory.h"
#include "device/timed.h"
#include "kernels/elementwise.h"

namespace tfm::graph {

std::int64_t Program::unshared_bytes() const {
  std::int64_t sum = 0;
  for (const Buffer& b : buffers_)
    if (b.in_arena()) sum += round_up(b.bytes, device::kAlignment);
  return sum;
}

Work Work::share(double s) const {
  TFM_CHECK(products.empty(), "only attention computes beside its own collectives");
  Work part = *this;
  part.attention_flops *= s, part.masked_flops *= s;
  part.extra_elements = std::llround(s * static_cast<double>(extra_elements));
  part.kernels = static_cast<int>(std::lround(s * kernels));
  return part;
}

Work Program::work(std::size_t i) const {
  const Instruction& s = instructions_[i];
  if (s.kind != Instruction::Kind::compute || (s.stage > 0 && !s.beside)) return {.kernels = 0};
  const Op& op = *recording_->nodes()[s.node].op;
  Work work = op.work(s.phase);
  if (s.beside) return work.share(op.share_beside(s.phase, static_cast<std::size_t>(s.stage)));
  double beside = 0;
  for (std::size_t k = 0; k < op.exchanges(s.phase).size(); ++k)
    beside += op.share_beside(s.phase, k);
  if (beside > 0) work = work.share(1 - beside);
  if (s.gradients != Instruction::Gradients::all) {
    // Products with `sum` make gradients of parameters.
    const bool parameters = s.gradients == Instruction::Gradients::of_parameters;
    std::erase_if(work.products, [&](const Work::Product& p) { return p.sum != parameters; });
    work.kernels = parameters ? work.kernels - 1 : 1;
    if (!parameters) work.extra_elements = 0;
  }
  if (work.kernel_per_gradient && s.phase == Phase::backward)
    work.kernels = static_cast<int>(
        std::ranges::count_if(s.grad_in, [](const GradRef& g) { return g.buffer >= 0; }));
  work.kernels -= s.fusion != nullptr;
  return work;
}

std::int64_t Program::moved_bytes(std::size_t i, bool accumulating) const {
  const Instruction& s = instructions_[i];
  const Work work = this->work(i);
  const bool read_on_the_way = s.fusion, backward = s.phase == Phase::backward;
  const bool kept_on_the_way = fused_with_next(i) && backward;
  const std::int64_t extra = work.extra_elements * size_of(recording_->dtype());
  if (s.beside) return extra;
  if (work.kernels == 0 && !read_on_the_way) return 0;
  const Node& node = recording_->nodes()[s.node];
  const auto& values = recording_->values();
  const auto whole = [&](int b) { return b < 0 ? 0 : buffers_[b].bytes; };
  const auto touched = [&](int b, std::size_t input) {
    if (b < 0 || !work.sparse_inputs.contains(input)) return whole(b);
    const std::int64_t element = buffers_[b].bytes / values[buffers_[b].value].shape.elements();
    return std::min(whole(b), values[node.out[0]].shape.elements() * element);
  };
  std::int64_t sum = extra;
  for (std::size_t k = read_on_the_way && !backward ? 1 : 0; k < s.in.size(); ++k)
    sum += touched(s.in[k], k);
  for (int b : s.out) sum += whole(b);
  for (std::size_t k = read_on_the_way && backward && !s.fusion->stored ? 1 : 0;
       k < s.grad_out.size(); ++k)
    sum += whole(s.grad_out[k]) * (work.kernel_per_gradient ? work.kernels : 1);
  for (std::size_t k = kept_on_the_way ? 1 : 0; k < s.grad_in.size(); ++k) {
    const int b = s.grad_in[k].buffer;
    if (b < 0) continue;
    const bool adds = s.grad_in[k].accumulate || (accumulating && buffers_[b].persistent),
               sparse_inputs = work.sparse_inputs.contains(k);
    sum += (adds || sparse_inputs ? 2 * touched(b, k) : 0) + (adds ? 0 : whole(b));
  }
  return sum;
}

Tensor Program::resolve(int buffer, std::int64_t slot, const Bindings& bindings) const {
  if (buffer < 0) return {};
  const Buffer& b = buffers_[buffer];
  if (b.persistent)
    return b.kind == Buffer::Kind::gradient ? bindings.gradients[b.value] : bindings.data[b.value];
  Tensor t{address(b, slot), DType::f32, {}};
  if (b.value >= 0) {
    const ValueInfo& v = recording_->values()[b.value];
    t.dtype = b.kind == Buffer::Kind::gradient ? v.gradient : v.dtype;
    t.shape = v.shape;
  }
  return t;
}

Program::Bound Program::bind_slot(std::int64_t slot, const Bindings& bindings) const {
  Bound bound;
  for (std::size_t b = 0; b < buffers_.size(); ++b)
    bound.tensors.push_back(resolve(static_cast<int>(b), slot, bindings));
  const auto at = [&](int buffer) { return buffer < 0 ? Tensor{} : bound.tensors[buffer]; };
  bound.steps.resize(instructions_.size());
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& s = instructions_[i];
    Resolved& r = bound.steps[i];
    for (int b : s.in) r.in.push_back(at(b));
    for (int b : s.out) r.out.push_back(at(b));
    for (int b : s.grad_out) r.grad_out.push_back(at(b));
    for (const GradRef& g : s.grad_in) {
      const bool parameter = g.buffer >= 0 && buffers_[g.buffer].persistent;
      r.grad_in.push_back({at(g.buffer), g.accumulate});
      r.grad_in_accumulating.push_back({at(g.buffer), g.accumulate || parameter});
    }
    if (s.workspace >= 0) r.workspace = static_cast<std::byte*>(at(s.workspace).data);
    if (s.scratch >= 0)
      r.scratch = {static_cast<std::byte*>(at(s.scratch).data),
                   static_cast<std::size_t>(buffers_[s.scratch].bytes)};
    // Backward knows the shapes of inputs even if it does not read them.
    if (s.node >= 0)
      for (std::size_t k = 0; k < r.in.size(); ++k)
        if (const int v = recording_->nodes()[s.node].in[k]; v >= 0) {
          r.in[k].shape = recording_->values()[v].shape;
          r.in[k].dtype = recording_->values()[v].dtype;
        }
  }
  return bound;
}

void Program::bind(std::byte* arena, const Bindings& bindings) {
  arena_ = arena;
  bucket_parameters_ = bindings.bucket_parameters;
  bucket_gradients_ = bindings.bucket_gradients;
  tickets_.resize(exchanges_.size());
  bound_.clear();
  for (std::int64_t slot = 0; slot < std::max<std::int64_t>(slots_, 1); ++slot)
    bound_.push_back(bind_slot(slot, bindings));
}

Tensor Program::value(Value v, std::int64_t slot) const {
  for (std::size_t b = buffers_.size(); b-- > 0;)
    if (buffers_[b].value == v.id && buffers_[b].kind == Buffer::Kind::value)
      return bound_[slot].tensors[b];
  internal_error("the program has no value " + std::to_string(v.id));
}

Tensor Program::gradient(Value v) const {
  for (std::size_t b = 0; b < buffers_.size(); ++b)
    if (buffers_[b].value == v.id && buffers_[b].kind == Buffer::Kind::gradient)
      return bound_[0].tensors[b];
  internal_error("the program has no gradient of value " + std::to_string(v.id));
}

bool Program::of_whole_gradients(int step) const {
  return instructions_[step].phase == Phase::backward &&
         recording_->nodes()[instructions_[step].node].op->of_whole_gradients();
}

std::pair<std::size_t, std::size_t> Program::range(Section section) const {
  if (section.of == Section::Of::program) return {0, instructions_.size()};
  const int number =
      section.of == Section::Of::forward ? section.chunk : 2 * chunks() - 1 - section.chunk;
  const auto of = std::ranges::equal_range(instructions_, number, {}, &Instruction::section);
  return {of.begin() - instructions_.begin(), of.end() - instructions_.begin()};
}

Exec Program::exec_of(std::size_t i, const ExecContext& context, std::int64_t slot) const {
  const Resolved& r = bound_[slot].steps[i];
  return {context,
          r.in,
          r.out,
          r.grad_out,
          context.state.micro_batch.first ? r.grad_in : r.grad_in_accumulating,
          r.workspace};
}

void Program::compute(std::size_t i, const ExecContext& context, std::int64_t slot) const {
  const auto op_of = [&](const Instruction& s) -> const Op& {
    return *recording_->nodes()[s.node].op;
  };
  const Instruction& s = instructions_[i];
  if (!context.state.micro_batch.last && of_whole_gradients(static_cast<int>(i))) return;
  const device::ScratchScope scratch(context.stream, bound_[slot].steps[i].scratch);
  Exec exec = exec_of(i, context, slot);
  if (s.beside) return op_of(s).beside(s.phase, static_cast<std::size_t>(s.stage), exec);
  if (!s.fusion) return op_of(s).stage(s.phase, static_cast<std::size_t>(s.stage), exec);
  Exec before = exec_of(i - 1, context, slot);
  s.fusion->run(op_of(instructions_[i - 1]), before, op_of(s), exec);
}

// Tensor of the exchange's temporary buffer, or the memory bound to its bucket.
Tensor Program::bucket(const Exchange& x, std::int64_t slot) const {
  const bool gradients = x.of != Exchange::Of::parameters && x.of != Exchange::Of::updated;
  if (x.buffer < 0) return (gradients ? bucket_gradients_ : bucket_parameters_)[x.bucket];
  return {address(buffers_[x.buffer], slot),
          gradients ? accum_type(recording_->dtype()) : recording_->dtype(),
          {buckets_[x.bucket].elements}};
}

Exchanged Program::tensors_of(const Exchange& x, const ExecContext& context,
                              std::int64_t slot) const {
  if (x.bucket < 0) {
    const Instruction& s = instructions_[x.start];
    return recording_->nodes()[s.node].op->exchanged(
        s.phase, x.k, exec_of(static_cast<std::size_t>(x.start), context, slot));
  }
  const Tensor whole = bucket(x, slot);
  if (x.of == Exchange::Of::parameters) return {bucket_parameters_[x.bucket], whole};
  const comm::CollectiveCall& reduce = buckets_[x.bucket].reduce;
  const bool share = x.of == Exchange::Of::shares && x.buffer < 0 && sharded_.gradients;
  if (share || reduce.kind != comm::Collective::reduce_scatter) return {whole, whole};
  const comm::Communicator& group = context.mesh->group(reduce.axes);
  Tensor part{whole.data, whole.dtype, {div_exact(whole.elements(), group.size())}};
  part.data = static_cast<std::byte*>(part.data) + part.bytes() * group.rank();
  if (x.of == Exchange::Of::updated) return {part, whole};
  return {x.of == Exchange::Of::shares ? part : whole, part};
}

void Program::clear_gaps(const Exchange& x, const ExecContext& context, std::int64_t slot) const {
  const Tensor whole = bucket(x, slot);
  device::on(context.stream, [&](auto& stream) {
    with_accum(whole.dtype, [&]<class T>() {
      for (const auto& [first, n] : gaps_[x.bucket])
        kernels::fill(stream, kernels::FillArgs<T>{n, T(0), whole.ptr<T>() + first});
    });
  });
}

void Program::add_sum(const Exchange& x, const ExecContext& context, std::int64_t slot) const {
  const Tensor sum = tensors_of(x, context, slot).out, all = bucket_gradients_[x.bucket];
  device::on(context.stream, [&](auto& stream) {
    with_accum(sum.dtype, [&]<class T>() {
      kernels::copy(stream, kernels::CopyArgs<T>{sum.elements(), sum.ptr<T>(), all.ptr<T>(),
                                                 !context.state.micro_batch.first});
    });
  });
}

// A collective that overlaps nothing runs as a whole at its start.
void Program::exchange(std::size_t i, const ExecContext& context, std::int64_t slot) const {
  const Instruction& s = instructions_[i];
  const Exchange& x = exchanges_[s.exchange];
  if (!runs(x, context.state.micro_batch)) return;
  const bool in_halves = x.overlaps() && !x.message();
  if (s.kind == Instruction::Kind::wait) {
    if (in_halves) context.mesh->group(x.call.axes).finish(tickets_[s.exchange]);
    if (ends_sum(x)) add_sum(x, context, slot);
    return;
  }
  if (sums_run(x)) clear_gaps(x, context, slot);
  const Exchanged t = tensors_of(x, context, slot);
  if (!in_halves) return comm::run(*context.mesh, x.call, t.in, t.out);
  TFM_CHECK(std::max(t.in.bytes(), t.out.bytes()) == x.call.bytes,
            "a collective differs from its plan");
  tickets_[s.exchange] = context.mesh->group(x.call.axes).start(x.call.kind, t.in, t.out);
}

void Program::run_instruction(std::size_t i, const ExecContext& context, std::int64_t slot) const {
  if (context.hooks) context.hooks->before(instructions_[i]);
  if (instructions_[i].kind != Instruction::Kind::compute)
    exchange(i, context, slot);
  else if (!fused_with_next(i))
    compute(i, context, slot);
  if (context.hooks) context.hooks->after(instructions_[i]);
}

void Program::run(const ExecContext& context, std::vector<double>* seconds, Section section,
                  std::int64_t slot) const {
  if (seconds) seconds->resize(instructions_.size());
  const auto [first, last] = range(section);
  for (std::size_t i = first; i < last; ++i)
    device::timed(context.stream, seconds ? &(*seconds)[i] : nullptr,
                  [&] { run_instruction(i, context, slot); });
}

std::vector<comm::CollectiveCall> Program::collectives(MicroBatch run, Section section) const {
  std::vector<comm::CollectiveCall> calls;
  const auto [first, last] = range(section);
  for (const Exchange& x : exchanges_)
    if (static_cast<std::size_t>(x.start) >= first && static_cast<std::size_t>(x.start) < last &&
        runs(x, run))
      calls.push_back(x.call);
  return calls;
}

}  // namespace tfm::graph
