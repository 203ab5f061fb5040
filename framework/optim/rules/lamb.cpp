// LAMB (You et al. 2020): Adam's direction with weight decay in it, scaled for each part by the
// norm of its weights over that of the direction. Parameters without weight decay (biases, norms,
// position tables) are not scaled, as in the authors' program.
#include <cmath>

#include "optim/rules/adam.h"
#include "optim/rules/by_part.h"
#include "optim/rules/registry.h"

namespace tfm::optim {
namespace {

class Lamb final : public Rule {
 public:
  explicit Lamb(const config::OptimizerConfig& o) : config_(o) {}

  std::vector<ParameterGroup> groups() const override { return {kAdamGroup}; }
  UpdateNumbers numbers(std::int64_t update, double lr) const override {
    return adam_numbers(config_, update, lr);
  }
  std::int64_t workspace_bytes(const nn::ParameterSet& parameters, const comm::Layout&,
                               DType) const override {
    return static_cast<std::int64_t>(sums(parameters) * sizeof(SquareSum));
  }
  std::vector<comm::CollectiveCall> collectives(const nn::ParameterSet& parameters,
                                                const comm::Layout& layout, DType) const override {
    return {reduction_of<SquareSum>(layout, sums(parameters))};
  }
  void update(const Update& u) const override {
    on_host(u, [&]<class P>(cpu::Stream& stream) { update_on<P>(stream, u); });
  }

 private:
  // Squares of the weights and of the direction, of each part.
  static std::size_t sums(const nn::ParameterSet& p) { return 2 * p.slices().size(); }

  template <class P>
  void update_on(cpu::Stream& stream, const Update& u) const {
    using T = Accum<P>;
    const bool applied = u.outcome->applied != 0;
    const std::span<SquareSum> squares = clear_sums<SquareSum>(u, sums(u.parameters));
    const auto of = [&](const PartRange& r) {
      return squares.subspan(2 * static_cast<std::size_t>(r.part), 2);
    };
    for (const PartRange& r : u.shards.parts) {
      if (!applied) break;
      const kernels::AdamRule rule{config_.beta1, config_.beta2, config_.eps,
                                   r.decay ? config_.weight_decay : 0};
      T* const direction = u.gradients<T>(r);
      kernels::adam_direction(
          stream, kernels::AdamDirectionArgs<T>{r.count(), rule, u.numbers->update,
                                                u.outcome->gradient_factor, u.weights<T>(r),
                                                direction, u.state<T>(r, 0), u.state<T>(r, 1)});
      if (!r.decay) continue;
      add_squares(stream, r, u.weights<T>(r), of(r)[0]);
      add_squares(stream, r, direction, of(r)[1]);
    }
    all_reduce(u, squares);
    for (const PartRange& r : u.shards.parts) {
      if (!applied) break;
      const double weights = kernels::total(of(r)[0]), direction = kernels::total(of(r)[1]),
                   ratio = weights > 0 && direction > 0 ? std::sqrt(weights / direction) : 1;
      descend<P>(stream, u, r, 0, r.count(), u.gradients<T>(r), 1, u.numbers->update.lr * ratio);
    }
  }

  config::OptimizerConfig config_;
};

}  // namespace

std::shared_ptr<const Rule> make_lamb(const config::OptimizerConfig& o) {
  return std::make_shared<Lamb>(o);
}

}  // namespace tfm::optim
