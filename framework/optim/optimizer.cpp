#include "optim/optimizer.h"

#include <algorithm>

#include "device/memory.h"
#include "nn/stage_messages.h"

namespace tfm::optim {
namespace {

Tensor range(void* flat, DType t, std::int64_t begin, std::int64_t end) {
  return {static_cast<std::byte*>(flat) + begin * size_of(t), t, {end - begin}};
}

// Calls f(parameter, other stage, whether this stage is the owner) for each parameter that this
// rank lends or borrows, once per other stage.
template <class F>
void each_lent(const nn::ParameterSet& parameters, F&& f) {
  for (int i = 0; i < parameters.size(); ++i) {
    const nn::ParameterSpec& spec = parameters.spec(i);
    if (parameters.borrowed(i)) f(i, spec.stage, false);
    if (parameters.owned(i))
      for (const int stage : spec.borrowers) f(i, stage, true);
  }
}

comm::CollectiveCall gather_of(const Bucket& b, DType dtype) {
  return {comm::Collective::all_gather, b.shared, (b.end - b.begin) * size_of(dtype),
          comm::Purpose::parameters};
}

std::vector<comm::CollectiveCall> lend_collectives(const nn::ParameterSet& parameters,
                                                   const OptimizerOptions& options,
                                                   const std::vector<Bucket>& buckets,
                                                   DType dtype) {
  std::vector<comm::CollectiveCall> all;
  if (options.zero > 0)
    for (const Bucket& b : buckets)
      if (lends(b, parameters)) all.push_back(gather_of(b, dtype));
  each_lent(parameters, [&](int i, int peer, bool owned) {
    all.push_back({owned ? comm::Collective::send : comm::Collective::receive, nn::kStageAxes,
                   parameters.local_shape(i).elements() * size_of(dtype), comm::Purpose::borrowed,
                   peer, nn::tag_of_parameter(i) + 1});
  });
  return all;
}

}  // namespace

graph::Sharded sharded_by(int zero, bool alike) {
  using enum graph::Summed;
  return {.parameters = zero > 2,
          .gradients = zero > (alike ? 0 : 1),
          .summed = alike      ? every_run_over_replicas
                    : zero > 1 ? every_run
                               : at_last};
}

comm::CollectiveCall sum_of_norm() {
  return {comm::Collective::all_reduce_sum, comm::kWorld, sizeof(SquareSum), comm::Purpose::norm};
}

std::vector<comm::CollectiveCall> update_collectives(const nn::ParameterSet& parameters,
                                                     const comm::Layout& layout,
                                                     const OptimizerOptions& options,
                                                     const std::vector<Bucket>& buckets,
                                                     DType dtype) {
  std::vector<comm::CollectiveCall> all = options.rule->collectives(parameters, layout, dtype);
  std::ranges::copy(lend_collectives(parameters, options, buckets, dtype), std::back_inserter(all));
  return all;
}

std::vector<comm::CollectiveCall> gather_collectives(const nn::ParameterSet& parameters,
                                                     const OptimizerOptions& options,
                                                     const std::vector<Bucket>& buckets,
                                                     DType dtype) {
  std::vector<comm::CollectiveCall> all;
  for (const Bucket& b : buckets)
    if (gathered_by_step(b, parameters, options.zero)) all.push_back(gather_of(b, dtype));
  return all;
}

Optimizer::Optimizer(const nn::ParameterSet& parameters, const comm::Mesh& mesh,
                     const comm::Mesh& tensors, OptimizerOptions options,
                     std::vector<Bucket> buckets, ShardLayout shards, DType dtype)
    : parameters_(&parameters),
      mesh_(mesh),
      tensors_(tensors),
      options_(std::move(options)),
      buckets_(std::move(buckets)),
      dtype_(dtype),
      shards_(std::move(shards)),
      workspace_bytes_(options_.rule->workspace_bytes(parameters, mesh.layout, dtype)),
      update_calls_(update_collectives(parameters, mesh.layout, options_, buckets_, dtype)),
      gather_calls_(gather_collectives(parameters, options_, buckets_, dtype)),
      lend_calls_(lend_collectives(parameters, options_, buckets_, dtype)) {
  std::int64_t state = 0;
  for (const Bucket& b : buckets_) {
    const auto [begin, end] = share_of(b, mesh_);
    add_counted(begin, end, options_.sharded.gradients ? state : begin);
    state += end - begin;
  }
}

// Adds elements [begin, end) to the norm unless another rank counts them: of the copies that are
// not shares of one reduction, the first one counts. `at` is the place of element `begin` in the
// gradients' memory.
void Optimizer::add_counted(std::int64_t begin, std::int64_t end, std::int64_t at) {
  each_parameter(*parameters_, begin, end, [&](int i, std::int64_t first, std::int64_t last) {
    const nn::ParameterSpec& spec = parameters_->spec(i);
    if (!spec.trained || spec.evens_load || mesh_.place(spec.copies_of_shares(mesh_.layout)) > 0)
      return;
    const kernels::Range r{first - begin + at, last - begin + at};
    if (!counted_.empty() && counted_.back().end == r.begin)
      counted_.back().end = r.end;
    else
      counted_.push_back(r);
  });
}

std::vector<Tensor> Optimizer::of_buckets(void* flat, DType type, bool sharded) const {
  std::vector<Tensor> all;
  std::int64_t state = 0;
  for (const Bucket& b : buckets_) {
    const std::int64_t share = div_exact(b.end - b.begin, mesh_.layout.size(b.shared));
    all.push_back(sharded ? range(flat, type, state, state + share)
                          : range(flat, type, b.begin, b.end));
    state += share;
  }
  return all;
}

std::vector<Tensor> Optimizer::bucket_gradients(const FlatBuffers& flat) const {
  return of_buckets(flat.gradients, accum_type(dtype_), flat.sharded.gradients);
}

std::vector<Tensor> Optimizer::bucket_parameters(const FlatBuffers& flat) const {
  return of_buckets(flat.parameters, dtype_, flat.sharded.parameters);
}

UpdateNumbers Optimizer::numbers(std::int64_t update, double lr) const {
  const auto t = static_cast<double>(update);
  UpdateNumbers n = options_.rule->numbers(update, lr);
  n.keep = std::min(options_.ema, (1 + t) / (10 + t));
  return n;
}

void Optimizer::measure(device::AnyStream stream, const FlatBuffers& flat,
                        const StepNumbers* numbers, StepOutcome* outcome) const {
  device::on(stream, [&](auto& s) {
    with_accum(accum_type(dtype_), [&]<class T>() {
      kernels::square_sum(s, kernels::SquareSumArgs<T>{static_cast<const T*>(flat.gradients),
                                                       counted_, numbers, outcome});
    });
    const Tensor squares{&outcome->squares, DType::f64, {sizeof(SquareSum) / sizeof(double)}};
    comm::run(tensors_, sum_of_norm(), squares, squares);
    kernels::clip(s, {options_.grad_clip, numbers, outcome});
  });
}

void Optimizer::update(device::AnyStream stream, const FlatBuffers& flat,
                       const StepNumbers* numbers, const StepOutcome* outcome) const {
  comm::Calls calls(tensors_, update_calls_);
  const Update all{stream, dtype_, flat, numbers, outcome, shards_, *parameters_, tensors_, &calls};
  options_.rule->update(all);
  options_.load_rule->update(all);
  lend(calls, flat);
  calls.finish();
}

void Optimizer::gather(const FlatBuffers& flat) const {
  comm::Calls calls(tensors_, gather_calls_);
  for (const Bucket& b : buckets_)
    if (gathered_by_step(b, *parameters_, options_.zero)) {
      const auto [begin, end] = share_of(b, mesh_);
      calls.next(range(flat.parameters, dtype_, begin, end), whole(flat, b));
    }
  calls.finish();
}

void Optimizer::spread(const FlatBuffers& flat) const {
  gather(flat);
  comm::Calls calls(tensors_, lend_calls_);
  lend(calls, flat);
  calls.finish();
}

Tensor Optimizer::whole(const FlatBuffers& flat, const Bucket& bucket) const {
  if (!flat.sharded.parameters) return range(flat.parameters, dtype_, bucket.begin, bucket.end);
  std::int64_t at = 0;
  for (const Bucket& b : buckets_) {
    if (&b == &bucket) break;
    if (lends(b, *parameters_)) at += b.end - b.begin;
  }
  return range(flat.lent_parameters, dtype_, at, at + bucket.end - bucket.begin);
}

Tensor Optimizer::lent(const FlatBuffers& flat, int i) const {
  if (!flat.sharded.parameters || parameters_->borrowed(i)) return parameter(flat, i);
  const auto bucket = std::ranges::find_if(
      buckets_, [&](const Bucket& b) { return std::ranges::count(b.parameters, i) > 0; });
  const auto element = size_of(dtype_);
  return parameters_->view(
      i, static_cast<std::byte*>(whole(flat, *bucket).data) - bucket->begin * element, dtype_);
}

// A send reads its memory until it is received. That memory is the parameters, which stay unchanged
// until complete_sends() has returned.
void Optimizer::lend(comm::Calls& calls, const FlatBuffers& flat) const {
  std::int64_t state = 0;  // elements of shares so far
  for (const Bucket& b : buckets_) {
    const auto [begin, end] = share_of(b, mesh_);
    const std::int64_t at = flat.sharded.parameters ? state : begin;
    state += end - begin;
    if (options_.zero > 0 && lends(b, *parameters_))
      calls.next(range(flat.parameters, dtype_, at, at + end - begin), whole(flat, b));
  }
  each_lent(*parameters_, [&](int i, int, bool) { calls.next(lent(flat, i)); });
  comm::complete_sends(tensors_);
}

Tensor Optimizer::parameter(const FlatBuffers& flat, int i) const {
  return parameters_->view(i, parameters_->borrowed(i) ? flat.borrowed_parameters : flat.parameters,
                           dtype_);
}

Tensor Optimizer::gradient(const FlatBuffers& flat, int i) const {
  return parameters_->view(i, parameters_->borrowed(i) ? flat.borrowed_gradients : flat.gradients,
                           accum_type(dtype_));
}

void Optimizer::gather_into(const FlatBuffers& flat, void* parameters) const {
  const std::vector<Tensor> shares = bucket_parameters(flat);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    tensors_.group(buckets_[b].shared)
        .all_gather(shares[b], range(parameters, dtype_, buckets_[b].begin, buckets_[b].end));
}

void Optimizer::get_weights(device::AnyStream stream, const FlatBuffers& flat, const StateRange& r,
                            std::int64_t first, std::int64_t count, void* to) const {
  const auto n = static_cast<std::size_t>(count);
  const auto download = [&]<class Q>(Q* host, const Q* memory) {
    device::download(stream, host, memory, count * static_cast<std::int64_t>(sizeof(Q)));
  };
  with_float(dtype_, [&]<class P>() {
    auto* const out = static_cast<Accum<P>*>(to);
    const Weights<P> weights = flat.weights_of<P>(r) + first;
    if constexpr (std::is_same_v<P, bf16>) {
      std::vector<Remainder> remainder(n);
      std::vector<bf16> rounded(n);
      download(remainder.data(), weights.remainder);
      download(rounded.data(), weights.rounded);
      std::ranges::transform(rounded, remainder, out, join_weight);
    } else if constexpr (is_half(dtype_of<P>)) {
      download(out, weights.master);
    } else {
      download(out, weights);
    }
  });
}

void Optimizer::set_weights(device::AnyStream stream, const FlatBuffers& flat, const StateRange& r,
                            std::int64_t first, std::int64_t count, const void* from,
                            std::byte* staging) const {
  const auto upload = [&]<class Q>(Q* memory, const Q* host) {
    device::upload(stream, memory, host, count * static_cast<std::int64_t>(sizeof(Q)));
  };
  with_float(dtype_, [&]<class P>() {
    using T = Accum<P>;
    const auto* const in = static_cast<const T*>(from);
    const Weights<P> weights = flat.weights_of<P>(r) + first;
    if constexpr (std::is_same_v<P, bf16>) {
      auto* const remainder = reinterpret_cast<Remainder*>(staging);
      const SplitMasterWeights host{remainder, reinterpret_cast<bf16*>(remainder + count)};
      for (std::int64_t i = 0; i < count; ++i) host.set(i, in[i]);
      upload(weights.remainder, host.remainder);
      upload(weights.rounded, host.rounded);
    } else if constexpr (is_half(dtype_of<P>)) {
      upload(weights.master, in);
      auto* const rounded = reinterpret_cast<P*>(staging);
      for (std::int64_t i = 0; i < count; ++i) rounded[i] = P(in[i]);
      upload(weights.rounded, rounded);
    } else {
      upload(weights, in);
    }
    if (T* const average = flat.average_of<T>(r)) upload(average + first, in);
  });
}

std::vector<std::span<std::byte>> Optimizer::weight_memory(const FlatBuffers& flat,
                                                           const StateRange& r) const {
  const auto bytes = [&](auto* memory) {
    return std::as_writable_bytes(std::span(memory, static_cast<std::size_t>(r.end - r.begin)));
  };
  return with_float(dtype_, [&]<class P>() -> std::vector<std::span<std::byte>> {
    const Weights<P> weights = flat.weights_of<P>(r);
    if constexpr (std::is_same_v<P, bf16>)
      return {bytes(weights.rounded), bytes(weights.remainder)};
    else if constexpr (is_half(dtype_of<P>))
      return {bytes(weights.master)};
    else
      return {bytes(weights)};
  });
}

void Optimizer::swap_average(device::AnyStream stream, const FlatBuffers& flat) const {
  if (!flat.average) return;
  with_float(dtype_, [&]<class P>() {
    device::on(stream, [&](auto& s) {
      for (const StateRange& run : shards_.ranges)
        kernels::swap(s, kernels::SwapArgs<P>{run.end - run.begin, flat.weights_of<P>(run),
                                              flat.average_of<Accum<P>>(run)});
    });
  });
  spread(flat);
}

}  // namespace tfm::optim
