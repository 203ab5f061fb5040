#include "tokenizer/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strings.h"
#include "io/file.h"
#include "io/json.h"
#include "text/unicode.h"
#include "tokenizer/tokenizer_config.h"

namespace tfm::tokenizer {
namespace {

namespace jinja = text::jinja;
namespace fs = std::filesystem;
constexpr std::size_t most_bytes = std::size_t{1} << 20;

constexpr const char* chatml =
    "{% macro refuse(what) %}{{ raise_exception('chatml has no place for ' ~ what ~ '; name the "
    "file "
    "of a template that has in data.train.template or --template') }}{% endmacro %}"
    "{% if tools %}{{ refuse('tools') }}{% endif %}"
    "{% for message in messages %}{% if message.tool_calls %}{{ refuse('tool_calls') }}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\\n' }}"
    "{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

std::string folder_of(const std::string& spec) {
  if (fs::is_directory(spec)) return spec;
  return is_bytes(spec) ? "" : fs::path(spec).parent_path().string();
}

// Templates by name; one without a name is the default.
using Sources = std::map<std::string, std::string>;
Sources read_member(const io::JsonNode& node) {
  Sources sources;
  if (const auto all = node.find("chat_template")) {
    if (!all->is_array()) return {{"default", all->string()}};
    for (const io::JsonNode& one : all->items())
      sources[one.at("name").string()] = one.at("template").string();
  }
  return sources;
}

Sources find_main_sources(const std::string& base, std::string& file) {
  file = base + "/chat_template.jinja";
  if (fs::exists(file)) return {{"default", io::read_whole_file(file, most_bytes)}};
  for (const char* name : {tokenizer_config_file, "/chat_template.json"}) {
    file = base + name;
    if (!fs::exists(file)) continue;
    const nlohmann::json tree = io::read_json_file(file, std::size_t{64} << 20);
    if (Sources sources = read_member(io::JsonNode(tree, file)); !sources.empty()) return sources;
  }
  return {};
}

Sources find_sources(const std::string& folder, std::string& file) {
  const std::string base = folder.empty() ? "." : folder;
  Sources sources = find_main_sources(base, file);
  const fs::path more = base + "/additional_chat_templates";
  if (fs::is_directory(more))
    for (const auto& e : fs::directory_iterator(more))
      if (e.path().extension() == ".jinja")
        sources[e.path().stem().string()] = io::read_whole_file(e.path().string(), most_bytes);
  return sources;
}

jinja::Dict read_special_tokens(const std::string& folder) {
  jinja::Dict tokens;
  for (const char* name : {tokenizer_config_file, "/special_tokens_map.json"}) {
    const std::string path = folder + name;
    if (folder.empty() || !fs::exists(path)) continue;
    const nlohmann::json tree = io::read_json_file(path, std::size_t{64} << 20);
    const io::JsonNode config(tree, path);
    for (const char* member : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                               "cls_token", "mask_token"})
      if (const auto node = config.find(member); node && !tokens.find(jinja::Value(member)))
        tokens.set(member, read_config_token(*node, {}).content);
  }
  return tokens;
}

[[noreturn]] void fail(const jinja::Template& t, const std::string& problem) {
  throw Error(
      ExitCode::input,
      "the template " + t.name() + " " + problem +
          ", so that the assistant's tokens cannot be told; expected {% generation %} and {% "
          "endgeneration %} around what the assistant writes");
}

// The messages as transformers hands them to templates: without members that are null, and with
// every name that a thought has.
jinja::Value prepared(const jinja::Value& messages) {
  const auto refuse = [](const std::string& problem) { throw Error(ExitCode::input, problem); };
  const jinja::Sequence* const all = messages.sequence();
  if (!all || all->items->empty()) refuse("expected a list of at least one message");
  jinja::List result;
  for (const jinja::Value& message : *all->items) {
    const std::string place = "message " + std::to_string(result.size() + 1);
    if (!message.dict()) refuse(place + ": expected an object with a role and a content");
    const jinja::Value* const role = message.dict()->find("role");
    if (!role || !role->string()) refuse(place + ": expected a member role, a text");
    jinja::Value thought;
    for (const char* name : {"reasoning_content", "thinking", "reasoning"})
      if (const auto* v = message.dict()->find(name); v && !v->none() && thought.undefined())
        thought = *v;
    jinja::Dict copy;
    if (!thought.undefined()) copy.set("thinking", thought);
    for (const auto& [key, value] : message.dict()->items())
      if (!value.none()) copy.set(key, value);
    if (!thought.undefined()) copy.set("reasoning_content", thought);
    result.emplace_back(std::move(copy));
  }
  return jinja::Value::sequence(std::move(result));
}

const std::string& role_of(const jinja::Value& messages, std::size_t index) {
  return *(*messages.sequence()->items)[index].dict()->find("role")->string();
}

// The text that a message's content begins with, without space around it.
std::string beginning_of(const jinja::Value& messages, std::size_t index) {
  const jinja::Value* content = (*messages.sequence()->items)[index].dict()->find("content");
  if (content && content->sequence() && !content->sequence()->items->empty())
    content = &content->sequence()->items->front();
  if (content && content->dict()) content = content->dict()->find("text");
  if (!content || !content->string()) return "";
  return std::string(text::stripped(*content->string(), true, true));
}

// An error of one chat begins with its place.
template <class F>
auto at_row(const Chat& chat, F&& f) {
  try {
    return f();
  } catch (const jinja::LimitError& e) {
    throw jinja::LimitError(chat.where + ": " + e.what());
  } catch (const jinja::Exceeded& e) {
    throw jinja::LimitError(chat.where + ": " + e.what());
  } catch (const Error& e) {
    throw Error(e.code(), chat.where + ": " + e.what());
  } catch (const jinja::Problem& e) {
    throw Error(ExitCode::input, chat.where + ": " + e.what());
  }
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& source, const std::string& spec,
                           const Tokenizer& tokenizer, std::optional<std::time_t> now)
    : tokenizer_(tokenizer), now_(now), special_(read_special_tokens(folder_of(spec))) {
  std::string file = source;
  Sources sources;
  if (source == "chatml")
    sources["default"] = chatml;
  else if (source != "auto" && !fs::exists(source))
    throw Error(ExitCode::input, "the template " + source +
                                     " is not there; expected auto, chatml, or the file of a "
                                     "template in data.train.template or --template");
  else if (source != "auto")
    sources["default"] = io::read_whole_file(source, most_bytes);
  else if (!is_bytes(spec))
    sources = find_sources(folder_of(spec), file);
  if (!sources.contains("default"))
    throw Error(
        ExitCode::usage,
        "the tokenizer " + spec + " has no chat template" +
            (sources.empty() ? "" : " of the name default") +
            " (chat_template.jinja, or chat_template in tokenizer_config.json); expected one, "
            "`chatml`, or the file of a template");
  template_.emplace(sources["default"], file);
  if (sources.contains("tool_use")) with_tools_.emplace(sources["tool_use"], file + " (tool_use)");
}

const jinja::Template& ChatTemplate::template_for(const Chat& chat) const {
  return with_tools_ && !chat.tools.none() ? *with_tools_ : *template_;
}

jinja::Rendering ChatTemplate::render(const Chat& chat, std::size_t messages, bool prompt) const {
  jinja::Dict variables = special_;
  const jinja::List& all = *chat.messages.sequence()->items;
  variables.set(
      "messages",
      jinja::Value::sequence({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(messages)}));
  variables.set("tools", chat.tools);
  variables.set("documents", nullptr);
  variables.set("add_generation_prompt", prompt);
  return template_for(chat).render(variables, now_);
}

// What a template writes before the answer to the first messages of a chat, which begins at `begin`
// of `whole`, the text of the chat. A template may write earlier turns otherwise once a later one
// follows; the prompt is then what it adds to the text of the first messages.
std::string ChatTemplate::generation_prompt(const Chat& chat, std::size_t messages,
                                            std::string_view whole, std::size_t begin) const {
  const jinja::Rendering with = render(chat, messages, true);
  if (whole.starts_with(with.text) && with.text.size() >= begin) return with.text.substr(begin);
  const std::string without = render(chat, messages, false).text;
  if (with.text.starts_with(without)) return with.text.substr(without.size());
  std::size_t end = 0;  // of what belongs to messages
  for (const auto& spans : with.messages)
    if (!spans.empty()) end = std::max(end, spans.back().end);
  return with.text.substr(end);
}

// The bytes of an answer's text that its prompt has written. A prompt may open a thought that the
// text of the answer leaves out; it then counts up to the special token that both begin with.
std::size_t ChatTemplate::written_by(const std::string& prompt, std::string_view text,
                                     const std::function<void()>& otherwise) const {
  const auto common =
      static_cast<std::size_t>(std::ranges::mismatch(prompt, text).in1 - prompt.begin());
  if (common == prompt.size()) return common;
  const std::vector<std::int32_t> ids = tokenizer_.encode(text.substr(0, common));
  if (ids.empty() || !tokenizer_.is_added(ids.back())) otherwise();
  return common;
}

std::vector<ChatTemplate::Turn> ChatTemplate::marked_turns(const jinja::Rendering& r) {
  std::vector<Turn> turns;
  for (const jinja::Span& span : r.generations) {
    std::size_t message = r.messages.size() + turns.size();  // one of its own, if none is known
    for (std::size_t i = 0; i < r.messages.size(); ++i)
      for (const jinja::Span& part : r.messages[i])
        if (span.begin >= part.begin && span.begin < part.end) message = i;
    turns.push_back({span, span.end, message});
  }
  return turns;
}

std::vector<ChatTemplate::Turn> ChatTemplate::turns_of(const Chat& chat,
                                                       const jinja::Rendering& r) const {
  const jinja::Template& t = template_for(chat);
  if (t.marks_generations()) return marked_turns(r);
  std::vector<Turn> turns;
  std::optional<std::string> prompt;        // of the answer at hand, then of the one behind it
  std::optional<std::size_t> bare, headed;  // answers before which nothing is written, something
  for (std::size_t i = r.messages.size(); i-- > 0;) {
    if (role_of(chat.messages, i) != "assistant") continue;
    const std::string number = std::to_string(i + 1);
    if (r.messages[i].size() != 1)
      fail(t, "does not write message " + number + " at one place, in a loop over the messages");
    const jinja::Span part = r.messages[i][0];
    const std::string_view text =
        std::string_view(r.text).substr(part.begin, part.end - part.begin);
    if (i > 0) prompt = generation_prompt(chat, i, r.text, part.begin);
    if (!prompt) fail(t, "writes no prompt before message 1, which is the assistant's");
    const std::size_t written = written_by(*prompt, text, [&] {
      fail(t, "begins message " + number + " otherwise than by its generation prompt " +
                  in_quotes(*prompt));
    });
    const std::string content = beginning_of(chat.messages, i);
    if (written > 0)
      headed = i;
    else if (content.empty())
      bare = i;
    else if (!text::stripped(text, true, false).starts_with(content))
      fail(t, "has no generation prompt before message " + number +
                  ", which begins otherwise than by its content");
    turns.push_back({{part.begin + written, part.end},
                     part.begin + std::max(text::stripped(text, false, true).size(), written),
                     i});
  }
  if (bare && headed)
    fail(t, "has a generation prompt before message " + std::to_string(*headed + 1) +
                ", and none before message " + std::to_string(*bare + 1));
  std::ranges::reverse(turns);
  return turns;
}

EncodedChat ChatTemplate::encode(const Chat& given) const {
  return at_row(given, [&] {
    const Chat chat{prepared(given.messages), given.tools, given.where};
    const jinja::Rendering r = render(chat, chat.messages.sequence()->items->size(), false);
    const std::vector<Turn> turns = turns_of(chat, r);
    std::vector<std::size_t> offsets;
    for (const Turn& turn : turns) {
      offsets.insert(offsets.end(), {turn.span.begin, turn.without_space, turn.span.end});
    }
    // Blocks of generation may lie within each other.
    std::vector<std::size_t> ascending = offsets;
    std::ranges::sort(ascending);
    std::vector<Tokenizer::Cut> cuts;
    EncodedChat result;
    result.ids = tokenizer_.encode_with_cuts(r.text, ascending, cuts);
    result.mask.resize(result.ids.size());
    const auto cut_at = [&](std::size_t offset) {
      return cuts[static_cast<std::size_t>(std::ranges::lower_bound(ascending, offset) -
                                           ascending.begin())];
    };
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const auto [span, without_space, message] = turns[i];
      const Tokenizer::Cut begin = cut_at(span.begin), last = cut_at(without_space);
      const bool closed = last.tokens > begin.tokens && !last.within &&
                          tokenizer_.is_added(result.ids[last.tokens - 1]);
      const Tokenizer::Cut end = closed ? last : cut_at(span.end);
      const std::size_t stop = end.tokens + end.within;
      for (std::size_t k = begin.tokens; k < stop; ++k) result.mask[k] = 1;
      if (i + 1 == turns.size() || turns[i + 1].message != message) result.turns.push_back(stop);
    }
    return result;
  });
}

std::optional<std::int32_t> ChatTemplate::turn_end() const try {
  const EncodedChat chat = encode({jinja::parse_json(R"([{"role": "user", "content": "a"},
                                    {"role": "assistant", "content": "b"}])",
                                                     "a chat"),
                                   nullptr, "a chat of two turns"});
  for (std::size_t i = chat.ids.size(); i-- > 0;)
    if (chat.mask[i])
      return tokenizer_.is_added(chat.ids[i]) ? std::optional(chat.ids[i]) : std::nullopt;
  return std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

std::vector<std::int32_t> ChatTemplate::prompt(const Chat& given) const {
  return at_row(given, [&] {
    const Chat chat{prepared(given.messages), given.tools, given.where};
    return tokenizer_.encode(render(chat, chat.messages.sequence()->items->size(), true).text);
  });
}

}  // namespace tfm::tokenizer
