#include "train/engine.h"

#include <algorithm>
#include <cmath>

#include "comm/calls.h"
#include "comm/flight_recorder.h"
#include "comm/messages.h"
#include "core/task.h"
#include "device/timed.h"
#include "kernels/elementwise.h"
#include "kernels/experts.h"

namespace tfm::train {
namespace {

// The host takes no part in what the group exchanges.
bool stays_on_device(const comm::Communicator& group) {
  return group.size() == 1 || group.on_stream();
}

device::Arena arena_of(device::Device& device, std::int64_t bytes) {
  return {device.allocate(bytes), bytes};
}

}  // namespace

Engine::Engine(plan::StepPlan plan, device::Device device)
    : plan_(std::move(plan)),
      device_(std::move(device)),
      arena_(arena_of(device_, plan_.memory.total() - plan::work_bytes(plan_))),
      work_(arena_of(device_, plan::work_bytes(plan_))),
      host_(device_.allocate_host(plan_.staging.total()), plan_.staging.total()),
      tensors_(comm::device_mesh(plan_.mesh, device_, plan::mesh_options(plan_))),
      optimizer_(plan_.model().parameters(), plan_.mesh, tensors_, plan::optimizer_of(plan_),
                 plan_.buckets(), plan_.shards(), plan_.dtype),
      memory_(plan::lay_out(plan_, arena_, work_, host_)) {
  TFM_CHECK(plan_.on_host() == device_.is_cpu(), "the plan was made for another kind of device");
  if (plan_.config.cuda_graphs == config::CudaGraphs::on && !recordable(plan_.largest(), {}))
    throw Error(ExitCode::usage,
                "cuda_graphs is on, but the ranks exchange tensors through host memory, or are the "
                "stages of a pipeline, which a CUDA graph cannot capture; expected cuda_graphs "
                "auto or off, or one GPU per rank and no pipeline");
  if (plan_.dtype == DType::f16) loss_scale_ = optim::LossScale::of_fp16();
  for (plan::ShapePlan& s : plan_.shapes) bind(s);
}

std::vector<Tensor> Engine::leaves(const nn::Recording& recording) const {
  std::vector<Tensor> memory;
  const bool whole = !memory_.flat.sharded.parameters;
  for (const graph::ValueInfo& v : recording.tape->values())
    memory.push_back(v.role == graph::Role::parameter && (whole || v.borrowed)
                         ? optimizer_.parameter(memory_.flat, v.parameter)
                     : v.role == graph::Role::input || v.role == graph::Role::constant
                         ? Tensor{memory_.leaves.at(v.name), v.dtype, v.shape}
                         : Tensor{});
  return memory;
}

void Engine::bind(plan::ShapePlan& shape) {
  graph::Bindings b{.data = leaves(shape.training),
                    .gradients = {},
                    .bucket_parameters = optimizer_.bucket_parameters(memory_.flat),
                    .bucket_gradients = optimizer_.bucket_gradients(memory_.flat)};
  const auto& values = shape.training.tape->values();
  const graph::Summed summed = memory_.flat.sharded.summed;
  for (const graph::ValueInfo& v : values)
    b.gradients.push_back(v.role == graph::Role::parameter &&
                                  (v.borrowed || summed == graph::Summed::at_last)
                              ? optimizer_.gradient(memory_.flat, v.parameter)
                              : Tensor{});
  shape.train_program.bind(memory_.activations.data(), b);
  inference::fill_constants(device_.stream(), shape.training, b.data);
  shape.evaluation.bind(device_.stream(), leaves(shape.evaluation.recording()),
                        memory_.activations.data(), b.bucket_parameters);
}

data::DataLoader Engine::loader(
    const data::Dataset& dataset, std::int64_t batches,
    const std::function<data::DataLoader::RankShape(const plan::ShapePlan&)>& part) const {
  std::vector<data::DataLoader::RankShape> parts;
  for (const plan::ShapePlan& s : plan_.shapes) parts.push_back(part(s));
  std::vector<BatchFields> memory;
  for (const plan::RunMemory::Host& h : memory_.host) memory.push_back(h.batch);
  return {dataset, std::move(parts), data::LoaderOptions::of(plan_.mesh, batches),
          std::move(memory)};
}

data::DataLoader Engine::training_loader(const data::Dataset& dataset) const {
  return loader(dataset, 0, [](const plan::ShapePlan& s) {
    return data::DataLoader::rank_shape(s.training, s.sequences_per_rank());
  });
}

data::DataLoader Engine::evaluation_loader(const data::Dataset& dataset,
                                           std::int64_t batches) const {
  return loader(dataset, batches, [](const plan::ShapePlan& s) {
    return data::DataLoader::rank_shape(s.evaluation.recording(), s.shape.sequences);
  });
}

// A micro-batch: the sequences of `batch` from `first` on.
void Engine::upload(const Batch& batch, const plan::ShapePlan& shape, std::int64_t first) {
  for (const auto& [field, value] : shape.training.inputs) {
    const std::int64_t width = shape.shape.own_width(field);
    device::upload_async(device_.stream(), shape.train_program.value(value).data,
                         batch.fields.at(field).data() + first * width,
                         shape.shape.sequences * width * 4);
  }
}

bool Engine::recordable(const plan::ShapePlan& shape, graph::MicroBatch run) const {
  if (device_.is_cpu() || plan_.config.cuda_graphs == config::CudaGraphs::off || times_ ||
      tensors_.layout.size(nn::kStageAxes) > 1)
    return false;
  const graph::Program& program = shape.train_program;
  return std::ranges::all_of(program.exchanges(),
                             [&](const graph::Exchange& x) {
                               return !program.runs(x, run) ||
                                      stays_on_device(tensors_.group(x.call.axes));
                             }) &&
         (!run.last || (stays_on_device(tensors_.group(tensors_.layout.group_of(nn::kTokenAxes))) &&
                        stays_on_device(tensors_.world())));
}

std::int64_t Engine::graphs() const {
  return std::ranges::count_if(replays_, [](const auto& entry) { return entry.second.recorded(); });
}

// Adds a micro-batch's to those before.
void Engine::copy_loads(const plan::ShapePlan& shape, std::int64_t slot,
                        const graph::ExecContext& context) {
  double* to = memory_.loads.data();
  for (const graph::Value load : shape.training.router_terms.loads) {
    const Tensor from = shape.train_program.value(load, slot);
    device::on(context.stream, [&](auto& s) {
      kernels::copy(s, kernels::CopyArgs<double>{from.elements(), from.ptr<double>(), to,
                                                 !context.state.micro_batch.first});
    });
    to += from.elements();
  }
}

// With the last one the norm and the update.
void Engine::run_pass(const plan::ShapePlan& shape, const plan::Pass& pass,
                      const graph::ExecContext& context, bool update) {
  const device::AnyStream stream = context.stream;
  const auto part = [&](double StepTimes::*seconds, const auto& f) {
    device::timed(stream, times_ ? &(times_->*seconds) : nullptr, f);
  };
  const auto work = [&] {
    const graph::Program& program = shape.train_program;
    const std::int64_t slot = pass.micro_batch % std::max<std::int64_t>(program.slots(), 1);
    program.run(context, times_ ? &times_->program : nullptr, pass.section, slot);
    if (pass.makes_losses(program.chunks()))
      for (std::size_t k = 0; k < shape.training.losses.size(); ++k) {
        if (!shape.training.losses[k].value) continue;
        const double* loss = program.value(shape.training.losses[k].value, slot).ptr<double>();
        device::on(stream, [&](auto& s) {
          kernels::copy(s, kernels::CopyArgs<double>{1, loss, &memory_.outcome->loss[k],
                                                     !context.state.micro_batch.first});
        });
      }
    if (pass.makes_losses(program.chunks())) copy_loads(shape, slot, context);
    if (const graph::Value excess = shape.training.router_terms.excess;
        excess && pass.makes_losses(program.chunks()))
      device::on(stream, [&](auto& s) {
        kernels::keep_most(s, {program.value(excess, slot).ptr<double>(), &memory_.outcome->excess,
                               context.state.micro_batch.first});
      });
    if (&pass != &shape.passes.back()) return;
    comm::complete_sends(tensors_);
    const device::ScratchScope scratch(
        stream, idle_memory().subspan(static_cast<std::size_t>(optimizer_.workspace_bytes())));
    part(&StepTimes::norm,
         [&] { optimizer_.measure(stream, memory_.flat, memory_.numbers, memory_.outcome); });
    if (update)
      part(&StepTimes::update,
           [&] { optimizer_.update(stream, memory_.flat, memory_.numbers, memory_.outcome); });
  };
  if (!recordable(shape, context.state.micro_batch)) return work();
  device::Replay& replay =
      replays_[{&shape, context.state.micro_batch, update, context.state.packed_rows}];
  // Measuring and recording wait for the device, of which the flight recorder is told here.
  if (!replay.recorded()) {
    device::Event before;
    before.record(stream);
    wait_for(before);
  }
  replay.run(stream, work);
}

// The flight recorder sees nothing of collectives inside a graph: it is told of one that lasts as
// long as the wait.
void Engine::wait_for(const device::Event& event) {
  comm::FlightRecorder* recorder =
      recordable(plan_.largest(), {}) ? plan_.mesh.recorder.get() : nullptr;
  std::optional<comm::Event> all;
  if (recorder)
    recorder->wait(all.emplace(recorder->begin(comm::kWorld, comm::Collective::barrier, 0)));
  event.wait(device_.stream());
  if (recorder) recorder->end(*all);
}

std::array<std::int64_t, kMostObjectives> Engine::packed_rows(const Batch& batch,
                                                              const plan::ShapePlan& shape) const {
  if (!plan::packs_rows(plan_.config)) return {};
  std::array<std::int64_t, kMostObjectives> most{};
  const std::int64_t n = shape.shape.sequences;
  for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
    const auto labels = inference::count_labels(shape.training, batch.fields, n, m * n).labels;
    for (std::size_t k = 0; k < most.size(); ++k) most[k] = std::max(most[k], labels[k]);
  }
  const Tensor t{most.data(), DType::i64, {plan_.objectives()}};
  comm::run(plan_.mesh, plan_.most_labels(), t, t);
  return inference::packed_rows(shape.training, most);
}

