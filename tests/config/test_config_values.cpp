// The configuration reader as a whole: suggestions, round trips, the project's own files, rules on
// ranks, random edits.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "config/run_name.h"
#include "config/settings.h"
#include "support/config_fixture.h"
#include "support/recorded.h"

namespace tfm {
namespace {

class ConfigValues : public ConfigTest {};

// The edits of one key press: a letter lost, doubled or beside it, two letters swapped.
std::vector<std::string> typos(const std::string& word, std::mt19937& random) {
  std::vector<std::string> all;
  const auto letter = [&] { return static_cast<char>('a' + random() % 26); };
  for (std::size_t i = 0; i < word.size(); ++i) {
    all.push_back(word.substr(0, i) + word.substr(i + 1));
    all.push_back(word.substr(0, i) + word[i] + word.substr(i));
    all.push_back(word.substr(0, i) + letter() + word.substr(i));
    all.push_back(word.substr(0, i) + letter() + word.substr(i + 1));
    if (i > 0) all.push_back(word.substr(0, i - 1) + word[i] + word[i - 1] + word.substr(i + 1));
  }
  return all;
}

TEST_F(ConfigValues, SingleTyposOfEveryKeyAreRecognized) {
  std::mt19937 random(7);
  const std::vector<std::string> keys = every_key();
  int right = 0, all = 0;
  std::string wrong;
  for (const std::string& key : keys) {
    const auto dot = key.rfind('.');
    const std::string section = dot == std::string::npos ? "" : key.substr(0, dot + 1),
                      word = key.substr(section.size());
    for (const std::string& typo : typos(word, random)) {
      if (typo.empty() || std::find(keys.begin(), keys.end(), section + typo) != keys.end())
        continue;
      ++all;
      const std::string message = errors(kModel + kData, {section + typo + "=1"});
      if (message.find("did you mean '" + word + "'?") != std::string::npos) {
        ++right;
      } else {
        wrong += " " + key + "->" + typo;
      }
    }
  }
  EXPECT_GT(all, 2000);
  EXPECT_GE(right, all * 95 / 100) << right << " of " << all << ":" << wrong;
}

TEST_F(ConfigValues, WordsOfOtherToolsAreRecognized) {
  const std::vector<std::string> keys = every_key();
  for (const auto& [word, targets] : config::hints().keys) {
    for (std::string_view target : targets)
      EXPECT_NE(std::find(keys.begin(), keys.end(), target), keys.end())
          << word << " -> " << target;
    const auto taken = std::find(keys.begin(), keys.end(), std::string(word));
    EXPECT_EQ(taken, keys.end()) << word;
  }
  const auto help = [&](const std::string& argument, const std::string& key) {
    const std::string message = errors(kModel + kData, {argument});
    EXPECT_NE(message.find("did you mean '" + key + "'?"), std::string::npos) << message;
  };
  help("optimizer.learning_rate=1", "lr");
  help("train.learning_rate=1", "optimizer.lr");
  help("model.n_embd=1", "d_model");
  help("model.num_hidden_layers=1", "n_layers");
  help("model.num_attention_heads=1", "n_heads");
  help("train.batch_size=1", "global_batch_size");
  help("train.max-steps=1", "steps");
  help("train.block_size=1", "seq_len");
  help("model.block_size=1", "max_seq_len");
  help("model.ffn_dim=1", "d_ff");
  help("parallel.tp=1", "tensor");
  help("parallel.dp=1", "data");
  help("schedule.warmup=1", "warmup_steps");
  help("optimizer.LR=1", "lr");
  help("steps=1", "train.steps");
  help("scheduler.type=cosine", "schedule");
}

TEST_F(ConfigValues, WordsOfOtherToolsForValuesAreRecognized) {
  const auto meant = [&](const std::string& argument, const std::string& value) {
    const std::string message = errors(kModel + kData, {argument});
    EXPECT_NE(message.find("did you mean '" + value + "'?"), std::string::npos) << message;
  };
  for (const char* word : {"float16", "half", "16-mixed", "16", "Float16"})
    meant(std::string("precision=") + word, "fp16");
  for (const char* word : {"bfloat16", "bf16-mixed"})
    meant(std::string("precision=") + word, "bf16");
  for (const char* word : {"float32", "float", "32"})
    meant(std::string("precision=") + word, "fp32");
  meant("device=gpu", "cuda");
  meant("model.preset=gpt2", "gpt2-124m");
  meant("model.preset=nanogpt", "nanogpt-cpu");  // the beginning of one
  meant("model.preset=gpt2-124", "gpt2-124m");
  meant("model.activation=swish", "silu");
  for (const auto& [typed, value] : config::hints().values) meant(typed, std::string(value));
}

TEST_F(ConfigValues, WhatDoesNotExistIsNotMistakenForAnotherKey) {
  const auto missing = [&](const std::string& argument, const std::string& feature) {
    const std::string message = errors(kModel + kData, {argument});
    EXPECT_NE(message.find("help: " + feature + " is not supported yet"), std::string::npos)
        << message;
    EXPECT_EQ(message.find("did you mean"), std::string::npos) << message;
  };
  missing("lora.rank=8", "LoRA");
  missing("LoRA.rank=8", "LoRA");
  missing("preference.beta=0.1", "preference tuning");
  missing("dpo=true", "preference tuning");
  missing("loss.type=dpo", "a loss besides cross-entropy");
  missing("fp8=true", "fp8");
  missing("precision=fp8", "fp8");
  const std::vector<std::string> keys = every_key();
  for (const auto& [word, feature] : config::hints().missing)
    EXPECT_EQ(std::find(keys.begin(), keys.end(), word), keys.end()) << word;
  EXPECT_EQ(errors(kModel + kData, {"zzzz=1"}).find("did you mean"), std::string::npos);
  EXPECT_EQ(errors(kModel + kData, {"loot=1"}).find("did you mean"), std::string::npos);
}

TEST_F(ConfigValues, WindowsAreOfSoftmaxAttention) {
  config::mixer_types().push_back("other");
  const std::string message = errors(kModel + kData, {"model.attention={type: other, window: 4}"});
  config::mixer_types().pop_back();
  EXPECT_NE(message.find("'model.attention.window' is not valid here; expected only with "
                         "attention.type softmax or latent"),
            std::string::npos)
      << message;
}

TEST_F(ConfigValues, DumpsReadBackToTheSameValue) {
  const auto round_trip = [&](const config::Config& c) {
    const std::string dump = config::dump_config(c);
    EXPECT_EQ(load(dump), c) << dump;
    EXPECT_EQ(config::dump_config(load(dump)), dump);
  };
  round_trip(load(
      "model: {family: encoder_decoder, vocab_size: 260, d_model: 64, n_layers: 2, n_heads: 4}\n"
      "data: {train: {type: pairs, source: a.txt, target: b.txt}}\n"));
  for (const std::string& name : config::preset_names()) {
    const bool decoder = name.starts_with("gpt") || name.starts_with("llama") ||
                         name.starts_with("gemma") || name.starts_with("nano");
    const std::string type = decoder ? "text" : name.starts_with("bert") ? "mlm" : "pairs";
    config::Config c =
        load("model: {preset: " + name + "}\ndata: {train: {type: " + type + ", path: a.txt}}\n",
             {"train.seq_len=64"});
    round_trip(c);
    for (const double output : {0.0, 0.1, 0.3})
      for (const double others : {0.0, 0.1}) {
        c.model.set_dropout({others, others, others, others, output});
        round_trip(c);
      }
    config::resolve_for_ranks(c, 1);
    round_trip(c);
  }
  std::mt19937_64 random(11);
  const auto pick = [&](std::vector<std::string> words) { return words[random() % words.size()]; };
  const auto real = [&] { return std::ldexp(static_cast<double>(random() >> 11), -53); };
  for (int i = 0; i < 300; ++i) {
    using enum config::Position;
    config::Config c = load(kModel + kData);
    c.model.dropout = random() % 2 ? config::DropoutConfig{real(), real(), real(), real()}
                                   : config::DropoutConfig{};
    c.model.norm_eps = real() * 1e-5 + 1e-12;
    c.model.activation = static_cast<config::Activation>(random() % 6);
    c.model.position = std::vector{learned, sinusoidal, rope, alibi, none}[random() % 5];
    c.model.rope.theta = real() * 1e7 + 1;
    c.model.bias = random() % 2;
    c.train.seed = random();
    c.train.steps = static_cast<std::int64_t>(random() % 2147483646) + 1;
    c.optimizer.lr = 0.1 + real() * 1e3;
    c.schedule.min_lr = real() * 0.1;
    c.optimizer.beta2 = real();
    c.parallel.zero = static_cast<std::int64_t>(random() % 4);
    c.parallel.data = static_cast<std::int64_t>(random() % 3);
    c.checkpoint.dir = pick({"", "runs/a", "with space", "quote\"s' and \\", "tab\tand\nline",
                             "true", "012", "-x", "\xC3\xA9: #", "a, [b]", "~"});
    c.data.train.paths = {{pick({"*.txt", "a.bin", "!x", "5"}), random() % 2 ? 1.0 : real() + 0.1}};
    if (random() % 2) {
      c.data.train.paths.push_back({"b{c}.txt", 0.1});
      c.data.train.weighted = true;
    }
    if (random() % 2)
      c.data.validation = config::SourceConfig{
          .type = "tokens", .paths = {{"v.bin", 1}}, .shuffle = true, .field = "body"};
    round_trip(c);
  }
}

TEST_F(ConfigValues, ARunHasTheNameOfItsFolder) {
  const auto name = [&](const std::vector<std::string>& overrides) {
    return load(kModel + kData, overrides).run.name;
  };
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "cfg"},  // the file's
      {{"checkpoint.dir=runs/gpt2/checkpoints", "metrics.jsonl=logs/x/metrics.jsonl"}, "gpt2"},
      {{"checkpoint.dir=runs/gpt2/checkpoints/"}, "gpt2"},
      {{"checkpoint.dir=runs/gpt2"}, "gpt2"},
      {{"checkpoint.dir=checkpoints", "metrics.jsonl=runs/x/logs/metrics.jsonl"}, "x"},
      {{"checkpoint.dir=/tmp/../checkpoints"}, "cfg"},
      {{"checkpoint.dir=none", "metrics.jsonl=metrics.jsonl"}, "cfg"},
      {{"checkpoint.dir=runs/lr=1e-3,seed=2"}, "lr=1e-3,seed=2"},
      {{"checkpoint.dir='runs/a b\"c/checkpoints'"}, "a_b_c"},
      {{"checkpoint.dir=runs/-x"}, "_x"},
      {{"checkpoint.dir=runs/\xC3\xA9"}, "\xC3\xA9"},
      {{"checkpoint.dir=runs/gpt2", "run.name=mine"}, "mine"}};
  for (const auto& [overrides, expected] : cases)
    EXPECT_EQ(name(overrides), expected) << (overrides.empty() ? "" : overrides[0]);
  const config::Config named = load(kModel + kData, {"checkpoint.dir=runs/gpt2"});
  EXPECT_EQ(config::with_overrides(named, {"train.seed=1"}, "x.yaml").run.name, "gpt2");
  EXPECT_EQ(config::parse_config(kModel + kData, "a/b.yaml", {}).run.name, "b");
  EXPECT_EQ(config::parse_config(kModel + kData, "a/gpt2-0.5b.yaml", {}).run.name, "gpt2-0.5b");
  for (const char* wrong : {"a/b", "..", "-x", "'a b'", "'a\"b'"})
    EXPECT_NE(errors(kModel + kData, {std::string("run.name=") + wrong}).find("run.name"),
              std::string::npos)
        << wrong;
  EXPECT_EQ(config::as_run_name(std::string(200, 'x')), std::string(128, 'x'));
  EXPECT_EQ(config::as_run_name("a\xFF\n"), "a__");
}

