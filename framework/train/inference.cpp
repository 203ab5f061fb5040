#include "train/inference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tfm {
namespace {

bool given_leaf(const std::vector<std::pair<Value, Tensor>>& given, std::size_t value) {
  return std::any_of(given.begin(), given.end(), [&](const auto& g) { return g.first.id == static_cast<int>(value); });
}

std::int64_t leaf_bytes(const Recording& r, const std::vector<std::pair<Value, Tensor>>& given) {
  MemoryPlan plan;
  const auto& values = r.tape->values();
  for (std::size_t v = 0; v < values.size(); ++v)
    if ((values[v].role == Role::input || values[v].role == Role::constant) && !given_leaf(given, v)) plan.add("leaves", values[v].bytes());
  return plan.total();
}

}  // namespace

Forward::Forward(const Model& model, Recording recording, const std::vector<Value>& outputs, void* flat,
                 const std::vector<std::pair<Value, Tensor>>& given)
    : recording_(std::move(recording)), program_(plan(recording_.tape, {.training = false, .outputs = outputs})),
      arena_(program_.arena_bytes() + leaf_bytes(recording_, given)) {
  const auto& values = recording_.tape->values();
  leaves_.resize(values.size());
  for (const auto& [value, tensor] : given) leaves_[value.id] = tensor;
  for (std::size_t v = 0; v < values.size(); ++v) {
    const ValueInfo& info = values[v];
    if (info.role == Role::parameter)
      leaves_[v] = model.parameters().view(info.parameter, flat, recording_.tape->real());
    else if (info.role != Role::activation && !leaves_[v])
      leaves_[v] = {arena_.take("leaves", info.bytes()), info.dtype, info.shape};
  }
  program_.bind(arena_.take("activations", program_.arena_bytes()), {leaves_, std::vector<Tensor>(values.size())});
  for (const auto& [value, fill] : recording_.constants) fill(leaves_[value.id]);
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

Forward forward_logits(const Model& model, void* flat, const BatchShape& shape, DType real) {
  Recording r = model.record_logits(shape, real);
  const Value logits = r.logits;
  return {model, std::move(r), {logits}, flat};
}

}  // namespace

Inference::Inference(const Model& model, const Mesh& mesh, void* flat, const BatchShape& shape, std::int64_t vocab_size, int threads,
                     DType real)
    : mesh_(mesh), stream_{threads}, forward_(forward_logits(model, flat, shape, real)), vocab_size_(vocab_size),
      vocab_begin_(model.vocab_begin()) {}

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

Inference::Score Inference::score(std::span<const std::int32_t> labels) const {
  const Tensor logits = forward_.output(forward_.recording().logits);
  const std::int64_t rows = logits.shape[0], width = logits.shape[1], real = std::clamp<std::int64_t>(vocab_size_ - vocab_begin_, 0, width);
  TFM_CHECK(std::ssize(labels) == rows, "a label for each row");
  std::vector<double> best(static_cast<std::size_t>(rows), -std::numeric_limits<double>::infinity());
  std::vector<std::int32_t> best_id(best.size(), 0);                    // negated, so that the lowest is the largest
  std::vector<double> sums(2 * best.size());                            // of exponentials; the label's logit
  Score s;
  with_float(logits.dtype, [&]<class T>() {
    const auto row = [&](std::size_t r) {
      return logits.span<T>().subspan(r * static_cast<std::size_t>(width), static_cast<std::size_t>(real));
    };
    for (std::size_t r = 0; r < best.size(); ++r)
      if (labels[r] >= 0 && real > 0) best[r] = static_cast<double>(*std::max_element(row(r).begin(), row(r).end()));
    const std::vector<double> own = best;
    mesh_.tensor->all_reduce({best.data(), DType::f64, {rows}}, Collective::all_reduce_max);
    for (std::size_t r = 0; r < best.size(); ++r) {
      best_id[r] = std::numeric_limits<std::int32_t>::min();
      if (labels[r] < 0 || real == 0) continue;
      const auto x = row(r);
      if (own[r] == best[r]) best_id[r] = -static_cast<std::int32_t>(std::max_element(x.begin(), x.end()) - x.begin() + vocab_begin_);
      for (const T logit : x) sums[r] += std::exp(static_cast<double>(logit) - best[r]);
      const std::int64_t at = labels[r] - vocab_begin_;
      if (at >= 0 && at < real) sums[best.size() + r] = static_cast<double>(x[static_cast<std::size_t>(at)]);
    }
  });
  mesh_.tensor->all_reduce({best_id.data(), DType::i32, {rows}}, Collective::all_reduce_max);
  mesh_.tensor->all_reduce({sums.data(), DType::f64, {2 * rows}});
  for (std::size_t r = 0; r < best.size(); ++r) {
    if (labels[r] < 0) continue;
    s.loss += best[r] + std::log(sums[r]) - sums[best.size() + r];
    ++s.labels;
    s.correct += -best_id[r] == labels[r];
  }
  return s;
}

namespace {

Forward forward_memory(const Model& model, void* flat, const BatchShape& shape, DType real) {
  Recording r = model.record_memory(shape, real);
  const std::vector<Value> made = r.memory;
  return {model, std::move(r), made, flat};
}

// `source`: makes the memory, if there is one; `owner`: has the caches, if somebody else does.
Forward forward_step(const Model& model, void* flat, BatchShape shape, std::int64_t length, DType real,
                     const std::optional<Forward>& source, const std::optional<Forward>& owner) {
  shape.length = length;
  Recording r = model.record_step(shape, real);
  const Value logits = r.logits;
  std::vector<std::pair<Value, Tensor>> given;
  for (std::size_t l = 0; l < r.memory.size(); ++l) given.emplace_back(r.memory[l], source->output(source->recording().memory[l]));
  for (std::size_t l = 0; owner && l < r.caches.size(); ++l) given.emplace_back(r.caches[l], owner->leaf(owner->recording().caches[l]));
  return {model, std::move(r), {logits}, flat, given};
}

}  // namespace

Generation::Generation(const Model& model, const Mesh& mesh, void* flat, const BatchShape& shape, std::int64_t vocab_size, int threads,
                       DType real)
    : mesh_(mesh), stream_{threads}, shape_(shape), logits_(static_cast<std::size_t>(shape.sequences * vocab_size)),
      vocab_size_(vocab_size) {
  if (shape.source_length > 0) source_.emplace(forward_memory(model, flat, shape, real));
  step_.emplace(forward_step(model, flat, shape, 1, real, source_, {}));
  if (shape.length > 1) steps_.emplace(forward_step(model, flat, shape, shape.length, real, source_, step_));
}

void Generation::start(const Fields& source) {
  position_ = 0;
  if (!source_) return;
  const auto mask = source.at("source_mask");
  source_mask_.assign(mask.begin(), mask.end());
  source_->run({&stream_, &mesh_, {}}, source);
}

void Generation::step(std::span<const std::int32_t> ids) {
  const std::int64_t tokens = div_exact(std::ssize(ids), shape_.sequences);
  TFM_CHECK(tokens == 1 || tokens == shape_.length, "one token or as many as recorded");
  TFM_CHECK(position_ + tokens <= shape_.capacity, "the sequences are full");
  const Forward& forward = tokens == 1 ? *step_ : *steps_;
  std::vector<std::int32_t> next(ids.begin(), ids.end());
  Fields fields{{"ids", next}};
  if (source_) fields["source_mask"] = source_mask_;
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
  for (const Value v : step_->recording().caches) {
    const Tensor cache = step_->leaf(v);
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
