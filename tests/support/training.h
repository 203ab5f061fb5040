#pragma once
// Whole runs of a tiny decoder in one process, in a folder of their own that is the current one.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "inference/initial_weights.h"
#include "support/data_files.h"
#include "train/observers.h"
#include "train/start.h"
#include "train/trainer.h"

namespace tfm::test {

class Training : public testing::Test {
 protected:
  Training() : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder_.str());
    std::string text;
    for (int i = 0; i < 60; ++i) text += "line " + std::to_string(i * i) + " of the text. ";
    put("text.txt", text);
  }
  ~Training() override { std::filesystem::current_path(before_); }

  // As read, with everything that is `auto`.
  static config::Config read_config(const std::vector<std::string>& overrides = {},
                                    const std::string& family = "decoder",
                                    const std::string& train = "{type: text, path: text.txt}") {
    return config::parse_config(
        "run: {name: small}\n"
        "model: {family: " +
            family +
            ", vocab_size: 260, d_model: 8, n_layers: 1, n_heads: 2, max_seq_len: 8}\n"
            "train: {steps: 4, global_batch_size: 2, seq_len: 8}\n"
            "optimizer: {lr: 1.0e-2}\n"
            "schedule: {type: constant}\n"
            "data: {train: " +
            train +
            ", tokenizer: bytes}\n"
            "checkpoint: {dir: ck}\n",
        "small.yaml", overrides, inference::config_of_directory);
  }
  static config::Config run_config(const std::vector<std::string>& overrides = {}) {
    config::Config c = read_config(overrides);
    config::resolve_for_ranks(c, 1);
    return c;
  }

  // A run that takes no steps of its own: a test says what a step gave.
  struct Run : train::TrainingRun {
    explicit Run(const config::Config& config)
        : TrainingRun(config, comm::single_mesh(), device::Device::cpu(1)) {
      engine.initialize_parameters();
      seconds = 1;
    }
    train::Observer& add(std::unique_ptr<train::Observer> observer) {
      observers.push_back(std::move(observer));
      return *observers.back();
    }
    void finish_step(std::int64_t number, const train::StepResult& found) {
      step = number;
      save = false;
      result = found;
      tell(&train::Observer::after_step);
    }
  };

  struct Done {
    train::TrainOutcome outcome;
    std::string out, err;
    std::optional<Error> error;
  };
  static Done trained_as(const config::Config& config) {
    Done done;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    try {
      train::StopRequests requests;
      done.outcome = train::train(config, comm::single_mesh(), device::Device::cpu(1), requests);
    } catch (const Error& e) {
      done.error = e;
    }
    done.out = testing::internal::GetCapturedStdout();
    done.err = testing::internal::GetCapturedStderr();
    return done;
  }
  static Done trained(const std::vector<std::string>& overrides = {}) {
    return trained_as(run_config(overrides));
  }
  template <class F>
  static std::string stderr_of(F&& f) {
    testing::internal::CaptureStderr();
    unless_it_throws(f);
    return testing::internal::GetCapturedStderr();
  }
  template <class F>
  static std::string stdout_of(F&& f) {
    testing::internal::CaptureStdout();
    unless_it_throws(f);
    return testing::internal::GetCapturedStdout();
  }
  // What is captured has to be read in any case.
  template <class F>
  static void unless_it_throws(F&& f) {
    try {
      f();
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
  // The steps of the checkpoints in a directory.
  static std::set<std::int64_t> steps_in(const std::string& dir) {
    std::set<std::int64_t> steps;
    if (!std::filesystem::is_directory(dir)) return steps;
    for (const auto& f : std::filesystem::directory_iterator(dir))
      if (const std::string name = f.path().filename(); name.starts_with("step-"))
        steps.insert(std::stol(name.substr(5)));
    return steps;
  }

 private:
  std::filesystem::path before_;
  TemporaryFolder folder_;
};

inline bool has_text(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tfm::test
