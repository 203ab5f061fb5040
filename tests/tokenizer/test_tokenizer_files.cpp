#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "support/data_files.h"
#include "support/recorded.h"
#include "text/oniguruma.h"
#include "text/regex.h"
#include "text/unicode.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/bpe_vocab.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/serde_json_float.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace tfm {
namespace {

using test::expect_error;
using test::put;
using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;
const std::string fixtures = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers";

std::vector<Json> read_lines(const std::string& path) {
  std::vector<Json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::vector<std::string> fixture_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(fixtures)) {
    const auto extension = entry.path().extension();
    if (extension == ".json" || extension == ".model") files.push_back(entry.path().filename());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class TokenizerFile : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ =
      tokenizer::load_tokenizer(fixtures + "/" + GetParam());
};

TEST_P(TokenizerFile, EqualsTheReference) {
  const auto lines = read_lines(fixtures + "/lines.jsonl");
  const auto expected = read_lines(
      fixtures + "/" + std::filesystem::path(GetParam()).stem().string() + ".expected.jsonl");
  ASSERT_EQ(expected.size(), lines.size() + 1);
  ASSERT_GT(lines.size(), 200u);
  EXPECT_EQ(tokenizer_->encode_with_specials(""),
            GetParam().ends_with(".model") ? Ids{} : expected[0].get<Ids>());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string text = lines[i].get<std::string>();
    const Ids want = expected[i + 1][0].get<Ids>();
    ASSERT_EQ(tokenizer_->encode(text), want) << lines[i];
    ASSERT_EQ(tokenizer_->encode(text), want) << "from the cache: " << lines[i];
    if (const Json& decoded = expected[i + 1][1]; decoded.is_string()) {
      ASSERT_EQ(text::well_formed(tokenizer_->decode(want)), decoded.get<std::string>())
          << lines[i];
    }
    for (std::int32_t id : want) ASSERT_LT(id, tokenizer_->vocab_size());
  }
}

TEST_P(TokenizerFile, StreamsTheTextThatItDecodes) {
  for (const Json& line : read_lines(fixtures + "/lines.jsonl")) {
    const Ids ids = tokenizer_->encode(line.get<std::string>());
    const auto prompt = ids.begin() + static_cast<std::ptrdiff_t>(ids.size() / 3);
    std::string text = tokenizer_->decode({ids.begin(), prompt});
    tokenizer::StreamDecoder decoder(*tokenizer_, {ids.begin(), prompt});
    EXPECT_EQ(decoder.add(1'000'000), "");
    for (auto id = prompt; id != ids.end(); ++id) text += decoder.add(*id);
    ASSERT_EQ(text, tokenizer_->decode(ids)) << line;
  }
}

TEST_P(TokenizerFile, PutsSpecialsAroundTheText) {
  const Ids around = tokenizer_->encode_with_specials(""), alone = tokenizer_->encode("a text");
  const Ids both = tokenizer_->encode_with_specials("a text");
  ASSERT_EQ(both.size(), around.size() + alone.size());
  EXPECT_NE(std::search(both.begin(), both.end(), alone.begin(), alone.end()), both.end());
}

TEST_P(TokenizerFile, PiecesCutAtSafePlacesGiveTheSameIds) {
  std::vector<std::string> parts = {" ",    "  ",     "\n",  "the",     "std",
                                    "12",   "<mask>", "[X]", "the man", "<extra_id_1>",
                                    "\xFF", "<sep>",  "foo"};
  for (const Json& line : read_lines(fixtures + "/lines.jsonl"))
    parts.push_back(line.get<std::string>());
  std::mt19937 random(4);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n)
      text += parts[random() % (random() % 2 ? 13 : parts.size())];
    const std::size_t cut = tokenizer_->safe_cut(text);
    ASSERT_LE(cut, text.size());
    if (cut == 0) continue;
    text += parts[random() % parts.size()];
    Ids pieces = tokenizer_->encode(std::string_view(text).substr(0, cut));
    const Ids rest = tokenizer_->encode(std::string_view(text).substr(cut));
    pieces.insert(pieces.end(), rest.begin(), rest.end());
    ASSERT_EQ(pieces, tokenizer_->encode(text))
        << testing::PrintToString(text) << " cut at " << cut;
  }
}

TEST_P(TokenizerFile, TakesAnyBytes) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 500; ++trial) {
    std::string text;
    for (std::size_t n = random() % 60; n > 0; --n)
      text.push_back(static_cast<char>(random() % 3 ? random() % 128 : random()));
    const Ids ids = tokenizer_->encode(text);
    tokenizer_->decode(ids);
    const bool keeps_bytes = GetParam() == "gpt2.json" || GetParam() == "llama3.json";
    if (keeps_bytes) {
      ASSERT_EQ(tokenizer_->decode(ids), text);
    } else if (GetParam().ends_with(".json") && GetParam() != "bart.json" &&
               GetParam() != "nfc_bytes.json") {
      ASSERT_EQ(ids, tokenizer_->encode(text::well_formed(text)));
    }
  }
}

TEST_P(TokenizerFile, LongRunsTakeLinearTime) {
  for (const std::string& text :
       {std::string(1 << 18, ' '), std::string(1 << 18, 'a'), std::string(1 << 18, '=') + "x"})
    tokenizer_->decode(tokenizer_->encode(text));
}

// A changed file is read, or refused as bad input; what is read encodes and decodes.
TEST_P(TokenizerFile, SurvivesMutations) {
  const test::TemporaryFolder folder;
  const std::string whole = test::get(fixtures + "/" + GetParam());
  const std::string path = folder / ("x" + std::filesystem::path(GetParam()).extension().string());
  std::mt19937 random(6);
  for (int trial = 0; trial < 150; ++trial) {
    std::string bytes = whole;
    for (std::size_t k = 1 + random() % 3; k > 0 && !bytes.empty(); --k) {
      const std::size_t at =
          random() % (random() % 2 ? bytes.size() : std::min<std::size_t>(bytes.size(), 2000));
      const int way = random() % 8;
      if (way == 0)
        bytes.resize(at);
      else if (way == 1)
        bytes.erase(at, 1 + random() % 20);
      else if (way == 2)
        bytes.insert(at, whole.substr(random() % whole.size(), random() % 30));
      else
        bytes[at] = random() % 2 ? "\"{}[]:, 019-\n"[random() % 13] : static_cast<char>(random());
    }
    put(path, bytes);
    try {
      const auto t = tokenizer::load_tokenizer(path);
      t->decode(t->encode("The cat, it's 12 naïve \xFF <s> ①\u0301 <mask>"));
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ExitCode::input) << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, TokenizerFile, testing::ValuesIn(fixture_files()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(TokenizerSpecials, ComeFromTheFile) {
  const tokenizer::SpecialIds bytes = tokenizer::load_tokenizer("bytes")->special_ids();
  EXPECT_EQ(bytes.pad, 258);
  EXPECT_EQ(bytes.begin, 256);
  EXPECT_EQ(bytes.end, 257);
  EXPECT_EQ(bytes.mask, 259);
  EXPECT_FALSE(bytes.unknown || bytes.classify || bytes.separate);
  const tokenizer::SpecialIds bert =
      tokenizer::load_tokenizer(fixtures + "/bert.json")->special_ids();
  EXPECT_EQ(bert.pad, 0);
  EXPECT_EQ(bert.unknown, 1);
  EXPECT_EQ(bert.classify, 2);
  EXPECT_EQ(bert.separate, 3);
  EXPECT_EQ(bert.mask, 4);
  EXPECT_FALSE(bert.begin || bert.end);
  EXPECT_EQ(tokenizer::load_tokenizer(fixtures + "/bert.json")->end_of_document(), 3);
  const auto bart = tokenizer::load_tokenizer(fixtures + "/bart.json");
  EXPECT_EQ(bart->special_ids().begin, 0);
  EXPECT_EQ(bart->special_ids().end, 2);
  EXPECT_EQ(bart->special_ids().mask, bart->vocab_size() - 1);
  EXPECT_EQ(bart->end_of_document(), 2);
  const auto t5 = tokenizer::load_tokenizer(fixtures + "/t5.json");
  EXPECT_EQ(t5->special_ids().pad, 0);
  EXPECT_EQ(t5->special_ids().end, 1);
  EXPECT_EQ(t5->sentinel_ids(), (Ids{509, 508, 507, 506, 505, 504, 503, 502, 501, 500}));
  const auto spm = tokenizer::load_tokenizer(fixtures + "/spm_unigram.model")->special_ids();
  EXPECT_EQ(spm.pad, 0);
  EXPECT_EQ(spm.end, 1);
  EXPECT_EQ(spm.unknown, 2);
  const auto gpt2 = tokenizer::load_tokenizer(fixtures + "/gpt2.json");
  EXPECT_EQ(gpt2->special_ids().end, 0);
  EXPECT_EQ(gpt2->end_of_document(), 0);
  EXPECT_EQ(gpt2->encode("a<|endoftext|>")[1], 0);
}

TEST(Marian, EqualsTheReferenceOnBothSides) {
  const std::string folder = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/marian";
  const auto source = tokenizer::load_tokenizer(folder);
  const tokenizer::Tokenizer& target = source->target();
  const auto rows = read_lines(folder + "/expected.jsonl");
  ASSERT_GT(rows.size(), 200u);
  for (const Json& row : rows) {
    const std::string text = row[0].get<std::string>();
    EXPECT_EQ(source->encode(text), row[1].get<Ids>()) << row[0];
    EXPECT_EQ(target.encode(text), row[2].get<Ids>()) << row[0];
    EXPECT_EQ(source->decode(row[2].get<Ids>()), row[3].get<std::string>()) << row[0];
    for (std::size_t cut = source->safe_cut(text); cut > 0;
         cut = source->safe_cut(text.substr(0, cut))) {
      Ids both = source->encode(text.substr(0, cut));
      for (const std::int32_t id : source->encode(text.substr(cut))) both.push_back(id);
      EXPECT_EQ(both, row[1].get<Ids>()) << row[0] << " cut at " << cut;
    }
  }
  EXPECT_EQ(source->encode_with_specials(""), (Ids{0}));
  EXPECT_EQ(source->special_ids().pad, source->vocab_size() - 1);
  EXPECT_EQ(source->special_ids().end, 0);
  EXPECT_FALSE(source->special_ids().begin);
}

TEST(Marian, SidesMayHaveVocabulariesOfTheirOwn) {
  const std::string fixture = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/marian/";
  const test::TemporaryFolder folder;
  for (const char* file : {"source.spm", "target.spm", "vocab.json"})
    put(folder / file, test::get(fixture + file));
  const auto shared = tokenizer::load_tokenizer(folder.str());
  put(folder / "tokenizer_config.json", R"({"separate_vocabs": true})");
  Json moved = Json::parse(test::get(fixture + "vocab.json"));
  for (auto& [token, id] : moved.items()) id = id.get<int>() + 5;
  put(folder / "target_vocab.json", moved.dump());
  const auto two = tokenizer::load_tokenizer(folder.str());
  const std::string text = "tokens and their ids";
  EXPECT_EQ(two->encode_with_specials(text), shared->encode_with_specials(text));
  Ids target = shared->target().encode_with_specials(text);
  for (auto& id : target) id += 5;
  EXPECT_EQ(two->target().encode_with_specials(text), target);
  EXPECT_EQ(two->decode(target), shared->decode(shared->target().encode_with_specials(text)));
  EXPECT_EQ(two->target().vocab_size(), two->vocab_size() + 5);
  EXPECT_EQ(two->target().special_ids().end, 5);
}

TEST(Marian, RefusesWhatItIsNot) {
  const std::string fixture = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/marian/";
  const test::TemporaryFolder folder;
  const auto refused = [&](std::initializer_list<std::string> parts) {
    expect_error(ExitCode::input, parts, [&] { tokenizer::load_tokenizer(folder.str()); });
  };
  for (const char* file : {"source.spm", "target.spm", "vocab.json"})
    put(folder / file, test::get(fixture + file));
  tokenizer::load_tokenizer(folder.str());
  put(folder / "tokenizer_config.json", R"({"separate_vocabs": true})");
  refused({"target_vocab.json"});
  put(folder / "target_vocab.json", "{}");
  refused({"target_vocab.json", "no entry </s>"});
  put(folder / "tokenizer_config.json", "{}");
  tokenizer::load_tokenizer(folder.str());
  put(folder / "vocab.json", R"({"</s>": 0, "<unk>": 1})");
  refused({"vocab.json", "no entry <pad>"});
  put(folder / "vocab.json", test::get(fixture + "vocab.json"));
  put(folder / "target.spm", test::get(fixtures + "/spm_bpe.model"));
  refused({"target.spm", "expected a unigram model", "BPE"});
  std::filesystem::remove(folder / "target.spm");
  refused({"target.spm"});
}

std::string put_case(const test::TemporaryFolder& folder, const Json& files) {
  for (const auto& [name, source] : files.items()) {
    const std::string text = source.get<std::string>();
    put(folder / name, text.starts_with('{') ? text : test::get(fixtures + "/" + text));
  }
  return folder.str();
}

TEST(LoadTokenizer, ReadsDirectoriesAsTransformersDoes) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixtures + "/../transformers")) {
    SCOPED_TRACE(entry.path());
    auto rows = read_lines(entry.path());
    const test::TemporaryFolder folder;
    const auto t = tokenizer::load_tokenizer(put_case(folder, rows[0]));
    rows.erase(rows.begin());
    for (const Json& row : rows) {
      const std::string text = row[0].get<std::string>();
      EXPECT_EQ(t->encode_with_specials(text), row[1].get<Ids>()) << row[0];
      EXPECT_EQ(t->encode(text), row[2].get<Ids>()) << row[0];
    }
    ++cases;
  }
  EXPECT_GT(cases, 5);
}

