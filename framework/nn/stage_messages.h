#pragma once
// Tags of messages between pipeline stages.

namespace tfm::nn {

// Tags of messages between two pipeline ranks. tag_of_value: value i that chunk `chunk` of the
// sender passes to the next stage; its gradient returns with the next tag. tag_of_parameter: the
// gradient of borrowed parameter i; its weights are sent with the next tag.
constexpr int kValuesOfStage = 4, kMostChunks = 64;
constexpr int tag_of_value(int chunk, int i) { return 2 * (kValuesOfStage * chunk + i); }
constexpr int tag_of_parameter(int i) { return 2 * (kValuesOfStage * kMostChunks + i); }

}  // namespace tfm::nn
