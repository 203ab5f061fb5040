#include "nn/parameter.h"

#include <algorithm>

namespace tfm::nn {

int ParameterSet::add(ParameterSpec spec) {
  TFM_CHECK(offsets_.empty(), "parameters must be added before finish()");
  for (const PartSpec& part : spec.parts) streams_.add(part.name);
  specs_.push_back(std::move(spec));
  return size() - 1;
}

Shape ParameterSet::local_shape(int i) const {
  const ParameterSpec& s = specs_[i];
  std::int64_t rows = 0;
  for (const PartSpec& p : s.parts) rows += s.split == Split::rows ? share(p.rows) : p.rows;
  if (s.cols == 0) return {rows};
  return {rows, s.split == Split::columns ? div_exact(s.cols, layout_.tensor) : s.cols};
}

void ParameterSet::finish() {
  offsets_.resize(specs_.size());
  // Parameters with partial gradients are summed over all ranks, the others over the data axis.
  for (const bool partial : {false, true}) {
    const std::int64_t begin = flat_;
    for (int i = 0; i < size(); ++i) {
      const ParameterSpec& s = specs_[i];
      if (s.partial_gradient != partial) continue;
      offsets_[i] = flat_;
      std::int64_t at = flat_;
      const Shape local = local_shape(i);
      for (const PartSpec& p : s.parts) {
        PartSlice slice{.name = p.name,
                        .parameter = i,
                        .full = s.cols ? Shape{p.rows, s.cols} : Shape{p.rows},
                        .offset = at};
        slice.end = p.rows;
        const std::int64_t cols = s.cols ? local[1] : 1;
        if (s.split != Split::none && layout_.tensor > 1) {
          slice.axis = s.split == Split::rows ? 0 : 1;
          const std::int64_t extent = slice.full[slice.axis], each = share(extent);
          slice.begin = std::min(extent, each * tensor_rank_);
          slice.end = std::min(extent, each * (tensor_rank_ + 1));
        }
        at += (s.split == Split::rows ? share(p.rows) : p.rows) * cols;
        slices_.push_back(std::move(slice));
      }
      flat_ += round_up(local.elements(), kGranule);
    }
    if (flat_ == begin) continue;
    const comm::Axis axis = partial ? comm::Axis::world : comm::Axis::data;
    flat_ = begin + round_up(flat_ - begin, kGranule * (partial ? layout_.world() : layout_.data));
    segments_.push_back({axis, begin, flat_});
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

// Calls run(element of the whole part, element of the slice, count) for every contiguous piece.
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
