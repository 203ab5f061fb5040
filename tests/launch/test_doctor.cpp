// What tfm-doctor finds: each fault by itself, and nothing where there is none.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "checkpoint/lock.h"
#include "launch/doctor/doctor.h"
#include "support/data_files.h"

namespace tfm::launch {
namespace {

// A job of which this process is each rank.
struct Examined {
  explicit Examined(std::vector<Node> of = {{"alpha", {0}}}) : nodes(std::move(of)) {
    launch.cores = {.threads = 2, .cpus = {0, 1}, .share = 2, .together = 2};
  }
  Examination examination() { return {launch, nodes, patience, findings}; }
  nlohmann::ordered_json all() const { return findings.json()["findings"]; }
  // "warning: text -> remedy" of each finding.
  std::string text() const {
    std::string all_text;
    for (const auto& f : all())
      all_text += f["severity"].get<std::string>() + ": " + f["text"].get<std::string>() + " -> " +
                  f["remedy"].get<std::string>() + "\n";
    return all_text;
  }
  Launch launch{false};
  std::vector<Node> nodes;
  Patience patience{600};
  Findings findings{launch};
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

config::Config examined_config(const test::TemporaryFolder& folder,
                               const std::vector<std::string>& overrides = {}) {
  test::put(folder / "text.txt", std::string(4000, 'a'));
  config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 256, d_model: 16, n_layers: 1, n_heads: 2,\n"
      "  max_seq_len: 16}\n"
      "train: {steps: 100, global_batch_size: 4, micro_batch_size: 4, seq_len: 16}\n"
      "device: cpu\n"
      "data: {train: {type: text, path: " +
          folder / "text.txt" + "}}\ncheckpoint: {dir: " + folder / "runs/ck" + "}\n",
      "test", overrides);
  config::resolve_for_ranks(c, 1);
  return c;
}

TEST(Doctor, NodesHaveTheSameNumberOfRanks) {
  Examined even({{"a", {0, 1}}, {"b", {2, 3}}});
  EXPECT_TRUE(check_launch(even.examination()));
  EXPECT_EQ(even.text(), "ok: 2 nodes, a: ranks 0-1; b: ranks 2-3 -> \n");
  EXPECT_EQ(even.findings.measured["nodes"][1]["host"], "b");
  EXPECT_EQ(even.findings.measured["nodes"][1]["ranks"], (std::vector<int>{2, 3}));
  EXPECT_EQ(even.examination().name_of(1), "rank 1 on a");
  EXPECT_EQ(even.examination().name_of(2), "rank 2 on b");
  EXPECT_EQ(even.examination().name_of(4), "rank 4");

  Examined odd({{"a", {0, 2, 4}}, {"b", {1}}});
  EXPECT_TRUE(check_launch(odd.examination()));
  EXPECT_TRUE(has(odd.text(), "warning: nodes have different numbers of ranks")) << odd.text();
  EXPECT_TRUE(has(odd.text(), "a: ranks 0, 2, 4; b: rank 1 ->")) << odd.text();
  EXPECT_EQ(odd.findings.exit_code(), 0);

  Examined foreign;
  foreign.launch.foreign = ForeignLauncher{"another MPI's", "take this one's"};
  EXPECT_FALSE(check_launch(foreign.examination()));
  EXPECT_EQ(foreign.text(), "problem: another MPI's -> take this one's\n");
  EXPECT_EQ(foreign.findings.exit_code(), 4);

  const auto nodes = nodes_of(even.launch);
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].host, host_name());
  EXPECT_EQ(nodes[0].ranks, std::vector<int>{0});
}

