#include "models/head.h"

namespace tfm::models {

std::map<std::string, MakeHead>& heads() {
  static std::map<std::string, MakeHead> all{{"lm", make_lm_head}, {"classify", make_classifier}};
  return all;
}

void record_cross_entropy(nn::Recording& rec, const config::HeadConfig& head, graph::Value x,
                          graph::Value weight, graph::Value bias, graph::Value labels, Field field,
                          bool training, ops::CrossEntropyOptions options) {
  TFM_CHECK(rec.losses.size() < kMostObjectives, "a model has too many losses");
  options.objective = static_cast<int>(rec.losses.size());
  options.accuracy = !training;
  const graph::Value loss = ops::linear_cross_entropy(*rec.tape, x, weight, bias, labels, options);
  rec.losses.push_back({.name = head.name,
                        .weight = head.weight,
                        .value = loss,
                        .labels = field,
                        .correct = training ? graph::Value{} : graph::Value{loss.id + 1}});
}

}  // namespace tfm::models
