#include "train/as_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "comm/consensus.h"
#include "kernels/normals.h"
#include "train/as_run_bounds.h"
#include "train/engine_state.h"
#include "train/reference_step.h"
#include "train/replicas.h"

namespace tfm::train {
namespace {

using Parts = std::vector<std::vector<double>>;  // by slice of a set of parameters

constexpr std::int64_t kSteps = 2;
constexpr double kGrids[] = {1, 1.1892, 1.6818};  // ReferenceStep::Grid::scale
constexpr double kKinks = 2;  // rounding units: how near to 0 an input of relu may have either sign
constexpr double kVectorNoise = 0.1;  // added to biases and gains
constexpr double kMostRate = 1e-2;
constexpr int kOverflows = 40;  // steps that fp16's loss scale may take to settle

double square_sum(const double* x, std::int64_t n) {
  return std::transform_reduce(x, x + n, 0.0, std::plus<>(), [](double v) { return v * v; });
}

// What one rank has of each part: the elements whose sums and state are its own.
struct Owned {
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> ranges;  // of each slice
  explicit Owned(const Engine& e) {
    for (const nn::PartSlice& p : e.model().parameters().slices()) {
      auto& of = ranges.emplace_back();
      for (const optim::StateRange& r : e.optimizer().shards().ranges) {
        const std::int64_t begin = std::max(r.begin, p.offset),
                           end = std::min(r.end, p.offset + p.elements());
        if (begin < end) of.emplace_back(begin - p.offset, end - p.offset);
      }
    }
  }
  std::int64_t elements(std::size_t slice) const {
    std::int64_t n = 0;
    for (const auto& [begin, end] : ranges[slice]) n += end - begin;
    return n;
  }
  // f(first, count) for each range.
  double sum(std::size_t slice, const std::function<double(std::int64_t, std::int64_t)>& f) const {
    double all = 0;
    for (const auto& [begin, end] : ranges[slice]) all += f(begin, end - begin);
    return all;
  }
};

class AsRun {
 public:
  AsRun(const config::Config& config, const comm::Mesh& mesh, const device::Device& device,
        const Interference& interference)
      : config_(config),
        mesh_(mesh),
        device_(device),
        interference_(interference),
        reference_(config, device.threads()),
        engine_(std::make_unique<Engine>(plan::make_step_plan(config, mesh), device)),
        slices_(engine_->model().parameters().slices()),
        owned_(*engine_),
        data_(config_, engine_->plan().shapes[0].batch, kSteps),
        unit_(rounding_unit(engine_->plan().dtype)) {
    const auto& single = reference_.parameters().slices();
    for (const nn::PartSlice& p : slices_)
      place_.push_back(static_cast<std::size_t>(
          std::ranges::find(single, p.name, &nn::PartSlice::name) - single.begin()));
  }

  std::vector<Finding> operator()() {
    const Parts initial = initial_weights();
    set_weights(*engine_, initial);
    for (std::int64_t s = 1; s <= kSteps; ++s) step(s);
    other_recompute(initial);
    return std::move(all_);
  }

 private:
  // Of the model, with noise on biases and gains: zeros and ones hide what is done to them.
  Parts initial_weights() const {
    const nn::ParameterSet& p = reference_.parameters();
    std::vector<float> flat(static_cast<std::size_t>(p.flat_elements()));
    p.initialize(config_.train.seed, flat.data(), 1);
    Parts all;
    for (const nn::PartSlice& s : p.slices()) {
      std::vector<float> noise(static_cast<std::size_t>(s.elements()));
      if (p.spec(s.parameter).init.kind == nn::Init::Kind::constant)
        kernels::normals({config_.train.seed, Purpose::init, stream_of("verify." + s.name), 0}, 0,
                         s.elements(), static_cast<float>(kVectorNoise), noise.data());
      auto& part = all.emplace_back();
      for (std::int64_t i = 0; i < s.elements(); ++i)
        part.push_back(flat[static_cast<std::size_t>(s.offset + i)] +
                       noise[static_cast<std::size_t>(i)]);
    }
    return all;
  }

  void set_weights(Engine& e, const Parts& whole) const {
    const nn::PartSlice* const slices = e.model().parameters().slices().data();
    e.set_weights([&](const nn::PartSlice& p, std::int64_t first, std::int64_t count, void* out) {
      const auto& part = whole[place_[static_cast<std::size_t>(&p - slices)]];
      const std::vector<float> narrow(part.begin(), part.end());
      nn::ParameterSet::scatter(p, first, count, narrow.data(), static_cast<float*>(out));
    });
  }