TEST(LoadTokenizer, WarnsOnceOfWhatTransformersOrTheLibraryDoOtherwise) {
  const auto warning_of = [](
                              const std::string& fixture, const Json& config,
                              const std::function<void(Json&)>& change = [](Json&) {}) {
    const test::TemporaryFolder folder;
    Json tree = Json::parse(test::get(fixtures + "/" + fixture));
    change(tree);
    put(folder / "tokenizer.json", tree.dump());
    put(folder / "tokenizer_config.json", config.dump());
    testing::internal::CaptureStderr();
    tokenizer::load_tokenizer(folder.str());
    return testing::internal::GetCapturedStderr();
  };
  const auto expect_parts = [](const std::string& warning, std::vector<std::string> parts) {
    for (const std::string& part : parts) EXPECT_NE(warning.find(part), warning.npos) << warning;
    EXPECT_EQ(std::ranges::count(warning, '\n'), 1) << warning;
  };
  const std::string tokenizer_class = "tokenizer_class";
  expect_parts(
      warning_of("llama2.json", {{tokenizer_class, "LlamaTokenizer"},
                                 {"add_bos_token", false},
                                 {"add_prefix_space", false},
                                 {"add_eos_token", true}}),
      {"tokenizer.json: ", "add_prefix_space false", "add_bos_token false", "add_eos_token true"});
  expect_parts(warning_of("gpt2.json", {{tokenizer_class, "PreTrainedTokenizerFast"},
                                        {"add_prefix_space", true}}),
               {"add_prefix_space true"});
  expect_parts(
      warning_of("bert.json", {{tokenizer_class, "MPNetTokenizer"}, {"do_lower_case", false}}),
      {"do_lower_case false"});
  const auto add_invisible = [](Json& tree) {
    tree["added_tokens"].push_back({{"id", tree["model"]["vocab"].size()},
                                    {"content", "\u200b"},
                                    {"normalized", true},
                                    {"special", false}});
  };
  expect_parts(warning_of("bert.json", Json::object(), add_invisible),
               {"\\xe2\\x80\\x8b", "matches nothing"});
  // As published.
  EXPECT_EQ(warning_of("llama2.json", {{tokenizer_class, "LlamaTokenizer"},
                                       {"add_bos_token", true},
                                       {"add_eos_token", false},
                                       {"legacy", false},
                                       {"bos_token", "<s>"}}),
            "");
  EXPECT_EQ(warning_of("bert.json", {{"do_lower_case", true}, {"model_max_length", 512}}), "");
  EXPECT_EQ(warning_of("gpt2.json", {{"model_max_length", 1024}, {"add_prefix_space", false}}), "");
  EXPECT_EQ(warning_of("llama3.json", {{tokenizer_class, "PreTrainedTokenizerFast"},
                                       {"bos_token", "<|begin_of_text|>"}}),
            "");
}

TEST(LoadTokenizer, TakesTheClassOfTheModelWhereNoneIsNamed) {
  const test::TemporaryFolder folder;
  put(folder / "tokenizer.json", test::get(fixtures + "/bert.json"));
  const auto lower = tokenizer::load_tokenizer(folder.str())->encode("hello");
  put(folder / "tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_EQ(tokenizer::load_tokenizer(folder.str())->encode("HELLO"), lower);
  put(folder / "config.json", R"({"model_type": "bert"})");
  EXPECT_NE(tokenizer::load_tokenizer(folder.str())->encode("HELLO"), lower);
}

TEST(LoadTokenizer, KnowsTheIdsOfByt5) {
  const test::TemporaryFolder folder;
  const std::string config =
      put(folder / "tokenizer_config.json", R"({"tokenizer_class": "ByT5Tokenizer"})");
  const auto t = tokenizer::load_tokenizer(folder.str());
  EXPECT_EQ(t->vocab_size(), 384);
  EXPECT_EQ(t->special_ids().pad, 0);
  EXPECT_EQ(t->special_ids().unknown, 2);
  EXPECT_EQ(t->document_end(), 1);
  ASSERT_EQ(t->sentinel_ids().size(), 125u);
  EXPECT_EQ(t->sentinel_ids()[1], 260);
  EXPECT_EQ(t->decode(Ids{107, 198, 172, 2, 259, 258, 1}), "h\xC3\xA9<unk><extra_id_0>\xFF</s>");
  EXPECT_EQ(t->encode("\xFFh\xC3"), (Ids{258, 107, 198}));
  const auto refused = [&](const char* text, std::initializer_list<std::string> parts) {
    put(config, text);
    expect_error(ExitCode::input, parts, [&] { tokenizer::load_tokenizer(folder.str()); });
  };
  refused(
      R"({"tokenizer_class": "ByT5Tokenizer", "added_tokens_decoder": {"x": {"content": "y"}}})",
      {"tokenizer_config.json", "added_tokens_decoder.'x'", "expected an id"});
  refused(R"({"tokenizer_class": "BertTokenizer"})", {folder.str(), "ByT5Tokenizer"});
}

TEST(LoadTokenizer, RefusesPiecesThatAreNumberedAnew) {
  const test::TemporaryFolder folder;
  put(folder / "sentencepiece.bpe.model", test::get(fixtures + "/spm_unigram.model"));
  const auto refused = [&](std::initializer_list<std::string> parts) {
    expect_error(ExitCode::input, parts, [&] { tokenizer::load_tokenizer(folder.str()); });
  };
  refused({folder.str(), "sentencepiece.bpe.model", "tokenizer.json"});
  put(folder / "spiece.model", test::get(fixtures + "/spm_unigram.model"));
  const auto t5 = tokenizer::load_tokenizer(folder.str());
  EXPECT_EQ(t5->vocab_size(), 500);
  EXPECT_EQ(t5->encode_with_specials("").size(), 1u);
  put(folder / "tokenizer_config.json", R"({"tokenizer_class": "PegasusTokenizer"})");
  refused({"spiece.model of PegasusTokenizer", "T5Tokenizer", "tokenizer.json"});
}

TEST(LoadTokenizer, PrefersTokenizerJsonInAFolder) {
  const test::TemporaryFolder folder;
  put(folder / "tokenizer.json", test::get(fixtures + "/bert.json"));
  put(folder / "vocab.json", "{}");
  put(folder / "merges.txt", "");
  EXPECT_EQ(tokenizer::load_tokenizer(folder.str())->encode("[CLS]"), (Ids{2}));
}

// A small tokenizer.json after `change` (RFC 7396).
const Json kSmall = Json::parse(R"({"version":"1.0",
    "added_tokens":[{"id":3,"content":"<s>","special":true}],
    "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})");
Json small_with(const std::string& change) {
  Json tree = kSmall;
  tree.merge_patch(Json::parse(change));
  return tree;
}
std::unique_ptr<tokenizer::Tokenizer> load_with(const std::string& change) {
  const test::TemporaryFolder folder;
  return tokenizer::load_tokenizer(put(folder / "tokenizer.json", small_with(change).dump()));
}

// The classes of transformers that set a component of tokenizer.json, by their names and by the
// models that they are of.
class ClassesOfTransformers : public testing::Test {
 protected:
  // The ids of a text; `name` and `model` may be empty.
  Ids encode(const Json& tree, const std::string& name, const std::string& model, Json config,
             const std::string& text) {
    if (!name.empty()) config["tokenizer_class"] = name;
    put(folder_ / "tokenizer.json", tree.dump());
    put(folder_ / "tokenizer_config.json", config.dump());
    put(folder_ / "config.json", Json{{"model_type", model}}.dump());
    testing::internal::CaptureStderr();
    const auto t = tokenizer::load_tokenizer(folder_.str());
    warning_ = testing::internal::GetCapturedStderr();
    return t->encode(text);
  }
  bool warned_of(const char* setting) const { return warning_.find(setting) != warning_.npos; }
  struct Case {
    std::string name, model;
    bool obeyed, warned;
  };
  const test::TemporaryFolder folder_;
  std::string warning_;
};

TEST_F(ClassesOfTransformers, SetBertsNormalizer) {
  Json tree = small_with(R"({"normalizer":{"type":"BertNormalizer","clean_text":true,
      "handle_chinese_chars":false,"strip_accents":true,"lowercase":true},
      "model":{"vocab":{"<s>":3,"A":4,"é":5,"中":6," ":7,"É":8,"e":9,"E":10}}})");
  const std::string text = "Aé中É";
  for (const auto& [name, model, obeyed, warned] :
       {Case{"BertTokenizer", "", true, false},
        {"BertTokenizerFast", "gpt2", true, false},
        {"DistilBertTokenizer", "", true, false},
        {"ElectraTokenizerFast", "", true, false},
        {"MobileBertTokenizer", "", true, false},
        {"MPNetTokenizer", "bert", false, true},
        {"PreTrainedTokenizerFast", "bert", false, false},
        {"TokenizersBackend", "bert", false, false},
        {"", "bert", true, false},
        {"", "distilbert", true, false},
        {"", "electra", true, false},
        {"", "roberta", false, true},
        {"", "t5", false, true}}) {
    SCOPED_TRACE(name + " of " + model);
    tree["normalizer"]["lowercase"] = true;
    // What the configuration does not say is as usual: accents go where capitals do.
    EXPECT_EQ(encode(tree, name, model, {{"do_lower_case", false}}, text),
              obeyed ? (Ids{4, 5, 7, 6, 7, 8}) : (Ids{0, 9, 6, 9}));
    EXPECT_EQ(warned_of("do_lower_case false"), warned);
    EXPECT_EQ(encode(tree, name, model, {{"strip_accents", false}}, text),
              obeyed ? (Ids{0, 5, 7, 6, 7, 5}) : (Ids{0, 9, 6, 9}));
    EXPECT_EQ(warned_of("strip_accents false"), warned);
    EXPECT_EQ(encode(tree, name, model, {{"tokenize_chinese_chars", false}}, text),
              (Ids{0, 9, 6, 9}));
    EXPECT_FALSE(warned_of("tokenize_chinese_chars"));
    tree["normalizer"]["lowercase"] = false;
    EXPECT_EQ(encode(tree, name, model, {{"model_max_length", 8}}, text),
              obeyed ? (Ids{0, 9, 7, 6, 7, 9}) : (Ids{4, 9, 6, 10}));
    EXPECT_EQ(warning_, "");
  }
}

