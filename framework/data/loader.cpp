#include "data/loader.h"

#include <algorithm>
#include <utility>

namespace tfm::data {
namespace {

// The index of each position within its document, of sequences of `width` positions.
void count_positions(std::span<const std::int32_t> mask, std::int64_t width,
                     std::span<std::int32_t> positions) {
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const bool begins =
        static_cast<std::int64_t>(i) % width == 0 || mask[i] < 0 || mask[i] != mask[i - 1];
    positions[i] = begins ? 0 : positions[i - 1] + 1;
  }
}

}  // namespace

DataLoader::RankShape DataLoader::rank_shape(const nn::Recording& recording,
                                             std::int64_t sequences) {
  RankShape shape{.sequences = sequences,
                  .widths = {},
                  .share = recording.shape.share,
                  .together = recording.shape.sequences};
  for (const Field field : recording.fields) shape.widths[field] = recording.shape.width(field);
  return shape;
}

std::int64_t DataLoader::RankShape::elements(Field field) const {
  const std::int64_t width = widths.at(field);
  return sequences * (info_of(field).by_position() ? Rows{1, width, share}.tokens() : width);
}

DataLoader::DataLoader(const Dataset& dataset, std::vector<RankShape> shapes,
                       const LoaderOptions& options, std::vector<BatchFields> memory)
    : dataset_(dataset), shapes_(std::move(shapes)), options_(options), memory_(std::move(memory)) {
  TFM_CHECK(!shapes_.empty(), "a loader needs at least one shape");
  const bool given = !memory_.empty();
  if (!given) memory_.resize(1);
  batches_.resize(memory_.size());
  for (const RankShape& shape : shapes_)
    for (const auto& [field, width] : shape.widths) {
      const auto elements = static_cast<std::size_t>(shape.elements(field));
      for (BatchFields& fields : memory_) {
        if (fields[field].size() >= elements) continue;
        TFM_CHECK(!given, "the memory given is too small for a part");
        own_memory_[field].resize(elements);
        fields[field] = own_memory_[field];
      }
    }
}

std::int64_t DataLoader::rounds(std::int64_t index) const {
  const Dataset::GlobalBatch batch = dataset_.batch(index);
  return ceil_div(batch.sequences, shapes_.at(batch.shape).sequences * options_.ranks);
}

DataLoader::Data DataLoader::read(Key key) const {
  const Dataset::GlobalBatch global = dataset_.batch(key.index);
  const RankShape& shape = shapes_.at(global.shape);
  Data data;
  data.batch.shape = global.shape;
  data.batch.first = (key.round * options_.ranks + options_.rank) * shape.sequences;
  data.batch.sequences =
      std::clamp<std::int64_t>(global.sequences - data.batch.first, 0, shape.sequences);
  BatchFields real;
  for (const auto& [field, width] : shape.widths) {
    const auto filled = static_cast<std::size_t>(data.batch.sequences * width);
    auto& values = data.values[field];
    values.resize(static_cast<std::size_t>(shape.sequences * width), info_of(field).padding);
    real[field] = std::span(values).first(filled);
    data.batch.fields[field] = values;
  }
  const auto positions = real.extract(Field::positions);
  if (data.batch.sequences > 0)
    dataset_.fill(key.index, data.batch.first, data.batch.sequences, real);
  if (positions)
    count_positions(real.at(Field::mask), shape.widths.at(Field::mask), positions.mapped());
  if (shape.share.ranks > 1) cut(shape, data);
  return data;
}

// Of whole sequences what this rank has; what belongs to a sequence is the first rank's.
void DataLoader::cut(const RankShape& shape, Data& data) const {
  for (auto& [field, whole] : data.values) {
    const FieldInfo& info = info_of(field);
    if (info.width == FieldWidth::one && info.is_label() && shape.share.rank > 0)  // counts once
      std::ranges::fill(whole, info.padding);
    if (!info.by_position()) continue;
    const Rows rows{shape.together, shape.widths.at(field), shape.share};
    std::vector<std::int32_t> own;
    own.reserve(static_cast<std::size_t>(shape.elements(field)));
    for (std::int64_t first = 0; first < shape.sequences; first += rows.sequences)
      for (int k = 0; k < rows.chunks(); ++k)
        for (std::int64_t b = 0; b < rows.sequences; ++b) {
          const auto from = whole.begin() + (first + b) * rows.sequence_length + rows.start(k);
          own.insert(own.end(), from, from + rows.chunk_length());
        }
    whole = std::move(own);
    data.batch.fields[field] = whole;
  }
}

DataLoader::Key DataLoader::after(Key key) const {
  if (key.round + 1 < rounds(key.index)) return {key.index, key.round + 1};
  if (options_.batches > 0 && key.index + 1 >= options_.batches) return {};
  return {key.index + 1, 0};
}

const Batch& DataLoader::load(std::int64_t index, std::int64_t round) {
  const Key key{index, round};
  const Data data = ahead_.valid() && ahead_key_ == key ? ahead_.get() : read(key);
  ahead_key_ = after(key);
  ahead_ = {};
  if (ahead_key_.index >= 0) try {
      ahead_ = std::async(std::launch::async, [this, next = ahead_key_] { return read(next); });
    } catch (const std::system_error&) {  // no thread: read when it is asked for
    }
  Batch& batch = batches_[turn_];
  batch = data.batch;
  for (auto& [field, values] : batch.fields) {
    const auto to = memory_[turn_].at(field).first(values.size());
    std::ranges::copy(values, to.begin());
    values = to;
  }
  turn_ = (turn_ + 1) % memory_.size();
  return batch;
}

}  // namespace tfm::data