  // This rank's slices of a flat buffer of the device.
  Parts local(const void* flat, DType t) const {
    const std::int64_t n = engine_->model().parameters().flat_elements();
    std::vector<std::byte> host(static_cast<std::size_t>(n * size_of(t)));
    device::download(engine_->device().stream(), host.data(), flat, std::ssize(host));
    Parts all;
    with_float(t, [&]<class T>() {
      const T* x = reinterpret_cast<const T*>(host.data());
      for (const nn::PartSlice& p : slices_)
        all.emplace_back(x + p.offset, x + p.offset + p.elements());
    });
    return all;
  }
  // The same of what is laid out as master weights are; what this rank does not own stays zero.
  Parts local_state(const void* state) const {
    std::vector<float> host(static_cast<std::size_t>(engine_->optimizer().shards().elements));
    device::download(engine_->device().stream(), host.data(), state, std::ssize(host) * 4);
    Parts all;
    for (const nn::PartSlice& p : slices_) {
      auto& part = all.emplace_back(static_cast<std::size_t>(p.elements()));
      for (const optim::StateRange& r : engine_->optimizer().shards().ranges)
        for (std::int64_t i = std::max(r.begin, p.offset);
             i < std::min(r.end, p.offset + p.elements()); ++i)
          part[static_cast<std::size_t>(i - p.offset)] =
              host[static_cast<std::size_t>(r.state_offset + i - r.begin)];
    }
    return all;
  }
  // What the optimizer updates; what this rank does not own stays zero.
  Parts local_weights() const {
    Parts all;
    for (const nn::PartSlice& p : slices_) all.emplace_back(static_cast<std::size_t>(p.elements()));
    for (const optim::PartRange& r : engine_->optimizer().shards().parts) {
      std::vector<float> host(static_cast<std::size_t>(r.count()));
      engine_->optimizer().get_weights(engine_->device().stream(), engine_->flat(), r, 0, r.count(),
                                       host.data());
      std::ranges::copy(host, all[static_cast<std::size_t>(r.part)].begin() + r.first);
    }
    return all;
  }
  Parts local_parameters() const {
    return local(engine_->whole_parameters().get(), engine_->plan().dtype);
  }
  Parts local_gradients() const {
    const optim::FlatBuffers& flat = engine_->flat();
    return flat.sharded.gradients ? local_state(flat.gradients) : local(flat.gradients, DType::f32);
  }

  // The weights with which the run computes, whole.
  Parts weights_in_use() const {
    const Parts mine = local_parameters();
    Parts whole;
    for (const nn::PartSlice& p : reference_.parameters().slices())
      whole.emplace_back(static_cast<std::size_t>(p.elements()));
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      nn::PartSlice p = slices_[i];
      p.offset = 0;
      if (engine_->model().parameters().first_of_copies(p.parameter, comm::kWorld))
        nn::ParameterSet::gather(p, mine[i].data(), whole[place_[i]].data());
    }
    for (auto& part : whole)  // exact: one term is not zero
      mesh_.world().all_reduce({part.data(), DType::f64, {std::ssize(part)}});
    return whole;
  }

  Finding worst(const std::string& check, const std::vector<Deviation>& deviations) const {
    return worst_part(check, mesh_, reference_.parameters().slices(), place_, deviations);
  }

  // Squares of the difference of two whole parts: all of it, and over this rank's elements.
  std::pair<double, double> difference(std::size_t i, const double* a, const double* b) const {
    nn::PartSlice p = slices_[i];
    p.offset = 0;
    const std::int64_t n = p.full.elements();
    std::vector<double> d(a, a + n), mine(static_cast<std::size_t>(p.elements()));
    for (std::int64_t k = 0; k < n; ++k) d[static_cast<std::size_t>(k)] -= b ? b[k] : 0;
    nn::ParameterSet::scatter(p, d.data(), mine.data());
    return {square_sum(d.data(), n), owned_.sum(i, [&](std::int64_t first, std::int64_t count) {
              return square_sum(mine.data() + first, count);
            })};
  }