TEST_F(ClassesOfTransformers, SetThePrefixOfByteLevel) {
  Json tree = small_with(R"({"pre_tokenizer":{"type":"ByteLevel","trim_offsets":true,
      "add_prefix_space":true},"model":{"vocab":{"<s>":3,"Ġ":4}}})");
  for (const auto& [name, model, obeyed, warned] :
       {Case{"GPT2Tokenizer", "", true, false},
        {"GPT2TokenizerFast", "bert", true, false},
        {"RobertaTokenizer", "", true, false},
        {"BartTokenizerFast", "", true, false},
        {"CodeGenTokenizer", "", true, false},
        {"GPTNeoXTokenizerFast", "", true, false},
        {"TokenizersBackend", "gpt2", false, false},
        {"PreTrainedTokenizerFast", "gpt2", false, true},
        {"", "gpt2", true, false},
        {"", "roberta", true, false},
        {"", "bart", true, false},
        {"", "llama", false, true},
        {"", "bert", false, true}}) {
    SCOPED_TRACE(name + " of " + model);
    tree["pre_tokenizer"]["add_prefix_space"] = true;
    EXPECT_EQ(encode(tree, name, model, {{"model_max_length", 8}}, "b"),
              obeyed ? (Ids{1}) : (Ids{4, 1}));
    EXPECT_EQ(warning_, "");
    EXPECT_EQ(encode(tree, name, model, {{"add_prefix_space", false}}, "b"),
              obeyed ? (Ids{1}) : (Ids{4, 1}));
    EXPECT_EQ(warned_of("add_prefix_space false"), warned);
    tree["pre_tokenizer"]["add_prefix_space"] = false;
    EXPECT_EQ(encode(tree, name, model, {{"add_prefix_space", true}}, "b"),
              obeyed ? (Ids{4, 1}) : (Ids{1}));
    EXPECT_EQ(warned_of("add_prefix_space true"), warned);
  }
}

// As published, Llama's classes say what tokenizer.json does not.
TEST_F(ClassesOfTransformers, OfLlamaDifferWhereItsSpaceIsPut) {
  const Json metaspace = small_with(R"({"pre_tokenizer":{"type":"Metaspace","replacement":"▁",
      "prepend_scheme":"first"},"model":{"vocab":{"<s>":3,"▁":4}}})");
  Json always = metaspace, never = metaspace, prepend = kSmall, plain = kSmall;
  always["pre_tokenizer"]["prepend_scheme"] = "always";
  never["pre_tokenizer"]["prepend_scheme"] = "never";
  prepend["normalizer"] = {{"type", "Prepend"}, {"prepend", "a"}};
  for (const auto& [tree, puts] : {std::pair{metaspace, true},
                                   {always, true},
                                   {never, false},
                                   {prepend, true},
                                   {plain, false}})
    for (const auto& [name, model] : {std::pair{"LlamaTokenizer", ""}, {"", "llama"}}) {
      encode(tree, name, model, {{"add_prefix_space", false}}, "b");
      EXPECT_EQ(warned_of("add_prefix_space false"), puts) << tree;
      encode(tree, name, model, {{"add_prefix_space", true}}, "b");
      EXPECT_EQ(warning_, "") << tree;
      encode(tree, name, model, Json::object(), "b");
      EXPECT_EQ(warning_, "") << tree;
    }
}

// Tokens that tokenizer_config.json adds to those of tokenizer.json, or changes.
TEST(LoadTokenizer, AddsTheTokensOfItsConfiguration) {
  const test::TemporaryFolder folder;
  const Json tree = small_with(R"({"model":{"vocab":{"<s>":3," ":4,"A":5}}})");
  const auto load = [&](const std::string& config, bool lower = false) {
    Json now = tree;
    if (lower) now["normalizer"] = {{"type", "Lowercase"}};
    put(folder / "tokenizer.json", now.dump());
    put(folder / "tokenizer_config.json", config);
    return tokenizer::load_tokenizer(folder.str());
  };
  struct Case {
    std::string config, text;
    Ids ids;
  };
  for (const auto& [config, text, ids] : std::vector<Case>{
           {"{}", "a b", {0, 4, 1}},
           // Texts are matched as they are.
           {R"({"eos_token":"aa"})", "a aa b", {0, 4, 6, 4, 1}},
           {R"({"eos_token":{"content":"aa"}})", "a aa b", {0, 4, 6, 4, 1}},
           {R"({"eos_token":{"content":"aa","lstrip":true}})", "a aa b", {0, 6, 4, 1}},
           {R"({"eos_token":{"content":"aa","rstrip":true}})", "a aa b", {0, 4, 6, 1}},
           {R"({"eos_token":{"content":"aa"}})", "baa", {1, 6}},
           {R"({"eos_token":{"content":"aa","single_word":true}})", "baa", {1, 0, 0}},
           {R"({"eos_token":{"content":"aa","single_word":true}})", "aab", {0, 2}},
           {R"({"eos_token":{"content":"aa","single_word":true}})", "b aa", {1, 4, 6}},
           // In the order of the members' names here, whatever that of the file.
           {R"({"mask_token":"bb","cls_token":"aa","bos_token":"Ab"})", "aabbAb", {7, 8, 6}},
           {R"({"additional_special_tokens":["bb",{"content":"aa"}],"pad_token":"Ab"})",
            "aabbAb",
            {8, 7, 6}},
           // One that tokenizer.json adds stays as it is, but for added_tokens_decoder.
           {R"({"bos_token":{"content":"<s>","lstrip":true}})", "a <s>", {0, 4, 3}},
           {R"({"added_tokens_decoder":{"3":{"content":"<s>","lstrip":true}}})", "a <s>", {0, 3}},
           {R"({"added_tokens_decoder":{"3":{"content":"<s>"}},)"
            R"("bos_token":{"content":"<s>","lstrip":true}})",
            "a <s>",
            {0, 4, 3}},
           {R"({"added_tokens_decoder":{"7":{"content":"bb"},"6":{"content":"aa"}}})",
            "aabb",
            {6, 7}},
           // A token of the vocabulary keeps its id.
           {R"({"eos_token":"A"})", "aA", {0, 5}},
           {R"({"eos_token":"bA"})", "bA", {6}}}) {
    SCOPED_TRACE(config + " " + text);
    EXPECT_EQ(load(config)->encode(text), ids);
  }
  // A token is normalized unless it is special, or only a text.
  for (const auto& [token, ids] : {std::pair{R"("A")", Ids{0, 5}},
                                   {R"({"content":"A"})", {5, 5}},
                                   {R"({"content":"A","special":true})", {0, 5}},
                                   {R"({"content":"A","special":true,"normalized":true})", {5, 5}},
                                   {R"({"content":"A","normalized":false})", {0, 5}}})
    EXPECT_EQ(load(std::string(R"({"eos_token":)") + token + "}", true)->encode("aA"), ids)
        << token;
  EXPECT_TRUE(load(R"({"eos_token":"ab"})")->is_added(2));
  EXPECT_FALSE(load("{}")->is_added(2));
  for (const char* id : {"x", "-1", "1x", "", "16777216", "99999999999"})
    expect_error(ExitCode::input, {"tokenizer_config.json", "expected an id"}, [&] {
      load(std::string(R"({"added_tokens_decoder":{")") + id + R"(":{"content":"y"}}})");
    });
}

// Models whose types older files do not name, and members that they leave out.
TEST(TokenizerJson, ModelsDoAsTheirMembersSay) {
  const auto encode = [](const std::string& change, const std::string& text) {
    return load_with(change)->encode(text);
  };
  // A word of the vocabulary that no merges make.
  const std::string whole = R"({"model":{"vocab":{"<s>":3,"ba":4})";
  EXPECT_EQ(encode(whole + "}}", "ba"), (Ids{1, 0}));
  EXPECT_EQ(encode(whole + R"(,"ignore_merges":false}})", "ba"), (Ids{1, 0}));
  EXPECT_EQ(encode(whole + R"(,"ignore_merges":true}})", "ba"), (Ids{4}));
  const std::string unknown = R"({"model":{"unk_token":"?","vocab":{"<s>":3,"?":4,"<0x78>":5})";
  EXPECT_EQ(encode(unknown + "}}", "axyb"), (Ids{0, 4, 4, 1}));
  EXPECT_EQ(encode(unknown + R"(,"fuse_unk":true}})", "axyb"), (Ids{0, 4, 1}));
  EXPECT_EQ(encode(unknown + R"(,"byte_fallback":true}})", "axyb"), (Ids{0, 5, 4, 1}));
  EXPECT_EQ(encode(R"({"model":{"unk_token":"","vocab":{"<s>":3}}})", "axb"),
            encode(R"({"model":{"unk_token":null,"vocab":{"<s>":3}}})", "axb"));
  const auto model = [](const std::string& model, const std::string& text) {
    Json tree = kSmall;
    tree["added_tokens"] = Json::array();
    tree["model"] = Json::parse(model);
    const test::TemporaryFolder folder;
    return tokenizer::load_tokenizer(put(folder / "tokenizer.json", tree.dump()))->encode(text);
  };
  const std::string pieces =
      R"("unk_token":"?","vocab":{"?":0,"a":1,"b":2,"##b":3,"-b":4},"max_input_chars_per_word":3)";
  for (const std::string type : {"", R"("type":"WordPiece",)"}) {
    EXPECT_EQ(model("{" + type + pieces + R"(,"continuing_subword_prefix":"##"})", "ab"),
              (Ids{1, 3}));
    EXPECT_EQ(model("{" + type + pieces + R"(,"continuing_subword_prefix":"-"})", "ab"),
              (Ids{1, 4}));
    EXPECT_EQ(model("{" + type + pieces + "}", "ab"), (Ids{1, 3}));
  }
  EXPECT_EQ(model(R"({"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})", "ab"), (Ids{2}));
  const std::string unigram =
      R"({"type":"Unigram","unk_id":0,"vocab":[["?",0],["a",-1],["<0x78>",-2]])";
  EXPECT_EQ(model(unigram + "}", "ax"), (Ids{1, 0}));
  EXPECT_EQ(model(unigram + R"(,"byte_fallback":false})", "ax"), (Ids{1, 0}));
  EXPECT_EQ(model(unigram + R"(,"byte_fallback":true})", "ax"), (Ids{1, 2}));
  EXPECT_EQ(model(unigram + R"(,"byte_fallback":true})", "ay"), (Ids{1, 0}));
}

// What the cleanup of the library repairs, and what a piece inside a word is.
TEST(Decoder, OfWordPieceRepairsWhatItSplit) {
  const auto decode = [](const std::string& token, bool cleanup) {
    Json tree = small_with(std::string(R"({"decoder":{"type":"WordPiece","prefix":"##",
        "cleanup":)") + (cleanup ? "true" : "false") +
                           "}}");
    tree["model"]["vocab"][token] = 3, tree["model"]["merges"] = Json::array();
    tree["added_tokens"] = Json::array();
    const test::TemporaryFolder folder;
    const auto t = tokenizer::load_tokenizer(put(folder / "tokenizer.json", tree.dump()));
    EXPECT_EQ(t->decode(Ids{3}), token);
    return t->decode(Ids{0, 3});
  };
  for (const auto& [token, repaired] : {std::pair{".", "a."},
                                        {"?", "a?"},
                                        {"!", "a!"},
                                        {",", "a,"},
                                        {"' ", "a'"},
                                        {"n't", "an't"},
                                        {"'m", "a'm"},
                                        {"do not", "a don't"},
                                        {"'s", "a's"},
                                        {"'ve", "a've"},
                                        {"'re", "a're"},
                                        {"'ll", "a 'll"},
                                        {";", "a ;"},
                                        {"word", "a word"},
                                        {"'", "a '"}}) {
    EXPECT_EQ(decode(token, true), repaired);
    EXPECT_EQ(decode(token, false), std::string("a ") + token);
  }
  for (const bool cleanup : {false, true}) {
    const auto inside = load_with(std::string(R"({"decoder":{"type":"WordPiece","prefix":"##",
        "cleanup":)") + (cleanup ? "true" : "false") +
                                  R"(},"model":{"vocab":{"<s>":3,"##x":4}}})");
    EXPECT_EQ(inside->decode(Ids{0, 4, 1}), "ax b");
    EXPECT_EQ(inside->decode(Ids{4, 0}), "##x a");
  }
}

TEST(Decoder, OfOtherKindsStripsWhatItSays) {
  const auto decode = [](const std::string& decoder, const Ids& ids) {
    return load_with(R"({"model":{"vocab":{"<s>":3,"a</w>":4,"__a__":5,"_":6,"</w>":7,"▁b":8,
                         "▁▁":9}},"decoder":)" +
                     decoder + "}")
        ->decode(ids);
  };
  const std::string suffix = R"({"type":"BPEDecoder","suffix":"</w>"})";
  EXPECT_EQ(decode(suffix, {4, 4, 4}), "a a a");
  EXPECT_EQ(decode(suffix, {4, 0}), "a a");
  EXPECT_EQ(decode(suffix, {0, 7}), "a");
  const auto strip = [](int start, int stop) {
    return R"({"type":"Strip","content":"_","start":)" + std::to_string(start) + R"(,"stop":)" +
           std::to_string(stop) + "}";
  };
  EXPECT_EQ(decode(strip(0, 0), {0, 5}), "a__a__");
  EXPECT_EQ(decode(strip(1, 0), {0, 5}), "a_a__");
  EXPECT_EQ(decode(strip(0, 1), {0, 5}), "a__a_");
  EXPECT_EQ(decode(strip(2, 0), {0, 5}), "aa__");
  EXPECT_EQ(decode(strip(3, 3), {5, 6}), "a");
  const auto metaspace = [](const std::string& more) {
    return R"({"type":"Metaspace","replacement":"▁")" + more + "}";
  };
  EXPECT_EQ(decode(metaspace(""), {8, 8, 9}), "b b  ");
  EXPECT_EQ(decode(metaspace(R"(,"prepend_scheme":"first")"), {8, 8, 9}), "b b  ");
  EXPECT_EQ(decode(metaspace(R"(,"prepend_scheme":"never")"), {8, 8, 9}), " b b  ");
  EXPECT_EQ(decode(metaspace(""), {9, 8}), " b");
  EXPECT_EQ(load_with("{}")->decode(Ids{0, 1, 2}), "a b ab");  // without a decoder
}

