#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "io/file.h"
#include "text/unicode.h"
#include "tokenizer/splitter.h"

namespace tfm::tokenizer {

namespace {

// Matches at every character, so that nothing lies between matches.
constexpr const char* gpt2_pattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Passes the pieces of a split to the sink; `matches(text, found)` calls found(begin, end) for each
// match.
template <class Matches>
void split_at(const Matches& matches, Behavior behavior, bool invert, Piece piece,
              const PieceSink& sink) {
  const Splitter::Sink hand_on = [&](std::size_t begin, std::size_t end) {
    sink(piece.part(begin, end));
  };
  Splitter splitter(behavior, hand_on);
  std::size_t from = 0;
  matches(piece.text, [&](std::size_t begin, std::size_t end) {
    if (from < begin) splitter.add(from, begin, invert);
    splitter.add(begin, end, !invert);
    from = end;
  });
  if (from < piece.text.size()) splitter.add(from, piece.text.size(), invert);
  splitter.finish();
}

// A split at the code points of a class, each a match of its own.
class ClassSplit final : public PreTokenizer {
 public:
  using Class = bool (*)(std::uint32_t);
  ClassSplit(Class delimiters, Behavior behavior, Cuts cuts)
      : class_(delimiters), behavior_(behavior), cuts_(cuts) {}
  void split(Piece piece, const PieceSink& sink) const override {
    const auto matches = [this](std::string_view text, const auto& found) {
      for (std::size_t at = 0; at < text.size();) {
        const text::CodePoint c = text::first_code_point(text.substr(at));
        if (class_(c.value)) found(at, at + c.bytes);
        at += c.bytes;
      }
    };
    split_at(matches, behavior_, false, piece, sink);
  }
  Cuts cuts() const override { return cuts_; }

 private:
  Class class_;
  Behavior behavior_;
  Cuts cuts_;
};

bool splits_bert(std::uint32_t c) {
  if (c < 0x80)
    return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') &&
           !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  return text::is_punctuation(c);
}

class SequencePreTokenizer final : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  void split(Piece piece, const PieceSink& sink) const override { split_from(0, piece, sink); }
  // The first split decides: later ones see its pieces only.
  Cuts cuts() const override { return parts_.empty() ? Cuts::none : parts_.front()->cuts(); }

 private:
  void split_from(std::size_t part, Piece piece, const PieceSink& sink) const {
    if (part == parts_.size()) return sink(piece);
    if (part + 1 == parts_.size()) return parts_[part]->split(piece, sink);
    parts_[part]->split(piece, [&](Piece next) { split_from(part + 1, next, sink); });
  }
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

class ByteLevelSplit final : public PreTokenizer {
 public:
  ByteLevelSplit() : prefix_(false), regex_(text::Regex::anchored(gpt2_pattern)) {}
  explicit ByteLevelSplit(const io::JsonNode& node) {
    node.expect_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    prefix_ = node.at("add_prefix_space").boolean();
    node.at("trim_offsets").boolean();
    if (node.flag("use_regex", true)) regex_.emplace(text::Regex::anchored(gpt2_pattern));
  }
  void split(Piece piece, const PieceSink& sink) const override {
    std::string prefixed;
    if (prefix_ && piece.text.front() != ' ') {
      prefixed.reserve(piece.text.size() + 1);
      prefixed.append(" ").append(piece.text);
      piece.text = prefixed;
    }
    if (!regex_) return sink(piece);
    regex_->find_all(piece.text,
                     [&](std::size_t begin, std::size_t end) { sink(piece.part(begin, end)); });
  }
  Cuts cuts() const override {
    if (!regex_) return Cuts::none;
    return prefix_ ? Cuts::after_words : Cuts::before_spaces;  // none before a prefix
  }

