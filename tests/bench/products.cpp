// Products of linear layers and the output layer in a training step on CPUs, beside oneDNN's at the
// best rate that it reaches for each. By hand, on an idle machine.
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <dnnl.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/gemm.h"
#include "launch/bench/bench.h"
#include "launch/bench/rates.h"
#include "launch/support/automatic.h"
#include "train/engine.h"

namespace tfm::launch {
namespace {

constexpr const char* kHelp =
    R"(usage: bench-products CONFIG.yaml [section.key=value ...] [--rounds N]
  In each of N (default 3) rounds, times three steps of training on random data and then each
  product of the linear layers and the output layer of such a step: tfm's, oneDNN's sgemm of as many
  floats, and oneDNN's matmul of the types of the step with row-major operands, with B in the layout
  it asks for (packed B), and with all operands so (all packed). Conversions to layouts, biases and
  sums with what C held are not timed. Of products the best round counts, of steps the median. The
  best of oneDNN is that of matmul; in fp32, and where matmul is only a reference implementation,
  sgemm counts, too. Uses OMP_NUM_THREADS threads; if it is not set, one for each core.
)";

struct Shape {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, sum;  // sum: C has the accumulation type
  auto operator<=>(const Shape&) const = default;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// Products and how often a step has them. Weights are (out, in), activations (rows, features).
// Where a backward pass has a forward one, that is the first of three products of each chunk.
std::map<Shape, std::int64_t> products_of_step(const plan::ShapePlan& plan) {
  std::map<Shape, std::int64_t> found;
  const graph::Program& program = plan.train_program;
  for (std::size_t i = 0; i < program.instructions().size(); ++i) {
    const graph::Instruction& s = program.instructions()[i];
    const std::vector<graph::Work::Product> products = program.work(i).products;
    for (std::size_t k = 0; k < products.size(); ++k) {
      const graph::Work::Product& p = products[k];
      const graph::Op& op = *program.recording().nodes()[static_cast<std::size_t>(s.node)].op;
      const bool forward =
          s.phase != graph::Phase::backward || (op.forward_with_backward() && k % 3 == 0);
      found[{p.m, p.n, p.k, p.sum, forward, p.sum}] += p.count * plan.micro_batches;
    }
  }
  return found;
}

class Memory {
 public:
  Memory(device::Device& device, std::int64_t bytes) : memory_(device.allocate(bytes)) {
    // Small numbers in each type.
    std::fill_n(reinterpret_cast<std::uint16_t*>(memory_.get()), bytes / 2, std::uint16_t{0x3c01});
  }
  template <class T>
  T* ptr() const {
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  std::shared_ptr<std::byte> memory_;
};

dnnl::memory::data_type type_of(DType type) {
  return type == DType::bf16  ? dnnl::memory::data_type::bf16
         : type == DType::f16 ? dnnl::memory::data_type::f16
                              : dnnl::memory::data_type::f32;
}

// Which operands have a layout of oneDNN's choice.
enum class Packed { none, b, all };

// oneDNN's matmul; empty if it has only a reference implementation.
std::function<void()> matmul(device::Device& device, const Shape& s, DType type, Packed packed) {
  using dnnl::memory;
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  const auto matrix = [](std::int64_t rows, std::int64_t cols, DType t, bool transposed,
                         bool chosen) {
    return chosen ? memory::desc({rows, cols}, type_of(t), memory::format_tag::any)
                  : memory::desc({rows, cols}, type_of(t),
                                 transposed ? memory::dims{1, rows} : memory::dims{cols, 1});
  };
  const bool all = packed == Packed::all;
  const memory::desc a = matrix(s.m, s.k, type, s.transpose_a, all),
                     b = matrix(s.k, s.n, type, s.transpose_b, packed != Packed::none),
                     c = matrix(s.m, s.n, s.sum ? accum_type(type) : type, false, all);
  dnnl::matmul::primitive_desc made;
  try {
#if DNNL_VERSION_MAJOR >= 3
    made = dnnl::matmul::primitive_desc(engine, a, b, c);
#else
    made = dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine);
#endif
  } catch (const dnnl::error&) {
    return {};
  }
  if (std::string_view(made.impl_info_str()).starts_with("ref")) return {};
  std::unordered_map<int, memory> args;
  std::vector<Memory> kept;
  for (const auto& [arg, desc] : {std::pair{DNNL_ARG_SRC, made.src_desc()},
                                  {DNNL_ARG_WEIGHTS, made.weights_desc()},
                                  {DNNL_ARG_DST, made.dst_desc()}}) {
    kept.emplace_back(device, static_cast<std::int64_t>(desc.get_size()));
    args.emplace(arg, memory(desc, engine, kept.back().ptr<void>()));
  }
  return [product = dnnl::matmul(made), args, kept] {
    product.execute(stream, args);
    stream.wait();
  };
}

std::function<void()> sgemm(device::Device& device, const Shape& s) {
  const Memory a(device, 4 * s.m * s.k), b(device, 4 * s.k * s.n), c(device, 4 * s.m * s.n);
  return [=] {
    dnnl::sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1,
                a.ptr<float>(), s.transpose_a ? s.m : s.k, b.ptr<float>(),
                s.transpose_b ? s.k : s.n, 0, c.ptr<float>(), s.n);
  };
}

template <class T, class C>
std::function<void()> by_tfm(device::Device& device, const Shape& s) {
  const Memory a(device, size_of(dtype_of<T>) * s.m * s.k),
      b(device, size_of(dtype_of<T>) * s.k * s.n), c(device, size_of(dtype_of<C>) * s.m * s.n);
  return [=, &device] {
    device::on(device.stream(), [&](auto& stream) {
      kernels::gemm(stream, kernels::GemmArgs<T, C>{.transpose_a = s.transpose_a,
                                                    .transpose_b = s.transpose_b,
                                                    .m = s.m,
                                                    .n = s.n,
                                                    .k = s.k,
                                                    .a = a.ptr<T>(),
                                                    .lda = s.transpose_a ? s.m : s.k,
                                                    .b = b.ptr<T>(),
                                                    .ldb = s.transpose_b ? s.k : s.n,
                                                    .c = c.ptr<C>(),
                                                    .ldc = s.n});
    });
  };
}

std::function<void()> by_tfm(device::Device& device, const Shape& s, DType type) {
  std::function<void()> made;
  with_float(type, [&]<class T>() {
    made = s.sum ? by_tfm<T, Accum<T>>(device, s) : by_tfm<T, T>(device, s);
  });
  return made;
}

constexpr std::array kColumns{"tfm", "sgemm", "row-major", "packed B", "all packed"};
using Seconds = std::array<double, kColumns.size()>;  // 0: none

void time_products(device::Device& device, DType type, std::map<Shape, Seconds>& found) {
  for (auto& [s, best] : found) {
    const std::array<std::function<void()>, kColumns.size()> all{
        by_tfm(device, s, type), sgemm(device, s), matmul(device, s, type, Packed::none),
        matmul(device, s, type, Packed::b), matmul(device, s, type, Packed::all)};
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i]) {
        const double seconds = best_seconds(device, all[i], 3);
        if (best[i] == 0 || seconds < best[i]) best[i] = seconds;
      }
  }
}

