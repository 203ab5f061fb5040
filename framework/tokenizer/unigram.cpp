#include "tokenizer/unigram.h"

#include <algorithm>

#include "core/error.h"
#include "text/unicode.h"

namespace tfm::tokenizer {

UnigramModel::UnigramModel(const std::vector<UnigramPiece>& pieces, const UnigramOptions& options)
    : options_(options) {
  std::vector<std::pair<std::string_view, std::int32_t>> keys;
  keys.reserve(pieces.size());
  for (const UnigramPiece& piece : pieces) {
    keys.emplace_back(piece.text, static_cast<std::int32_t>(ids_.size()));
    ids_.push_back(piece.id);
    scores_.push_back(piece.score);
  }
  trie_ = text::Trie(std::move(keys));
}

void UnigramModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  options_.single_precision ? viterbi<float>(word, ids) : viterbi<double>(word, ids);
}

template <class Sum>
void UnigramModel::viterbi(std::string_view word, std::vector<std::int32_t>& ids) const {
  struct Best {  // the best split of the bytes before a place: its score, its last piece and where
                 // that begins
    Sum score = 0;
    std::int32_t id = -1;
    std::uint32_t begin = ~0u;
  };
  TFM_CHECK(word.size() < ~0u, "the text is longer than 4 GiB");
  const Sum unknown_score = static_cast<Sum>(options_.lowest_score) - Sum{10};
  std::vector<Best> best(word.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, double piece_score, std::int32_t id) {
    Best& b = best[end];
    const Sum score = static_cast<Sum>(piece_score + best[begin].score);
    if (b.begin == ~0u || score > b.score) b = {score, id, static_cast<std::uint32_t>(begin)};
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t next = at + text::first_code_point(word.substr(at)).bytes;
    bool single = false;
    text::Trie::Node node = text::Trie::root;
    for (std::size_t end = at; end < word.size();) {
      if ((node = trie_.child(node, word[end++])) == text::Trie::none) break;
      const std::int32_t piece = trie_.value(node);
      if (piece == text::Trie::no_value) continue;
      offer(at, end, scores_[piece], ids_[piece]);
      single |= end == next;
    }
    if (!single) offer(at, next, unknown_score, options_.unknown);
    at = next;
  }
  const std::size_t before = ids.size();
  std::vector<std::int32_t> run;
  for (std::size_t end = word.size(); end > 0;) {  // backwards; reversed at the end
    std::size_t begin = best[end].begin;
    if (best[end].id != options_.unknown) {
      ids.push_back(best[end].id);
    } else {
      while (begin > 0 && best[begin].id == options_.unknown) begin = best[begin].begin;
      run.clear();
      append_unknown(word.substr(begin, end - begin), run);
      ids.insert(ids.end(), run.rbegin(), run.rend());
    }
    end = begin;
  }
  std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
}

void UnigramModel::append_unknown(std::string_view run, std::vector<std::int32_t>& ids) const {
  const auto byte_id = [this](char c) { return options_.byte_ids[static_cast<unsigned char>(c)]; };
  if (const std::int32_t piece = trie_.find(run); piece != text::Trie::no_value) {
    ids.push_back(ids_[piece]);
  } else if (std::all_of(run.begin(), run.end(), [&](char c) { return byte_id(c) >= 0; })) {
    for (char c : run) ids.push_back(byte_id(c));
  } else if (options_.run_id) {
    ids.push_back(options_.run_id(run));
  } else if (options_.unknown >= 0) {
    ids.push_back(options_.unknown);
  } else {
    throw Error(ExitCode::input,
                "the text contains a character that is not in the vocabulary, and the tokenizer "
                "has no unknown token");
  }
}

}  // namespace tfm::tokenizer
