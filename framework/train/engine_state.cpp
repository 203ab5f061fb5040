#include "train/engine_state.h"

#include <algorithm>

#include "checkpoint/parameters.h"

namespace tfm::train {
namespace {

struct State {
  std::string name;  // of its tensors, in front of the part's
  float* data;       // this rank's, laid out as Optimizer::owned() says
};

std::vector<State> states_of(const Engine& engine) {
  const optim::Optimizer::Flat& flat = engine.flat();
  const optim::OptimizerOptions& o = engine.optimizer().options();
  std::vector<State> all;
  const auto add = [&](const char* name, void* data) {
    if (data) all.push_back({name, static_cast<float*>(data)});
  };
  add(o.kind == optim::OptimizerOptions::Kind::sgd ? "momentum/" : "adam.m/", flat.state[0]);
  add("adam.v/", flat.state[1]);
  add("model/", flat.master);
  add("ema/", flat.average);
  return all;
}

// Calls visit(part, first element within the part's slice, count, first element in the state
// buffers) for all state this rank owns.
template <class F>
void for_owned_state(const Engine& engine, F visit) {
  for (const nn::PartSlice& part : engine.model().parameters().slices())
    for (const optim::Optimizer::StateRange& run : engine.optimizer().owned()) {
      const std::int64_t begin = std::max(run.begin, part.offset),
                         end = std::min(run.end, part.offset + part.elements());
      if (begin < end)
        visit(part, begin - part.offset, end - begin, run.state_offset + begin - run.begin);
    }
}

// Axes along which ranks have the same optimizer state of a parameter: with ZeRO they share it out
// along those over which they reduce its gradient.
comm::AxisSet copies_of_state(const Engine& engine, int parameter) {
  const nn::ParameterSpec& spec = engine.model().parameters().spec(parameter);
  const comm::AxisSet copies = axes_with(spec.placement, nn::Placement::replicate);
  if (engine.optimizer().options().zero == 0) return copies;
  return copies - axes_with(spec.gradient(), nn::Placement::partial);
}

}  // namespace

std::vector<checkpoint::Chunk> checkpoint_pieces(Engine& engine) {
  const nn::ParameterSet& parameters = engine.model().parameters();
  const auto* flat = static_cast<const float*>(engine.flat().parameters);
  std::vector<checkpoint::Chunk> pieces;
  const auto add = [&](const std::string& name, const nn::PartSlice& p, std::int64_t first,
                       std::int64_t count, const float* data) {
    if (count == 0) return;
    checkpoint::Chunk piece{checkpoint::slice_of(p, first, count), name + p.name, p.full, data, {}};
    if (!engine.device().is_cpu()) {
      const auto host = engine.device().allocate_host(count * 4);
      device::download(engine.device().stream(), host.get(), data, count * 4);
      piece.copy = host, piece.data = reinterpret_cast<const float*>(host.get());
    }
    pieces.push_back(std::move(piece));
  };
  if (!engine.flat().master)
    for (const nn::PartSlice& p : parameters.slices())
      if (parameters.first_of_copies(p.parameter, comm::kWorld))
        add("model/", p, 0, p.elements(), flat + p.offset);
  const comm::Mesh& mesh = engine.plan().mesh;
  const std::vector<State> states = states_of(engine);
  for_owned_state(
      engine, [&](const nn::PartSlice& p, std::int64_t first, std::int64_t count, std::int64_t at) {
        if (mesh.place(copies_of_state(engine, p.parameter)) > 0) return;
        for (const State& s : states) add(s.name, p, first, count, s.data + at);
      });
  return pieces;
}

std::vector<ReplicatedTensor> replicated_tensors(const Engine& engine) {
  const nn::ParameterSet& parameters = engine.model().parameters();
  std::vector<ReplicatedTensor> all;
  const auto element = static_cast<std::int64_t>(size_of(engine.plan().dtype));
  for (const nn::PartSlice& p : parameters.slices()) {
    const auto* at = static_cast<const std::byte*>(engine.flat().parameters) + p.offset * element;
    all.push_back({p.name,
                   axes_with(parameters.spec(p.parameter).placement, nn::Placement::replicate),
                   {{at, static_cast<std::size_t>(p.elements() * element)}}});
  }
  std::map<std::string, std::size_t> place;  // in `all`
  const std::vector<State> states = states_of(engine);
  for (const nn::PartSlice& p : parameters.slices()) {
    const comm::AxisSet copies = copies_of_state(engine, p.parameter);
    if (engine.plan().mesh.layout.size(copies) == 1) continue;
    for (const State& s : states) {
      place[s.name + p.name] = all.size();
      all.push_back({s.name + p.name, copies, {}});
    }
  }
  for_owned_state(engine,
                  [&](const nn::PartSlice& p, std::int64_t, std::int64_t count, std::int64_t at) {
                    for (const State& s : states)
                      if (const auto found = place.find(s.name + p.name); found != place.end())
                        all[found->second].memory.push_back(
                            std::as_bytes(std::span(s.data + at, static_cast<std::size_t>(count))));
                  });
  return all;
}

void restore(const checkpoint::CheckpointReader& reader, const std::string& path, Engine& engine,
             bool optimizer) {
  const nn::ParameterSet& parameters = engine.model().parameters();
  engine.set_weights([&](void* flat) {
    checkpoint::restore_parameters(reader, path, parameters, static_cast<float*>(flat));
  });
  if (optimizer) engine.updates() = reader.manifest().updates;
  std::vector<State> states = states_of(engine);
  std::erase_if(states, [&](const State& s) {
    return s.name == "model/" ||
           (s.name == "ema/" ? !checkpoint::has_average(reader, parameters) : !optimizer);
  });
  for_owned_state(
      engine, [&](const nn::PartSlice& p, std::int64_t first, std::int64_t count, std::int64_t at) {
        for (const State& s : states) {
          checkpoint::check_shape(reader, path, s.name + p.name, p.full);
          float* to = s.data + at;
          std::vector<float> host(engine.device().is_cpu() ? 0 : static_cast<std::size_t>(count));
          if (!host.empty()) to = host.data();
          reader.read(s.name + p.name, checkpoint::slice_of(p, first, count), to);
          if (!host.empty()) device::upload(engine.device().stream(), s.data + at, to, count * 4);
        }
      });
}

}  // namespace tfm::train
