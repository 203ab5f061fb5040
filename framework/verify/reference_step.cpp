#include "verify/reference_step.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "inference/totals.h"

namespace tfm::verify {
namespace {

int significant_bits(DType t) { return t == DType::bf16 ? 8 : t == DType::f16 ? 11 : 24; }

constexpr int kSumBits = 3;  // of fp32, see rounding_unit()

// To so many bits, to nearest, ties to even; what is below `least` to a multiple of its last bit.
double rounded(double x, int bits, double least) {
  if (std::abs(x) < least) {
    const double quantum = std::ldexp(least, 1 - bits);
    return std::nearbyint(x / quantum) * quantum;
  }
  const int dropped = 53 - bits;
  auto u = std::bit_cast<std::uint64_t>(x);
  u += (std::uint64_t{1} << (dropped - 1)) - 1 + (u >> dropped & 1);
  return std::bit_cast<double>(u >> dropped << dropped);
}

}  // namespace

double rounding_unit(DType precision) {
  return std::ldexp(1, (precision == DType::f32 ? kSumBits : 0) - significant_bits(precision));
}

config::Config ReferenceStep::configuration(const config::Config& run) {
  config::Config c = run;
  c.parallel = {.bucket_bytes = run.parallel.bucket_bytes};
  c.parallel.data = 1;
  c.recompute = config::Recompute::none;
  c.device = config::DeviceKind::cpu;
  const config::HeadConfig* vectors = c.model.head_of_type("embed");
  c.train.micro_batch_size =
      vectors && vectors->group == 0 ? c.train.global_batch_size : c.sequences_together();
  c.optimizer.type = config::OptimizerType::sgd;  // needs no memory
  c.optimizer.momentum = c.optimizer.ema = 0;
  return c;
}

ReferenceStep::ReferenceStep(const config::Config& run, int threads)
    : engine_(plan::make_step_plan(configuration(run), comm::single_mesh(), DType::f64), threads),
      data_(engine_.plan().config, engine_.plan().shapes[0].batch, 2) {
  const plan::ShapePlan& shape = engine_.plan().shapes[0];
  const nn::Recording recording =
      engine_.model().record_loss(shape.shape, plan::dtype_of(run.precision), true);
  const auto& values = recording.tape->values();
  TFM_CHECK(values.size() == shape.training.tape->values().size(),
            "recordings differ between precisions");
  for (const graph::ValueInfo& v : values) {
    values_.push_back(v.dtype);
    gradient_types_.push_back(v.gradient);
  }
}

void ReferenceStep::set_weights(const std::vector<std::vector<double>>& parts) {
  const nn::PartSlice* const slices = parameters().slices().data();
  engine_.set_weights(
      [&](const nn::PartSlice& p, std::int64_t first, std::int64_t count, void* out) {
        std::copy_n(parts[static_cast<std::size_t>(&p - slices)].data() + first, count,
                    static_cast<double*>(out));
      });
}

bool ReferenceStep::has_kinks() const {
  for (const graph::Node& node : engine_.plan().shapes[0].training.tape->nodes())
    for (std::size_t k = 0; k < node.in.size(); ++k)
      if (node.op->kinks().contains(k)) return true;
  return false;
}

// Rounds what ops write, and crosses kinks.
class ReferenceStep::Hooks final : public graph::Hooks {
 public:
  Hooks(ReferenceStep& step, const std::optional<Grid>& rounding, double kinks)
      : step_(step), shape_(step.engine_.plan().shapes[0]), rounding_(rounding), kinks_(kinks) {}

  void before(const graph::Instruction& s) override {
    if (kinks_ == 0 || s.phase != graph::Phase::backward || s.node < 0) return;
    const graph::Node& node = shape_.training.tape->nodes()[static_cast<std::size_t>(s.node)];
    for (std::size_t k = 0; k < s.in.size(); ++k)
      if (node.op->kinks().contains(k)) cross(memory_of(s.in[k]));
  }
  void after(const graph::Instruction& s) override {
    if (!rounding_) return;
    for (const int b : s.out)
      if (b >= 0) round(b);
    for (const graph::GradRef& g : s.grad_in)
      if (g.buffer >= 0) round(g.buffer);
  }
  void inner(Tensor t) override {
    if (rounding_)
      round({t.ptr<double>(), static_cast<std::size_t>(t.elements())}, step_.precision());
  }

