#pragma once
// Objectives: what a type of data source makes of its data. One for each type of
// config/source_type.h.
#include <map>
#include <memory>

#include "config/config.h"
#include "data/dataset.h"
#include "data/source.h"
#include "nn/model.h"

namespace tfm::data {

// A source that an objective opens, and what comes of it.
struct Opening {
  const config::Config& config;
  const config::SourceConfig& source;
  const tokenizer::Tokenizer& tokenizer;
  bool endless = false;  // for training
  // Results: what the dataset reads, which must live as long; remarks for the log; tokens of the
  // data.
  std::vector<std::unique_ptr<Source>> sources = {};
  std::vector<std::string> notes = {};
  std::int64_t tokens = 0;
  void note(const std::string& text, bool warning = false) {
    notes.push_back(std::string(warning ? "warning: " : "") +
                    (endless ? "data.train: " : "data.validation: ") + text);
  }
};

class Objective {
 public:
  virtual ~Objective() = default;

  // What it needs of a tokenizer besides the ids that its files hold; empty: nothing.
  virtual std::string special_use(const config::ModelConfig&, const config::SourceConfig&) const {
    return "";
  }
  // Error(usage) if the tokenizer lacks an id that it needs, or the vocabulary does.
  virtual void check_tokenizer(const config::Config&, const config::SourceConfig&,
                               const tokenizer::Tokenizer&) const {}
  // Reports keys of the section that do not fit together; false: nothing more can be checked.
  virtual bool check(const config::Config&, const config::SourceConfig&,
                     const std::string& /*section*/, config::Problems&) const {
    return true;
  }
  // Error(input) for a file of text that cannot be read; reads its beginning, or labels of all
  // rows.
  virtual void check_file(const std::string& path, const config::Config&,
                          const config::SourceConfig&) const;
  // Tokens of text in a sequence of train.seq_len; below 1: that is too short.
  virtual std::int64_t sample_length(const config::Config& config, const config::SourceConfig&,
                                     const tokenizer::Tokenizer&) const {
    return config.train.seq_len;
  }
  // The shapes of a run's global batches, ascending. Error(usage) if the model cannot hold them.
  virtual std::vector<nn::BatchShape> shapes(const config::Config& config) const;
  // The most labels of a sequence.
  virtual std::int64_t most_labels(const config::Config& config,
                                   const config::SourceConfig&) const {
    return config.train.seq_len;
  }
  // The expected share of rows that have a label.
  virtual double labelled(const config::SourceConfig&) const { return 1; }
  // Error(input) for data that cannot be read.
  virtual std::unique_ptr<Dataset> open(Opening& opening) const = 0;
};

// The table of objectives by the name of their type, and a place for more.
std::map<std::string, const Objective*>& objectives();
const Objective& objective_of(const config::SourceConfig& source);

const Objective& next_token_objective();
const Objective& masked_lm_objective();
const Objective& span_corruption_objective();
const Objective& denoise_objective();
const Objective& prefix_lm_objective();
const Objective& pairs_objective();
const Objective& labelled_objective();
const Objective& chat_objective();

}  // namespace tfm::data
