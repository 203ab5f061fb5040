#pragma once
// Parts of tokenizer.json shared by normalizers, pre-tokenizers and decoders: patterns,
// replacement, and splitting at matches.
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "io/json.h"
#include "text/regex.h"

namespace tfm::tokenizer {

// {"String": ...} or {"Regex": ...}.
class Pattern {
 public:
  explicit Pattern(const io::JsonNode& node);
  // Calls sink(begin, end) for every match, from the left.
  void find_all(std::string_view text,
                const std::function<void(std::size_t, std::size_t)>& sink) const;
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::optional<text::Regex> regex_;  // none: source_ is the text to find
};

// Refuses growth by repeated replacement, by which a small file could fill any memory:
// Error(input), which starts with `where`, if `before` bytes have become more than 64 times as many
// plus 4 KiB.
void check_growth(std::size_t before, std::size_t after, const std::string& where);

// The component Replace: substitutes `content` for each match of `pattern`.
class Replacement {
 public:
  explicit Replacement(const io::JsonNode& node);
  // Returns how many of the text's first bytes stand for what its first `lead` bytes stood for. As
  // in the library the content stands for the last character of a match, if that is empty for the
  // one before it.
  std::size_t apply(std::string& text, std::size_t lead = 0) const;
  // Whether every match begins at a space that no other space precedes, or is one space.
  bool starts_at_spaces() const {
    return pattern_.source() == " " || pattern_.source() == " {2,}" || pattern_.source() == " +";
  }

 private:
  Pattern pattern_;
  std::string content_, where_;
};

// What becomes of the matches (delimiters) when a text is split at them.
enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
Behavior read_behavior(const io::JsonNode& node);

// Receives the parts of a text in order, each a match or not, and passes on the pieces that a
// behavior makes of them. A match may be empty; a piece is not.
class Splitter {
 public:
  using Sink = std::function<void(std::size_t begin, std::size_t end)>;
  Splitter(Behavior behavior, const Sink& sink) : behavior_(behavior), sink_(sink) {}
  void add(std::size_t begin, std::size_t end, bool match);
  void finish();

 private:
  void hand_on(std::size_t begin, std::size_t end);
  void hold(std::size_t begin, std::size_t end);

  Behavior behavior_;
  const Sink& sink_;
  bool held_ = false;
  std::size_t begin_ = 0, end_ = 0;  // held back: it may grow
  bool previous_match_ = false;
};

}  // namespace tfm::tokenizer
