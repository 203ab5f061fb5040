#include "verify/as_run.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "comm/consensus.h"
#include "kernels/normals.h"
#include "train/replicas.h"
#include "verify/gradient_check.h"

namespace tfm::verify {
namespace {

constexpr std::int64_t kAsRunSteps = 2;
constexpr double kVectorNoise = 0.1;  // added to biases and gains
constexpr double kMostAsRunRate = 1e-2;
constexpr int kOverflows = 40;  // steps that fp16's loss scale may take to settle

// Biases and gains have noise: zeros and ones hide what is done to them.
Parts initial_weights(const nn::ParameterSet& p, std::uint64_t seed) {
  std::vector<float> flat(static_cast<std::size_t>(p.flat_elements()));
  p.initialize(seed, flat.data(), 1);
  Parts all;
  for (const nn::PartSlice& s : p.slices()) {
    std::vector<float> noise(static_cast<std::size_t>(s.elements()));
    if (p.spec(s.parameter).init.kind == nn::Init::Kind::constant)
      kernels::normals({seed, Purpose::init, stream_of("verify." + s.name), 0}, 0, s.elements(),
                       static_cast<float>(kVectorNoise), noise.data());
    auto& part = all.emplace_back();
    for (std::int64_t i = 0; i < s.elements(); ++i)
      part.push_back(flat[static_cast<std::size_t>(s.offset + i)] +
                     noise[static_cast<std::size_t>(i)]);
  }
  return all;
}

// A step of the run.
struct Step {
  Parts before;     // the weights that the optimizer updates
  Parts gradients;  // those of the update
  train::StepResult result;
  double rate = 0;
};

class AsRun {
 public:
  AsRun(const config::Config& config, const comm::Mesh& mesh, const device::Device& device)
      : config_(config),
        mesh_(mesh),
        device_(device),
        reference_(config, device.threads()),
        initial_(initial_weights(reference_.parameters(), config.train.seed)),
        engine_(start(config.recompute)),
        slices_(*engine_, reference_.parameters(), mesh),
        data_(config_, engine_->plan().shapes[0].batch, kAsRunSteps),
        rule_(optim::make_rule(config.optimizer)),
        load_rule_(optim::make_load_rule(config.model.router_loss.rate)) {}

  std::vector<Finding> operator()(const std::function<void(Trace&)>& traced) {
    set_initial_weights();
    for (std::int64_t s = 1; s <= kAsRunSteps; ++s) {
      reference_.set_weights(slices_.whole(engine_->model().parameters(), parameters_of(*engine_)));
      const Step step = take_step(s);
      Trace trace{.gradients = step.gradients,
                  .losses = {step.result.loss},
                  .norms = {step.result.grad_norm}};
      if (s == 1) traced(trace);
      compare(s, step.result.loss_scale, trace);
      if (s > 1) continue;
      if (rule_->element_wise()) check_update(step);
      if (engine_->flat().master) check_copies();
      check_replicas();
    }
    check_recompute();
    return std::move(all_);
  }

 private:
  std::unique_ptr<train::Engine> start(config::Recompute recompute) const {
    config::Config c = config_;
    c.recompute = recompute;
    return std::make_unique<train::Engine>(plan::make_step_plan(c, mesh_), device_);
  }

  void set_initial_weights() {
    const nn::PartSlice* const slices = engine_->model().parameters().slices().data();
    engine_->set_weights(
        [&](const nn::PartSlice& p, std::int64_t first, std::int64_t count, void* out) {
          const auto& part = initial_[slices_.part(static_cast<std::size_t>(&p - slices))];
          const std::vector<float> narrow(part.begin(), part.end());
          nn::ParameterSet::scatter(p, first, count, narrow.data(), static_cast<float*>(out));
        });
  }

  // Reads the gradients before the update where the rule overwrites them.
  Step take_step(std::int64_t s) {
    Step step{.before = weights_of(*engine_),
              .rate = std::min(config_.optimizer.lr, kMostAsRunRate)};
    data::DataLoader loader = engine_->training_loader(data_);
    const Batch& batch = loader.load(s - 1);
    const auto read = [&] { step.gradients = gradients_of(*engine_); };
    for (int tries = 0; tries < kOverflows; ++tries) {
      if (!rule_->element_wise()) engine_->compute_gradients(s, batch), read();
      if ((step.result = engine_->train_step(s, step.rate, batch)).applied) break;
    }
    if (rule_->element_wise()) read();
    for (auto& part : step.gradients)
      for (double& g : part) g /= step.result.loss_scale;
    return step;
  }

