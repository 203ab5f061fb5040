#include "text/documents.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strings.h"
#include "io/text_stream.h"

namespace tfm::text {
namespace {

using Json = nlohmann::json;
constexpr std::size_t block_bytes = std::size_t{4} << 20, max_held_bytes = std::size_t{256} << 20;

constexpr const char *chat_field = "messages", *no_chats = "; chats are not supported yet";

// What is said of an object without the field: the fields that it has.
std::string missing_field(std::string_view line, const std::string& field) {
  constexpr std::size_t most = 8;
  std::string names;
  const auto shallow = [](int depth, auto, auto&) { return depth <= 1; };
  const auto object = nlohmann::ordered_json::parse(line, shallow);
  for (std::size_t n = 0; const auto& [name, value] : object.items())
    if (++n <= most + 1) names += n > most ? ", ..." : (n > 1 ? ", " : "") + in_quotes(name);
  if (names.empty()) return "the object has no field \"" + field + "\", and no other";
  return "the object has no field \"" + field + "\"; expected the field of the text in " +
         "data.train.field, or --field of tfm-data: one of " + names +
         (object.contains(chat_field) ? no_chats : "");
}

// Finds one string of the outermost object without building the rest.
class FieldReader final : public nlohmann::json_sax<Json> {
 public:
  FieldReader(const std::string& field, const std::string& where) : field_(field), where_(where) {}
  std::string text;
  bool found = false;

  bool key(string_t& name) override {
    wanted_ = depth_ == 1 && name == field_;
    if (wanted_ && found) fail("appears twice");
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 0) value_outside();
    if (!wanted_) return true;
    text = std::move(value);
    wanted_ = false;
    return found = true;
  }
  bool start_object(std::size_t) override {
    if (wanted_) fail("is not a string" + std::string(field_ == chat_field ? no_chats : ""));
    ++depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) value_outside();
    return start_object(0);
  }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool parse_error(std::size_t byte, const std::string&, const Json::exception& e) override {
    throw Error(ExitCode::input, where_ + ": invalid JSON at byte " + std::to_string(byte) +
                                     " of the line: " + shorten(e.what(), 200));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ExitCode::input, where_ + ": field \"" + field_ + "\" " + what);
  }
  [[noreturn]] void value_outside() const {
    throw Error(ExitCode::input, where_ + ": expected a JSON object");
  }
  bool other() const {
    if (depth_ == 0) value_outside();
    if (wanted_) fail("is not a string");
    return true;
  }

  const std::string &field_, &where_;
  std::int64_t depth_ = 0;
  bool wanted_ = false;
};

class Blocks {
 public:
  explicit Blocks(const std::string& path) : path_(path), file_(path) {}
  // Appends the next block to `held`; false at the end of the file.
  bool more(std::string& held, const std::string& what, const char* expected) {
    if (held.size() > max_held_bytes)
      throw Error(ExitCode::input, path_ + ": " + what + " has more than " +
                                       std::to_string(max_held_bytes) + " bytes; expected " +
                                       expected);
    const std::size_t before = held.size();
    held.resize(before + block_bytes);
    held.resize(before + file_.read(held.data() + before, block_bytes));
    return held.size() > before;
  }

 private:
  const std::string& path_;
  io::TextStream file_;
};

// These return the number of documents without text, as read_documents() does.
std::int64_t read_text(Blocks& blocks, const SafeCut& safe_cut, const TextSink& sink) {
  std::string held;
  bool any = false;
  while (blocks.more(held, "a stretch of text that the tokenizer cannot split",
                     "smaller files, or .jsonl with a document a line")) {
    const std::size_t cut = safe_cut(held);
    if (cut == 0) continue;
    sink(std::string_view(held).substr(0, cut), false);
    held.erase(0, cut);
    any = true;
  }
  if (!any && held.empty()) return 1;
  sink(held, true);
  return 0;
}

std::int64_t read_line(std::string_view line, const std::string& where, const std::string& field,
                       const TextSink& sink) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  const std::size_t begin = line.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
  if (line.find_first_not_of(" \t\r", begin) == line.npos) return 0;
  FieldReader reader(field, where);
  Json::sax_parse(line, &reader);
  if (!reader.found) throw Error(ExitCode::input, where + ": " + missing_field(line, field));
  if (reader.text.empty()) return 1;
  sink(reader.text, true);
  return 0;
}

std::int64_t read_jsonl(Blocks& blocks, const std::string& path, const std::string& field,
                        const TextSink& sink) {
  std::string held;
  std::int64_t number = 0, empty = 0;
  const auto next = [&](std::string_view line) {
    empty += read_line(line, path + ":" + std::to_string(++number), field, sink);
  };
  while (blocks.more(held, "line " + std::to_string(number + 1), "shorter lines")) {
    std::size_t begin = 0;
    for (std::size_t end; (end = held.find('\n', begin)) != held.npos; begin = end + 1)
      next(std::string_view(held).substr(begin, end - begin));
    held.erase(0, begin);
  }
  next(held);
  return empty;
}

}  // namespace

bool is_json_lines(const std::string& path) {
  const std::string_view name = io::without_compression(path);
  for (const std::string_view end : {".jsonl", ".jsonlines", ".jl", ".ndjson"})
    if (ends_with_any_case(name, end)) return true;
  if (!ends_with_any_case(name, ".json") || !std::filesystem::is_regular_file(path)) return false;
  try {
    std::string head(std::size_t{64} << 10, '\0');
    head.resize(io::TextStream(path).read(head.data(), head.size()));
    return io::begins_with_object_line(head);
  } catch (const Error&) {  // whoever reads the file says what is wrong
    return false;
  }
}

std::int64_t read_documents(const std::string& path, const std::string& field,
                            const SafeCut& safe_cut, const TextSink& sink) {
  Blocks blocks(path);
  return is_json_lines(path) ? read_jsonl(blocks, path, field, sink)
                             : read_text(blocks, safe_cut, sink);
}

}  // namespace tfm::text
