#include "tokenizer/normalizer.h"

#include <algorithm>
#include <array>
#include <vector>

#include "io/file.h"
#include "text/unicode.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/splitter.h"

namespace tfm::tokenizer {
namespace {

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return is_ascii(c); });
}

// Replaces the text by what `change(code point, out)` appends for each of its code points.
template <class Change>
void map_code_points(std::string& text, const Change& change) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (std::string_view rest = text; !rest.empty();) {
    const text::CodePoint c = text::first_code_point(rest);
    change(c.value, out);
    rest.remove_prefix(c.bytes);
  }
  text = std::move(out);
}

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(const io::JsonNode& node) : where_(node.where()) {
    node.expect_only({"type", "normalizers"});
    for (const io::JsonNode& item : node.at("normalizers").items())
      parts_.push_back(read_normalizer(item));
  }
  void apply(std::string& text) const override {
    const std::size_t before = text.size();
    for (const auto& part : parts_) {
      part->apply(text);
      check_growth(before, text.size(), where_);
    }
  }
  std::size_t apply_to(std::string& text, std::size_t lead) const override {
    const std::size_t before = text.size();
    for (const auto& part : parts_) {
      lead = part->apply_to(text, lead);
      check_growth(before, text.size(), where_);
    }
    return lead;
  }
  bool allows_cuts() const override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->allows_cuts(); });
  }

 private:
  std::string where_;
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(text::NormalForm form) : form_(form) {}
  void apply(std::string& text) const override {
    if (!is_ascii(text)) text = text::normal_form(text, form_);
  }

 private:
  text::NormalForm form_;
};

void lower_case(std::string& text) {
  if (is_ascii(text)) {
    for (char& c : text)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
    return;
  }
  map_code_points(text, [](std::uint32_t c, std::string& out) { text::append_lower_case(out, c); });
}

class LowercaseNormalizer final : public Normalizer {
 public:
  void apply(std::string& text) const override { lower_case(text); }
};

class StripAccentsNormalizer final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    if (is_ascii(text)) return;
    map_code_points(text, [](std::uint32_t c, std::string& out) {
      if (!text::is_mark(c)) text::append_utf8(out, c);
    });
  }
};

// The basic tokenizer of Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers",
// 2018.
class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const io::JsonNode& node) {
    node.expect_only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    clean_ = node.flag("clean_text", true);
    space_chinese_ = node.flag("handle_chinese_chars", true);
    lower_ = node.flag("lowercase", true);
    strip_accents_ = node.flag("strip_accents", lower_);
  }
  void apply(std::string& text) const override {
    map_code_points(text, [this](std::uint32_t c, std::string& out) {
      if (clean_) {
        if (c == 0xFFFD || is_control(c)) return;
        if (text::is_white_space(c)) c = ' ';
      }
      const bool spaced = space_chinese_ && is_chinese(c);
      if (spaced) out.push_back(' ');
      if (c < 0x80)
        out.push_back(static_cast<char>(c));
      else
        text::append_utf8(out, c);
      if (spaced) out.push_back(' ');
    });
    if (strip_accents_ && !is_ascii(text)) {
      text = text::normal_form(text, text::NormalForm::nfd);
      map_code_points(text, [](std::uint32_t c, std::string& out) {
        if (!text::is_nonspacing_mark(c)) text::append_utf8(out, c);
      });
    }
    if (lower_) lower_case(text);
  }

 private:
  static bool is_control(std::uint32_t c) {
    if (c < 0x80) return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F;
    return text::is_other(c);
  }
  static bool is_chinese(std::uint32_t c) {
    return c >= 0x3400 && ((c >= 0x4E00 && c <= 0x9FFF) || c <= 0x4DBF ||
                           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x2A6DF) ||
                           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) ||
                           (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0x2F800 && c <= 0x2FA1F));
  }
  bool clean_, space_chinese_, strip_accents_, lower_;
};