// Members of tokenizer.json's added tokens, and which files obey a configuration beside them.
TEST(LoadTokenizer, AddsTheTokensOfTokenizerJson) {
  const auto encode = [](const std::string& tokens, const std::string& text) {
    return load_with(R"({"model":{"vocab":{"<s>":3," ":4}},"added_tokens":[)" + tokens + "]}")
        ->encode(text);
  };
  EXPECT_EQ(encode(R"({"id":5,"content":"aa"})", "baa aa"), (Ids{1, 5, 4, 5}));
  EXPECT_EQ(encode(R"({"id":5,"content":"aa","single_word":true})", "baa aa"),
            (Ids{1, 0, 0, 4, 5}));
  EXPECT_EQ(encode(R"({"id":5,"content":"aa","single_word":true})", "aab aa"), (Ids{0, 2, 4, 5}));
  EXPECT_EQ(encode(R"({"id":5,"content":"aa","lstrip":true})", "b aa b"), (Ids{1, 5, 4, 1}));
  EXPECT_EQ(encode(R"({"id":5,"content":"aa","rstrip":true})", "b aa b"), (Ids{1, 4, 5, 1}));
  EXPECT_EQ(encode(R"({"id":99,"content":""},{"id":5,"content":"aa"})", "aa"), (Ids{5}));
  const test::TemporaryFolder folder;
  const std::string lower = small_with(R"({"normalizer":{"type":"BertNormalizer"},
      "model":{"vocab":{"<s>":3,"A":4}}})")
                                .dump();
  put(folder / "tokenizer_config.json",
      R"({"tokenizer_class":"BertTokenizer","do_lower_case":false})");
  EXPECT_EQ(tokenizer::load_tokenizer(put(folder / "other.json", lower))->encode("A"), (Ids{0}));
  EXPECT_EQ(tokenizer::load_tokenizer(put(folder / "tokenizer.json", lower))->encode("A"),
            (Ids{4}));
}

// The files of SentencePiece models, with what their configurations leave out.
TEST(LoadTokenizer, TakesTheUsualTokensOfT5AndLlama) {
  const test::TemporaryFolder t5, llama, byt5;
  put(t5 / "spiece.model", test::get(fixtures + "/spm_unigram.model"));
  put(llama / "tokenizer.model", test::get(fixtures + "/spm_bpe.model"));
  const auto load = [](const test::TemporaryFolder& folder, const std::string& config) {
    put(folder / "tokenizer_config.json", config);
    return tokenizer::load_tokenizer(folder.str());
  };
  for (const std::string name : {R"({"tokenizer_class":"T5Tokenizer"})",
                                 R"({"tokenizer_class":"T5TokenizerFast"})", R"({"a":1})"}) {
    const auto t = load(t5, name);
    EXPECT_EQ(t->vocab_size(), 600);
    ASSERT_EQ(t->sentinel_ids().size(), 100u);
    EXPECT_EQ(t->sentinel_ids()[0], 599);
    EXPECT_EQ(t->sentinel_ids()[99], 500);
    EXPECT_EQ(t->encode_with_specials(""), (Ids{1}));
  }
  EXPECT_EQ(load(t5, R"({"extra_ids":0})")->vocab_size(), 500);
  for (const std::string name : {R"({"tokenizer_class":"LlamaTokenizer"})",
                                 R"({"tokenizer_class":"LlamaTokenizerFast"})", "{}"}) {
    EXPECT_EQ(load(llama, name)->encode_with_specials(""), (Ids{1}));
    EXPECT_EQ(load(llama, name)->begin_of_text(), 1);
  }
  EXPECT_EQ(load(llama, R"({"add_bos_token":false})")->encode_with_specials(""), (Ids{}));
  EXPECT_EQ(load(llama, R"({"add_eos_token":true})")->encode_with_specials(""), (Ids{1, 2}));
  EXPECT_EQ(load(llama, R"({"bos_token":"</s>"})")->encode_with_specials(""), (Ids{2}));
  EXPECT_EQ(load(llama, R"({"bos_token":{"content":"</s>"}})")->encode_with_specials(""), (Ids{2}));
  expect_error(ExitCode::input, {"T5Tokenizer"},
               [&] { load(llama, R"({"tokenizer_class":"T5Tokenizer"})"); });
  // ByT5's special tokens come before its bytes, 3 to 258, and its sentinels behind them.
  const auto with_token = [&](int id) {
    return load(byt5, R"({"tokenizer_class":"ByT5Tokenizer","added_tokens_decoder":{")" +
                          std::to_string(id) + R"(":{"content":"<x>"}}})");
  };
  for (const int id : {0, 2, 259, 300, 400}) EXPECT_EQ(with_token(id)->encode("<x>"), (Ids{id}));
  for (const int id : {3, 100, 258})
    expect_error(ExitCode::input, {"is a byte's"}, [&] { with_token(id); });
  EXPECT_EQ(load(byt5, R"({"tokenizer_class":"ByT5Tokenizer","extra_ids":7,
                           "additional_special_tokens":["<y>"]})")
                ->vocab_size(),
            260);
  EXPECT_EQ(load(byt5, R"({"tokenizer_class":"ByT5Tokenizer"})")->encode_with_specials("a</s>"),
            (Ids{100, 1}));  // one end is enough
}

TEST(LoadTokenizer, SpecialIdsOfBytesAreNoText) {
  const auto bytes = tokenizer::load_tokenizer("bytes");
  EXPECT_EQ(bytes->decode(Ids{'a', 256, 257, 258, 259, 'b', 255}), "ab\xFF");
  EXPECT_FALSE(bytes->knows(260) || bytes->knows(-1));
  EXPECT_EQ(bytes->sentinel_ids().front(), 260);
  EXPECT_EQ(bytes->sentinel_ids().size(), 100u);
}

// A language's code is matched at the start of a text, so that such a text is not cut.
TEST(Marian, TextsThatBeginWithACodeAreNotCut) {
  const auto marian =
      tokenizer::load_tokenizer(std::string(TFM_SOURCE_DIR) + "/tests/fixtures/marian");
  EXPECT_GT(marian->safe_cut("the man and the"), 0u);
  EXPECT_EQ(marian->safe_cut(">>fra<< the man and the"), 0u);
  EXPECT_EQ(marian->encode(">>none<<the")[0], *marian->special_ids().unknown);
  Ids ids = marian->target().encode("the");
  const std::string text = marian->decode(ids);
  const tokenizer::SpecialIds special = marian->special_ids();
  for (const auto& id : {special.end, special.pad, special.unknown}) {
    ids.push_back(*id), ids.insert(ids.begin(), *id);
    EXPECT_EQ(marian->decode(ids), text);
  }
}

class Malformed : public testing::Test {
 protected:
  void refused(const char* change, std::initializer_list<std::string> words) {
    refused_text(small_with(change).dump(), words);
  }
  void refused_text(const std::string& text, std::initializer_list<std::string> words) {
    SCOPED_TRACE(text.substr(0, 500));
    put(path_, text);
    expect_error(ExitCode::input, words, [&] { tokenizer::load_tokenizer(path_); });
  }
  const test::TemporaryFolder folder_;
  const std::string path_ = folder_ / "tokenizer.json";
};

TEST_F(Malformed, JsonIsReadStrictly) {
  put(path_, kSmall.dump());
  EXPECT_EQ(tokenizer::load_tokenizer(path_)->encode("ab<s>b"), (Ids{2, 3, 1}));
  refused_text("", {"invalid JSON"});
  refused_text("[]", {"an object"});
  refused_text("{}", {"model", "missing"});
  refused_text(kSmall.dump().substr(0, 60), {"byte", "invalid JSON"});
  refused_text(R"({"model":{},"model":{}})", {"'model'", "twice"});
  refused_text(std::string(100, '[') + std::string(100, ']'), {"nested"});
  refused_text(std::string(100000, '['), {"nested"});
  refused_text(R"({"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}})", {"'a'", "twice"});
  refused_text("{\"model\":\"\xFF\"}", {"invalid JSON"});
}

TEST_F(Malformed, ComponentsAreRefusedByName) {
  refused(R"({"color":1})", {"'color'", "not supported"});
  refused(R"({"version":"2.0"})", {"version", "2.0"});
  refused(R"({"model":{"type":"WordLevel"}})", {"model", "'WordLevel'", "not supported"});
  refused(R"({"model":{"dropout":0.1}})", {"model.dropout", "not supported"});
  refused(R"({"model":{"end_of_word_suffix":"</w>"}})",
          {"model.end_of_word_suffix", "not supported"});
  refused(R"({"normalizer":{"type":"Nmt"}})", {"normalizer", "'Nmt'", "not supported"});
  refused(R"({"normalizer":{"type":"NFC","form":1}})", {"normalizer", "'form'"});
  refused(R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"X"}]}})",
          {"normalizer.normalizers[1]", "'X'"});
  refused(R"({"normalizer":{"type":"Precompiled","precompiled_charsmap":"?"}})",
          {"precompiled_charsmap", "base64"});
  refused(R"({"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="}})",
          {"character map is damaged"});
  refused(R"({"normalizer":{"type":"Replace","pattern":{"Regex":"("},"content":""}})",
          {"normalizer.pattern.Regex"});
  refused(R"({"pre_tokenizer":{"type":"UnicodeScripts"}})", {"pre_tokenizer", "'UnicodeScripts'"});
  refused(
      R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a&&b]"},"behavior":"Isolated","invert":false}})",
      {"&&"});
  refused(
      R"({"pre_tokenizer":{"type":"Split","pattern":{"String":"x"},"behavior":"Sideways","invert":false}})",
      {"behavior", "'Sideways'"});
  refused(R"({"pre_tokenizer":{"type":"Split","pattern":{"String":"x"},"behavior":"Isolated"}})",
          {"invert", "missing"});
  refused(R"({"pre_tokenizer":{"type":"Metaspace","replacement":"__"}})",
          {"replacement", "one character"});
  refused(R"({"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"often"}})",
          {"prepend_scheme", "'often'"});
  refused(
      R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},
      {"type":"Whitespace"}]}})",
      {"pre_tokenizer.pretokenizers[1]", "after ByteLevel"});
  refused(R"({"decoder":{"type":"CTC"}})", {"decoder", "'CTC'"});
  refused(R"({"post_processor":{"type":"X"}})", {"post_processor", "'X'"});
}

