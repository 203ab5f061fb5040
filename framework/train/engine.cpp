#include "train/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tfm {
namespace {

constexpr const char* kParameters = "parameters";
constexpr const char* kGradients = "gradients";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kActivations = "activations";
constexpr const char* kBatch = "batch";
constexpr const char* kConstants = "constants";

Recompute recompute_of(const std::string& name) {
  return name == "full" ? Recompute::full : name == "selective" ? Recompute::selective : Recompute::none;
}

// Leaves other than parameters, once by name: micro-batch inputs and constants.
std::map<std::string, std::int64_t> leaves(const StepPlan& p, Role role) {
  std::map<std::string, std::int64_t> bytes;
  for (const Recording* r : {&p.training, &p.evaluation})
    for (const ValueInfo& v : r->tape->values())
      if (v.role == role) bytes[v.name] = std::max(bytes[v.name], v.bytes());
  return bytes;
}

void plan_memory(StepPlan& p, const OptimizerOptions& options) {
  const auto real = static_cast<std::int64_t>(size_of(p.real));
  const ParameterSet& parameters = p.model->parameters();
  p.memory.add(kParameters, parameters.flat_elements() * real);
  p.memory.add(kGradients, parameters.flat_elements() * real);
  const std::int64_t state = Optimizer::state_elements(parameters, p.mesh.layout, options, p.buckets);
  for (int k = 0; k < options.states(); ++k) p.memory.add(kOptimizer, state * real);
  p.memory.add(kActivations, std::max(p.train_program.arena_bytes(), p.eval_program.arena_bytes()));
  for (int k = 0; k < 2; ++k) p.memory.add(kBatch, p.sequences_per_rank() * p.rows.sequence_length * 4);
  for (const auto& [name, bytes] : leaves(p, Role::input)) p.memory.add(kBatch, bytes);
  for (const auto& [name, bytes] : leaves(p, Role::constant)) p.memory.add(kConstants, bytes);
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
          .zero = static_cast<int>(c.parallel.zero)};
}

double StepPlan::matmul_flops() const {
  double f = 0;
  for (const Node& n : training.tape->nodes()) f += 3 * n.op->matmul_flops();
  return f * static_cast<double>(micro_batches);
}

std::vector<CollectiveUse> StepPlan::collectives() const {
  std::vector<CollectiveUse> all;
  const auto bytes = static_cast<std::int64_t>(size_of(real));
  all.push_back({Collective::all_reduce_sum, Axis::data, 8});  // real tokens
  for (std::int64_t m = 0; m < micro_batches; ++m)
    for (const ProgramStep& s : train_program.steps()) {
      if (s.phase == Phase::reduce) {
        if (m + 1 == micro_batches) all.push_back(train_program.buckets()[s.bucket].collective);
        continue;
      }
      for (const CollectiveUse& c : training.tape->nodes()[s.node].op->collectives(s.phase)) all.push_back(c);
    }
  all.push_back({Collective::all_reduce_sum, Axis::data, 8});   // loss
  all.push_back({Collective::all_reduce_sum, Axis::world, 40}); // gradient norm
  if (config.parallel.zero > 0)
    for (const Bucket& b : buckets) all.push_back({Collective::all_gather, b.axis, (b.end - b.begin) * bytes});
  std::erase_if(all, [&](const CollectiveUse& c) { return group_size(mesh.layout, c.axis) == 1; });
  return all;
}

std::uint64_t StepPlan::collective_hash() const {
  std::uint64_t h = 1469598103934665603ull;
  const auto mix = [&](std::uint64_t x) { h = (h ^ x) * 1099511628211ull; };
  for (const CollectiveUse& c : collectives()) {
    mix(static_cast<std::uint64_t>(c.kind));
    mix(static_cast<std::uint64_t>(c.axis));
    mix(static_cast<std::uint64_t>(c.bytes));
  }
  return h;
}

