#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/host.h"
#include "telemetry/metrics_log.h"
#include "telemetry/metrics_server.h"
#include "telemetry/progress.h"
#include "train/stop_requests.h"
#include "train/time_left.h"

namespace tfm {
namespace {

namespace fs = std::filesystem;

std::string content(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

class Metrics : public testing::Test {
 protected:
  Metrics() : dir_(fs::temp_directory_path() / ("tfm-metrics-" + std::to_string(::getpid()))) {
    fs::remove_all(dir_);
  }
  ~Metrics() override { fs::remove_all(dir_); }
  std::string path() const { return (dir_ / "deep" / "metrics.jsonl").string(); }
  static telemetry::MetricsLine step(std::int64_t n) {
    return telemetry::MetricsLine("step").add("step", n).add("loss", 0.5f * static_cast<float>(n));
  }
  std::string steps() const {  // "1 2 E2 3": step events, E: eval
    std::istringstream in(content(path()));
    std::string line, out;
    while (std::getline(in, line)) {
      const auto json = nlohmann::json::parse(line);
      const std::string event = json["event"];
      out += (out.empty() ? "" : " ") + (event == "step" ? "" : event == "eval" ? "E" : event);
      if (json.contains("step")) out += json["step"].dump();
    }
    return out;
  }
  fs::path dir_;
};

TEST_F(Metrics, LineIsTheContracts) {
  EXPECT_EQ(
      telemetry::MetricsLine("step")
          .add("step", 1)
          .add("loss", 10.98)
          .add("lr", 6e-6)
          .add("mfu", std::nan(""))
          .add("path", "a\"b\n")
          .add_json("layout", R"({"data":2})")
          .text(),
      R"({"event":"step","step":1,"loss":10.98,"lr":6e-06,"mfu":null,"path":"a\"b\n","layout":{"data":2}})"
      "\n");
  EXPECT_EQ(telemetry::MetricsLine("x").add("v", std::numeric_limits<double>::infinity()).text(),
            "{\"event\":\"x\",\"v\":null}\n");
}

TEST_F(Metrics, NumbersReadBackToTheSameBits) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100000; ++i) {
    const double d = std::bit_cast<double>(random());
    const auto json = nlohmann::json::parse(telemetry::MetricsLine("x").add("d", d).text());
    ASSERT_EQ(json["d"].is_null(), !std::isfinite(d));
    const double back = json["d"].is_null() ? d : json["d"].get<double>();
    ASSERT_EQ(std::bit_cast<std::uint64_t>(back), std::bit_cast<std::uint64_t>(d));
  }
}

TEST_F(Metrics, ResumeKeepsEachStepOnce) {
  {
    telemetry::MetricsLog log(path());
    EXPECT_EQ(log.write(telemetry::MetricsLine("start").add("world", 1)), "");
    for (int n = 1; n <= 5; ++n) {
      log.write(step(n));
      if (n % 2 == 0)
        log.write(telemetry::MetricsLine("eval")
                      .add("step", n)
                      .add("split", "validation")
                      .add("loss", 1.0));
    }
    log.write(telemetry::MetricsLine("end").add("step", 5));
  }
  EXPECT_EQ(steps(), "start 1 2 E2 3 4 E4 5 end5");
  std::ofstream(path(), std::ios::app) << R"({"event":"step","step":3,"lo)";
  {
    telemetry::MetricsLog log(path(), 3);
    EXPECT_EQ(steps(), "start 1 2 E2 3");
    for (int n = 4; n <= 6; ++n) log.write(step(n));
  }
  EXPECT_EQ(steps(), "start 1 2 E2 3 4 5 6");
  std::ofstream(path(), std::ios::app)
      << "{\"event\":\"step\",\"step\":6}\nnot json\n{\"event\":\"step\",\"step\":\"7\"}\n";
  EXPECT_EQ((telemetry::MetricsLog(path(), 6), steps()), "start 1 2 E2 3 4 5 6");
  EXPECT_EQ((telemetry::MetricsLog(path(), 2, true), steps()), "start 1 2")
      << "its evaluation is due";
  const std::string before = content(path());
  {
    const telemetry::MetricsLog log(path());
    EXPECT_EQ(content(path()), "");
    EXPECT_EQ(log.old(), path() + ".old");
    EXPECT_EQ(content(log.old()), before);
    EXPECT_THROW(telemetry::MetricsLog(path(), 3), Error) << "it is being written";
  }
  for (const char* old : {".old.2", ".old.3"}) {
    telemetry::MetricsLog(path()).write(telemetry::MetricsLine("start"));
    EXPECT_EQ(telemetry::MetricsLog(path()).old(), path() + old);
  }
  EXPECT_EQ(content(path() + ".old"), before);
  EXPECT_EQ(telemetry::MetricsLog(path()).old(), "") << "an empty file is no run's";
  EXPECT_FALSE(fs::exists(path() + ".tmp"));
  EXPECT_THROW(telemetry::MetricsLog("/proc/nothing/here.jsonl"), Error);
}

