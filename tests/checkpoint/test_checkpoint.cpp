#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "checkpoint/lock.h"
#include "checkpoint/manifest.h"
#include "checkpoint/parameters.h"
#include "core/host.h"
#include "core/task.h"
#include "inference/loaded_model.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace tfm {
namespace {

namespace fs = std::filesystem;
using Data = std::map<std::string, std::pair<Shape, std::vector<float>>>;

// Threads in place of ranks.
class Crew {
 public:
  explicit Crew(int size) : size_(size), strings_(size), barrier_(size) {}
  void run(const std::function<void(const checkpoint::CheckpointRanks&)>& work) {
    std::vector<std::thread> threads;
    for (int r = 0; r < size_; ++r)
      threads.emplace_back([&, r] {
        checkpoint::CheckpointRanks ranks;
        ranks.rank = r;
        ranks.size = size_;
        ranks.barrier = [this] { barrier_.arrive_and_wait(); };
        ranks.gather = [this, r](const std::string& mine) {
          strings_[r] = mine;
          barrier_.arrive_and_wait();
          auto all = strings_;
          barrier_.arrive_and_wait();
          return all;
        };
        work(ranks);
      });
    for (auto& t : threads) t.join();
  }

 private:
  int size_;
  std::vector<std::string> strings_;
  std::barrier<> barrier_;
};

// The elements a slice names, one by one: what read() is compared with.
std::vector<float> elements(const Shape& full, const std::vector<float>& data,
                            const checkpoint::Slice& s) {
  std::vector<float> all, out;
  for (std::int64_t i = 0; i < full.elements(); ++i) {
    if (s.axis >= 0) {
      std::int64_t inner = 1;
      for (int d = s.axis + 1; d < full.rank(); ++d) inner *= full[d];
      const std::int64_t at = i / inner % full[s.axis];
      if (at < s.begin || at >= s.end) continue;
    }
    all.push_back(data[i]);
  }
  out.assign(all.begin() + s.first, all.begin() + s.first + s.count);
  return out;
}

Data random_data(unsigned seed) {
  std::mt19937 random(seed);
  Data data;
  const Shape shapes[] = {{}, {7}, {12, 5}, {3, 8, 4}, {2, 3, 4, 5}, {64, 96}, {0, 4}};
  for (const Shape& shape : shapes)
    for (const char* kind : {"model/", "adam.m/", "adam.v/"}) {
      auto& [s, values] = data[kind + shape.str()];
      s = shape;
      values.resize(static_cast<std::size_t>(shape.elements()));
      for (auto& v : values) v = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    }
  return data;
}

bool bit_equal(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

std::int64_t slice_elements(const Shape& full, int axis, std::int64_t begin, std::int64_t end) {
  if (axis < 0) return full.elements();
  std::int64_t n = end - begin;
  for (int i = 0; i < full.rank(); ++i) n *= i == axis ? 1 : full[i];
  return n;
}

// Cuts every tensor along a random axis into `ways` slices, each slice flatly into chunks dealt to
// the ranks.
struct Cut {
  std::vector<std::vector<float>> storage;
  std::vector<std::vector<checkpoint::Chunk>> of_rank;
};
Cut cut(const Data& data, int ranks, unsigned seed) {
  std::mt19937 random(seed);
  Cut out;
  out.of_rank.resize(ranks);
  for (const auto& [name, tensor] : data) {
    const auto& [full, values] = tensor;
    const int axis = full.rank() == 0 ? -1 : static_cast<int>(random() % (full.rank() + 1)) - 1;
    const std::int64_t extent = axis < 0 ? 1 : full[axis], ways = axis < 0 ? 1 : 1 + random() % 4;
    for (std::int64_t w = 0; w < ways; ++w) {
      checkpoint::Slice s{axis, extent * w / ways, extent * (w + 1) / ways, 0, 0};
      const std::int64_t total = slice_elements(full, axis, s.begin, s.end),
                         parts = 1 + random() % 3;
      for (std::int64_t p = 0; p < parts; ++p) {
        s.first = total * p / parts;
        s.count = total * (p + 1) / parts - s.first;
        checkpoint::Chunk chunk;
        static_cast<checkpoint::Slice&>(chunk) = s;
        chunk.name = name;
        chunk.full_shape = full;
        out.storage.push_back(elements(full, values, s));
        chunk.data = out.storage.back().data();
        out.of_rank[random() % ranks].push_back(chunk);
      }
    }
  }
  return out;
}

checkpoint::CheckpointInfo info_at(std::int64_t step) {
  checkpoint::CheckpointInfo info;
  info.step = step;
  info.samples_seen = step * 64;
  info.data_tokens = 123456789012;
  info.evaluation_due = step == 500;
  info.seed = 0xfedcba9876543210u;
  info.layout = {{"data", 2}, {"tensor", 2}};
  info.config = "model: {family: decoder}\n# \"quoted\"\n";
  info.extra = R"({"tokens":[1,2,{"a":null}]})";
  return info;
}

class Checkpoint : public testing::Test {
 protected:
  Checkpoint()
      : dir_((fs::temp_directory_path() / ("tfm-checkpoint-" + std::to_string(::getpid())))
                 .string()) {
    fs::remove_all(dir_);
  }
  ~Checkpoint() override { fs::remove_all(dir_); }
  checkpoint::CheckpointResult save(std::int64_t step, const Data& data, int ranks = 1,
                                    unsigned seed = 1, std::int64_t keep = 0,
                                    const std::optional<checkpoint::Best>& best = {}) const {
    checkpoint::CheckpointInfo info = info_at(step);
    info.best = best;
    const Cut chunks = cut(data, ranks, seed);
    std::vector<checkpoint::CheckpointResult> results(ranks);
    Crew(ranks).run([&](const checkpoint::CheckpointRanks& r) {
      results[r.rank] = checkpoint::write_checkpoint(dir_, info, chunks.of_rank[r.rank], keep, r);
    });
    for (const auto& r : results) {
      EXPECT_EQ(r.path, results[0].path);
      EXPECT_EQ(r.error, results[0].error);
      EXPECT_EQ(r.bytes, results[0].bytes);
    }
    return results[0];
  }
  std::optional<std::string> latest(
      checkpoint::Verification verification = checkpoint::Verification::checksums) {
    log_.clear();
    return checkpoint::find_latest(
        dir_, [&](const std::string& line) { log_ += line + "\n"; }, verification);
  }
  static void flip(const std::string& path, std::size_t at, char bits = 0x10) {
    std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(static_cast<std::streamoff>(at));
    const char c = static_cast<char>(f.get() ^ bits);
    f.seekp(static_cast<std::streamoff>(at));
    f.put(c);
  }
  static bool verifies(const std::string& path) {
    try {
      checkpoint::CheckpointReader(path).verify();
      return true;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::input);
      EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
      return false;
    }
  }
  void expect_equal(const std::string& path, const Data& data) const {
    const checkpoint::CheckpointReader reader(path);
    for (const auto& [name, tensor] : data) {
      std::vector<float> got(tensor.second.size());
      reader.read(name, checkpoint::Slice{-1, 0, 0, 0, static_cast<std::int64_t>(got.size())},
                  got.data());
      ASSERT_TRUE(bit_equal(got, tensor.second)) << name;
    }
  }
  std::string dir_, log_;
};

TEST_F(Checkpoint, IsReadOnProcessorsUnlessAskedOtherwise) {
  checkpoint::CheckpointInfo info = info_at(3);
  info.config =
      "model: {family: decoder, vocab_size: 8, d_model: 8, n_layers: 1, n_heads: 1}\ndevice: "
      "cuda\nprecision: bf16\ncuda_graphs: on\n"
      "parallel: {backend: nccl}\ndata: {train: {type: tokens, path: none.bin}}\n";
  checkpoint::CheckpointResult result;
  Crew(1).run([&](const checkpoint::CheckpointRanks& r) {
    result = checkpoint::write_checkpoint(dir_, info, {}, 0, r);
  });
  ASSERT_TRUE(result.ok()) << result.error;
  const config::Config c = inference::checkpoint_config(result.path, {});
  EXPECT_EQ(c.device, config::DeviceKind::cpu);
  EXPECT_EQ(c.precision, config::Precision::fp32);
  EXPECT_NO_THROW(inference::checkpoint_config(result.path, {"precision=fp32"}));
  EXPECT_EQ(inference::checkpoint_config(result.path, {"device=cuda"}).device,
            config::DeviceKind::cuda);
  EXPECT_EQ(inference::checkpoint_config(result.path, {"device=cpu"}).device,
            config::DeviceKind::cpu);
  try {
    inference::checkpoint_config(result.path, {"precision=bf16"});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    EXPECT_TRUE(std::string(e.what()).starts_with("precision=bf16")) << e.what();
  }
}

TEST_F(Checkpoint, TheBestIsNamedAndStays) {
  const Data data = random_data(1);
  checkpoint::Best best{.metric = config::Metric::bleu};
  const auto saved = [&](std::int64_t step, double value) {
    best.improve(step, value);
    const auto result = save(step, data, 2, 1, 2, best);
    ASSERT_TRUE(result.ok() && result.warning.empty()) << result.error << result.warning;
    const checkpoint::Manifest m = checkpoint::CheckpointReader(dir_ + "/best").manifest();
    EXPECT_EQ(m.step, best.step);
    EXPECT_EQ(*checkpoint::CheckpointReader(result.path).manifest().best, best);
  };
  saved(1, 0.1 + 0.2);
  saved(2, 30.5);
  for (std::int64_t step = 3; step <= 6; ++step) saved(step, 1e-3);
  EXPECT_EQ(best.since, 4);
  std::set<std::string> there;
  for (const auto& e : fs::directory_iterator(dir_)) there.insert(e.path().filename().string());
  EXPECT_EQ(there, (std::set<std::string>{"best", "latest", "step-00000002", "step-00000005",
                                          "step-00000006"}));
  EXPECT_EQ(latest(), dir_ + "/step-00000006");
  fs::create_directory_symlink("step-00000006",
                               dir_ + "/best.tmp");  // as an interrupted write leaves it
  EXPECT_EQ(checkpoint::clean(dir_), std::vector<std::string>{"best.tmp"});
  saved(7, 31);
  EXPECT_FALSE(fs::exists(dir_ + "/step-00000002"));
  best.step = 9;  // whose checkpoint could not be written
  EXPECT_TRUE(save(10, data, 1, 1, 2, best).ok());
  EXPECT_EQ(fs::read_symlink(dir_ + "/best"), "step-00000007");
}

// As a copy of the directory that follows links has them.
TEST_F(Checkpoint, LinksThatAreDirectoriesAreReplaced) {
  const Data data = random_data(1);
  checkpoint::Best best{.metric = config::Metric::bleu};
  const auto saved = [&](std::int64_t step) {
    best.improve(step, static_cast<double>(step));
    return save(step, data, 1, 1, 2, best);
  };
  const auto follow = [&] {
    fs::remove(dir_ + "/best");
    fs::create_directory(dir_ + "/best");
    std::ofstream(dir_ + "/best/manifest.json") << "{}";
    fs::remove(dir_ + "/latest");
    fs::create_directory_symlink("step-00000001", dir_ + "/latest");
  };
  EXPECT_TRUE(saved(1).ok());
  follow();
  EXPECT_EQ(saved(2).warning, "");
  EXPECT_EQ(fs::read_symlink(dir_ + "/best"), "step-00000002");
  EXPECT_TRUE(fs::exists(dir_ + "/best.old/manifest.json"));
  EXPECT_EQ(latest(), dir_ + "/step-00000002");
  follow();  // again, with best.old in the way: no less is removed
  EXPECT_NE(saved(3).warning.find("best.old"), std::string::npos);
  EXPECT_NE(saved(4).warning, "");
  EXPECT_FALSE(fs::exists(dir_ + "/step-00000002"));
  EXPECT_TRUE(fs::exists(dir_ + "/step-00000003"));
  for (const std::int64_t step : {5, 6, 7}) EXPECT_NE(save(step, data, 1, 1, 2, best).warning, "");
  EXPECT_TRUE(fs::exists(dir_ + "/step-00000004")) << "the best one, which no link names";
  EXPECT_FALSE(fs::exists(dir_ + "/step-00000005"));
}

TEST(Best, IsTheFirstOfEqualsAndFinite) {
  using enum config::Metric;
  for (const config::Metric metric : {loss, perplexity, accuracy, bleu, chrf}) {
    const double sign = metric == loss || metric == perplexity ? -1 : 1;
    checkpoint::Best best{.metric = metric};
    EXPECT_FALSE(best.improve(1, std::nan("")));
    EXPECT_TRUE(best.improve(2, sign * 2));
    EXPECT_FALSE(best.improve(3, sign * 2));
    EXPECT_FALSE(best.improve(4, sign * 1.5));
    EXPECT_FALSE(best.improve(5, std::numeric_limits<double>::infinity()));
    EXPECT_EQ(best, (checkpoint::Best{metric, 2, sign * 2, 3}));
    EXPECT_TRUE(best.improve(6, sign * 2.5));
    EXPECT_EQ(best, (checkpoint::Best{metric, 6, sign * 2.5, 0}));
  }
}

TEST_F(Checkpoint, VerificationSaysHowFarItIs) {
  const auto result = save(500, random_data(1), 4);
  std::int64_t last = 0;
  watch_tasks([&](const TaskState& task) {
    EXPECT_EQ(task.what, "verifying " + result.path);
    EXPECT_GE(task.done, last);
    EXPECT_EQ(task.total, static_cast<std::int64_t>(result.bytes));
    last = task.done;
  });
  checkpoint::CheckpointReader(result.path).verify();
  watch_tasks({});
  EXPECT_GT(last, 0);
  EXPECT_EQ(last, static_cast<std::int64_t>(result.bytes));
}

TEST_F(Checkpoint, ManifestRoundTrip) {
  const auto result = save(500, random_data(1), 4);
  ASSERT_TRUE(result.ok()) << result.error;
  EXPECT_EQ(result.path, dir_ + "/step-00000500");
  EXPECT_TRUE(fs::exists(result.path + "/shard-00003-of-00004.safetensors"));
  checkpoint::CheckpointReader reader(result.path);
  reader.verify();
  const auto& m = reader.manifest();
  const auto want = info_at(500);
  EXPECT_EQ(m.step, 500);
  EXPECT_EQ(m.samples_seen, want.samples_seen);
  EXPECT_EQ(m.data_tokens, want.data_tokens);
  EXPECT_TRUE(m.evaluation_due);
  EXPECT_EQ(m.seed, want.seed);
  EXPECT_EQ(m.layout, want.layout);
  EXPECT_EQ(m.config, want.config);
  EXPECT_EQ(m.extra, want.extra);
  EXPECT_EQ(m.files.size(), 4u);
  EXPECT_EQ(reader.shape("model/(64, 96)"), (Shape{64, 96}));
  EXPECT_FALSE(reader.has("model/other"));
  EXPECT_EQ(reader.names().size(), 21u);
  std::string text;
  std::getline(std::ifstream(dir_ + "/latest"), text);
  EXPECT_EQ(text, "step-00000500");
}

TEST_F(Checkpoint, WithoutANumberOfUpdatesEveryStepWasOne) {
  checkpoint::Manifest m;
  m.step = 500;
  for (const std::int64_t updates : {std::int64_t{500}, std::int64_t{493}, std::int64_t{0}}) {
    m.updates = updates;
    const std::string text = checkpoint::to_text(m);
    EXPECT_EQ(text.find("\"updates\"") == std::string::npos, updates == 500) << text;
    EXPECT_EQ(checkpoint::from_text("manifest.json", text).updates, updates);
  }
}

TEST_F(Checkpoint, ReadsAtAnyLayout) {
  std::mt19937 random(3);
  for (int ranks : {1, 2, 4})
    for (unsigned seed = 0; seed < 6; ++seed) {
      const Data data = random_data(seed);
      const auto result = save(seed + 1, data, ranks, seed);
      ASSERT_TRUE(result.ok()) << result.error;
      const checkpoint::CheckpointReader reader(result.path);
      for (const auto& [name, tensor] : data)
        for (int trial = 0; trial < 8; ++trial) {
          const auto& [full, values] = tensor;
          checkpoint::Slice s;
          s.axis = full.rank() == 0 ? -1 : static_cast<int>(random() % (full.rank() + 1)) - 1;
          if (s.axis >= 0) {
            s.begin = random() % (full[s.axis] + 1);
            s.end = s.begin + random() % (full[s.axis] - s.begin + 1);
          }
          const auto total = slice_elements(full, s.axis, s.begin, s.end);
          s.first = random() % (total + 1);
          s.count = random() % (total - s.first + 1);
          const auto want = elements(full, values, s);
          std::vector<float> got(want.size());
          reader.read(name, s, got.data());
          ASSERT_TRUE(bit_equal(got, want)) << name << " written by " << ranks;
        }
    }
}

TEST_F(Checkpoint, AHoleIsNamed) {
  const std::vector<float> values(6);
  checkpoint::Chunk p;
  p.name = "model/w";
  p.full_shape = {2, 6};
  p.axis = 0;
  p.begin = 1;
  p.end = 2;
  p.count = 6;
  p.data = values.data();
  const auto result = checkpoint::write_checkpoint(dir_, info_at(1), {&p, 1}, 0, {});
  ASSERT_TRUE(result.ok()) << result.error;
  const checkpoint::CheckpointReader reader(result.path);
  float out[12];
  reader.read("model/w", {0, 1, 2, 0, 6}, out);
  try {
    reader.read("model/w", {-1, 0, 0, 0, 12}, out);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("model/w"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("manifest.json"), std::string::npos);
  }
  EXPECT_THROW(reader.read("model/x", {-1, 0, 0, 0, 1}, out), Error);
}

TEST_F(Checkpoint, EveryFlippedByteIsDetected) {
  const auto path = save(1, random_data(2), 2).path;
  ASSERT_TRUE(verifies(path));
  for (const auto& e : fs::directory_iterator(path)) {
    const bool manifest = e.path().filename() == "manifest.json";
    for (std::size_t at = 0, n = e.file_size(); at < n; at += manifest ? 1 : 97) {
      const char bits = static_cast<char>(1 << at % 8);
      flip(e.path(), at, bits);
      ASSERT_FALSE(verifies(path)) << e.path() << " byte " << at;
      flip(e.path(), at, bits);
    }
  }
  ASSERT_TRUE(verifies(path));
}

TEST_F(Checkpoint, TruncatedMissingSwappedAndExtraFilesAreDetected) {
  const auto path = save(1, random_data(2), 2).path;
  const std::string shards[] = {path + "/shard-00000-of-00002.safetensors",
                                path + "/shard-00001-of-00002.safetensors"};
  for (const auto& file : {path + "/manifest.json", shards[0], shards[1]}) {
    const auto n = fs::file_size(file);
    fs::copy_file(file, dir_ + "/copy");
    for (std::uintmax_t size :
         std::initializer_list<std::uintmax_t>{0, 7, 8, 100, n / 2, n - 4, n - 1, n + 1}) {
      fs::resize_file(file, size);
      EXPECT_FALSE(verifies(path)) << file << " cut to " << size;
      fs::copy_file(dir_ + "/copy", file, fs::copy_options::overwrite_existing);
    }
    fs::remove(file);
    EXPECT_FALSE(verifies(path)) << file;
    fs::rename(dir_ + "/copy", file);
    ASSERT_TRUE(verifies(path));
  }
  fs::rename(shards[0], path + "/x");
  fs::rename(shards[1], shards[0]);
  fs::rename(path + "/x", shards[1]);
  EXPECT_FALSE(verifies(path));
  fs::rename(shards[0], path + "/x");
  fs::rename(shards[1], shards[0]);
  fs::rename(path + "/x", shards[1]);
  fs::copy_file(shards[0], path + "/shard-00002-of-00003.safetensors");
  EXPECT_FALSE(verifies(path));
}

TEST_F(Checkpoint, FallsBackAndSaysWhy) {
  EXPECT_FALSE(latest());
  for (int step : {1, 2, 3}) ASSERT_TRUE(save(step, random_data(step)).ok());
  EXPECT_EQ(latest(), dir_ + "/step-00000003");
  EXPECT_EQ(log_, "");
  const std::string shard = dir_ + "/step-00000003/shard-00000-of-00001.safetensors";
  flip(shard, fs::file_size(shard) - 1);  // behind the header
  EXPECT_EQ(latest(), dir_ + "/step-00000002");
  EXPECT_NE(log_.find("step-00000003"), std::string::npos);
  EXPECT_NE(log_.find("checksum"), std::string::npos);
  EXPECT_EQ(latest(checkpoint::Verification::headers), dir_ + "/step-00000003") << "as headers say";
  for (const char* content : {"", "../../etc", "step-3", "step-00000009", "step-00000003/../x\n"}) {
    std::ofstream(dir_ + "/latest") << content;
    EXPECT_EQ(latest(), dir_ + "/step-00000002") << content;
    EXPECT_NE(log_, "") << content;
  }
  fs::remove(dir_ + "/latest");
  EXPECT_EQ(latest(), dir_ + "/step-00000002");
  fs::remove(dir_ + "/step-00000002/manifest.json");
  fs::remove_all(dir_ + "/step-00000001");
  EXPECT_THROW(latest(), Error) << "never silently from the start";
}

TEST_F(Checkpoint, RetentionKeepsTheNewest) {
  for (int step = 1; step <= 6; ++step) ASSERT_TRUE(save(step, random_data(1), 1, 1, 3).ok());
  for (int step = 1; step <= 6; ++step)
    EXPECT_EQ(fs::exists(dir_ + "/step-0000000" + std::to_string(step)), step >= 4) << step;
  ASSERT_TRUE(save(7, random_data(1), 1, 1, 1).ok());  // never the last two
  EXPECT_TRUE(fs::exists(dir_ + "/step-00000006"));
  EXPECT_FALSE(fs::exists(dir_ + "/step-00000005"));
  ASSERT_TRUE(save(3, random_data(1), 1, 1, 1).ok());  // nor the one just written
  EXPECT_TRUE(fs::exists(dir_ + "/step-00000003"));
}

// Those of a run that was given up, whose directory the next one uses.
TEST_F(Checkpoint, LaterStepsNeitherCountNorComeFirst) {
  for (const int step : {20, 30, 40}) ASSERT_TRUE(save(step, random_data(step)).ok());
  for (const int step : {2, 4, 6, 8}) ASSERT_TRUE(save(step, random_data(step), 1, 1, 3).ok());
  for (const auto& [step, stays] : {std::pair{"02", false},
                                    {"04", true},
                                    {"06", true},
                                    {"08", true},
                                    {"20", true},
                                    {"40", true}})
    EXPECT_EQ(fs::exists(dir_ + "/step-000000" + step), stays) << step;
  EXPECT_EQ(latest(), dir_ + "/step-00000008");
  for (const char* step : {"08", "06", "04"}) {
    const std::string path = dir_ + "/step-000000" + step;
    EXPECT_EQ(latest(), path);
    fs::remove(path + "/manifest.json");
  }
  EXPECT_EQ(latest(), dir_ + "/step-00000040") << "better than none";
  EXPECT_NE(log_.find("step-00000040 is later than step-00000008"), std::string::npos) << log_;
}

TEST_F(Checkpoint, AStepIsReplacedWhole) {
  ASSERT_TRUE(save(5, random_data(1), 2).ok());
  ASSERT_TRUE(save(5, random_data(9), 4).ok());
  ASSERT_TRUE(verifies(dir_ + "/step-00000005"));
  expect_equal(dir_ + "/step-00000005", random_data(9));
  EXPECT_FALSE(fs::exists(dir_ + "/step-00000005.tmp"));
}

TEST_F(Checkpoint, CleanRemovesWhatWasInterrupted) {
  ASSERT_TRUE(save(1, random_data(1)).ok());
  for (const char* name : {"step-00000002.tmp", "step-00000003.old.tmp", "mine.tmp"})
    fs::create_directory(dir_ + "/" + name);
  std::ofstream(dir_ + "/latest.tmp") << "x";
  EXPECT_EQ(checkpoint::clean(dir_).size(), 3u);
  EXPECT_TRUE(fs::exists(dir_ + "/mine.tmp"));
  EXPECT_TRUE(latest());
}

// Killed between the two renames of a file system that cannot swap names.
TEST_F(Checkpoint, CleanPutsBackWhatWasAside) {
  ASSERT_TRUE(save(1, random_data(1)).ok());
  fs::rename(dir_ + "/step-00000001", dir_ + "/step-00000001.old.tmp");
  fs::create_directory(dir_ + "/step-00000001.tmp");
  EXPECT_EQ(checkpoint::clean(dir_).size(), 1u);
  expect_equal(dir_ + "/step-00000001", random_data(1));
}

TEST_F(Checkpoint, OneRankFailsAllGiveUp) {
  const Data data = random_data(1);
  ASSERT_TRUE(save(1, data).ok());
  Cut chunks = cut(data, 4, 1);
  checkpoint::Chunk wrong;
  wrong.name = "model/bad";
  wrong.full_shape = {2};
  wrong.count = 3;
  chunks.of_rank[2].push_back(wrong);
  std::vector<std::string> errors(4);
  Crew(4).run([&](const checkpoint::CheckpointRanks& r) {
    errors[r.rank] =
        checkpoint::write_checkpoint(dir_, info_at(2), chunks.of_rank[r.rank], 2, r).error;
  });
  for (const auto& e : errors) EXPECT_NE(e.find("rank 2: "), std::string::npos) << e;
  EXPECT_FALSE(fs::exists(dir_ + "/step-00000002.tmp"));
  EXPECT_FALSE(fs::exists(dir_ + "/step-00000002"));
  EXPECT_EQ(latest(), dir_ + "/step-00000001");
}

// `work` in a child process; its exit status.
template <class F>
int in_child(F&& work) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(work());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(Checkpoint, AWriteThatFailsAtAnyByteLeavesThePreviousOne) {
  const Data data = random_data(1);
  const auto first = save(1, data);
  ASSERT_TRUE(first.ok());
  const auto manifest = fs::file_size(first.path + "/manifest.json");
  for (std::uint64_t limit :
       {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{1000},
        static_cast<std::uint64_t>(manifest) - 1, static_cast<std::uint64_t>(first.bytes) - 1}) {
    const int status = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit l{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &l);
      const auto r =
          checkpoint::write_checkpoint(dir_, info_at(2), cut(data, 1, 1).of_rank[0], 2, {});
      return r.ok() ? 1 : r.error.find("File too large") == std::string::npos ? 2 : 0;
    });
    EXPECT_EQ(status, 0) << limit;
    EXPECT_FALSE(fs::exists(dir_ + "/step-00000002.tmp"));
    EXPECT_FALSE(fs::exists(dir_ + "/latest.tmp"));
    EXPECT_EQ(latest(), first.path);
  }
  EXPECT_TRUE(save(2, data).ok());
}

