#pragma once
// Models with their inputs, loss and gradients as independent programs computed them
// (tests/fixtures/make_decoder.py, make_models.py).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "models/registry.h"
#include "train/engine.h"

namespace tfm::test {

inline const std::string kFixtures = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/";

inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& f : std::filesystem::directory_iterator(kFixtures + folder))
    names.push_back(folder + "/" + f.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Fixture {
 public:
  explicit Fixture(const std::string& name, const std::vector<std::string>& overrides = {},
                   int ranks = 1)
      : reader_(kFixtures + name + ".safetensors") {
    nlohmann::json c = nlohmann::json::parse(reader_.metadata().at("config"));
    if (c.contains("B")) {
      shape = {.sequences = c["B"], .length = c["T"], .source_length = c.value("S", 0)};
      const std::string mask = c.value("mask", "none");
      shape.mask = mask == "documents" ? nn::Mask::documents
                   : mask == "padding" ? nn::Mask::padding
                                       : nn::Mask::none;
      c["train"] = {{"global_batch_size", c["B"]},
                    {"micro_batch_size", c["B"]},
                    {"seq_len", c["T"]},
                    {"steps", 1}};
      if (c.contains("label_smoothing")) c["loss"] = {{"label_smoothing", c["label_smoothing"]}};
      for (const char* key : {"B", "T", "S", "mask", "label_smoothing"}) c.erase(key);
    }
    const std::string family = c["model"]["family"], type = family == "encoder"   ? "mlm"
                                                            : family == "decoder" ? "tokens"
                                                                                  : "pairs";
    c["data"] = {{"train", {{"type", type}, {"path", "unused.bin"}}}};
    config_ = config::parse_config(c.dump() + "\n", name, overrides);
    config::resolve_for_ranks(config_, ranks);
  }
  const config::Config& config() const { return config_; }
  nn::BatchShape shape;  // of the files with one batch
  bool has(const std::string& name) const { return reader_.tensors().count(name) > 0; }
  template <class T>
  std::vector<T> get(const std::string& name) const {
    const auto bytes = reader_.bytes(name);
    std::vector<T> v(bytes.size() / sizeof(T));
    std::memcpy(v.data(), bytes.data(), bytes.size());
    return v;
  }
  // The whole batch, by the recording's fields.
  std::map<Field, std::vector<std::int32_t>> inputs(const nn::Recording& recording) const {
    std::map<Field, std::vector<std::int32_t>> all;
    for (const auto& [field, value] : recording.inputs) {
      const auto values =
          get<std::int64_t>(field == Field::ids ? "input_ids" : std::string(info_of(field).name));
      all[field].assign(values.begin(), values.end());
    }
    return all;
  }
  void load_parameters(train::Engine& e) const {
    e.set_weights([&](const nn::PartSlice& p, std::int64_t first, std::int64_t count, void* out) {
      nn::ParameterSet::scatter(p, first, count, get<float>(p.name).data(),
                                static_cast<float*>(out));
    });
  }

 private:
  io::SafetensorsReader reader_;
  config::Config config_;
};

inline double norm(const std::vector<float>& v) {
  double s = 0;
  for (float x : v) s += static_cast<double>(x) * x;
  return std::sqrt(s);
}

}  // namespace tfm::test
