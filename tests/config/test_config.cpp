// The configuration reader on texts: positions and messages of errors, hostile texts, values,
// overrides.
#include <algorithm>
#include <chrono>
#include <sstream>

#include "config/settings.h"
#include "inference/initial_weights.h"
#include "support/config_fixture.h"
#include "train/trainer.h"

namespace tfm {
namespace {

struct BadCase {
  std::string file, name, text;
  int ranks = 0;            // 0: rules of ranks are not asked for
  std::optional<int> code;  // inputs are opened, and this is the exit code
  std::vector<std::pair<std::string, std::string>> expected;  // line:col, parts of the message
};

std::vector<BadCase> cases_of(const std::vector<fs::path>& files) {
  std::vector<BadCase> cases;
  for (const fs::path& path : files) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("=== ")) {
        cases.push_back({.file = path.filename().string(), .name = line.substr(4)});
      } else if (cases.empty() || cases.back().file != path.filename()) {
        continue;  // the remarks at the top
      } else if (line.starts_with("@ranks ")) {
        cases.back().ranks = std::stoi(line.substr(7));
      } else if (line.starts_with("@open ")) {
        cases.back().code = std::stoi(line.substr(6));
      } else if (line.starts_with(">>> ")) {
        const auto space = line.find(' ', 4);
        cases.back().expected.emplace_back(line.substr(4, space - 4), line.substr(space + 1));
      } else {
        cases.back().text += line == "%model"  ? kModel
                             : line == "%data" ? kData
                             : line == "%rest" ? kModel + kData
                                               : line + "\n";
      }
    }
  }
  return cases;
}

// Whether the parts, with ` ... ` between them, follow each other in a line.
bool follow(const std::string& line, const std::string& parts) {
  const std::string gap = " ... ";
  std::size_t at = 0;
  for (std::size_t from = 0, end = 0; end != std::string::npos; from = end + gap.size()) {
    end = parts.find(gap, from);
    const std::string part = parts.substr(from, end == std::string::npos ? end : end - from);
    at = line.find(part, at);
    if (at == std::string::npos) return false;
    at += part.size();
  }
  return true;
}

