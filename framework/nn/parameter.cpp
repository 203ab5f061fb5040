#include "nn/parameter.h"

#include <algorithm>
#include <iterator>

namespace tfm::nn {

int ParameterSet::add(ParameterSpec spec) {
  TFM_CHECK(offsets_.empty(), "parameters must be added before finish()");
  for (const PartSpec& part : spec.parts) streams_.add(part.name);
  specs_.push_back(std::move(spec));
  return size() - 1;
}

Placements ParameterSpec::gradient() const {
  Placements g = placement;
  for (const comm::Axis a : comm::kAxes)
    if (g[a] == Placement::replicate && (kBatchAxes | partial).contains(a))
      g[a] = Placement::partial;
  return g;
}

ParameterSet::Shard ParameterSet::shard(const ParameterSpec& s, Placement along) const {
  const comm::AxisSet axes = axes_with(s.placement, along);
  return {layout_.size(axes), layout_.place(rank_, axes)};
}

bool ParameterSet::first_of_copies(int i, comm::AxisSet axes) const {
  return layout_.place(rank_, axes & specs_[i].copies()) == 0;
}

Shape ParameterSet::local_shape(int i) const {
  const ParameterSpec& s = specs_[i];
  const int shards = shard(s, Placement::shard_rows).count;
  std::int64_t rows = 0;
  for (const PartSpec& p : s.parts) rows += ceil_div(p.rows, shards);
  if (s.cols == 0) return {rows};
  return {rows, div_exact(s.cols, shard(s, Placement::shard_columns).count)};
}

std::vector<PartSlice> ParameterSet::slices_of(int i) const {
  const ParameterSpec& s = specs_[i];
  const Shard rows = shard(s, Placement::shard_rows), cols = shard(s, Placement::shard_columns);
  const std::int64_t width = s.cols ? local_shape(i)[1] : 1;
  std::vector<PartSlice> slices;
  std::int64_t at = offsets_[i];
  for (const PartSpec& p : s.parts) {
    PartSlice slice{.name = p.name,
                    .parameter = i,
                    .full = s.cols ? Shape{p.rows, s.cols} : Shape{p.rows},
                    .end = p.rows,
                    .offset = at};
    if (rows.count > 1 || cols.count > 1) {
      slice.axis = rows.count > 1 ? 0 : 1;
      const Shard& of = rows.count > 1 ? rows : cols;
      const std::int64_t extent = slice.full[slice.axis], each = ceil_div(extent, of.count);
      slice.begin = std::min(extent, each * of.place);
      slice.end = std::min(extent, each * (of.place + 1));
    }
    at += ceil_div(p.rows, rows.count) * width;
    slices.push_back(std::move(slice));
  }
  return slices;
}

void ParameterSet::finish() {
  offsets_.resize(specs_.size());
  std::vector<comm::AxisSet> reductions{kBatchAxes};  // in order of first use
  const auto reduced_over = [&](int i) {
    return axes_with(specs_[i].gradient(), Placement::partial);
  };
  for (int i = 0; i < size(); ++i)
    if (std::ranges::find(reductions, reduced_over(i)) == reductions.end())
      reductions.push_back(reduced_over(i));
  for (const comm::AxisSet axes : reductions) {
    const std::int64_t begin = flat_;
    for (int i = 0; i < size(); ++i) {
      if (reduced_over(i) != axes) continue;
      offsets_[i] = flat_;
      std::ranges::move(slices_of(i), std::back_inserter(slices_));
      flat_ += round_up(local_shape(i).elements(), kGranule);
    }
    if (flat_ == begin) continue;
    flat_ = begin + round_up(flat_ - begin, kGranule * layout_.size(axes));
    segments_.push_back({axes, begin, flat_});
  }
}

std::int64_t ParameterSet::total_elements() const {
  std::int64_t n = 0;
  for (const ParameterSpec& s : specs_)
    for (const PartSpec& p : s.parts) n += p.rows * std::max<std::int64_t>(s.cols, 1);
  return n;
}

Tensor ParameterSet::view(int i, void* flat, DType t) const {
  return {static_cast<std::byte*>(flat) + offsets_[i] * static_cast<std::int64_t>(size_of(t)), t,
          local_shape(i)};
}

template <class T>
void ParameterSet::initialize(std::uint64_t seed, T* flat, int threads) const {
  for (const PartSlice& s : slices_) {
    const Init init = specs_[s.parameter].init;
    T* out = flat + s.offset;
    const std::int64_t n = s.elements();
    if (init.kind == Init::Kind::constant) {
      std::fill(out, out + n, static_cast<T>(init.value));
      continue;
    }
    const RandomKey key{seed, Purpose::init, stream_of(s.name), 0};
    const std::int64_t cols = s.full.rank() > 1 ? s.full[1] : 1;
    const std::int64_t width = s.axis == 1 ? s.end - s.begin : cols;
    const std::int64_t row0 = s.axis == 0 ? s.begin : 0, col0 = s.axis == 1 ? s.begin : 0;
    const float deviation = static_cast<float>(init.value);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t row = 0; row < n / std::max<std::int64_t>(width, 1); ++row)
      normals(key, static_cast<std::uint64_t>((row0 + row) * cols + col0), width, deviation,
              out + row * width);
  }
}
template void ParameterSet::initialize(std::uint64_t, float*, int) const;
template void ParameterSet::initialize(std::uint64_t, double*, int) const;

namespace {

// Calls run(element of the whole part, element of the slice, count) for every contiguous range.
template <class F>
void each_run(const PartSlice& s, F run) {
  const std::int64_t cols = s.full.rank() > 1 ? s.full[1] : 1;
  if (s.axis != 1) return run(s.axis == 0 ? s.begin * cols : 0, 0, s.elements());
  for (std::int64_t row = 0; row < s.full[0]; ++row)
    run(row * cols + s.begin, row * (s.end - s.begin), s.end - s.begin);
}

}  // namespace

template <class T>
void ParameterSet::scatter(const PartSlice& s, const T* whole, T* flat) {
  each_run(s, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
    std::copy_n(whole + from, n, flat + s.offset + to);
  });
}
template <class T>
void ParameterSet::gather(const PartSlice& s, const T* flat, T* whole) {
  each_run(s, [&](std::int64_t to, std::int64_t from, std::int64_t n) {
    std::copy_n(flat + s.offset + from, n, whole + to);
  });
}
template void ParameterSet::scatter(const PartSlice&, const float*, float*);
template void ParameterSet::scatter(const PartSlice&, const double*, double*);
template void ParameterSet::gather(const PartSlice&, const float*, float*);
template void ParameterSet::gather(const PartSlice&, const double*, double*);

}  // namespace tfm::nn
