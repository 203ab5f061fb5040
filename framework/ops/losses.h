#pragma once
// The terms of the loss that heads compute; those of routers are in ops/experts.h.
#include "graph/recorder.h"

namespace tfm::ops {

// Loss (1) f64, summed over the rows whose label (N) int32 is >= 0, from hidden states x and the
// output embedding `weight`. Computed in chunks of rows, so that at most chunk_rows x V logits
// exist. In training, the gradient overwrites the logits and is multiplied by x and weight at once.
struct CrossEntropyOptions {
  std::int64_t vocab_size = 0, vocab_begin = 0, vocab_end = 0;
  int shards = 1;  // ranks of the tensor axis, among which the vocabulary is split
  double smoothing = 0;
  graph::Value class_weights = {};  // (V) f64, of the losses of each label; absent: all 1
  double scale = 1;                 // multiplies the logits before the bias is added
  double softcap = 0;               // of the logits: softcap * tanh(logit / softcap); 0: none
  int objective = 0;                // index into StepNumbers::gradient_scale
  double labelled = 1;              // expected fraction of rows with a label, for predictions
  std::int64_t chunk_rows = 0;      // 0: chosen from the sizes
  // Forward only, without smoothing: a second output (1) f64 counts the rows whose label has the
  // highest logit (the lowest id among equal ones).
  bool accuracy = false;
};
graph::Value linear_cross_entropy(graph::Recorder& r, graph::Value x, graph::Value weight,
                                  graph::Value bias, graph::Value labels,
                                  CrossEntropyOptions options);

// Sum (1) f64 of the squares of x (N, 1) - numbers (N), the bits of floats, of which NaN is
// ignored.
struct SquaredErrorOptions {
  int objective = 0;           // index into StepNumbers::gradient_scale
  bool makes_gradient = true;  // else the gradient of x is 0: another rank has it
};
graph::Value squared_error(graph::Recorder& r, graph::Value x, graph::Value numbers,
                           const SquaredErrorOptions& options);

// Loss (1) f64 of queries that tell their document from those of others (van den Oord et al. 2018;
// in-batch negatives, Henderson et al. 2017). Rows of x (N, C) are `texts` at a time a query, its
// document, and perhaps a negative, which is a document, too; of one alone, it is both. The
// logits of a query are `scale` times its products with the documents of its group; labels (N)
// int32 have at a query the index of its document among these, < 0 elsewhere and where the row is
// ignored.
struct ContrastiveOptions {
  std::int64_t texts = 1;
  // Consecutive pairs whose documents are compared; 0: all rows. With several ranks all rows of
  // all of them are one group.
  std::int64_t group = 0;
  double scale = 1;
  comm::AxisSet axes = {};  // of the ranks whose documents are gathered
  int ranks = 1;
  int objective = 0;           // index into StepNumbers::gradient_scale
  bool makes_gradient = true;  // else the gradient of x is 0: another rank has it
  // Forward only: a second output (1) f64 counts the queries whose document has the highest logit.
  bool accuracy = false;
};
graph::Value contrastive(graph::Recorder& r, graph::Value x, graph::Value labels,
                         const ContrastiveOptions& options);

}  // namespace tfm::ops
