#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "io/file.h"
#include "text/unicode.h"
#include "tokenizer/bpe_vocab.h"

namespace tfm::tokenizer {
namespace {

constexpr std::size_t short_word = 64;  // symbols: below, a scan for the best pair beats a heap
constexpr std::int32_t no_rank = std::numeric_limits<std::int32_t>::max();

std::string byte_token(unsigned byte) {
  static constexpr char digits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4], digits[byte & 15u], '>'};
}

constexpr std::string_view two_metaspaces = "\xE2\x96\x81\xE2\x96\x81";

// A metaspace after another character.
bool has_inner_metaspace(std::string_view token) {
  std::size_t at = 0;
  while (token.substr(at).starts_with(metaspace)) at += metaspace.size();
  return token.find(metaspace, at) != token.npos;
}

}  // namespace

void BpeModel::MergeTable::reserve(std::size_t merges) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(2 * merges, 2));
  slots_.assign(size, Merge{});
  shift_ = 64 - std::countr_zero(size);
}

void BpeModel::MergeTable::insert(const Merge& merge) {
  std::size_t i = slot(merge.pair);
  for (; slots_[i].pair != Merge{}.pair; i = (i + 1) & (slots_.size() - 1))
    if (slots_[i].pair == merge.pair) return;
  slots_[i] = merge;
}

const BpeModel::Merge* BpeModel::MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair =
      std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  for (std::size_t i = slot(pair);; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].pair == pair) return &slots_[i];
    if (slots_[i].pair == Merge{}.pair) return nullptr;
  }
}

BpeModel::BpeModel(const VocabEntries& entries, const std::vector<BpeMerge>& merges,
                   const BpeOptions& options, const VocabEntries& letters)
    : options_(options) {
  byte_id_.fill(-1);
  read_entries(entries);
  for (const auto& [letter, id] : letters) {
    if (letters_.empty()) letters_begin_ = id;
    TFM_CHECK(id == letters_begin_ + static_cast<std::int32_t>(letters_.size()),
              "letters must have consecutive ids");
    letter_id_.emplace(text::first_code_point(letter).value, id);
    letters_.push_back(letter);
  }
  merges_.reserve(merges.size());
  for (const BpeMerge& m : merges)
    merges_.insert({std::uint64_t{static_cast<std::uint32_t>(m.left)} << 32 |
                        static_cast<std::uint32_t>(m.right),
                    m.rank, m.merged});
}

void BpeModel::read_entries(const VocabEntries& entries) {
  std::vector<std::string> kept;
  std::vector<std::pair<std::string_view, std::int32_t>> words;
  bool inner_metaspace = false, metaspace_known = false;
  kept.reserve(entries.size());
  for (const auto& [token, id] : entries) {
    if (token.empty()) continue;
    if (options_.byte_level) {
      if (auto bytes = alphabet_bytes(token)) {
        if (bytes->size() == 1) byte_id_[static_cast<unsigned char>(bytes->front())] = id;
        words.emplace_back(kept.emplace_back(std::move(*bytes)), id);
      }
      continue;
    }
    if (text::count_code_points(token) == 1)
      letter_id_.emplace(text::first_code_point(token).value, id);
    inner_metaspace |= has_inner_metaspace(token);
    // Without `unknown` what has no token is left out, and the metaspaces around it meet.
    inner_metaspace |= !options_.unknown && token.starts_with(two_metaspaces);
    metaspace_known |= token == metaspace;
    words.emplace_back(token, id);
  }
  if (options_.ignore_merges) tokens_ = text::Trie(words);
  splits_at_metaspace_ =
      !options_.byte_level && !options_.ignore_merges && metaspace_known && !inner_metaspace;
  if (!options_.byte_fallback) return;
  const std::unordered_map<std::string_view, std::int32_t> ids(entries.begin(), entries.end());
  for (unsigned byte = 0; byte < 256; ++byte)
    if (const auto found = ids.find(byte_token(byte)); found != ids.end())
      byte_id_[byte] = found->second;
}

