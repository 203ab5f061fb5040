#include "verify/layout.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "models/registry.h"
#include "verify/save_and_load.h"
#include "verify/synthetic_data.h"

namespace tfm::verify {
namespace {

constexpr double kBound = 1e-9;  // float64 sums in another order
constexpr std::int64_t kSteps = 5;
// Larger values would amplify rounding errors: in steps that diverge, and in Adam's steps along
// gradients that are zero but for rounding (a key's bias).
constexpr double kMostRate = 1e-2, kLeastEps = 1e-5;

std::vector<std::vector<double>> parts_of(train::Engine& e, const void* flat) {
  std::vector<double> host(static_cast<std::size_t>(e.model().parameters().flat_elements()));
  device::download(e.device().stream(), host.data(), flat, std::ssize(host) * 8);
  std::vector<std::vector<double>> all;
  for (const nn::PartSlice& p : e.model().parameters().slices())
    all.emplace_back(host.begin() + p.offset, host.begin() + p.offset + p.elements());
  return all;
}

Trace run(config::Config config, const comm::Mesh& mesh, const device::Device& device) {
  config.optimizer.eps = std::max(config.optimizer.eps, kLeastEps);
  config.optimizer.adafactor.eps1 = std::max(config.optimizer.adafactor.eps1, kLeastEps);
  train::Engine e(plan::make_step_plan(config, mesh, DType::f64), device);
  e.initialize_parameters();
  Trace t;
  t.fixed_order = !e.rank_context().tensors.world().on_stream();
  t.initial = parts_of(e, e.whole_parameters().get());
  const SyntheticData data(e.plan().config, e.plan().shapes[0].batch, kSteps);
  data::DataLoader loader = e.training_loader(data);
  for (std::int64_t s = 1; s <= kSteps; ++s) {
    const Batch& batch = loader.load(s - 1);
    if (s == 1) {  // complete without ZeRO only, which leaves each rank its share of the sums
      e.compute_gradients(s, batch);
      if (!e.flat().sharded.gradients) t.gradients = parts_of(e, e.flat().gradients);
    }
    const train::StepResult r = e.train_step(s, std::min(config.optimizer.lr, kMostRate), batch);
    t.losses.push_back(r.loss);
    t.norms.push_back(r.grad_norm);
  }
  t.parameters = parts_of(e, e.whole_parameters().get());
  t.planned = e.plan().memory.total();
  t.taken = e.arena_high_water();
  return t;
}

// Of a single rank, which is rank 0; the others receive what it computes.
Trace run_alone(const config::Config& config, const nn::ParameterSet& parameters,
                const comm::Mesh& mesh, const device::Device& device) {
  Trace t;
  if (mesh.rank() == 0) t = run(config, comm::single_mesh(), device);
  const auto share = [&](std::vector<double>& values, std::int64_t n) {
    values.resize(static_cast<std::size_t>(n));
    mesh.world().broadcast({values.data(), DType::f64, {n}}, 0);
  };
  const auto& slices = parameters.slices();
  for (auto* parts : {&t.initial, &t.gradients, &t.parameters}) {
    parts->resize(slices.size());
    for (std::size_t i = 0; i < slices.size(); ++i) share((*parts)[i], slices[i].elements());
  }
  share(t.losses, kSteps);
  share(t.norms, kSteps);
  return t;
}

// NaN and Inf count as an infinite difference.
double distance(double a, double b) {
  const double d = std::abs(a - b);
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

double relative(double distance, double size) {
  const double r = distance / size;
  return distance == 0 ? 0 : std::isfinite(r) ? r : std::numeric_limits<double>::infinity();
}

class Comparison {
 public:
  // `parameters`: of this rank; `single`: of a single-rank run.
  Comparison(const nn::ParameterSet& parameters, const nn::ParameterSet& single,
             const comm::Mesh& mesh)
      : parameters_(parameters), mesh_(mesh) {
    for (const nn::PartSlice& p : single.slices()) single_order_.push_back(p.name);
  }

  // `mine`: this rank's slices; `whole`: the same parts of a single-rank run. One finding for the
  // worst part over all ranks.
  Finding parts(const std::string& check, const std::vector<std::vector<double>>& mine,
                const std::vector<std::vector<double>>& whole, double bound) const {
    const auto& slices = parameters_.slices();
    double scale = 0;
    for (const auto& w : whole) scale = std::max(scale, rms(w));
    std::vector<double> error(whole.size());
    for (std::size_t i = 0; i < slices.size(); ++i) {
      std::vector<double> expected(mine[i].size());
      nn::PartSlice place = slices[i];
      place.offset = 0;
      const std::size_t part = order_of(slices[i].name);
      nn::ParameterSet::scatter(place, whole[part].data(), expected.data());
      double difference = 0;
      for (std::size_t k = 0; k < mine[i].size(); ++k)
        difference = std::max(difference, distance(mine[i][k], expected[k]));
      // Relative to the part's own size; parts whose exact value is zero to that of the largest
      // part.
      error[part] = relative(difference, std::max({rms(whole[part]), 1e-6 * scale, 1e-300}));
    }
    return worst_of(check, std::move(error), bound);
  }
  Finding numbers(const std::string& check, const std::vector<double>& mine,
                  const std::vector<double>& reference, double bound) const {
    double error = 0;
    for (std::size_t i = 0; i < mine.size(); ++i)
      error = std::max(error, relative(distance(mine[i], reference[i]), std::abs(reference[i])));
    mesh_.world().all_reduce({&error, DType::f64, {1}}, comm::Collective::all_reduce_max);
    return {check, "", error, bound};
  }
  // Copies of unsplit parts must be the same bits on every rank.
  Finding replicas(const std::vector<std::vector<double>>& mine) const {
    std::vector<double> error(single_order_.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (parameters_.slices()[i].axis >= 0) continue;
      std::vector<double> high = mine[i], low = mine[i];
      for (double& x : low) x = -x;
      const auto n = static_cast<std::int64_t>(high.size());
      mesh_.stage().all_reduce({high.data(), DType::f64, {n}}, comm::Collective::all_reduce_max);
      mesh_.stage().all_reduce({low.data(), DType::f64, {n}}, comm::Collective::all_reduce_max);
      double& most = error[order_of(parameters_.slices()[i].name)];
      for (std::size_t k = 0; k < high.size(); ++k) most = std::max(most, high[k] + low[k]);
    }
    return worst_of("replicas on all ranks", std::move(error), 0);
  }

 private:
  // `error`: of each part of the whole model.
  Finding worst_of(const std::string& check, std::vector<double> error, double bound) const {
    mesh_.world().all_reduce({error.data(), DType::f64, {std::ssize(error)}},
                             comm::Collective::all_reduce_max);
    const auto worst = std::ranges::max_element(error);
    return {check, *worst > 0 ? single_order_[static_cast<std::size_t>(worst - error.begin())] : "",
            *worst, bound};
  }
  static double rms(const std::vector<double>& v) {
    double s = 0;
    for (double x : v) s += x * x;
    return v.empty() ? 0 : std::sqrt(s / static_cast<double>(v.size()));
  }
  std::size_t order_of(const std::string& name) const {
    return static_cast<std::size_t>(std::find(single_order_.begin(), single_order_.end(), name) -
                                    single_order_.begin());
  }
  const nn::ParameterSet& parameters_;
  const comm::Mesh& mesh_;
  std::vector<std::string> single_order_;
};

config::Config on_a_single_rank(const config::Config& config) {
  config::Config alone = config;
  alone.parallel = {.bucket_bytes = config.parallel.bucket_bytes};
  alone.parallel.data = 1;
  alone.recompute = config::Recompute::none;
  alone.train.micro_batch_size = config.train.global_batch_size;
  return alone;
}

}  // namespace

config::Config shrink(const config::Config& config) {
  config::Config c = config;
  config::ModelConfig& m = c.model;
  const std::int64_t tp = c.parallel.tensor;
  m.shorten(std::max<std::int64_t>(2, c.parallel.pipeline * c.parallel.stages_of_rank()));
  if (m.total_layers() != config.model.total_layers()) c.parallel.layers_per_stage.clear();
  m.for_each_kind([tp](config::LayerConfig& l) {
    l.d_head = std::min<std::int64_t>(l.d_head, 8);
    l.d_ff = std::min(l.d_ff, 12 * tp);
    l.experts.d_ff = std::min(l.experts.d_ff, 12 * tp);
    l.experts.shared_d_ff = std::min(l.experts.shared_d_ff, 12 * tp);
  });
  m.d_model = m.n_heads * m.d_head;
  m.vocab_size = std::min<std::int64_t>(m.vocab_size, 211);
  m.source_vocab_size = std::min<std::int64_t>(m.source_vocab_size, 157);
  const std::int64_t chunks = c.parallel.context > 1 ? 2 * c.parallel.context : 1;
  c.train.seq_len = std::min(c.train.seq_len, round_up(16, tp * chunks));
  if (c.parallel.sequence) c.train.seq_len = round_up(c.train.seq_len, tp * chunks);
  if (!c.data.train.kind().own_lengths)  // targets may be longer
    m.max_seq_len = std::max(c.train.seq_len, std::min<std::int64_t>(m.max_seq_len, 64));
  c.train.micro_batch_size = 2;
  c.train.global_batch_size = 4 * c.parallel.data;
  for (config::HeadConfig& head : m.heads)
    if (head.embeds()) {  // of two pairs, in two micro-batches where these are compared alone
      head.group = std::min<std::int64_t>(head.group, 2);
      c.train.micro_batch_size = 2 * c.data.train.texts_of_pair();
      c.train.global_batch_size =
          c.train.micro_batch_size * c.parallel.data * (head.group > 0 ? 2 : 1);
    }
  c.parallel.bucket_bytes = std::min<std::int64_t>(c.parallel.bucket_bytes, 64 << 10);
  return c;
}

config::Config with_other_recompute(config::Config config) {
  config.recompute = config.recompute == config::Recompute::none ? config::Recompute::full
                                                                 : config::Recompute::none;
  return config;
}

LayoutTraces trace_layout(const config::Config& config, const comm::Mesh& mesh,
                          const device::Device& device) {
  const config::Config alone = on_a_single_rank(config);
  config::Config no_zero = config;
  no_zero.parallel.zero = 0;
  LayoutTraces traces;
  traces.single =
      run_alone(alone, models::make_model(alone, comm::single_mesh())->parameters(), mesh, device);
  traces.layout = run(config, mesh, device);
  traces.other_recompute = run(with_other_recompute(config), mesh, device);
  if (config.parallel.zero > 0) traces.no_zero = run(no_zero, mesh, device);
  return traces;
}

std::vector<Finding> compare(const config::Config& config, const comm::Mesh& mesh,
                             const LayoutTraces& traces) {
  const auto single_model = models::make_model(on_a_single_rank(config), comm::single_mesh());
  const auto model = models::make_model(config, mesh);
  const Trace &reference = traces.single, &mine = traces.layout, &again = traces.other_recompute,
              &whole = config.parallel.zero > 0 ? traces.no_zero : mine;
  const Comparison compare(model->parameters(), single_model->parameters(), mesh);
  std::vector<Finding> all;
  all.push_back(compare.parts("initial weights", mine.initial, reference.initial, 0));
  all.push_back(compare.numbers("loss of step 1", {mine.losses[0]}, {reference.losses[0]}, kBound));
  all.push_back(
      compare.parts("gradient of every parameter", whole.gradients, reference.gradients, kBound));
  all.push_back(compare.numbers("gradient norm", mine.norms, reference.norms, kBound));
  all.push_back(compare.numbers("losses of 5 steps", mine.losses, reference.losses, kBound));
  all.push_back(
      compare.parts("parameters after 5 steps", mine.parameters, reference.parameters, 1e-7));
  all.push_back(compare.replicas(mine.parameters));
  all.push_back(compare.numbers("recompute on vs. off", mine.losses, again.losses, 0));
  const auto replicas = static_cast<std::uint64_t>(config.parallel.replicas);
  const bool alike =
      std::popcount(replicas) <= 1 &&
      (config.parallel.zero == 1 || config.numerics == config::Numerics::deterministic);
  if (config.parallel.zero > 0)
    all.push_back(compare.numbers("ZeRO on vs. off", mine.losses, whole.losses,
                                  mine.fixed_order && alike ? 0 : kBound));
  all.push_back(compare.numbers("memory taken as planned", {static_cast<double>(mine.taken)},
                                {static_cast<double>(mine.planned)}, 0));
  return all;
}

std::vector<Finding> verify_layout(const config::Config& config, const comm::Mesh& mesh,
                                   const device::Device& device) {
  std::vector<Finding> all = compare(config, mesh, trace_layout(config, mesh, device));
  all.push_back(save_and_load(config, mesh, device));
  return all;
}

}  // namespace tfm::verify