TEST_F(Metrics, AFileThatIsRemovedIsMadeAgain) {
  telemetry::MetricsLog log(path());
  log.write(step(1));
  fs::remove(path());
  EXPECT_EQ(log.write(step(2)), "");
  EXPECT_EQ(steps(), "2");
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_NE(log.write(step(3)), "");
}

TEST_F(Metrics, AFullDiskTearsNoLine) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    telemetry::MetricsLog log(path());
    int failed = 0;
    for (int n = 1; n <= 5; ++n) failed += !log.write(step(n)).empty();
    ::_exit(failed);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(steps(), "1 2");
}

int connected(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return fd;
}

// One GET; the whole answer.
std::string get(int port, const std::string& target, const std::string& method = "GET") {
  const int fd = connected(port);
  const std::string request =
      method + " " + target +
      " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::string answer;
  char part[4096];
  for (ssize_t n; (n = ::recv(fd, part, sizeof part, 0)) > 0;)
    answer.append(part, static_cast<std::size_t>(n));
  ::close(fd);
  return answer;
}

telemetry::MetricsServerOptions options(double health = 60) {
  telemetry::MetricsServerOptions o;
  o.listen = "127.0.0.1:0";
  o.health_seconds = health;
  o.build = {{"version", "0.1.0"}};
  o.name = "gpt2";
  o.steps = 20;
  o.run = {{"model", "decoder"}, {"layout", "data=2 tensor=1"}};
  return o;
}

std::string full_page() {
  const auto metrics_server = telemetry::MetricsServer::create(options());
  telemetry::StepMetrics m{.step = 7,
                           .tokens = 1000,
                           .tokens_per_second = 2000,
                           .loss = 3.25,
                           .grad_norm = 0.5,
                           .lr = 1e-3,
                           .seconds = 0.5,
                           .mfu = 0.25};
  metrics_server->step(m);
  m.step = 8;
  m.loss = 3.125;
  m.seconds = 0.7;
  metrics_server->step(m);
  metrics_server->seconds_left(12.5);
  metrics_server->eval("validation", "loss", 3.5);
  metrics_server->eval("validation", "perplexity", 33.1);
  metrics_server->eval("validation", "bleu", 31.5);
  metrics_server->checkpoint(8);
  metrics_server->checkpoint_failed();
  metrics_server->nonfinite_step();
  metrics_server->memory("parameters", 4096);
  metrics_server->other({{"replaced", "", false, {{{}, 1}}}});
  metrics_server->other(
      {{"tfm_phase_seconds_total",
        "Phases.",
        true,
        {{{{"rank", "0"}, {"phase", "data"}}, 1.5}, {{{"rank", "1"}, {"phase", "data"}}, 2.5}}},
       {"tfm_collective_seconds_total", "Waits.", true, {{{{"axis", "data"}}, 3}}},
       {"tfm_straggler_seconds", "Wait.", false, {{{{"rank", "1"}}, 0.25}}},
       {"tfm_loss_scale", "With fp16.", false, {{{}, 65536}}},
       {"tfm_busiest_expert_ratio", "", false, {{{}, 1}}},
       {"tfm_idlest_expert_ratio", "", false, {{{}, 1}}},
       {"tfm_busiest_expert_rank_ratio", "", false, {{{}, 1}}},
       {"tfm_router_entropy_nats", "", false, {{{}, 1}}}});
  return get(metrics_server->port(), "/metrics");
}

