#include "train/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "data/hidden_tokens.h"
#include "device/timed.h"
#include "kernels/optimizer.h"
#include "train/translator.h"

namespace tfm {
namespace {

constexpr const char* kParameters = "parameters";
constexpr const char* kGradients = "gradients";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kMaster = "master_weights";
constexpr const char* kAverage = "average";
constexpr const char* kActivations = "activations";
constexpr const char* kBatch = "batch";
constexpr const char* kConstants = "constants";
constexpr std::int64_t kMicroTokens = 4096;  // of a side of a micro-batch of sentence pairs

DType real_of(const Config& c) { return c.precision == "bf16" ? DType::bf16 : c.precision == "fp16" ? DType::f16 : DType::f32; }

Recompute recompute_of(const std::string& name) {
  return name == "full" ? Recompute::full : name == "selective" ? Recompute::selective : Recompute::none;
}

template <class F> void each_recording(const StepPlan& p, F&& f) {
  for (const ShapePlan& s : p.shapes)
    for (const Recording* r : {&s.training, &s.evaluation}) f(s, *r);
}

// Leaves other than parameters, once by name: micro-batch inputs and constants.
std::map<std::string, std::int64_t> leaves(const StepPlan& p, Role role) {
  std::map<std::string, std::int64_t> bytes;
  each_recording(p, [&](const ShapePlan&, const Recording& r) {
    for (const ValueInfo& v : r.tape->values())
      if (v.role == role) bytes[v.name] = std::max(bytes[v.name], v.bytes());
  });
  return bytes;
}

// Elements of this rank's part of the global batch, by field.
std::map<std::string, std::int64_t> batch_elements(const StepPlan& p) {
  std::map<std::string, std::int64_t> elements;
  each_recording(p, [&](const ShapePlan& s, const Recording& r) {
    for (const auto& [name, value] : r.inputs)
      elements[name] = std::max(elements[name], r.tape->info(value).shape.elements() * s.micro_batches);
  });
  return elements;
}

std::int64_t arena_bytes(const StepPlan& p) {
  std::int64_t most = p.translator ? translation_bytes(*p.translator, p.config.model, translation_of(p.config), p.real) : 0;
  for (const ShapePlan& s : p.shapes) most = std::max({most, s.train_program.arena_bytes(), s.eval_program.arena_bytes()});
  return most;
}

void plan_memory(StepPlan& p, const OptimizerOptions& options) {
  const auto real = static_cast<std::int64_t>(size_of(p.real));
  const ParameterSet& parameters = p.model->parameters();
  const auto wide_real = static_cast<std::int64_t>(size_of(wide(p.real)));
  p.memory.add(kParameters, parameters.flat_elements() * real);
  p.memory.add(kGradients, parameters.flat_elements() * wide_real);
  const std::int64_t state = Optimizer::state_elements(parameters, p.mesh.layout, options, p.buckets) * wide_real;
  for (int k = 0; k < options.states(); ++k) p.memory.add(kOptimizer, state);
  if (is_half(p.real)) p.memory.add(kMaster, state);
  if (options.ema > 0) p.memory.add(kAverage, state);
  p.memory.add(kActivations, arena_bytes(p));
  for (const auto& [name, elements] : batch_elements(p)) (p.on_host() ? p.memory : p.staging).add(kBatch, elements * 4);
  for (const auto& [name, bytes] : leaves(p, Role::input)) p.memory.add(kBatch, bytes);
  for (const auto& [name, bytes] : leaves(p, Role::constant)) p.memory.add(kConstants, bytes);
}

// The part of a global batch that one rank takes at a time.
ShapePlan divide(const Config& c, const Layout& layout, BatchShape shape) {
  ShapePlan s{.batch = shape.sequences, .shape = shape};
  const std::int64_t each = ceil_div(s.batch, layout.data);
  if (c.train.global_batch_tokens == 0) {
    s.shape.sequences = c.train.micro_batch_size;
    s.micro_batches = div_exact(each, s.shape.sequences);
    return s;
  }
  // Whole rows of every tensor rank under sequence parallelism.
  const std::int64_t step = c.parallel.sequence ? layout.tensor / std::gcd<std::int64_t>(layout.tensor, shape.length) : 1;
  const std::int64_t most = c.train.micro_batch_size > 0 ? c.train.micro_batch_size : std::max<std::int64_t>(1, kMicroTokens / shape.length);
  s.micro_batches = ceil_div(each, most);
  s.shape.sequences = round_up(ceil_div(each, s.micro_batches), step);
  return s;
}

void make_programs(StepPlan& p, ShapePlan& s, const OptimizerOptions& options) {
  s.training = p.model->record_loss(s.shape, p.real, true);
  s.evaluation = p.model->record_loss(s.shape, p.real, false);
  PlanOptions train{.recompute = recompute_of(p.config.recompute), .outputs = s.training.outputs()};
  const auto bytes = static_cast<std::int64_t>(size_of(wide(p.real)));
  for (const Bucket& b : p.buckets)
    train.buckets.push_back({b.parameters, {options.zero > 0 ? Collective::reduce_scatter : Collective::all_reduce_sum, b.axis,
                                            (b.end - b.begin) * bytes}});
  s.train_program = plan(s.training.tape, train);
  s.eval_program = plan(s.evaluation.tape, {.training = false, .outputs = s.evaluation.outputs()});
}

// Of the first sequences of fields.
Totals count_labels(const Recording& recording, const Fields& fields, std::int64_t sequences) {
  Totals t;
  for (std::size_t k = 0; k < recording.losses.size(); ++k) {
    const std::string& name = recording.losses[k].labels;
    const auto n = static_cast<std::size_t>(sequences * recording.width(recording.inputs.at(name)));
    for (std::int32_t label : fields.at(name).first(n)) t.labels[k] += label >= 0;
  }
  return t;
}

}  // namespace

Schedule schedule_of(const Config& c) {
  using Kind = Schedule::Kind;
  static const std::map<std::string, Kind> kinds{{"constant", Kind::constant}, {"linear", Kind::linear}, {"cosine", Kind::cosine},
                                                 {"noam", Kind::noam}, {"inverse_sqrt", Kind::inverse_sqrt}, {"wsd", Kind::wsd}};
  const bool wsd = c.schedule.type == "wsd";
  return {.kind = kinds.at(c.schedule.type), .lr = c.optimizer.lr, .min_lr = c.schedule.min_lr, .warmup = c.schedule.warmup_steps,
          .total = !wsd && c.schedule.decay_steps > 0 ? c.schedule.decay_steps : c.train.steps, .decay = wsd ? c.schedule.decay_steps : 0,
          .d_model = c.model.d_model};
}

OptimizerOptions optimizer_of(const Config& c) {
  using Kind = OptimizerOptions::Kind;
  const OptimizerConfig& o = c.optimizer;
  return {.kind = o.type == "sgd" ? Kind::sgd : o.type == "adam" ? Kind::adam : Kind::adamw, .beta1 = o.beta1, .beta2 = o.beta2,
          .eps = o.eps, .weight_decay = o.weight_decay, .momentum = o.momentum, .grad_clip = o.grad_clip,
          .zero = static_cast<int>(c.parallel.zero), .ema = o.ema};
}

std::vector<BatchShape> batch_shapes(const Config& c) {
  const TrainConfig& t = c.train;
  const bool documents = c.data.train.documents == "separate" || (c.data.validation && c.data.validation->documents == "separate");
  const auto shape = [&](std::int64_t sequences, std::int64_t length) {
    BatchShape s{.sequences = sequences, .length = length, .mask = documents ? Mask::documents : Mask::none};
    if (c.model.translates()) s.source_length = length;
    return s;
  };
  if (c.data.train.type == "span_corruption") {
    const SpanLengths s = span_lengths(t.seq_len, c.data.train.mask_probability, c.data.train.mean_span_length);
    return {{.sequences = t.global_batch_size, .length = round_up(s.target, std::lcm<std::int64_t>(8, c.parallel.tensor)), .source_length = t.seq_len}};
  }
  if (t.global_batch_tokens == 0) return {shape(t.global_batch_size, t.seq_len)};
  std::vector<BatchShape> all;
  for (std::int64_t length = 8; length < t.seq_len; length += std::max<std::int64_t>(8, length / 32 * 8))
    all.push_back(shape(std::max<std::int64_t>(1, t.global_batch_tokens / length), length));
  all.push_back(shape(std::max<std::int64_t>(1, t.global_batch_tokens / t.seq_len), t.seq_len));
  return all;
}

double StepPlan::matmul_flops() const {
  double f = 0;
  for (const Node& n : largest().training.tape->nodes()) f += 3 * n.op->matmul_flops();
  return f * static_cast<double>(largest().micro_batches);
}

std::vector<CollectiveUse> StepPlan::collectives(const ShapePlan& shape) const {
  std::vector<CollectiveUse> all;
  const auto bytes = static_cast<std::int64_t>(size_of(real)), objectives = static_cast<std::int64_t>(shape.training.losses.size());
  all.push_back({Collective::all_reduce_sum, Axis::data, 8 * objectives});  // labels
  for (std::int64_t m = 0; m < shape.micro_batches; ++m)
    for (const ProgramStep& s : shape.train_program.steps()) {
      if (s.phase == Phase::reduce) {
        if (m + 1 == shape.micro_batches) all.push_back(shape.train_program.buckets()[s.bucket].collective);
        continue;
      }
      for (const CollectiveUse& c : shape.training.tape->nodes()[s.node].op->collectives(s.phase)) all.push_back(c);
    }
  all.push_back({Collective::all_reduce_sum, Axis::data, 8 * objectives});  // loss
  all.push_back({Collective::all_reduce_sum, Axis::world, 40});             // gradient norm
  if (config.parallel.zero > 0)
    for (const Bucket& b : buckets) all.push_back({Collective::all_gather, b.axis, (b.end - b.begin) * bytes});
  std::erase_if(all, [&](const CollectiveUse& c) { return group_size(mesh.layout, c.axis) == 1; });
  return all;
}

std::uint64_t StepPlan::collective_hash() const {
  std::uint64_t h = 1469598103934665603ull;
  const auto mix = [&](std::uint64_t x) { h = (h ^ x) * 1099511628211ull; };
  for (const ShapePlan& s : shapes)
    for (const CollectiveUse& c : collectives(s)) {
      mix(static_cast<std::uint64_t>(c.kind));
      mix(static_cast<std::uint64_t>(c.axis));
      mix(static_cast<std::uint64_t>(c.bytes));
    }
  return h;
}

StepPlan make_step_plan(const Config& config, const Mesh& mesh, const MakeModel& make_model, std::optional<DType> real, const std::optional<BatchShape>& only) {
  StepPlan p{.config = config, .mesh = mesh, .real = real.value_or(real_of(config))};
  p.model = make_model(config, mesh);
  if (config.eval.every > 0 && config.eval.translates() && !only) {
    Config whole_rows = config;
    whole_rows.parallel.sequence = false;
    p.translator = make_model(whole_rows, mesh);
  }
  const OptimizerOptions options = optimizer_of(config);
  const auto bytes = static_cast<std::int64_t>(size_of(wide(p.real)));
  p.buckets = make_buckets(p.model->parameters(), mesh.layout, std::max<std::int64_t>(1, config.parallel.bucket_bytes / bytes));
  if (only)
    p.shapes.push_back({.batch = only->sequences * mesh.layout.data, .shape = *only});
  else
    for (const BatchShape& shape : batch_shapes(config)) p.shapes.push_back(divide(config, mesh.layout, shape));
  for (ShapePlan& s : p.shapes) make_programs(p, s, options);
  plan_memory(p, options);
  return p;
}

double Totals::mean() const {
  double sum = 0;
  for (std::size_t k = 0; k < loss.size(); ++k)
    if (labels[k] > 0) sum += loss[k] / static_cast<double>(labels[k]);
  return sum;
}

double Totals::perplexity() const { return std::exp(loss[0] / static_cast<double>(std::max<std::int64_t>(labels[0], 1))); }

double Totals::accuracy() const { return static_cast<double>(correct[0]) / static_cast<double>(labels[0]); }

void Totals::add(const Recording& run, const Fields& fields, const std::function<double(Value)>& output) {
  *this += count_labels(run, fields, run.shape.sequences);
  for (std::size_t k = 0; k < run.losses.size(); ++k) {
    loss[k] += output(run.losses[k].value);
    correct[k] += static_cast<std::int64_t>(output(run.losses[k].correct));
  }
}

Totals& Totals::operator+=(const Totals& other) {
  for (std::size_t k = 0; k < loss.size(); ++k) loss[k] += other.loss[k], labels[k] += other.labels[k], correct[k] += other.correct[k];
  return *this;
}

void Totals::all_reduce(Communicator& over) {
  over.all_reduce({loss.data(), DType::f64, {2}});
  over.all_reduce({labels.data(), DType::i64, {2}});
  over.all_reduce({correct.data(), DType::i64, {2}});
}

Engine::Engine(StepPlan plan, Device device)
    : plan_(std::move(plan)), device_(std::move(device)), tensors_(device_mesh(plan_.mesh, device_)),
      arena_(device_.allocate(plan_.memory.total()), plan_.memory.total()),
      host_(device_.allocate_host(plan_.staging.total()), plan_.staging.total()),
      optimizer_(plan_.model->parameters(), plan_.mesh, tensors_, optimizer_of(plan_.config), plan_.buckets, plan_.real) {
  TFM_CHECK(plan_.on_host() == device_.is_cpu(), "the plan is of another kind of device");
  const auto wide_real = static_cast<std::int64_t>(size_of(wide(plan_.real)));
  const std::int64_t flat = plan_.model->parameters().flat_elements(), state = optimizer_.state_elements() * wide_real;
  flat_.parameters = arena_.take(kParameters, flat * static_cast<std::int64_t>(size_of(plan_.real)));
  flat_.gradients = arena_.take(kGradients, flat * wide_real);
  for (int k = 0; k < optimizer_.options().states(); ++k) flat_.state[k] = arena_.take(kOptimizer, state);
  if (is_half(plan_.real)) flat_.master = arena_.take(kMaster, state);
  if (optimizer_.options().ema > 0) flat_.average = arena_.take(kAverage, state);
  if (plan_.real == DType::f16) loss_scale_ = LossScale::of_fp16();
  activations_ = arena_.take(kActivations, plan_.memory.categories.at(kActivations));
  for (const auto& [name, n] : batch_elements(plan_))
    batch_[name] = {reinterpret_cast<std::int32_t*>((plan_.on_host() ? arena_ : host_).take(kBatch, n * 4)), static_cast<std::size_t>(n)};
  view_ = batch_;
  for (const auto& [name, bytes] : leaves(plan_, Role::input)) leaf_memory_[name] = arena_.take(kBatch, bytes);
  for (const auto& [name, bytes] : leaves(plan_, Role::constant)) leaf_memory_[name] = arena_.take(kConstants, bytes);
  for (ShapePlan& s : plan_.shapes) {
    bind(s.train_program, s.training);
    bind(s.eval_program, s.evaluation);
  }
}

void Engine::bind(Program& program, const Recording& recording) {
  Bindings b;
  const auto& values = recording.tape->values();
  b.data.resize(values.size());
  b.gradients.resize(values.size());
  for (std::size_t v = 0; v < values.size(); ++v) {
    if (values[v].role == Role::parameter) {
      b.data[v] = plan_.model->parameters().view(values[v].parameter, flat_.parameters, plan_.real);
      b.gradients[v] = plan_.model->parameters().view(values[v].parameter, flat_.gradients, wide(plan_.real));
    } else if (values[v].role != Role::activation) {
      b.data[v] = {leaf_memory_.at(values[v].name), values[v].dtype, values[v].shape};
    }
  }
  program.bind(activations_, b);
  for (std::size_t v = 0; v < values.size(); ++v)
    if (values[v].fill) {
      std::vector<std::byte> host(static_cast<std::size_t>(values[v].bytes()));
      values[v].fill({host.data(), values[v].dtype, values[v].shape});
      upload(device_.stream(), b.data[v].data, host.data(), values[v].bytes());
    }
}

void Engine::set_weights(const std::function<void(void*)>& fill) {
  void* weights = flat_.master ? flat_.gradients : flat_.parameters;
  if (device_.is_cpu()) {
    fill(weights);
  } else {
    const std::int64_t bytes = plan_.model->parameters().flat_elements() * static_cast<std::int64_t>(size_of(wide(plan_.real)));
    const auto host = device_.allocate_host(bytes);
    fill(host.get());
    upload(device_.stream(), weights, host.get(), bytes);
  }
  optimizer_.adopt(device_.stream(), flat_, weights);
}

void Engine::initialize_parameters() {
  set_weights([&](void* flat) {
    with_wide(wide(plan_.real), [&]<class T>() {
      plan_.model->parameters().initialize(plan_.config.train.seed, static_cast<T*>(flat), device_.host().threads);
    });
  });
}

// Sequences [first, first + count) of a global batch to the start of batch_, then empty ones up to `padded`.
void Engine::read(std::int64_t first, std::int64_t count, std::int64_t padded, const Recording& recording, const BatchReader& reader) {
  for (auto& [name, span] : view_) span = {};
  for (const auto& [name, value] : recording.inputs) {
    const auto all = static_cast<std::size_t>(padded * recording.width(value));
    const auto real = static_cast<std::size_t>(count * recording.width(value));
    const bool counted = name.ends_with("labels") || name.ends_with("mask");
    std::fill(batch_[name].begin() + static_cast<std::ptrdiff_t>(real), batch_[name].begin() + static_cast<std::ptrdiff_t>(all), counted ? -1 : 0);
    view_[name] = batch_[name].first(real);
  }
  if (count > 0) reader(first, count, view_);
}

void Engine::load(const Recording& recording, const Program& program, std::int64_t first, std::int64_t sequences) {
  for (const auto& [name, value] : recording.inputs) {
    const std::int64_t width = recording.width(value);
    upload(device_.stream(), program.value(value).data, batch_[name].data() + first * width, sequences * width * 4);
  }
}

void Engine::run_micro_batches(std::int64_t step, const ShapePlan& shape, Totals& totals) {
  ExecContext context{device_.stream(), &tensors_, {.seed = plan_.config.train.seed, .step = static_cast<std::uint32_t>(step)}};
  for (std::size_t k = 0; k < totals.labels.size(); ++k)
    context.state.gradient_scale[k] = totals.labels[k] > 0 ? loss_scale_.value / static_cast<double>(totals.labels[k]) : 0.0;
  const Program::Reduce reduce = [&](int bucket) { optimizer_.reduce_start(bucket, flat_); };
  for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
    load(shape.training, shape.train_program, m * shape.shape.sequences, shape.shape.sequences);
    context.state.first_sequence = plan_.mesh.data_rank * shape.sequences_per_rank() + m * shape.shape.sequences;
    context.state.accumulate_parameters = m > 0;
    context.state.reduce_gradients = m + 1 == shape.micro_batches;
    shape.train_program.run(context, reduce, times_ ? &times_->program : nullptr);
    for (std::size_t k = 0; k < shape.training.losses.size(); ++k)
      totals.loss[k] += download_value(device_.stream(), shape.train_program.value(shape.training.losses[k].value).ptr<double>());
  }
  timed(device_.stream(), times_ ? &times_->reduce : nullptr, [&] { optimizer_.reduce_finish(); });
}

