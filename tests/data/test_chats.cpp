// Conversations: what a batch holds, how they are packed, cut and left out.
#include <gtest/gtest.h>

#include "data/chat_rows.h"
#include "data/chats.h"
#include "data/objective.h"
#include "support/data_files.h"

namespace tfm {
namespace {

using test::Ids;
using test::put;
using test::TemporaryFolder;

const std::unique_ptr<tokenizer::Tokenizer> kBytesOfChats = tokenizer::load_tokenizer("bytes");

// Writes a chat as >question answer; with the mask on "answer;".
constexpr const char* kChatTemplate =
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }};"
    "{% endgeneration %}{% else %}>{{ m.content }}{% endif %}{% endfor %}";

std::string chat_row(std::initializer_list<const char*> texts) {
  std::string messages;
  bool user = true;
  for (const char* text : texts) {
    messages += (messages.empty() ? "" : ", ") + std::string(R"({"role": ")") +
                (user ? "user" : "assistant") + R"(", "content": ")" + text + "\"}";
    user = !user;
  }
  return R"({"messages": [)" + messages + "]}\n";
}

struct OpenedChats {
  TemporaryFolder folder;
  config::Config config;
  config::SourceConfig source;
  OpenedChats(const std::string& rows, std::int64_t length, std::int64_t batch = 1) {
    config.train.seq_len = length;
    config.train.global_batch_size = batch;
    config.train.seed = 3;
    config.model.vocab_size = 260;
    source.type = "chat";
    source.chat_template = put(folder / "t.jinja", kChatTemplate);
    source.paths = {{put(folder / "rows.jsonl", rows)}};
  }
  data::Chats chats(bool endless = false) const {
    return {config, source, *kBytesOfChats, endless};
  }
};

struct ChatBatch {
  Ids ids, labels, mask;
  ChatBatch(const data::Dataset& d, std::int64_t index, std::int64_t first, std::int64_t count,
            std::int64_t length) {
    const auto size = static_cast<std::size_t>(count * length);
    ids.resize(size, -99), labels.resize(size, -99), mask.resize(size, -99);
    d.fill(index, first, count, {{Field::ids, ids}, {Field::labels, labels}, {Field::mask, mask}});
  }
};

TEST(Chats, LearnWhatTheAssistantWrote) {
  const OpenedChats o(chat_row({"q", "ab"}) + chat_row({"x", "y"}), 8);
  const data::Chats chats = o.chats();
  EXPECT_EQ(chats.chats(), 2);
  ASSERT_EQ(chats.sequences(), 1);
  const ChatBatch b(chats, 0, 0, 1, 8);
  EXPECT_EQ(b.ids, (Ids{'>', 'q', 'a', 'b', '>', 'x', 'y', 0}));
  EXPECT_EQ(b.labels, (Ids{-1, 'a', 'b', ';', -1, 'y', ';', -1}));
  EXPECT_EQ(b.mask, (Ids{0, 0, 0, 0, 1, 1, 1, -1}));
}

