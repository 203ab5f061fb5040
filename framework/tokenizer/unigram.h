#pragma once
// The unigram language model (Kudo, "Subword regularization", 2018): of all splits of a word into
// pieces, the one with the largest sum of scores. A code point that is no piece scores the lowest
// score - 10 and is unknown.
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "text/trie.h"
#include "tokenizer/token_model.h"

namespace tfm::tokenizer {

struct UnigramPiece {
  std::string text;
  std::int32_t id;
  double score;
};

struct UnigramOptions {
  double lowest_score = 0;
  std::int32_t unknown = -1;  // -1: unknown code points are Error(input)
  // A run of unknown code points becomes the tokens of its bytes if all of them exist (-1: no
  // token). Otherwise run_id(run), if set; `unknown` is then an id of no piece, such as -1.
  // Otherwise one `unknown`.
  std::array<std::int32_t, 256> byte_ids;
  std::function<std::int32_t(std::string_view run)> run_id;
  // Sums are rounded to fp32, as in SentencePiece; otherwise they are fp64, as in Hugging Face.
  bool single_precision = false;
};

class UnigramModel final : public TokenModel {
 public:
  UnigramModel(const std::vector<UnigramPiece>& pieces, const UnigramOptions& options);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  template <class Sum>
  void viterbi(std::string_view word, std::vector<std::int32_t>& ids) const;
  void append_unknown(std::string_view run, std::vector<std::int32_t>& ids) const;

  UnigramOptions options_;
  text::Trie trie_;  // pieces to indices of ids_ and scores_
  std::vector<std::int32_t> ids_;
  std::vector<double> scores_;
};

}  // namespace tfm::tokenizer