bool Engine::runs_ahead() const {
  return !device_.is_cpu() && (!tensors_.messages || tensors_.messages->on_stream()) &&
         std::ranges::all_of(tensors_.layout.groups(), [&](const comm::AxisSet axes) {
           return stays_on_device(tensors_.group(axes));
         });
}

void Engine::launch(std::int64_t step, std::optional<double> lr, const Batch& batch) {
  TFM_CHECK(under_way_ == 0 ||
                (launched_[oldest_].lr && runs_ahead() && under_way_ < memory_.host.size()),
            "finish() the step before");
  const plan::ShapePlan& shape = plan_.shapes[batch.shape];
  const std::size_t place = (oldest_ + under_way_) % memory_.host.size();
  Launched& s = launched_[place];
  s.step = step;
  s.lr = lr;
  s.batch = &batch;
  s.totals = inference::count_labels(shape.training, batch.fields, shape.sequences_per_rank());
  const Tensor labels{s.totals.labels.data(), DType::i64, {plan_.objectives()}};
  comm::run(plan_.mesh, plan_.sum_of_objectives(), labels, labels);
  s.packed_rows = packed_rows(batch, shape);
  enqueue(place, under_way_ > 0);
  ++under_way_;
}

void Engine::enqueue(std::size_t launched, bool ahead) {
  Launched& s = launched_[launched];
  const plan::RunMemory::Host& host = memory_.host[launched];
  const plan::ShapePlan& shape = plan_.shapes[s.batch->shape];
  optim::LossScale scale = loss_scale_;
  if (ahead) scale.update(true);
  s.loss_scale = scale.value;
  StepNumbers numbers{.loss_scale = scale.value,
                      .step = static_cast<std::uint32_t>(s.step),
                      .assumes_update = ahead,
                      .update = optimizer_.numbers(updates_ + ahead + 1, s.lr.value_or(0))};
  for (std::size_t k = 0; k < numbers.gradient_scale.size(); ++k)
    numbers.gradient_scale[k] = s.totals.labels[k] > 0 ? scale.value * s.totals.weights[k] /
                                                             static_cast<double>(s.totals.labels[k])
                                                       : 0.0;
  graph::ExecContext context{device_.stream(),
                             &tensors_,
                             {.seed = plan_.config.train.seed, .packed_rows = s.packed_rows},
                             memory_.numbers};
  for (const plan::Pass& pass : shape.passes) {
    const std::int64_t m = pass.micro_batch, first = m * shape.shape.sequences;
    upload(*s.batch, shape, first);
    numbers.first_sequence = s.batch->first + first;
    StepNumbers& sent = host.numbers[static_cast<std::size_t>(m)];
    sent = numbers;
    device::upload_async(device_.stream(), memory_.numbers, &sent, sizeof sent);
    context.state.micro_batch = {.first = m == 0, .last = pass.last};
    run_pass(shape, pass, context, s.lr.has_value());
  }
  device::download_async(device_.stream(), host.outcome, memory_.outcome, sizeof(StepOutcome));
  device::download_async(device_.stream(), host.loads.data(), memory_.loads.data(),
                         static_cast<std::int64_t>(host.loads.size_bytes()));
  s.done.record(device_.stream());
}

