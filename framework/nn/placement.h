#pragma once
// Placement of a parameter and of its gradient along each axis of the grid of ranks, in the terms
// of PyTorch's DTensor. It determines the shape and initial values of a rank's share, the axes over
// which a gradient is summed, the rank that counts it in the norm, and the content of checkpoints.
#include "comm/axis.h"

namespace tfm::nn {

enum class Placement : std::uint8_t {
  replicate,      // every rank holds all elements
  shard_rows,     // equal shares of the rows, padded to a multiple of the number of ranks
  shard_columns,  // equal shares of the columns
  shard_parts,    // equal numbers of the parts, in their order
  partial,        // the value is the sum of the ranks' terms
  one_rank,       // one rank holds all elements, the others none
};
using Placements = comm::PerAxis<Placement>;

// Axes along which batches are sharded: each rank has its own sequences.
inline constexpr comm::AxisSet kBatchAxes = comm::kData;
// Axes along which sequences are sharded: each rank has its own positions.
inline constexpr comm::AxisSet kSequenceAxes = comm::Axis::context;
// Axes along which each rank has its own tokens, and thus a term of every gradient.
inline constexpr comm::AxisSet kTokenAxes = kBatchAxes | kSequenceAxes;
// Axes along which blocks are distributed: pipeline stages.
inline constexpr comm::AxisSet kStageAxes = comm::Axis::pipeline;
// Axes over which terms of a loss are summed; only the last pipeline stage has any.
inline comm::AxisSet loss_axes(const comm::Layout& layout) {
  return layout.group_of(kTokenAxes | kStageAxes);
}
// Axes along which experts are shared out.
inline constexpr comm::AxisSet kExpertAxes = comm::Axis::expert;
// Axes along which layers are sharded: heads, ffn columns and the vocabulary.
inline constexpr comm::AxisSet kModelAxes = comm::Axis::tensor;

constexpr Placements placed(Placement p, comm::AxisSet axes) {
  Placements all{};
  for (const comm::Axis a : comm::kAxes)
    if (axes.contains(a)) all[a] = p;
  return all;
}
constexpr comm::AxisSet axes_with(const Placements& placements, Placement p) {
  comm::AxisSet axes;
  for (const comm::Axis a : comm::kAxes)
    if (placements[a] == p) axes = axes | a;
  return axes;
}

}  // namespace tfm::nn