TEST(MetricsServer, Scrape) {
  const std::string page = full_page();
  EXPECT_EQ(page.rfind("HTTP/1.1 200", 0), 0u);
  for (const char* line :
       {"tfm_build_info{run=\"gpt2\",version=\"0.1.0\"} 1",
        "tfm_run_info{run=\"gpt2\",layout=\"data=2 tensor=1\",model=\"decoder\"} 1",
        "\ntfm_step{run=\"gpt2\"} 8\n",
        "tfm_planned_steps{run=\"gpt2\"} 20",
        "tfm_eta_seconds{run=\"gpt2\"} 12.5",
        "tfm_run_ended{run=\"gpt2\"} 0",
        "tfm_steps_total{run=\"gpt2\"} 2",
        "tfm_tokens_total{run=\"gpt2\"} 2000",
        "tfm_tokens_per_second{run=\"gpt2\"} 2000",
        "tfm_mfu_ratio{run=\"gpt2\"} 0.25",
        "tfm_loss{run=\"gpt2\"} 3.125",
        "tfm_eval_loss{run=\"gpt2\",split=\"validation\"} 3.5",
        "tfm_eval_bleu{run=\"gpt2\",split=\"validation\"} 31.5",
        "tfm_grad_norm{run=\"gpt2\"} 0.5",
        "tfm_learning_rate{run=\"gpt2\"} 0.001",
        "tfm_step_duration_seconds_count{run=\"gpt2\"} 2",
        "tfm_step_duration_seconds_bucket{run=\"gpt2\",le=\"0.5\"} 1",
        "tfm_step_duration_seconds_bucket{run=\"gpt2\",le=\"1\"} 2",
        "tfm_step_duration_seconds_bucket{run=\"gpt2\",le=\"+Inf\"} 2",
        "tfm_step_duration_seconds_sum{run=\"gpt2\"} 1.2",
        "tfm_last_step_timestamp_seconds{run=\"gpt2\"} ",
        "tfm_last_progress_timestamp_seconds{run=\"gpt2\"} ",
        "tfm_last_checkpoint_step{run=\"gpt2\"} 8",
        "tfm_last_checkpoint_timestamp_seconds{run=\"gpt2\"} ",
        "tfm_checkpoint_failures_total{run=\"gpt2\"} 1",
        "tfm_nonfinite_steps_total{run=\"gpt2\"} 1",
        "tfm_memory_bytes{run=\"gpt2\",kind=\"parameters\"} 4096",
        "# TYPE tfm_phase_seconds_total counter",
        "tfm_phase_seconds_total{run=\"gpt2\",phase=\"data\",rank=\"0\"} 1.5",
        "tfm_phase_seconds_total{run=\"gpt2\",phase=\"data\",rank=\"1\"} 2.5",
        "# TYPE tfm_straggler_seconds gauge",
        "tfm_straggler_seconds{run=\"gpt2\",rank=\"1\"} 0.25"})
    EXPECT_NE(page.find(line), std::string::npos) << line << "\n" << page;
  EXPECT_EQ(page.find("replaced"), std::string::npos);
  for (std::size_t at = 0; (at = page.find("\ntfm_", at)) != std::string::npos; ++at)
    EXPECT_EQ(page.compare(page.find('{', at), 11, "{run=\"gpt2\""), 0) << page.substr(at, 80);
}

TEST(MetricsServer, OnlyTwoPages) {
  const auto metrics_server = telemetry::MetricsServer::create(options());
  for (const char* target : {"/", "/metrics/x", "/../etc/passwd", "/healthz2"})
    EXPECT_NE(get(metrics_server->port(), target).find(" 404 "), std::string::npos) << target;
  EXPECT_NE(get(metrics_server->port(), "/metrics", "POST").find(" 404 "), std::string::npos);
  EXPECT_EQ(get(metrics_server->port(), "/metrics").find("\ntfm_loss"),
            std::string::npos);  // not known yet
}