TEST(Doctor, CoresAreNeitherTooFewNorIdle) {
  const struct {
    RankCores cores;
    std::vector<int> ranks;
    bool on_gpu;
    const char *severity, *part;
  } cases[] = {
      {{4, {0, 1, 2, 3}, 4, 4}, {0}, false, "ok", "4 threads of rank 0; alpha: rank 0 on"},
      {{3, {0, 1, 2, 3}, 4, 4}, {0}, false, "ok", "3 threads of rank 0"},
      {{2, {0, 1, 2, 3}, 4, 4}, {0}, false, "warning", "1 rank on alpha use 2 of 4 cores"},
      {{2, {0, 1, 2, 3}, 4, 4}, {0}, true, "ok", "2 threads"},
      {{5, {0, 1, 2, 3}, 4, 4}, {0}, false, "problem", "set OMP_NUM_THREADS=4, or"},
      {{5, {0, 1, 2, 3}, 4, 4}, {0}, true, "problem", "1 rank on alpha start 5 threads on 4 cores"},
      {{3, {0, 1}, 2, 7}, {0, 0, 0}, false, "problem", "set OMP_NUM_THREADS=2, or leave it unset"},
      {{1, {0, 1}, 1, 2}, {0, 0}, false, "ok", "1 thread of rank 0"},
      {{1, {0, 1}, 1, 2}, {0, 0, 0}, false, "problem", "start at most 2 ranks on this node"},
      {{2, {0, 1}, 1, 3}, {0, 0, 0}, false, "problem", "set OMP_NUM_THREADS=1, or leave it unset"},
      {{2, {0}, 2, 2},
       {0},
       false,
       "problem",
       "rank 0 on alpha is bound to 1 core, its share of the node is 2 -> bind each rank to its "
       "share (Open MPI: mpirun --map-by slot:PE=2"},
      {{2, {0}, 2, 2}, {0}, true, "ok", "2 threads"}};
  for (const auto& c : cases) {
    Examined job({{"alpha", c.ranks}});
    job.launch.cores = c.cores;
    check_cores(job.examination(), c.on_gpu);
    const auto all = job.all();
    if (std::string(c.severity) == "warning")  // which leaves the rest as well as it is
      ASSERT_EQ(all.size(), 2u) << job.text();
    else
      ASSERT_EQ(all.size(), 1u) << job.text();
    EXPECT_EQ(all[0]["severity"], c.severity) << job.text();
    EXPECT_TRUE(has(job.text(), c.part)) << c.part << "\n" << job.text();
    EXPECT_EQ(job.findings.exit_code(), std::string(c.severity) == "problem" ? 4 : 0);
  }
  Examined alike({{"a", {0}}, {"b", {0}}, {"c", {0, 0}}});
  alike.launch.cores = {.threads = 1, .cpus = {0}, .share = 1, .together = 2};
  check_cores(alike.examination(), true);
  EXPECT_TRUE(has(alike.text(), "a and 1 node alike: rank 0 on ")) << alike.text();
  EXPECT_TRUE(has(alike.text(), "; c: rank 0 on ") || has(alike.text(), "; a and 1 node alike"))
      << alike.text();
}

TEST(Doctor, SettingsOfOneRankAreItsOwn) {
  Examined job;
  EXPECT_FALSE(check_settings(job.examination(), nullptr, Error(ExitCode::input, "c.yaml: gone")));
  EXPECT_TRUE(has(job.text(), "c.yaml: gone")) << job.text();
  EXPECT_EQ(job.findings.exit_code(), 3);
  const config::Config c;
  for (const bool given : {false, true}) {
    Examined other;
    EXPECT_TRUE(check_settings(other.examination(), given ? &c : nullptr, {}));
    EXPECT_EQ(other.all().size(), given ? 2u : 1u) << other.text();
    EXPECT_TRUE(has(other.text(), comm::mpi_version() + " on all ranks"));
  }
}

TEST(Doctor, MemoryIsThatOfTheNode) {
  const test::TemporaryFolder folder;
  Examined small;
  check_memory(small.examination(), examined_config(folder));
  EXPECT_TRUE(has(small.text(), "ok: the ranks of the first node take 0.00 GB")) << small.text();
  EXPECT_TRUE(has(small.text(), " GB by the plan, of ")) << small.text();
  Examined large;
  // 12 x 262144^2 parameters a layer are some terabytes.
  check_memory(large.examination(),
               examined_config(folder, {"model.d_model=262144", "model.n_heads=16"}));
  EXPECT_TRUE(has(large.text(), "problem: ") && has(large.text(), "the node's ranks take "))
      << large.text();
  EXPECT_EQ(large.findings.exit_code(), 4);
}