// sgemm counts in fp32, and where matmul has only a reference implementation.
double best_of_onednn(const Seconds& s, DType type) {
  double best = 0;
  for (std::size_t i = 2; i < s.size(); ++i)
    if (s[i] > 0 && (best == 0 || s[i] < best)) best = s[i];
  return best == 0 ? s[1] : type == DType::f32 ? std::min(best, s[1]) : best;
}

int run(int argc, char** argv) {
  const Arguments args(argc, argv, {{"--rounds"}});
  const std::int64_t rounds = args.integer("--rounds", 3, 1);
  Launch launch;
  config::Config config = load_config(args.only("CONFIG.yaml"), args.overrides());
  config.device = config::DeviceKind::cpu;
  choose(launch, config);
  train::Engine engine(plan::make_step_plan(config, launch.mesh({})), launch.device(config));
  engine.initialize_parameters();
  const plan::ShapePlan& shape = engine.plan().largest();
  const RandomData data(config, engine.plan().shapes.size() - 1, shape.batch);
  data::DataLoader loader = engine.training_loader(data);
  omp_set_num_threads(launch.threads());  // oneDNN's

  const std::map<Shape, std::int64_t> counts = products_of_step(shape);
  std::map<Shape, Seconds> best;
  for (const auto& [s, count] : counts) best[s] = {};
  constexpr double kRate = 0;  // learning rate
  std::vector<double> steps;
  for (std::int64_t step = 0; step <= 3 * rounds; ++step) {
    double seconds = 0;
    device::timed(engine.device().stream(), &seconds,
                  [&] { engine.train_step(step + 1, kRate, loader.load(step)); });
    if (step == 0) continue;  // warm-up
    steps.push_back(seconds);
    if (step % 3 == 0) time_products(engine.device(), engine.plan().dtype, best);
  }

  std::printf("%s, %d threads, GFLOP/s\n%7s %7s %7s %-6s %6s",
              config::word(config.precision).c_str(), launch.threads(), "m", "n", "k", "stored",
              "a step");
  for (const char* name : kColumns) std::printf(" %10s", name);
  std::printf(" %10s\n", "tfm/best");
  double tfm_seconds = 0, library_seconds = 0;
  for (const auto& [s, seconds] : best) {
    const double library = best_of_onednn(seconds, engine.plan().dtype);
    tfm_seconds += seconds[0] * static_cast<double>(counts.at(s));
    library_seconds += library * static_cast<double>(counts.at(s));
    std::printf("%7lld %7lld %7lld %-6s %6lld", static_cast<long long>(s.m),
                static_cast<long long>(s.n), static_cast<long long>(s.k),
                s.transpose_a   ? "a^T b"
                : s.transpose_b ? "a b^T"
                                : "a b",
                static_cast<long long>(counts.at(s)));
    for (double t : seconds)
      t > 0 ? std::printf(" %10.1f", s.flops() / t * 1e-9) : std::printf(" %10s", "-");
    std::printf(" %10.2f\n", library / seconds[0]);
  }
  const double step = median(steps);
  std::printf(
      "step %.1f ms; its products alone: tfm %.1f ms, %.0f %% of the step; oneDNN %.1f ms, %.0f "
      "%%\n",
      step * 1e3, tfm_seconds * 1e3, tfm_seconds / step * 100, library_seconds * 1e3,
      library_seconds / step * 100);
  return 0;
}

}  // namespace
}  // namespace tfm::launch

int main(int argc, char** argv) {
  return tfm::launch::guarded(argc, argv, tfm::launch::kHelp, tfm::launch::run);
}