// The rename is done, but `latest` cannot be written: a folder has its name.
TEST_F(Checkpoint, APublishThatCannotBeAnnouncedIsUndone) {
  const auto first = save(1, random_data(1), 2);
  ASSERT_TRUE(first.ok());
  fs::remove(dir_ + "/latest");
  fs::create_directories(dir_ + "/latest/in the way");
  for (const std::int64_t step : {2, 1}) {  // a new one, and over one that is there
    const auto r = save(step, random_data(9), 2);
    EXPECT_FALSE(r.ok());
    EXPECT_EQ(r.path, "");
    EXPECT_NE(r.error.find("latest"), std::string::npos) << r.error;
    EXPECT_FALSE(fs::exists(dir_ + "/step-00000002")) << "given up, but there";
    for (const auto& e : fs::directory_iterator(dir_))
      EXPECT_NE(e.path().extension(), ".tmp") << e.path();
    ASSERT_TRUE(verifies(first.path));
    expect_equal(first.path, random_data(1));
  }
  fs::remove_all(dir_ + "/latest");
  EXPECT_EQ(latest(), first.path);
  ASSERT_TRUE(save(2, random_data(9), 2).ok());
  EXPECT_EQ(latest(), dir_ + "/step-00000002");
}

TEST_F(Checkpoint, AFullDiskLeavesThePreviousOne) {
  fs::create_directories(dir_);
  const Data data = random_data(1);
  if (::mount("tmpfs", dir_.c_str(), "tmpfs", 0, "size=256k") != 0)
    GTEST_SKIP() << "a small tmpfs cannot be mounted here";
  std::vector<checkpoint::CheckpointResult> results;
  for (int step = 1; step <= 4; ++step) results.push_back(save(step, data, 2));
  EXPECT_TRUE(results.front().ok());
  EXPECT_FALSE(results.back().ok());
  EXPECT_NE(results.back().error.find("No space left"), std::string::npos) << results.back().error;
  for (const auto& r : results) {
    EXPECT_EQ(r.ok(), verifies(r.ok() ? r.path : dir_ + "/step-00000004"));
  }
  EXPECT_FALSE(fs::exists(dir_ + "/step-00000004.tmp"));
  EXPECT_TRUE(latest());
  ::umount(dir_.c_str());
}

