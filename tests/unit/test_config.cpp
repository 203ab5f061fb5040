// The configuration reader: positions and messages of errors, suggestions, overrides, round trips, rules on ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "core/error.h"
#include "core/reflect.h"
#include "core/yaml.h"
#include "train/config.h"
#include "train/config_fields.h"

namespace tfm {
namespace {

namespace fs = std::filesystem;

const std::string kModel = "model: {family: decoder, vocab_size: 256, d_model: 64, n_layers: 2, n_heads: 4}\n";
const std::string kData = "data: {train: {type: text, path: a.txt}}\n";

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file that lives as long as the test; its name is short so that messages are readable.
class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() : folder_(fs::temp_directory_path() / ("tfm_config_" + std::to_string(::getpid()))) { fs::create_directories(folder_); }
  ~ConfigTest() override { fs::remove_all(folder_); }

  Config load(const std::string& text, const std::vector<std::string>& overrides = {}) {
    std::ofstream(folder_ / "cfg.yaml", std::ios::binary) << text;
    return load_config((folder_ / "cfg.yaml").string(), overrides);
  }
  // The message without the folder; empty when the text is accepted.
  std::string errors(const std::string& text, const std::vector<std::string>& overrides = {}) {
    try {
      load(text, overrides);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::usage);
      std::string s = e.what();
      const std::string prefix = folder_.string() + "/";
      for (auto at = s.find(prefix); at != std::string::npos; at = s.find(prefix)) s.erase(at, prefix.size());
      return s;
    }
    return {};
  }
  fs::path folder_;
};

struct BadCase {
  std::string file, name, text;
  std::vector<std::pair<std::string, std::string>> expected;  // line:col, part of the message
};

std::vector<BadCase> bad_cases() {
  std::vector<BadCase> cases;
  for (const auto& entry : fs::directory_iterator(fs::path(TFM_SOURCE_DIR) / "tests/unit/bad_configs")) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("=== ")) {
        cases.push_back({entry.path().filename().string(), line.substr(4), {}, {}});
      } else if (cases.empty() || cases.back().file != entry.path().filename()) {
        continue;  // the remarks at the top
      } else if (line.starts_with(">>> ")) {
        const auto space = line.find(' ', 4);
        cases.back().expected.emplace_back(line.substr(4, space - 4), line.substr(space + 1));
      } else {
        cases.back().text += line == "%model" ? kModel : line == "%data" ? kData : line == "%rest" ? kModel + kData : line + "\n";
      }
    }
  }
  return cases;
}

TEST_F(ConfigTest, BadConfigsAreReportedWhereTheyAreWrong) {
  const std::vector<BadCase> cases = bad_cases();
  ASSERT_GE(cases.size(), 110u);
  for (const BadCase& c : cases) {
    SCOPED_TRACE(c.file + ": " + c.name);
    ASSERT_FALSE(c.expected.empty());
    const std::string message = errors(c.text);
    std::size_t count = 0;
    for (auto at = message.find(": error: "); at != std::string::npos; at = message.find(": error: ", at + 1)) ++count;
    EXPECT_EQ(count, c.expected.size()) << message;
    for (const auto& [place, part] : c.expected) {
      bool found = false;
      std::istringstream lines(message);
      for (std::string line; std::getline(lines, line);)
        found |= line.starts_with("cfg.yaml:" + place + ": error: ") && line.find(part) != std::string::npos;
      EXPECT_TRUE(found) << "no '" << place << ": " << part << "' in\n" << message;
    }
    EXPECT_TRUE(message.find("expected") != std::string::npos || message.find("legal values") != std::string::npos) << message;
  }
}

TEST_F(ConfigTest, AnErrorShowsTheLineACaretAndHelp) {
  EXPECT_EQ(errors(kModel + kData + "optimizer:\n  learing_rate: 1e-3\n"),
            "cfg.yaml:4:3: error: unknown key 'learing_rate' in 'optimizer'; expected one of betas, eps, grad_clip, lr, momentum, type, "
            "weight_decay\n    learing_rate: 1e-3\n    ^\n  help: did you mean 'lr'?");
}