TEST_F(ConfigValues, TheProjectsConfigurationsAreValid) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(TFM_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() != ".yaml") continue;
    config::Config c = config::load_config(entry.path().string(), {});
    config::resolve_for_ranks(
        c, static_cast<int>(c.parallel.tensor * c.parallel.expert * c.parallel.pipeline));
    EXPECT_EQ(load(config::dump_config(c)), c);
    ++files;
  }
  EXPECT_GE(files, 6);
}

std::string rank_errors(config::Config c, int ranks) {
  try {
    config::resolve_for_ranks(c, ranks);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.what();
  }
  return {};
}

TEST_F(ConfigValues, RanksDecideTheLayout) {
  const std::string text = kModel + kData + "train: {global_batch_size: 16, seq_len: 128}\n";
  config::Config c = load(text, {"parallel.tensor=2"});
  config::resolve_for_ranks(c, 4);
  EXPECT_EQ(c.parallel.data, 2);
  EXPECT_EQ(c.train.micro_batch_size, 8);
  EXPECT_EQ(config::layout_of(c).world(), 4);
  config::Config longer = load(text, {"train.seq_len=2000"});
  config::resolve_for_ranks(longer, 2);
  EXPECT_EQ(longer.train.micro_batch_size, 2);  // 2 * 2000 tokens fit 4096, 4 * 2000 do not
  config::Config odd = load(text, {"train.seq_len=8191", "parallel.tensor=2"});
  config::resolve_for_ranks(odd, 2);
  EXPECT_EQ(odd.train.micro_batch_size, 2);  // 1 * 8191 positions do not split in two
  config::Config whole =
      load(text, {"train.seq_len=8191", "parallel.tensor=2", "parallel.sequence=false"});
  config::resolve_for_ranks(whole, 2);
  EXPECT_EQ(whole.train.micro_batch_size, 1);

  const auto refuses = [&](const std::vector<std::string>& overrides, int ranks,
                           const std::string& part) {
    const std::string message = rank_errors(load(text, overrides), ranks);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refuses({"parallel.tensor=2"}, 3,
          "the 3 ranks are not divisible by parallel.tensor 2; legal values of parallel.tensor for "
          "3 ranks are 1");
  refuses({"parallel.data=3"}, 4,
          "parallel.data 3 * parallel.tensor 1 = 3, but there are 4 ranks; expected parallel.data "
          "auto or 4");
  refuses({"model.n_heads=12", "model.d_model=768", "parallel.tensor=5"}, 5,
          "n_heads 12 is not divisible by parallel.tensor 5; it is divisible by 1, 2, 3, 4, 6, 12");
  refuses({"model.n_kv_heads=1", "parallel.tensor=2"}, 2,
          "n_kv_heads 1 is not divisible by parallel.tensor 2");
  refuses({"model.d_ff=129", "parallel.tensor=2"}, 2,
          "d_ff 129 is not divisible by parallel.tensor 2");
  refuses(
      {}, 3,
      "train.global_batch_size 16 is not divisible by the 3 data-parallel ranks (parallel.data); "
      "the nearest legal values are 15, 18");
  refuses({}, 32, "the nearest legal values are 32");
  refuses({"train.micro_batch_size=3"}, 2,
          "are not divisible by train.micro_batch_size 3; legal values are auto, 1, 2, 4, 8");
  refuses({"train.seq_len=7", "parallel.tensor=2", "train.global_batch_size=1"}, 2,
          "expected a seq_len that is a multiple of it, or parallel.sequence false");
  refuses({"train.seq_len=7", "parallel.tensor=2", "train.micro_batch_size=1"}, 2,
          "legal values of micro_batch_size are auto, 2, 4, 8, 16");
  EXPECT_EQ(rank_errors(load(text, {"train.seq_len=7", "parallel.tensor=2",
                                    "train.global_batch_size=1", "parallel.sequence=false"}),
                        2),
            "");
}

// As many sequences as 4096 tokens have, in a divisor of a replica's, but for stages four times as
// many micro-batches.
TEST_F(ConfigValues, AutomaticMicroBatches) {
  const auto size = [this](const std::vector<std::string>& overrides, int ranks,
                           const std::string& data = kData) {
    config::Config c =
        load(kModel + data + "train: {global_batch_size: 48, seq_len: 128}\n", overrides);
    config::resolve_for_ranks(c, ranks);
    return c.train.micro_batch();
  };
  EXPECT_EQ(size({"train.seq_len=1024"}, 1), 4) << "4 * 1024 are 4096";
  EXPECT_EQ(size({"train.seq_len=1025"}, 1), 3);
  EXPECT_EQ(size({"train.seq_len=5000"}, 1), 1) << "the least";
  EXPECT_EQ(size({"train.seq_len=1024", "train.global_batch_size=50"}, 1), 2);
  EXPECT_EQ(size({}, 2), 24) << "of 24 on each of two ranks";
  EXPECT_EQ(size({"train.seq_len=4096", "parallel.context=2"}, 2), 2) << "of the ranks' halves";
  EXPECT_EQ(size({"parallel.pipeline=2"}, 2), 6) << "eight of them";
  EXPECT_EQ(size({"parallel.pipeline=2", "train.global_batch_size=8"}, 2), 1);
  EXPECT_EQ(size({"parallel.pipeline=2", "train.global_batch_size=4"}, 2), 1) << "fewer there are";
  EXPECT_EQ(size({"train.micro_batch_size=16"}, 1), 16) << "as it is written";
}

TEST_F(ConfigValues, SizesThatWouldOverflowAreRefused) {
  const std::string text = kModel + kData + "train: {global_batch_size: 16, seq_len: 128}\n";
  const auto problem = [&](const std::vector<std::string>& overrides) {
    return rank_errors(load(text, overrides), 1);
  };
  // 1e7 micro-batches of one sequence, and one more.
  EXPECT_EQ(problem({"train.global_batch_size=10000000", "train.micro_batch_size=1"}), "");
  EXPECT_NE(problem({"train.global_batch_size=10000001", "train.micro_batch_size=1"})
                .find("micro-batches of train.micro_batch_size 1"),
            std::string::npos);
  EXPECT_EQ(problem({"train.global_batch_size=20000000", "train.micro_batch_size=2"}), "");
  // Tokens times the widest part times layers: 2^17 sequences of 2^10 tokens, 2^20 words.
  const auto wide = [&](const std::string& layers) {
    return problem({"train.seq_len=1024", "train.global_batch_size=131072",
                    "train.micro_batch_size=131072", "model.vocab_size=1048576",
                    "model.n_layers=" + layers});
  };
  EXPECT_EQ(wide("71"), "") << "2^47 * 71 = 9.99e15";
  EXPECT_NE(wide("72").find(" activations in this model"), std::string::npos) << "1.01e16";
}

// What a resumed run may change of its model without being another one.
TEST_F(ConfigValues, ChangesThatLeaveAModelTheSame) {
  const std::string experts = "model.experts.count=4";
  struct Case {
    std::string change;
    bool same;
    std::vector<std::string> of = {};
  };
  for (const Case& c : {
           Case{"model.dropout=0.2", true},
           {"model.dropout.ffn=0.2", true},
           {"model.init_std=0.5", true},
           {"model.padding_idx=3", true},
           {"model.rope.theta=5", true, {"model.position=rope"}},
           {"model.max_seq_len=512", true, {"model.position=rope"}},
           {"model.max_seq_len=512", false, {"model.position=learned"}},
           {"model.experts.balance.coefficient=0.5", true, {experts}},
           {"model.experts.z_loss=0.5", true, {experts}},
           {"model.experts.balance.type=bias", false, {experts}},
           {"model.experts.balance.rate=0.5", true, {experts, "model.experts.balance.type=bias"}},
           {"model.vocab_size=2000", false},
           {"model.n_layers=4", false},
           {"model.norm_eps=0.1", false},
           {"model.bias=false", false},
           {"model.tie_embeddings=false", false},
           {"model.norm=rmsnorm", false},
           {"model.attention.window=4", false},
           {"model.experts.top_k=1", false, {experts}},
       }) {
    std::vector<std::string> both = c.of;
    both.push_back("train.seq_len=16");
    const config::Config before = load(kModel + kData, both);
    both.push_back(c.change);
    const std::string changed = config::changed_model(before, load(kModel + kData, both));
    EXPECT_EQ(changed.empty(), c.same) << c.change << ": " << changed;
  }
}

TEST_F(ConfigValues, SettingsOfADump) {
  const auto all = config::settings_of(
      "run:\n  name: a: b\ntrain:\n  steps: 3\n  deep:\n    x: [1, 2]\n  seed: 4\nprecision: bf16\n"
      "no key\n");
  std::vector<std::string> lines;
  for (const auto& s : all) lines.push_back(s.key + "=" + s.value);
  EXPECT_EQ(lines,
            (std::vector<std::string>{"run.name=a: b", "train.steps=3", "train.deep.x=[1, 2]",
                                      "train.seed=4", "precision=bf16"}));
  const config::Config before = load(kModel + kData, {"train.steps=5"}),
                       now = load(kModel + kData, {"train.steps=6", "optimizer.lr=0.5"});
  EXPECT_EQ(config::changed_settings(before, now, {"train."}), "train.steps 5");
  EXPECT_EQ(config::changes_between(before, now, {"optimizer.", "train."}).size(), 2u);
  EXPECT_EQ(config::changed_settings(before, before, {""}), "");
}

TEST_F(ConfigValues, TheReferenceNamesEveryKey) {
  const std::string page = config::config_reference();
  for (const std::string& key : every_key())
    EXPECT_NE(page.find("| `" + key + "` | "), std::string::npos) << key;
  EXPECT_NE(page.find("| `train.steps` | count (>= 1 and <= 2147483647) | `1000` |"),
            std::string::npos);
  const std::string document = slurp(fs::path(TFM_SOURCE_DIR) / "configs/keys.md");
  std::istringstream lines(page);
  std::string expected;  // the keys of data.validation are those of data.train
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("| `data.validation.")) expected += line + "\n";
  EXPECT_EQ(document.substr(std::min(document.find("| key |"), document.size())), expected)
      << "configs/keys.md differs from tfm-train --keys";
  EXPECT_EQ(edit_distance("abcd", "acbd"), 1);
  EXPECT_EQ(edit_distance("abcd", "xbc"), 2);
}