  void number(const std::string& check, double run, double reference, double plain, double factor) {
    const double scale = std::max(std::abs(reference), 1e-300),
                 unit = rounding_unit(engine_->plan().dtype);
    double error = std::abs(run - reference) / scale;
    if (!std::isfinite(error)) error = std::numeric_limits<double>::infinity();
    mesh_.world().all_reduce({&error, DType::f64, {1}}, comm::Collective::all_reduce_max);
    all_.push_back({check, "", error, factor * std::max(plain / scale, unit)});
  }

  // deviation(i) of each slice.
  template <class F>
  void parts(const std::string& check, F&& deviation) {
    std::vector<Deviation> all;
    for (std::size_t i = 0; i < slices_.size(); ++i) all.push_back(deviation(i));
    all_.push_back(slices_.worst(check, all));
  }

  void compare(std::int64_t s, double loss_scale, const Trace& run) {
    const std::string of = " of step " + std::to_string(s);
    const GradientCheck exact(reference_, slices_, s, loss_scale);
    number("loss" + of, run.losses[0], exact.loss, exact.plain_loss, kResultFactor);
    number("gradient norm" + of, run.norms[0], exact.norm, exact.plain_norm, kGradientFactor);
    parts("gradient" + of, [&](std::size_t i) { return exact.of(i, run.gradients[i]); });
  }

  void check_update(const Step& s) {
    const Parts after = weights_of(*engine_);
    const double most = config_.optimizer.grad_clip,
                 clip = most > 0 ? std::min(1.0, most / (s.result.grad_norm + 1e-6)) : 1;
    parts("update of step 1", [&](std::size_t i) {
      const nn::ParameterSpec& spec = engine_->model().parameters().spec(slices_[i].parameter);
      UpdateCheck part(spec.evens_load ? *load_rule_ : *rule_);
      slices_.each_own(i, [&](std::size_t k) {
        part.add({s.before[i][k], s.gradients[i][k] * clip, s.rate, spec.decay}, after[i][k]);
      });
      return part.deviation(std::sqrt(square_sum(s.before[i].data(), std::ssize(s.before[i]))));
    });
  }

  // 16-bit weights are their fp32 masters, rounded.
  void check_copies() {
    const Parts master = weights_of(*engine_), copy = parameters_of(*engine_);
    parts("16-bit copies of weights", [&](std::size_t i) {
      double wrong = 0;
      slices_.each_own(i, [&](std::size_t k) {
        const auto w = static_cast<float>(master[i][k]);
        const double rounded =
            engine_->plan().dtype == DType::bf16 ? float(split_weight(w).rounded) : float(f16(w));
        wrong = std::max(wrong, std::abs(copy[i][k] - rounded));
      });
      return Deviation{wrong, 0};
    });
  }

  void check_replicas() {
    Finding f{"replicas on all ranks", "", 0, 0};
    try {
      train::check_replicas(*engine_, "step 1");
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
  void check_recompute() {
    const auto first = [&](config::Recompute recompute) {
      engine_.reset();  // two do not fit
      engine_ = start(recompute);
      set_initial_weights();
      data::DataLoader loader = engine_->training_loader(data_);
      const train::StepResult r = engine_->compute_gradients(1, loader.load(0));
      return std::pair(gradients_of(*engine_), r.loss);
    };
    const bool none = config_.recompute == config::Recompute::none;
    const auto other = first(none ? config::Recompute::full : config::Recompute::none),
               mine = first(config_.recompute);
    const double losses = mine.second == other.second ? 0 : std::abs(mine.second - other.second);
    parts("recompute on vs. off", [&](std::size_t i) {
      double most = losses;
      slices_.each_own(i, [&](std::size_t k) {
        const double a = mine.first[i][k], b = other.first[i][k];
        if (a != b && !(std::isnan(a) && std::isnan(b))) most = std::max(most, std::abs(a - b));
      });
      return Deviation{most, 0};
    });
  }

  const config::Config& config_;
  const comm::Mesh& mesh_;
  const device::Device& device_;
  ReferenceStep reference_;
  const Parts initial_;
  std::unique_ptr<train::Engine> engine_;
  const RankSlices slices_;
  SyntheticData data_;
  const std::shared_ptr<const optim::Rule> rule_, load_rule_;
  std::vector<Finding> all_;
};

}  // namespace

std::vector<Finding> verify_as_run(const config::Config& config, const comm::Mesh& mesh,
                                   const device::Device& device,
                                   const std::function<void(Trace&)>& traced) {
  return AsRun(config, mesh, device)(traced);
}

}  // namespace tfm::verify