  void number(const std::string& check, double run, double reference, double plain, double factor) {
    const double scale = std::max(std::abs(reference), 1e-300);
    double error = std::abs(run - reference) / scale;
    if (!std::isfinite(error)) error = std::numeric_limits<double>::infinity();
    mesh_.world().all_reduce({&error, DType::f64, {1}}, comm::Collective::all_reduce_max);
    all_.push_back({check, "", error, factor * std::max(plain / scale, unit_)});
  }

  void step(std::int64_t s) {
    const std::string of = " of step " + std::to_string(s);
    reference_.set_weights(weights_in_use());
    const Parts before = local_weights();
    const double lr = std::min(config_.optimizer.lr, kMostRate);
    data::DataLoader loader = engine_->training_loader(data_);
    const Batch& batch = loader.load(s - 1);
    StepResult r;
    Parts found;
    const auto take = [&] { found = local_gradients(); };
    for (int tries = 0; tries < kOverflows; ++tries) {
      if (!rule_->element_wise()) engine_->compute_gradients(s, batch), take();
      if ((r = engine_->train_step(s, lr, batch)).applied) break;
    }
    if (rule_->element_wise()) take();
    Trace trace{.gradients = std::move(found), .losses = {r.loss}, .norms = {r.grad_norm}};
    for (auto& part : trace.gradients)
      for (double& g : part) g /= r.loss_scale;
    const Parts sums = trace.gradients;  // of which the update was made
    if (s == 1) interference_.traced(Experiment::layout, trace);
    gradients(of, s, r.loss_scale, trace);
    if (s > 1) return;
    if (rule_->element_wise()) update(before, sums, r.grad_norm, lr);
    if (engine_->flat().master) copies();
    replicas();
  }

  void gradients(const std::string& of, std::int64_t s, double loss_scale, const Trace& run) {
    const auto& single = reference_.parameters().slices();
    const double loss = reference_.compute(s, loss_scale, {});
    const auto flat = static_cast<std::size_t>(reference_.parameters().flat_elements());
    const std::vector<double> exact(reference_.gradients(), reference_.gradients() + flat);
    const auto norm_of = [&](const double* g) {
      double sum = 0;
      for (const nn::PartSlice& p : single) sum += square_sum(g + p.offset, p.elements());
      return std::sqrt(sum) / loss_scale;
    };
    const double norm = norm_of(exact.data());
    double plain_loss = 0, plain_norm = 0;
    std::vector<PartNorms> parts(slices_.size());
    for (const double scale : kGrids) {
      const double rounded = reference_.compute(s, loss_scale, ReferenceStep::Grid{scale});
      plain_loss = std::max(plain_loss, std::abs(rounded - loss));
      plain_norm = std::max(plain_norm, std::abs(norm_of(reference_.gradients()) - norm));
      for (std::size_t i = 0; i < slices_.size(); ++i) {
        const std::int64_t at = single[place_[i]].offset;
        const auto [whole, mine] = difference(i, reference_.gradients() + at, exact.data() + at);
        parts[i].whole_plain = std::max(parts[i].whole_plain, whole / loss_scale / loss_scale);
        parts[i].plain = std::max(parts[i].plain, mine / loss_scale / loss_scale);
      }
    }
    if (std::ranges::any_of(config_.model.kinds_in_use(), [](const auto& kind) {
          return kind.second->activation == config::Activation::relu;
        })) {
      reference_.compute(s, loss_scale, {}, kKinks * unit_);
      plain_norm += std::abs(norm_of(reference_.gradients()) - norm);
      for (std::size_t i = 0; i < slices_.size(); ++i) {
        const std::int64_t at = single[place_[i]].offset;
        parts[i].kinks = difference(i, reference_.gradients() + at, exact.data() + at).second /
                         loss_scale / loss_scale;
      }
    }
    std::vector<Deviation> deviations;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      PartNorms& n = parts[i];
      const double* expected = exact.data() + single[place_[i]].offset;
      n.reference = difference(i, expected, nullptr).second / loss_scale / loss_scale;
      std::vector<double> mine(run.gradients[i].size());
      nn::PartSlice p = slices_[i];
      p.offset = 0;
      nn::ParameterSet::scatter(p, expected, mine.data());
      for (std::size_t k = 0; k < mine.size(); ++k)
        mine[k] = run.gradients[i][k] - mine[k] / loss_scale;
      n.run = owned_.sum(i, [&](std::int64_t first, std::int64_t count) {
        return square_sum(mine.data() + first, count);
      });
      n.elements = owned_.elements(i), n.whole_elements = p.full.elements();
      deviations.push_back(of_gradient(n, norm));
    }
    number("loss" + of, run.losses[0], loss, plain_loss, kResultFactor);
    number("gradient norm" + of, run.norms[0], norm, plain_norm, kGradientFactor);
    all_.push_back(worst("gradient" + of, deviations));
  }

