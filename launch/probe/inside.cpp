#include "launch/probe/inside.h"

#include <algorithm>
#include <set>

#include "ops/attention_map.h"

namespace tfm::launch {
namespace {

const graph::NamedValue* find(const nn::Recording& rec, const Activation& a) {
  const auto& named = rec.tape->named();
  const auto found = std::ranges::find(named, a.name, &graph::NamedValue::name);
  return found == named.end() ? nullptr : &*found;
}
const graph::Node* find(const nn::Recording& rec, const AttentionMap& m) {
  const auto& nodes = rec.tape->nodes();
  const auto found = std::ranges::find(nodes, m.node, &graph::Node::name);
  return found == nodes.end() ? nullptr : &*found;
}

// The loss, and what is needed of this stage.
std::vector<graph::Value> kept(const nn::Recording& rec, const Asked& asked,
                               const std::vector<Patch>& patches) {
  std::vector<graph::Value> all = rec.outputs();
  std::set<int> there;
  const auto keep = [&](graph::Value v) {
    if (v && there.insert(v.id).second) all.push_back(v);
  };
  for (const Activation& a : asked.activations)
    if (const graph::NamedValue* const named = find(rec, a)) keep(named->value);
  for (const Patch& p : patches)
    if (const graph::NamedValue* const named = find(rec, p.of)) keep(named->value);
  for (const AttentionMap& m : asked.maps)
    if (const graph::Node* const node = find(rec, m)) {
      const auto attention = ops::attention_node(*node);
      keep(attention->q), keep(attention->kv);
    }
  return all;
}

inference::ForwardPass pass_of(const train::Engine& engine, const Asked& asked,
                               const std::vector<Patch>& patches) {
  nn::BatchShape shape = engine.plan().largest().shape;
  shape.expert_bound = 0;  // room for whatever rows there are
  nn::Recording rec = engine.model().record_loss(shape, DType::f32, true);  // with routers' terms
  const std::vector<graph::Value> outputs = kept(rec, asked, patches);
  return {std::move(rec), outputs};
}

OutputTensor zeros(const std::string& name, const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t n : shape) elements *= n;
  return {name, shape, std::vector<float>(static_cast<std::size_t>(elements))};
}

}  // namespace

InsidePass::InsidePass(train::Engine& engine, const ProbeBatch& given, const ProbeBatch& padded,
                       Asked asked, std::vector<Patch> patches)
    : engine_(engine),
      given_(given),
      asked_(std::move(asked)),
      patches_(std::move(patches)),
      pass_(pass_of(engine, asked_, patches_)),
      arena_(engine.device().allocate(pass_.bytes()), pass_.bytes()),
      loader_(padded,
              {data::DataLoader::rank_shape(pass_.recording(), pass_.recording().shape.sequences)},
              data::LoaderOptions::of(engine.plan().mesh, 1)) {
  const nn::Recording& rec = pass_.recording();
  std::vector<Tensor> leaves;
  for (const graph::ValueInfo& v : rec.tape->values())
    leaves.push_back(v.role == graph::Role::parameter
                         ? engine.optimizer().parameter(engine.flat(), v.parameter)
                     : v.role == graph::Role::activation
                         ? Tensor{}
                         : Tensor{arena_.take("leaves", v.bytes()), v.dtype, v.shape});
  pass_.bind(engine.device().stream(), std::move(leaves),
             arena_.take("activations", pass_.program().arena_bytes()));
  for (const Patch& p : patches_) {
    const graph::NamedValue* const named = find(rec, p.of);
    if (!named) continue;
    const graph::Instruction* last = nullptr;  // step of the node that makes the value
    for (const graph::Instruction& step : pass_.program().instructions())
      if (step.node == rec.tape->info(named->value).producer) last = &step;
    patched_after_[last].push_back(&p);
  }
}

double InsidePass::run() {
  const Batch& batch = loader_.load(0);
  first_ = batch.first, sequences_ = batch.sequences;
  const comm::RankContext context = engine_.rank_context();
  inference::Totals totals = pass_.totals(
      {.stream = engine_.device().stream(), .mesh = &context.tensors, .hooks = this}, batch.fields);
  totals.all_reduce(context.mesh, nn::loss_axes(context.mesh.layout));
  return totals.mean();
}

std::vector<OutputTensor> InsidePass::asked() const {
  std::vector<OutputTensor> all;
  for (const Activation& a : asked_.activations) all.push_back(whole(a));
  for (const AttentionMap& m : asked_.maps) all.push_back(whole(m));
  for (OutputTensor& o : all)
    engine_.plan().mesh.world().all_reduce({o.data.data(), DType::f32, {std::ssize(o.data)}});
  return all;
}

void InsidePass::after(const graph::Instruction& step) {
  if (const auto found = patched_after_.find(&step); found != patched_after_.end())
    for (const Patch* const p : found->second) apply(*p);
}

// Rows that are none of the batch's keep what was computed.
void InsidePass::apply(const Patch& p) const {
  const graph::NamedValue* const named = find(pass_.recording(), p.of);
  const graph::Part& part = named->part;
  const Tensor to = tensor(named->value);
  std::vector<float> mine = host(named->value);
  each_place(part.rows, part.first_row, to.shape[0], p.of.length, [&](const Place& at) {
    std::copy_n(
        p.data.begin() + (at.sequence * p.of.length + at.position) * p.of.width + part.first_column,
        part.columns, mine.begin() + at.row * to.shape[1] + part.within);
  });
  device::upload(engine_.device().stream(), to.data, mine.data(), to.bytes());
}

