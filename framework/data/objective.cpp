#include "data/objective.h"

#include "io/text_stream.h"

namespace tfm::data {

std::map<std::string, const Objective*>& objectives() {
  static std::map<std::string, const Objective*> all{
      {"tokens", &next_token_objective()}, {"text", &next_token_objective()},
      {"mlm", &masked_lm_objective()},     {"span_corruption", &span_corruption_objective()},
      {"denoise", &denoise_objective()},   {"prefix_lm", &prefix_lm_objective()},
      {"pairs", &pairs_objective()},       {"labelled", &labelled_objective()},
      {"chat", &chat_objective()},
  };
  return all;
}

const Objective& objective_of(const config::SourceConfig& source) {
  const auto found = objectives().find(source.type);
  TFM_CHECK(found != objectives().end(), "no objective of data type '" + source.type + "'");
  return *found->second;
}

void Objective::check_file(const std::string& path, const config::Config&,
                           const config::SourceConfig&) const {
  io::check_text(path);
}

std::vector<nn::BatchShape> Objective::shapes(const config::Config& c) const {
  const auto separate = [](const config::SourceConfig& s) {
    return s.documents != config::Documents::joined;
  };
  const bool documents =
      separate(c.data.train) || (c.data.validation && separate(*c.data.validation));
  return {{.sequences = c.train.global_batch_size,
           .length = c.train.seq_len,
           .source_length = c.model.translates() ? c.train.seq_len : 0,
           .mask = documents ? nn::Mask::documents : nn::Mask::none,
           .restarts = documents && c.data.restarts(),
           .right_padded = true,
           .labelled = labelled(c.data.train)}};
}

}  // namespace tfm::data