TEST(MetricsServer, WaitsForThoseWhoReadTheEnd) {
  const auto server = telemetry::MetricsServer::create(options());
  const auto read = [&] { return get(server->port(), "/metrics"); };
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(500)); };
  read();
  server->end();
  EXPECT_EQ(server->seconds_to_last_read(), 0) << "one read has no interval";
  const auto other = telemetry::MetricsServer::create(options());
  for (int i = 0; i < 2; ++i, pause()) get(other->port(), "/metrics");
  get(other->port(), "/healthz");  // no one who reads metrics
  EXPECT_EQ(other->seconds_to_last_read(), 0) << "the run goes on";
  other->end();
  // The second read was 0.5 s after the first and 0.5 s ago: the next in 1.2 * 0.5 + 1 - 0.5 s.
  const double wait = other->seconds_to_last_read();
  EXPECT_GT(wait, 0.2);
  EXPECT_LT(wait, 1.2);
  EXPECT_NE(get(other->port(), "/metrics").find("tfm_run_ended{run=\"gpt2\"} 1"),
            std::string::npos);
  for (int i = 0; i < 100 && other->seconds_to_last_read() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until the answer is logged
  EXPECT_EQ(other->seconds_to_last_read(), 0);
}

TEST(MetricsServer, HealthFollowsTheSteps) {
  const auto metrics_server = telemetry::MetricsServer::create(options(0.5));
  EXPECT_NE(get(metrics_server->port(), "/healthz").find(" 200 "), std::string::npos);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  EXPECT_NE(get(metrics_server->port(), "/healthz").find(" 503 "), std::string::npos);
  telemetry::StepMetrics first;
  first.step = 1;
  metrics_server->step(first);
  EXPECT_NE(get(metrics_server->port(), "/healthz").find(" 200 "), std::string::npos);
}

TEST(MetricsServer, EndsThoughAClientGoesOnSending) {
  auto metrics_server = telemetry::MetricsServer::create(options());
  const int fd = connected(metrics_server->port());
  std::thread client([fd] {
    while (::send(fd, "G", 1, MSG_NOSIGNAL) == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto start = std::chrono::steady_clock::now();
  metrics_server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  client.join();
  ::close(fd);
}

TEST(MetricsServer, AnswersWhileOthersSendNothing) {
  auto metrics_server = telemetry::MetricsServer::create(options());
  using Clock = std::chrono::steady_clock;
  const auto before = Clock::now();
  std::vector<int> silent;
  for (int i = 0; i < 64; ++i) silent.push_back(connected(metrics_server->port()));
  for (std::size_t i = 0; i < silent.size(); i += 2)
    EXPECT_EQ(::send(silent[i], "GET /metr", 9, 0), 9);  // and no more of it
  EXPECT_LT(Clock::now() - before, std::chrono::seconds(1));
  for (const char* target : {"/healthz", "/metrics"}) {
    const auto start = Clock::now();
    EXPECT_NE(get(metrics_server->port(), target).find(" 200 "), std::string::npos);
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(1)) << target;
  }
  const auto start = Clock::now();
  metrics_server.reset();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
  for (const int fd : silent) ::close(fd);
}

TEST(MetricsServer, Addresses) {
  auto o = options();
  o.listen = "";
  EXPECT_EQ(telemetry::MetricsServer::create(o), nullptr);
  const auto first = telemetry::MetricsServer::create(options());
  EXPECT_FALSE(first->is_public());
  EXPECT_EQ(first->url(), "http://127.0.0.1:" + std::to_string(first->port()) + "/metrics");
  const auto code = [&](const std::string& listen) {
    o.listen = listen;
    try {
      telemetry::MetricsServer::create(o);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("metrics.listen"), std::string::npos);
      return e.code();
    }
    return ExitCode::ok;
  };
  EXPECT_EQ(code("127.0.0.1:" + std::to_string(first->port())), ExitCode::environment);
  EXPECT_EQ(code("192.0.2.1:9750"), ExitCode::environment);
  for (const char* bad : {":", "0", ":0", "[]:0", "localhost:", "localhost:x", "localhost:65536"})
    EXPECT_EQ(code(bad), ExitCode::usage) << bad;
  EXPECT_EQ(code("127.0.0.1:0"), ExitCode::ok);
  o.listen = "0.0.0.0:0";
  EXPECT_TRUE(telemetry::MetricsServer::create(o)->is_public());
}

std::set<std::string> names_in(const std::string& text) {
  std::set<std::string> names;
  for (std::size_t at = 0; (at = text.find("tfm_", at)) != std::string::npos;) {
    const std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at);
    names.insert(text.substr(at, end - at));
    at = std::min(end, text.size());
  }
  return names;
}