// The symbols that a word starts as, in the order in which the library makes them: `unknown` is
// held back while it may grow, and byte tokens pass it.
template <class Sink>
void BpeModel::for_each_symbol(std::string_view word, const Sink& sink) const {
  if (options_.byte_level && !options_.unknown) {
    for (char c : word)
      if (const std::int32_t id = byte_id_[static_cast<unsigned char>(c)]; id >= 0) sink(id);
    return;
  }
  bool held = false;
  const auto unknown = [&] {
    if (!options_.unknown) return;
    if (held && !options_.fuse_unknown) sink(*options_.unknown);
    held = true;
  };
  const auto known = [&](std::int32_t id) {
    if (held) sink(*options_.unknown);
    held = false;
    sink(id);
  };
  while (!word.empty()) {
    const text::CodePoint c = options_.byte_level
                                  ? text::CodePoint{static_cast<unsigned char>(word.front()), 1}
                                  : text::first_code_point(word);
    const std::string_view bytes = word.substr(0, c.bytes);
    word.remove_prefix(c.bytes);
    const auto byte_of = [this](char b) { return byte_id_[static_cast<unsigned char>(b)]; };
    if (options_.byte_level) {
      byte_of(bytes[0]) >= 0 ? known(byte_of(bytes[0])) : unknown();
    } else if (const auto found = letter_id_.find(c.value); found != letter_id_.end()) {
      known(found->second);
    } else if (options_.byte_fallback &&
               std::all_of(bytes.begin(), bytes.end(), [&](char b) { return byte_of(b) >= 0; })) {
      for (char b : bytes) sink(byte_of(b));
    } else {
      unknown();
    }
  }
  if (held) sink(*options_.unknown);
}

void BpeModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const std::int32_t id = tokens_.find(word); id != text::Trie::no_value)
      return ids.push_back(id);
  }
  std::array<std::int32_t, short_word> few;
  std::size_t count = 0;
  if (word.size() <= short_word) {  // a byte gives at most one symbol
    for_each_symbol(word, [&](std::int32_t id) { few[count++] = id; });
    count = merge_short(few.data(), count);
    for (std::size_t i = 0; i < count; ++i) append(few[i], ids);
    return;
  }
  std::vector<std::int32_t> symbols;
  symbols.reserve(word.size());
  for_each_symbol(word, [&](std::int32_t id) { symbols.push_back(id); });
  merge_long(symbols);
  for (std::int32_t id : symbols) append(id, ids);
}

void BpeModel::encode(std::string_view word, const BpeDropout& dropout,
                      std::vector<std::int32_t>& ids) const {
  constexpr std::size_t kMostSymbols = 1024;  // the time grows with their square
  std::vector<std::int32_t> symbols;
  for_each_symbol(word, [&](std::int32_t id) { symbols.push_back(id); });
  if (symbols.size() > kMostSymbols) return encode(word, ids);
  for (;;) {
    const Merge* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge* merge = merges_.find(symbols[i], symbols[i + 1]);
      if (!merge || (best && merge->rank >= best->rank) || dropout.uniform() <= dropout.rate)
        continue;
      best = merge, at = i;
    }
    if (!best) break;
    symbols[at] = best->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  for (const std::int32_t symbol : symbols) append(symbol, ids);
}

void BpeModel::append(std::int32_t symbol, std::vector<std::int32_t>& ids) const {
  if (letters_.empty()) return ids.push_back(symbol);
  if (symbol >= letters_begin_ && options_.byte_fallback) {
    for (char b : letters_[static_cast<std::size_t>(symbol - letters_begin_)])
      ids.push_back(byte_id_[static_cast<unsigned char>(b)]);
    return;
  }
  if (symbol >= letters_begin_) symbol = options_.unknown.value_or(-1);
  const bool fused =
      options_.fuse_unknown && symbol == options_.unknown && !ids.empty() && ids.back() == symbol;
  if (symbol >= 0 && !fused) ids.push_back(symbol);
}