TEST_F(ConfigTest, CharactersThatAreNoText) {
  EXPECT_TRUE(errors("train: {steps: 5}\n" + kModel + kData + std::string("a\0b", 3)).starts_with("cfg.yaml:4:2: error: the text holds a NUL"));
  EXPECT_TRUE(errors("\xFF\xFE" "a\0").starts_with("cfg.yaml:1:1: error: the text is UTF-16"));
  EXPECT_TRUE(errors("\xFE\xFF\0a").starts_with("cfg.yaml:1:1: error: the text is UTF-16"));
  for (const char* bad : {"\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xFF"})
    EXPECT_TRUE(errors(std::string("# \xC3\xA9") + bad + "\n" + kModel + kData).starts_with("cfg.yaml:1:4: error: the text is not valid UTF-8")) << bad;
  EXPECT_TRUE(errors("a: b\x01\n").starts_with("cfg.yaml:1:5: error: the text holds a control character"));
  EXPECT_TRUE(errors("a: b\rc: d\n").starts_with("cfg.yaml:1:5: error: the text holds a control character"));
  EXPECT_EQ(errors("\xEF\xBB\xBF" + kModel + kData), "");
  EXPECT_TRUE(errors("\xEF\xBB\xBF" "trian: {}\r\n" + kModel + kData).starts_with("cfg.yaml:1:1: error: unknown key 'trian'"));
}

TEST_F(ConfigTest, WindowsLineEndsAreRead) {
  std::string text = kModel + kData + "train:\n  steps: 7\ncheckpoint: {dir: \"a b\"}\n", windows;
  for (char c : text) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_EQ(load(windows), load(text));
  EXPECT_EQ(load(windows).train.steps, 7);
}

