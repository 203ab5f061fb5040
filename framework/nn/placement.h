#pragma once
// Where the elements of a parameter and of its gradient are, along each axis of the grid of ranks:
// the words of PyTorch's DTensor. What follows from it: shapes and initial values of a rank's
// share, over which axes a gradient is summed, who counts it in the norm, what a checkpoint holds.
#include "comm/axis.h"

namespace tfm::nn {

enum class Placement : std::uint8_t {
  replicate,      // every rank has all of them
  shard_rows,     // equal shares; rows are padded to them
  shard_columns,  // equal shares
  partial,        // each rank has a term of their sum
  one_rank,       // one rank has all of them, the others nothing
};
using Placements = comm::PerAxis<Placement>;

// Axes along which batches are sharded: ranks have sequences of their own.
inline constexpr comm::AxisSet kBatchAxes = comm::kData;
// Axes along which sequences are sharded: ranks have positions of their own.
inline constexpr comm::AxisSet kSequenceAxes = comm::Axis::context;
// Along these ranks have tokens of their own, and so terms of gradients.
inline constexpr comm::AxisSet kTokenAxes = kBatchAxes | kSequenceAxes;
// Axes along which blocks are shared out: the stages of a pipeline.
inline constexpr comm::AxisSet kStageAxes = comm::Axis::pipeline;
// Along these ranks have terms of a loss: the last stage of a pipeline has all of them.
inline comm::AxisSet loss_axes(const comm::Layout& layout) {
  return layout.group_of(kTokenAxes | kStageAxes);
}
// Axes along which layers are sharded: ranks share out heads, ffn columns and the vocabulary.
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