TEST_F(Malformed, ValuesAreChecked) {
  refused(R"({"model":{"vocab":{"c":-1}}})", {"model.vocab.'c'", "-1"});
  refused(R"({"model":{"vocab":{"c":16777216}}})", {"model.vocab.'c'", "16777215"});
  refused(R"({"model":{"vocab":{"c":1.5}}})", {"model.vocab.'c'"});
  refused(R"({"model":{"vocab":{"c":1}}})", {"model.vocab.'c'", "already"});
  refused(R"({"model":{"vocab":null}})", {"model", "vocab", "missing"});
  refused(R"({"model":{"vocab":[1]}})", {"model.vocab", "an object"});
  refused(R"({"model":{"merges":["a"]}})", {"model.merges[0]", "two symbols"});
  refused(R"({"model":{"merges":["a b","a b"]}})", {"model.merges", "[1]", "twice"});
  refused(R"({"model":{"merges":[["a","b","c"]]}})", {"model.merges[0]", "3"});
  refused(R"({"model":{"merges":[["a",1]]}})", {"model.merges[0][1]", "a string"});
  refused(R"({"model":{"merges":["b a"]}})", {"'ba'", "not in the vocabulary"});
  refused(R"({"model":{"unk_token":"[UNK]"}})", {"model.unk_token", "'[UNK]'"});
  refused(R"({"added_tokens":[{"id":0,"content":"<s>"}]})", {"added_tokens[0]", "'a'"});
  refused(R"({"added_tokens":[{"id":9,"content":"a"}]})", {"added_tokens[0]", "0"});
  refused(R"({"added_tokens":[{"id":9}]})", {"added_tokens[0]", "content"});
  refused(R"({"added_tokens":[{"id":3,"content":"x"},{"id":5,"content":"y"}]})",
          {"added_tokens[1]", "'y' the id 4, not 5"});
  refused(R"({"model":{"vocab":{"c":9}},"added_tokens":[{"id":9,"content":"c"},
              {"id":10,"content":"y"}]})",
          {"added_tokens[1]", "'y' the id 4, not 10"});
  refused(R"({"post_processor":{"type":"BertProcessing","sep":["<s>",3],"cls":["x",7]}})",
          {"post_processor", "7"});
  refused(R"({"post_processor":{"type":"TemplateProcessing","single":[],"special_tokens":{}}})",
          {"single", "sequence A"});
  refused(R"({"model":{"type":"WordPiece","merges":null,"unk_token":"u"}})", {"model.unk_token"});
  refused(R"({"model":{"type":"Unigram","merges":null,"vocab":[["a",0.5],["b"]]}})",
          {"model.vocab[1]"});
  refused(R"({"model":{"type":"Unigram","merges":null,"vocab":[["a",0.5],["a",1]]}})",
          {"model.vocab[1]", "twice"});
  refused(R"({"model":{"type":"Unigram","merges":null,"vocab":[["a",0.5]],"unk_id":1}})",
          {"model.unk_id"});
  Json tree = kSmall;
  tree["model"] = Json::parse(R"({"type":"Unigram","vocab":[["a",0.5],["c",0],["d",0]]})");
  put(path_, tree.dump());
  expect_error(ExitCode::input, {"unknown"},
               [&] { tokenizer::load_tokenizer(path_)->encode("b"); });
}

// Fields of a SentencePiece model, written by hand.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string number(int number, int value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}

TEST(SentencePieceFile, RefusesBrokenModels) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "x.model", unknown = field(1, field(1, "<unk>") + number(3, 2));
  const auto refused = [&](const std::string& bytes, std::initializer_list<std::string> words) {
    put(path, bytes);
    expect_error(ExitCode::input, words, [&] { tokenizer::load_tokenizer(path); });
  };
  put(path, unknown + field(1, field(1, "a")));
  EXPECT_EQ(tokenizer::load_tokenizer(path)->encode("ba"), (Ids{0, 1}));
  refused("", {"unknown"});
  refused("\x0A", {"truncated"});
  refused(
      "\x0A\x7F"
      "abc",
      {"127 bytes", "only 3 remain"});
  refused(std::string(12, '\xFF'), {"10 bytes"});
  refused("\x0B", {"type"});
  refused(unknown + unknown, {"twice"});
  refused(unknown + field(1, field(1, "u") + number(3, 2)), {"two pieces"});
  refused(unknown + field(1, ""), {"piece 1", "empty"});
  refused(unknown + field(1, field(1, "\xC3")), {"piece 1", "UTF-8"});
  refused(unknown + field(1, field(1, "a") + std::string("\x15\0\0\xC0\x7F", 5)),
          {"piece 1", "finite"});
  refused(unknown + field(1, number(1, 1)), {"piece 1", "unexpected type"});
  refused(unknown + field(1, field(1, "a") + number(3, 7)), {"unknown type of piece"});
  refused(unknown + field(1, field(1, "<0x00>") + number(3, 6)), {"byte piece"});
  refused(unknown + field(2, std::string("\x98\x02\x01", 3)), {"byte_fallback"});
  refused(unknown + field(2, number(3, 3)), {"word", "not supported"});
  refused(unknown + field(3, field(2, "\xFF\xFF\xFF\xFFx")), {"normalizer_spec", "character map"});
  refused(unknown + field(5, field(2, "x")), {"denormalization"});
}

// A field with a number above 15, and a piece with its score and kind.
std::string far_field(int field, const std::string& value) {
  return std::string{static_cast<char>((field << 3 & 0x7F) | 0x80), static_cast<char>(field >> 4)} +
         value;
}
std::string piece_of(const std::string& text, float score = 0, int kind = 1) {
  std::string bytes = "\x15" + std::string(4, '\0');
  test::store(bytes, 1, score);
  return field(1, field(1, text) + bytes + number(3, kind));
}

// The members of a SentencePiece model that say what becomes of spaces, and what they are where
// the file has none of them. Pieces are single characters, so that ids spell the text.
TEST(SentencePieceFile, DefaultsAndFlagsOfSpaces) {
  const test::TemporaryFolder folder;
  const std::string pieces = piece_of("?", 0, 2) + piece_of("▁", -1) + piece_of("a", -1) +
                             piece_of("b", -1) + piece_of(" ", -1) + piece_of("</s>", 0, 3);
  const auto spelled = [](const Ids& ids) {
    std::string text;
    for (const std::int32_t id : ids) text += "?_ab /"[static_cast<std::size_t>(id)];
    return text;
  };
  const auto load = [&](const std::string& more) {
    return tokenizer::load_tokenizer(put(folder / "x.model", pieces + more));
  };
  const auto rules = [](const std::string& fields) { return field(3, fields); };
  const std::string suffix = field(2, far_field(24, std::string(1, '\1'))),
                    no_prefix = number(3, 0), keep = number(4, 0), plain = number(5, 0);
  struct Case {
    std::string more, spelled, decoded;
  };
  for (const int type : {1, 2})
    for (const auto& [more, ids, decoded] :
         std::vector<Case>{{"", "_a_b", "a b"},
                           {rules(number(3, 1) + number(4, 1) + number(5, 1)), "_a_b", "a b"},
                           {rules(no_prefix), "a_b", "a b"},
                           {rules(keep), "___a__b_", "  a  b "},
                           {rules(keep + no_prefix), "__a__b_", "  a  b "},
                           {rules(plain), " a b", " a b"},
                           {rules(plain + keep + no_prefix), "  a  b ", "  a  b "},
                           {suffix, "a_b_", "a b "},
                           {suffix + rules(no_prefix), "a_b", "a b"},
                           {suffix + rules(keep), "__a__b__", " a  b  "}}) {
      SCOPED_TRACE(std::to_string(type) + testing::PrintToString(more));
      const auto t = load((type == 1 ? "" : field(2, number(3, type))) + more);
      const Ids found = t->encode("  a  b ");
      EXPECT_EQ(spelled(found), ids);
      EXPECT_EQ(t->decode(found), decoded);
      for (const char* text : {"a", "a b a", " b"}) {  // pieces cut where that is said to be safe
        const std::string whole = std::string(text) + " a";
        const std::size_t cut = t->safe_cut(whole);
        Ids parts = t->encode(whole.substr(0, cut));
        for (const std::int32_t id : t->encode(whole.substr(cut))) parts.push_back(id);
        EXPECT_EQ(parts, t->encode(whole)) << cut;
      }
    }
  // Spaces at the start of a text: all of them are put there, or the first.
  EXPECT_EQ(load("")->decode(Ids{1, 1, 2}), "a");
  EXPECT_EQ(load(rules(no_prefix))->decode(Ids{1, 1, 2}), "a");
  EXPECT_EQ(load(rules(keep))->decode(Ids{1, 1, 2}), " a");
  EXPECT_EQ(load(rules(keep + no_prefix))->decode(Ids{1, 1, 2}), "  a");
  EXPECT_EQ(load("")->decode(Ids{2, 0, 5, 3}), "a ⁇ b");
  EXPECT_EQ(load(field(2, std::string("\xE2\x02\x01!", 4)))->decode(Ids{2, 0, 5, 3}), "a!b");
}

// A user-defined piece wins over splits of its text by its length times the best score, less 0.1.
TEST(SentencePieceFile, UserDefinedPiecesHaveTheScoreOfTheirLength) {
  const test::TemporaryFolder folder;
  const auto encode = [&](float a, float b, int kind, int type = 1) {
    const std::string bytes = field(2, number(3, type)) + field(3, number(3, 0)) +
                              piece_of("?", 0, 2) + piece_of("a", a) + piece_of("b", b) +
                              piece_of("ab", kind == 1 ? -9 : 0, kind);
    return tokenizer::load_tokenizer(put(folder / "x.model", bytes))->encode("ab");
  };
  EXPECT_EQ(encode(-1, -1, 1), (Ids{1, 2}));
  EXPECT_EQ(encode(-1, -1, 4), (Ids{3}));
  EXPECT_EQ(encode(5, 5, 4), (Ids{1, 2}));       // 10 and 9.9
  EXPECT_EQ(encode(5, 4.8f, 4), (Ids{3}));       // 9.8 and 9.9
  EXPECT_EQ(encode(0.05f, 0.04f, 4), (Ids{3}));  // 0.09 and 2 * 0.1 - 0.1
  EXPECT_EQ(encode(5, 5, 4, 2), (Ids{3}));       // BPE matches it before anything else
}

// What stands for no piece is one unknown piece, whose score is ten less than the least.
TEST(SentencePieceFile, UnknownCharactersAreOnePiece) {
  const test::TemporaryFolder folder;
  const auto load = [&](int type, const std::string& pieces) {
    return tokenizer::load_tokenizer(
        put(folder / "x.model", field(2, number(3, type)) + field(3, number(3, 0)) +
                                    field(5, field(2, "")) + piece_of("?", 0, 2) + pieces));
  };
  for (const int type : {1, 2})
    EXPECT_EQ(load(type, piece_of("a", -1))->encode("axya"), (Ids{1, 0, 1}));
  const std::string likely = piece_of("def", -0.1f) + piece_of("defg", -0.1f),
                    rare = piece_of("cd", -5) + piece_of("e", -5) + piece_of("f", -5);
  // 15 and 15.1; 15.2 and 15.1
  EXPECT_EQ(load(1, rare + piece_of("g", -0.2f) + likely)->encode("cdef"), (Ids{1, 2, 3}));
  EXPECT_EQ(load(1, rare + piece_of("g", -0.2f) + likely)->encode("cdefg"), (Ids{0, 6}));
}

TEST(Unigram, BreaksTiesAsTheReferences) {
  const std::string folder = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/unigram_ties/";
  const auto json = tokenizer::load_tokenizer(folder + "tokenizer.json"),
             spm = tokenizer::load_tokenizer(folder + "spm.model");
  const auto expected = read_lines(folder + "expected.jsonl");
  std::ifstream lines(folder + "lines.txt");
  std::size_t i = 0;
  for (std::string line; std::getline(lines, line); ++i) {
    EXPECT_EQ(json->encode(line), expected.at(i)[0].get<Ids>()) << line;
    EXPECT_EQ(spm->encode(line), expected.at(i)[1].get<Ids>()) << line;
  }
  EXPECT_EQ(i, 460u);
}