StepPlan make_step_plan(const Config& config, const Mesh& mesh, const MakeModel& make_model, DType real) {
  StepPlan p{.config = config, .mesh = mesh, .real = real};
  p.model = make_model(config, mesh);
  p.rows = {config.train.micro_batch_size, config.train.seq_len};
  p.micro_batches = div_exact(div_exact(config.train.global_batch_size, mesh.layout.data), p.rows.sequences);
  p.training = p.model->record_loss(p.rows, real, true);
  p.evaluation = p.model->record_loss(p.rows, real, false);

  const OptimizerOptions options = optimizer_of(config);
  const auto bytes = static_cast<std::int64_t>(size_of(real));
  p.buckets = make_buckets(p.model->parameters(), mesh.layout, std::max<std::int64_t>(1, config.parallel.bucket_bytes / bytes));
  PlanOptions train{.recompute = recompute_of(config.recompute), .outputs = {p.training.loss}};
  for (const Bucket& b : p.buckets)
    train.buckets.push_back({b.parameters, {options.zero > 0 ? Collective::reduce_scatter : Collective::all_reduce_sum, b.axis,
                                            (b.end - b.begin) * bytes}});
  p.train_program = plan(p.training.tape, train);
  p.eval_program = plan(p.evaluation.tape, {.training = false, .outputs = {p.evaluation.loss}});
  plan_memory(p, options);
  return p;
}

Engine::Engine(StepPlan plan, int threads)
    : plan_(std::move(plan)), stream_{threads}, arena_(plan_.memory.total()),
      optimizer_(plan_.model->parameters(), plan_.mesh, optimizer_of(plan_.config), plan_.buckets, plan_.real) {
  const auto real = static_cast<std::int64_t>(size_of(plan_.real));
  const std::int64_t flat = plan_.model->parameters().flat_elements() * real;
  flat_.parameters = arena_.take(kParameters, flat);
  flat_.gradients = arena_.take(kGradients, flat);
  for (int k = 0; k < optimizer_of(plan_.config).states(); ++k) flat_.state[k] = arena_.take(kOptimizer, optimizer_.state_elements() * real);
  std::byte* activations = arena_.take(kActivations, std::max(plan_.train_program.arena_bytes(), plan_.eval_program.arena_bytes()));
  const std::int64_t tokens = plan_.sequences_per_rank() * plan_.rows.sequence_length;
  ids_ = {reinterpret_cast<std::int32_t*>(arena_.take(kBatch, tokens * 4)), static_cast<std::size_t>(tokens)};
  labels_ = {reinterpret_cast<std::int32_t*>(arena_.take(kBatch, tokens * 4)), static_cast<std::size_t>(tokens)};
  for (const auto& [name, bytes] : leaves(plan_, Role::input)) leaf_memory_[name] = arena_.take(kBatch, bytes);
  for (const auto& [name, bytes] : leaves(plan_, Role::constant)) leaf_memory_[name] = arena_.take(kConstants, bytes);
  bind(plan_.train_program, plan_.training, activations);
  bind(plan_.eval_program, plan_.evaluation, activations);
}

void Engine::bind(Program& program, const Recording& recording, std::byte* activations) {
  Bindings b;
  const auto& values = recording.tape->values();
  b.data.resize(values.size());
  b.gradients.resize(values.size());
  for (std::size_t v = 0; v < values.size(); ++v) {
    if (values[v].role == Role::parameter) {
      b.data[v] = plan_.model->parameters().view(values[v].parameter, flat_.parameters, plan_.real);
      b.gradients[v] = plan_.model->parameters().view(values[v].parameter, flat_.gradients, plan_.real);
    } else if (values[v].role != Role::activation) {
      b.data[v] = {leaf_memory_.at(values[v].name), values[v].dtype, values[v].shape};
    }
  }
  program.bind(activations, b);
  for (const auto& [value, fill] : recording.constants) fill(b.data[value.id]);
}

void Engine::initialize_parameters() {
  with_float(plan_.real, [&]<class T>() {
    plan_.model->parameters().initialize(plan_.config.train.seed, static_cast<T*>(flat_.parameters), stream_.threads);
  });
}

