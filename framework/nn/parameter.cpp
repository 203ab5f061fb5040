#include "nn/parameter.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/random_streams.h"
#include "kernels/normals.h"

namespace tfm::nn {

int ParameterSet::add(ParameterSpec spec) {
  TFM_CHECK(offsets_.empty(), "parameters must be added before finish()");
  for (const comm::Axis a : comm::kAxes)
    if (kStageAxes.contains(a)) spec.placement[a] = Placement::one_rank;
  spec.stage = stage_;
  if (!spec.trained) spec.decay = spec.hidden = false;
  // Beyond this, numbers of bytes would overflow.
  constexpr double kMost = 1e16;
  for (const PartSpec& part : spec.parts)
    elements_ +=
        static_cast<double>(part.rows) * static_cast<double>(std::max<std::int64_t>(spec.cols, 1));
  if (elements_ > kMost)
    throw Error(ExitCode::usage, spec.parts.front().name +
                                     ": the model has more than 1e+16 parameters with it; expected "
                                     "smaller sizes or fewer layers");
  specs_.push_back(std::move(spec));
  layers_.push_back(layer_);
  return size() - 1;
}

void ParameterSet::use_at(int i, int stage) {
  std::vector<int>& borrowers = specs_[i].borrowers;
  if (stage != specs_[i].stage && std::ranges::find(borrowers, stage) == borrowers.end())
    borrowers.push_back(stage);
}

bool ParameterSet::borrowed(int i) const {
  return std::ranges::find(specs_[i].borrowers, own_stage()) != specs_[i].borrowers.end();
}

std::vector<int> ParameterSet::borrowed() const {
  std::vector<int> all;
  for (int i = 0; i < size(); ++i)
    if (borrowed(i)) all.push_back(i);
  return all;
}

Placements ParameterSpec::gradient() const {
  Placements g = placement;
  for (const comm::Axis a : comm::kAxes)
    if (g[a] == Placement::replicate && (kTokenAxes | partial).contains(a))
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

ParameterSet::Range ParameterSet::own_parts(const ParameterSpec& s) const {
  const Shard along = shard(s, Placement::shard_parts);
  const auto ranks = static_cast<std::size_t>(along.count),
             place = static_cast<std::size_t>(along.place), each = s.parts.size() / ranks;
  TFM_CHECK(each * ranks == s.parts.size(), s.parts[0].name + ": ranks have as many parts each");
  return {place * each, (place + 1) * each};
}

Shape ParameterSet::local_shape(int i) const {
  const ParameterSpec& s = specs_[i];
  const int shards = shard(s, Placement::shard_rows).count;
  const Range parts = own_parts(s);
  std::int64_t rows = 0;
  for (std::size_t p = parts.begin; p < parts.end; ++p) rows += ceil_div(s.parts[p].rows, shards);
  if (s.cols == 0) return {rows};
  return {rows, div_exact(s.cols, shard(s, Placement::shard_columns).count)};
}

std::vector<PartSlice> ParameterSet::slices_of(int i) const {
  const ParameterSpec& s = specs_[i];
  const Shard rows = shard(s, Placement::shard_rows), cols = shard(s, Placement::shard_columns);
  const std::int64_t width = s.cols ? local_shape(i)[1] : 1;
  const Range own = own_parts(s);
  const bool shares_parts = own.end - own.begin < s.parts.size();
  std::vector<PartSlice> slices;
  std::int64_t at = offsets_[i];
  for (std::size_t k = 0; k < s.parts.size(); ++k) {
    const PartSpec& p = s.parts[k];
    PartSlice slice{.name = p.name,
                    .parameter = i,
                    .part = static_cast<int>(k),
                    .full = s.cols ? Shape{p.rows, s.cols} : Shape{p.rows},
                    .end = p.rows,
                    .offset = at};
    if (rows.count > 1 || cols.count > 1 || shares_parts) {
      slice.axis = cols.count > 1 ? 1 : 0;
      const Shard& of = cols.count > 1 ? cols : rows;
      const std::int64_t extent = slice.full[slice.axis], each = ceil_div(extent, of.count);
      slice.begin = std::min(extent, each * of.place);
      slice.end = std::min(extent, each * (of.place + 1));
    }
    if (k < own.begin || k >= own.end)
      slice.end = slice.begin;
    else
      at += ceil_div(p.rows, rows.count) * width;
    slices.push_back(std::move(slice));
  }
  return slices;
}

void ParameterSet::check_names() const {
  std::vector<std::string_view> names;
  for (const ParameterSpec& s : specs_)
    for (const PartSpec& part : s.parts)
      if (part.first_row == 0) names.push_back(part.drawn_as());
  check_random_streams(names);
}

void ParameterSet::finish() {
  check_names();
  offsets_.resize(specs_.size());
  first_slices_.resize(specs_.size());
  for (int i = 0; i < size(); ++i) padded_.push_back(round_up(local_shape(i).elements(), kGranule));
  std::vector<comm::AxisSet> reductions{layout_.group_of(kTokenAxes)};  // in order of first use
  std::vector<comm::AxisSet> reduced(specs_.size());
  for (int i = 0; i < size(); ++i) {
    if (!owned(i)) continue;
    reduced[i] = layout_.group_of(axes_with(specs_[i].gradient(), Placement::partial));
    if (std::ranges::find(reductions, reduced[i]) == reductions.end())
      reductions.push_back(reduced[i]);
  }
  for (const comm::AxisSet axes : reductions) {
    std::int64_t begin = flat_;
    int last = -1;
    const auto end_segment = [&] {
      if (flat_ == begin) return;
      flat_ = begin + round_up(flat_ - begin, kGranule * layout_.size(axes));
      segments_.push_back({axes, std::exchange(begin, flat_), flat_});
    };
    for (int i = 0; i < size(); ++i) {
      if (!owned(i) || reduced[i] != axes) continue;
      if (segment_elements_ > 0 &&
          (layers_[i] != last || flat_ - begin + padded_[i] > segment_elements_))
        end_segment();
      last = layers_[i];
      offsets_[i] = flat_;
      order_.push_back(i);
      first_slices_[i] = static_cast<int>(slices_.size());
      std::ranges::move(slices_of(i), std::back_inserter(slices_));
      flat_ += padded_[i];
    }
    end_segment();
  }
  for (const int i : borrowed()) {
    offsets_[i] = borrowed_;
    borrowed_ += padded_[i];
  }
}

std::span<const int> ParameterSet::lying_in(std::int64_t begin, std::int64_t end) const {
  const auto ends = [&](int i) { return offsets_[i] + padded_[i]; };
  const auto begins = [&](int i) { return offsets_[i]; };
  const auto first = std::ranges::upper_bound(order_, begin, {}, ends);
  return {first, std::ranges::lower_bound(first, order_.end(), end, {}, begins)};
}

std::int64_t ParameterSpec::elements() const {
  std::int64_t n = 0;
  for (const PartSpec& p : parts) n += p.rows * std::max<std::int64_t>(cols, 1);
  return n;
}

std::int64_t ParameterSet::total_elements() const {
  std::int64_t n = 0;
  for (const ParameterSpec& s : specs_) n += s.elements();
  return n;
}

std::int64_t ParameterSet::trained_elements() const {
  std::int64_t n = 0;
  for (const ParameterSpec& s : specs_) n += s.trained && !s.evens_load ? s.elements() : 0;
  return n;
}

Tensor ParameterSet::view(int i, void* flat, DType t) const {
  return {static_cast<std::byte*>(flat) + offsets_[i] * size_of(t), t, local_shape(i)};
}

template <class T>
void ParameterSet::initialize(std::uint64_t seed, const PartSlice& s, std::int64_t first,
                              std::int64_t count, T* out, int threads) const {
  if (count == 0) return;
  const Init init = specs_[s.parameter].init;
  if (init.kind == Init::Kind::constant) {
    std::fill_n(out, count, static_cast<T>(init.value));
    return;
  }
  const PartSpec& part = specs_[s.parameter].parts[static_cast<std::size_t>(s.part)];
  const RandomKey key{seed, Purpose::init, stream_of(part.drawn_as()), 0};
  const auto value = static_cast<float>(init.value);
  const std::int64_t cols = s.full.rank() > 1 ? s.full[1] : 1;
  const std::int64_t width = s.axis == 1 ? s.end - s.begin : cols;
  const std::int64_t row0 = part.first_row + (s.axis == 0 ? s.begin : 0),
                     col0 = s.axis == 1 ? s.begin : 0;
  const std::int64_t last = first + count;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t row = first / width; row < ceil_div(last, width); ++row) {
    const std::int64_t begin = std::max(first, row * width),
                       end = std::min(last, (row + 1) * width);
    const auto place = static_cast<std::uint64_t>((row0 + row) * cols + col0 + begin - row * width);
    if (init.kind == Init::Kind::normal)
      kernels::normals(key, place, end - begin, value, out + begin - first);
    else
      for (std::int64_t i = 0; i < end - begin; ++i)
        out[begin - first + i] = static_cast<T>(std::log(
            0.01 + (init.value - 0.01) * 0x1p-32 *
                       static_cast<double>(key.word(place + static_cast<std::uint64_t>(i)))));
  }
}
template void ParameterSet::initialize(std::uint64_t, const PartSlice&, std::int64_t, std::int64_t,
                                       float*, int) const;
template void ParameterSet::initialize(std::uint64_t, const PartSlice&, std::int64_t, std::int64_t,
                                       double*, int) const;

}  // namespace tfm::nn