// An unknown character costs 10 more than the least likely piece: "c" + "def" is worse by 0.1 than
// "cd" "e" "f", "c" + "defg" better by 0.1 than "cd" "e" "f" "g". The ids are those of tokenizers.
TEST(Unigram, UnknownCharactersCostTenMoreThanTheLeastLikelyPiece) {
  const test::TemporaryFolder folder;
  const auto tokenizer = tokenizer::load_tokenizer(put(folder / "tokenizer.json", R"({
      "version":"1.0","added_tokens":[],"model":{"type":"Unigram","unk_id":0,"vocab":[
      ["<unk>",0.0],["cd",-5.0],["e",-5.0],["f",-5.0],["g",-0.2],["def",-0.1],["defg",-0.1]]}})"));
  EXPECT_EQ(tokenizer->encode("cdef"), (Ids{1, 2, 3}));
  EXPECT_EQ(tokenizer->encode("cdefg"), (Ids{0, 6}));
}

TEST(SerdeJsonFloat, ReadsNumbersAsTokenizersDoes) {
  const auto numbers =
      read_lines(std::string(TFM_SOURCE_DIR) + "/tests/fixtures/unigram_ties/numbers.jsonl");
  int otherwise = 0;
  for (const Json& number : numbers) {
    const std::string text = number[0];
    const double want = std::strtod(number[1].get<std::string>().c_str(), nullptr);
    EXPECT_EQ(tokenizer::serde_json_float(text), want) << text;
    otherwise += want != std::strtod(text.c_str(), nullptr);
  }
  EXPECT_EQ(numbers.size(), 416u);
  EXPECT_GT(otherwise, 20);  // numbers that are not the nearest double
  EXPECT_TRUE(std::isinf(tokenizer::serde_json_float("1e309")));
  EXPECT_TRUE(std::isinf(tokenizer::serde_json_float("-1e99999999999")));
}

// tests/fixtures/make_tokenizer_absent.py
TEST(TokenizerJson, AbsentMembersAreWhatTheLibraryTakesThemFor) {
  const test::TemporaryFolder folder;
  const auto lines = read_lines(fixtures + "/lines.jsonl");
  const auto load = [&](const Json& document) {
    return tokenizer::load_tokenizer(put(folder / "tokenizer.json", document.dump()));
  };
  const auto ids_of = [](const tokenizer::Tokenizer& t, const std::string& text) {
    try {
      return t.encode_with_specials(text);
    } catch (const Error&) {  // a character is not known
      return Ids{};
    }
  };
  const Json cases = Json::parse(std::ifstream(fixtures + "/../tokenizer_absent.json"));
  EXPECT_GT(cases.size(), 15u);
  for (const Json& c : cases) {
    Json without = Json::parse(std::ifstream(fixtures + "/" + c[0].get<std::string>()));
    Json as_read = without;
    std::string where;
    for (const Json& name : c[1])
      where += "/" + (name.is_string() ? name.get<std::string>() : name.dump());
    const Json::json_pointer pointer(where);
    for (const Json& member : c[2]) without[pointer].erase(member.get<std::string>());
    without[pointer].update(c[3]);
    Json part = c[4];
    for (const char* table : {"vocab", "merges"})
      if (as_read[pointer].contains(table)) part[table] = as_read[pointer][table];
    as_read[pointer] = part;
    const auto found = load(without), expected = load(as_read);
    for (const Json& line : lines) {
      const std::string text = line.get<std::string>();
      const Ids ids = ids_of(*expected, text);
      ASSERT_EQ(ids_of(*found, text), ids) << c << line;
      ASSERT_EQ(found->decode(ids), expected->decode(ids)) << c << line;
    }
  }
}

// Other values of a member of tokenizer.json; a null stands for none.
std::vector<Json> other_members(const Json& value) {
  if (value.is_boolean()) return {!value.get<bool>(), nullptr};
  if (value.is_number_integer()) return {value.get<int>() + 1, 0, -1, nullptr};
  if (value.is_number()) return {value.get<double>() + 1, 0, -1, nullptr};
  if (value.is_string())
    return {"",
            "a",
            "##",
            "Removed",
            "Isolated",
            "MergedWithPrevious",
            "MergedWithNext",
            "Contiguous",
            "always",
            "never",
            "first",
            "[UNK]",
            "<unk>",
            nullptr};
  return {nullptr, "a", true};
}

// Each member but the tables of pieces gets other values: the ids and texts that differ then, or
// why the file is refused.
TEST(TokenizerJson, OtherValuesOfEachMember) {
  const test::TemporaryFolder folder;
  std::vector<std::string> texts{"",
                                 " ",
                                 "  a  b",
                                 "A\tb\r\nc",
                                 "don't 12,345.67",
                                 "\xC3\xA9l\xC3\xA8ve \xE4\xB8\xAD\xE6\x96\x87",
                                 "\xEF\xAC\x81\xE2\x80\xA6 x\xCC\x81",
                                 "<s> [CLS] <pad></s>",
                                 "xyzzyx##y"};
  for (const Json& line : read_lines(fixtures + "/lines.jsonl"))
    if (texts.size() < 30) texts.push_back(line.get<std::string>());
  const auto answers = [&](const Json& document) {
    std::vector<std::string> all;
    try {
      const auto t = tokenizer::load_tokenizer(put(folder / "tokenizer.json", document.dump()));
      const auto s = t->special_ids();
      std::string specials = "specials";
      for (const auto& id : {s.pad, s.unknown, s.begin, s.end, s.mask, s.classify, s.separate})
        specials += " " + (id ? std::to_string(*id) : "-");
      all.push_back(specials + " of " + std::to_string(t->vocab_size()));
      for (const std::string& text : texts) {
        try {
          const Ids plain = t->encode(text), with = t->encode_with_specials(text);
          all.push_back(testing::PrintToString(plain) +
                        (with == plain ? "" : " and " + testing::PrintToString(with)) + " " +
                        t->decode(plain));
        } catch (const Error& e) {
          all.push_back(e.what());
        }
      }
    } catch (const Error& e) {
      all.push_back("refused: " + test::without(e.what(), folder / ""));
    }
    return all;
  };
  std::ostringstream lines;
  for (const char* name : {"bart", "bert", "bert_cased", "gpt2", "letters", "llama2", "llama3",
                           "marian", "nfc_bytes", "patterns", "punctuation", "t5"}) {
    const Json whole = Json::parse(std::ifstream(fixtures + "/" + name + ".json"));
    const auto as_is = answers(whole);
    const auto record = [&](const Json& changed, const std::string& what) {
      const auto now = answers(changed);
      std::size_t others = 0;
      std::string first;
      for (std::size_t i = 0; i < now.size(); ++i)
        if (i >= as_is.size() || now[i] != as_is[i]) {
          if (others++ == 0) first = now[i].substr(0, 160);
        }
      std::ranges::replace(first, '\n', ' ');
      std::string together;
      for (const std::string& answer : now) together += answer + "\n";
      if (others > 0)
        lines << name << " " << what << ": " << test::digest(together) << " " << others
              << ", first " << first << "\n";
    };
    const std::function<void(const Json::json_pointer&)> vary = [&](const Json::json_pointer& at) {
      const Json& value = whole.at(at);
      if (!at.empty()) {
        if (whole.at(at.parent_pointer()).is_object()) {
          Json without = whole;
          without.at(at.parent_pointer()).erase(at.back());
          record(without, at.to_string() + " absent");
        }
        for (const Json& other :
             at.back() == "type" ? std::vector<Json>{"other", nullptr} : other_members(value)) {
          Json with = whole;
          with.at(at) = other;
          record(with, at.to_string() + " = " + other.dump());
        }
      }
      if (value.is_object() && value.size() < 20)
        for (const auto& [member, unused] : value.items()) {
          if (member != "vocab" && member != "merges") vary(at / member);
        }
      if (value.is_array() && value.size() < 12)
        for (std::size_t i = 0; i < std::min<std::size_t>(value.size(), 3); ++i) vary(at / i);
    };
    vary(Json::json_pointer{});
  }
  test::expect_recorded("tokenizer_json_values", lines.str());
}

// What versions of the library before 0.20 wrote and read.
TEST(TokenizerJson, OlderNamesAndAbsentMembersMeanWhatTheyMeant) {
  const auto special = [](const std::string& more) {
    return load_with(R"({"normalizer":{"type":"Lowercase"},"added_tokens":[{"id":3,"content":"A")" +
                     more + "}]}")
        ->encode("aAb");
  };
  EXPECT_EQ(special(R"(,"special":true)"), (Ids{0, 3, 1}));  // normalized: no
  EXPECT_EQ(special(R"(,"special":true,"normalized":true)"), (Ids{3, 3, 1}));
  EXPECT_EQ(special(R"(,"special":false)"), (Ids{3, 3, 1}));
  const auto decoded = [](const std::string& more) {
    return load_with(R"({"model":{"vocab":{"▁a":4},"merges":[]},"added_tokens":[],
        "decoder":{"type":"Metaspace","replacement":"▁")" +
                     more + "}}")
        ->decode(Ids{4, 4});
  };
  EXPECT_EQ(decoded(""), "a a");
  EXPECT_EQ(decoded(R"(,"add_prefix_space":true)"), "a a");
  EXPECT_EQ(decoded(R"(,"add_prefix_space":false)"), " a a");
  EXPECT_EQ(decoded(R"(,"prepend_scheme":"never")"), " a a");
}

TEST(AddedTokens, MayBeginInSpacesThatAnotherTook) {
  const tokenizer::AddedTokens tokens(
      {{.content = "<end>", .id = 4, .rstrip = true}, {.content = " b", .id = 6}});
  std::vector<std::pair<std::string, std::int32_t>> parts;
  const std::string text = "a<end> bc";
  tokens.split(text, [&](std::size_t begin, std::size_t end, const tokenizer::AddedToken* token) {
    parts.emplace_back(text.substr(begin, end - begin), token ? token->id : -1);
  });
  EXPECT_EQ(parts, (std::vector<std::pair<std::string, std::int32_t>>{
                       {"a", -1}, {"<end> ", 4}, {" b", 6}, {"c", -1}}));
}

TEST(AddedTokens, LeaveNoEmptyPlace) {
  const auto t = load_with(R"({"added_tokens":[{"id":3,"content":" ","lstrip":true,"rstrip":true,
                               "normalized":false}]})");
  EXPECT_EQ(t->encode("a  b"), (Ids{0, 3, 1}));
}

TEST(AddedTokens, DecodeAsTheyAreMatched) {
  const auto decoded = [](const std::string& normalized, const std::string& text) {
    const auto t =
        load_with(R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"Lowercase"},
        {"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
        "decoder":{"type":"Replace","pattern":{"String":"▁"},"content":" "},
        "added_tokens":[{"id":3,"content":"Новый","normalized":)" +
                  normalized + "}]}");
    return t->decode(t->encode(text));
  };
  EXPECT_EQ(decoded("true", "ab новый"), "ab новый");
  EXPECT_EQ(decoded("false", "ab Новый"), "abНовый");
}

TEST(CharacterMap, FollowsNoWildUnit) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string blob = {16, 0, 0, 0};
    for (int i = 0; i < 16; ++i)
      blob.push_back(static_cast<char>(random() % 4 ? random() % 4 : random()));
    blob += std::string("a\0\xC3\xA9\0", 5);
    const tokenizer::Charsmap map(blob, "");
    for (const char* text : {"", "a", "ab", "\x01\x02\x03", "\xC3\xA9"}) {
      const auto rule = map.longest(text);
      ASSERT_LE(rule.bytes, std::string_view(text).size());
      ASSERT_EQ(text::well_formed(rule.replacement), rule.replacement);
    }
  }
}

TEST(Regex, ReadsPatternsAsOniguruma) {
  EXPECT_EQ(text::pcre2_pattern("a\\sb[\\s\\n]", ""),
            "a[\\p{Z}\\t-\\r\\x{85}]b[\\p{Z}\\t-\\r\\x{85}\\n]");
  EXPECT_EQ(text::pcre2_pattern("[]\\]a][^]b]", ""), "[]\\]a][^]b]");
  EXPECT_EQ(text::pcre2_pattern("[[:space:]x]", ""), "[\\p{Z}\\t-\\r\\x{85}x]");
  for (
      const char* bad :
      {"[a[b]]",        "[a&&b]", "\\G",   "\\K",   "[\\W]", "[[:a",  "[[:alpha:]]", "[[:^digit:]]",
       "\\pL",          "\\p",    "\\p{",  "\\p{}", "\\p{^", "(?s)a", "(?#a",        "\\xe9",
       "[\\x80-\\xff]", "a{3,2}", "(?U)a", "(",     ")",     "\\"})
    expect_error(ExitCode::input, {"file: "}, [&] { text::Regex(bad, "file: "); });
}