TEST_F(Checkpoint, KillsAtRandomTimesNeverLoseTheCheckpoint) {
  const Data data = random_data(4);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(save(1, data).ok());
  const auto once = std::chrono::duration_cast<std::chrono::microseconds>(
                        std::chrono::steady_clock::now() - start)
                        .count();
  std::mt19937 random(11);
  std::int64_t step = 1;
  int advanced = 0, interrupted = 0;
  const auto enough = [&] { return advanced > 0 && interrupted > 5; };
  for (int kill = 0; kill < 40 || (kill < 280 && !enough()); ++kill) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const Cut chunks = cut(data, 1, 2);
      for (std::int64_t s = step + 1;; ++s) {
        if (!checkpoint::write_checkpoint(dir_, info_at(s), chunks.of_rank[0], 2, {}).ok())
          ::_exit(1);
        if (s > step + 3) s = step;  // now and then over one that is there
      }
    }
    const auto longest = (4 * once) << kill / 40;  // the machine may be busier now
    std::this_thread::sleep_for(std::chrono::microseconds(random() % longest));
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child could not write";
    for (const auto& e : fs::directory_iterator(dir_))
      interrupted += e.path().extension() == ".tmp";
    const auto found = latest();
    ASSERT_TRUE(found) << "after kill " << kill << "\n" << log_;
    EXPECT_EQ(log_, "") << "a published checkpoint was not valid";
    expect_equal(*found, data);
    const std::int64_t now = checkpoint::CheckpointReader(*found).manifest().step;
    EXPECT_GE(now, step);
    advanced += now != step;
    step = now;
    checkpoint::clean(dir_);
    for (const auto& e : fs::directory_iterator(dir_)) ASSERT_NE(e.path().extension(), ".tmp");
  }
  EXPECT_GT(advanced, 0);
  EXPECT_GT(interrupted, 5);
}

