// Initial weights of a directory.
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "core/error.h"
#include "inference/initial_weights.h"
#include "inference/loaded_model.h"
#include "models/registry.h"

namespace tfm {
namespace {

TEST(InitialWeights, OfClassesInAnotherOrderAreRefused) {
  const std::string path = TFM_SOURCE_DIR "/tests/fixtures/huggingface/bert_sequences_0";
  config::Config c = inference::checkpoint_config(path, {});
  std::vector<std::string>& labels = c.model.heads.at(0).labels;
  const auto why = [&] {
    const auto model = models::make_model(c, comm::single_mesh());
    try {
      inference::check_initial_weights(path, c.model, model->parameters());
      return std::string();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::usage);
      return std::string(e.what());
    }
  };
  ASSERT_EQ(labels, (std::vector<std::string>{"negative", "positive"}));
  EXPECT_EQ(why(), "");
  labels = {"positive", "negative"};
  EXPECT_NE(why().find("has the labels positive, negative, and the weights of"), std::string::npos);
  labels = {"good", "bad"};
  EXPECT_EQ(why(), "") << "other names for the same classes";
}

}  // namespace
}  // namespace tfm