// Random edits of valid files: whatever comes out is read or refused, never anything else, and
// soon.
TEST_F(ConfigValues, MutatedFilesNeverBreakTheReader) {
  std::vector<std::string> seeds = {kModel + kData};
  for (const auto& entry : fs::directory_iterator(fs::path(TFM_SOURCE_DIR) / "configs"))
    if (entry.path().extension() == ".yaml") seeds.push_back(slurp(entry.path()));
  seeds.push_back(config::dump_config(load(kModel + kData)));
  std::mt19937 random(3);
  const std::string special = "[]{},:-?#&*!|>'\"%@` \n\t~<\\e.0\r";
  int accepted = 0, refused = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (std::chrono::steady_clock::now() < end) {
    std::string s = seeds[random() % seeds.size()];
    for (auto edits = 1 + random() % 4; edits > 0 && !s.empty(); --edits) {
      const std::size_t at = random() % s.size(), length = random() % 12;
      const char c =
          random() % 3 ? special[random() % special.size()] : static_cast<char>(random() % 256);
      switch (random() % 5) {
        case 0:
          s[at] = c;
          break;
        case 1:
          s.insert(at, 1, c);
          break;
        case 2:
          s.erase(at, length);
          break;
        case 3:
          s.insert(at, s.substr(random() % s.size(), length));
          break;
        default:
          s.resize(at);
          break;
      }
    }
    try {
      const config::Config c = load(s);
      EXPECT_EQ(load(config::dump_config(c)), c) << s;
      ++accepted;
    } catch (const Error& e) {
      const bool no_model = e.code() == ExitCode::input &&
                            std::string(e.what()).find("no checkpoint found") != std::string::npos;
      EXPECT_TRUE(e.code() == ExitCode::usage || no_model) << s << e.what();
      EXPECT_NE(std::string(e.what()), "");
      ++refused;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, accepted);
}

using Settings = std::map<std::string, std::string>;

// The keys of a configuration and the words that each may have, from the schema.
void collect(const nlohmann::json& schema, const std::string& path,
             std::map<std::string, std::vector<std::string>>& keys) {
  for (const auto& [name, field] : schema.at("properties").items()) {
    const std::string key = path + name;
    const nlohmann::json* section = &field;
    if (field.contains("anyOf"))
      for (const auto& form : field.at("anyOf"))
        if (form.contains("properties")) section = &form;
    if (section->contains("properties")) collect(*section, key + ".", keys);
    auto& words = keys[key];
    const auto add_words = [&](const nlohmann::json& form) {
      if (form.contains("enum"))
        for (const auto& word : form.at("enum"))
          if (word.is_string()) words.push_back(word);
    };
    add_words(field);
    if (field.contains("anyOf"))
      for (const auto& form : field.at("anyOf")) add_words(form);
  }
}

Settings resolved(const std::string& base, const std::vector<std::string>& overrides, int ranks) {
  try {
    config::Config c = config::parse_config(base, "config.yaml", overrides);
    config::resolve_for_ranks(c, ranks);
    return config::values_by_key(c);
  } catch (const Error& e) {
    std::string text = e.what();
    std::ranges::replace(text, '\n', ' ');
    return {{"refused", text}};
  }
}

// What each key does to a configuration when it has another value: what else changes, or why it is
// refused.
TEST_F(ConfigValues, OtherValuesOfEachKey) {
  const std::string train = "train: {steps: 20, seq_len: 16, global_batch_size: 8}\n";
  const std::string sizes = "vocab_size: 300, d_model: 32, n_heads: 4, max_seq_len: 64, ";
  const std::map<std::string, std::string> bases{
      {"decoder", "model: {family: decoder, position: rope, n_layers: 4, " + sizes + "}\n" + train +
                      "data: {train: {type: text, path: a.txt}}\n"},
      {"experts",
       "model: {family: decoder, position: rope, n_layers: 4, experts: {count: 4, top_k: 2}, "
       "attention: {window: 8}, " +
           sizes + "}\n" + train +
           "parallel: {expert: 2, zero: 1}\ndata: {train: {type: tokens, path: a.bin, documents: "
           "packed}, validation: {type: tokens, path: b.bin}}\n"
           "eval: {every: 5}\n"},
      {"encoder",
       "model: {family: encoder, n_layers: 4, " + sizes + "}\n" + train +
           "data: {train: {type: mlm, path: a.txt}}\nparallel: {tensor: 2}\nprecision: bf16\n"},
      {"classifier",
       "model: {family: encoder, n_layers: 4, heads: [{type: classify, classes: 3}], " + sizes +
           "}\n" + train +
           "data: {train: {type: labelled, path: a.tsv}}\nparallel: {pipeline: 2}\n"},
      {"translator",
       "model: {family: encoder_decoder, n_encoder_layers: 2, n_decoder_layers: 2, position: "
       "sinusoidal, " +
           sizes + "}\n" + train +
           "data: {train: {type: pairs, source: a.txt, target: b.txt}}\nparallel: {context: 2}\n"},
  };
  std::map<std::string, std::vector<std::string>> keys;
  collect(nlohmann::json::parse(config::config_schema()), "", keys);
  std::ostringstream lines;
  std::map<std::string, std::string> in_the_first;  // what the others do not repeat
  for (const auto& [name, base] : bases) {
    const Settings before = resolved(base, {}, 4);
    ASSERT_FALSE(before.contains("refused")) << name << ": " << before.at("refused");
    for (const auto& [key, words] : keys) {
      if (key.starts_with("data.validation.") && !before.contains("data.validation.type")) continue;
      std::vector<std::string> values = words;
      for (const char* value : {"-1", "0", "1", "2", "3", "8", "0.5", "64", "1000000", "true",
                                "false", "auto", "none", "word", "[1, 2]"})
        values.emplace_back(value);
      for (const std::string& value : values) {
        std::string line;
        for (const auto& [changed, now] : resolved(base, {key + "=" + value}, 4)) {
          const auto was = before.find(changed);
          if (changed != key && (was == before.end() || was->second != now))
            line += " " + changed + ": " + now + ";";
        }
        if (line.starts_with(" refused: override '" + key + "=" + value + "': "))
          line = " refused: " + line.substr(line.find("': ") + 3);
        const std::string what = key + "=" + value;
        if (const auto [first, is_new] = in_the_first.emplace(what, line);
            is_new ? line.empty() : first->second == line)
          continue;
        lines << name << " " << what << ":" << line.substr(0, 200);
        if (line.size() > 200) lines << "... " << test::digest(line);
        lines << "\n";
      }
    }
  }
  test::expect_recorded("config_values", lines.str());
}

}  // namespace
}  // namespace tfm
