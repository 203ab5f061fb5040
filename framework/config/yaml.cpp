#include "config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "core/utf8.h"

namespace tfm::config {
namespace {

using Kind = YamlNode::Kind;

bool check_characters(const std::string& text, Diagnostics& out, int source) {
  Mark at{1, 1, source};
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(std::string_view(text).substr(i));
    const char* problem = length == 0 ? "invalid UTF-8"
                          : c == 0    ? "the file contains a NUL byte"
                          : (c < 32 && c != '\n' && c != '\t') || c == 127
                              ? "the file contains a control character"
                              : nullptr;
    if (problem) {
      out.error(at, std::string(problem) + "; expected a UTF-8 text file");
      return false;
    }
    i += length;
    ++at.column;
    if (c == '\n') at = {at.line + 1, 1, source};
  }
  return true;
}

class TreeBuilder : public YAML::EventHandler {
 public:
  struct Stop {};

  TreeBuilder(Diagnostics& out, int source) : out_(out), text_(out.text(source)), source_(source) {
    for (std::size_t i = 0; i < text_.size(); ++i)
      if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
  YamlNode take() { return std::move(root_); }
  // Columns count characters. The last position is cached: most events follow one another on a
  // line.
  Mark place(const YAML::Mark& m) const {
    const std::size_t to = std::min(offset(m), text_.size());
    if (m.line != last_line_ || to < last_offset_) {
      last_line_ = m.line;
      last_offset_ = to - std::min(to, static_cast<std::size_t>(m.column));
      last_column_ = 1;
    }
    for (; last_offset_ < to; ++last_offset_) last_column_ += !continues_utf8(text_[last_offset_]);
    return {m.line + 1, last_column_, source_};
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    const char c = offset(mark) < text_.size() ? text_[offset(mark)] : '\n';
    const bool written = c == '~' || c == 'n' || c == 'N';
    Mark at = place(mark);
    if (!written && !stack_.empty() && stack_.back().has_key) at = stack_.back().key.at;
    if (!stack_.empty() && stack_.back().node.kind == Kind::map && !stack_.back().has_key)
      out_.error(at, written ? "null is not a valid key; expected a name"
                             : "a key is missing; expected a name");
    put({.kind = Kind::null, .at = at});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { put(node(Kind::broken, mark)); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode scalar = node(Kind::scalar, mark);
    scalar.plain = tag == "?";
    scalar.text = value;
    if (utf8_valid_prefix(value) != value.size()) {  // which the text is
      out_.error(scalar.at,
                 "the escapes \\_ and \\N are not supported; expected \\u00A0 or \\u0085");
      throw Stop{};
    }
    if (value.find('\0') != value.npos) {
      out_.error(scalar.at, "the value contains a NUL character; expected text without");
      throw Stop{};
    }
    const bool decorated = anchor != 0 || (tag != "?" && tag != "!");
    if (decorated) {
      scalar.kind = Kind::broken;
    } else if (scalar.plain && text_.compare(offset(mark), value.size(), value) != 0) {
      if (offset(mark) < text_.size() && text_[offset(mark)] == '!') {
        scalar.kind = Kind::broken;
      } else {
        out_.error(scalar.at, "the value continues on the next line; expected it on one line",
                   "indent all keys of a section equally, and write 'key: value' with a space "
                   "after the colon");
        throw Stop{};
      }
    }
    put(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& m, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(Kind::sequence, m);
  }
  void OnMapStart(const YAML::Mark& m, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(Kind::map, m);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    YamlNode node, key;
    bool has_key = false, keep = true;
    std::map<std::string, int> seen;  // key -> line
  };

  std::size_t offset(const YAML::Mark& m) const {
    return line_starts_[std::min(static_cast<std::size_t>(m.line), line_starts_.size() - 1)] +
           static_cast<std::size_t>(m.column);
  }
  YamlNode node(Kind kind, const YAML::Mark& mark) const {
    return {.kind = kind, .at = place(mark)};
  }

  void open(Kind kind, const YAML::Mark& mark) {
    if (stack_.size() >= static_cast<std::size_t>(kYamlDepth)) {
      out_.error(place(mark),
                 "nested deeper than " + std::to_string(kYamlDepth) + " levels; expected fewer");
      throw Stop{};
    }
    stack_.push_back({});
    stack_.back().node = node(kind, mark);
  }
  void close() {
    YamlNode done = std::move(stack_.back().node);
    stack_.pop_back();
    put(std::move(done));
  }

  void put(YamlNode value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    Level& level = stack_.back();
    if (level.node.kind == Kind::sequence) {
      level.node.items.push_back(std::move(value));
    } else if (!level.has_key) {
      put_key(level, std::move(value));
    } else {
      level.has_key = false;
      if (level.keep) level.node.add(std::move(level.key), std::move(value));
    }
  }
  void put_key(Level& level, YamlNode key) {
    level.has_key = true;
    level.keep = key.kind == Kind::scalar;
    if (level.keep && key.plain && key.text == "<<") {
      out_.error(key.at, "merge keys (<<) are not supported; expected a name");
      level.keep = false;
    } else if (level.keep) {
      const auto [first, added] = level.seen.emplace(key.text, key.at.line);
      if (!added)
        out_.error(key.at, "duplicate key '" + shorten(key.text) + "'; first set on line " +
                               std::to_string(first->second) + ", expected it once");
      level.keep = added;
    } else if (key.kind == Kind::map || key.kind == Kind::sequence) {
      out_.error(key.at, "a " + std::string(key.kind == Kind::map ? "map" : "list") +
                             " is not a valid key; expected a name");
    }
    level.key = std::move(key);
  }

  Diagnostics& out_;
  const std::string& text_;
  int source_;
  std::vector<std::size_t> line_starts_{0};
  mutable int last_line_ = -1, last_column_ = 1;
  mutable std::size_t last_offset_ = 0;
  std::vector<Level> stack_;
  YamlNode root_;
};

// yaml-cpp's message for malformed structure, in terms of the text that the user wrote.
std::string explain(const std::string& message) {
  if (message == "illegal map value")
    return "unexpected ':'; expected one 'key: value' per line, with all keys of a section "
           "indented equally";
  if (message.find("flow") != std::string::npos)
    return "syntax error inside brackets; expected ',' or a closing bracket";
  if (message.find("end of map") != std::string::npos)
    return "this line does not belong to the section above; expected 'key: value' with the "
           "indentation of its neighbors";
  if (message.find("end of sequence") != std::string::npos)
    return "this line does not belong to the list above; expected '- item' with the indentation of "
           "its neighbors";
  if (message == "illegal block entry")
    return "a list cannot start here; expected it on the lines below the key, or as [a, b]";
  if (message.find("escape") != std::string::npos)
    return message + "; expected a YAML escape such as \\n, \\\\ or \\\", or single quotes";
  return "invalid YAML (" + message + "); expected 'key: value' lines";
}

// The help that fits most broken lines: a line above with no separator, or none after the colon.
std::string line_help(const std::string& text, int line) {
  std::istringstream lines(text);
  std::string s;
  int number = 0;
  for (std::string l; number < line && std::getline(lines, l); ++number) {
    const auto from = l.find_first_not_of(' ');
    if (number + 1 >= line || from == std::string::npos || l[from] == '#') continue;
    const auto colon = l.find(':');
    s = colon == std::string::npos && l[from] != '-'
            ? "line " + std::to_string(number + 1) + " has no ':' after its key"
        : colon != std::string::npos && colon + 1 < l.size() && l[colon + 1] != ' ' &&
                l.find(": ") == std::string::npos
            ? "line " + std::to_string(number + 1) + " has no space after ':'"
            : "";
  }
  return s;
}

std::optional<YamlNode> parse(Diagnostics& out, int source) {
  const std::size_t before = out.count();
  if (!scan_yaml(out, source)) return std::nullopt;
  TreeBuilder builder(out, source), rest(out, source);
  std::istringstream stream(out.text(source));
  try {
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    YamlNode root = builder.take();
    if (parser.HandleNextDocument(rest)) {
      const YamlNode extra = rest.take();
      out.error(extra.at, "text after the end of the document; expected the end of the file",
                "start all top-level keys in the same column");
      return std::nullopt;
    }
    return root;
  } catch (const YAML::Exception& e) {
    if (out.count() == before)
      out.error(builder.place(e.mark), explain(e.msg),
                line_help(out.text(source), e.mark.line + 1));
  } catch (const TreeBuilder::Stop&) {
  }
  return std::nullopt;
}

}  // namespace

YamlNode* YamlNode::find(std::string_view key) {
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (keys[i].text == key) return &items[i];
  return nullptr;
}

YamlNode& YamlNode::add(YamlNode key, YamlNode value) {
  keys.push_back(std::move(key));
  items.push_back(std::move(value));
  return items.back();
}

bool read_yaml_file(const std::string& path, Diagnostics& out, int& source) {
  std::string text(kYamlBytes + 1, '\0');
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || !file.is_open() || (file.gcount() == 0 && errno != 0)) {
    const std::string why = errno ? std::strerror(errno) : "unknown error";
    source = out.add_file(path, "");
    out.error({0, 0, source}, "cannot read the file (" + why + "); expected a YAML configuration");
    return false;
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kYamlBytes) {
    source = out.add_file(path, "");
    out.error({0, 0, source}, "the file is longer than 1 MiB; expected a configuration");
    return false;
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  std::string lines;
  lines.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') lines += text[i];
  source = out.add_file(path, lines);
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    out.error({1, 1, source}, "the text is UTF-16; expected a UTF-8 text file",
              "save the file as UTF-8");
    return false;
  }
  return check_characters(out.text(source), out, source);
}

std::optional<YamlNode> parse_yaml(Diagnostics& out, int source) {
  std::optional<YamlNode> root = parse(out, source);
  if (root && root->kind != Kind::map) {
    out.error(root->at.line ? root->at : Mark{1, 1, source},
              root->kind == Kind::null ? "the file is empty; expected keys with values, in a "
                                         "configuration 'model:', 'data:' and others"
                                       : "the file contains " + describe(*root) +
                                             "; expected sections such as 'model:' and 'data:'");
    return std::nullopt;
  }
  return root;
}

std::optional<YamlNode> parse_yaml_value(Diagnostics& out, int source) {
  const std::string& text = out.text(source);
  const auto from = text.find_first_not_of(" \t"), to = text.find_last_not_of(" \t");
  if (!check_characters(text, out, source)) return std::nullopt;
  if (from == std::string::npos) return YamlNode{.kind = Kind::null, .at = {1, 1, source}};
  const bool address = text[from] == '[' && text[to] != ']' && text.find(']') != text.npos;  // v6
  if (!address && std::string_view("[{\"'").find(text[from]) != std::string_view::npos)
    return parse(out, source);
  const std::string word = text.substr(from, to - from + 1);
  const bool null = word == "null" || word == "~" || word == "Null" || word == "NULL";
  return YamlNode{.kind = null ? Kind::null : Kind::scalar, .at = {1, 1, source}, .text = word};
}

}  // namespace tfm::config
