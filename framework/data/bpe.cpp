#include "data/bpe.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <queue>
#include <unordered_map>

#include "core/error.h"
#include "core/posix_file.h"
#include "data/bpe_vocab.h"
#include "data/utf8.h"

namespace tfm {
namespace {

// GPT-2's pattern, \s written as Unicode's White_Space (PCRE's own \s also holds U+180E). Some alternative matches at every
// character, so the compiled pattern is anchored.
#define TFM_SPACE "\\p{Z}\\t-\\r\\x{85}"
constexpr const char* split_pattern = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^" TFM_SPACE "\\p{L}\\p{N}]+|[" TFM_SPACE
                                      "]+(?![^" TFM_SPACE "])|[" TFM_SPACE "]+";
#undef TFM_SPACE

constexpr std::size_t short_word = 64;  // bytes: below, a scan for the best pair beats a heap
constexpr std::int32_t no_rank = std::numeric_limits<std::int32_t>::max();

// True where a whitespace character ends at the end of the text.
bool ends_with_space(std::string_view text) {
  if (text.empty()) return false;
  const unsigned char last = static_cast<unsigned char>(text.back());
  if (last < 0x80) return last == ' ' || (last >= '\t' && last <= '\r');
  if (text.ends_with("\xC2\x85") || text.ends_with("\xC2\xA0") || text.ends_with("\xE1\x9A\x80") ||
      text.ends_with("\xE2\x81\x9F") || text.ends_with("\xE3\x80\x80"))
    return true;
  const bool general_punctuation = text.size() >= 3 && text.substr(text.size() - 3).starts_with("\xE2\x80");
  return general_punctuation && (last <= 0x8A || last == 0xA8 || last == 0xA9 || last == 0xAF);
}

}  // namespace

struct BpeTokenizer::Pattern {
  Pattern() {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(split_pattern), PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
    TFM_CHECK(code, "the split pattern does not compile");
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is no JIT, pcre2_match interprets
  }
  ~Pattern() { pcre2_code_free(code); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  pcre2_code* code;
};

// A direct-mapped cache of short words, and the matcher's state.
struct BpeTokenizer::Scratch {
  struct Slot {  // one cache line
    std::uint8_t length = 0, count = 0;
    char bytes[22];
    std::int32_t ids[10];
  };
  static constexpr std::size_t slots = std::size_t{1} << 15;

  explicit Scratch(const Pattern& pattern) : match(pcre2_match_data_create_from_pattern(pattern.code, nullptr)), cache(slots) {
    TFM_CHECK(match, "out of memory");
  }
  ~Scratch() { pcre2_match_data_free(match); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  pcre2_match_data* match;
  std::vector<Slot> cache;
};

void BpeTokenizer::MergeTable::reserve(std::size_t merges) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(2 * merges, 2));
  slots_.assign(size, Merge{});
  shift_ = 64 - std::countr_zero(size);
}

bool BpeTokenizer::MergeTable::insert(const Merge& merge) {
  std::size_t i = slot(merge.pair);
  while (slots_[i].pair != Merge{}.pair) {
    if (slots_[i].pair == merge.pair) return false;
    i = (i + 1) & (slots_.size() - 1);
  }
  slots_[i] = merge;
  return true;
}

const BpeTokenizer::Merge* BpeTokenizer::MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  for (std::size_t i = slot(pair);; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].pair == pair) return &slots_[i];
    if (slots_[i].pair == Merge{}.pair) return nullptr;
  }
}

BpeTokenizer::BpeTokenizer(const std::string& vocab_path, const std::string& merges_path)
    : pattern_(std::make_unique<Pattern>()) {
  const auto entries = read_vocab_json(vocab_path);
  std::int32_t largest = 0;
  std::array<bool, 256> known{};
  for (const auto& [token, id] : entries) largest = std::max(largest, id);
  pieces_.resize(static_cast<std::size_t>(largest) + 1);
  for (const auto& [token, id] : entries) {
    pieces_[id] = bytes_of_token(token);
    if (pieces_[id]->size() == 1 && byte_alphabet()[static_cast<unsigned char>(pieces_[id]->front())] == token) {
      byte_id_[static_cast<unsigned char>(pieces_[id]->front())] = id;
      known[static_cast<unsigned char>(pieces_[id]->front())] = true;
    }
    if (token == "<|endoftext|>" || (token == "</s>" && !end_of_document_)) end_of_document_ = id;
  }
  for (int byte = 0; byte < 256; ++byte)
    if (!known[byte])
      throw Error(ExitCode::input, vocab_path + ": no entry \"" + byte_alphabet()[byte] + "\", the symbol of byte " +
                                       std::to_string(byte) + "; expected a byte-level vocabulary with all 256 bytes");
  read_merges(merges_path, entries);
}

BpeTokenizer::~BpeTokenizer() = default;