 private:
  const graph::Buffer& buffer(int b) const {
    return shape_.train_program.buffers()[static_cast<std::size_t>(b)];
  }
  std::span<double> memory_of(int b) const {
    return {reinterpret_cast<double*>(step_.engine_.idle_memory().data() + buffer(b).offset),
            static_cast<std::size_t>(buffer(b).bytes) / sizeof(double)};
  }

  void round(int b) {
    if (buffer(b).persistent || buffer(b).value < 0) return;
    const bool gradient = buffer(b).kind == graph::Buffer::Kind::gradient;
    const auto value = static_cast<std::size_t>(buffer(b).value);
    const DType to = gradient ? step_.gradient_types_[value] : step_.values_[value];
    if (to == DType::bf16 || to == DType::f16 || to == DType::f32) round(memory_of(b), to);
  }

  void round(std::span<double> x, DType to) {
    const bool sums = to == DType::f32 && step_.precision() == DType::f32;
    const int bits = significant_bits(to) - (sums ? kSumBits : 0);
    const double least = to == DType::f16 ? 0x1p-14 : 0, scale = rounding_->scale;
#pragma omp parallel for num_threads(step_.engine_.device().threads()) schedule(static)
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = rounded(x[i] * scale, bits, least) / scale;
  }

  void cross(std::span<double> x) const {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double near = kinks_ * std::sqrt(squares / static_cast<double>(x.size()));
    for (double& v : x)
      if (std::abs(v) < near) v = -v;
  }

  ReferenceStep& step_;
  const plan::ShapePlan& shape_;
  const std::optional<Grid>& rounding_;
  const double kinks_;
};

double ReferenceStep::compute(std::int64_t step, double loss_scale,
                              const std::optional<Grid>& rounding, double kinks) {
  const plan::ShapePlan& shape = engine_.plan().shapes[0];
  const graph::Program& program = shape.train_program;
  std::map<Field, std::vector<std::int32_t>> batch;
  BatchFields fields;
  for (const auto& [field, value] : shape.training.inputs)
    batch[field] =
        std::vector<std::int32_t>(static_cast<std::size_t>(shape.batch * shape.shape.width(field)));
  for (auto& [field, values] : batch) fields[field] = values;
  data_.fill(step - 1, 0, shape.batch, fields);

  StepNumbers numbers{.loss_scale = loss_scale, .step = static_cast<std::uint32_t>(step)};
  const std::size_t objectives = shape.training.losses.size();
  inference::Totals totals = inference::count_labels(shape.training, fields, shape.batch);
  for (std::size_t k = 0; k < objectives; ++k)
    numbers.gradient_scale[k] = loss_scale * totals.weights[k] /
                                static_cast<double>(std::max<std::int64_t>(totals.labels[k], 1));
  const comm::RankContext rank = engine_.rank_context();
  Hooks hooks(*this, rounding, kinks);
  graph::ExecContext context{engine_.device().stream(),
                             &rank.tensors,
                             {.seed = engine_.plan().config.train.seed},
                             &numbers,
                             &hooks};
  for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
    numbers.first_sequence = m * shape.shape.sequences;
    for (const auto& [field, value] : shape.training.inputs) {
      const std::int64_t n = shape.shape.sequences * shape.shape.width(field);
      std::copy_n(batch.at(field).begin() + m * n, n, program.value(value).ptr<std::int32_t>());
    }
    context.state.micro_batch = {.first = m == 0, .last = m + 1 == shape.micro_batches};
    program.run(context);
    for (std::size_t k = 0; k < objectives; ++k)
      totals.loss[k] += *program.value(shape.training.losses[k].value).ptr<double>();
  }
  return totals.mean();
}

}  // namespace tfm::verify