TEST_F(ConfigTest, FilesThatCannotBeRead) {
  EXPECT_TRUE(errors(std::string((1 << 20) + 1, '#')).starts_with("cfg.yaml: error: the file is longer than 1 MiB"));
  EXPECT_EQ(errors(kModel + kData + std::string((1 << 20) - 200, '#')), "");
  try {
    load_config((folder_ / "absent.yaml").string(), {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("cannot read the file (No such file"), std::string::npos) << e.what();
  }
  EXPECT_THROW(load_config(folder_.string(), {}), Error);
}

TEST_F(ConfigTest, ErrorsAreCapped) {
  std::string text = kModel + kData + "train:\n";
  for (int i = 0; i < 70; ++i) text += "  unknown" + std::to_string(i) + ": 1\n";
  const std::string message = errors(text);
  EXPECT_NE(message.find("unknown49"), std::string::npos);
  EXPECT_EQ(message.find("unknown50"), std::string::npos);
  EXPECT_TRUE(message.ends_with("and 20 more errors")) << message;
}

TEST_F(ConfigTest, HostileTextsEndSoon) {
  const auto start = std::chrono::steady_clock::now();
  const auto times = [](int n, const std::string& part) {
    std::string s;
    for (int i = 0; i < n; ++i) s += part;
    return s;
  };
  for (const std::string& text :
       {times(1000000, "["), "a: " + times(200000, "{b: "), times(300000, "- "), times(100000, "a: "), "a: [" + times(300000, "1, ") + "1]",
        "{" + times(250000, "a, ") + "a}", "a: \"" + times(1000000, "x") + "\"", "a: " + times(250000, "b c "), "a: b\n" + times(200000, "  c\n"),
        times(1000, "a:\n") + "b", times(500000, "\n"), times(60000, "a:\n- b\n")})
    EXPECT_NE(errors(text), "");
  std::string keys, nested;
  for (int i = 0; i < 60000; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  for (int i = 0; i < 700; ++i) nested += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_NE(errors(keys), "");
  EXPECT_NE(errors(nested).find("nested deeper than 64 levels"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST_F(ConfigTest, NumbersAreReadAsWritten) {
  const auto steps = [&](const std::string& s) { return load(kModel + kData + "train: {steps: " + s + "}\n").train.steps; };
  EXPECT_EQ(steps("1e3"), 1000);
  EXPECT_EQ(steps("1.50e1"), 15);
  EXPECT_EQ(steps("2.5k"), 2500);
  EXPECT_EQ(steps("1Ki"), 1024);
  EXPECT_EQ(steps("1.5Ki"), 1536);
  EXPECT_EQ(steps("3M"), 3000000);
  EXPECT_EQ(steps("1Mi"), 1 << 20);
  EXPECT_EQ(steps("1G"), 1000000000);
  EXPECT_EQ(steps("1Gi"), 1 << 30);
  EXPECT_EQ(steps("+7"), 7);
  EXPECT_EQ(load(kModel + kData + "train: {seed: 18446744073709551615}\n").train.seed, 18446744073709551615ull);
  EXPECT_EQ(load(kModel + kData + "optimizer: {lr: .5e-3}\n").optimizer.lr, 0.5e-3);
  EXPECT_EQ(load(kModel + kData + "optimizer: {betas: [0, 0.999]}\n").optimizer.beta2, 0.999);
}

TEST_F(ConfigTest, DefaultsFollowFromTheSizes) {
  const Config c = load(kModel + kData + "train: {seq_len: 77}\n");
  EXPECT_EQ(c.model.n_kv_heads, 4);
  EXPECT_EQ(c.model.d_head, 16);
  EXPECT_EQ(c.model.d_ff, 256);
  EXPECT_EQ(c.model.max_seq_len, 77);
  EXPECT_EQ(c.parallel.data, 0);
  EXPECT_EQ(c.train.micro_batch_size, 0);
  EXPECT_EQ(c.data.tokenizer, "bytes");
  EXPECT_FALSE(c.data.validation);
  EXPECT_EQ(load(kModel + kData, {"model.activation=swiglu"}).model.d_ff, 192);  // 8/3 * 64 = 170.7, up to a multiple of 64
  EXPECT_EQ(load(kModel + kData, {"model.activation=swiglu", "model.d_model=768"}).model.d_ff, 2048);
  EXPECT_EQ(load(kModel + kData, {"model.n_heads=5", "model.d_head=8"}).model.d_head, 8);
}

TEST_F(ConfigTest, SpecialForms) {
  EXPECT_EQ(load(kModel + kData, {"model.dropout=0.2"}).model.dropout, (DropoutConfig{0.2, 0.2, 0.2, 0.2}));
  EXPECT_EQ(load(kModel + kData, {"model.dropout={attention: 0.3}"}).model.dropout, (DropoutConfig{0, 0.3, 0, 0}));
  const auto paths = [&](const std::string& s) { return load(kModel + "data: {train: {type: tokens, path: " + s + "}}\n").data.train.paths; };
  EXPECT_EQ(paths("\"d/*.bin\""), (std::vector<SourcePath>{{"d/*.bin", 1}}));
  EXPECT_EQ(paths("[a.bin, {path: b.bin, weight: 2.5}, \"c.bin\"]"), (std::vector<SourcePath>{{"a.bin", 1}, {"b.bin", 2.5}, {"c.bin", 1}}));
  EXPECT_EQ(paths("{path: b.bin, weight: 2}"), (std::vector<SourcePath>{{"b.bin", 2}}));
}

TEST_F(ConfigTest, PresetsGiveWayToWhatIsWritten) {
  const Config gpt2 = load("model: {preset: gpt2-124m}\n" + kData);
  EXPECT_EQ(gpt2.model.family, "decoder");
  EXPECT_EQ(gpt2.model.d_ff, 3072);
  EXPECT_EQ(gpt2.model.dropout.residual, 0.1);
  const Config small = load("model: {d_model: 96, preset: gpt2-124m, n_layers: 2}\n" + kData, {"model.dropout.attention=0", "model.bias=false"});
  EXPECT_EQ(small.model.d_ff, 384);
  EXPECT_EQ(small.model.d_head, 8);
  EXPECT_EQ(small.model.vocab_size, 50257);
  EXPECT_EQ(small.model.dropout, (DropoutConfig{0.1, 0, 0.1, 0.1}));
  EXPECT_FALSE(small.model.bias);
  const Config llama = load("model: {preset: gpt2-124m}\n" + kData, {"model.preset=llama-8b"});
  EXPECT_EQ(llama.model.d_ff, 14336);
  EXPECT_EQ(llama.model.rope.scaling.factor, 8);
  EXPECT_FALSE(llama.model.tie_embeddings);
}

TEST_F(ConfigTest, OverridesWin) {
  const std::string text = kModel + kData + "train: {steps: 5}\noptimizer:\n";
  const Config c = load(text, {"train.steps=1k", "optimizer.lr=3e-4", "optimizer.betas=[0.8, 0.9]", "data.train.path=*.txt",
                               "data.validation={type: tokens, path: v.bin}", "parallel.data=auto", "device=cpu", "model.dropout=0.1",
                               "model.dropout.attention=0.4", "checkpoint.dir= a b #1 ", "train.steps=2k"});
  EXPECT_EQ(c.train.steps, 2000);
  EXPECT_EQ(c.optimizer.lr, 3e-4);
  EXPECT_EQ(c.optimizer.beta1, 0.8);
  EXPECT_EQ(c.data.train.paths[0].path, "*.txt");
  EXPECT_EQ(c.data.validation->type, "tokens");
  EXPECT_EQ(c.device, "cpu");
  EXPECT_EQ(c.model.dropout, (DropoutConfig{0.1, 0.4, 0.1, 0.1}));
  EXPECT_EQ(c.checkpoint.dir, "a b #1");
  EXPECT_EQ(load(kModel + kData + "optimizer: {lr: 1, eps: 0.5}\n", {"optimizer={lr: 2}"}).optimizer.eps, 0.5);
}

TEST_F(ConfigTest, OverridesAreNamedInErrors) {
  const std::string text = kModel + kData;
  EXPECT_EQ(errors(text, {"optimizer.lr=abc"}),
            "override 'optimizer.lr=abc': error: 'optimizer.lr': found the text 'abc'; expected a number");
  const auto starts = [&](const std::string& argument, const std::string& message) {
    const std::string got = errors(text, {argument});
    EXPECT_TRUE(got.starts_with("override '" + argument + "': error: " + message)) << got;
  };
  starts("train", "expected section.key=value");
  starts("=5", "expected section.key=value");
  starts("++train.steps=5", "a key starts with a letter");
  starts("train..steps=5", "the key 'train..steps' has an empty part");
  starts("train.stepz=5", "unknown key 'stepz' in 'train'");
  starts("trian.steps=5", "unknown key 'trian' at the outermost level");
  starts("train.steps.more=5", "'train.steps': found a section");
  starts("data.train.type.x=5", "'data.train.type' is no section");
  starts("train=5", "'train': found the number 5; expected a section");
  starts("train.steps=", "'train.steps': found no value");
  starts("train.steps=null", "'train.steps': found no value");
  starts("optimizer.betas=[0.9", "'[' is not closed");
  starts("train.seq_len=0", "'train.seq_len': 0 is out of range");
  starts("model.n_heads=5", "d_model 64 is not divisible by n_heads 5");
  starts("eval.every=5", "eval.every is 5 but there is no data.validation");
  const std::string both = errors("trian: {}\n" + text, {"train.steps=x", "optimizer.eps=y"});
  EXPECT_NE(both.find("cfg.yaml:1:1: error:"), std::string::npos);
  EXPECT_NE(both.find("override 'train.steps=x': error:"), std::string::npos);
  EXPECT_NE(both.find("override 'optimizer.eps=y': error:"), std::string::npos);
}

std::vector<std::string> every_key() {
  Config scratch;
  return field_keys([&](FieldVisitor& v) { describe_config(scratch, v); });
}

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

TEST_F(ConfigTest, SingleTyposOfEveryKeyAreRecognized) {
  std::mt19937 random(7);
  const std::vector<std::string> keys = every_key();
  int right = 0, all = 0;
  std::string wrong;
  for (const std::string& key : keys) {
    const auto dot = key.rfind('.');
    const std::string section = dot == std::string::npos ? "" : key.substr(0, dot + 1), word = key.substr(section.size());
    for (const std::string& typo : typos(word, random)) {
      if (typo.empty() || std::find(keys.begin(), keys.end(), section + typo) != keys.end()) continue;
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

TEST_F(ConfigTest, WordsOfOtherToolsAreRecognized) {
  const std::vector<std::string> keys = every_key();
  for (const auto& [word, targets] : key_aliases()) {
    for (std::string_view target : targets) EXPECT_NE(std::find(keys.begin(), keys.end(), target), keys.end()) << word << " -> " << target;
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

TEST_F(ConfigTest, DumpsReadBackToTheSameValue) {
  const auto round_trip = [&](const Config& c) {
    const std::string dump = dump_config(c);
    EXPECT_EQ(load(dump), c) << dump;
    EXPECT_EQ(dump_config(load(dump)), dump);
  };
  for (const std::string& name : preset_names()) {
    Config c = load("model: {preset: " + name + "}\n" + kData, {"train.seq_len=64"});
    round_trip(c);
    resolve_for_ranks(c, 1);
    round_trip(c);
  }
  std::mt19937_64 random(11);
  const auto pick = [&](std::vector<std::string> words) { return words[random() % words.size()]; };
  const auto real = [&] { return std::ldexp(static_cast<double>(random() >> 11), -53); };
  for (int i = 0; i < 300; ++i) {
    Config c = load(kModel + kData);
    c.model.dropout = random() % 2 ? DropoutConfig{real(), real(), real(), real()} : DropoutConfig{};
    c.model.norm_eps = real() * 1e-5 + 1e-12;
    c.model.activation = pick({"relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"});
    c.model.position = pick({"learned", "sinusoidal", "rope", "alibi", "none"});
    c.model.rope.theta = real() * 1e7 + 1;
    c.model.bias = random() % 2;
    c.train.seed = random();
    c.train.steps = static_cast<std::int64_t>(random() % 2147483646) + 1;
    c.optimizer.lr = 0.1 + real() * 1e3;
    c.schedule.min_lr = real() * 0.1;
    c.optimizer.beta2 = real();
    c.parallel.zero = static_cast<std::int64_t>(random() % 2);
    c.parallel.data = static_cast<std::int64_t>(random() % 3);
    c.checkpoint.dir = pick({"", "runs/a", "with space", "quote\"s' and \\", "tab\tand\nline", "true", "012", "-x", "\xC3\xA9: #", "a, [b]", "~"});
    c.data.train.paths = {{pick({"*.txt", "a.bin", "!x", "5"}), random() % 2 ? 1.0 : real() + 0.1}};
    if (random() % 2) c.data.train.paths.push_back({"b{c}.txt", 0.1});
    if (random() % 2) c.data.validation = SourceConfig{"tokens", {{"v.bin", 1}}, true, "body"};
    round_trip(c);
  }
}

TEST_F(ConfigTest, TheProjectsConfigurationsAreValid) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(TFM_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() != ".yaml") continue;
    Config c = load_config(entry.path().string(), {});
    resolve_for_ranks(c, static_cast<int>(c.parallel.tensor));
    EXPECT_EQ(load(dump_config(c)), c);
    ++files;
  }
  EXPECT_GE(files, 6);
}

std::string rank_errors(Config c, int ranks) {
  try {
    resolve_for_ranks(c, ranks);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.what();
  }
  return {};
}

TEST_F(ConfigTest, RanksDecideTheLayout) {
  const std::string text = kModel + kData + "train: {global_batch_size: 16, seq_len: 128}\n";
  Config c = load(text, {"parallel.tensor=2"});
  resolve_for_ranks(c, 4);
  EXPECT_EQ(c.parallel.data, 2);
  EXPECT_EQ(c.train.micro_batch_size, 8);
  EXPECT_EQ(layout_of(c).world(), 4);
  Config longer = load(text, {"train.seq_len=2000"});
  resolve_for_ranks(longer, 2);
  EXPECT_EQ(longer.train.micro_batch_size, 2);  // 2 * 2000 tokens fit 4096, 4 * 2000 do not
  Config odd = load(text, {"train.seq_len=8191", "parallel.tensor=2"});
  resolve_for_ranks(odd, 2);
  EXPECT_EQ(odd.train.micro_batch_size, 2);  // 1 * 8191 positions do not split in two
  Config whole = load(text, {"train.seq_len=8191", "parallel.tensor=2", "parallel.sequence=false"});
  resolve_for_ranks(whole, 2);
  EXPECT_EQ(whole.train.micro_batch_size, 1);

  const auto refuses = [&](const std::vector<std::string>& overrides, int ranks, const std::string& part) {
    const std::string message = rank_errors(load(text, overrides), ranks);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refuses({"parallel.tensor=2"}, 3, "the 3 ranks are not divisible by parallel.tensor 2; legal values of parallel.tensor on 3 ranks are 1");
  refuses({"parallel.data=3"}, 4, "parallel.data 3 * parallel.tensor 1 = 3, but there are 4 ranks; expected parallel.data auto or 4");
  refuses({"model.n_heads=12", "model.d_model=768", "parallel.tensor=5"}, 5,
          "n_heads 12 is not divisible by parallel.tensor 5; parallel.tensor has to be one of 1, 2, 3, 4, 6, 12");
  refuses({"model.n_kv_heads=1", "parallel.tensor=2"}, 2, "n_kv_heads 1 is not divisible by parallel.tensor 2");
  refuses({"model.d_ff=129", "parallel.tensor=2"}, 2, "d_ff 129 is not divisible by parallel.tensor 2");
  refuses({}, 3, "train.global_batch_size 16 is not divisible by the 3 replicas (parallel.data); the nearest legal values are 15, 18");
  refuses({}, 32, "the nearest legal values are 32");
  refuses({"train.micro_batch_size=3"}, 2, "are not divisible by train.micro_batch_size 3; legal values are auto, 1, 2, 4, 8");
  refuses({"train.seq_len=7", "parallel.tensor=2", "train.global_batch_size=1"}, 2, "expected a seq_len that is, or parallel.sequence false");
  refuses({"train.seq_len=7", "parallel.tensor=2", "train.micro_batch_size=1"}, 2, "legal values of micro_batch_size are auto, 2, 4, 8, 16");
  EXPECT_EQ(rank_errors(load(text, {"train.seq_len=7", "parallel.tensor=2", "train.global_batch_size=1", "parallel.sequence=false"}), 2), "");
}

TEST(ConfigReference, NamesEveryKey) {
  const std::string page = config_reference();
  for (const std::string& key : every_key()) EXPECT_NE(page.find("| `" + key + "` | "), std::string::npos) << key;
  EXPECT_NE(page.find("| `train.steps` | count (>= 1 and <= 2147483647) | `1000` |"), std::string::npos);
  EXPECT_EQ(edit_distance("abcd", "acbd"), 1);
  EXPECT_EQ(edit_distance("abcd", "xbc"), 2);
}

// Random edits of valid files: whatever comes out is read or refused, never anything else, and soon.
TEST_F(ConfigTest, MutatedFilesNeverBreakTheReader) {
  std::vector<std::string> seeds = {kModel + kData};
  for (const auto& entry : fs::directory_iterator(fs::path(TFM_SOURCE_DIR) / "configs")) seeds.push_back(slurp(entry.path()));
  seeds.push_back(dump_config(load(kModel + kData)));
  std::mt19937 random(3);
  const std::string special = "[]{},:-?#&*!|>'\"%@` \n\t~<\\e.0\r";
  int accepted = 0, refused = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (std::chrono::steady_clock::now() < end) {
    std::string s = seeds[random() % seeds.size()];
    for (auto edits = 1 + random() % 4; edits > 0 && !s.empty(); --edits) {
      const std::size_t at = random() % s.size(), length = random() % 12;
      const char c = random() % 3 ? special[random() % special.size()] : static_cast<char>(random() % 256);
      switch (random() % 5) {
        case 0: s[at] = c; break;
        case 1: s.insert(at, 1, c); break;
        case 2: s.erase(at, length); break;
        case 3: s.insert(at, s.substr(random() % s.size(), length)); break;
        default: s.resize(at); break;
      }
    }
    try {
      const Config c = load(s);
      EXPECT_EQ(load(dump_config(c)), c) << s;
      ++accepted;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::usage) << s << e.what();
      EXPECT_NE(std::string(e.what()), "");
      ++refused;
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace tfm