TEST_F(Checkpoint, TheLockKeepsASecondRunOut) {
  {
    checkpoint::RunLock lock(dir_);
    try {
      checkpoint::RunLock second(dir_);
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::environment);
      EXPECT_NE(std::string(e.what()).find("pid " + std::to_string(::getpid())), std::string::npos)
          << e.what();
    }
  }
  EXPECT_FALSE(fs::exists(dir_ + "/run.lock"));
  EXPECT_EQ(in_child([&] {
              new checkpoint::RunLock(dir_);
              return ::raise(SIGKILL);
            }),
            128 + SIGKILL);
  EXPECT_TRUE(fs::exists(dir_ + "/run.lock"));
  {
    checkpoint::RunLock lock(dir_);
    EXPECT_NE(
        io::read_whole_file(dir_ + "/run.lock", 4096).find("pid " + std::to_string(::getpid())),
        std::string::npos);
  }
  std::ofstream(dir_ + "/run.lock") << "host elsewhere\npid 7\nboot other\n";
  EXPECT_THROW(checkpoint::RunLock{dir_}, Error);
  EXPECT_TRUE(fs::exists(dir_ + "/run.lock"));
}

// flock() fails with `error` in this process from now on, as on a file system that lacks it.
bool lose_flock(unsigned error) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(Checkpoint, WithoutLocksOfItsFileSystemADirectoryIsKeptByTheOwnersName) {
  const auto start = [&](long owner, const std::string& boot = boot_id(), unsigned error = ENOSYS) {
    if (owner != 0)
      std::ofstream(dir_ + "/run.lock")
          << "host " << host_name() << "\npid " << owner << "\nboot " << boot << "\n";
    return in_child([&] {
      if (!lose_flock(error)) return 3;
      try {
        checkpoint::RunLock lock(dir_);
        return io::read_whole_file(dir_ + "/run.lock", 4096)
                           .find("pid " + std::to_string(::getpid()) + "\n") != std::string::npos
                   ? 0
                   : 4;
      } catch (const Error& e) {
        return std::string(e.what()).find("its file system has no locks") != std::string::npos &&
                       e.code() == ExitCode::environment
                   ? 1
                   : 5;
      }
    });
  };
  const int first = start(0);
  if (first == 3) GTEST_SKIP() << "system calls cannot be filtered here";
  EXPECT_EQ(first, 0);
  for (const unsigned error : {EOPNOTSUPP, ENOLCK, 524 /* ENOTSUPP of the kernel */})
    EXPECT_EQ(start(0, boot_id(), error), 0) << error;
  EXPECT_EQ(start(0, boot_id(), EIO), 5) << "not a file system without locks";
  EXPECT_EQ(start(::getpid()), 1) << "may be another run";
  EXPECT_TRUE(fs::exists(dir_ + "/run.lock"));
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ::waitpid(ended, nullptr, 0);
  EXPECT_EQ(start(ended), 0);
  EXPECT_EQ(start(ended, "other"), 1) << "of another machine of this name";
}

