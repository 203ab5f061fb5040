#pragma once
// Scores of predicted labels and numbers. Classes are numbers from 0; the spans `truth` and
// `predicted` are of one size. What has no value, as a correlation with constants, is NaN.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tfm::inference {

using Classes = std::span<const std::int32_t>;

double accuracy(Classes truth, Classes predicted);
// 2 tp / (2 tp + fp + fn) of one class; 0 where that is 0 / 0.
double f1_of_class(Classes truth, Classes predicted, std::int32_t positive = 1);
// The mean over the classes that are there, in truth or predictions.
double f1_macro(Classes truth, Classes predicted);
// Matthews' correlation coefficient of any number of classes (Gorodkin 2004); 0 where truth or
// predictions are all of one class.
double matthews(Classes truth, Classes predicted);

// The linear correlation, and that of ranks, which equal values share.
double pearson(std::span<const double> x, std::span<const double> y);
double spearman(std::span<const double> x, std::span<const double> y);

// Whether classes are those of entities: O and PREFIX-TYPE, the prefix one of B, I, E and S, with a
// type at least.
bool names_entities(std::span<const std::string> classes);
// F1 of entities, which count where both ends and the type are right, as of the CoNLL tasks (Tjong
// Kim Sang and De Meulder 2003): an entity also begins with an I- behind another type or none.
// `names`: of the classes; `begins`: the index of the first word of each text, ascending.
double f1_of_entities(Classes truth, Classes predicted, std::span<const std::string> names,
                      std::span<const std::size_t> begins);

}  // namespace tfm::inference