TEST(Doctor, CheckpointsToComeFitOrDoNot) {
  const test::TemporaryFolder folder;
  const struct {
    std::vector<std::string> keys;
    std::int64_t to_come;  // those kept, at least two, and one that is being written
  } cases[] = {{{"checkpoint.every=10", "checkpoint.keep=1"}, 3},
               {{"checkpoint.every=10", "checkpoint.keep=2"}, 3},
               {{"checkpoint.every=10", "checkpoint.keep=3"}, 4},
               {{"checkpoint.every=40", "checkpoint.keep=8"}, 3},
               {{"checkpoint.every=50", "checkpoint.keep=8"}, 2},
               {{"checkpoint.every=0"}, 1}};
  for (const auto& c : cases) {
    Examined job;
    check_checkpoints(job.examination(), examined_config(folder, c.keys));
    EXPECT_EQ(job.findings.measured["checkpoint"]["to_come"], c.to_come) << c.keys[0];
    EXPECT_TRUE(has(job.text(), "ok: " + folder / "runs/ck" + " is shared and writable"))
        << job.text();
    EXPECT_FALSE(std::filesystem::exists(folder / "runs")) << "what was made is removed";
  }
  const char* most = "train.steps=2000000000";
  Examined full;
  config::Config endless =
      examined_config(folder, {most, "checkpoint.every=1", "checkpoint.keep=2000000000"});
  check_checkpoints(full.examination(), endless);
  const auto room = full.findings.measured["checkpoint"];
  // Parameters and two moments, in fp32, of 256 and 16 rows of 16, 12 squares of 16.
  EXPECT_GE(room["bytes"], 3 * 4 * (256 * 16 + 12 * 16 * 16));
  EXPECT_EQ(room["to_come"], 2000000000);
  const auto space = static_cast<double>(std::filesystem::space(folder.str()).available);
  EXPECT_NEAR(room["available"].get<double>(), space, 0.5 * space);
  if (space < 2e9 * room["bytes"].get<double>()) {
    EXPECT_TRUE(has(full.text(), "2000000000 checkpoints of")) << full.text();
    EXPECT_TRUE(has(full.text(), "lower checkpoint.keep")) << full.text();
    EXPECT_EQ(full.findings.exit_code(), 4);
  }
}

TEST(Doctor, ACheckpointDirectoryMayBeMissingTakenOrNone) {
  const test::TemporaryFolder folder;
  Examined none;
  check_checkpoints(none.examination(), examined_config(folder, {"checkpoint.dir=none"}));
  ASSERT_EQ(none.all().size(), 1u);
  EXPECT_TRUE(has(none.text(), "warning: none are written")) << none.text();
  {
    const checkpoint::RunLock held(folder / "taken");
    Examined taken;
    check_checkpoints(taken.examination(),
                      examined_config(folder, {"checkpoint.dir=" + folder / "taken"}));
    EXPECT_TRUE(has(taken.text(), "another run is using this directory")) << taken.text();
    EXPECT_FALSE(has(taken.text(), "ok: ")) << taken.text();
    EXPECT_EQ(taken.findings.exit_code(), 4);
  }
  Examined freed;
  check_checkpoints(freed.examination(),
                    examined_config(folder, {"checkpoint.dir=" + folder / "taken"}));
  EXPECT_TRUE(has(freed.text(), "ok: ")) << freed.text();
  EXPECT_TRUE(std::filesystem::exists(folder / "taken")) << "what was there stays";
  Examined file;
  check_checkpoints(file.examination(),
                    examined_config(folder, {"checkpoint.dir=" + folder / "text.txt/ck"}));
  EXPECT_FALSE(has(file.text(), "ok: ")) << file.text();
  EXPECT_EQ(file.findings.exit_code(), 4) << file.text();
}

TEST(Doctor, DataIsThereOrNot) {
  const test::TemporaryFolder folder;
  Examined there;
  check_data(there.examination(), examined_config(folder));
  EXPECT_EQ(there.text(), "ok: present on every rank, of equal sizes -> \n");
  Examined gone;
  check_data(gone.examination(),
             examined_config(folder, {"data.train.path=" + folder / "gone.txt"}));
  EXPECT_TRUE(has(gone.text(), "gone.txt")) << gone.text();
  EXPECT_TRUE(has(gone.text(), "copy the files to every node")) << gone.text();
  EXPECT_EQ(gone.findings.exit_code(), 3);
}

