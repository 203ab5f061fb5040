#include "text/translation_scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/utf8.h"

namespace tfm::text {
namespace {

// A byte outside well-formed UTF-8 becomes one character of its own.
std::u32string characters(std::string_view text) {
  std::u32string out;
  while (!text.empty()) {
    const std::size_t n = utf8_length(text);
    out.push_back(n ? utf8_code_point(text, n) : 0xDC00u + static_cast<unsigned char>(text[0]));
    text.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return out;
}

// White_Space of Unicode, and the separators 0x1C to 0x1F.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}
bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_stop(char32_t c) { return c == '.' || c == ','; }
// ASCII punctuation but apostrophe, comma, hyphen and full stop, which need a look at their
// neighbors; and the space.
bool is_symbol(char32_t c) {
  return c >= ' ' && c <= '~' && c != '\'' && c != ',' && c != '-' && c != '.' && !is_digit(c) &&
         !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

struct Match {
  std::size_t taken = 0;  // characters; 0: none
  std::u32string replacement;
};
// Replaces from the left; what one match took belongs to no other.
template <class F>
std::u32string rewritten(const std::u32string& text, F&& match) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size();) {
    const Match m = match(i);
    m.taken ? out += m.replacement : out += text[i];
    i += std::max<std::size_t>(m.taken, 1);
  }
  return out;
}

// The words of mteval-v13a's tokenization of a line.
std::vector<std::u32string> words(const std::string& line) {
  std::string plain = replaced(line, "<skipped>", "");
  for (const auto& [entity, c] :
       {std::pair{"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}})
    plain = replaced(plain, entity, c);
  std::u32string t = U' ' + characters(plain) + U' ';
  const auto pairs = [&](auto first, auto second, bool before, bool between, bool after) {
    t = rewritten(t, [&](std::size_t i) -> Match {
      if (i + 1 >= t.size() || !first(t[i]) || !second(t[i + 1])) return {};
      std::u32string out;
      if (before) out += U' ';
      out += t[i];
      if (between) out += U' ';
      out += t[i + 1];
      if (after) out += U' ';
      return {2, out};
    });
  };
  const auto no_digit = [](char32_t c) { return !is_digit(c); };
  t = rewritten(t, [&](std::size_t i) -> Match {
    return is_symbol(t[i]) ? Match{1, {U' ', t[i], U' '}} : Match{};
  });
  pairs(no_digit, is_stop, false, true, true);
  pairs(is_stop, no_digit, true, true, false);
  pairs(
      is_digit, [](char32_t c) { return c == '-'; }, false, true, true);
  std::vector<std::u32string> out;
  bool inside = false;
  for (const char32_t c : t) {
    if (is_space(c)) {
      inside = false;
      continue;
    }
    if (!inside) out.emplace_back();
    inside = true;
    out.back() += c;
  }
  return out;
}

struct Counts {
  std::int64_t hypothesis = 0, reference = 0, matches = 0;
};

using Grams = std::unordered_map<std::u32string, std::int64_t>;
Counts compare(const Grams& hypothesis, const Grams& reference) {
  Counts c;
  for (const auto& [gram, n] : reference) c.reference += n;
  for (const auto& [gram, n] : hypothesis) {
    c.hypothesis += n;
    const auto found = reference.find(gram);
    if (found != reference.end()) c.matches += std::min(n, found->second);
  }
  return c;
}

Grams word_grams(const std::vector<std::u32string>& words, std::size_t order) {
  Grams grams;
  for (std::size_t i = 0; i + order <= words.size(); ++i) {
    std::u32string key;
    for (std::size_t k = 0; k < order; ++k) key += words[i + k] + U' ';
    ++grams[key];
  }
  return grams;
}

Grams character_grams(const std::u32string& text, std::size_t order) {
  Grams grams;
  for (std::size_t i = 0; i + order <= text.size(); ++i) ++grams[text.substr(i, order)];
  return grams;
}

}  // namespace

double corpus_bleu(std::span<const std::string> hypotheses,
                   std::span<const std::string> references) {
  TFM_CHECK(hypotheses.size() == references.size(), "expected one reference per hypothesis");
  std::array<Counts, 4> total;
  double length = 0, reference_length = 0;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const auto h = words(hypotheses[i]), r = words(references[i]);
    length += static_cast<double>(h.size());
    reference_length += static_cast<double>(r.size());
    for (std::size_t n = 0; n < total.size(); ++n) {
      const Counts c = compare(word_grams(h, n + 1), word_grams(r, n + 1));
      total[n].hypothesis += c.hypothesis;
      total[n].matches += c.matches;
    }
  }
  double log_precision = 0, smoothing = 1;
  if (total[0].matches == 0) return 0;
  for (const Counts& c : total) {
    if (c.hypothesis == 0) return 0;
    const double matches = c.matches > 0 ? static_cast<double>(c.matches) : 1 / (smoothing *= 2);
    log_precision +=
        std::log(matches / static_cast<double>(c.hypothesis)) / static_cast<double>(total.size());
  }
  const double brevity = length < reference_length ? std::exp(1 - reference_length / length) : 1;
  return 100 * brevity * std::exp(log_precision);
}

double corpus_chrf(std::span<const std::string> hypotheses,
                   std::span<const std::string> references) {
  TFM_CHECK(hypotheses.size() == references.size(), "expected one reference per hypothesis");
  std::array<Counts, 6> total;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    std::u32string h = characters(hypotheses[i]), r = characters(references[i]);
    std::erase_if(h, is_space);
    std::erase_if(r, is_space);
    for (std::size_t n = 0; n < total.size(); ++n) {
      const Counts c = compare(character_grams(h, n + 1), character_grams(r, n + 1));
      if (c.reference > 0)
        total[n].hypothesis +=
            c.hypothesis;  // skips lines whose reference has no n-gram of this length
      total[n].reference += c.reference;
      total[n].matches += c.matches;
    }
  }
  double precision = 0, recall = 0, orders = 0;
  for (const Counts& c : total) {
    if (c.hypothesis == 0 || c.reference == 0) continue;
    precision += static_cast<double>(c.matches) / static_cast<double>(c.hypothesis);
    recall += static_cast<double>(c.matches) / static_cast<double>(c.reference);
    ++orders;
  }
  if (precision + recall == 0) return 0;
  constexpr double beta2 = 4;
  return 100 * (1 + beta2) * precision * recall / (beta2 * precision + recall) / orders;
}

}  // namespace tfm::text
