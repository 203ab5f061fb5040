#include "models/parts.h"

#include <algorithm>
#include <cmath>

#include "models/layer_parts.h"
#include "nn/positions.h"

namespace tfm::models {
nn::ParameterSet parameter_set(const config::Config& c, const comm::Mesh& mesh) {
  const bool by_layers = c.parallel.zero > 1 || c.numerics == config::Numerics::deterministic;
  return {mesh.layout, mesh.rank(),
          by_layers ? std::max<std::int64_t>(1, c.parallel.bucket_bytes / 4) : 0};
}

Vocabulary::Vocabulary(nn::Context& c, const std::string& name, std::int64_t size,
                       std::int64_t width, double std, std::int64_t padding_idx)
    : parameters_(&c.parameters),
      index_(c.parameters.add({.parts = {{name, size}},
                               .cols = width,
                               .placement = nn::placed(nn::Placement::shard_rows, nn::kModelAxes),
                               .init = {nn::Init::Kind::normal, std},
                               .decay = true})),
      size_(size),
      padding_idx_(padding_idx) {
  const std::int64_t share = ceil_div(size, c.shards);
  begin_ = std::min(size, share * c.shard);
  end_ = std::min(size, share * (c.shard + 1));
}

graph::Value Vocabulary::partial(graph::Recorder& r, graph::Value ids, double scale) const {
  return ops::embedding(r, ids, weight(r), {begin_, end_, scale, padding_idx_});
}

Embeddings::Embeddings(nn::Context& c, const config::ModelConfig& m, const std::string& prefix)
    : context_(c), config_(m), prefix_(prefix) {
  c.parameters.next_layer();  // a tied token table is used again by the head
  if (m.position == config::Position::learned)
    position_ = c.parameters.add(
        {.parts = {{prefix + "position.weight", m.max_seq_len + m.position_offset}},
         .cols = m.d_model,
         .init = {nn::Init::Kind::normal, c.init_std},
         .partial = c.partial_where(c.split_rows())});
  if (m.type_vocab_size > 0)
    types_.emplace(c, prefix + "segment.weight", m.type_vocab_size, m.d_model, c.init_std);
  if (m.embedding_norm) norm_.emplace(c, prefix + "embedding_norm", m.d_model, norm_of(m));
}

double Embeddings::token_scale(DType dtype) const {
  if (config_.scale_embeddings == config::ScaleEmbeddings::no) return 1;
  const double scale = std::sqrt(static_cast<double>(config_.d_model));
  if (config_.scale_embeddings == config::ScaleEmbeddings::yes) return scale;
  return with_float(dtype, [&]<class T>() {
    return static_cast<double>(static_cast<Accum<T>>(T(static_cast<Accum<T>>(scale))));
  });
}

bool Embeddings::has_table() const {
  return position_ >= 0 || config_.position == config::Position::sinusoidal;
}

Embeddings::Inputs Embeddings::inputs(nn::Recording& rec, bool here) const {
  Inputs in{rec.input(Field::ids, here)};
  if (types_) in.types = rec.input(Field::token_types, here);
  if (rec.shape.restarts && has_table()) in.positions = rec.input(Field::positions, here);
  return in;
}

graph::Value Embeddings::add_positions(nn::Recording& rec, graph::Value x, graph::Value positions,
                                       const ops::ActivationRegion& place) const {
  if (!has_table()) return x;
  graph::Recorder& r = *rec.tape;
  const std::int64_t first = config_.position_offset;
  graph::Value table;
  if (position_ >= 0) {
    table = context_.parameters.record(r, position_);
  } else {
    const auto kind = config_.sinusoid == config::Sinusoid::interleaved
                          ? nn::SinusoidKind::interleaved
                      : config_.sinusoid == config::Sinusoid::halves ? nn::SinusoidKind::halves
                                                                     : nn::SinusoidKind::last;
    const std::int64_t rows = first + std::max(place.rows.sequence_length, rec.shape.capacity);
    table =
        r.constant(prefix_ + "sinusoidal", {rows, config_.d_model}, r.dtype(), [kind](Tensor t) {
          with_float(t.dtype, [&]<class T>() {
            nn::sinusoidal_table(t.shape[0], t.shape[1], kind, t.ptr<T>());
          });
        });
  }
  if (!positions) return ops::add_position(r, x, table, place, first);
  const graph::Value rows = ops::embedding(r, positions, table,
                                           {.vocab_begin = -first,
                                            .vocab_end = r.info(table).shape[0] - first,
                                            .first_row = place.row_offset,
                                            .rows = r.info(x).shape[0]});
  return ops::dropout_add(r, rows, x, 0, place);
}

graph::Value Embeddings::operator()(nn::Recording& rec, const Vocabulary& tokens, const Inputs& in,
                                    const Rows& rows, bool training) const {
  const graph::Value x = record(rec, tokens, in, rows, training);
  nn::name_outside(*rec.tape, context_, "embeddings", x, rows);
  return x;
}

graph::Value Embeddings::record(nn::Recording& rec, const Vocabulary& tokens, const Inputs& in,
                                const Rows& rows, bool training) const {
  graph::Recorder& r = *rec.tape;
  const graph::Recorder::Named scope(r, "embedding", comm::Purpose::embedding);
  const ops::ActivationRegion place = nn::outside_tp_region(context_, rows, config_.d_model);
  graph::Value x = tokens.partial(r, in.ids, token_scale(r.dtype()));
  if (in.types)
    x = ops::dropout_add(r, types_->partial(r, in.types, 1.0), x, 0,
                         nn::inside_tp_region(context_, rows, config_.d_model));
  x = add_positions(rec, nn::leave_tp_region(r, context_, x), in.positions, place);
  if (norm_) x = (*norm_)(r, x);
  const double p = training ? config_.dropout.embedding : 0;
  return p > 0 ? ops::dropout_add(r, x, {}, p, place) : x;
}

}  // namespace tfm::models