// The files that files.txt speaks of, in the folder of the test, which is the working directory.
class BadConfigs : public ConfigTest {
 protected:
  BadConfigs() : before_(fs::current_path()) {
    fs::current_path(folder_);
    write("text.txt", "a line of text\nand another\n");
    write("empty.txt", "");
    write("zeros.bin", std::string(4096, '\0'));
    write("cut.bin", header(5));
    std::string ids = header(1000);
    for (int i = 0; i < 1000; ++i) ids += {static_cast<char>(i & 255), static_cast<char>(i >> 8)};
    write("tokens.bin", ids);
    write("damaged.json", "{");
    write("damaged.model", "model");
    write("folder/file.txt", "text");
    write("labels.tsv", "text\tlabel\nice\tcold\ntea\twarm\nwool\tmild\n");
    write("labels.jsonl", "{\"text\": \"ice\", \"label\": \"cold\"}\n{\"text\": \"tea\"}\n");
    const fs::path fixtures = fs::path(TFM_SOURCE_DIR) / "tests/fixtures";
    fs::copy(fixtures / "bpe600", "bpe");
    fs::copy(fixtures / "tokenizers/bert.json", "bert.json");
    const std::string config = slurp(fixtures / "huggingface/gpt2_0/config.json");
    write("no-weights/config.json", config);
    write("no-shard/config.json", config);
    fs::copy(fixtures / "huggingface/gpt2_0/model.safetensors",
             "no-shard/model-00001-of-00002.safetensors");
    write(
        "no-shard/model.safetensors.index.json",
        R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
    write("damaged-config/config.json", R"({"model_type": "gpt2", "n_embd": "wide"})");
    write("damaged-manifest/manifest.json", "{}");
  }
  ~BadConfigs() override { fs::current_path(before_); }

  // What a program says of it, and with which exit code.
  static std::pair<std::string, int> outcome(const BadCase& c) {
    write("cfg.yaml", c.text);
    try {
      config::Config config = config::load_config("cfg.yaml", {}, inference::config_of_directory);
      if (c.ranks > 0) config::resolve_for_ranks(config, c.ranks);
      if (c.code) train::check_inputs(config);
    } catch (const Error& e) {
      return {e.what(), static_cast<int>(e.code())};
    }
    return {"", 0};
  }

 private:
  static void write(const fs::path& path, const std::string& bytes) {
    if (path.has_parent_path()) fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // Of llm.c's token files.
  static std::string header(std::int32_t tokens) {
    std::vector<std::int32_t> words(256);
    words[0] = 20240520, words[1] = 1, words[2] = tokens;
    return {reinterpret_cast<const char*>(words.data()), 1024};
  }
  fs::path before_;
};

const fs::path kCases = fs::path(TFM_SOURCE_DIR) / "tests/config";

TEST_F(BadConfigs, AtTheEdgeAreAccepted) {
  const std::vector<BadCase> cases = cases_of({kCases / "accepted.txt"});
  ASSERT_GE(cases.size(), 13u);
  for (const BadCase& c : cases) EXPECT_EQ(outcome(c), (std::pair{std::string(), 0})) << c.name;
}

TEST_F(BadConfigs, AreReportedWhereTheyAreWrong) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kCases / "bad_configs"))
    files.push_back(entry.path());
  const std::vector<BadCase> cases = cases_of(files);
  ASSERT_GE(cases.size(), 234u);
  ASSERT_GE(std::ranges::count_if(cases, [](const BadCase& c) { return c.code.has_value(); }), 36);
  ASSERT_GE(std::ranges::count_if(cases, [](const BadCase& c) { return c.ranks > 0; }), 13);
  for (const BadCase& c : cases) {
    SCOPED_TRACE(c.file + ": " + c.name);
    ASSERT_FALSE(c.expected.empty());
    const auto [message, code] = outcome(c);
    EXPECT_EQ(code, c.code.value_or(2));
    std::size_t count = 0;
    for (auto at = message.find(": error: "); at != std::string::npos;
         at = message.find(": error: ", at + 1))
      ++count;
    EXPECT_EQ(count, c.expected.size()) << message;
    for (const auto& [place, parts] : c.expected) {
      bool found = false;
      std::istringstream lines(message);
      for (std::string line; std::getline(lines, line);)
        found |= line.starts_with("cfg.yaml:" + place + ": error: ") && follow(line, parts) &&
                 (line.find("expected") != std::string::npos ||
                  line.find("legal values") != std::string::npos);
      EXPECT_TRUE(found) << "no '" << place << ": " << parts << "', expected or legal values in\n"
                         << message;
    }
    EXPECT_NE(message.find("\n  "), std::string::npos) << "no line and caret in\n" << message;
  }
}

TEST_F(ConfigTest, AnErrorShowsTheLineACaretAndHelp) {
  EXPECT_EQ(errors(kModel + kData + "optimizer:\n  learing_rate: 1e-3\n"),
            "cfg.yaml:4:3: error: unknown key 'learing_rate' in 'optimizer'; expected one of "
            "adafactor, betas, ema, eps, grad_clip, lr, momentum, muon, type, "
            "weight_decay\n    learing_rate: 1e-3\n    ^\n  help: did you mean 'lr'?");
}

TEST_F(ConfigTest, CharactersThatAreNoText) {
  EXPECT_TRUE(errors("train: {steps: 5}\n" + kModel + kData + std::string("a\0b", 3))
                  .starts_with("cfg.yaml:4:2: error: the file contains a NUL"));
  EXPECT_TRUE(errors("\xFF\xFE"
                     "a\0")
                  .starts_with("cfg.yaml:1:1: error: the text is UTF-16"));
  EXPECT_TRUE(errors("\xFE\xFF\0a").starts_with("cfg.yaml:1:1: error: the text is UTF-16"));
  for (const char* bad :
       {"\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xFF"})
    EXPECT_TRUE(errors(std::string("# \xC3\xA9") + bad + "\n" + kModel + kData)
                    .starts_with("cfg.yaml:1:4: error: invalid UTF-8"))
        << bad;
  EXPECT_TRUE(errors("a: b\x01\n")
                  .starts_with("cfg.yaml:1:5: error: the file contains a control character"));
  EXPECT_TRUE(errors("a: b\rc: d\n")
                  .starts_with("cfg.yaml:1:5: error: the file contains a control character"));
  EXPECT_EQ(errors("\xEF\xBB\xBF" + kModel + kData), "");
  EXPECT_TRUE(errors("\xEF\xBB\xBF"
                     "trian: {}\r\n" +
                     kModel + kData)
                  .starts_with("cfg.yaml:1:1: error: unknown key 'trian'"));
}

