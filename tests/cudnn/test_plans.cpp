// Plans that are kept for later runs: these compile nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <thread>

#include "described.h"
#include "device/cuda/text_folder.h"
#include "driver.h"

namespace tfm::test {
namespace {

namespace cudnn = cuda::cudnn;
namespace fs = std::filesystem;

class KeptPlans : public testing::Test {
 protected:
  KeptPlans() {
    const auto g = args_of<bf16>({2, 4, 2, 128, 128, 64, true});
    graphs_ = {attention_graph(g.forward), attention_graph(g),
               attention_graph(args_of<bf16>({2, 4, 2, 128, 128, 64, false}))};
  }
  ~KeptPlans() override { fs::remove_all(folder_); }

  // Compilations of a run that needs these plans.
  int start() {
    const int before = driver().compilations;
    texts_.clear();
    for (const cudnn::Graph& graph : graphs_)
      texts_.push_back(plan_of(graph, {.properties = h200()}, kept_).text());
    return driver().compilations - before;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& file : fs::directory_iterator(folder_)) all.push_back(file.path());
    return all;
  }
  static std::string read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const fs::path& file, const std::string& content) {
    std::ofstream(file, std::ios::binary) << content;
  }

  fs::path folder_ = fs::temp_directory_path() / ("tfm-plans-" + std::to_string(getpid()));
  cuda::TextFolder kept_{folder_};
  std::vector<cudnn::Graph> graphs_;
  std::vector<std::string> texts_;  // of the plans of the last start
};

TEST_F(KeptPlans, CompileNothingAtASecondStart) {
  const std::size_t loaded = driver().kernels.size();
  EXPECT_EQ(start(), 3);
  const std::vector<std::string> first = texts_;
  EXPECT_EQ(start(), 0);
  EXPECT_TRUE(texts_ == first);  // the compiled kernels, too
  EXPECT_EQ(driver().kernels.size() - loaded, 6u);
  EXPECT_EQ(files().size(), 3u);
  const auto other = args_of<bf16>({2, 4, 2, 128, 128, 64, false});
  graphs_.push_back(attention_graph(other.forward));
  EXPECT_EQ(start(), 1);
}

TEST_F(KeptPlans, DamagedOnesAreMadeAnew) {
  start();
  const fs::path file = files()[0];
  const std::string whole = read(file);
  std::string flipped = whole;
  flipped[whole.size() - 1000] ^= 1;  // within a compiled kernel, which cuDNN would take
  for (const std::string& content :
       {std::string(), whole.substr(0, 100), whole.substr(0, whole.size() - 1), flipped,
        read(files()[1]), std::string(1000, '\0')}) {
    write(file, content);
    EXPECT_EQ(start(), 1);
    EXPECT_EQ(start(), 0);
  }
}

TEST_F(KeptPlans, OfAnotherVersionOrDeviceAreMadeAnew) {
  start();
  for (const auto& [from, to] : {std::pair{"\"cudnnVersion\":", "\"cudnnVersion\":1"},
                                 {"\"multiProcessorCount\":", "\"multiProcessorCount\":1"}}) {
    std::string text = texts_[1];
    ASSERT_NE(text.find(from), std::string::npos);
    kept_.keep(graphs_[1].text(), text.replace(text.find(from), std::string(from).size(), to));
    EXPECT_EQ(start(), 1);
    EXPECT_EQ(start(), 0);
  }
}

TEST_F(KeptPlans, AreNotNeeded) {
  write(folder_, "no folder");
  EXPECT_EQ(start(), 3);
  EXPECT_EQ(start(), 3);
  kept_ = cuda::TextFolder({});
  EXPECT_EQ(start(), 3);
}

TEST_F(KeptPlans, AreWholeWhileRanksWriteThem) {
  const std::string texts[] = {std::string(100000, 'a'), std::string(50000, 'b')};
  kept_.keep("key", texts[0]);
  std::vector<std::thread> ranks;
  std::atomic<int> wrong = 0;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      for (int i = 0; i < 50; ++i) {
        kept_.keep("key", texts[rank % 2]);
        const auto found = kept_.find("key");
        wrong += !found || (*found != texts[0] && *found != texts[1]);
      }
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(files().size(), 1u);
}

}  // namespace
}  // namespace tfm::test
