#include "graph/program.h"

#include <algorithm>

#include "device/memory.h"
#include "device/timed.h"
#include "kernels/elementwise.h"

namespace tfm::graph {

std::int64_t Program::unshared_bytes() const {
  std::int64_t sum = 0;
  for (const Buffer& b : buffers_)
    if (b.in_arena()) sum += round_up(b.bytes, 64);
  return sum;
}

Work Program::work(std::size_t i) const {
  const Instruction& s = steps_[i];
  if (s.kind != Instruction::Kind::compute || s.stage > 0) return {.kernels = 0};
  Work work = recording_->nodes()[s.node].op->work(s.phase);
  if (s.gradients != Instruction::Gradients::all) {  // those of parameters are sums over all rows
    const bool parameters = s.gradients == Instruction::Gradients::of_parameters;
    std::erase_if(work.products, [&](const Work::Product& p) { return p.sum != parameters; });
    work.kernels = parameters ? work.kernels - 1 : 1;
    if (!parameters) work.extra_elements = 0;
  }
  if (work.kernel_per_gradient && s.phase == Phase::backward)
    work.kernels = static_cast<int>(
        std::ranges::count_if(s.grad_in, [](const GradRef& g) { return g.buffer >= 0; }));
  work.kernels -= s.pair != nullptr;
  return work;
}

std::int64_t Program::moved_bytes(std::size_t i, bool accumulating) const {
  const Instruction& s = steps_[i];
  const Work work = this->work(i);
  const bool read_on_the_way = s.pair, backward = s.phase == Phase::backward;
  const bool kept_on_the_way = joined(i) && backward;
  if (work.kernels == 0 && !read_on_the_way) return 0;
  const Node& node = recording_->nodes()[s.node];
  const auto& values = recording_->values();
  const auto whole = [&](int b) { return b < 0 ? 0 : buffers_[b].bytes; };
  const auto touched = [&](int b, std::size_t input) {
    if (b < 0 || !work.sparse_inputs.contains(input)) return whole(b);
    const std::int64_t element = buffers_[b].bytes / values[buffers_[b].value].shape.elements();
    return std::min(whole(b), values[node.out[0]].shape.elements() * element);
  };
  std::int64_t sum = work.extra_elements * static_cast<std::int64_t>(size_of(recording_->dtype()));
  for (std::size_t k = read_on_the_way && !backward ? 1 : 0; k < s.in.size(); ++k)
    sum += touched(s.in[k], k);
  for (int b : s.out) sum += whole(b);
  for (std::size_t k = read_on_the_way && backward ? 1 : 0; k < s.grad_out.size(); ++k)
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

Tensor Program::resolve(int buffer, std::byte* arena, const Bindings& bindings) const {
  if (buffer < 0) return {};
  const Buffer& b = buffers_[buffer];
  if (b.persistent)
    return b.kind == Buffer::Kind::gradient ? bindings.gradients[b.value] : bindings.data[b.value];
  Tensor t{arena + b.offset, DType::f32, {}};
  if (b.value >= 0) {
    const ValueInfo& v = recording_->values()[b.value];
    t.dtype = b.kind == Buffer::Kind::gradient ? v.gradient : v.dtype;
    t.shape = v.shape;
  }
  return t;
}

void Program::bind(std::byte* arena, const Bindings& bindings) {
  tensors_.clear();
  for (std::size_t b = 0; b < buffers_.size(); ++b)
    tensors_.push_back(resolve(static_cast<int>(b), arena, bindings));
  const auto at = [&](int buffer) { return buffer < 0 ? Tensor{} : tensors_[buffer]; };
  arena_ = arena;
  bucket_parameters_ = bindings.bucket_parameters;
  bucket_gradients_ = bindings.bucket_gradients;
  tickets_.resize(exchanges_.size());
  resolved_.assign(steps_.size(), {});
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Instruction& s = steps_[i];
    Resolved& r = resolved_[i];
    for (int b : s.in) r.in.push_back(at(b));
    for (int b : s.out) r.out.push_back(at(b));
    for (int b : s.grad_out) r.grad_out.push_back(at(b));
    for (const GradRef& g : s.grad_in) {
      const bool parameter = g.buffer >= 0 && buffers_[g.buffer].persistent;
      r.grad_in.push_back({at(g.buffer), g.accumulate});
      r.grad_in_accumulating.push_back({at(g.buffer), g.accumulate || parameter});
    }
    if (s.workspace >= 0) r.workspace = arena + buffers_[s.workspace].offset;
    if (s.scratch >= 0)
      r.scratch = {arena + buffers_[s.scratch].offset,
                   static_cast<std::size_t>(buffers_[s.scratch].bytes)};
    // Shapes of tensors that backward does not read are still known to it.
    if (s.node >= 0)
      for (std::size_t k = 0; k < r.in.size(); ++k)
        if (const int v = recording_->nodes()[s.node].in[k]; v >= 0) {
          r.in[k].shape = recording_->values()[v].shape;
          r.in[k].dtype = recording_->values()[v].dtype;
        }
  }
}

Tensor Program::value(Value v) const {
  for (std::size_t b = buffers_.size(); b-- > 0;)
    if (buffers_[b].value == v.id && buffers_[b].kind == Buffer::Kind::value) return tensors_[b];
  internal_error("the program has no value " + std::to_string(v.id));
}

Tensor Program::gradient(Value v) const {
  for (std::size_t b = 0; b < buffers_.size(); ++b)
    if (buffers_[b].value == v.id && buffers_[b].kind == Buffer::Kind::gradient) return tensors_[b];
  internal_error("the program has no gradient of value " + std::to_string(v.id));
}

Exec Program::exec_of(std::size_t i, const ExecContext& context) const {
  const Resolved& r = resolved_[i];
  return {context,
          r.in,
          r.out,
          r.grad_out,
          context.state.accumulate_parameters ? r.grad_in_accumulating : r.grad_in,
          r.workspace};
}

void Program::compute(std::size_t i, const ExecContext& context) const {
  const auto op_of = [&](const Instruction& s) -> const Op& {
    return *recording_->nodes()[s.node].op;
  };
  const Instruction& s = steps_[i];
  const device::ScratchScope scratch(context.stream, resolved_[i].scratch);
  Exec exec = exec_of(i, context);
  if (!s.pair) return op_of(s).stage(s.phase, static_cast<std::size_t>(s.stage), exec);
  Exec before = exec_of(i - 1, context);
  s.pair->run(op_of(steps_[i - 1]), before, op_of(s), exec);
}

// The whole bucket of an exchange, or what the rank has of it.
Tensor Program::bucket(const Exchange& x) const {
  const bool gradients = x.of != Exchange::Of::parameters;
  if (x.buffer < 0) return (gradients ? bucket_gradients_ : bucket_parameters_)[x.bucket];
  return {arena_ + buffers_[x.buffer].offset,
          gradients ? accum_type(recording_->dtype()) : recording_->dtype(),
          {buckets_[x.bucket].elements}};
}

Exchanged Program::tensors_of(const Exchange& x, const ExecContext& context) const {
  if (x.bucket < 0) {
    const Instruction& s = steps_[x.start];
    return recording_->nodes()[s.node].op->exchanged(
        s.phase, x.k, exec_of(static_cast<std::size_t>(x.start), context));
  }
  const Tensor whole = bucket(x);
  if (x.of == Exchange::Of::parameters) return {bucket_parameters_[x.bucket], whole};
  const comm::CollectiveCall& reduce = buckets_[x.bucket].reduce;
  if (reduce.kind != comm::Collective::reduce_scatter) return {whole, whole};
  if (x.of == Exchange::Of::shares && sharded_.gradients) return {whole, whole};
  const comm::Communicator& group = context.mesh->group(reduce.axes);
  Tensor part{whole.data, whole.dtype, {div_exact(whole.elements(), group.size())}};
  part.data = static_cast<std::byte*>(part.data) + part.bytes() * group.rank();
  return {x.of == Exchange::Of::shares ? part : whole, part};
}

void Program::clear_gaps(const Exchange& x, const ExecContext& context) const {
  const Tensor whole = bucket(x);
  device::on(context.stream, [&](auto& stream) {
    with_accum(whole.dtype, [&]<class T>() {
      for (const auto& [first, n] : gaps_[x.bucket])
        kernels::fill(stream, kernels::FillArgs<T>{n, T(0), whole.ptr<T>() + first});
    });
  });
}

void Program::add_share(const Exchange& x, const ExecContext& context) const {
  const Tensor sum = tensors_of(x, context).out, share = bucket_gradients_[x.bucket];
  device::on(context.stream, [&](auto& stream) {
    with_accum(sum.dtype, [&]<class T>() {
      kernels::copy(stream, kernels::CopyArgs<T>{sum.elements(), sum.ptr<T>(), share.ptr<T>(),
                                                 context.state.accumulate_parameters});
    });
  });
}

// A collective that nothing runs beside needs no halves.
void Program::exchange(std::size_t i, const ExecContext& context) const {
  const Instruction& s = steps_[i];
  const Exchange& x = exchanges_[s.exchange];
  if (!runs(x, context.state.reduce_gradients)) return;
  comm::Communicator& group = context.mesh->group(x.call.axes);
  if (s.kind == Instruction::Kind::wait) {
    if (x.overlaps()) group.finish(tickets_[s.exchange]);
    if (reduces_share(x)) add_share(x, context);
    return;
  }
  if (reduces_share(x)) clear_gaps(x, context);
  const Exchanged t = tensors_of(x, context);
  TFM_CHECK(std::max(t.in.bytes(), t.out.bytes()) == x.call.bytes,
            "a collective differs from its plan");
  if (x.overlaps())
    tickets_[s.exchange] = group.start(x.call.kind, t.in, t.out);
  else
    group.run(x.call.kind, t.in, t.out);
}

void Program::run_step(std::size_t i, const ExecContext& context) const {
  if (steps_[i].kind != Instruction::Kind::compute)
    exchange(i, context);
  else if (!joined(i))
    compute(i, context);
}

void Program::run(const ExecContext& context, std::vector<double>* seconds) const {
  if (seconds) seconds->resize(steps_.size());
  for (std::size_t i = 0; i < steps_.size(); ++i)
    device::timed(context.stream, seconds ? &(*seconds)[i] : nullptr,
                  [&] { run_step(i, context); });
}

std::vector<comm::CollectiveCall> Program::collectives(bool reduces) const {
  std::vector<comm::CollectiveCall> calls;
  for (const Exchange& x : exchanges_)
    if (runs(x, reduces)) calls.push_back(x.call);
  return calls;
}

}  // namespace tfm::graph
