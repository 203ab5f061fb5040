#include "tokenizer/token_decoder.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/utf8.h"
#include "io/file.h"
#include "text/unicode.h"
#include "tokenizer/bpe_vocab.h"
#include "tokenizer/splitter.h"

namespace tfm::tokenizer {
namespace {

using Tokens = std::vector<std::string>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
}

class SequenceDecoder final : public TokenDecoder {
 public:
  explicit SequenceDecoder(const io::JsonNode& node) : where_(node.where()) {
    node.expect_only({"type", "decoders"});
    for (const io::JsonNode& item : node.at("decoders").items())
      parts_.push_back(read_decoder(item));
  }
  void apply(Tokens& tokens) const override {
    const std::size_t before = bytes_of(tokens);
    for (const auto& part : parts_) {
      part->apply(tokens);
      check_growth(before, bytes_of(tokens), where_);
    }
  }

 private:
  static std::size_t bytes_of(const Tokens& tokens) {
    return std::accumulate(tokens.begin(), tokens.end(), std::size_t{0},
                           [](std::size_t n, const std::string& t) { return n + t.size(); });
  }
  std::string where_;
  std::vector<std::unique_ptr<TokenDecoder>> parts_;
};

class ByteLevelDecoder final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override {
    std::string text;
    for (const std::string& token : tokens) text += alphabet_bytes(token).value_or(token);
    tokens = {std::move(text)};
  }
};

class WordPieceDecoder final : public TokenDecoder {
 public:
  explicit WordPieceDecoder(const io::JsonNode& node)
      : prefix_(node.at("prefix").string()), cleanup_(node.at("cleanup").boolean()) {
    node.expect_only({"type", "prefix", "cleanup"});
  }
  void apply(Tokens& tokens) const override {
    static constexpr std::pair<std::string_view, std::string_view> repairs[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0)
        tokens[i] =
            tokens[i].starts_with(prefix_) ? tokens[i].substr(prefix_.size()) : " " + tokens[i];
      if (cleanup_)
        for (const auto& [from, to] : repairs) replace_all(tokens[i], from, to);
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class MetaspaceDecoder final : public TokenDecoder {
 public:
  explicit MetaspaceDecoder(const io::JsonNode& node) : mark_(node.at("replacement").string()) {
    node.expect_only(
        {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    if (mark_.empty() || text::count_code_points(mark_) != 1)
      node.at("replacement").fail("expected one character");
    prepended_ =
        node.text("prepend_scheme", "always") != "never" && node.flag("add_prefix_space", true);
  }
  void apply(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], mark_, i == 0 && prepended_ ? "" : " ");
  }

 private:
  std::string mark_;
  bool prepended_;
};

// A run of byte tokens becomes one token if it is UTF-8, as in the library: the decoders after it
// see characters.
class ByteFallbackDecoder final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override {
    Tokens out;
    std::string bytes;  // of consecutive byte tokens
    const auto end_run = [&] {
      if (utf8_valid_prefix(bytes) < bytes.size())
        for (const char byte : bytes) out.emplace_back(1, byte);
      else if (!bytes.empty())
        out.push_back(bytes);
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of_token(token)) {
        bytes += *byte;
        continue;
      }
      end_run();
      out.push_back(std::move(token));
    }
    end_run();
    tokens = std::move(out);
  }

 private:
  static std::optional<char> byte_of_token(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    int byte = 0;
    for (char c : token.substr(3, 2)) {
      const bool digit = c >= '0' && c <= '9', letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'f';
      if (!digit && !letter) return std::nullopt;
      byte = byte * 16 + (digit ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return static_cast<char>(byte);
  }
};

class FuseDecoder final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override {
    std::string text;
    for (const std::string& token : tokens) text += token;
    tokens = {std::move(text)};
  }
};

class StripDecoder final : public TokenDecoder {
 public:
  explicit StripDecoder(const io::JsonNode& node) : content_(node.at("content").string()) {
    node.expect_only({"type", "content", "start", "stop"});
    if (content_.empty() || text::count_code_points(content_) != 1)
      node.at("content").fail("expected one character");
    start_ = node.at("start").integer(0, 1000);
    stop_ = node.at("stop").integer(0, 1000);
  }
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (std::int64_t i = 0; i < start_ && rest.starts_with(content_); ++i)
        rest.remove_prefix(content_.size());
      for (std::int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i)
        rest.remove_suffix(content_.size());
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  std::int64_t start_, stop_;
};

class ReplaceDecoder final : public TokenDecoder {
 public:
  explicit ReplaceDecoder(const io::JsonNode& node) : replace_(node) {}
  // Patterns match UTF-8; the other bytes stay between its stretches.
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string out;
      for (std::string_view rest = token; !rest.empty();) {
        std::string stretch(rest.substr(0, utf8_valid_prefix(rest)));
        rest.remove_prefix(stretch.size());
        replace_.apply(stretch);
        out += stretch;
        out += rest.substr(0, 1);
        rest.remove_prefix(std::min<std::size_t>(rest.size(), 1));
      }
      token = std::move(out);
    }
  }

 private:
  Replacement replace_;
};

class BpeDecoder final : public TokenDecoder {
 public:
  explicit BpeDecoder(const io::JsonNode& node) : suffix_(node.at("suffix").string()) {
    node.expect_only({"type", "suffix"});
    if (suffix_.empty()) node.at("suffix").fail("expected a non-empty text");
  }
  void apply(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], suffix_, i + 1 < tokens.size() ? " " : "");
  }

 private:
  std::string suffix_;
};

}  // namespace

std::unique_ptr<TokenDecoder> byte_level_decoder() { return std::make_unique<ByteLevelDecoder>(); }

std::unique_ptr<TokenDecoder> read_decoder(const io::JsonNode& node) {
  const std::string type = node.at("type").string();
  if (type == "Sequence") return std::make_unique<SequenceDecoder>(node);
  if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(node);
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(node);
  if (type == "Strip") return std::make_unique<StripDecoder>(node);
  if (type == "Replace") return std::make_unique<ReplaceDecoder>(node);
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(node);
  if (type == "ByteLevel") {
    node.expect_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return std::make_unique<ByteLevelDecoder>();
  }
  if (type != "ByteFallback" && type != "Fuse")
    node.fail("decoder " + in_quotes(type) + " is not supported by this version");
  node.expect_only({"type"});
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  return std::make_unique<ByteFallbackDecoder>();
}

}  // namespace tfm::tokenizer