void Engine::load(const Recording& recording, const Program& program, std::int64_t first) {
  const auto n = static_cast<std::size_t>(plan_.rows.tokens());
  const auto at = static_cast<std::size_t>(first * plan_.rows.sequence_length);
  std::memcpy(program.value(recording.ids).data, ids_.data() + at, n * 4);
  std::memcpy(program.value(recording.labels).data, labels_.data() + at, n * 4);
}

double Engine::run_micro_batches(std::int64_t step, std::int64_t tokens) {
  ExecContext context{&stream_, &plan_.mesh, {.seed = plan_.config.train.seed, .step = static_cast<std::uint32_t>(step)}};
  context.state.gradient_scale = tokens > 0 ? 1.0 / static_cast<double>(tokens) : 0.0;
  double loss = 0;
  const Program::Reduce reduce = [&](int bucket) { optimizer_.reduce_start(bucket, flat_); };
  for (std::int64_t m = 0; m < plan_.micro_batches; ++m) {
    load(plan_.training, plan_.train_program, m * plan_.rows.sequences);
    context.state.first_sequence = plan_.mesh.data_rank * plan_.sequences_per_rank() + m * plan_.rows.sequences;
    context.state.accumulate_parameters = m > 0;
    context.state.reduce_gradients = m + 1 == plan_.micro_batches;
    if (seconds_)
      plan_.train_program.run_timed(context, reduce, *seconds_);
    else
      plan_.train_program.run(context, reduce);
    loss += *plan_.train_program.value(plan_.training.loss).ptr<double>();
  }
  optimizer_.reduce_finish();
  return loss;
}

StepResult Engine::compute_gradients(std::int64_t step, const BatchReader& read) {
  const std::int64_t each = plan_.sequences_per_rank();
  read(plan_.mesh.data_rank * each, each, ids_, labels_);
  StepResult result;
  for (std::int32_t label : labels_) result.tokens += label >= 0;
  plan_.mesh.data->all_reduce({&result.tokens, DType::i64, {1}});
  double loss = run_micro_batches(step, result.tokens);
  plan_.mesh.data->all_reduce({&loss, DType::f64, {1}});
  result.loss = result.tokens > 0 ? loss / static_cast<double>(result.tokens) : 0;
  result.grad_norm = optimizer_.gradient_norm(&stream_, flat_);
  return result;
}

StepResult Engine::train_step(std::int64_t step, double lr, const BatchReader& read) {
  StepResult result = compute_gradients(step, read);
  result.applied = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  if (result.applied) optimizer_.update(&stream_, flat_, step, lr, result.grad_norm);
  return result;
}

std::pair<double, std::int64_t> Engine::evaluate(std::int64_t sequences, const BatchReader& read) {
  const std::int64_t T = plan_.rows.sequence_length, each = plan_.rows.sequences;
  const ExecContext context{&stream_, &plan_.mesh, {}};
  double sums[2] = {0, 0};  // loss, tokens
  for (std::int64_t first = 0; first < sequences; first += each * plan_.mesh.layout.data) {
    const std::int64_t mine = first + each * plan_.mesh.data_rank, count = std::clamp<std::int64_t>(sequences - mine, 0, each);
    const auto n = static_cast<std::size_t>(plan_.rows.tokens());
    std::fill_n(ids_.begin(), n, 0);
    std::fill_n(labels_.begin(), n, -1);
    if (count > 0)
      read(mine, count, ids_.first(static_cast<std::size_t>(count * T)), labels_.first(static_cast<std::size_t>(count * T)));
    for (std::size_t i = 0; i < n; ++i) sums[1] += labels_[i] >= 0;
    load(plan_.evaluation, plan_.eval_program, 0);
    plan_.eval_program.run(context);
    sums[0] += *plan_.eval_program.value(plan_.evaluation.loss).ptr<double>();
  }
  plan_.mesh.data->all_reduce({sums, DType::f64, {2}});
  return {sums[1] > 0 ? sums[0] / sums[1] : 0, static_cast<std::int64_t>(sums[1])};
}

}  // namespace tfm