// Inputs of 6, 5, 4, 3 and 3 places in sequences of 9: each goes where it leaves the least room.
TEST(Chats, ArePackedByBestFit) {
  const OpenedChats o(chat_row({"q", "1"}) + chat_row({"q", "1234"}) + chat_row({"q", "12"}) +
                          chat_row({"q", "2"}) + chat_row({"q", "123"}),
                      9);
  const data::Chats chats = o.chats();
  ASSERT_EQ(chats.sequences(), 3);
  EXPECT_EQ(ChatBatch(chats, 0, 0, 1, 9).mask, (Ids{0, 0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(ChatBatch(chats, 1, 0, 1, 9).mask, (Ids{0, 0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(ChatBatch(chats, 2, 0, 1, 9).mask, (Ids{0, 0, 0, -1, -1, -1, -1, -1, -1}));
}

TEST(Chats, EndWithATurnThatFits) {
  const OpenedChats o(chat_row({"q", "ab", "r", "cdefgh"}) + chat_row({"question", "a"}) +
                          chat_row({"q"}) + chat_row({"q", "abc"}),
                      5);
  const data::Chats chats = o.chats();
  EXPECT_EQ(chats.chats(), 2);
  EXPECT_EQ(chats.cut(), 1);
  EXPECT_EQ(chats.too_long(), 1);
  EXPECT_EQ(chats.unanswered(), 1);
  EXPECT_EQ(ChatBatch(chats, 0, 0, 1, 5).ids, (Ids{'>', 'q', 'a', 'b', 0}));
  EXPECT_EQ(ChatBatch(chats, 1, 0, 1, 5).ids, (Ids{'>', 'q', 'a', 'b', 'c'}));
  test::expect_error(ExitCode::input, {"no conversation is left"},
                     [] { OpenedChats(chat_row({"q"}), 5).chats(); });
}

TEST(Chats, AnAnswerMayEndWithTheLastLabelOfASequence) {
  const OpenedChats o(chat_row({"q", "abc", "r", "defgh"}), 5);
  const data::Chats chats = o.chats();
  ASSERT_EQ(chats.chats(), 1);
  EXPECT_EQ(chats.cut(), 1);
  EXPECT_EQ(ChatBatch(chats, 0, 0, 1, 5).labels, (Ids{-1, 'a', 'b', 'c', ';'}));
}

// The first token of a sequence is no label.
TEST(Chats, OfOneAnsweredTokenAreLeftOut) {
  OpenedChats o(chat_row({"q", "a"}) + R"({"messages": [{"role": "assistant", "content": ""}]})",
                5);
  const data::Chats chats = o.chats();
  EXPECT_EQ(chats.chats(), 1);
  EXPECT_EQ(chats.unanswered(), 1);
}

TEST(Chats, BeyondTheLimitsAreLeftOut) {
  const std::string large = "{\"messages\": [" + std::string(R"({"role": "user", "content": ")") +
                            std::string(9'000'000, 'a') + "\"}]}\n";
  OpenedChats o(large + chat_row({"q", "a"}) + chat_row({"loop", "a"}), 5);
  put(o.folder / "t.jinja",
      std::string(kChatTemplate) +
          "{% if messages[0].content == 'loop' %}{% for a in range(2000) %}{% for b in range(2000) "
          "%}{% endfor %}{% endfor %}{% endif %}");
  const data::Chats chats = o.chats();
  EXPECT_EQ(chats.chats(), 1);
  EXPECT_EQ(chats.beyond(), 2);
  EXPECT_NE(chats.first_beyond().find("rows.jsonl:1: "), std::string::npos);
}

// The ways in which rows write a conversation, and whose its turns are.
TEST(Chats, RowsOfEveryForm) {
  const TemporaryFolder folder;
  const auto rows = [&](const std::string& row, const std::string& member = "messages") {
    std::string all;
    data::each_chat(put(folder / "rows.jsonl", row + "\n"), member, [&](const auto& chat) {
      for (const auto& message : *chat.messages.sequence()->items)
        all += *message.dict()->find("role")->string() + ":" +
               *message.dict()->find("content")->string() + " ";
      if (!chat.tools.none())
        all += "tools " + std::to_string(chat.tools.sequence()->items->size());
      return true;
    });
    return all;
  };
  const std::string one = R"([{"role": "user", "content": "q"}])";
  EXPECT_EQ(rows(R"({"messages": )" + one + "}"), "user:q ");
  EXPECT_EQ(rows(R"({"chat": )" + one + "}", "chat"), "user:q ");
  EXPECT_EQ(rows(R"({"messages": null, "conversations": [{"from": "human", "value": "q"}]})"),
            "user:q ");
  for (const auto& [from, role] : {std::pair{"human", "user"},
                                   {"user", "user"},
                                   {"gpt", "assistant"},
                                   {"assistant", "assistant"},
                                   {"chatgpt", "assistant"},
                                   {"system", "system"},
                                   {"tool", "tool"},
                                   {"observation", "tool"},
                                   {"function_response", "tool"}})
    EXPECT_EQ(
        rows(std::string(R"({"conversations": [{"from": ")") + from + R"(", "value": "x"}]})"),
        std::string(role) + ":x ");
  const std::string turn = R"("conversations": [{"from": "human", "value": "q"}])";
  EXPECT_EQ(rows(R"({"system": "s", )" + turn + "}"), "system:s user:q ");
  for (const char* none : {R"("")", "null", "1"})
    EXPECT_EQ(rows(std::string(R"({"system": )") + none + ", " + turn + "}"), "user:q ");
  for (const char* name : {"completion", "response"}) {
    EXPECT_EQ(rows(std::string(R"({"prompt": "p", ")") + name + R"(": "a"})"),
              "user:p assistant:a ");
    EXPECT_EQ(rows(std::string(R"({"prompt": )") + one + R"(, ")" + name +
                   R"(": [{"role": "assistant", "content": "b"}]})"),
              "user:q assistant:b ");
  }
  EXPECT_EQ(rows(R"({"prompt": "p", "completion": "c", "response": "r"})"), "user:p assistant:c ");
  EXPECT_EQ(rows(R"({"prompt": "p", "completion": null, "response": "r"})"), "user:p assistant:r ");
  const auto tools = [&](const std::string& value) {
    return rows(R"({"messages": )" + one + R"(, "tools": )" + value + "}");
  };
  EXPECT_EQ(tools("null"), "user:q ");
  EXPECT_EQ(tools(R"("")"), "user:q ");
  EXPECT_EQ(tools("[]"), "user:q tools 0");
  EXPECT_EQ(tools(R"([{"name": "f"}, {"name": "g"}])"), "user:q tools 2");
  EXPECT_EQ(tools(R"("[{\"name\": \"f\"}]")"), "user:q tools 1");
  for (const char* bad : {"[1]", "{}", "1", R"("{}")"})
    test::expect_error(ExitCode::input, {"rows.jsonl:1", "'tools'"}, [&] { tools(bad); });
  test::expect_error(ExitCode::input, {"rows.jsonl:1", "turn 1", "'bot'"},
                     [&] { rows(R"({"conversations": [{"from": "bot", "value": "x"}]})"); });
  test::expect_error(ExitCode::input, {"rows.jsonl:1", "turn 2"}, [&] {
    rows(R"({"conversations": [{"from": "human", "value": "x"}, {"from": "gpt"}]})");
  });
  test::expect_error(ExitCode::input, {"'messages'", "list of messages"},
                     [&] { rows(R"({"messages": "x"})"); });
  test::expect_error(ExitCode::input, {"'messages'", "found completion"},
                     [&] { rows(R"({"completion": "x"})"); });
  test::expect_error(ExitCode::input, {"no chats"}, [&] { rows(" \t\r\n\n"); });
}

// Each of the remarks on what is left out or repeated.
TEST(Chats, NotesCountConversationsAndSequences) {
  OpenedChats o(chat_row({"q", "ab", "r", "cdefgh"}) + chat_row({"question", "a"}) +
                    chat_row({"q"}) + chat_row({"q", "a"}) + chat_row({"q", "b"}),
                6, 2);
  o.config.data.train = o.source;
  const auto notes = [&](std::int64_t batch, bool endless) {
    o.config.train.global_batch_size = batch;
    data::Opening opening{o.config, o.config.data.train, *kBytesOfChats, endless};
    data::chat_objective().open(opening);
    return opening.notes;
  };
  // Of 4, 3 and 3 places in sequences of 6.
  const std::vector<std::string> usual = {
      "data.train: 3 conversations in 2 sequences",
      "data.train: 1 conversation exceeded train.seq_len = 6 tokens and end with an earlier turn",
      "data.train: 1 conversation left out: the first answer ends beyond train.seq_len = 6 tokens",
      "data.train: 1 conversation left out: the assistant wrote nothing"};
  EXPECT_EQ(notes(2, true), usual);
  ASSERT_EQ(notes(3, true).size(), 5u);
  EXPECT_NE(notes(3, true)[4].find("2 sequences for a train.global_batch_size of 3"),
            std::string::npos);
  EXPECT_EQ(notes(3, false).size(), 4u);
  EXPECT_TRUE(notes(3, false)[0].starts_with("data.validation: 3 conversations"));
}

TEST(Chats, PartsMakeTheWhole) {
  std::string rows;
  for (int i = 0; i < 40; ++i)
    rows += chat_row({"q", std::string(static_cast<std::size_t>(i % 7), 'a').c_str()});
  OpenedChats o(rows, 12, 4);
  o.source.shuffle = true;
  const data::Chats chats = o.chats(true), again = o.chats(true);
  for (std::int64_t index = 0; index < 6; ++index) {
    const ChatBatch whole(chats, index, 0, 4, 12), left(again, index, 0, 1, 12),
        right(again, index, 1, 3, 12);
    Ids joined = left.labels;
    joined.insert(joined.end(), right.labels.begin(), right.labels.end());
    EXPECT_EQ(joined, whole.labels);
  }
}

}  // namespace
}  // namespace tfm
