#include "telemetry/metrics_server.h"

#include <httplib.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/address.h"
#include "core/error.h"
#include "io/file.h"
#include "telemetry/metrics_page.h"
#include "telemetry/unix_time.h"

namespace tfm::telemetry {
namespace {

constexpr int kMostWorkers = 128;  // connections at a time; others wait

// Gives each connection a thread, so that clients that send nothing keep no other waiting. Threads
// are started as connections come and kept for later ones.
class Workers : public httplib::TaskQueue {
 public:
  using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));  // void or bool
  Workers() { start(); }  // the first; throws without it
  Taken enqueue(std::function<void()> connection) override {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(connection));
    if (waiting_.size() > idle_ && std::ssize(threads_) < kMostWorkers) try {
        start();
      } catch (const std::system_error&) {  // the process may have no more: others will do it
      }
    changed_.notify_one();
    return Taken(true);
  }
  void shutdown() override {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

 private:
  void start() {
    threads_.emplace_back([this] { work(); });
  }
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [this] { return over_ || !waiting_.empty(); });
      --idle_;
      if (waiting_.empty()) return;
      const std::function<void()> connection = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      connection();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::size_t idle_ = 0;
  bool over_ = false;
  std::vector<std::thread> threads_;  // of the listening thread alone
};

// Ends reading and writing on this process's sockets of the local port, so that calls that wait for
// them return.
void shut_connections(int port) {
  std::error_code error;
  for (std::filesystem::directory_iterator fd("/proc/self/fd", error), end; !error && fd != end;
       fd.increment(error)) {
    const int socket = std::atoi(fd->path().filename().c_str());
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    const in_port_t at =
        address.ss_family == AF_INET    ? reinterpret_cast<sockaddr_in&>(address).sin_port
        : address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                        : 0;
    if (ntohs(at) == port) ::shutdown(socket, SHUT_RDWR);
  }
}

}  // namespace

struct MetricsServer::Impl {
  MetricsServerOptions options;
  Address address;
  httplib::Server server;
  socket_t listening = INVALID_SOCKET;
  std::thread thread;
  std::atomic<bool> ended = false;
  mutable std::mutex mutex;
  Snapshot state;

  Snapshot snapshot() const {
    std::lock_guard lock(mutex);
    return state;
  }

  void serve_pages() {
    server.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(page_of(options, snapshot()),
                           "text/plain; version=0.0.4; charset=utf-8");
    });
    server.Get("/healthz", [this](const httplib::Request&, httplib::Response& response) {
      const Snapshot s = snapshot();
      const double age =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - s.alive).count();
      const bool healthy = age <= options.health_seconds;
      response.status = healthy ? 200 : 503;
      response.set_content(std::string(healthy ? "ok" : "stalled") +
                               (s.last ? ": last step, batch of an evaluation or checkpoint "
                                       : ": no step yet, started ") +
                               std::to_string(static_cast<long long>(age)) + " s ago\n",
                           "text/plain");
    });
  }

  // Called once a page was sent.
  void note(const httplib::Request& request) {
    if (request.path != "/metrics") return;
    const std::string who = request.remote_addr + " " + request.get_header_value("User-Agent");
    const auto now = std::chrono::steady_clock::now();
    std::lock_guard lock(mutex);
    if (!state.clients.contains(who) && state.clients.size() == kMostClients) return;
    Client& client = state.clients[who];
    if (client.last.time_since_epoch().count() > 0)
      client.interval = std::chrono::duration<double>(now - client.last).count();
    client.last = now;
  }

  void listen() {
    server.set_logger(
        [this](const httplib::Request& request, const httplib::Response&) { note(request); });
    server.new_task_queue = [] { return new Workers; };
    server.set_read_timeout(2)
        .set_write_timeout(5)
        .set_keep_alive_timeout(2)
        .set_tcp_nodelay(true)  // else a client waits 40 ms for the rest of a page
        .set_payload_max_length(8192);
    server.set_socket_options(
        [this](socket_t socket) {  // the default lets a second process share the port
          const int yes = 1;
          ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
          listening = socket;
        });
    const bool any = address.port == 0;
    if (any) address.port = server.bind_to_any_port(address.host);
    if (any ? address.port <= 0 : !server.bind_to_port(address.host, address.port))
      throw Error(ExitCode::environment,
                  "metrics.listen: " + in_quotes(options.listen) +
                      ": cannot listen: the port is in use or the host is not an address of this "
                      "machine; choose another address (metrics.listen=127.0.0.1:0 picks a free "
                      "port) or metrics.listen=none");
    ::listen(listening, kMostWorkers);  // in place of 5, above which clients wait a second
    sigset_t all, before;               // the training thread handles signals
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread = std::thread([this] {
        try {
          server.listen_after_bind();
        } catch (const std::system_error&) {  // no threads for its workers
        }
        ended = true;
      });
    } catch (const std::system_error&) {
      ended = true;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    while (!server.is_running() && !ended) std::this_thread::yield();
    if (ended)
      throw Error(ExitCode::environment,
                  "metrics.listen: its threads cannot be started; allow more processes, or set "
                  "metrics.listen=none");
  }

  // Its threads wait for what clients send, however slowly: their connections are cut.
  ~Impl() {
    if (!thread.joinable()) return;
    server.stop();
    for (; !ended; std::this_thread::sleep_for(std::chrono::milliseconds(5)))
      shut_connections(address.port);
    thread.join();
  }
};

