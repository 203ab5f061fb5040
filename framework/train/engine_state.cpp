#include "train/engine_state.h"

#include <map>

#include "checkpoint/parameters.h"

namespace tfm::train {
namespace {

// A range of a part's state on this rank.
struct State {
  std::string name;  // of its tensors, in front of the part's
  float* data;       // null: weights that lie in two halves
};

// Otherwise every rank has all of its parameters as they were last updated.
bool weights_are_state(const Engine& engine) {
  return engine.flat().master || engine.optimizer().options().zero > 0;
}

std::vector<State> states_of(const Engine& engine, const optim::StateRange& r) {
  const optim::FlatBuffers& flat = engine.flat();
  std::vector<State> all;
  for (const optim::ShardLayout::ElementState& s : engine.optimizer().shards().states)
    if (s.group == r.group)
      all.push_back({s.name + "/", static_cast<float*>(flat.state) + s.offset + r.group_offset});
  if (weights_are_state(engine)) {
    const auto memory = engine.optimizer().weight_memory(flat, r);
    all.push_back(
        {"model/", memory.size() == 1 ? reinterpret_cast<float*>(memory[0].data()) : nullptr});
  }
  if (flat.average) all.push_back({"ema/", static_cast<float*>(flat.average) + r.state_offset});
  return all;
}

const nn::PartSlice& part_of(const Engine& engine, int part) {
  return engine.model().parameters().slices()[static_cast<std::size_t>(part)];
}

void check_state(const checkpoint::CheckpointReader& reader, const std::string& path,
                 const std::string& name, const Shape& shape) {
  if (!reader.has(name))
    throw Error(ExitCode::input, path + ": the checkpoint has no tensor '" + name +
                                     "'; it was written with another optimizer: compare "
                                     "`optimizer.type` and `optimizer.momentum` with the config in "
                                     "its manifest");
  checkpoint::check_shape(reader, path, name, shape);
}

std::string name_of(const Engine& engine, const optim::PartState& s) {
  return s.name + "/" + part_of(engine, s.part).name;
}

comm::AxisSet copies_of_state(const Engine& engine, int parameter) {
  const nn::ParameterSpec& spec = engine.model().parameters().spec(parameter);
  return engine.optimizer().options().zero > 0 ? spec.copies_of_shares(engine.plan().mesh.layout)
                                               : spec.copies();
}

}  // namespace

std::vector<checkpoint::Chunk> checkpoint_chunks(Engine& engine) {
  const nn::ParameterSet& parameters = engine.model().parameters();
  const auto* flat = static_cast<const float*>(engine.flat().parameters);
  const auto staging = engine.device().allocate_host(checkpoint::Chunk::kBlock * 4);
  std::vector<checkpoint::Chunk> pieces;
  // `r`: of weights that lie in two halves.
  const auto chunk = [&](const checkpoint::Slice& slice, const std::string& name, const Shape& full,
                         const float* data, const optim::StateRange& r = {}) {
    if (slice.count == 0) return;
    checkpoint::Chunk piece{slice, name, full, engine.device().is_cpu() ? data : nullptr, {}};
    if (!piece.data)
      piece.read = [&engine, staging, data, r](std::int64_t begin, std::int64_t n) {
        auto* const host = reinterpret_cast<float*>(staging.get());
        const device::AnyStream stream = engine.device().stream();
        if (data)
          device::download(stream, host, data + begin, n * 4);
        else
          engine.optimizer().get_weights(stream, engine.flat(), r, begin, n, host);
        return host;
      };
    pieces.push_back(std::move(piece));
  };
  if (!weights_are_state(engine))
    for (const nn::PartSlice& p : parameters.slices())
      if (parameters.first_of_copies(p.parameter, comm::kWorld))
        chunk(checkpoint::slice_of(p, 0, p.elements()), "model/" + p.name, p.full, flat + p.offset);
  for (const optim::PartRange& r : engine.optimizer().shards().parts)
    if (r.counted)
      for (const State& s : states_of(engine, r)) {
        const nn::PartSlice& p = part_of(engine, r.part);
        chunk(checkpoint::slice_of(p, r.first, r.count()), s.name + p.name, p.full, s.data, r);
      }
  const comm::Mesh& mesh = engine.plan().mesh;
  if (mesh.place(mesh.layout.stage()) == 0)
    for (const optim::PartState& s : engine.optimizer().shards().part_states)
      chunk({.count = s.shape.elements()}, name_of(engine, s), s.shape,
            static_cast<const float*>(engine.flat().state) + s.offset);
  return pieces;
}

std::vector<ReplicatedTensor> replicated_tensors(const Engine& engine) {
  const nn::ParameterSet& parameters = engine.model().parameters();
  std::vector<ReplicatedTensor> all;
  const auto element = size_of(engine.plan().dtype);
  for (const nn::PartSlice& p : parameters.slices()) {
    if (weights_are_state(engine)) break;  // copies of it, made anew in each step
    const auto* at = static_cast<const std::byte*>(engine.flat().parameters) + p.offset * element;
    all.push_back({p.name,
                   parameters.spec(p.parameter).copies(),
                   {{at, static_cast<std::size_t>(p.elements() * element)}}});
  }
  const optim::ShardLayout& shards = engine.optimizer().shards();
  std::map<std::string, std::size_t> place;  // in `all`
  for (const nn::PartSlice& p : parameters.slices()) {
    const comm::AxisSet copies = copies_of_state(engine, p.parameter);
    if (engine.plan().mesh.layout.size(copies) == 1) continue;
    optim::StateRange any;
    any.group = optim::group_of(*engine.optimizer().options().rule, parameters.spec(p.parameter));
    for (const State& s : states_of(engine, any)) {
      place[s.name + p.name] = all.size();
      all.push_back({s.name + p.name, copies, {}});
    }
  }
  for (const optim::PartRange& r : shards.parts)
    for (const State& s : states_of(engine, r))
      if (const auto found = place.find(s.name + part_of(engine, r.part).name);
          found != place.end()) {
        auto& memory = all[found->second].memory;
        if (s.data)
          memory.push_back(std::as_bytes(std::span(s.data, static_cast<std::size_t>(r.count()))));
        else
          std::ranges::copy(engine.optimizer().weight_memory(engine.flat(), r),
                            std::back_inserter(memory));
      }
  for (const optim::PartState& s : shards.part_states)
    all.push_back(
        {name_of(engine, s),
         engine.plan().mesh.layout.stage(),
         {std::as_bytes(std::span(static_cast<const float*>(engine.flat().state) + s.offset,
                                  static_cast<std::size_t>(s.shape.elements())))}});
  return all;
}

void restore(const checkpoint::CheckpointReader& reader, const std::string& path, Engine& engine,
             bool optimizer) {
  optimizer &= !checkpoint::is_import(reader);
  const nn::ParameterSet& parameters = engine.model().parameters();
  engine.set_weights(checkpoint::weights_of(reader, path, parameters));
  if (optimizer) engine.updates() = reader.manifest().updates;
  const bool average = checkpoint::has_average(reader, parameters);
  const auto read = [&](const std::string& name, const Shape& shape, const checkpoint::Slice& slice,
                        float* data) {
    check_state(reader, path, name, shape);
    std::vector<float> host(engine.device().is_cpu() ? 0 : static_cast<std::size_t>(slice.count));
    reader.read(name, slice, host.empty() ? data : host.data());
    if (!host.empty()) device::upload(engine.device().stream(), data, host.data(), slice.count * 4);
  };
  for (const optim::PartRange& r : engine.optimizer().shards().parts) {
    const nn::PartSlice& p = part_of(engine, r.part);
    for (const State& s : states_of(engine, r))
      if (s.name == "ema/" ? average : optimizer && s.name != "model/")
        read(s.name + p.name, p.full, checkpoint::slice_of(p, r.first, r.count()), s.data);
  }
  if (!optimizer) return;
  for (const optim::PartState& s : engine.optimizer().shards().part_states)
    read(name_of(engine, s), s.shape, {.count = s.shape.elements()},
         static_cast<float*>(engine.flat().state) + s.offset);
}

void check_restorable(const checkpoint::CheckpointReader& reader, const std::string& path,
                      const nn::ParameterSet& whole, const optim::Rule& rule) {
  checkpoint::weights_of(reader, path, whole);
  if (checkpoint::is_import(reader)) return;
  const optim::ShardLayout shards = optim::shard_layout(whole, comm::single_mesh(), rule, 0, {});
  const auto part = [&](int i) { return whole.slices()[static_cast<std::size_t>(i)]; };
  for (const optim::PartRange& r : shards.parts)
    for (const optim::ShardLayout::ElementState& s : shards.states)
      if (s.group == r.group)
        check_state(reader, path, s.name + "/" + part(r.part).name, part(r.part).full);
  for (const optim::PartState& s : shards.part_states)
    check_state(reader, path, s.name + "/" + part(s.part).name, s.shape);
}

}  // namespace tfm::train
