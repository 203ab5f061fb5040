#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"

namespace tfm::optim {

std::vector<Bucket> make_buckets(const nn::ParameterSet& parameters, const comm::Layout& layout,
                                 std::int64_t bucket_elements) {
  std::vector<Bucket> buckets;
  for (const nn::Segment& s : parameters.segments()) {
    const std::int64_t size =
        round_up(bucket_elements, nn::ParameterSet::kGranule * layout.size(s.axes));
    for (std::int64_t end = s.end; end > s.begin; end = std::max(s.begin, end - size)) {
      Bucket b{s.axes, std::max(s.begin, end - size), end, {}};
      for (int i = 0; i < parameters.size(); ++i) {
        const std::int64_t first = parameters.offset(i),
                           last = first + parameters.local_shape(i).elements();
        if (first < b.end && b.begin < last) b.parameters.push_back(i);
      }
      buckets.push_back(std::move(b));
    }
  }
  std::stable_sort(buckets.begin(), buckets.end(), [](const Bucket& a, const Bucket& b) {
    const auto first = [](const Bucket& x) {
      return x.parameters.empty() ? 1 << 30 : x.parameters.front();
    };
    return first(a) > first(b);
  });
  return buckets;
}

std::int64_t Optimizer::state_elements(const nn::ParameterSet& parameters,
                                       const comm::Layout& layout, const OptimizerOptions& options,
                                       const std::vector<Bucket>& buckets) {
  if (options.zero == 0) return parameters.flat_elements();
  std::int64_t n = 0;
  for (const Bucket& b : buckets) n += div_exact(b.end - b.begin, layout.size(b.axes));
  return n;
}

Optimizer::Optimizer(const nn::ParameterSet& parameters, const comm::Mesh& mesh,
                     const comm::Mesh& tensors, OptimizerOptions options,
                     std::vector<Bucket> buckets, DType dtype)
    : parameters_(&parameters),
      mesh_(mesh),
      tensors_(tensors),
      options_(options),
      buckets_(std::move(buckets)),
      dtype_(dtype),
      state_elements_(state_elements(parameters, mesh.layout, options, buckets_)) {
  std::int64_t state = 0;
  for (const Bucket& b : buckets_) {
    const auto [begin, end] = share(b);
    add_counted(begin, end, b.axes);
    if (options_.zero > 0) add_runs(begin, end, state);
    state += end - begin;
  }
  if (options_.zero == 0)
    for (const nn::Segment& s : parameters.segments()) add_runs(s.begin, s.end, s.begin);
}

std::pair<std::int64_t, std::int64_t> Optimizer::share(const Bucket& b) const {
  const std::int64_t each = div_exact(b.end - b.begin, mesh_.layout.size(b.axes));
  const int rank = mesh_.place(b.axes);
  return {b.begin + each * rank, b.begin + each * (rank + 1)};
}

template <class F>
void Optimizer::each_part(std::int64_t begin, std::int64_t end, F&& f) const {
  for (int i = 0; i < parameters_->size(); ++i) {
    const std::int64_t at = parameters_->offset(i),
                       padded = round_up(parameters_->local_shape(i).elements(),
                                         nn::ParameterSet::kGranule);
    if (const auto first = std::max(begin, at), last = std::min(end, at + padded); first < last)
      f(parameters_->spec(i), first, last);
  }
}

void Optimizer::add_runs(std::int64_t begin, std::int64_t end, std::int64_t state_offset) {
  each_part(begin, end, [&](const nn::ParameterSpec& spec, std::int64_t first, std::int64_t last) {
    const StateRange run{first, last, state_offset + first - begin, spec.decay};
    StateRange* before = owned_.empty() ? nullptr : &owned_.back();
    if (before && before->end == first && before->decay == run.decay &&
        before->state_offset + (before->end - before->begin) == run.state_offset)
      before->end = last;
    else
      owned_.push_back(run);
  });
}

// Ranks share out what they reduce together; of other copies the first one counts.
void Optimizer::add_counted(std::int64_t begin, std::int64_t end, comm::AxisSet reduced) {
  each_part(begin, end, [&](const nn::ParameterSpec& spec, std::int64_t first, std::int64_t last) {
    const comm::AxisSet copies = axes_with(spec.placement, nn::Placement::replicate) - reduced;
    if (mesh_.place(copies) > 0) return;
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
  return {lr, 1 - std::pow(options_.beta1, t), 1 - std::pow(options_.beta2, t),
          std::min(options_.ema, (1 + t) / (10 + t))};
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

template <class T>
T* Optimizer::weights(const Flat& flat, const StateRange& run) const {
  return flat.master ? static_cast<T*>(flat.master) + run.state_offset
                     : static_cast<T*>(flat.parameters) + run.begin;
}

template <class P, class S, class Rule>
void Optimizer::update_by(const Rule& rule, S& s, const Flat& flat, const StepNumbers* numbers,
                          const StepOutcome* outcome) const {
  using T = Accum<P>;
  const auto state = [](void* all, const StateRange& run) {
    return all ? static_cast<T*>(all) + run.state_offset : nullptr;
  };
  thread_local std::vector<kernels::UpdateRange<T, P>> ranges;  // keeps its memory
  ranges.clear();
  for (const StateRange& run : owned_)
    ranges.push_back({run.end - run.begin, run.decay, weights<T>(flat, run),
                      static_cast<const T*>(flat.gradients) + run.begin, state(flat.state[0], run),
                      state(flat.state[1], run), state(flat.average, run),
                      flat.master ? static_cast<P*>(flat.parameters) + run.begin : nullptr});
  kernels::update(s, kernels::UpdateArgs<Rule, T, P>{ranges, rule, numbers, outcome});
}

void Optimizer::update(device::AnyStream stream, const Flat& flat, const StepNumbers* numbers,
                       const StepOutcome* outcome) const {
  const OptimizerOptions& o = options_;
  device::on(stream, [&](auto& s) {
    with_float(dtype_, [&]<class P>() {
      if (o.kind == OptimizerOptions::Kind::sgd)
        update_by<P>(kernels::SgdRule{o.momentum, o.weight_decay}, s, flat, numbers, outcome);
      else
        update_by<P>(kernels::AdamRule{o.beta1, o.beta2, o.eps, o.weight_decay,
                                       o.kind == OptimizerOptions::Kind::adamw},
                     s, flat, numbers, outcome);
    });
  });
  gather(flat);
}

void Optimizer::round(device::AnyStream stream, const Flat& flat) const {
  if (!flat.master) return;
  device::on(stream, [&](auto& s) {
    const auto convert = [&]<class P>(P* parameters) {
      for (const StateRange& run : owned_)
        kernels::convert(
            s, kernels::ConvertArgs<float, P>{run.end - run.begin, weights<float>(flat, run),
                                              parameters + run.begin});
    };
    dtype_ == DType::bf16 ? convert(static_cast<bf16*>(flat.parameters))
                          : convert(static_cast<f16*>(flat.parameters));
  });
}

void Optimizer::gather(const Flat& flat) const {
  if (options_.zero == 0) return;
  for (const Bucket& b : buckets_) {
    const auto [begin, end] = share(b);
    tensors_.group(b.axes).all_gather(range(flat.parameters, dtype_, begin, end),
                                      range(flat.parameters, dtype_, b.begin, b.end));
  }
}

void Optimizer::adopt(device::AnyStream stream, const Flat& flat, const void* all) const {
  with_accum(accum_type(dtype_), [&]<class T>() {
    device::on(stream, [&](auto& s) {
      for (const StateRange& run : owned_) {
        const T* from = static_cast<const T*>(all) + run.begin;
        kernels::copy(s, kernels::CopyArgs<T>{run.end - run.begin, from, weights<T>(flat, run)});
        if (flat.average)
          kernels::copy(s, kernels::CopyArgs<T>{run.end - run.begin, from,
                                                static_cast<T*>(flat.average) + run.state_offset});
      }
    });
  });
  round(stream, flat);
  gather(flat);
}

void Optimizer::swap_average(device::AnyStream stream, const Flat& flat) const {
  if (!flat.average) return;
  with_accum(accum_type(dtype_), [&]<class T>() {
    device::on(stream, [&](auto& s) {
      for (const StateRange& run : owned_)
        kernels::swap(s, kernels::SwapArgs<T>{run.end - run.begin, weights<T>(flat, run),
                                              static_cast<T*>(flat.average) + run.state_offset});
    });
  });
  round(stream, flat);
  gather(flat);
}

}  // namespace tfm::optim
