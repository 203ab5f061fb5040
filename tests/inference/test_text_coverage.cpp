#include <gtest/gtest.h>
#include <sys/stat.h>

#include "inference/text_coverage.h"
#include "support/data_files.h"

namespace tfm {
namespace {

using test::put;
const std::string fixtures = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

data::SourceSpec text_of(const std::string& path) { return {.text = true, .paths = {{path}}}; }

void expect_coverage(const std::optional<inference::TextCoverage>& c, std::int64_t labels,
                     std::int64_t bytes, std::int64_t words) {
  ASSERT_TRUE(c);
  EXPECT_EQ(c->labels, labels);
  EXPECT_EQ(c->bytes, bytes);
  EXPECT_EQ(c->words, words);
}

TEST(TextCoverage, LeavesOutWhatIsNotPredicted) {
  const test::TemporaryFolder folder;
  const auto bytes = tokenizer::load_tokenizer("bytes");
  auto plain = text_of(put(folder / "a.txt", "ab cd efg hi"));
  expect_coverage(inference::text_coverage(plain, *bytes, 4), 8, 8, 3);
  expect_coverage(inference::text_coverage(plain, *bytes, 11), 11, 11, 4);
  expect_coverage(inference::text_coverage(plain, *bytes, 12), 0, 0, 0);
  plain.document_begin = 256;
  expect_coverage(inference::text_coverage(plain, *bytes, 12), 12, 12, 4);
  auto words = text_of(put(folder / "b.txt", "a b\n\nc "));
  expect_coverage(inference::text_coverage(words, *bytes, 6), 6, 6, 2);
  auto spaces = text_of(put(folder / "c.txt", "a\tb\vc\fd\re  f!"));
  expect_coverage(inference::text_coverage(spaces, *bytes, 12), 12, 12, 5);
  words.paths.push_back(plain.paths[0]);
  expect_coverage(inference::text_coverage(words, *bytes, 6), 12, 12, 4);
}

TEST(TextCoverage, LeavesPipesAlone) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(
      inference::text_coverage(text_of(folder / "pipe"), *tokenizer::load_tokenizer("bytes"), 4));
}

TEST(TextCoverage, CountsTheDocumentsOfJsonLines) {
  const test::TemporaryFolder folder;
  const auto bytes = tokenizer::load_tokenizer("bytes");
  auto lines = text_of(put(folder / "a.jsonl", "{\"text\": \"ab c\"}\n{\"text\": \"de\"}\n"));
  expect_coverage(inference::text_coverage(lines, *bytes, 5), 5, 5, 3);
  lines.document_end = 257;  // a b ' ' c 257 d e 257
  expect_coverage(inference::text_coverage(lines, *bytes, 7), 6, 4, 3);
  expect_coverage(inference::text_coverage(lines, *bytes, 3), 5, 4, 3);
  lines.document_begin = 256;  // 256 a b ' ' c 257 256 d e 257
  expect_coverage(inference::text_coverage(lines, *bytes, 9), 8, 6, 3);
}

// Of the third document no id is within the windows: its beginning is not left out twice.
TEST(TextCoverage, LeavesOutNoByteTwice) {
  const test::TemporaryFolder folder;
  const auto bytes = tokenizer::load_tokenizer("bytes");
  auto lines = text_of(
      put(folder / "a.jsonl", "{\"text\": \"ab c\"}\n{\"text\": \"de\"}\n{\"text\": \"fgh\"}\n"));
  lines.document_end = 257;  // a b ' ' c 257 d e 257 f g h 257
  expect_coverage(inference::text_coverage(lines, *bytes, 7), 6, 4, 3);
}

TEST(TextCoverage, CountsTheBytesOfTokens) {
  const test::TemporaryFolder folder;
  std::string text = "The caf\xC3\xA9 of the data, its 12 tables and";
  for (int i = 0; i < 40; ++i) text += " the word " + std::to_string(i * i);
  for (const char* file :
       {"gpt2.json", "spm_bpe.model", "spm_unigram_bytes.model", "llama2.json"}) {
    const auto t = tokenizer::load_tokenizer(fixtures + file);
    const auto ids = t->encode(text);
    for (const std::size_t seq_len : {5, 7, 16, 50}) {
      const auto c = inference::text_coverage(text_of(put(folder / "a.txt", text)), *t,
                                              static_cast<std::int64_t>(seq_len));
      const auto labels = (ids.size() - 1) / seq_len * seq_len;
      ASSERT_TRUE(c);
      EXPECT_EQ(c->labels, static_cast<std::int64_t>(labels)) << file;
      const std::span<const std::int32_t> all(ids);
      EXPECT_EQ(c->bytes,
                std::ssize(t->decode(all.first(labels + 1))) - std::ssize(t->decode(all.first(1))))
          << file << " " << seq_len;
    }
  }
}

}  // namespace
}  // namespace tfm
