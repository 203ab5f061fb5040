// Where a model's checkpoint, tokenizer and texts' format are found, and its layout without
// training.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "data/token_origin.h"
#include "inference/loaded_model.h"
#include "inference/text_format.h"
#include "support/data_files.h"

namespace tfm {
namespace {

namespace fs = std::filesystem;
const std::string kRunModels = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/huggingface/";
constexpr const char* kSmallRun =
    "model: {family: decoder, vocab_size: 8, d_model: 8, n_layers: 1, n_heads: 2, max_seq_len: 8}\n"
    "train: {seq_len: 8, global_batch_size: 4}\n";

// A checkpoint without tensors.
std::string small_checkpoint(const std::string& dir, const std::string& config,
                             const std::string& directory = "", std::int64_t step = 3,
                             const std::string& extra = "{}") {
  checkpoint::CheckpointInfo info;
  info.step = step, info.config = config, info.directory = directory, info.extra = extra;
  const auto written = checkpoint::write_checkpoint(dir, info, {}, 0, {});
  EXPECT_EQ(written.error, "");
  return written.path;
}

std::string with_tokenizers(const std::string& tokenizer, const std::string& source = "") {
  return kSmallRun + ("data: {train: {type: tokens, path: a.bin}" +
                      (tokenizer.empty() ? "" : ", tokenizer: " + tokenizer) +
                      (source.empty() ? "" : ", source_tokenizer: " + source) + "}\n");
}

class RunFolder : public testing::Test {
 protected:
  // What the tokenizer of a run with this one, which began in `directory`, is read from.
  std::string tokenizer_of(const std::string& spec, const std::string& directory = "") {
    fs::remove_all(folder_ / "run/checkpoints");
    return inference::checkpoint_config(
               small_checkpoint(folder_ / "run/checkpoints", with_tokenizers(spec), directory), {})
        .data.tokenizer;
  }
  std::string file(const std::string& name) {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    return test::put(folder_ / name, "{}");
  }
  const test::TemporaryFolder folder_;
};

TEST_F(RunFolder, MovedToAnotherMachineIsReadWithTheTokenizerBesideItsCheckpoints) {
  EXPECT_EQ(tokenizer_of(""), "bytes");
  EXPECT_EQ(tokenizer_of("bytes", folder_ / "old"), "bytes");
  // Where the run began.
  const std::string written = file("old/data/words.json");
  EXPECT_EQ(tokenizer_of(written), written);
  EXPECT_EQ(tokenizer_of(written, folder_ / "elsewhere"), written);
  EXPECT_EQ(tokenizer_of("data/words.json", folder_ / "old"), written);
  // Nowhere: as it was, which the message about it names.
  for (const std::string& spec : {std::string("/gone/words.json"), std::string("gone/words.json")})
    EXPECT_EQ(tokenizer_of(spec, "/gone"), spec);
  // In the folder of tokenizers beside the steps; the file's old place comes first where it is.
  const std::string moved = folder_ / "run/checkpoints/tokenizer/words.json";
  const auto moved_from = [&](const std::string& spec, const std::string& directory) {
    fs::remove_all(folder_ / "run/checkpoints");
    file("run/checkpoints/tokenizer/words.json");
    const std::string step =
        small_checkpoint(folder_ / "run/checkpoints", with_tokenizers(spec), directory);
    return inference::checkpoint_config(step, {}).data.tokenizer;
  };
  const auto expect_moved = [&](const std::string& found) {
    EXPECT_TRUE(fs::exists(found) && fs::equivalent(found, moved)) << found;
  };
  expect_moved(moved_from("/gone/words.json", ""));
  expect_moved(moved_from("data/words.json", "/gone"));
  EXPECT_EQ(moved_from(written, ""), written);
  EXPECT_EQ(moved_from("data/words.json", folder_ / "old"), written);
  EXPECT_EQ(moved_from("/gone/other.json", ""), "/gone/other.json");
  // A folder of that name is all of it.
  const std::string whole = moved_from("/gone/tokenizer", "");
  EXPECT_TRUE(fs::equivalent(whole, folder_ / "run/checkpoints/tokenizer")) << whole;
}

TEST_F(RunFolder, MovedHasTheTokenizerOfItsSourcesToo) {
  file("run/checkpoints/tokenizer/to.json");
  file("run/checkpoints/tokenizer/from.json");
  std::string text = with_tokenizers("/gone/to.json", "/gone/from.json");
  text.replace(text.find("{type: tokens, path: a.bin}"), 27,
               "{type: pairs, source: a.txt, target: b.txt}");
  text.replace(text.find("family: decoder"), 15,
               "family: encoder_decoder, source_vocab_size: 8, tie_embeddings: none");
  const std::string step = small_checkpoint(folder_ / "run/checkpoints", text);
  const config::Config c = inference::checkpoint_config(step, {});
  EXPECT_EQ(fs::path(c.data.tokenizer).filename(), "to.json");
  EXPECT_EQ(fs::path(c.data.source_tokenizer).filename(), "from.json");
  EXPECT_TRUE(fs::exists(c.data.tokenizer) && fs::exists(c.data.source_tokenizer));
}

TEST_F(RunFolder, NamesItsNewestCheckpoint) {
  using checkpoint::Verification;
  const auto found = [&](const std::string& path) {
    return inference::checkpoint_path(path, Verification::headers);
  };
  const std::string run = folder_ / "run", dir = run + "/checkpoints",
                    config = with_tokenizers("bytes");
  test::expect_error(ExitCode::input, {run + ": no such directory", "manifest.json", "checkpoints"},
                     [&] { found(run); });
  fs::create_directories(dir);
  test::expect_error(ExitCode::input, {dir + ": no checkpoint found"}, [&] { found(run); });
  test::expect_error(ExitCode::input, {dir + ": no checkpoint found"}, [&] { found(dir); });
  const std::string first = small_checkpoint(dir, config, "", 1),
                    second = small_checkpoint(dir, config, "", 2);
  EXPECT_EQ(found(run), second);
  EXPECT_EQ(found(dir), second);
  EXPECT_EQ(found(first), first);
  // A folder with steps of its own is not that of a run.
  const std::string own = small_checkpoint(run, config, "", 7);
  EXPECT_EQ(found(run), own);
  EXPECT_EQ(inference::verified_path(run, comm::single_mesh().world()), own);
  // Nor is one both of Hugging Face and of steps.
  test::put(run + "/config.json", "{}");
  test::expect_error(ExitCode::input, {"both", "step-"}, [&] { found(run); });
  fs::remove_all(own);
  EXPECT_EQ(found(run), run);
}

TEST_F(RunFolder, OneCheckpointIsVerifiedByItsChecksums) {
  const std::string step = small_checkpoint(folder_ / "a", with_tokenizers("bytes"));
  const comm::Mesh mesh = comm::single_mesh();
  EXPECT_EQ(inference::verified_path(step, mesh.world()), step);
  const std::string shard = step + "/shard-00000-of-00001.safetensors";
  std::string bytes = test::get(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  test::put(shard, bytes);
  test::expect_error(ExitCode::input, {shard},
                     [&] { inference::verified_path(step, mesh.world()); });
}

TEST_F(RunFolder, IsReadWithoutTheLayoutOfItsRun) {
  const std::string step = small_checkpoint(
      folder_ / "a", with_tokenizers("bytes") +
                         "device: cuda\ntf32: true\ncuda_graphs: off\n"
                         "parallel: {tensor: 2, zero: 2, backend: nccl, timeout: 77}\n");
  const config::Config c = inference::checkpoint_config(step, {});
  EXPECT_EQ(c.parallel, config::ParallelConfig{});
  EXPECT_FALSE(c.tf32);
  EXPECT_EQ(c.cuda_graphs, config::CudaGraphs::automatic);
  EXPECT_EQ(c.train.seq_len, 8);
  test::expect_error(ExitCode::usage, {"model", "d_model", "remove overrides"},
                     [&] { inference::checkpoint_config(step, {"model.d_model=16"}); });
}

// Of two heads: the most ranks that can share them split the model, the others the sequences.
TEST_F(RunFolder, LayoutsForReadingSplitTheModelFirst) {
  const std::string step = small_checkpoint(folder_ / "a", with_tokenizers("bytes"));
  const auto layout = [&](int ranks, const std::vector<std::string>& overrides) {
    const config::Config c = inference::inference_config(step, overrides, ranks);
    EXPECT_EQ(c.train.global_batch_size % c.train.micro_batch_size, 0);
    return std::tuple(c.parallel.tensor, c.parallel.data, c.parallel.sequence,
                      c.train.global_batch_size / c.train.micro_batch_size);
  };
  EXPECT_EQ(layout(1, {}), std::tuple(1, 1, false, 1));
  EXPECT_EQ(layout(2, {}), std::tuple(2, 1, false, 1));
  EXPECT_EQ(layout(3, {}), std::tuple(1, 3, false, 3));
  EXPECT_EQ(layout(4, {}), std::tuple(2, 2, false, 2));
  EXPECT_EQ(layout(6, {}), std::tuple(2, 3, false, 3));
  EXPECT_EQ(layout(4, {"parallel.tensor=1"}), std::tuple(1, 4, false, 4));
  EXPECT_EQ(layout(4, {"parallel.data=4"}), std::tuple(2, 2, false, 2)) << "as many as are left";
  EXPECT_EQ(layout(4, {"parallel.sequence=true"}), std::tuple(2, 2, false, 2));
  EXPECT_THROW(layout(4, {"parallel.tensor=4"}), Error) << "two heads";
  EXPECT_THROW(layout(3, {"parallel.tensor=2"}), Error);
  for (const char* other : {"parallel.pipeline=2", "parallel.context=2", "parallel.zero=1"})
    test::expect_error(ExitCode::usage, {other, "is not valid here"}, [&] { layout(2, {other}); });
  for (const char* usual : {"parallel.pipeline=1", "parallel.context=1", "parallel.zero=0"})
    EXPECT_NO_THROW(layout(2, {usual})) << usual;
}

TEST(HuggingFaceRun, HasTheLengthAndTheDataOfItsModel) {
  const auto run = [](const std::string& name) {
    return inference::huggingface_run(kRunModels + name);
  };
  const config::Config decoder = run("gpt2_0"), encoder = run("bert_0"), pairs = run("bart_0"),
                       labelled = run("bert_sequences_0"), sentences = run("sentence_bert");
  EXPECT_EQ(decoder.train.seq_len, decoder.model.max_seq_len);
  EXPECT_EQ(decoder.data.train.type, "tokens");
  EXPECT_EQ(encoder.data.train.type, "mlm");
  EXPECT_EQ(pairs.data.train.type, "pairs");
  EXPECT_EQ(labelled.data.train.type, "labelled");
  EXPECT_EQ(labelled.data.train.text_pair, "");
  EXPECT_EQ(sentences.data.train.type, "labelled");
  EXPECT_NE(sentences.data.train.text_pair, "");
  EXPECT_EQ(decoder.data.tokenizer, kRunModels + "gpt2_0");
}

// A length of sentences counts up to that of the model.
TEST_F(RunFolder, OfSentencesReadsAsManyTokensAsItsFilesSay) {
  const std::string dir = folder_ / "model";
  fs::copy(kRunModels + "sentence_bert", dir, fs::copy_options::recursive);
  const std::int64_t most = inference::huggingface_run(dir).model.max_seq_len;
  const auto length = [&](const std::string& text) {
    test::put(dir + "/sentence_bert_config.json", text);
    return inference::huggingface_run(dir).train.seq_len;
  };
  ASSERT_GT(most, 3);
  EXPECT_EQ(length("{\"max_seq_length\": 3}"), 3);
  EXPECT_EQ(length("{\"max_seq_length\": " + std::to_string(most + 1) + "}"), most);
  EXPECT_EQ(length("{\"max_seq_length\": null}"), most);
  EXPECT_EQ(length("{\"do_lower_case\": false}"), most);
  EXPECT_THROW(length("{\"do_lower_case\": true}"), Error);
  EXPECT_THROW(length("{\"max_seq_length\": 0}"), Error);
  fs::remove(dir + "/sentence_bert_config.json");
  EXPECT_EQ(inference::huggingface_run(dir).train.seq_len, most);
}

// Special tokens enclose texts of models that were trained with them: not of those trained here.
TEST_F(RunFolder, FormatOfTextsIsThatOfTheFirstWeights) {
  const auto bytes = tokenizer::load_tokenizer("bytes");
  const std::string theirs = R"({"config": {"eos_token_id": [3, 5], "decoder_start_token_id": 2}})";
  const auto format = [&](std::int64_t step, const std::string& extra) {
    const std::string dir =
        folder_ / ("step" + std::to_string(step) + std::to_string(extra.size()));
    return inference::text_format(small_checkpoint(dir, with_tokenizers("bytes"), "", step, extra),
                                  *bytes);
  };
  using test::Ids;
  const auto imported = format(0, theirs), tuned = format(4, theirs), own = format(4, "{}"),
             untrained = format(0, "{}");
  EXPECT_TRUE(imported.special_tokens);
  for (const auto* f : {&tuned, &own, &untrained}) EXPECT_FALSE(f->special_tokens);
  for (const auto* f : {&imported, &tuned}) {
    EXPECT_EQ(f->end_ids, (Ids{3, 5, tokenizer::ByteSpecials::end}));
    EXPECT_EQ(f->model_start, 2);
  }
  for (const auto* f : {&own, &untrained}) {
    EXPECT_EQ(f->end_ids, Ids{tokenizer::ByteSpecials::end});
    EXPECT_EQ(f->model_start, -1);
    EXPECT_EQ(f->start_id, -1);
  }
  const std::string dir = folder_ / "theirs";
  fs::create_directories(dir);
  test::put(dir + "/config.json", R"({"eos_token_id": 9})");
  test::put(dir + "/generation_config.json",
            R"({"bos_token_id": 4, "bad_words_ids": [[7]], "num_beams": 6})");
  const inference::TextFormat f = inference::text_format(dir, *bytes);
  EXPECT_TRUE(f.special_tokens);
  EXPECT_EQ(f.end_ids, (Ids{9, tokenizer::ByteSpecials::end}));
  EXPECT_EQ(f.start_id, 4);
  EXPECT_EQ(f.banned_ids, Ids{7});
  EXPECT_EQ(f.ignored, std::vector<std::string>{"num_beams"});
}

TEST(TextFormat, EnclosesTextsAsTheModelSawThem) {
  const auto t = tokenizer::load_tokenizer(std::string(TFM_SOURCE_DIR) +
                                           "/tests/fixtures/tokenizers/llama2.json");
  const auto plain = t->encode("the data"), special = t->encode_with_specials("the data");
  ASSERT_NE(plain, special);
  EXPECT_EQ(inference::TextFormat{}.encode(*t, "the data"), plain);
  EXPECT_EQ((inference::TextFormat{.special_tokens = true}.encode(*t, "the data")), special);
  std::vector<std::int32_t> begun = plain;
  begun.insert(begun.begin(), 5);
  EXPECT_EQ((inference::TextFormat{.begin = 5}.encode(*t, "the data")), begun);
  EXPECT_EQ((inference::TextFormat{.special_tokens = true, .begin = 5}.encode(*t, "the data")),
            special);
}

TEST_F(RunFolder, RecordsADirectoryWhereATokenizerCountsFromIt) {
  const std::string here = fs::current_path().string();
  const auto recorded = [](const std::string& tokenizer, const std::string& source) {
    config::DataConfig data;
    data.tokenizer = tokenizer, data.source_tokenizer = source;
    return inference::directory_of(data);
  };
  EXPECT_EQ(recorded("", ""), "");
  EXPECT_EQ(recorded("bytes", "bytes"), "");
  EXPECT_EQ(recorded("/a/words.json", "/b.json"), "");
  EXPECT_EQ(recorded("words.json", ""), here);
  EXPECT_EQ(recorded("/a/words.json", "b.json"), here);
}

TEST_F(RunFolder, OtherTokenizersThanThatOfTheRunAreTold) {
  const auto bytes = tokenizer::load_tokenizer("bytes");
  config::DataConfig data;
  data.tokenizer = "words.json";
  const auto told = [&](const std::string& trained) {
    checkpoint::CheckpointInfo info;
    info.config = with_tokenizers("bytes"), info.tokenizer = trained;
    fs::remove_all(folder_ / "b");
    const auto written = checkpoint::write_checkpoint(folder_ / "b", info, {}, 0, {});
    return inference::other_tokenizer(written.path, *bytes, data);
  };
  EXPECT_EQ(told(""), "");
  EXPECT_EQ(told(data::fingerprint_of_sides(*bytes)), "");
  EXPECT_TRUE(told("another").starts_with("words.json is not the tokenizer that "))
      << told("another");
  data.source_tokenizer = "from.json";
  EXPECT_TRUE(told("another").starts_with("words.json with from.json is not "));
  EXPECT_EQ(inference::other_tokenizer(kRunModels + "gpt2_0", *bytes, data), "");
}

}  // namespace
}  // namespace tfm
