// Conversations: what a batch holds, how they are packed, cut and left out.
#include <gtest/gtest.h>

#include "data/chats.h"
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
