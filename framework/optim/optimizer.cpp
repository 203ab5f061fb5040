#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"

namespace tfm::optim {

std::vector<comm::CollectiveCall> update_collectives(const nn::ParameterSet& parameters,
                                                     const comm::Layout& layout,
                                                     const OptimizerOptions& options,
                                                     const std::vector<Bucket>& buckets,
                                                     DType dtype) {
  std::vector<comm::CollectiveCall> all =
      options.rule->collectives(parameters, layout, accum_type(dtype));
  if (options.zero > 0)
    for (const Bucket& b : buckets)
      all.push_back({comm::Collective::all_gather, b.axes,
                     (b.end - b.begin) * static_cast<std::int64_t>(size_of(dtype))});
  return all;
}

Optimizer::Optimizer(const nn::ParameterSet& parameters, const comm::Mesh& mesh,
                     const comm::Mesh& tensors, OptimizerOptions options,
                     std::vector<Bucket> buckets, DType dtype)
    : parameters_(&parameters),
      mesh_(mesh),
      tensors_(tensors),
      options_(std::move(options)),
      buckets_(std::move(buckets)),
      dtype_(dtype),
      shards_(shard_layout(parameters, mesh, *options_.rule, options_.zero, buckets_)) {
  for (const Bucket& b : buckets_) {
    const auto [begin, end] = share_of(b, mesh_);
    add_counted(begin, end);
  }
}

// Ranks share out what they reduce together; of other copies the first one counts.
void Optimizer::add_counted(std::int64_t begin, std::int64_t end) {
  each_parameter(*parameters_, begin, end, [&](int i, std::int64_t first, std::int64_t last) {
    if (mesh_.place(parameters_->spec(i).copies_of_shares()) > 0) return;
    if (!counted_.empty() && counted_.back().end == first)
      counted_.back().end = last;
    else
      counted_.push_back({first, last});
  });
}

Tensor Optimizer::range(void* flat, DType t, std::int64_t begin, std::int64_t end) {
  return {static_cast<std::byte*>(flat) + begin * static_cast<std::int64_t>(size_of(t)),
          t,
          {end - begin}};
}

std::vector<Tensor> Optimizer::bucket_gradients(const Flat& flat) const {
  std::vector<Tensor> all;
  for (const Bucket& b : buckets_)
    all.push_back(range(flat.gradients, accum_type(dtype_), b.begin, b.end));
  return all;
}

UpdateNumbers Optimizer::numbers(std::int64_t update, double lr) const {
  const auto t = static_cast<double>(update);
  UpdateNumbers n = options_.rule->numbers(update, lr);
  n.keep = std::min(options_.ema, (1 + t) / (10 + t));
  return n;
}

void Optimizer::measure(device::AnyStream stream, const Flat& flat, const StepNumbers* numbers,
                        StepOutcome* outcome) const {
  device::on(stream, [&](auto& s) {
    with_accum(accum_type(dtype_), [&]<class T>() {
      kernels::square_sum(s, kernels::SquareSumArgs<T>{static_cast<const T*>(flat.gradients),
                                                       counted_, numbers, outcome});
    });
    tensors_.world().all_reduce(
        {&outcome->squares, DType::f64, {sizeof(SquareSum) / sizeof(double)}});
    kernels::clip(s, {options_.grad_clip, numbers, outcome});
  });
}

Update Optimizer::update_of(device::AnyStream stream, const Flat& flat, const StepNumbers* numbers,
                            const StepOutcome* outcome) const {
  return {stream, dtype_, flat, numbers, outcome, shards_, *parameters_, tensors_};
}

void Optimizer::update(device::AnyStream stream, const Flat& flat, const StepNumbers* numbers,
                       const StepOutcome* outcome) const {
  options_.rule->update(update_of(stream, flat, numbers, outcome));
  gather(flat);
}

void Optimizer::round(device::AnyStream stream, const Flat& flat) const {
  if (!flat.master) return;
  const Update u = update_of(stream, flat, nullptr, nullptr);
  device::on(stream, [&](auto& s) {
    const auto convert = [&]<class P>(P* parameters) {
      for (const StateRange& run : shards_.ranges)
        kernels::convert(s,
                         kernels::ConvertArgs<float, P>{run.end - run.begin, u.weights<float>(run),
                                                        parameters + run.begin});
    };
    dtype_ == DType::bf16 ? convert(static_cast<bf16*>(flat.parameters))
                          : convert(static_cast<f16*>(flat.parameters));
  });
}

void Optimizer::gather(const Flat& flat) const {
  if (options_.zero == 0) return;
  for (const Bucket& b : buckets_) {
    const auto [begin, end] = share_of(b, mesh_);
    tensors_.group(b.axes).all_gather(range(flat.parameters, dtype_, begin, end),
                                      range(flat.parameters, dtype_, b.begin, b.end));
  }
}

void Optimizer::adopt(device::AnyStream stream, const Flat& flat, const void* all) const {
  const Update u = update_of(stream, flat, nullptr, nullptr);
  with_accum(accum_type(dtype_), [&]<class T>() {
    device::on(stream, [&](auto& s) {
      for (const StateRange& run : shards_.ranges) {
        const T* from = static_cast<const T*>(all) + run.begin;
        kernels::copy(s, kernels::CopyArgs<T>{run.end - run.begin, from, u.weights<T>(run)});
        if (flat.average)
          kernels::copy(s, kernels::CopyArgs<T>{run.end - run.begin, from, u.average<T>(run)});
      }
    });
  });
  round(stream, flat);
  gather(flat);
}

void Optimizer::swap_average(device::AnyStream stream, const Flat& flat) const {
  if (!flat.average) return;
  const Update u = update_of(stream, flat, nullptr, nullptr);
  with_accum(accum_type(dtype_), [&]<class T>() {
    device::on(stream, [&](auto& s) {
      for (const StateRange& run : shards_.ranges)
        kernels::swap(
            s, kernels::SwapArgs<T>{run.end - run.begin, u.weights<T>(run), u.average<T>(run)});
    });
  });
  round(stream, flat);
  gather(flat);
}

}  // namespace tfm::optim