  void update(const Parts& before, const Parts& sums, double norm, double lr) {
    const Parts after = local_weights();
    const double most = config_.optimizer.grad_clip,
                 clip = most > 0 ? std::min(1.0, most / (norm + 1e-6)) : 1;
    std::vector<Deviation> deviations;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      UpdateCheck part(*rule_);
      const bool decays = engine_->model().parameters().spec(slices_[i].parameter).decay;
      for (const auto& [begin, end] : owned_.ranges[i])
        for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k)
          part.add({before[i][k], sums[i][k] * clip, lr, decays}, after[i][k]);
      deviations.push_back(
          part.deviation(std::sqrt(square_sum(before[i].data(), std::ssize(before[i])))));
    }
    all_.push_back(worst("update of step 1", deviations));
  }

  // 16-bit weights are their fp32 masters, rounded.
  void copies() {
    const Parts master = local_weights(), copy = local_parameters();
    std::vector<Deviation> deviations;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      double wrong = 0;
      for (const auto& [begin, end] : owned_.ranges[i])
        for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) {
          const auto w = static_cast<float>(master[i][k]);
          const double rounded =
              engine_->plan().dtype == DType::bf16 ? float(split_weight(w).rounded) : float(f16(w));
          wrong = std::max(wrong, std::abs(copy[i][k] - rounded));
        }
      deviations.push_back({wrong, 0});
    }
    all_.push_back(worst("16-bit copies of weights", deviations));
  }

  void replicas() {
    Finding f{"replicas on all ranks", "", 0, 0};
    try {
      check_replicas(*engine_, "step 1");
    } catch (const Error& e) {
      f.error = 1, f.worst = e.what();
    }
    mesh_.world().all_reduce({&f.error, DType::f64, {1}}, comm::Collective::all_reduce_max);
    const auto of_stages = comm::gather(mesh_.world(), f.worst);
    const auto first =
        std::ranges::find_if(of_stages, [](const std::string& s) { return !s.empty(); });
    if (first != of_stages.end()) f.worst = *first;
    all_.push_back(f);
  }

  // The first step again, with recomputation the other way round.
  void other_recompute(const Parts& initial) {
    const auto first = [&](config::Recompute recompute) {
      config::Config c = config_;
      c.recompute = recompute;
      engine_.reset();  // two do not fit
      engine_ = std::make_unique<Engine>(plan::make_step_plan(c, mesh_), device_);
      set_weights(*engine_, initial);
      data::DataLoader loader = engine_->training_loader(data_);
      const StepResult r = engine_->compute_gradients(1, loader.load(0));
      return std::pair(local_gradients(), r.loss);
    };
    const bool none = config_.recompute == config::Recompute::none;
    const auto [other, other_loss] =
        first(none ? config::Recompute::full : config::Recompute::none);
    const auto [mine, loss] = first(config_.recompute);
    std::vector<Deviation> deviations;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      double most = loss == other_loss ? 0 : std::abs(loss - other_loss);
      for (const auto& [begin, end] : owned_.ranges[i])
        for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k)
          if (mine[i][k] != other[i][k] && !(std::isnan(mine[i][k]) && std::isnan(other[i][k])))
            most = std::max(most, std::abs(mine[i][k] - other[i][k]));
      deviations.push_back({most, 0});
    }
    all_.push_back(worst("recompute on vs. off", deviations));
  }

  const config::Config& config_;
  const comm::Mesh& mesh_;
  const device::Device& device_;
  const Interference& interference_;
  ReferenceStep reference_;
  std::unique_ptr<Engine> engine_;
  const std::vector<nn::PartSlice> slices_;
  const Owned owned_;
  SyntheticData data_;
  const double unit_;
  const std::shared_ptr<const optim::Rule> rule_ = optim::make_rule(config_.optimizer);
  std::vector<std::size_t> place_;  // of each slice among those of the reference
  std::vector<Finding> all_;
};

}  // namespace

std::vector<Finding> verify_as_run(const config::Config& config, const comm::Mesh& mesh,
                                   const device::Device& device, const Interference& interference) {
  return AsRun(config, mesh, device, interference)();
}

}  // namespace tfm::train
