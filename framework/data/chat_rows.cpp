#include "data/chat_rows.h"

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "data/lines.h"

namespace tfm::data {
namespace {

using text::jinja::Dict, text::jinja::List, text::jinja::Value;

class ChatRow {
 public:
  ChatRow(const Value& object, std::string where)
      : object_(*object.dict()), where_(std::move(where)) {}

  tokenizer::Chat read(const std::string& messages) const {
    return {messages_of(messages), tools(), where_};
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ExitCode::input, where_ + ": " + problem);
  }
  const Value* find(const std::string& member) const {
    const Value* found = object_.find(member);
    return found && !found->none() ? found : nullptr;
  }
  const List& list(const Value& value, const std::string& member) const {
    if (!value.sequence()) fail("member " + in_quotes(member) + ": expected a list of messages");
    return *value.sequence()->items;
  }

  Value messages_of(const std::string& member) const {
    if (const Value* found = find(member)) {
      list(*found, member);
      return *found;
    }
    if (const Value* found = find("conversations")) return share_gpt(list(*found, "conversations"));
    const Value* const prompt = find("prompt");
    for (const char* name : {"completion", "response"})
      if (const Value* answer = find(name); answer && prompt) return pair(*prompt, *answer, name);
    std::vector<std::string_view> members;
    for (const auto& [key, value] : object_.items()) members.push_back(*key.string());
    fail("expected a member " + in_quotes(member) +
         ", conversations, or prompt and completion; found " +
         (members.empty() ? "none" : shorten(join(members), 200)));
  }

  static Value message(const Value& role, const Value& content) {
    Dict dict;
    dict.set("role", role);
    dict.set("content", content);
    return dict;
  }

  Value share_gpt(const List& turns) const {
    static constexpr std::pair<std::string_view, const char*> roles[] = {
        {"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
        {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"system", "system"},
        {"tool", "tool"},           {"observation", "tool"},  {"function_response", "tool"}};
    List messages;
    if (const Value* system = find("system");
        system && system->string() && !system->string()->empty())
      messages.push_back(message("system", *system));
    for (std::size_t number = 1; const Value& turn : turns) {
      const std::string place = "conversations: turn " + std::to_string(number++) + ": ";
      const Value* const from = turn.dict() ? turn.dict()->find("from") : nullptr;
      const Value* const value = turn.dict() ? turn.dict()->find("value") : nullptr;
      if (!from || !from->string() || !value || !value->string())
        fail(place + "expected an object with texts from and value");
      const auto role = std::ranges::find(roles, *from->string(),
                                          &std::pair<std::string_view, const char*>::first);
      if (role == std::end(roles))
        fail(place + "from: " + in_quotes(*from->string()) +
             " is not known; expected human, gpt, system or tool");
      messages.push_back(message(role->second, *value));
    }
    return Value::sequence(std::move(messages));
  }

  Value pair(const Value& prompt, const Value& answer, const std::string& name) const {
    List messages;
    for (const auto& [value, member, role] :
         {std::tuple{&prompt, std::string("prompt"), "user"}, {&answer, name, "assistant"}}) {
      if (value->string()) {
        messages.push_back(message(role, *value));
        continue;
      }
      if (!value->sequence())
        fail("member " + in_quotes(member) + ": expected a text or a list of messages");
      messages.insert(messages.end(), value->sequence()->items->begin(),
                      value->sequence()->items->end());
    }
    return Value::sequence(std::move(messages));
  }

  Value tools() const {
    const Value* found = find("tools");
    if (!found) return nullptr;
    const Value all = found->string() && !found->string()->empty()
                          ? text::jinja::parse_json(*found->string(), where_ + ": tools")
                          : *found;
    if (found->string() && found->string()->empty()) return nullptr;
    if (!all.sequence() || !std::ranges::all_of(*all.sequence()->items,
                                                [](const Value& v) { return v.dict() != nullptr; }))
      fail("member 'tools': expected a list of objects");
    return all;
  }

  const Dict& object_;
  std::string where_;
};

}  // namespace

void each_chat(const std::string& path, const std::string& messages, const ChatSink& sink,
               const BeyondSink& beyond) {
  Lines lines(path);
  bool any = false;
  while (lines.next()) {
    if (lines.line().find_first_not_of(" \t\r") == std::string_view::npos) continue;
    any = true;
    try {
      const Value object = text::jinja::parse_json(lines.line(), lines.where());
      if (!object.dict())
        throw Error(ExitCode::input, lines.where() + ": expected an object with messages");
      if (!sink(ChatRow(object, lines.where()).read(messages))) return;
    } catch (const text::jinja::LimitError& e) {
      if (!beyond) throw;
      beyond(e.what());
    } catch (const text::jinja::Exceeded& e) {
      if (!beyond) throw text::jinja::LimitError(lines.where() + ": " + e.what());
      beyond(lines.where() + ": " + e.what());
    }
  }
  if (!any)
    throw Error(ExitCode::input, path + ": the file has no chats; expected a JSON object a line");
}

}  // namespace tfm::data