template <class F>
void InsidePass::each_place(const Rows& rows, std::int64_t first, std::int64_t count,
                            std::int64_t length, F&& f) const {
  each_chunk(rows, first, count, [&](const ChunkRows& c) {
    for (std::int64_t i = 0; i < c.count; ++i) {
      const std::int64_t sequence = (c.offset + i) / rows.chunk_length(),
                         position = c.start + (c.offset + i) % rows.chunk_length();
      if (sequence < sequences_ && position < length)
        f(Place{c.first + i, first_ + sequence, position});
    }
  });
}

Tensor InsidePass::tensor(graph::Value v) const {
  const bool made = pass_.recording().tape->info(v).role == graph::Role::activation;
  return made ? pass_.output(v) : pass_.leaf(v);
}

template <class T>
std::vector<T> InsidePass::host(graph::Value v) const {
  if (!v) return {};
  const Tensor t = tensor(v);
  TFM_CHECK(t.dtype == dtype_of<T>, "a tensor of another type than is read");
  std::vector<T> all(static_cast<std::size_t>(t.elements()));
  device::download(engine_.device().stream(), all.data(), t.data, t.bytes());
  return all;
}

// Zero where other ranks have it.
OutputTensor InsidePass::whole(const Activation& a) const {
  OutputTensor o = zeros(a.name, {given_.shape.sequences, a.length, a.width});
  const graph::NamedValue* const named = find(pass_.recording(), a);
  if (!named) return o;
  const graph::Part& part = named->part;
  const Shape shape = tensor(named->value).shape;
  const bool on_each = part.columns == part.all_columns && shape[0] == part.rows.tokens();
  if (on_each && engine_.plan().mesh.place(nn::kModelAxes) > 0) return o;
  const std::vector<float> mine = host(named->value);
  each_place(part.rows, part.first_row, shape[0], a.length, [&](const Place& p) {
    std::copy_n(
        mine.begin() + p.row * shape[1] + part.within, part.columns,
        o.data.begin() + (p.sequence * a.length + p.position) * a.width + part.first_column);
  });
  return o;
}

OutputTensor InsidePass::whole(const AttentionMap& m) const {
  OutputTensor o = zeros(m.name, {given_.shape.sequences, std::ssize(m.heads), m.queries, m.keys});
  if (const graph::Node* const node = find(pass_.recording(), m)) add_rows(m, *node, o);
  return o;
}

// Of this rank's heads, for whole sequences (B S, KV D). Collective along kSequenceAxes.
std::vector<float> InsidePass::keys_of(const graph::Node& node) const {
  const auto attention = ops::attention_node(node);
  const ops::AttentionOptions& o = *attention->options;
  const graph::Value from = attention->kv ? attention->kv : attention->q;
  const std::int64_t stride = pass_.recording().tape->info(from).shape[1],
                     width = o.kv_heads * o.head_size;
  const std::vector<float> mine = host(from);
  const float* const first = mine.data() + (attention->kv ? 0 : o.q_width());
  std::vector<float> all(static_cast<std::size_t>(attention->batch * o.keys * width));
  const Rows rows{attention->batch, o.keys, o.share};
  for (std::int64_t b = 0; b < attention->batch; ++b)
    each_row(rows, b, 0, o.keys, [&](std::int64_t row, std::int64_t s) {
      std::copy_n(first + row * stride, width, all.begin() + (b * o.keys + s) * width);
    });
  if (o.share.ranks > 1)
    engine_.plan()
        .mesh.group(nn::kSequenceAxes)
        .all_reduce({all.data(), DType::f32, {std::ssize(all)}});
  return all;
}

void InsidePass::add_rows(const AttentionMap& m, const graph::Node& node, OutputTensor& to) const {
  const auto attention = ops::attention_node(node);
  const ops::AttentionOptions& o = *attention->options;
  const std::vector<float> q = host(attention->q), k = keys_of(node),
                           bias = host(attention->relative_bias), sinks = host(attention->sinks);
  const auto q_segments = host<std::int32_t>(attention->q_segments),
             k_segments = host<std::int32_t>(attention->k_segments),
             prefixes = host<std::int32_t>(attention->prefixes);
  const auto given = [](const auto& values) { return values.empty() ? nullptr : values.data(); };
  const ops::AttentionOperands in{.q = q.data(),
                                  .q_stride = pass_.recording().tape->info(attention->q).shape[1],
                                  .k = k.data(),
                                  .q_segments = given(q_segments),
                                  .k_segments = given(k_segments),
                                  .prefixes = given(prefixes),
                                  .relative_bias = given(bias),
                                  .buckets = std::ssize(bias) / o.heads,
                                  .sinks = given(sinks)};
  ops::attention_map(
      *attention, in,
      [&](std::int64_t b, std::int64_t h, std::int64_t t, std::span<const float> weights) {
        const auto head = std::ranges::find(m.heads, o.head_offset + h);
        if (head == m.heads.end() || b >= sequences_ || t >= m.queries) return;
        const std::int64_t row =
            ((first_ + b) * std::ssize(m.heads) + (head - m.heads.begin())) * m.queries + t;
        std::copy_n(weights.begin(), m.keys, to.data.begin() + row * m.keys);
      });
}

}  // namespace tfm::launch