TEST(MetricsServer, DashboardAndAlertsUseWhatThereIs) {
  const auto there = names_in(full_page());
  const auto dashboard =
      nlohmann::json::parse(content(TFM_SOURCE_DIR "/configs/dashboards/tfm.json"));
  EXPECT_GE(dashboard["schemaVersion"], 36);
  std::set<std::string> used, rows;
  for (const auto& panel : dashboard["panels"]) {
    if (panel["type"] == "row") rows.insert(panel["title"]);
    for (const auto& target : panel.value("targets", nlohmann::json::array()))
      used.merge(names_in(target["expr"]));
  }
  for (const char* row : {"Progress", "Throughput", "Health", "Checkpoint", "Memory"})
    EXPECT_TRUE(rows.count(row)) << row;
  EXPECT_GE(used.size(), 17u);
  used.merge(names_in(content(TFM_SOURCE_DIR "/configs/alerts/tfm.rules.yml")));
  for (const auto& name : used) EXPECT_TRUE(there.count(name)) << name;
}

TEST(ProgressLine, Format) {
  telemetry::ProgressSample s{.step = 1200,
                              .steps = 20000,
                              .loss = 3.21451,
                              .grad_norm = 0.83,
                              .lr = 3e-4,
                              .tokens_per_second = 412300,
                              .mfu = 0.417,
                              .memory_bytes = 65713000000,
                              .step_seconds = 0.318,
                              .seconds_left = 5978.4};
  EXPECT_EQ(
      telemetry::step_line(s),
      "step 1200/20000 6.0% | loss 3.2145 | gnorm 0.83 | lr 3.00e-04 | 412.3k tok/s | 41.7% MFU | "
      "mem 61.2 GiB | 318 ms | eta 1h39m");
  s.mfu.reset();
  s.loss = std::nan("");
  EXPECT_NE(telemetry::step_line(s).find("loss nan"), std::string::npos);
  EXPECT_NE(telemetry::step_line(s).find("n/a MFU"), std::string::npos);
  EXPECT_EQ(telemetry::count_text(999.9), "1000");
  EXPECT_EQ(telemetry::count_text(999.97), "1.0k");
  EXPECT_EQ(telemetry::count_text(1.25e6), "1.2M");
  EXPECT_EQ(telemetry::duration_text(59), "59s");
  EXPECT_EQ(telemetry::duration_text(723), "12m03s");
  EXPECT_EQ(telemetry::duration_text(273600), "3d04h");
}

config::Config config_with_events() {
  config::Config c;
  c.train.steps = 100;
  c.eval.every = 30;
  c.checkpoint.dir = "checkpoints";
  c.checkpoint.every = 50;
  return c;
}

TEST(TimeLeft, CountsStepsEvaluationsAndCheckpoints) {
  train::TimeLeft left(config_with_events());
  EXPECT_EQ(left.after(0), 0) << "nothing is known";
  left.add_step(9);  // the first step is slow
  EXPECT_EQ(left.after(1), 99 * 9);
  left.add_step(1);
  left.add_step(3);
  EXPECT_EQ(left.after(3), 97 * 2) << "the first does not count beside others";
  left.add_evaluation(30, 5);  // the next at 60, 90 and 100
  EXPECT_EQ(left.after(30), 70 * 2 + 3 * 5);
  left.add_checkpoint(50, 7);  // the next at 100
  EXPECT_EQ(left.after(50), 50 * 2 + 3 * 5 + 7);
  EXPECT_EQ(left.after(60), 40 * 2 + 3 * 5 + 7) << "that of this step is still to come";
  left.add_evaluation(60, 4);
  EXPECT_EQ(left.after(60), 40 * 2 + 2 * 4 + 7);
  EXPECT_EQ(left.after(100), 4 + 7);
  left.add_evaluation(100, 4);
  left.add_checkpoint(100, 7);
  EXPECT_EQ(left.after(100), 0);
  for (int i = 0; i < 50; ++i) left.add_step(0.5);
  EXPECT_EQ(left.after(100 - 1), 0.5) << "steps of long ago do not count";
}