TEST_F(Checkpoint, ADirectoryInPlaceOfTheLockIsRefused) {
  fs::create_directories(dir_ + "/run.lock");
  try {
    checkpoint::RunLock lock(dir_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    for (const char* part : {"run.lock", "is a directory", "remove it", "checkpoint.dir"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
  EXPECT_TRUE(fs::is_directory(dir_ + "/run.lock"));
}

// Which runs on other machines where one of its machines has failed.
TEST_F(Checkpoint, AJobThatIsQueuedAgainTakesOverItsLock) {
  const auto start = [&](const char* job, const char* restarts) {
    std::ofstream(dir_ + "/run.lock") << "host elsewhere\npid 7\nboot other\njob 41 1\n";
    return in_child([&] {
      ::setenv("SLURM_JOB_ID", job, 1);
      ::setenv("SLURM_RESTART_COUNT", restarts, 1);
      try {
        checkpoint::RunLock lock(dir_);
        return 0;
      } catch (const Error&) {
        return 1;
      }
    });
  };
  EXPECT_EQ(start("41", "2"), 0);
  EXPECT_EQ(start("41", "1"), 1) << "may still run";
  EXPECT_EQ(start("42", "2"), 1);
}

// The calls of a number fail with `error` in this process from now on; of several flags, `flags`
// alone where it is there.
bool lose_call(unsigned number, unsigned error, bool with_flags = false) {
  // The flags of renameat2 are its fifth argument.
  constexpr auto flags = static_cast<unsigned>(offsetof(seccomp_data, args) + 4 * 8);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
               static_cast<unsigned>(with_flags ? flags : offsetof(seccomp_data, nr))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
constexpr int kNoFilter = 99;

// The exit code of work() in a child in which a system call fails; kNoFilter: it cannot be made to.
template <class F>
int code_without(unsigned number, unsigned error, F&& work, bool with_flags = false) {
  return in_child([&] {
    if (!lose_call(number, error, with_flags)) return kNoFilter;
    try {
      work();
      return 0;
    } catch (const Error& e) {
      return static_cast<int>(e.code());
    }
  });
}

TEST_F(Checkpoint, ALockThatCannotBeOpenedIsWrongOrMayBeTriedAgain) {
  fs::create_directories(dir_);
  const auto lock = [&](unsigned error) {
    return code_without(SYS_openat, error, [&] { checkpoint::RunLock held(dir_); });
  };
  if (lock(EACCES) == kNoFilter) GTEST_SKIP() << "system calls cannot be filtered here";
  for (const unsigned error : {EACCES, EPERM, EROFS})
    EXPECT_EQ(lock(error), static_cast<int>(ExitCode::usage)) << error;
  for (const unsigned error : {EIO, ENOSPC, EMFILE, ESTALE})
    EXPECT_EQ(lock(error), static_cast<int>(ExitCode::retryable)) << error;
  EXPECT_EQ(code_without(SYS_pwrite64, ENOSPC, [&] { checkpoint::RunLock held(dir_); }),
            static_cast<int>(ExitCode::retryable));
}

TEST_F(Checkpoint, ALockSaysWhoseItIs) {
  fs::create_directories(dir_);
  const auto held = [&](const char* job, const char* restarts) {
    std::string text;
    EXPECT_EQ(in_child([&] {
                job ? ::setenv("SLURM_JOB_ID", job, 1) : ::unsetenv("SLURM_JOB_ID");
                restarts ? ::setenv("SLURM_RESTART_COUNT", restarts, 1)
                         : ::unsetenv("SLURM_RESTART_COUNT");
                const checkpoint::RunLock lock(dir_);
                fs::copy_file(dir_ + "/run.lock", dir_ + "/copy",
                              fs::copy_options::overwrite_existing);
                std::ofstream(dir_ + "/pid") << ::getpid();
                return 0;
              }),
              0);
    EXPECT_FALSE(fs::exists(dir_ + "/run.lock"));
    const std::string pid = io::read_whole_file(dir_ + "/pid", 100);
    text = io::read_whole_file(dir_ + "/copy", 4096);
    const std::string owner = "host " + host_name() + "\npid " + pid + "\nboot " + boot_id() + "\n";
    EXPECT_EQ(text.substr(0, owner.size()), owner);
    return text.substr(std::min(owner.size(), text.size()));
  };
  EXPECT_EQ(held(nullptr, nullptr), "");
  EXPECT_EQ(held(nullptr, "4"), "");
  EXPECT_EQ(held("41", nullptr), "job 41 0\n");
  EXPECT_EQ(held("41", "3"), "job 41 3\n");
}

TEST_F(Checkpoint, ALockIsOfAnotherMachineWhereNeitherHostNorStartIsThis) {
  fs::create_directories(dir_);
  const auto start = [&](const std::string& host, const std::string& boot, const char* pid = "7") {
    std::ofstream(dir_ + "/run.lock")
        << "host " << host << "\npid " << pid << "\nboot " << boot << "\n";
    return in_child([&] {
      ::unsetenv("SLURM_JOB_ID");
      ::setenv("SLURM_RESTART_COUNT", "5", 1);
      try {
        checkpoint::RunLock lock(dir_);
        return 0;
      } catch (const Error& e) {
        return static_cast<int>(e.code());
      }
    });
  };
  EXPECT_EQ(start("elsewhere", "other"), static_cast<int>(ExitCode::environment))
      << "neither is of a job, which none was queued again for";
  EXPECT_EQ(start(host_name(), "other"), 0) << "this machine has started anew";
  EXPECT_EQ(start("elsewhere", boot_id()), 0) << "a container of this machine";
  EXPECT_EQ(start("elsewhere", "other", "0"), 0) << "nobody's";
  std::ofstream(dir_ + "/run.lock") << "";
  EXPECT_NO_THROW(checkpoint::RunLock{dir_});
}

// A run that is alone in its container has the number of the one before.
TEST_F(Checkpoint, WithoutLocksAnOwnerOfThisProcessNumberHasEnded) {
  fs::create_directories(dir_);
  const auto start = [&](const std::string& host) {
    return in_child([&] {
      std::ofstream(dir_ + "/run.lock")
          << "host " << host << "\npid " << ::getpid() << "\nboot " << boot_id() << "\n";
      if (!lose_flock(ENOSYS)) return kNoFilter;
      try {
        checkpoint::RunLock lock(dir_);
        return 0;
      } catch (const Error& e) {
        return static_cast<int>(e.code());
      }
    });
  };
  const int code = start(host_name());
  if (code == kNoFilter) GTEST_SKIP() << "system calls cannot be filtered here";
  EXPECT_EQ(code, 0);
  EXPECT_EQ(start("elsewhere"), static_cast<int>(ExitCode::environment));
}

TEST_F(Checkpoint, WhatCannotBeListedIsNotTakenForNone) {
  const auto find = [](const std::string& dir) {
    return checkpoint::find_latest(dir, [](const std::string&) {});
  };
  EXPECT_FALSE(find(dir_ + "/gone"));
  fs::create_directories(dir_);
  std::ofstream(dir_ + "/file") << "x";
  EXPECT_FALSE(find(dir_ + "/file"));
  EXPECT_EQ(checkpoint::count_steps(dir_ + "/file"), 0);
  try {
    find(dir_ + "/" + std::string(300, 'x'));
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::retryable);
    EXPECT_NE(std::string(e.what()).find("cannot be listed"), std::string::npos);
  }
  const int code = code_without(SYS_openat, EACCES, [&] { find(dir_); });
  if (code == kNoFilter) GTEST_SKIP() << "system calls cannot be filtered here";
  EXPECT_EQ(code, static_cast<int>(ExitCode::usage));
  EXPECT_EQ(code_without(SYS_openat, EIO, [&] { find(dir_); }),
            static_cast<int>(ExitCode::retryable));
}

TEST_F(Checkpoint, TheLatestMayHaveALineEndOfAnySystem) {
  for (int step : {1, 2}) ASSERT_TRUE(save(step, random_data(1)).ok());
  for (const char* text :
       {"step-00000001", "step-00000001\n", "step-00000001\r\n", "step-00000001 \n"}) {
    std::ofstream(dir_ + "/latest") << text;
    EXPECT_EQ(latest(), dir_ + "/step-00000001") << text;
    EXPECT_EQ(log_, "");
  }
  fs::remove(dir_ + "/latest");
  EXPECT_EQ(latest(), dir_ + "/step-00000002");
  EXPECT_NE(log_.find("latest is missing; searching 2 step-* directories"), std::string::npos);
  EXPECT_EQ(checkpoint::count_steps(dir_), 2);
}

// Where names cannot be swapped, three renames do.
TEST_F(Checkpoint, AStepIsReplacedWithoutASwapOfNames) {
  ASSERT_TRUE(save(5, random_data(1)).ok());
  const auto replace = [&](unsigned error) {
    return code_without(
        SYS_renameat2, error,
        [&] {
          const auto r = checkpoint::write_checkpoint(dir_, info_at(5),
                                                      cut(random_data(9), 1, 1).of_rank[0], 0, {});
          if (!r.ok()) throw Error(ExitCode::retryable, r.error);
        },
        true);
  };
  const int code = replace(EINVAL);
  if (code == kNoFilter) GTEST_SKIP() << "system calls cannot be filtered here";
  EXPECT_EQ(code, 0);
  expect_equal(dir_ + "/step-00000005", random_data(9));
  std::set<std::string> there;
  for (const auto& e : fs::directory_iterator(dir_)) there.insert(e.path().filename().string());
  EXPECT_EQ(there, (std::set<std::string>{"latest", "step-00000005"}));
  EXPECT_EQ(replace(EIO), static_cast<int>(ExitCode::retryable));
  ASSERT_TRUE(verifies(dir_ + "/step-00000005"));
}

TEST_F(Checkpoint, CleanLeavesWhatHasAPlaceOfItsOwn) {
  ASSERT_TRUE(save(1, random_data(1)).ok());
  fs::copy(dir_ + "/step-00000001", dir_ + "/step-00000001.old.tmp");
  for (const char* name : {"best.old", "step-00000002.old", "step-2.tmp", "latest.tmp.tmp"})
    fs::create_directory(dir_ + "/" + name);
  fs::create_directory(dir_ + "/best.tmp");
  std::vector<std::string> removed = checkpoint::clean(dir_);
  std::ranges::sort(removed);
  EXPECT_EQ(removed, (std::vector<std::string>{"best.tmp", "step-00000001.old.tmp"}));
  EXPECT_TRUE(verifies(dir_ + "/step-00000001"));
  for (const char* name : {"best.old", "step-00000002.old", "step-2.tmp", "latest.tmp.tmp"})
    EXPECT_TRUE(fs::exists(dir_ + "/" + name)) << name;
  EXPECT_TRUE(checkpoint::clean(dir_ + "/gone").empty());
}

TEST(CheckpointSteps, HaveNamesOfEightDigitsOrMore) {
  using checkpoint::step_of;
  EXPECT_EQ(checkpoint::step_name(0), "step-00000000");
  EXPECT_EQ(checkpoint::step_name(123456789), "step-123456789");
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{1}, std::int64_t{99999999},
                                  std::int64_t{100000000}, std::int64_t{123456789012}})
    EXPECT_EQ(step_of(checkpoint::step_name(step)), step);
  for (const char* name : {"", "step-", "step-5", "step-0000005", "step-000000005", "step-0000000x",
                           "step-00000005 ", "step-00000005.tmp", "step--0000005", "stop-00000005",
                           "xstep-00000005", "step-99999999999999999999", "step-+0000005"})
    EXPECT_FALSE(step_of(name)) << name;
}

TEST(CheckpointSlices, AreRunsOfTheWhole) {
  const auto rows = [](const Shape& full, int axis, std::int64_t begin, std::int64_t end) {
    const auto r = checkpoint::rows_of(full, {axis, begin, end, 0, 0});
    return r ? std::vector{r->rows, r->row, r->stride, r->offset} : std::vector<std::int64_t>{};
  };
  using Rows = std::vector<std::int64_t>;
  EXPECT_EQ(rows({}, -1, 0, 0), (Rows{1, 1, 1, 0}));
  EXPECT_EQ(rows({3, 4, 5}, -1, 9, 9), (Rows{1, 60, 60, 0}));
  EXPECT_EQ(rows({3, 4, 5}, 0, 1, 3), (Rows{1, 40, 60, 20}));
  EXPECT_EQ(rows({3, 4, 5}, 1, 1, 3), (Rows{3, 10, 20, 5}));
  EXPECT_EQ(rows({3, 4, 5}, 2, 4, 5), (Rows{12, 1, 5, 4}));
  EXPECT_EQ(rows({3, 4, 5}, 1, 2, 2), (Rows{3, 0, 20, 10}));
  EXPECT_EQ(rows({3, 4}, 1, 0, 4), (Rows{3, 4, 4, 0}));
  EXPECT_EQ(rows({3, 4}, 2, 0, 1), Rows{});
  EXPECT_EQ(rows({}, 0, 0, 1), Rows{});
  EXPECT_EQ(rows({3, 4}, 1, 0, 5), Rows{});
  EXPECT_EQ(rows({3, 4}, 1, 3, 2), Rows{});
  EXPECT_EQ(rows({3, 4}, 1, -1, 2), Rows{});
}

TEST(CheckpointChunks, AreReadInBlocks) {
  constexpr std::int64_t kBlock = checkpoint::Chunk::kBlock;
  for (const std::int64_t count :
       {std::int64_t{0}, std::int64_t{1}, kBlock, kBlock + 3, 2 * kBlock}) {
    checkpoint::Chunk chunk;
    chunk.count = count;
    std::int64_t next = 0;
    const float nothing = 0;
    chunk.read = [&](std::int64_t begin, std::int64_t n) {
      EXPECT_EQ(begin, next);
      EXPECT_TRUE(n >= 1 && n <= kBlock) << n;
      return &nothing;
    };
    chunk.each_block([&](const float*, std::int64_t n) { next += n; });
    EXPECT_EQ(next, count);
  }
}

// 16 bytes of each at 20 MB/s.
TEST(CheckpointTransfers, TakeAsLongAsOnASlowDisk) {
  EXPECT_DOUBLE_EQ(checkpoint::longest_transfer(1'000'000), 0.8);
  EXPECT_DOUBLE_EQ(checkpoint::longest_transfer(8'000'000'000), 6400);
  EXPECT_EQ(checkpoint::longest_transfer(0), 0);
}

TEST_F(Checkpoint, ShardsNameEachCopyAndKeepWholeShapes) {
  const std::vector<float> data{0, 1, 2, 3, 4, 5};
  const auto chunk = [&](const std::string& name, int axis, std::int64_t begin, std::int64_t end,
                         std::int64_t first, std::int64_t count) {
    checkpoint::Chunk c;
    static_cast<checkpoint::Slice&>(c) = {axis, begin, end, first, count};
    c.name = name, c.full_shape = {3, 4}, c.data = data.data();
    return c;
  };
  const std::vector<checkpoint::Chunk> chunks{chunk("w", 1, 0, 2, 0, 6),
                                              chunk("w@1", 0, 0, 1, 0, 4),
                                              chunk("w", 1, 2, 4, 0, 4), chunk("w", 1, 2, 4, 4, 2)};
  const auto result = checkpoint::write_checkpoint(dir_, info_at(1), chunks, 0, {});
  ASSERT_TRUE(result.ok()) << result.error;
  const std::string file = result.path + "/shard-00000-of-00001.safetensors";
  EXPECT_EQ(result.bytes, fs::file_size(file));
  const io::SafetensorsReader shard(file);
  using Extents = std::vector<std::int64_t>;
  EXPECT_EQ(shard.info("w").shape, (Extents{3, 2}));
  EXPECT_EQ(shard.info("w@1").shape, (Extents{1, 4}));
  EXPECT_EQ(shard.info("w@2").shape, Extents{4});
  EXPECT_EQ(shard.info("w@3").shape, Extents{2});
  const checkpoint::CheckpointReader reader(result.path);
  std::vector<float> w(12);
  reader.read("w", {-1, 0, 0, 0, 12}, w.data());
  EXPECT_EQ(w, (std::vector<float>{0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 0, 1}));
  EXPECT_EQ(reader.manifest().chunks.size(), 4u);
  for (const checkpoint::Slice& outside :
       {checkpoint::Slice{-1, 0, 0, 0, 13}, {-1, 0, 0, -1, 2}, {0, 1, 4, 0, 1}, {1, 0, 2, 5, 2}})
    EXPECT_ANY_THROW(reader.read("w", outside, w.data()));
}

// A manifest's text with another body, which the checksum is of.
std::string sealed_manifest(const nlohmann::ordered_json& body) {
  std::string text = body.dump(1, ' ');
  const std::string sum = io::Checksum::of(std::as_bytes(std::span(text)));
  text.resize(text.size() - 2);
  return text + ",\n \"checksum\": \"" + sum + "\"\n}\n";
}
nlohmann::ordered_json body_of(const checkpoint::Manifest& m) {
  auto body = nlohmann::ordered_json::parse(checkpoint::to_text(m));
  body.erase("checksum");
  return body;
}

TEST(CheckpointManifest, SaysAllAndLeavesOutWhatIsNot) {
  checkpoint::Manifest m;
  m.step = 7;
  m.updates = 7;
  const auto empty = body_of(m);
  for (const char* member : {"updates", "evaluation_due", "data_tokens", "directory", "init",
                             "tokenizer", "loss_scale", "best"})
    EXPECT_FALSE(empty.contains(member)) << member;
  const checkpoint::Manifest none = checkpoint::from_text("manifest.json", sealed_manifest(empty));
  EXPECT_EQ(none.updates, 7);
  EXPECT_FALSE(none.evaluation_due || none.best || none.loss_scale.dynamic);
  EXPECT_EQ(none.data_tokens, 0);
  EXPECT_EQ(none.directory + none.init + none.tokenizer, "");
  EXPECT_EQ(none.loss_scale.value, 1);
  m.updates = 5, m.samples_seen = 11, m.evaluation_due = true, m.data_tokens = 1, m.seed = 13;
  m.layout = {{"data", 3}, {"tensor", 2}}, m.config = "c", m.directory = "d", m.init = "i";
  m.tokenizer = "t", m.extra = R"({"x":1})";
  m.loss_scale = {.value = 0.5, .updates = 17, .dynamic = true};
  m.best = checkpoint::Best{config::Metric::bleu, 3, 31.25, 2};
  const checkpoint::Manifest all = checkpoint::from_text("manifest.json", checkpoint::to_text(m));
  EXPECT_EQ(all.updates, 5);
  EXPECT_EQ(all.samples_seen, 11);
  EXPECT_TRUE(all.evaluation_due);
  EXPECT_EQ(all.data_tokens, 1);
  EXPECT_EQ(all.seed, 13u);
  EXPECT_EQ(all.layout, m.layout);
  EXPECT_EQ(all.config + all.directory + all.init + all.tokenizer, "cdit");
  EXPECT_EQ(all.extra, m.extra);
  EXPECT_EQ(all.loss_scale.value, 0.5);
  EXPECT_EQ(all.loss_scale.updates, 17);
  EXPECT_TRUE(all.loss_scale.dynamic);
  EXPECT_EQ(all.best, m.best);
  m.best->step = -1;
  EXPECT_EQ(checkpoint::from_text("manifest.json", checkpoint::to_text(m)).best->step, -1);
  m.extra = "[]";
  EXPECT_ANY_THROW(checkpoint::to_text(m));
}

TEST(CheckpointManifest, RefusesWhatItCannotBe) {
  checkpoint::Manifest m;
  m.best = checkpoint::Best{config::Metric::loss, 3, 1, 2};
  checkpoint::StoredChunk chunk;
  chunk.name = chunk.entry = "w", chunk.full_shape = {3, 4};
  chunk.axis = 1, chunk.begin = 1, chunk.end = 3, chunk.count = 6;
  m.files = {{"shard-a", 8, "x"}, {"shard-b", 8, "y"}};
  m.chunks = {chunk, chunk};
  m.chunks[1].file = 1;
  const auto good = body_of(m);
  EXPECT_NO_THROW(checkpoint::from_text("manifest.json", sealed_manifest(good)));
  const auto refused = [&](const std::string& where, const nlohmann::ordered_json& value,
                           const std::string& why) {
    auto body = good;
    body[nlohmann::ordered_json::json_pointer(where)] = value;
    try {
      checkpoint::from_text("manifest.json", sealed_manifest(body));
      ADD_FAILURE() << where << " " << value;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::input);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  const std::string piece = "/files/0/pieces/0";
  refused("/format", "other", "expected 'tfm-checkpoint'");
  refused("/format_version", 2, "expected version 1");
  refused("/format_version", 0, "expected version 1");
  for (const char* count : {"/step", "/samples_seen"}) refused(count, -1, &count[1]);
  refused("/best/metric", "other", "expected a metric");
  refused("/best/step", -2, "step");
  refused("/best/since", -1, "since");
  refused("/extra", nlohmann::ordered_json::array(), "extra");
  refused("/files/0/name", "part-a", "expected a name such as shard-");
  refused("/files/0/name", "shard-/../a", "expected a name such as shard-");
  refused(piece + "/shape", {3, 4, 1, 1, 1}, "at most four dimensions");
  refused(piece + "/shape", {std::int64_t{1} << 40, std::int64_t{1} << 21}, "too large");
  refused(piece + "/shape", {3, 5}, "'shape' differs between its shards");
  refused(piece + "/shape", {3, 2}, "lies outside its shape");
  refused(piece + "/axis", 2, "lies outside its shape");
  refused(piece + "/axis", -2, "axis");
  refused(piece + "/end", 5, "lies outside its shape");
  refused(piece + "/begin", 4, "lies outside its shape");
  refused(piece + "/count", 7, "lies outside its shape");
  refused(piece + "/first", 1, "lies outside its shape");
  refused(piece + "/first", 7, "lies outside its shape");
  refused(piece + "/count", -1, "count");
}

TEST_F(Checkpoint, AFileThatIsListedTwiceIsRefused) {
  const std::string path = save(1, random_data(2)).path;
  checkpoint::Manifest m = checkpoint::CheckpointReader(path).manifest();
  m.files.push_back(m.files[0]);
  io::replace_file(path + "/manifest.json", checkpoint::to_text(m));
  EXPECT_FALSE(verifies(path));
}

// Of a matrix and a vector, of which a rank has two of three columns and all.
TEST_F(Checkpoint, WeightsAreThoseOfTheParametersAlone) {
  const std::vector<float> w{1, 2, 3, 4, 5, 6}, v{7, 8}, average{9, 10, 11, 12, 13, 14};
  const auto whole = [](const std::string& name, const Shape& shape, const std::vector<float>& x) {
    checkpoint::Chunk c;
    c.name = name, c.full_shape = shape, c.count = shape.elements(), c.data = x.data();
    return c;
  };
  std::vector<checkpoint::Chunk> chunks{whole("model/w", {2, 3}, w), whole("model/v", {2}, v)};
  const auto write = [&](std::int64_t step) {
    fs::remove_all(dir_);
    const auto result = checkpoint::write_checkpoint(dir_, info_at(step), chunks, 0, {});
    EXPECT_EQ(result.error, "");
    return std::make_unique<checkpoint::CheckpointReader>(result.path);
  };
  EXPECT_TRUE(checkpoint::is_import(*write(0)));
  EXPECT_FALSE(checkpoint::is_import(*write(1))) << "a run has written it";
  chunks.push_back(whole("ema/w", {2, 3}, average));
  EXPECT_FALSE(checkpoint::is_import(*write(0)));
  const auto reader = write(3);
  const nn::PartSlice part{.name = "w", .full = {2, 3}, .axis = 1, .begin = 1, .end = 3};
  const checkpoint::Slice slice = checkpoint::slice_of(part, 1, 3);
  EXPECT_EQ(std::tuple(slice.axis, slice.begin, slice.end, slice.first, slice.count),
            std::tuple(1, 1, 3, 1, 3));
  EXPECT_NO_THROW(checkpoint::check_shape(*reader, "here", "model/w", {2, 3}));
  for (const auto& [name, shape] :
       {std::pair{"model/w", Shape{3, 2}}, {"model/x", Shape{2, 3}}, {"model/w", Shape{6}}})
    try {
      checkpoint::check_shape(*reader, "here", name, shape);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::input);
      EXPECT_TRUE(std::string(e.what()).starts_with("here: ")) << e.what();
    }
  nn::ParameterSet known(comm::Layout(), 0), more(comm::Layout(), 0);
  known.add({.parts = {{"w", 2}}, .cols = 3});
  more.add({.parts = {{"x", 2}}, .cols = 3});
  known.finish(), more.finish();
  EXPECT_TRUE(checkpoint::has_average(*reader, known));
  EXPECT_FALSE(checkpoint::has_average(*reader, more));
  std::vector<float> out(3);
  checkpoint::weights_of(*reader, "here", known)(part, 1, 3, out.data());
  EXPECT_EQ(out, (std::vector<float>{3, 5, 6}));
  checkpoint::weights_of(*reader, "here", known, "ema/")(part, 1, 3, out.data());
  EXPECT_EQ(out, (std::vector<float>{11, 13, 14}));
  EXPECT_THROW(checkpoint::weights_of(*reader, "here", more), Error);
  EXPECT_NO_THROW(checkpoint::weights_of(*reader, "here", more, "model/",
                                         [](const std::string& name) { return name == "x"; }));
  EXPECT_THROW(checkpoint::weights_of(*reader, "here", more, "model/",
                                      [](const std::string&) { return false; }),
               Error);
}

}  // namespace
}  // namespace tfm