std::unique_ptr<MetricsServer> MetricsServer::create(const MetricsServerOptions& options) {
  if (options.listen.empty()) return nullptr;
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  const auto address = address_of(options.listen);
  if (!address)
    throw Error(
        ExitCode::usage,
        "metrics.listen: " + in_quotes(options.listen) +
            ": expected host:port with a port from 0 to 65535, such as 127.0.0.1:9750, or none");
  impl->address = *address;
  impl->serve_pages();
  impl->listen();
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

void MetricsServer::step(const StepMetrics& m) {
  std::size_t bucket = 0;
  while (bucket < kStepBuckets.size() && m.seconds > kStepBuckets[bucket]) ++bucket;
  std::lock_guard lock(impl_->mutex);
  auto& s = impl_->state;
  s.last = m;
  s.steps += 1;
  s.tokens += static_cast<double>(m.tokens);
  s.durations[bucket] += 1;
  s.duration_sum += m.seconds;
  s.step_time = s.progress_time = unix_time();
  s.alive = std::chrono::steady_clock::now();
}

void MetricsServer::seconds_left(double estimate) {
  std::lock_guard lock(impl_->mutex);
  impl_->state.seconds_left = estimate;
}

void MetricsServer::end() {
  std::lock_guard lock(impl_->mutex);
  impl_->state.end = std::chrono::steady_clock::now();
  impl_->state.seconds_left = 0;
}

double MetricsServer::seconds_to_last_read() const {
  const Snapshot s = impl_->snapshot();
  const auto now = std::chrono::steady_clock::now();
  double longest = 0;
  for (const auto& [who, client] : s.clients) {
    if (client.interval == 0 || !s.end || client.last > *s.end) continue;
    const double since = std::chrono::duration<double>(now - client.last).count();
    longest = std::max(longest, 1.2 * client.interval + 1 - since);
  }
  return longest;
}

void MetricsServer::alive() {
  std::lock_guard lock(impl_->mutex);
  impl_->state.progress_time = unix_time();
  impl_->state.alive = std::chrono::steady_clock::now();
}

void MetricsServer::eval(const std::string& split, const std::string& metric, double value) {
  std::lock_guard lock(impl_->mutex);
  impl_->state.eval[metric][split] = value;
}

void MetricsServer::checkpoint(std::int64_t step) {
  std::lock_guard lock(impl_->mutex);
  impl_->state.checkpoint_step = step;
  impl_->state.checkpoint_time = unix_time();
}

void MetricsServer::checkpoint_failed() {
  std::lock_guard lock(impl_->mutex);
  impl_->state.checkpoint_failures += 1;
}

void MetricsServer::nonfinite_step() {
  std::lock_guard lock(impl_->mutex);
  impl_->state.nonfinite += 1;
}

void MetricsServer::memory(const std::string& kind, std::int64_t bytes) {
  std::lock_guard lock(impl_->mutex);
  impl_->state.memory[kind] = static_cast<double>(bytes);
}

void MetricsServer::other(std::vector<MetricFamily> families) {
  std::lock_guard lock(impl_->mutex);
  impl_->state.other = std::move(families);
}

int MetricsServer::port() const { return impl_->address.port; }

std::string MetricsServer::url() const {
  const auto& [host, port] = impl_->address;
  return "http://" + (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" +
         std::to_string(port) + "/metrics";
}

bool MetricsServer::is_public() const {
  const auto& host = impl_->address.host;
  return host != "localhost" && host != "::1" && host.rfind("127.", 0) != 0;
}

}  // namespace tfm::telemetry