StepResult Engine::finish() {
  TFM_CHECK(under_way_ > 0, "launch() a step first");
  Launched& s = launched_[oldest_];
  wait_for(s.done);
  const StepOutcome& outcome = *memory_.host[oldest_].outcome;
  while (outcome.applied == 0) {
    const double more = missing_room();
    if (more == 0) break;
    make_room(more);
    wait_for(s.done);
  }
  s.totals.loss = outcome.loss;
  const Tensor losses{s.totals.loss.data(), DType::f64, {plan_.objectives()}};
  comm::run(plan_.mesh, plan_.sum_of_objectives(), losses, losses);
  const auto plain = [](double x) { return std::isnan(x) ? std::nan("") : x; };  // without a sign
  const StepResult result{.loss = plain(s.totals.mean()),
                          .grad_norm = plain(outcome.norm),
                          .tokens = s.totals.labels[0],
                          .loss_scale = s.loss_scale,
                          .applied = outcome.applied != 0,
                          .shape = s.batch->shape,
                          .terms = s.totals};
  if (s.lr) {
    loss_scale_.update(result.applied);
    updates_ += result.applied;
  }
  --under_way_;
  finished_ = oldest_;
  oldest_ = (oldest_ + 1) % memory_.host.size();
  if (under_way_ > 0 && !result.applied) {
    wait_for(launched_[oldest_].done);  // until then the device may read the numbers it was given
    enqueue(oldest_, false);
  }
  return result;
}