std::size_t BpeModel::merge_short(std::int32_t* id, std::size_t n) const {
  std::array<std::int32_t, short_word> rank, merged;  // of the pair (i, i + 1)
  const auto look_up = [&](std::size_t i) {
    const Merge* m = i + 1 < n ? merges_.find(id[i], id[i + 1]) : nullptr;
    rank[i] = m ? m->rank : no_rank;
    merged[i] = m ? m->id : 0;
  };
  for (std::size_t i = 0; i < n; ++i) look_up(i);
  while (n > 1) {
    const std::size_t best = static_cast<std::size_t>(
        std::min_element(rank.begin(), rank.begin() + n - 1) - rank.begin());
    if (rank[best] == no_rank) break;
    id[best] = merged[best];
    for (std::int32_t* a : {id, rank.data(), merged.data()})
      std::copy(a + best + 2, a + n, a + best + 1);
    --n;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  return n;
}

void BpeModel::merge_long(std::vector<std::int32_t>& ids) const {
  struct Symbol {
    std::int32_t id;
    std::int64_t previous, next;  // -1: none
  };
  struct Candidate {
    std::int32_t rank, merged;
    std::int64_t at;
    std::int32_t left, right;
    bool operator<(const Candidate& o) const {
      return rank != o.rank ? rank > o.rank : at > o.at;
    }  // best on top
  };
  const std::int64_t n = static_cast<std::int64_t>(ids.size());
  std::vector<Symbol> symbols(ids.size());
  for (std::int64_t i = 0; i < n; ++i) symbols[i] = {ids[i], i - 1, i + 1 < n ? i + 1 : -1};
  std::priority_queue<Candidate> queue;
  const auto push = [&](std::int64_t at) {
    if (at < 0 || symbols[at].next < 0) return;
    const std::int32_t left = symbols[at].id, right = symbols[symbols[at].next].id;
    if (const Merge* m = merges_.find(left, right)) queue.push({m->rank, m->id, at, left, right});
  };
  for (std::int64_t i = 0; i < n; ++i) push(i);
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    Symbol& left = symbols[c.at];
    if (left.id != c.left || left.next < 0 || symbols[left.next].id != c.right)
      continue;  // one of the two has changed
    Symbol& right = symbols[left.next];
    left.id = c.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = c.at;
    push(c.at);
    push(left.previous);
  }
  ids.clear();
  for (std::int64_t i = 0; i >= 0 && i < n; i = symbols[i].next) ids.push_back(symbols[i].id);
}

std::vector<BpeMerge> merges_of_pairs(const VocabEntries& entries,
                                      const std::vector<std::pair<std::string, std::string>>& pairs,
                                      const std::function<std::string(std::size_t)>& place) {
  const std::unordered_map<std::string_view, std::int32_t> ids(entries.begin(), entries.end());
  std::unordered_set<std::uint64_t> known;
  std::vector<BpeMerge> merges;
  merges.reserve(pairs.size());
  for (const auto& [left, right] : pairs) {
    const auto id_of = [&](const std::string& token) {
      const auto found = ids.find(token);
      if (found == ids.end())
        throw Error(ExitCode::input,
                    place(merges.size()) + ": " + in_quotes(token) + " is not in the vocabulary");
      return found->second;
    };
    const std::int32_t l = id_of(left), r = id_of(right);
    if (!known
             .insert(std::uint64_t{static_cast<std::uint32_t>(l)} << 32 |
                     static_cast<std::uint32_t>(r))
             .second)
      throw Error(ExitCode::input, place(merges.size()) + ": merge " +
                                       in_quotes(left + " " + right) + " appears twice");
    merges.push_back({l, r, static_cast<std::int32_t>(merges.size()), id_of(left + right)});
  }
  return merges;
}

}  // namespace tfm::tokenizer
