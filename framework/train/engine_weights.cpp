// Weights into and out of an engine.
#include <algorithm>

#include "train/engine.h"

namespace tfm::train {

void Engine::set_weights(const nn::WeightSource& source) {
  constexpr std::int64_t kBlock = 1 << 20;  // elements at a time
  const std::int64_t bytes = kBlock * size_of(accum_type(plan_.dtype));
  const auto host = device_.allocate_host(2 * bytes);
  for (const optim::PartRange& r : optimizer_.shards().parts)
    for (std::int64_t first = 0; first < r.count(); first += kBlock) {
      const std::int64_t count = std::min(kBlock, r.count() - first);
      source(model().parameters().slices()[static_cast<std::size_t>(r.part)], r.first + first,
             count, host.get());
      optimizer_.set_weights(device_.stream(), memory_.flat, r, first, count, host.get(),
                             host.get() + bytes);
    }
  optimizer_.spread(memory_.flat);
}

void Engine::initialize_parameters() {
  set_weights([&](const nn::PartSlice& p, std::int64_t first, std::int64_t count, void* out) {
    with_accum(accum_type(plan_.dtype), [&]<class T>() {
      model().parameters().initialize(plan_.config.train.seed, p, first, count,
                                      static_cast<T*>(out), device_.threads());
    });
  });
}

void* Engine::whole_parameters_in(void* memory) {
  gather_parameters();
  if (!memory_.flat.sharded.parameters) return memory_.flat.parameters;
  optimizer_.gather_into(memory_.flat, memory);
  return memory;
}

inference::Weights Engine::translator_weights(std::byte* memory) {
  const nn::ParameterSet &own = model().parameters(), &all = plan_.translator->parameters();
  const plan::WholeParameters whole = plan::whole_parameters(plan_);
  void* const mine = whole_parameters_in(memory);
  if (whole.model == 0) return {own, mine, plan_.dtype};
  void* const model = memory + whole.own;
  const comm::AxisSet axes = nn::loss_axes(plan_.mesh.layout);
  for (int i = 0; i < all.size(); ++i) {
    const Tensor t = all.view(i, model, plan_.dtype);
    if (own.owned(i))
      device::copy_async(device_.stream(), t.data, own.view(i, mine, plan_.dtype).data, t.bytes());
    tensors_.group(axes).broadcast(
        t, own.spec(i).stage * plan_.mesh.layout.size(axes - nn::kStageAxes));
  }
  return {all, model, plan_.dtype};
}

std::shared_ptr<std::byte> Engine::whole_parameters() {
  std::shared_ptr<std::byte> copy;
  if (memory_.flat.sharded.parameters)
    copy = device_.allocate(model().parameters().flat_elements() * size_of(plan_.dtype));
  return {copy, static_cast<std::byte*>(whole_parameters_in(copy.get()))};
}

}  // namespace tfm::train