TEST_F(ConfigTest, WindowsLineEndsAreRead) {
  std::string text = kModel + kData + "train:\n  steps: 7\ncheckpoint: {dir: \"a b\"}\n", windows;
  for (char c : text) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_EQ(load(windows), load(text));
  EXPECT_EQ(load(windows).train.steps, 7);
}

TEST_F(ConfigTest, FilesThatCannotBeRead) {
  EXPECT_TRUE(errors(std::string((1 << 20) + 1, '#'))
                  .starts_with("cfg.yaml: error: the file is longer than 1 MiB"));
  EXPECT_EQ(errors(kModel + kData + std::string((1 << 20) - 200, '#')), "");
  try {
    config::load_config((folder_ / "absent.yaml").string(), {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("cannot read the file (No such file"), std::string::npos)
        << e.what();
  }
  EXPECT_THROW(config::load_config(folder_.string(), {}), Error);
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
       {times(1000000, "["), "a: " + times(200000, "{b: "), times(300000, "- "),
        times(100000, "a: "), "a: [" + times(300000, "1, ") + "1]",
        "{" + times(250000, "a, ") + "a}", "a: \"" + times(1000000, "x") + "\"",
        "a: " + times(250000, "b c "), "a: b\n" + times(200000, "  c\n"), times(1000, "a:\n") + "b",
        times(500000, "\n"), times(60000, "a:\n- b\n")})
    EXPECT_NE(errors(text), "");
  std::string keys, nested;
  for (int i = 0; i < 60000; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  for (int i = 0; i < 700; ++i) nested += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_NE(errors(keys), "");
  EXPECT_NE(errors(nested).find("nested deeper than 64 levels"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST_F(ConfigTest, NumbersAreReadAsWritten) {
  const auto steps = [&](const std::string& s) {
    return load(kModel + kData + "train: {steps: " + s + "}\n").train.steps;
  };
  EXPECT_EQ(steps("1e3"), 1000);
  EXPECT_EQ(steps("1.50e1"), 15);
  EXPECT_EQ(steps("1e+2"), 100);
  EXPECT_EQ(steps("2000e-2"), 20);
  EXPECT_EQ(steps("2.5k"), 2500);
  EXPECT_EQ(steps("1Ki"), 1024);
  EXPECT_EQ(steps("1.5Ki"), 1536);
  EXPECT_EQ(steps("3M"), 3000000);
  EXPECT_EQ(steps("1Mi"), 1 << 20);
  EXPECT_EQ(steps("1G"), 1000000000);
  EXPECT_EQ(steps("1Gi"), 1 << 30);
  EXPECT_EQ(steps("+7"), 7);
  EXPECT_EQ(load(kModel + kData + "train: {seed: 18446744073709551615}\n").train.seed,
            18446744073709551615ull);
  EXPECT_EQ(load(kModel + kData + "optimizer: {lr: .5e-3}\n").optimizer.lr, 0.5e-3);
  EXPECT_EQ(load(kModel + kData + "optimizer: {lr: +1e-3}\n").optimizer.lr, 1e-3);
  EXPECT_EQ(load(kModel + kData + "optimizer: {betas: [0, 0.999]}\n").optimizer.beta2, 0.999);
}

TEST_F(ConfigTest, DefaultsFollowFromTheSizes) {
  const config::Config c = load(kModel + kData + "train: {seq_len: 77}\n");
  EXPECT_EQ(c.model.n_kv_heads, 4);
  EXPECT_EQ(c.model.d_head, 16);
  EXPECT_EQ(c.model.d_ff, 256);
  EXPECT_EQ(c.model.max_seq_len, 77);
  EXPECT_EQ(c.parallel.data, 0);
  EXPECT_EQ(c.train.micro_batch_size, 0);
  EXPECT_EQ(c.data.tokenizer_or_bytes(), "bytes");
  EXPECT_FALSE(c.data.validation);
  EXPECT_EQ(load(kModel + kData, {"model.activation=swiglu"}).model.d_ff,
            192);  // 8/3 * 64 = 170.7, up to a multiple of 64
  EXPECT_EQ(load(kModel + kData, {"model.activation=swiglu", "model.d_model=768"}).model.d_ff,
            2048);
  EXPECT_EQ(load(kModel + kData, {"model.n_heads=5", "model.d_head=8"}).model.d_head, 8);
}

// Only learned positions are weights, of which there are as many as positions.
TEST_F(ConfigTest, AResumedModelMayHaveMorePositionsThatAreNoWeights) {
  for (const std::string position :
       {"rope", "sinusoidal", "alibi", "relative", "none", "learned"}) {
    const auto model = [&](const char* length) {
      return load(kModel + kData + "train: {seq_len: 16}\n",
                  {"model.position=" + position, std::string("model.max_seq_len=") + length});
    };
    const std::string changed = config::changed_model(model("32"), model("64"));
    EXPECT_EQ(changed.empty(), position != "learned") << position << ": " << changed;
  }
}

// What only the loss knows of a head is no other model; what its weights mean is.
TEST_F(ConfigTest, AResumedHeadMayHaveAnotherLoss) {
  const auto model = [](const std::string& classes, std::vector<double> weights, double weight) {
    config::Config c;
    c.model.heads = {
        {.type = "classify", .name = classes, .weight = weight, .classes = 2, .labels = {}}};
    c.model.heads[0].class_weights = std::move(weights);
    return c;
  };
  const config::Config before = model("a", {}, 1);
  EXPECT_EQ(config::changed_model(before, model("a", {1, 3}, 1)), "");
  EXPECT_EQ(config::changed_model(before, model("a", {}, 0.5)), "");
  EXPECT_NE(config::changed_model(before, model("b", {}, 1)), "");
}

TEST_F(ConfigTest, TheLastLegalValuesAreLegal) {
  const std::string wsd = kModel + kData +
                          "train: {steps: 100}\n"
                          "schedule: {type: wsd, warmup_steps: 10}\n";
  EXPECT_EQ(errors(wsd, {"schedule.decay_steps=90"}), "");
  EXPECT_NE(errors(wsd, {"schedule.decay_steps=91"}).find("exceeds train.steps 100"),
            std::string::npos);
  const std::string noam =
      kModel + kData +
      "optimizer: {lr: 1}\n"
      "schedule: {type: noam, warmup_steps: 4}\n";  // to 1 / 16 with d_model 64
  EXPECT_EQ(errors(noam, {"schedule.min_lr=0.0625"}), "");
  EXPECT_NE(errors(noam, {"schedule.min_lr=0.0626"}).find("greater than the peak of schedule noam"),
            std::string::npos);
  // Half of a decoder's 32 buckets hold one distance each; an encoder has half as many a direction.
  const std::string relative = kModel + kData;
  for (const auto& [family, exact] : {std::pair{"decoder", 16}, {"encoder", 8}}) {
    const auto found = [&](int distance) {
      return errors(
          relative,
          {"model.family=" + std::string(family), "model.position=relative",
           "model.relative={buckets: 32, max_distance: " + std::to_string(distance) + "}",
           family == std::string("encoder") ? "data.train.type=mlm" : "data.train.type=text"});
    };
    EXPECT_EQ(found(exact + 1), "");
    EXPECT_NE(found(exact).find("expected more than " + std::to_string(exact)), std::string::npos)
        << found(exact);
  }
}

TEST_F(ConfigTest, SpecialForms) {
  EXPECT_EQ(load(kModel + kData, {"model.dropout=0.2"}).model.dropout,
            (config::DropoutConfig{0.2, 0.2, 0.2, 0.2}));
  EXPECT_EQ(load(kModel + kData, {"model.dropout={attention: 0.3}"}).model.dropout,
            (config::DropoutConfig{0, 0.3, 0, 0}));
  const auto paths = [&](const std::string& s) {
    return load(kModel + "data: {train: {type: tokens, path: " + s + "}}\n").data.train.paths;
  };
  EXPECT_EQ(paths("\"d/*.bin\""), (std::vector<config::SourcePath>{{"d/*.bin", 1}}));
  EXPECT_EQ(paths("[a.bin, {path: b.bin, weight: 2.5}, \"c.bin\"]"),
            (std::vector<config::SourcePath>{{"a.bin", 1}, {"b.bin", 2.5}, {"c.bin", 1}}));
  EXPECT_EQ(paths("{path: b.bin, weight: 2}"), (std::vector<config::SourcePath>{{"b.bin", 2}}));
}

TEST_F(ConfigTest, AnyWeightThatIsWrittenMakesPathsWeighted) {
  const auto is_read_as = [&](const std::string& s, bool weighted, const std::string& dumped) {
    const config::Config c = load(kModel + "data: {train: {type: tokens, path: " + s + "}}\n");
    EXPECT_EQ(c.data.train.weighted, weighted) << s;
    EXPECT_NE(config::dump_config(c).find("    path: " + dumped + "\n"), std::string::npos)
        << config::dump_config(c);
    EXPECT_EQ(load(config::dump_config(c)), c) << s;
  };
  is_read_as("a", false, "a");
  is_read_as("{path: a, weight: 1}", false, "a");
  is_read_as("[{path: a, weight: 2}]", false, "[{path: a, weight: 2}]");
  is_read_as("[a, {path: b}]", false, "[a, b]");
  for (const char* equal : {"[{path: a, weight: 1}, {path: b, weight: 1}]",
                            "[{path: a, weight: 1}, b]", "[a, {path: b, weight: 1.0}]"})
    is_read_as(equal, true, "[{path: a, weight: 1}, {path: b, weight: 1}]");
  is_read_as("[a, {path: b, weight: 2.5}]", true, "[{path: a, weight: 1}, {path: b, weight: 2.5}]");
  EXPECT_FALSE(load(kModel + "data: {train: {type: tokens, path: [{path: a, weight: 3}, b]}}\n",
                    {"data.train.path=[a, b]"})
                   .data.train.weighted);
}

TEST_F(ConfigTest, PresetsGiveWayToWhatIsWritten) {
  const config::Config gpt2 = load("model: {preset: gpt2-124m}\n" + kData);
  EXPECT_EQ(gpt2.model.family, config::Family::decoder);
  EXPECT_EQ(gpt2.model.d_ff, 3072);
  EXPECT_EQ(gpt2.model.dropout.residual, 0.1);
  const config::Config small =
      load("model: {d_model: 96, preset: gpt2-124m, n_layers: 2}\n" + kData,
           {"model.dropout.attention=0", "model.bias=false"});
  EXPECT_EQ(small.model.d_ff, 384);
  EXPECT_EQ(small.model.d_head, 8);
  EXPECT_EQ(small.model.vocab_size, 50257);
  EXPECT_EQ(small.model.dropout, (config::DropoutConfig{0.1, 0, 0.1, 0}));
  EXPECT_FALSE(small.model.bias);
  const config::Config llama =
      load("model: {preset: gpt2-124m}\n" + kData, {"model.preset=llama-8b"});
  EXPECT_EQ(llama.model.d_ff, 14336);
  EXPECT_EQ(llama.model.rope.scaling.factor, 8);
  EXPECT_FALSE(llama.model.tied_head());
}

TEST_F(ConfigTest, OverridesWin) {
  const std::string text = kModel + kData + "train: {steps: 5}\noptimizer:\n";
  const config::Config c =
      load(text, {"train.steps=1k", "optimizer.lr=3e-4", "optimizer.betas=[0.8, 0.9]",
                  "data.train.path=*.txt", "data.validation={type: tokens, path: v.bin}",
                  "parallel.data=auto", "device=cpu", "model.dropout=0.1",
                  "model.dropout.attention=0.4", "checkpoint.dir= a b #1 ", "train.steps=2k"});
  EXPECT_EQ(c.train.steps, 2000);
  EXPECT_EQ(c.optimizer.lr, 3e-4);
  EXPECT_EQ(c.optimizer.beta1, 0.8);
  EXPECT_EQ(c.data.train.paths[0].path, "*.txt");
  EXPECT_EQ(c.data.validation->type, "tokens");
  EXPECT_EQ(c.device, config::DeviceKind::cpu);
  EXPECT_EQ(c.model.dropout, (config::DropoutConfig{0.1, 0.4, 0.1, 0.1}));
  EXPECT_EQ(c.checkpoint.dir, "a b #1");
  EXPECT_EQ(
      load(kModel + kData + "optimizer: {lr: 1, eps: 0.5}\n", {"optimizer={lr: 2}"}).optimizer.eps,
      0.5);
}

TEST_F(ConfigTest, OverridesOfAConfigurationThatWasRead) {
  const config::Config base = load(
      "model: {family: encoder_decoder, vocab_size: 300, d_model: 64, n_layers: 2, n_heads: 4,\n"
      "        dropout: 0.1}\n"
      "data: {train: {type: pairs, source: a.txt, target: b.txt}}\n"
      "train: {steps: 90}\n");
  const std::string text = config::dump_config(base);
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {},
           {"train.steps=7", "train.steps=8"},
           {"model.dropout.attention=0.3"},
           {"model.dropout={ffn: 0.2}", "model.dropout=0.4"},
           {"optimizer.betas=[0.5, 0.6]", "schedule={type: linear, warmup_steps: 3}"},
           {"data.validation.type=pairs", "data.validation.path=[a.tsv, {path: b, prefix: x}]"},
           {"eval.metrics=[bleu]", "eval.stop={metric: chrf, patience: 2}", "eval.every=5",
            "data.validation={type: pairs, path: a}"},
           {"model.n_heads=8", "parallel.data=auto", "model.preset=none"}}) {
    const config::Config changed = config::with_overrides(base, overrides, "other");
    EXPECT_EQ(config::dump_config(changed),
              config::dump_config(config::parse_config(text, "dump", overrides)));
    EXPECT_EQ(changed, config::parse_config(text, "dump", overrides));
  }
  const auto refused = [](const config::Config& c, const std::vector<std::string>& overrides) {
    try {
      config::with_overrides(c, overrides, "other");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const char* wrong : {"trian.steps=5", "train.steps=0", "train.steps", "model.n_heads=5.5",
                            "model.init=elsewhere", "model=5"})
    EXPECT_TRUE(refused(base, {wrong}).starts_with("override '" + std::string(wrong) + "': error:"))
        << refused(base, {wrong});
  EXPECT_NE(refused(base, {"data.validation.type=pairs"}).find("'data.validation.path' is missing"),
            std::string::npos);
  // Where the value stands that an override does not fit to.
  EXPECT_NE(refused(base, {"schedule.type=wsd", "schedule.decay_steps=91"}).find("exceeds"),
            std::string::npos);
  config::Config wrong = base;
  wrong.model.n_kv_heads = 3;
  EXPECT_NE(refused(wrong, {}).find("cfg.yaml:1:"), std::string::npos) << refused(wrong, {});
  wrong.places = {};
  EXPECT_TRUE(refused(wrong, {}).starts_with("other: error: ")) << refused(wrong, {});
}

TEST_F(ConfigTest, OverridesAreNamedInErrors) {
  const std::string text = kModel + kData;
  EXPECT_EQ(errors(text, {"optimizer.lr=abc"}),
            "override 'optimizer.lr=abc': error: 'optimizer.lr': found the text 'abc'; expected a "
            "number");
  const auto starts = [&](const std::string& argument, const std::string& message) {
    const std::string got = errors(text, {argument});
    EXPECT_TRUE(got.starts_with("override '" + argument + "': error: " + message)) << got;
  };
  starts("train", "expected section.key=value");
  starts("=5", "expected section.key=value");
  starts("++train.steps=5", "keys start with a letter");
  starts("train..steps=5", "key 'train..steps' has an empty");
  starts("train.stepz=5", "unknown key 'stepz' in 'train'");
  starts("trian.steps=5", "unknown key 'trian' at the top level");
  starts("train.steps.more=5", "'train.steps': found a section");
  starts("data.train.type.x=5", "'data.train.type' is not a section");
  starts("train=5", "'train': found the number 5; expected a section");
  starts("train.steps=", "'train.steps': found no value");
  starts("data=", "'data': found no value; expected {key: value, ...}");
  starts("train.steps=null", "'train.steps': found no value");
  starts("optimizer.betas=[0.9", "'[' is not closed");
  EXPECT_EQ(errors(text, {"metrics.listen=[::1]:9750"}), "");
  starts("train.seq_len=0", "'train.seq_len': 0 is out of range");
  starts("model.n_heads=5", "d_model 64 is not divisible by n_heads 5");
  starts("eval.every=5", "eval.every is 5, but data.validation is missing");
  const std::string both = errors("trian: {}\n" + text, {"train.steps=x", "optimizer.eps=y"});
  EXPECT_NE(both.find("cfg.yaml:1:1: error:"), std::string::npos);
  EXPECT_NE(both.find("override 'train.steps=x': error:"), std::string::npos);
  EXPECT_NE(both.find("override 'optimizer.eps=y': error:"), std::string::npos);
}

}  // namespace
}  // namespace tfm
