#include "train/inference.h"

#include <algorithm>

namespace tfm {

Forward::Forward(Recording recording, const std::vector<Value>& outputs, std::vector<Value> given)
    : recording_(std::move(recording)), program_(plan(recording_.tape, {.training = false, .outputs = outputs})), given_(std::move(given)) {}

bool Forward::own(std::size_t value) const {
  const Role role = recording_.tape->values()[value].role;
  return (role == Role::input || role == Role::constant) &&
         std::ranges::none_of(given_, [&](Value g) { return g.id == static_cast<int>(value); });
}

std::int64_t Forward::bytes() const {
  MemoryPlan plan;
  plan.add("activations", program_.arena_bytes());
  const auto& values = recording_.tape->values();
  for (std::size_t v = 0; v < values.size(); ++v)
    if (own(v)) plan.add("leaves", values[v].bytes());
  return plan.total();
}

void Forward::bind(const Weights& weights, Arena& arena, const std::vector<Tensor>& given) {
  const auto& values = recording_.tape->values();
  TFM_CHECK(weights.real == recording_.tape->real(), "weights of another type than was recorded");
  leaves_.resize(values.size());
  for (std::size_t g = 0; g < given_.size(); ++g) leaves_[static_cast<std::size_t>(given_[g].id)] = given[g];
  for (std::size_t v = 0; v < values.size(); ++v) {
    const ValueInfo& info = values[v];
    if (info.role == Role::parameter) leaves_[v] = weights.places.view(info.parameter, weights.flat, recording_.tape->real());
    if (own(v)) leaves_[v] = {arena.take("leaves", info.bytes()), info.dtype, info.shape};
  }
  program_.bind(arena.take("activations", program_.arena_bytes()), {leaves_, std::vector<Tensor>(values.size())});
  for (std::size_t v = 0; v < values.size(); ++v)
    if (values[v].fill) values[v].fill(leaves_[v]);
}

void Forward::run(const ExecContext& context, const Fields& fields) const {
  for (const auto& [name, value] : recording_.inputs) {
    const Tensor in = leaf(value);
    std::int32_t* to = in.ptr<std::int32_t>();
    const auto found = fields.find(name);
    if (found == fields.end()) {
      std::fill_n(to, in.elements(), 0);
      continue;
    }
    TFM_CHECK(static_cast<std::int64_t>(found->second.size()) == in.elements(), name + " does not fill the recorded shape");
    std::copy(found->second.begin(), found->second.end(), to);
  }
  program_.run(context);
}

namespace {

Forward forward_logits(const Model& model, const BatchShape& shape, DType real) {
  Recording r = model.record_logits(shape, real);
  const Value logits = r.logits;
  return {std::move(r), {logits}};
}

}  // namespace

Inference::Inference(const Model& model, const Mesh& mesh, const Weights& weights, const BatchShape& shape, std::int64_t vocab_size,
                     int threads)
    : mesh_(mesh), stream_{threads}, forward_(forward_logits(model, shape, weights.real)), arena_(forward_.bytes()), vocab_size_(vocab_size) {
  forward_.bind(weights, arena_);
}

void Inference::run(const Fields& fields) { forward_.run({&stream_, &mesh_, {}}, fields); }

std::vector<double> Inference::row(std::int64_t index) const {
  const Tensor logits = forward_.output(forward_.recording().logits);
  const std::int64_t width = logits.shape[1];
  std::vector<double> mine(static_cast<std::size_t>(width)), all(static_cast<std::size_t>(width * mesh_.layout.tensor));
  with_float(logits.dtype, [&]<class T>() {
    const T* p = logits.ptr<T>() + index * width;
    std::copy(p, p + width, mine.begin());
  });
  mesh_.tensor->all_gather({mine.data(), DType::f64, {width}}, {all.data(), DType::f64, {width * mesh_.layout.tensor}});
  all.resize(static_cast<std::size_t>(vocab_size_));
  return all;
}

Generation::Forwards::Forwards(const Model& model, const BatchShape& shape, DType real) {
  if (shape.source_length > 0) {
    Recording r = model.record_memory(shape, real);
    const std::vector<Value> made = r.memory;
    source.emplace(std::move(r), made);
  }
  const auto steps_of = [&](std::int64_t length, bool own_caches) {
    BatchShape s = shape;
    s.length = length;
    Recording r = model.record_step(s, real);
    const Value logits = r.logits;
    std::vector<Value> given = r.memory;
    if (!own_caches) given.insert(given.end(), r.caches.begin(), r.caches.end());
    return Forward(std::move(r), {logits}, std::move(given));
  };
  step.emplace(steps_of(1, true));
  if (shape.length > 1) steps.emplace(steps_of(shape.length, false));
}

std::int64_t Generation::Forwards::bytes() const {
  return (source ? source->bytes() : 0) + step->bytes() + (steps ? steps->bytes() : 0);
}

std::int64_t Generation::bytes(const Model& model, const BatchShape& shape, DType real) { return Forwards(model, shape, real).bytes(); }

Generation::Generation(const Model& model, const Mesh& mesh, const Weights& weights, const BatchShape& shape, std::int64_t vocab_size,
                       int threads, std::span<std::byte> memory)
    : mesh_(mesh), stream_{threads}, shape_(shape), forwards_(model, shape, weights.real),
      arena_(memory.empty() ? Arena(forwards_.bytes()) : Arena(memory.first(std::min(memory.size(), static_cast<std::size_t>(forwards_.bytes()))))),
      logits_(static_cast<std::size_t>(shape.sequences * vocab_size)), vocab_size_(vocab_size) {
  auto& [source, step, steps] = forwards_;
  std::vector<Tensor> given;
  if (source) source->bind(weights, arena_);
  for (std::size_t l = 0; source && l < source->recording().memory.size(); ++l) given.push_back(source->output(source->recording().memory[l]));
  step->bind(weights, arena_, given);
  for (const Value cache : step->recording().caches) given.push_back(step->leaf(cache));
  if (steps) steps->bind(weights, arena_, given);
}

void Generation::start(const Fields& source) {
  position_ = 0;
  if (!forwards_.source) return;
  const auto mask = source.at("source_mask");
  source_mask_.assign(mask.begin(), mask.end());
  forwards_.source->run({&stream_, &mesh_, {}}, source);
}

void Generation::step(std::span<const std::int32_t> ids) {
  const std::int64_t tokens = div_exact(std::ssize(ids), shape_.sequences);
  TFM_CHECK(tokens == 1 || tokens == shape_.length, "one token or as many as recorded");
  TFM_CHECK(position_ + tokens <= shape_.capacity, "the sequences are full");
  const Forward& forward = tokens == 1 ? *forwards_.step : *forwards_.steps;
  std::vector<std::int32_t> next(ids.begin(), ids.end());
  Fields fields{{"ids", next}};
  if (forwards_.source) fields["source_mask"] = source_mask_;
  forward.run({&stream_, &mesh_, {.first_position = position_}}, fields);
  position_ += tokens;
  gather_logits(forward);
}

// Of each sequence's last token; ranks hold the parts of the vocabulary in rank order.
void Generation::gather_logits(const Forward& from) {
  const Tensor logits = from.output(from.recording().logits);
  const std::int64_t rows = shape_.sequences, each = logits.shape[0] / rows, width = logits.shape[1], ranks = mesh_.layout.tensor;
  with_float(logits.dtype, [&]<class T>() {
    std::vector<T> mine(static_cast<std::size_t>(rows * width)), all(static_cast<std::size_t>(ranks * rows * width));
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(logits.ptr<T>() + (r * each + each - 1) * width, width, mine.data() + r * width);
    mesh_.tensor->all_gather({mine.data(), logits.dtype, {rows, width}}, {all.data(), logits.dtype, {ranks * rows, width}});
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(all.data() + (rank * rows + r) * width, std::clamp<std::int64_t>(vocab_size_ - rank * width, 0, width),
                    logits_.data() + r * vocab_size_ + std::min(rank * width, vocab_size_));
  });
}

void Generation::reorder(std::span<const std::int64_t> parents) {
  const std::int64_t capacity = shape().capacity;
  std::vector<std::byte> moved;
  for (const Value v : forwards_.step->recording().caches) {
    const Tensor cache = forwards_.step->leaf(v);
    const std::int64_t row = cache.shape[1] * static_cast<std::int64_t>(size_of(cache.dtype)), used = position_ * row;
    auto* base = static_cast<std::byte*>(cache.data);
    moved.resize(parents.size() * static_cast<std::size_t>(used));
    for (const bool back : {false, true})
      for (std::int64_t i = 0; i < std::ssize(parents); ++i) {
        if (parents[static_cast<std::size_t>(i)] == i) continue;
        std::byte* aside = moved.data() + i * used;
        if (back) std::copy_n(aside, used, base + i * capacity * row);
        else std::copy_n(base + parents[static_cast<std::size_t>(i)] * capacity * row, used, aside);
      }
  }
}

}  // namespace tfm
