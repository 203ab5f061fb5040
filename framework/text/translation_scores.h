#pragma once
// Scores of translations against one reference each, over whole files. Both equal sacrebleu's with
// its defaults.
#include <span>
#include <string>

namespace tfm::text {

// BLEU in [0, 100] (Papineni et al. 2002): the geometric mean of the precisions of 1- to 4-grams,
// times a penalty where the hypotheses are shorter than the references. Words are those of the
// mteval-13a script, case counts; the k-th n-gram order without a match has precision 1 / (2^k
// n-grams) (Chen and Cherry 2014, method 3). As many hypotheses as references.
double corpus_bleu(std::span<const std::string> hypotheses,
                   std::span<const std::string> references);

// chrF2 in [0, 100] (Popović 2015): F-score, recall counting twice, of the mean precision and
// recall of 1- to 6-grams of characters without whitespace. Orders without n-grams on a side are
// left out.
double corpus_chrf(std::span<const std::string> hypotheses,
                   std::span<const std::string> references);

}  // namespace tfm::text
