#include "models/head.h"

namespace tfm::models {

std::map<std::string_view, MakeHead>& heads() {
  static std::map<std::string_view, MakeHead> all{{"lm", make_lm_head},
                                                  {"classify", make_classifier},
                                                  {"tag", make_classifier},
                                                  {"regress", make_regression},
                                                  {"embed", make_embedding}};
  return all;
}

void add_head(std::string_view type, MakeHead make) {
  TFM_CHECK(heads().emplace(type, make).second, "two heads are " + std::string(type));
  config::head_types().push_back(type);
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
