#pragma once
// Chats as token ids, with the tokens that an assistant wrote, by the chat template of a tokenizer.
//
// Ids are those of transformers' apply_chat_template: special tokens of the text become their ids,
// none is added around it. The assistant's tokens are those that overlap what the template marks by
// {% generation %}, as return_assistant_tokens_mask has it. A template without such blocks is taken
// to write a message while a loop stands at it; of an assistant's message, the model writes what
// follows the generation prompt before it, up to and with the token that ends the turn.
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/template.h"
#include "tokenizer/tokenizer.h"

namespace tfm::tokenizer {

struct Chat {
  text::jinja::Value messages;         // a list of objects with a `role`
  text::jinja::Value tools = nullptr;  // a list, or None
  std::string where;                   // file and line, for messages
};

struct EncodedChat {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> mask;  // 1: the assistant wrote it
  // Tokens up to and with the end of each turn of the assistant.
  std::vector<std::size_t> turns;
};

class ChatTemplate {
 public:
  // `source`: auto, for the template beside the tokenizer (chat_template.jinja, or the member
  // chat_template of tokenizer_config.json or chat_template.json, and others by name in
  // additional_chat_templates); chatml; or a file.
  // `spec`: as of load_tokenizer(). `now`: for templates that ask for the date. Error(usage) if
  // there is no template, Error(input) for one that cannot be read. `tokenizer` must outlive it.
  ChatTemplate(const std::string& source, const std::string& spec, const Tokenizer& tokenizer,
               std::optional<std::time_t> now = std::nullopt);

  // Error(input), which begins with chat.where, for messages that are none, that the template
  // refuses, or in which the assistant's part cannot be told; LimitError for too long ones.
  EncodedChat encode(const Chat& chat) const;
  // The ids of a chat that the assistant is asked to go on with.
  std::vector<std::int32_t> prompt(const Chat& chat) const;
  // The token that ends a turn of the assistant, if one does and the assistant's part can be told.
  std::optional<std::int32_t> turn_end() const;

 private:
  struct Turn {
    text::jinja::Span span;     // what the assistant wrote
    std::size_t without_space;  // its end before white space
    std::size_t message;
  };
  const text::jinja::Template& template_for(const Chat& chat) const;
  text::jinja::Rendering render(const Chat& chat, std::size_t messages, bool prompt) const;
  std::vector<Turn> turns_of(const Chat& chat, const text::jinja::Rendering& rendering) const;
  static std::vector<Turn> marked_turns(const text::jinja::Rendering& rendering);
  std::string generation_prompt(const Chat& chat, std::size_t messages, std::string_view whole,
                                std::size_t begin) const;
  // `otherwise` throws: the text begins otherwise than by the prompt.
  std::size_t written_by(const std::string& prompt, std::string_view text,
                         const std::function<void()>& otherwise) const;

  const Tokenizer& tokenizer_;
  std::optional<std::time_t> now_;
  std::optional<text::jinja::Template> template_, with_tools_;
  text::jinja::Dict special_;  // bos_token, eos_token, ... as texts
};

}  // namespace tfm::tokenizer