class StripNormalizer final : public Normalizer {
 public:
  explicit StripNormalizer(const io::JsonNode& node) {
    node.expect_only({"type", "strip_left", "strip_right"});
    left_ = node.at("strip_left").boolean();
    right_ = node.at("strip_right").boolean();
  }
  void apply(std::string& text) const override {
    text = std::string(text::stripped(text, left_, right_));
  }
  std::size_t apply_to(std::string& text, std::size_t lead) const override {
    const std::size_t left = text.size() - text::stripped(text, left_, false).size();
    apply(text);
    return std::min(text.size(), lead - std::min(lead, left));
  }
  bool allows_cuts() const override { return false; }

 private:
  bool left_, right_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  explicit ReplaceNormalizer(const io::JsonNode& node) : replace_(node) {}
  void apply(std::string& text) const override { replace_.apply(text); }
  std::size_t apply_to(std::string& text, std::size_t lead) const override {
    return replace_.apply(text, lead);
  }
  bool allows_cuts() const override { return replace_.starts_at_spaces(); }

 private:
  Replacement replace_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(const io::JsonNode& node) : prefix_(node.at("prepend").string()) {
    node.expect_only({"type", "prepend"});
  }
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }
  bool allows_cuts() const override { return false; }

 private:
  std::string prefix_;
};

// Rules are looked up for grapheme clusters below 6 bytes, else for code points; the shortest rule
// that fits replaces the whole of what was looked up, as the library has it.
class PrecompiledNormalizer final : public Normalizer {
 public:
  explicit PrecompiledNormalizer(const io::JsonNode& node) : where_(node.where()) {
    node.expect_only({"type", "precompiled_charsmap"});
    const auto blob = node.find("precompiled_charsmap");
    if (!blob) return;
    const auto bytes = base64_decoded(blob->string());
    if (!bytes) blob->fail("expected base64");
    map_ = Charsmap(*bytes, blob->where());
    for (std::size_t c = 0; c < plain_.size(); ++c)
      plain_[c] = map_.shortest(std::string(1, static_cast<char>(c))).bytes == 0;
    plain_['\r'] = plain_['\n'] = false;
  }
  void apply(std::string& text) const override {
    if (map_.empty()) return;
    std::string out;
    out.reserve(text.size() + text.size() / 8);
    for (std::string_view rest = text; !rest.empty();) {
      // An ASCII character other than the two line ends is a cluster of its own before another one.
      std::size_t plain = 0;
      while (plain < rest.size() && is_ascii(rest[plain]) &&
             plain_[static_cast<unsigned char>(rest[plain])] &&
             (plain + 1 == rest.size() || is_ascii(rest[plain + 1])))
        ++plain;
      out += rest.substr(0, plain);
      rest.remove_prefix(plain);
      if (rest.empty()) break;
      const std::size_t bytes = text::grapheme_length(rest);
      each_part(rest.substr(0, bytes), [&](std::string_view, std::string_view to) { out += to; });
      check_growth(text.size(), out.size(), where_);
      rest.remove_prefix(bytes);
    }
    text = std::move(out);
  }

  std::size_t apply_to(std::string& text, std::size_t lead) const override {
    Alignment alignment(text, lead);
    for (std::string_view rest = text; !rest.empty() && !alignment.complete();) {
      const std::size_t bytes = text::grapheme_length(rest);
      each_part(rest.substr(0, bytes),
                [&](std::string_view from, std::string_view to) { alignment.add(from, to); });
      rest.remove_prefix(bytes);
    }
    const std::size_t leads = alignment.finish();
    apply(text);
    return leads;
  }

