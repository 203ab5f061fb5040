#include "inference/inference.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/embedding.h"

namespace tfm::inference {
Inference::Inference(const nn::Model& model, const comm::RankContext& rank_context,
                     const Weights& weights, const nn::BatchShape& shape, std::int64_t classes,
                     std::string_view head)
    : rank_context_(rank_context),
      forward_(ForwardPass::logits(model, shape, weights.dtype, head)),
      arena_(rank_context_.device.allocate(forward_.bytes()), forward_.bytes()),
      classes_(classes) {
  forward_.bind(rank_context_.device.stream(), weights, arena_);
}

void Inference::run(const BatchFields& fields) {
  forward_.run({rank_context_.device.stream(), &rank_context_.tensors, {}}, fields);
}

std::vector<double> Inference::row(std::int64_t index) {
  const Tensor logits = forward_.output(forward_.recording().logits);
  const std::int64_t width = logits.shape[1],
                     ranks = rank_context_.mesh.layout.size(nn::kModelAxes);
  std::vector<double> mine(static_cast<std::size_t>(width)),
      all(static_cast<std::size_t>(width * ranks));
  with_float(logits.dtype, [&]<class T>() {
    std::vector<T> row(mine.size());
    device::download(rank_context_.device.stream(), row.data(), logits.ptr<T>() + index * width,
                     width * static_cast<std::int64_t>(sizeof(T)));
    std::copy(row.begin(), row.end(), mine.begin());
  });
  rank_context_.mesh.group(nn::kModelAxes)
      .all_gather({mine.data(), DType::f64, {width}}, {all.data(), DType::f64, {width * ranks}});
  all.resize(static_cast<std::size_t>(classes_));
  return all;
}

Generation::Forwards::Forwards(const nn::Model& model, const nn::BatchShape& shape, DType dtype) {
  if (shape.source_length > 0) {
    nn::Recording r = model.record_encoder(shape, dtype);
    const std::vector<graph::Value> made = r.source_states();
    source.emplace(std::move(r), made);
  }
  const auto steps_of = [&](std::int64_t length, bool own_states) {
    nn::BatchShape s = shape;
    s.length = length;
    nn::Recording r = model.record_decode(s, dtype);
    const graph::Value logits = r.logits;
    std::vector<graph::Value> given = r.source_states();
    if (!own_states)
      for (const graph::Value own : r.own_states()) given.push_back(own);
    return ForwardPass(std::move(r), {logits}, {.given = std::move(given)});
  };
  step.emplace(steps_of(1, true));
  if (shape.length > 1) steps.emplace(steps_of(shape.length, false));
}

std::pair<std::byte*, std::span<std::int32_t>> Generation::Forwards::lay_out_order(
    device::Arena& arena) const {
  const nn::BatchShape& shape = step->recording().shape;
  if (shape.beams == 1) return {};
  std::int64_t longest = 0;
  for (const graph::Value state : step->recording().own_states())
    longest = std::max(longest, step->recording().tape->info(state).bytes());
  std::byte* const aside = arena.take("order", longest);
  return {aside, arena.take_span<std::int32_t>("order", shape.sequences * shape.capacity)};
}

std::int64_t Generation::Forwards::bytes() const {
  device::Arena order;
  lay_out_order(order);
  return (source ? source->bytes() : 0) + step->bytes() + (steps ? steps->bytes() : 0) +
         order.high_water();
}

std::int64_t Generation::bytes(const nn::Model& model, const nn::BatchShape& shape, DType dtype) {
  return Forwards(model, shape, dtype).bytes();
}

namespace {

device::Arena arena_of(device::Device& device, std::span<std::byte> memory, std::int64_t bytes) {
  if (memory.empty()) return {device.allocate(bytes), bytes};
  TFM_CHECK(std::ssize(memory) >= bytes, "memory for a generation");
  device::on(device.stream(), [&](auto& s) {
    kernels::fill(s,
                  kernels::FillArgs<float>{bytes / 4, 0, reinterpret_cast<float*>(memory.data())});
  });
  return {std::shared_ptr<std::byte>(memory.data(), [](std::byte*) {}), bytes};
}

}  // namespace

Generation::Generation(const nn::Model& model, const comm::RankContext& rank_context,
                       const Weights& weights, const nn::BatchShape& shape, std::int64_t vocab_size,
                       std::span<std::byte> memory)
    : rank_context_(rank_context),
      shape_(shape),
      forwards_(model, shape, weights.dtype),
      arena_(arena_of(rank_context_.device, memory, forwards_.bytes())),
      logits_(static_cast<std::size_t>(shape.sequences * vocab_size)),
      vocab_size_(vocab_size) {
  auto& [source, step, steps] = forwards_;
  const device::AnyStream stream = rank_context_.device.stream();
  std::vector<Tensor> given;
  if (source) source->bind(stream, weights, arena_);
  if (source)
    for (const graph::Value made : source->recording().source_states())
      given.push_back(source->output(made));
  step->bind(stream, weights, arena_, given);
  for (const graph::Value own : step->recording().own_states()) given.push_back(step->leaf(own));
  if (steps) steps->bind(stream, weights, arena_, given);
  std::tie(aside_, rows_) = forwards_.lay_out_order(arena_);
}

void Generation::clear(const Tensor& state) {
  with_float(state.dtype, [&]<class T>() {
    device::on(rank_context_.device.stream(), [&](auto& s) {
      kernels::fill(s, kernels::FillArgs<T>{state.elements(), T{}, state.ptr<T>()});
    });
  });
}

void Generation::run(const ForwardPass& forward, const BatchFields& fields) {
  forward.run(
      {rank_context_.device.stream(), &rank_context_.tensors, {.first_position = position_}},
      fields);
}

void Generation::start(const BatchFields& source) {
  position_ = 0;
  for (const nn::Recording::State& s : forwards_.step->recording().states)
    if (s.kind == nn::StateSpec::Kind::fixed) clear(forwards_.step->leaf(s.value));
  if (!forwards_.source) return;
  const auto mask = source.at(Field::source_mask);
  source_mask_.assign(mask.begin(), mask.end());
  run(*forwards_.source, source);
}

void Generation::step(std::span<const std::int32_t> ids) {
  const std::int64_t tokens = div_exact(std::ssize(ids), shape_.sequences);
  TFM_CHECK(tokens == 1 || tokens == shape_.length, "one token or as many as recorded");
  TFM_CHECK(position_ + tokens <= shape_.capacity, "the sequences are full");
  const ForwardPass& forward = tokens == 1 ? *forwards_.step : *forwards_.steps;
  std::vector<std::int32_t> next(ids.begin(), ids.end());
  BatchFields fields{{Field::ids, next}};
  if (forwards_.source) fields[Field::source_mask] = source_mask_;
  run(forward, fields);
  position_ += tokens;
  gather_logits(forward);
}

// Logits of each sequence's last token; tensor ranks hold consecutive parts of the vocabulary.
void Generation::gather_logits(const ForwardPass& from) {
  const Tensor logits = from.output(from.recording().logits);
  const std::int64_t rows = shape_.sequences, each = logits.shape[0] / rows,
                     width = logits.shape[1],
                     ranks = rank_context_.mesh.layout.size(nn::kModelAxes);
  with_float(logits.dtype, [&]<class T>() {
    std::vector<T> mine(static_cast<std::size_t>(rows * width)),
        all(static_cast<std::size_t>(ranks * rows * width));
    const std::int64_t together = each == 1 ? rows : 1;  // contiguous rows
    for (std::int64_t r = 0; r < rows; r += together)
      device::download(rank_context_.device.stream(), mine.data() + r * width,
                       logits.ptr<T>() + (r * each + each - 1) * width,
                       together * width * static_cast<std::int64_t>(sizeof(T)));
    rank_context_.mesh.group(nn::kModelAxes)
        .all_gather({mine.data(), logits.dtype, {rows, width}},
                    {all.data(), logits.dtype, {ranks * rows, width}});
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(all.data() + (rank * rows + r) * width,
                    std::clamp<std::int64_t>(vocab_size_ - rank * width, 0, width),
                    logits_.data() + r * vocab_size_ + std::min(rank * width, vocab_size_));
  });
}

// Moves the rows of states to the beams that continue them: to scratch memory first, then to where
// they belong.
void Generation::reorder(std::span<const std::int64_t> parents) {
  const auto changed = [&](std::size_t i) { return parents[i] != static_cast<std::int64_t>(i); };
  for (const nn::Recording::State& s : forwards_.step->recording().states) {
    if (s.kind == nn::StateSpec::Kind::source) continue;
    const bool growing = s.kind == nn::StateSpec::Kind::growing;
    const std::int64_t stride = s.rows, used = growing ? std::min(position_, s.rows) : 1;
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; i < parents.size(); ++i)
      for (std::int64_t t = 0; changed(i) && t < used; ++t)
        rows.push_back(static_cast<std::int32_t>(parents[i] * stride + t));
    if (rows.empty()) continue;
    TFM_CHECK(aside_, "sequences that are reordered are beams");
    const device::AnyStream stream = rank_context_.device.stream();
    device::upload(stream, rows_.data(), rows.data(), std::ssize(rows) * 4);
    const Tensor state = forwards_.step->leaf(s.value);
    const std::int64_t width = state.shape[1];
    with_float(state.dtype, [&]<class T>() {
      const T* aside = reinterpret_cast<const T*>(aside_);
      device::on(stream, [&](auto& on) {
        kernels::embedding(
            on, kernels::EmbeddingArgs<T>{std::ssize(rows), width, rows_.data(), state.ptr<T>(), 0,
                                          state.shape[0], 1, reinterpret_cast<T*>(aside_)});
        for (std::size_t i = 0; i < parents.size(); ++i) {
          if (!changed(i)) continue;
          kernels::copy(on, kernels::CopyArgs<T>{
                                used * width, aside,
                                state.ptr<T>() + static_cast<std::int64_t>(i) * stride * width});
          aside += used * width;
        }
      });
    });
  }
}

}  // namespace tfm::inference