 private:
  bool prefix_;
  std::optional<text::Regex> regex_;
};

class PatternSplit final : public PreTokenizer {
 public:
  explicit PatternSplit(const io::JsonNode& node)
      : pattern_(node.at("pattern")),
        behavior_(read_behavior(node.at("behavior"))),
        invert_(node.at("invert").boolean()) {
    node.expect_only({"type", "pattern", "behavior", "invert"});
  }
  void split(Piece piece, const PieceSink& sink) const override {
    split_at([this](std::string_view text, const auto& found) { pattern_.find_all(text, found); },
             behavior_, invert_, piece, sink);
  }
  // Known patterns in which a word of letters or digits ends before a space whatever follows: those
  // of GPT-4, Llama 3, Qwen 2.
  Cuts cuts() const override {
    const std::string& source = pattern_.source();
    const bool known =
        source.starts_with("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}") &&
        source.ends_with("| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+") &&
        source.size() < 120;
    return known && behavior_ == Behavior::isolated && !invert_ ? Cuts::after_words : Cuts::none;
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

class MetaspaceSplit final : public PreTokenizer {
 public:
  explicit MetaspaceSplit(const io::JsonNode& node) {
    node.expect_only(
        {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    mark_ = node.at("replacement").string();
    if (mark_.empty() || text::count_code_points(mark_) != 1)
      node.at("replacement").fail("expected one character");
    scheme_ = node.text("prepend_scheme", "always");
    if (scheme_ != "always" && scheme_ != "first" && scheme_ != "never")
      node.at("prepend_scheme").fail("expected always, first or never, got " + in_quotes(scheme_));
    if (!node.flag("add_prefix_space", true)) {
      if (node.find("prepend_scheme") && scheme_ != "never")
        node.at("add_prefix_space").fail("false contradicts prepend_scheme " + scheme_);
      scheme_ = "never";
    }
    split_ = node.flag("split", true);
  }
  void split(Piece piece, const PieceSink& sink) const override {
    std::string text;
    text.reserve(piece.text.size() + piece.text.size() / 2 + mark_.size());
    std::size_t lead = 0;  // of `text`
    const bool wanted = scheme_ == "always" || (scheme_ == "first" && piece.lead > 0);
    if (wanted && piece.text.front() != ' ' && !piece.text.starts_with(mark_)) text = mark_;
    for (std::size_t at = 0; at < piece.text.size();) {
      const std::size_t space = std::min(piece.text.find(' ', at), piece.text.size());
      text += piece.text.substr(at, space - at);
      if (at < piece.lead) lead = text.size() - (space - std::min(space, piece.lead));
      if (space < piece.text.size()) text += mark_;
      if (space < std::min(piece.lead, piece.text.size())) lead = text.size();
      at = space + 1;
    }
    const Piece marked{text, lead};
    if (!split_) return sink(marked);
    const auto matches = [this](std::string_view in, const auto& found) {
      for (std::size_t at = 0; (at = in.find(mark_, at)) != in.npos; at += mark_.size())
        found(at, at + mark_.size());
    };
    split_at(matches, Behavior::merged_with_next, false, marked, sink);
  }
  Cuts cuts() const override { return split_ ? Cuts::after_words : Cuts::none; }

 private:
  std::string mark_, scheme_;
  bool split_;
};

// \w+|[^\w\s]+
class WhitespaceWords final : public PreTokenizer {
 public:
  void split(Piece piece, const PieceSink& sink) const override {
    const auto kind_of = [](std::uint32_t c) {
      return text::is_white_space(c) ? 0 : text::is_word(c) ? 1 : 2;
    };
    std::size_t begin = 0;
    int kind = 0;
    for (std::size_t at = 0; at <= piece.text.size();) {
      const bool end = at == piece.text.size();
      const text::CodePoint c =
          end ? text::CodePoint{' ', 1} : text::first_code_point(piece.text.substr(at));
      if (const int next = kind_of(c.value); next != kind || end) {
        if (kind != 0) sink(piece.part(begin, at));
        begin = at;
        kind = next;
      }
      at += c.bytes;
    }
  }
  Cuts cuts() const override { return Cuts::before_spaces; }
};

std::unique_ptr<PreTokenizer> read_simple(const std::string& type, const io::JsonNode& node) {
  const auto of_class = [](ClassSplit::Class delimiters, Behavior behavior, Cuts cuts) {
    return std::make_unique<ClassSplit>(delimiters, behavior, cuts);
  };
  if (type == "Split") return std::make_unique<PatternSplit>(node);
  if (type == "Metaspace") return std::make_unique<MetaspaceSplit>(node);
  if (type == "Punctuation") {
    node.expect_only({"type", "behavior"});
    const auto behavior = node.find("behavior");
    return of_class(splits_bert, behavior ? read_behavior(*behavior) : Behavior::isolated,
                    Cuts::none);
  }
  if (type == "Digits") {
    node.expect_only({"type", "individual_digits"});
    return of_class(
        text::is_number,
        node.at("individual_digits").boolean() ? Behavior::isolated : Behavior::contiguous,
        Cuts::none);
  }
  const bool known =
      type == "BertPreTokenizer" || type == "Whitespace" || type == "WhitespaceSplit";
  if (!known) node.fail("pre-tokenizer " + in_quotes(type) + " is not supported by this version");
  node.expect_only({"type"});
  if (type == "Whitespace") return std::make_unique<WhitespaceWords>();
  auto words = of_class(text::is_white_space, Behavior::removed, Cuts::before_spaces);
  if (type == "WhitespaceSplit") return words;
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(std::move(words));
  parts.push_back(of_class(splits_bert, Behavior::isolated, Cuts::none));
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

}  // namespace

std::unique_ptr<PreTokenizer> gpt2_split() { return std::make_unique<ByteLevelSplit>(); }

PreTokenization read_pre_tokenizer(const io::JsonNode& node) {
  const std::string type = node.at("type").string();
  if (type == "ByteLevel") return {std::make_unique<ByteLevelSplit>(node), true};
  if (type != "Sequence") return {read_simple(type, node), false};
  node.expect_only({"type", "pretokenizers"});
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  bool byte_level = false;
  for (const io::JsonNode& item : node.at("pretokenizers").items()) {
    if (byte_level) item.fail("a pre-tokenizer after ByteLevel is not supported by this version");
    PreTokenization part = read_pre_tokenizer(item);
    byte_level = part.byte_level;
    parts.push_back(std::move(part.splitter));
  }
  return {std::make_unique<SequencePreTokenizer>(std::move(parts)), byte_level};
}

}  // namespace tfm::tokenizer