TEST(Doctor, MetricsCanBeWrittenAndServed) {
  const test::TemporaryFolder folder;
  const int taken = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(taken, name, length), 0);
  ASSERT_EQ(::listen(taken, 1), 0);
  ASSERT_EQ(::getsockname(taken, name, &length), 0);
  const std::string port = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  test::put(folder / "empty.jsonl", "");
  test::put(folder / "held.jsonl", "");
  test::put(folder / "run.jsonl", "{\"event\":\"start\",\"step\":0}\n");
  test::put(folder / "letter.jsonl", "Dear reader\n");
  const std::string file = folder / "file";
  test::put(file, "x");
  const int held = ::open((folder / "held.jsonl").c_str(), O_WRONLY);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  const struct {
    std::string jsonl, tensorboard, listen, severity, part;
    int code;
  } cases[] = {
      {"", "", "", "ok", "no file is asked for", 0},
      {folder / "new/run.jsonl", "", "", "ok", "new/run.jsonl can be written", 0},
      {folder / "empty.jsonl", "", "", "ok", "can be written", 0},
      {folder / "run.jsonl", "", "", "ok", "can be written", 0},
      {folder / "letter.jsonl", "", "", "warning", "letter.jsonl is there, and no run's metrics",
       0},
      {folder / "held.jsonl", "", "", "problem", "another run is writing it", 4},
      {file + "/run.jsonl", "", "", "problem", "metrics.jsonl to a file that rank 0 may write", 4},
      {folder / "run.jsonl", folder / "events/of/run", "", "ok", "can be written", 0},
      {folder / "run.jsonl", file + "/events", "", "problem", "metrics.tensorboard to a folder", 4},
      {"", "", "127.0.0.1:0", "ok", "no file is asked for", 0},
      {"", "", port, "warning", "they will not be served", 0}};
  for (const auto& c : cases) {
    config::Config config;
    config.metrics.jsonl = c.jsonl;
    config.metrics.tensorboard = c.tensorboard;
    config.metrics.listen = c.listen;
    Examined job;
    const std::size_t before = folder.files();
    check_metrics(job.examination(), config);
    ASSERT_EQ(job.all().size(), 1u) << job.text();
    EXPECT_EQ(job.all()[0]["severity"], c.severity) << job.text();
    EXPECT_TRUE(has(job.text(), c.part)) << c.part << "\n" << job.text();
    EXPECT_EQ(job.findings.exit_code(), c.code);
    EXPECT_EQ(folder.files(), before) << "nothing is left behind";
  }
  EXPECT_EQ(test::get(folder / "run.jsonl"), "{\"event\":\"start\",\"step\":0}\n");
  ::close(held);
  ::close(taken);
}

TEST(Doctor, OneRankIsAsFastAsItself) {
  Examined job;
  config::Config c;
  c.device = config::DeviceKind::cpu;
  check_network(job.examination(), {});
  EXPECT_TRUE(job.all().empty()) << "one node has no network";
  check_device_and_axes(job.examination(), c);
  ASSERT_EQ(job.all().size(), 2u) << job.text();
  EXPECT_EQ(job.all()[1]["check"], "speed");
  EXPECT_TRUE(has(job.text(), "a product of 512 x 512: the slowest is rank 0 on alpha"))
      << job.text();
  ASSERT_EQ(job.findings.measured["product_flops_per_second"].size(), 1u);
  const double rate = job.findings.measured["product_flops_per_second"][0];
  EXPECT_GT(rate, 1e8);
  EXPECT_LT(rate, 1e13);
  char giga[64];
  std::snprintf(giga, sizeof giga, "with %.1f of %.1f GFLOP/s", rate * 1e-9, rate * 1e-9);
  EXPECT_TRUE(has(job.text(), giga)) << job.text();
}

TEST(Doctor, FindingsArePrintedWithTheirNumbers) {
  const Launch launch(false);
  const auto printed_by = [](const Findings& f) {
    testing::internal::CaptureStdout();
    f.print();
    return testing::internal::GetCapturedStdout();
  };
  Findings none(launch);
  none.ok("cores", "are there");
  EXPECT_EQ(printed_by(none), "ok       cores        are there\n\nno problem, 0 warnings\n");
  Findings some(launch);
  some.warning("clocks", "late\nor early", "set it");
  some.problem("links", "slow", "mend it");
  some.problem("cores", "few", "");
  EXPECT_EQ(printed_by(some),
            "warning  clocks       late\n                      or early\n"
            "                      -> set it\n"
            "problem  links        slow\n                      -> mend it\n"
            "problem  cores        few\n\n2 problems, 1 warning\n");
}

TEST(Doctor, ErrorsOfTheLibraryAreTheEnvironments) {
  EXPECT_FALSE(error_of([] {}));
  const auto own = error_of([] { throw Error(ExitCode::input, "x"); });
  const auto other = error_of([] { throw std::runtime_error("y"); });
  ASSERT_TRUE(own && other);
  EXPECT_EQ(own->code(), ExitCode::input);
  EXPECT_EQ(other->code(), ExitCode::environment);
  EXPECT_STREQ(other->what(), "y");
}

}  // namespace
}  // namespace tfm::launch