TEST(Regex, FindsWhatOnigurumaFinds) {  // normalizers.Replace of tokenizers 0.23
  struct Case {
    std::string pattern, text, replaced;
  };
  const Case cases[] = {{"x*", "axxb", "_a_b_"},  // empty matches
                        {"a|", "baab", "_b__b_"},
                        {"(?<=b)", "abb", "ab_b_"},
                        {"b??", "bab", "_b_a_b_"},
                        {"(?:)", "é世", "_é_世_"},
                        {"^", "a\n", "_a\n"},
                        {"$", "a\n", "a_\n_"},
                        {"\\A", "ab", "_ab"},
                        {"\\z", "ab", "ab_"},
                        {"(?=(\\d{3})+(?!\\d))", "1234567", "1_234_567"},
                        {"x*", "", ""},
                        {"(?mi)A.", "a\n", "_"},  // options
                        {"(?-m).", "\n", "\n"},
                        {"(?m-i:.)", "\n", "_"},
                        {"a(?i)b|c", "aB ac C aC", "_ _ C _"},
                        {"(a(?i)b|c)d", "aBd aCd cd", "_ _ cd"},
                        {"x(?x) a (?-x) b", "xa b", "_"},
                        {"a{,}", "a{,}", "_"},  // repetitions
                        {"ca{,2}b", "caab", "_"},
                        {"\\p{N}{1,3}+", "12345", "_"},
                        {"(?:ab){2}+", "abababab", "_"},
                        {"é{2}+", "éééé", "_"},
                        {"(?<n>a){2}+[b]", "aaaab", "_"},
                        {"a{2}?", "aaaa a", "__ _a_"},
                        {"a{2}??", "aa", "_a_a_"},
                        {"a{1,2}?", "aaa", "___"},
                        {"a(?#x\\)[){2}", "aaa", "_a"},  // comments
                        {"(?x)a # [\n{2}", "aaa", "_a"},
                        {"(?x)[ ]a", "b a", "b_"},
                        {"[\\S]", "a\u180eb", "___"},  // characters
                        {"\\x41{2}+\\x{e9}[\\x{e9}\\x{E8}-\\x{EA}]{2}", "AAAAéèéé", "_é"}};
  for (const auto& [pattern, text, replaced] : cases) {
    std::string out;
    std::size_t from = 0;
    text::Regex(pattern, "").find_all(text, [&](std::size_t begin, std::size_t end) {
      out.append(text, from, begin - from).append("_");
      from = end;
    });
    EXPECT_EQ(out.append(text, from), replaced) << pattern << " in " << text;
  }
}

TEST(Tokenizer, SplitsAndReplacesAtEmptyMatches) {
  const auto split = [](const std::string& pattern, const std::string& behavior) {
    return load_with(R"({"pre_tokenizer":{"type":"Split","invert":false,"pattern":{"Regex":")" +
                     pattern + R"("},"behavior":")" + behavior + "\"}}")
        ->encode("abab");
  };
  for (const char* behavior :
       {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
    EXPECT_EQ(split("(?=b)", behavior), (Ids{0, 1, 0, 1})) << behavior;
    EXPECT_EQ(split("(?=a)", behavior), (Ids{2, 2})) << behavior;
  }
  const auto replace = [](const std::string& pattern) {
    return load_with(R"({"normalizer":{"type":"Replace","content":"a","pattern":{"Regex":")" +
                     pattern + "\"}}}");
  };
  EXPECT_EQ(replace("^")->encode("b"), (Ids{2}));
  EXPECT_EQ(replace("$")->encode("b"), (Ids{1, 0}));
}

// The ranges of the basic tokenizer of BERT, which tokenizers has with U+2B920 for U+2B820.
TEST(TokenizerJson, PutsSpacesAroundChineseCharacters) {
  const auto encode = [](const std::string& normalizer, const std::string& text) {
    return load_with(R"({"normalizer":{"type":"BertNormalizer")" + normalizer +
                     R"(},"model":{"unk_token":"?","vocab":{"<s>":3," ":4,"?":5,"A":6,"é":7}}})")
        ->encode(text);
  };
  const std::string keep = R"(,"clean_text":false,"strip_accents":false,"lowercase":false)";
  const auto spaced = [&](std::uint32_t c) {
    std::string text = "a";
    text::append_utf8(text, c);
    const Ids ids = encode(keep, text + "b");
    EXPECT_TRUE(ids == (Ids{0, 4, 5, 4, 1}) || ids == (Ids{0, 5, 1})) << std::hex << c;
    return ids.size() == 5;
  };
  for (const std::uint32_t c :
       {0x3400, 0x4DBF, 0x4E00, 0x9FFF, 0xF900, 0xFAFF, 0x20000, 0x2A6DF, 0x2A700, 0x2B73F, 0x2B740,
        0x2B81F, 0x2B920, 0x2CEAF, 0x2F800, 0x2FA1F})
    EXPECT_TRUE(spaced(c)) << std::hex << c;
  for (const std::uint32_t c : {0x33FF, 0x4DC0, 0x4DFF, 0xA000, 0xF8FF, 0xFB00, 0x1FFFF, 0x2A6E0,
                                0x2A6FF, 0x2B820, 0x2B91F, 0x2CEB0, 0x2F7FF, 0x2FA20})
    EXPECT_FALSE(spaced(c)) << std::hex << c;
  // Members that are absent are on, and accents go where capitals do.
  EXPECT_EQ(encode("", "a中b"), (Ids{0, 4, 5, 4, 1}));
  EXPECT_EQ(encode(R"(,"handle_chinese_chars":false)", "a中b"), (Ids{0, 5, 1}));
  EXPECT_EQ(encode("", "a\x01\x7F\uFFFD\u200B\tb"), (Ids{0, 4, 1}));
  EXPECT_EQ(encode(R"(,"clean_text":false)", "a\x01\uFFFDb"), (Ids{0, 5, 5, 1}));
  EXPECT_EQ(encode("", "Aa"), (Ids{0, 0}));
  EXPECT_EQ(encode(R"(,"lowercase":false)", "Aé"), (Ids{6, 7}));
  EXPECT_EQ(encode("", "é"), (Ids{5}));  // e is not in the vocabulary
  EXPECT_EQ(encode(R"(,"strip_accents":false)", "Aé"), (Ids{0, 7}));
}

// A piece goes on behind a space only where texts are not split there.
TEST(TokenizerJson, SplitsAtMetaspacesUnlessItSaysOtherwise) {
  const auto encode = [](const std::string& more, const std::string& text) {
    return load_with(R"({"pre_tokenizer":{"type":"Metaspace","replacement":"▁")" + more +
                     R"(},"model":{"vocab":{"<s>":3,"▁":4,"a▁":5},"merges":["a ▁"]}})")
        ->encode(text);
  };
  const std::string never = R"(,"prepend_scheme":"never")";
  EXPECT_EQ(encode(never, "a a"), (Ids{0, 4, 0}));
  EXPECT_EQ(encode(never + R"(,"split":true)", "a a"), (Ids{0, 4, 0}));
  EXPECT_EQ(encode(never + R"(,"split":false)", "a a"), (Ids{5, 0}));
  for (const std::string always : {"", R"(,"prepend_scheme":"always")"}) {
    EXPECT_EQ(encode(always, "a a"), (Ids{4, 0, 4, 0}));
    EXPECT_EQ(encode(always, " a"), (Ids{4, 0}));
    EXPECT_EQ(encode(always, "a<s>a"), (Ids{4, 0, 3, 4, 0}));
  }
  EXPECT_EQ(encode(R"(,"prepend_scheme":"first")", "a<s>a"), (Ids{4, 0, 3, 0}));
  EXPECT_EQ(encode(R"(,"add_prefix_space":false)", "a a"), (Ids{0, 4, 0}));
}

TEST(Tokenizer, SaysWhatATokenStandsForInsideAText) {
  EXPECT_EQ(load_with("{}")->token_text(0), " a");
  EXPECT_EQ(load_with("{}")->token_text(3), "<s>");
  EXPECT_EQ(load_with(R"({"decoder":{"type":"Fuse"}})")->token_text(2), "ab");
  const auto wordpiece = tokenizer::load_tokenizer(fixtures + "/bert.json");
  EXPECT_EQ(wordpiece->token_text(wordpiece->encode("a")[0]), " a");
}

// The ids of tokenizers 0.23.
TEST(Bpe, MetaspacesMeetWhereNothingIsKnownBetween) {
  const auto t = load_with(R"({"pre_tokenizer":{"type":"Metaspace","replacement":"▁",
      "prepend_scheme":"never","split":false},"model":{"vocab":{"a":0,"b":1,"ab":2,"▁":4,"▁▁":5,
      "▁▁a":6},"merges":["▁ ▁","▁▁ a"]},"added_tokens":[]})");
  EXPECT_EQ(t->encode(" Ж a"), (Ids{6}));
  EXPECT_EQ(t->encode("bЖ a"), (Ids{1, 4, 0}));
}

// The tokens that end at each byte of a text.
std::vector<std::size_t> cuts_of(const tokenizer::Tokenizer& t, const std::string& text) {
  std::vector<std::size_t> offsets(text.size() + 1), ends;
  std::iota(offsets.begin(), offsets.end(), std::size_t{0});
  std::vector<tokenizer::Tokenizer::Cut> cuts;
  t.encode_with_cuts(text, offsets, cuts);
  for (const auto& cut : cuts) ends.push_back(cut.tokens);
  return ends;
}

TEST(Cuts, CountASpaceThatIsPutBeforeATextWithItsStart) {
  const auto t = load_with(R"({"pre_tokenizer":{"type":"Metaspace","replacement":"▁",
      "prepend_scheme":"always","split":false},"model":{"vocab":{"▁":4,"bb":5},
      "merges":["b b"]},"added_tokens":[]})");
  EXPECT_EQ(t->encode("abb a"), (Ids{4, 0, 5, 4, 0}));
  EXPECT_EQ(cuts_of(*t, "abb a"), (std::vector<std::size_t>{0, 2, 2, 3, 4, 5}));
}

TEST(Cuts, TakeWhatIsNotKnownUpToTheNextToken) {
  const auto t = load_with(R"({"model":{"vocab":{"<unk>":4},"merges":[],
      "unk_token":"<unk>","fuse_unk":true},"added_tokens":[]})");
  EXPECT_EQ(t->encode("aЖxb"), (Ids{0, 4, 1}));
  EXPECT_EQ(cuts_of(*t, "aЖxb"), (std::vector<std::size_t>{0, 1, 1, 1, 2, 3}));
}

TEST(ByteLevel, IsNotCutWhereItWouldAddASpace) {
  const auto cut = [](const std::string& prefix, const std::string& text) {
    return load_with(R"({"pre_tokenizer":{"type":"ByteLevel","trim_offsets":true,
                         "add_prefix_space":)" +
                     prefix + "}}")
        ->safe_cut(text);
  };
  EXPECT_EQ(cut("true", "ab ab\nab"), 2u);
  EXPECT_EQ(cut("false", "ab ab\nab"), 5u);
}

