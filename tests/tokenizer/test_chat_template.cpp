// Where the template of a chat is found, and what it is given.
#include <gtest/gtest.h>

#include <filesystem>

#include "support/data_files.h"
#include "tokenizer/chat_template.h"

namespace tfm::tokenizer::test {
namespace {

using tfm::test::expect_error;
using tfm::test::put;
using tfm::test::TemporaryFolder;
using Value = text::jinja::Value;

class ChatTemplateFiles : public testing::Test {
 protected:
  // The text that a chat is asked to go on with.
  std::string prompt(const std::string& source, const std::string& spec,
                     const std::string& messages = R"([{"role": "user", "content": "q"}])",
                     const Value& tools = nullptr) const {
    const ChatTemplate chat(source, spec, *bytes_);
    return bytes_->decode(chat.prompt({text::jinja::parse_json(messages, "chat"), tools, "chat"}));
  }
  std::string beside(const std::string& name, const std::string& text) const {
    return put(folder_ / name, text);
  }
  std::string spec() const { return folder_.str(); }

  const std::unique_ptr<Tokenizer> bytes_ = load_tokenizer("bytes");
  const TemporaryFolder folder_;
};

TEST_F(ChatTemplateFiles, AreTakenInTheOrderOfTransformers) {
  expect_error(ExitCode::usage, {"no chat template", "chatml"}, [&] { prompt("auto", spec()); });
  expect_error(ExitCode::usage, {"bytes", "no chat template"}, [&] { prompt("auto", "bytes"); });
  beside("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(prompt("auto", spec()), "json");
  beside("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(prompt("auto", spec()), "json");
  beside("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(prompt("auto", spec()), "config");
  beside("chat_template.jinja", "jinja");
  EXPECT_EQ(prompt("auto", spec()), "jinja");
  EXPECT_EQ(prompt("auto", folder_ / "tokenizer.json"), "jinja");  // beside the file
  EXPECT_EQ(prompt(beside("own.jinja", "own"), spec()), "own");
  EXPECT_EQ(prompt(folder_ / "own.jinja", "bytes"), "own");
  EXPECT_EQ(prompt("chatml", spec()), "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
  expect_error(ExitCode::input, {"gone.jinja"}, [&] { prompt(folder_ / "gone.jinja", spec()); });
}

TEST_F(ChatTemplateFiles, OfToolsAreForChatsWithTools) {
  const Value tools = text::jinja::parse_json(R"([{"name": "f"}])", "tools");
  const auto both = [&] {
    return prompt("auto", spec()) + " " +
           prompt("auto", spec(), R"([{"role": "user", "content": "q"}])", tools);
  };
  beside("tokenizer_config.json",
         R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "tool_use", )"
         R"("template": "t"}]})");
  expect_error(ExitCode::usage, {"no chat template of the name default"},
               [&] { prompt("auto", spec()); });
  beside("tokenizer_config.json",
         R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "rag", )"
         R"("template": "r"}]})");
  EXPECT_EQ(both(), "d d");
  beside("tokenizer_config.json",
         R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", )"
         R"("template": "{{ tools[0].name }}"}]})");
  EXPECT_EQ(both(), "d f");
  std::filesystem::create_directory(folder_ / "additional_chat_templates");
  beside("additional_chat_templates/default.txt", "x");
  EXPECT_EQ(both(), "d f");
  beside("additional_chat_templates/tool_use.jinja", "more");
  EXPECT_EQ(both(), "d more");
}

TEST_F(ChatTemplateFiles, AreGivenTheSpecialTokensOfTheConfigurationFirst) {
  beside(
      "chat_template.jinja",
      "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token }}|{{ sep_token }}|"
      "{{ cls_token }}|{{ mask_token }}|{{ add_generation_prompt }}|{{ tools }}|{{ documents }}");
  beside("special_tokens_map.json",
         R"({"bos_token": "<other>", "eos_token": "<other>", "pad_token": {"content": "<pad>"},
             "cls_token": "<cls>", "mask_token": "<mask>"})");
  EXPECT_EQ(prompt("auto", spec()), "<other>|<other>|<pad>|||<cls>|<mask>|True|None|None");
  beside("tokenizer_config.json",
         R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": true},
             "unk_token": "<unk>", "sep_token": "<sep>"})");
  EXPECT_EQ(prompt("auto", spec()), "<s>|</s>|<pad>|<unk>|<sep>|<cls>|<mask>|True|None|None");
}

TEST_F(ChatTemplateFiles, SeeNoNullsAndEachNameOfAThought) {
  beside("chat_template.jinja",
         "{% for m in messages %}{{ 'content' in m }},{{ m.thinking }},{{ m.reasoning_content }},"
         "{{ m.reasoning }};{% endfor %}");
  const auto seen = [&](const std::string& members) {
    return prompt("auto", spec(), R"([{"role": "assistant", )" + members + "}]");
  };
  EXPECT_EQ(seen(R"("content": "x")"), "True,,,;");
  EXPECT_EQ(seen(R"("content": null, "thinking": null)"), "False,,,;");
  EXPECT_EQ(seen(R"("content": "", "thinking": "t")"), "True,t,t,;");
  EXPECT_EQ(seen(R"("content": "", "reasoning": "r")"), "True,r,r,r;");
  EXPECT_EQ(seen(R"("content": "", "reasoning_content": "c")"), "True,c,c,;");
  EXPECT_EQ(seen(R"("content": "", "reasoning": "r", "reasoning_content": null)"), "True,r,r,r;");
  EXPECT_EQ(seen(R"("content": "", "thinking": "t", "reasoning_content": "c")"), "True,t,c,;");
  for (const char* messages : {"[]", "{}", "[1]", R"([{"content": "a"}])", R"([{"role": 1}])"})
    expect_error(ExitCode::input, {"chat: "}, [&] { prompt("auto", spec(), messages); });
}

// Where a template writes no prompt, an answer has to begin by its content, be that text or parts.
TEST_F(ChatTemplateFiles, WithoutAPromptAnswersBeginByTheirContent) {
  const auto encoded = [&](const std::string& before, const std::string& content) {
    beside("chat_template.jinja",
           "{% for m in messages %}{% if m.role == 'assistant' %}" + before +
               "{% endif %}{{ m.content if m.content is string else m.content[0].text }}\n"
               "{% endfor %}");
    return ChatTemplate("auto", spec(), *bytes_)
        .encode({text::jinja::parse_json(
                     R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": )" +
                         content + "}]",
                     "chat"),
                 nullptr, "chat"});
  };
  for (const std::string content : {R"("ab")", R"([{"type": "text", "text": "ab"}])"}) {
    EXPECT_EQ(encoded("", content).turns.size(), 1u) << content;
    expect_error(ExitCode::input, {"begins otherwise than by its content"},
                 [&] { encoded("{{ m.role }}: ", content); });
  }
}

// What the assistant wrote is from the end of the prompt on, and the template's text behind it.
TEST_F(ChatTemplateFiles, OfChatmlMarkWhatTheAssistantWrites) {
  const ChatTemplate chat("chatml", "bytes", *bytes_);
  const EncodedChat encoded =
      chat.encode({text::jinja::parse_json(R"([{"role": "user", "content": "q"},
          {"role": "assistant", "content": "ab"}, {"role": "user", "content": "r"},
          {"role": "assistant", "content": "c"}])",
                                           "chat"),
                   nullptr, "chat"});
  std::string learned;
  for (std::size_t i = 0; i < encoded.ids.size(); ++i)
    if (encoded.mask[i]) learned += static_cast<char>(encoded.ids[i]);
  EXPECT_EQ(learned, "ab<|im_end|>c<|im_end|>");
  const std::string first = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nab<|im_end|>";
  const std::string second =
      first + "\n<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\nc<|im_end|>";
  EXPECT_EQ(encoded.turns, (std::vector<std::size_t>{first.size(), second.size()}));
  EXPECT_EQ(bytes_->decode(encoded.ids), second + "\n");
  EXPECT_FALSE(chat.turn_end());  // no token of its own ends a turn
}

}  // namespace
}  // namespace tfm::tokenizer::test