TEST(TimeLeft, CountsWhatTheConfigurationAsksFor) {
  config::Config c = config_with_events();
  c.eval.every = 0;
  c.checkpoint.every = 0;  // only the last
  train::TimeLeft last(c);
  last.add_step(1), last.add_evaluation(1, 100), last.add_checkpoint(1, 10);
  EXPECT_EQ(last.after(40), 60 + 10);
  c.checkpoint.dir.clear();
  train::TimeLeft none(c);
  none.add_step(1), none.add_checkpoint(1, 10);
  EXPECT_EQ(none.after(40), 60);
}

TEST(Signals, Requests) {
  const std::string dir =
      (fs::temp_directory_path() / ("tfm-stop-" + std::to_string(::getpid()))).string();
  fs::create_directories(dir);
  ::signal(SIGUSR1, SIG_IGN);
  {
    train::StopRequests requests;
    EXPECT_EQ(requests.poll(dir), train::Request::none);
    ::raise(SIGUSR1);
    EXPECT_EQ(requests.poll(dir), train::Request::checkpoint);
    EXPECT_EQ(requests.poll(dir), train::Request::none);
    ::raise(SIGUSR1);
    ::raise(SIGTERM);
    EXPECT_EQ(requests.poll(), train::Request::stop);
    EXPECT_EQ(requests.poll(), train::Request::stop);
  }
  ::raise(SIGUSR1);  // ignored again
  {
    train::StopRequests requests;
    EXPECT_EQ(requests.poll(dir), train::Request::none);
    ::raise(SIGUSR2);
    EXPECT_EQ(requests.poll(dir), train::Request::stop);
  }
  ::signal(SIGUSR1, SIG_DFL);
  train::StopRequests requests;
  std::ofstream(dir + "/STOP");
  EXPECT_EQ(requests.poll(), train::Request::none);
  EXPECT_EQ(requests.poll(dir), train::Request::stop);
  train::StopRequests::obeyed(dir);
  EXPECT_FALSE(fs::exists(dir + "/STOP"));
  fs::remove_all(dir);
}

// Ctrl-C is a request once training has begun, and ends the process otherwise, or the second time.
TEST(Signals, AnInterruptIsARequestOnce) {
  const auto interrupted = [](bool obeyed, int times) {
    train::StopRequests requests;
    if (obeyed) requests.obey_interrupts();
    for (int i = 0; i < times; ++i) {
      ::kill(::getpid(), SIGINT);
      ::usleep(200000);
    }
    std::_Exit(static_cast<int>(requests.poll()));
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto before = ::signal(SIGINT, SIG_DFL);
  EXPECT_EXIT(interrupted(true, 1), testing::ExitedWithCode(static_cast<int>(train::Request::stop)),
              "");
  EXPECT_EXIT(interrupted(true, 2), testing::KilledBySignal(SIGINT), "");
  EXPECT_EXIT(interrupted(false, 1), testing::KilledBySignal(SIGINT), "");
  ::signal(SIGINT, SIG_IGN);  // as of a job in the background
  EXPECT_EXIT(interrupted(true, 2), testing::ExitedWithCode(0), "");
  ::signal(SIGINT, before);
}

// A launcher that is killed takes its rank along; a shell that ends does not.
TEST(Signals, RanksDieWithTheirLauncher) {
  for (bool launched : {true, false}) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t launcher = ::fork();
    if (launcher == 0) {
      launched ? ::setenv("PMIX_RANK", "0", 1) : ::unsetenv("PMIX_RANK");
      if (!launched) ::unsetenv("OMPI_COMM_WORLD_RANK"), ::unsetenv("PMI_RANK");
      if (::fork() == 0) {
        die_with_parent();
        char byte = 'r';
        (void)!::write(pipe[1], &byte, 1);
        ::usleep(700000);
        byte = 's';  // survived
        (void)!::write(pipe[1], &byte, 1);
        ::_exit(0);
      }
      ::pause();
    }
    ::close(pipe[1]);
    char byte = 0;
    ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
    ::kill(launcher, SIGKILL);
    ::waitpid(launcher, nullptr, 0);
    EXPECT_EQ(::read(pipe[0], &byte, 1), launched ? 0 : 1);
    ::close(pipe[0]);
  }
}

}  // namespace
}  // namespace tfm