TEST(Decoder, JoinsBytesOfACharacter) {
  const auto decode = [](const std::string& decoders, const Ids& ids) {
    return load_with(R"({"model":{"vocab":{"<0xE2>":4,"<0x96>":5,"<0x81>":6,"##b":7,"\u00e2":3}},
                         "added_tokens":[],
                         "decoder":{"type":"Sequence","decoders":[)" +
                     decoders + "]}}")
        ->decode(ids);
  };
  const auto replace = [](const std::string& pattern, const std::string& content) {
    return R"({"type":"Replace","pattern":)" + pattern + R"(,"content":")" + content + "\"}";
  };
  const std::string bytes = R"({"type":"ByteFallback"},)",
                    level = R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true},)",
                    any = replace(R"({"Regex":"."})", "_");
  EXPECT_EQ(decode(bytes + replace(R"({"String":"▁"})", " "), {0, 4, 5, 6, 0}), "a a");
  EXPECT_EQ(decode(bytes + R"({"type":"WordPiece","prefix":"##","cleanup":false})", {4, 5, 6, 7}),
            "▁b");
  EXPECT_EQ(decode(bytes + R"({"type":"Strip","content":"▁","start":1,"stop":0})", {4, 5, 6, 0}),
            "a");
  EXPECT_EQ(decode(bytes + any, {0, 4, 5, 0}), "_\xE2\x96_");
  EXPECT_EQ(decode(level + any, {0, 3, 0}), "_\xE2_");
  EXPECT_EQ(decode(level + any, {3}), "\xE2");
}

TEST(Regex, NamesScriptsAsOniguruma) {
  EXPECT_EQ(text::pcre2_pattern("\\p{Greek}[^\\P{^Greek}\\p{Lt}]\\P{Greek}", ""),
            "\\p{sc:Greek}[^\\p{sc:Greek}\\p{Lt}]\\P{sc:Greek}");
  int matches = 0;
  text::Regex("\\p{Han}", "").find_all("\u4e00\u3001", [&](std::size_t, std::size_t) {
    ++matches;
  });
  EXPECT_EQ(matches, 1);
}

TEST(Regex,
     KnowsWhatUnicode16Assigned) {  // digits of 16.0, an ideograph of 15.1, marks of 15.0 and 16.0
  const auto matched = [](const std::string& pattern) {
    std::string all;
    const std::string text = "a1\U00010D40\U0002EBF0\u0ECE\u0897";
    text::Regex(pattern, "").find_all(text, [&](std::size_t begin, std::size_t end) {
      all += text.substr(begin, end - begin);
    });
    return all;
  };
  for (const char* digits : {"\\d", "[\\d]", "\\p{Nd}+", "[\\p{nd}]", "\\P{^N}", "[[:digit:]]"})
    EXPECT_EQ(matched(digits), "1\U00010D40") << digits;
  EXPECT_EQ(matched("\\p{C}|\\p{Cn}"), "");
  EXPECT_EQ(matched("\\P{C}|\\P{Cn}"), matched("[^x]"));
  EXPECT_EQ(matched("\\p{Han}"), "\U0002EBF0");
  EXPECT_EQ(matched("\\p{^L}+"), "1\U00010D40\u0ECE\u0897");
  EXPECT_EQ(matched("[^\\p{Mn}\\p{L}]+"), "1\U00010D40");
  EXPECT_EQ(matched("\\W"), "");
}

TEST(Tokenizer, PrependsToWhatStandsForTheFirstCharacter) {  // which Precompiled made " \u0301" of
  const auto marian = tokenizer::load_tokenizer(fixtures + "/marian.json");
  EXPECT_EQ(marian->encode("\u00b4"), (std::vector<std::int32_t>{2, 1}));
  EXPECT_EQ(marian->encode(" \u00b4"), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(marian->encode("\u200ba"), (std::vector<std::int32_t>{17}));
  EXPECT_EQ(marian->encode("a"), (std::vector<std::int32_t>{42}));
}

// The ids of tokenizers 0.23. Its normalizers say what the text that they make stands for.
TEST(Tokenizer, PrependsFirstBehindEveryNormalizer) {
  const auto encode = [](const std::string& normalizer, const std::string& text,
                         const std::string& before = "") {
    return load_with(R"({"normalizer":)" + normalizer +
                     R"(,"pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + before +
                     R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}]},
                     "added_tokens":[],"model":{"unk_token":"<unk>","vocab":{"<unk>":0,"a":1,
                     "b":2,"▁":3,"1":4,"2":5,"⁄":6,"x":7,"ab":8}}})")
        ->encode(text);
  };
  const auto replaced = [](const std::string& pattern, const std::string& content) {
    return R"({"type":"Replace","pattern":{"Regex":")" + pattern + R"("},"content":")" + content +
           "\"}";
  };
  EXPECT_EQ(encode(replaced("^.", ""), "ab"), (Ids{2}));
  EXPECT_EQ(encode(replaced("ab", ""), "aba"), (Ids{1}));
  EXPECT_EQ(encode(replaced("ab", "x"), "ab"), (Ids{7}));  // it stands for the last character
  EXPECT_EQ(encode(replaced("a", "x"), "ab"), (Ids{3, 7, 2}));
  EXPECT_EQ(encode(replaced(" +", "x"), "  a"), (Ids{7, 1}));
  EXPECT_EQ(encode(replaced("^", "x"), "ab"), (Ids{3, 7, 8}));
  EXPECT_EQ(encode(replaced(" ", " x"), " a", R"({"type":"Whitespace"},)"), (Ids{3, 7, 1}));
  const std::string strip = R"({"type":"Strip","strip_left":true,"strip_right":true})";
  EXPECT_EQ(encode(strip, " a"), (Ids{1}));
  EXPECT_EQ(encode(strip, "a "), (Ids{3, 1}));
  EXPECT_EQ(
      encode(R"({"type":"Sequence","normalizers":[)" + strip + "," + replaced("^", "x") + "]}",
             " a"),
      (Ids{3, 7, 1}));
  // U+0007 to nothing, the half to three characters: what is left out in front is not counted.
  const std::string map = R"({"type":"Precompiled","precompiled_charsmap":")" +
                          ("AAQAAAAYAAAHDQAAAAAAgL0dAAABAAC" + std::string(1019, 'A')) + "DC6AE" +
                          std::string(317, 'A') + "MeKBhDIA\"}";
  const std::string digits = R"({"type":"Digits","individual_digits":true},)";
  EXPECT_EQ(encode(map,
                   "\x07"
                   "a"),
            (Ids{3, 1}));
  EXPECT_EQ(encode(map,
                   "\x07\x07"
                   "ab"),
            (Ids{3, 8}));
  EXPECT_EQ(encode(map, "a\x07"), (Ids{3, 1}));
  EXPECT_EQ(encode(map, "½", digits), (Ids{3, 4, 3, 6, 3, 5}));
  EXPECT_EQ(encode(map, "½\x07", digits), (Ids{3, 4, 3, 6, 5}));
  EXPECT_EQ(encode(map, "½\u0301", digits), (Ids{3, 4, 6, 5}));
  // The accent goes with the last of three characters.
  EXPECT_EQ(encode(R"({"type":"Sequence","normalizers":[)" + replaced("^b", "12a") +
                       R"(,{"type":"NFC"}]})",
                   "b\u0301b", digits),
            (Ids{3, 4, 3, 5, 3, 0, 2}));
}

TEST(Unicode, IsOfTheVersionThatTokenizersHas) {
  EXPECT_EQ(text::normal_form("\u212b\U0001fbf1\u0898\u0316e\u0301", text::NormalForm::nfkc),
            "\u00c5\U0001fbf1\u0898\u0316\u00e9");
  EXPECT_EQ(text::normal_form("\u0301\u0898\u0316\u0301", text::NormalForm::nfd),
            "\u0301\u0898\u0316\u0301");
  EXPECT_EQ(text::normal_form("\u0301\u0316", text::NormalForm::nfd), "\u0316\u0301");
  EXPECT_TRUE(text::is_nonspacing_mark(0x1734) && !text::is_nonspacing_mark(0xA9BD) &&
              !text::is_nonspacing_mark(0x898) && text::is_nonspacing_mark(0x301));
  EXPECT_TRUE(text::is_mark(0x1CF2) && text::is_mark(0x8D4) && !text::is_mark(0x898) &&
              !text::is_mark(0x111C9));
  EXPECT_TRUE(text::is_punctuation(0x166D) && text::is_punctuation(0x111C9) &&
              !text::is_punctuation(0x2E43) && text::is_punctuation(0x2E42));
  EXPECT_TRUE(text::is_other(0x200B) && !text::is_other(0x890) && !text::is_other(0x378));
  std::string lower;
  text::append_lower_case(lower, 0x10D51);
  EXPECT_EQ(lower, "\U00010d71");
}

TEST(Regex, TakesStepsInProportionToTheText) {
  const auto matches = [](const char* pattern, const std::string& text) {
    int count = 0;
    text::Regex(pattern, "").find_all(text, [&](std::size_t, std::size_t) { ++count; });
    return count;
  };
  EXPECT_EQ(matches("\\s+(?!\\S)|\\s+", std::string(1'000'000, ' ') + "x"), 2);
  EXPECT_EQ(matches("(?:x+x+)+y|x", std::string(14, 'x')), 14);
  expect_error(ExitCode::input, {"steps"},
               [&] { matches("(x+x+)+[yz]{2}", std::string(200, 'x') + "y"); });
  std::string much = "b";  // the last try of a match leaves a thousand steps, for any length
  for (int i = 0; i < 3000; ++i) much = std::string(9, 'a') + "b" + much;
  for (int length = 0; length < 8; ++length, much += 'b')
    expect_error(ExitCode::input, {"steps"}, [&] { matches("(?:a|aa|a(?=a))+c|[ab]", much); });
  std::string few;  // more steps than any text has, and not more than one of this length
  for (int i = 0; i < 200; ++i) few += std::string(14, 'x') + " ";
  EXPECT_EQ(matches("(?:x+x+)+y|x", few + std::string(1'000'000, ' ')), 200 * 14);
  std::string many;  // each short, all together too long
  for (int i = 0; i < 1000; ++i) many += std::string(14, 'x') + " ";
  expect_error(ExitCode::input, {"steps"}, [&] { matches("(?:x+x+)+y|x", many); });
}

TEST(WellFormed, ReplacesAsPythonDoes) {
  EXPECT_EQ(text::well_formed("a\xE2\x82"
                              "b"),
            "a\uFFFDb");
  EXPECT_EQ(text::well_formed("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(text::well_formed("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(text::well_formed("\xF0\x80\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(text::well_formed("\xC3\x28\xFFé"), "\uFFFD(\uFFFDé");
}

TEST(TrainTokenizer, MergesTheMostFrequentPair) {
  const test::TemporaryFolder folder;
  put(folder / "a.txt", "aaab aab\naab ab\xFF");
  put(folder / "b.jsonl", "{\"text\": \"aab\"}\n");
  tokenizer::TrainTokenizerOptions options{{folder / "a.txt", folder / "b.jsonl"},
                                           folder / "tokenizer.json",
                                           262,
                                           {"<|endoftext|>", "<x>"}};
  EXPECT_EQ(tokenizer::train_tokenizer(options), 262);
  const std::string first = test::get(options.output);
  const Json model = Json::parse(first)["model"];
  EXPECT_EQ(model["merges"], (Json{"a a", "aa b", "a b", "Ġ aab"}));
  const auto t = tokenizer::load_tokenizer(options.output);
  EXPECT_EQ(t->vocab_size(), 262);
  EXPECT_EQ(t->end_of_document(), 0);
  EXPECT_EQ(t->encode("<x>aab aab"), (Ids{1, 259, 261}));
  const std::string text = "any text, é 日本\xFF\n";
  EXPECT_EQ(t->decode(t->encode(text)), text);
  tokenizer::train_tokenizer(options);
  EXPECT_EQ(test::get(options.output), first);
  options.vocab_size = 5000;
  EXPECT_LT(tokenizer::train_tokenizer(options), 300);
  options.vocab_size = 257;
  expect_error(ExitCode::usage, {"257", "258"}, [&] { tokenizer::train_tokenizer(options); });
  options.specials = {"x", "<y>"};
  expect_error(ExitCode::usage, {"'x'", "byte alphabet"},
               [&] { tokenizer::train_tokenizer(options); });
}

TEST(TrainTokenizer, RefusesInputsWithoutText) {
  const test::TemporaryFolder folder;
  put(folder / "a.txt", "");
  tokenizer::TrainTokenizerOptions options{{folder / "a.txt"}, folder / "tokenizer.json", 300, {}};
  expect_error(ExitCode::input, {"a.txt", "no text to train a tokenizer on"},
               [&] { tokenizer::train_tokenizer(options); });
  EXPECT_FALSE(std::filesystem::exists(options.output));
}

}  // namespace
}  // namespace tfm
