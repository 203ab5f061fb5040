// LAMB (You et al. 2020): Adam's direction with weight decay in it, scaled for each part by the
// norm of its weights over that of the direction. Parameters without weight decay (biases, norms,
// position tables) are not scaled, as in the authors' program.
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
    return squares_bytes(parameters);
  }
  std::int64_t scratch_bytes(const nn::ParameterSet&) const override {
    return kernels::part_update_scratch();
  }
  std::vector<comm::CollectiveCall> collectives(const nn::ParameterSet& parameters,
                                                const comm::Layout& layout, DType) const override {
    return {reduction_of(layout, squares_bytes(parameters))};
  }
  double further_accesses() const override { return 5; }
  void update(const Update& u) const override {
    on_stream(u, [&]<class P>(auto& stream) { update_on<P>(stream, u); });
  }

 private:
  template <class P, class Stream>
  void update_on(Stream& stream, const Update& u) const {
    using T = Accum<P>;
    auto* const squares = static_cast<kernels::PartSquares*>(u.flat.workspace);
    const auto all = part_elements<P>(u, [](const PartRange&) { return true; });
    const auto counted =
        part_elements<P>(u, [](const PartRange& r) { return r.decay && r.counted; });
    clear(stream, squares, squares_bytes(u.parameters));
    kernels::adam_direction(stream,
                            kernels::AdamDirectionArgs<T, P>{
                                all,
                                {config_.beta1, config_.beta2, config_.eps, config_.weight_decay},
                                u.numbers,
                                u.outcome});
    kernels::add_squares(stream, kernels::PartSquaresArgs<T, P>{counted, u.outcome, squares});
    all_reduce(u, squares);
    kernels::descend(stream, kernels::DescendArgs<kernels::TrustRatio, T, P>{
                                 all, {}, u.numbers, u.outcome, squares});
  }

  config::OptimizerConfig config_;
};

}  // namespace

std::shared_ptr<const Rule> make_lamb(const config::OptimizerConfig& o) {
  return std::make_shared<Lamb>(o);
}

}  // namespace tfm::optim
