#pragma once
// What heads predict of labels, and how good it is.
#include <map>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "inference/loaded_model.h"

namespace tfm::inference {

struct Prediction {
  std::int64_t text = 0;       // its index in the dataset
  std::int64_t position = 0;   // of the token, for a head of type tag
  std::int32_t label = 0;      // element of the head's field
  std::vector<double> scores;  // logits of the classes; of type regress one number
  std::int32_t best() const;   // the first class of those with the largest logit
  double probability(std::int32_t label) const;
};

// Of each label of the data, in order, on every rank. Collective.
std::vector<Prediction> predictions(LoadedModel& model, const config::Config& config,
                                    const config::HeadConfig& head, const data::Dataset& data);

// accuracy, f1 and mcc of classes (F1 of class 1 where there are two, else the mean of all); of tag
// accuracy and f1, of entities if the classes are named B-, I- ... and O; of regress pearson and
// spearman.
std::vector<std::pair<std::string, double>> scores_of(const config::HeadConfig& head,
                                                      const std::vector<Prediction>& all);

}  // namespace tfm::inference