StepResult Engine::compute_gradients(std::int64_t step, const BatchReader& reader, std::size_t index, std::int64_t sequences) {
  const ShapePlan& shape = plan_.shapes[index];
  const std::int64_t each = shape.sequences_per_rank(), first = plan_.mesh.data_rank * each;
  const auto objectives = static_cast<std::int64_t>(shape.training.losses.size());
  read(first, std::clamp<std::int64_t>((sequences < 0 ? shape.batch : sequences) - first, 0, each), each, shape.training, reader);
  Totals totals = count_labels(shape.training, batch_, each);
  plan_.mesh.data->all_reduce({totals.labels.data(), DType::i64, {objectives}});
  run_micro_batches(step, shape, totals);
  plan_.mesh.data->all_reduce({totals.loss.data(), DType::f64, {objectives}});
  double norm = 0;
  timed(device_.stream(), times_ ? &times_->norm : nullptr, [&] { norm = optimizer_.gradient_norm(device_.stream(), flat_, loss_scale_.value); });
  return {.loss = totals.mean(), .grad_norm = norm, .tokens = totals.labels[0], .loss_scale = loss_scale_.value};
}

StepResult Engine::train_step(std::int64_t step, double lr, const BatchReader& reader, std::size_t shape, std::int64_t sequences) {
  StepResult result = compute_gradients(step, reader, shape, sequences);
  result.applied = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  timed(device_.stream(), times_ ? &times_->update : nullptr, [&] {
    if (result.applied) optimizer_.update(device_.stream(), flat_, step, lr, result.grad_norm, loss_scale_.value);
  });
  loss_scale_.update(result.applied);
  return result;
}

Totals Engine::evaluate(std::int64_t sequences, const BatchReader& reader, std::size_t index) {
  const ShapePlan& shape = plan_.shapes[index];
  const std::int64_t each = shape.shape.sequences;
  const ExecContext context{device_.stream(), &tensors_, {}};
  Totals totals;
  for (std::int64_t first = 0; first < sequences; first += each * plan_.mesh.layout.data) {
    const std::int64_t mine = first + each * plan_.mesh.data_rank;
    read(mine, std::clamp<std::int64_t>(sequences - mine, 0, each), each, shape.evaluation, reader);
    load(shape.evaluation, shape.eval_program, 0, each);
    shape.eval_program.run(context);
    totals.add(shape.evaluation, batch_, [&](Value v) { return download_value(device_.stream(), shape.eval_program.value(v).ptr<double>()); });
  }
  totals.all_reduce(*plan_.mesh.data);
  return totals;
}

}  // namespace tfm
