#pragma once
// The unigram language model (Kudo, "Subword regularization", 2018): of all ways to split a word
// into pieces, the one whose scores have the largest sum. A code point that is no piece costs the
// lowest score - 10 and is unknown.
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
  std::int32_t unknown = -1;  // -1: text with unknown code points is Error(input)
  // A run of unknown code points becomes the tokens of its bytes where all of them are there; -1:
  // no token. Else what `run_id` says, where it is set (`unknown` is then an id of no piece, such
  // as -1), else one `unknown`.
  std::array<std::int32_t, 256> byte_ids;
  std::function<std::int32_t(std::string_view run)> run_id;
  bool single_precision =
      false;  // sums are rounded to fp32 as SentencePiece does, else fp64 as Hugging Face does
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
  text::Trie trie_;  // to indices of ids_ and scores_
  std::vector<std::int32_t> ids_;
  std::vector<double> scores_;
};

}  // namespace tfm::tokenizer