void BpeTokenizer::read_merges(const std::string& path, const std::vector<std::pair<std::string, std::int32_t>>& entries) {
  const std::unordered_map<std::string_view, std::int32_t> ids(entries.begin(), entries.end());
  const std::vector<MergeLine> lines = read_merges_txt(path);
  merges_.reserve(lines.size());
  std::int32_t rank = 0;
  for (const MergeLine& m : lines) {
    const std::string where = path + ":" + std::to_string(m.line) + ": ";
    const auto id_of = [&](const std::string& token) {
      const auto found = ids.find(token);
      if (found == ids.end()) throw Error(ExitCode::input, where + in_quotes(token) + " is not in vocab.json");
      return found->second;
    };
    const std::uint64_t left = static_cast<std::uint32_t>(id_of(m.left)), right = static_cast<std::uint32_t>(id_of(m.right));
    if (!merges_.insert({left << 32 | right, rank++, id_of(m.left + m.right)}))
      throw Error(ExitCode::input, where + "the pair " + in_quotes(m.left + " " + m.right) + " comes twice");
  }
}

std::vector<std::int32_t> BpeTokenizer::encode(std::string_view text) const {
  std::unique_ptr<Scratch> scratch;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      scratch = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!scratch) scratch = std::make_unique<Scratch>(*pattern_);
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3 + 4);
  while (!text.empty()) {
    const std::size_t valid = utf8_valid_prefix(text);
    encode_valid(text.substr(0, valid), *scratch, ids);
    text.remove_prefix(valid);
    for (; !text.empty() && utf8_length(text) == 0; text.remove_prefix(1))
      ids.push_back(byte_id_[static_cast<unsigned char>(text.front())]);
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
  return ids;
}

void BpeTokenizer::encode_valid(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch.match);
  for (std::size_t at = 0; at < text.size(); at = range[1]) {
    const int result = pcre2_match(pattern_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, scratch.match, nullptr);
    if (result < 0 || range[1] <= at) internal_error("pcre2_match returned " + std::to_string(result));
    encode_word(text.substr(at, range[1] - at), scratch, ids);
  }
}

void BpeTokenizer::encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (word.size() > short_word) return merge_long(word, ids);
  if (word.size() > sizeof(Scratch::Slot::bytes)) return merge_short(word, ids);
  Scratch::Slot& slot = scratch.cache[XXH3_64bits(word.data(), word.size()) % Scratch::slots];
  if (slot.length == word.size() && std::memcmp(slot.bytes, word.data(), word.size()) == 0) {
    ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
    return;
  }
  const std::size_t before = ids.size();
  merge_short(word, ids);
  const std::size_t count = ids.size() - before;
  if (count > std::size(slot.ids)) return;
  slot.length = static_cast<std::uint8_t>(word.size());
  slot.count = static_cast<std::uint8_t>(count);
  std::memcpy(slot.bytes, word.data(), word.size());
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), slot.ids);
}

void BpeTokenizer::merge_short(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, short_word> id, rank, merged;  // rank and merged of the pair (i, i + 1)
  std::size_t n = word.size();
  const auto look_up = [&](std::size_t i) {
    const Merge* m = i + 1 < n ? merges_.find(id[i], id[i + 1]) : nullptr;
    rank[i] = m ? m->rank : no_rank;
    merged[i] = m ? m->id : 0;
  };
  for (std::size_t i = 0; i < n; ++i) id[i] = byte_id_[static_cast<unsigned char>(word[i])];
  for (std::size_t i = 0; i < n; ++i) look_up(i);
  while (n > 1) {
    const std::size_t best = static_cast<std::size_t>(std::min_element(rank.begin(), rank.begin() + n - 1) - rank.begin());
    if (rank[best] == no_rank) break;
    id[best] = merged[best];
    for (auto* a : {&id, &rank, &merged}) std::copy(a->begin() + best + 2, a->begin() + n, a->begin() + best + 1);
    --n;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  ids.insert(ids.end(), id.begin(), id.begin() + n);
}

void BpeTokenizer::merge_long(std::string_view word, std::vector<std::int32_t>& ids) const {
  struct Symbol {
    std::int32_t id;
    std::int64_t previous, next;  // -1: none
  };
  struct Candidate {
    std::int32_t rank, merged;
    std::int64_t at;
    std::int32_t left, right;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }  // best on top
  };
  const std::int64_t n = static_cast<std::int64_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  for (std::int64_t i = 0; i < n; ++i)
    symbols[i] = {byte_id_[static_cast<unsigned char>(word[i])], i - 1, i + 1 < n ? i + 1 : -1};
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
    if (left.id != c.left || left.next < 0 || symbols[left.next].id != c.right) continue;  // one of the two has changed
    Symbol& right = symbols[left.next];
    left.id = c.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = c.at;
    push(c.at);
    push(left.previous);
  }
  for (std::int64_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size() || !pieces_[ids[i]])
      throw Error(ExitCode::input, "id " + std::to_string(ids[i]) + " at place " + std::to_string(i) +
                                       " is not in the vocabulary, whose largest id is " + std::to_string(vocab_size() - 1));
    text += *pieces_[ids[i]];
  }
  return text;
}

// No word of the pattern runs from another character into whitespace, and no lookahead of a word that ends there sees past it.
std::size_t BpeTokenizer::safe_cut(std::string_view text) const {
  for (std::size_t at = text.size(); at-- > 1;)
    if ((text[at] == '\n' || text[at] == ' ') && !ends_with_space(text.substr(0, at))) return at;
  return 0;
}

}  // namespace tfm
