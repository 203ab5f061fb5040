#pragma once
// Messages between the stages of a pipeline.

namespace tfm::nn {

// Tags of the messages between two ranks of a pipeline: a value that passes from a stage to the
// next one, the `i`-th of those of chunk `chunk` of the sender, and under the next tag its
// gradient; the gradient of a borrowed parameter, and under the next tag its weights.
constexpr int kValuesOfStage = 4, kMostChunks = 64;
constexpr int tag_of_value(int chunk, int i) { return 2 * (kValuesOfStage * chunk + i); }
constexpr int tag_of_parameter(int i) { return 2 * (kValuesOfStage * kMostChunks + i); }

}  // namespace tfm::nn
