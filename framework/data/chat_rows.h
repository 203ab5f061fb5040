#pragma once
// Files of chats: JSON lines.
#include <functional>
#include <string>

#include "tokenizer/chat_template.h"

namespace tfm::data {

// Calls sink(chat) for each line until it returns false. A line is an object with a list of
// messages {"role", "content"} in the member `messages`, with ShareGPT's `conversations` of
// {"from", "value"}, or with `prompt` and `completion` or `response`, which are texts or lists of
// messages; `tools` may be a list, or its JSON as a text. Error(input) names file and line. A line
// for which a LimitError is thrown, by the sink too, goes to `beyond`, if that is given.
using ChatSink = std::function<bool(const tokenizer::Chat& chat)>;
using BeyondSink = std::function<void(const std::string& problem)>;
void each_chat(const std::string& path, const std::string& messages, const ChatSink& sink,
               const BeyondSink& beyond = {});

}  // namespace tfm::data