 private:
  // What the first characters become stands for, as the library has it: of a part's characters
  // each for one of those before, more of them for the last; what a part leaves out belongs to the
  // character before it, and without one is not counted.
  class Alignment {
   public:
    Alignment(std::string_view before, std::size_t lead) : before_(before), lead_(lead) {}
    bool complete() const { return complete_; }
    void add(std::string_view from, std::string_view to) {
      std::ptrdiff_t more = -static_cast<std::ptrdiff_t>(text::count_code_points(from));
      if (!to.empty()) settle();
      for (; !to.empty(); ++more) {
        open_.push_back({text::first_code_point(to).bytes, 0});
        to.remove_prefix(open_.back().bytes);
      }
      for (std::ptrdiff_t i = 0; i < more; ++i) (open_.end() - 1 - i)->change = 1;
      if (more < 0 && !open_.empty()) open_.back().change += more;
    }
    std::size_t finish() {
      settle();
      return leads_;
    }

   private:
    struct Character {
      std::size_t bytes;
      std::ptrdiff_t change;  // 1: in addition; otherwise how many that follow it are left out
    };
    void settle() {
      for (const auto& [bytes, change] : open_) {
        const std::size_t end = change > 0 ? at_ : at_ + 1;
        complete_ |= end > std::max(lead_, std::size_t{change > 0 && at_ == 0});
        if (complete_) break;
        leads_ += bytes;
        for (std::ptrdiff_t n = change; n <= 0 && at_ < before_.size(); ++n)
          at_ += text::first_code_point(before_.substr(at_)).bytes;
      }
      open_.clear();
    }

    std::string_view before_;
    std::size_t lead_, at_ = 0, leads_ = 0;
    std::vector<Character> open_;  // of the last part that is not empty
    bool complete_ = false;
  };

  // Calls f(part, what it becomes).
  template <class F>
  void each_part(std::string_view cluster, const F& f) const {
    if (cluster.size() < 6)
      if (const auto rule = map_.shortest(cluster); rule.bytes > 0)
        return f(cluster, rule.replacement);
    while (!cluster.empty()) {
      const std::string_view part = cluster.substr(0, text::first_code_point(cluster).bytes);
      const auto rule = map_.shortest(part);
      f(part, rule.bytes > 0 ? std::string_view(rule.replacement) : part);
      cluster.remove_prefix(part.size());
    }
  }

  std::string where_;
  Charsmap map_;
  std::array<bool, 128> plain_{};
};

}  // namespace

std::size_t Normalizer::apply_to(std::string& text, std::size_t lead) const {
  std::string alone = text.substr(0, lead);
  apply(alone);
  apply(text);
  auto end = std::ranges::mismatch(alone, text).in2;
  const auto same = [&] { return static_cast<std::size_t>(end - text.begin()); };
  if (same() == alone.size() || end == text.end()) return same();
  while (end != text.begin() && (*end & 0xC0) == 0x80) --end;  // to the start of a code point
  return same() + text::first_code_point(std::string_view(text).substr(same())).bytes;  // composed
}

std::unique_ptr<Normalizer> read_normalizer(const io::JsonNode& node) {
  const std::string type = node.at("type").string();
  if (type == "Sequence") return std::make_unique<SequenceNormalizer>(node);
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(node);
  if (type == "Strip") return std::make_unique<StripNormalizer>(node);
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(node);
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(node);
  if (type == "Precompiled") return std::make_unique<PrecompiledNormalizer>(node);
  const auto plain = [&](std::unique_ptr<Normalizer> normalizer) {
    node.expect_only({"type"});
    return normalizer;
  };
  if (type == "NFC") return plain(std::make_unique<FormNormalizer>(text::NormalForm::nfc));
  if (type == "NFD") return plain(std::make_unique<FormNormalizer>(text::NormalForm::nfd));
  if (type == "NFKC") return plain(std::make_unique<FormNormalizer>(text::NormalForm::nfkc));
  if (type == "NFKD") return plain(std::make_unique<FormNormalizer>(text::NormalForm::nfkd));
  if (type == "Lowercase") return plain(std::make_unique<LowercaseNormalizer>());
  if (type == "StripAccents") return plain(std::make_unique<StripAccentsNormalizer>());
  node.fail("normalizer " + in_quotes(type) + " is not supported by this version");
}

}  // namespace tfm::tokenizer
