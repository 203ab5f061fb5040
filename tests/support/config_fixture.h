#pragma once
// What the tests of the configuration reader share.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/fields.h"
#include "config/reflect.h"
#include "core/error.h"

namespace tfm {

namespace fs = std::filesystem;

inline const std::string kModel =
    "model: {family: decoder, vocab_size: 256, d_model: 64, n_layers: 2, n_heads: 4}\n";
inline const std::string kData = "data: {train: {type: text, path: a.txt}}\n";

inline std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file that lives as long as the test; its name is short so that messages are readable.
class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() : folder_(fs::temp_directory_path() / ("tfm_config_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~ConfigTest() override { fs::remove_all(folder_); }

  config::Config load(const std::string& text, const std::vector<std::string>& overrides = {}) {
    std::ofstream(folder_ / "cfg.yaml", std::ios::binary) << text;
    return config::load_config((folder_ / "cfg.yaml").string(), overrides);
  }
  // The message without the folder; empty when the text is accepted.
  std::string errors(const std::string& text, const std::vector<std::string>& overrides = {}) {
    try {
      load(text, overrides);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::usage);
      std::string s = e.what();
      const std::string prefix = folder_.string() + "/";
      for (auto at = s.find(prefix); at != std::string::npos; at = s.find(prefix))
        s.erase(at, prefix.size());
      return s;
    }
    return {};
  }
  fs::path folder_;
};

inline std::vector<std::string> every_key() {
  config::Config scratch;
  return config::field_keys([&](config::FieldVisitor& v) { config::describe_config(scratch, v); });
}

}  // namespace tfm