device::MemoryPlan Engine::memory_taken() const {
  device::MemoryPlan all = arena_.taken();
  for (const auto& [category, bytes] : work_.taken().categories) all.add(category, bytes);
  return all;
}

StepResult Engine::run_step(std::int64_t step, std::optional<double> lr, const Batch& batch) {
  TFM_CHECK(under_way_ == 0, "finish() the step before");
  launch(step, lr, batch);
  return finish();
}

StepResult Engine::compute_gradients(std::int64_t step, const Batch& batch) {
  return run_step(step, {}, batch);
}

StepResult Engine::train_step(std::int64_t step, double lr, const Batch& batch) {
  return run_step(step, lr, batch);
}

inference::Totals Engine::evaluate(data::DataLoader& loader, std::int64_t batches,
                                   const std::function<bool()>& go_on) {
  const graph::ExecContext context{device_.stream(), &tensors_, {}};
  inference::Totals all;
  TFM_CHECK(under_way_ == 0, "evaluations are between steps");
  gather_parameters();
  Task task("evaluating", batches);
  for (std::int64_t i = 0; i < batches; ++i) {
    inference::Totals totals;
    for (std::int64_t round = 0; round < loader.rounds(i); ++round) {
      const Batch& batch = loader.load(i, round);
      totals += plan_.shapes[batch.shape].evaluation.totals(context, batch.fields);
    }
    totals.all_reduce(plan_.mesh, nn::loss_axes(plan_.mesh.layout));
    all += totals;
    task.add(1);
    if (!go_on()) break;
  }
  return all;
}

}  // namespace tfm::train
