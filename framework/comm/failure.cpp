#include "comm/failure.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "comm/mpi.h"
#include "comm/pack.h"
#include "core/host.h"

namespace tfm::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kReportTag = 32001, kHeardTag = 32002;  // on MPI_COMM_WORLD, which nothing else uses
constexpr std::chrono::seconds kCollect{2};           // for other ranks that fail, too
constexpr std::chrono::seconds kStart{20};            // for MPI to start, which takes all ranks

bool wait_until(Clock::time_point end, const std::function<bool()>& done) {
  while (!done()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

void print(const std::string& text) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
}

// "3", "0-2, 5"
std::string ranges(const std::vector<int>& ranks) {
  std::string s;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    s += (s.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) s += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return s;
}

// Ranks that fail alike before MPI was started start it together. Where the others never do, this
// one ends alone.
void start_mpi(const RankFailure& own) {
  const auto started = std::make_shared<std::atomic<bool>>(false);
  std::thread([own, started] {
    std::this_thread::sleep_for(kStart);
    if (*started) return;
    print(failure_text({own}, 0));
    std::_Exit(own.code);
  }).detach();
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  *started = true;
}

// On rank 0: what the others report.
std::vector<RankFailure> collect(const RankFailure& own, int ranks) {
  std::vector<RankFailure> all{own};
  wait_until(Clock::now() + kCollect, [&] {
    int there = 0, bytes = 0;
    MPI_Status status;
    while (MPI_Iprobe(MPI_ANY_SOURCE, kReportTag, MPI_COMM_WORLD, &there, &status) == MPI_SUCCESS &&
           there) {
      MPI_Get_count(&status, MPI_CHAR, &bytes);
      std::string text(static_cast<std::size_t>(bytes), '\0');
      MPI_Recv(text.data(), bytes, MPI_CHAR, status.MPI_SOURCE, kReportTag, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
      RankFailure& other = all.emplace_back();
      other.rank = status.MPI_SOURCE;
      unpack(text, other.code, other.host, other.message);
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(nullptr, 0, MPI_CHAR, status.MPI_SOURCE, kHeardTag, MPI_COMM_WORLD, &request);
    }
    return static_cast<int>(all.size()) == ranks;
  });
  std::ranges::sort(all, {}, &RankFailure::rank);
  return all;
}

// Whether rank 0 has taken the report and will print it.
bool report(const RankFailure& own) {
  static const std::string text = pack(own.code, own.host, own.message);  // until the job ends
  MPI_Request sent = MPI_REQUEST_NULL, heard = MPI_REQUEST_NULL;
  MPI_Irecv(nullptr, 0, MPI_CHAR, 0, kHeardTag, MPI_COMM_WORLD, &heard);
  MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, kReportTag, MPI_COMM_WORLD,
            &sent);
  return wait_until(Clock::now() + kCollect, [&] {
    int done = 0;
    MPI_Test(&heard, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

}  // namespace

std::string failure_text(const std::vector<RankFailure>& failures, int ranks) {
  std::vector<std::string> messages;  // each once, in the order of ranks
  for (const RankFailure& f : failures)
    if (std::ranges::find(messages, f.message) == messages.end()) messages.push_back(f.message);
  if (messages.size() == 1 && static_cast<int>(failures.size()) == ranks) return messages[0];
  std::string text;
  for (const std::string& message : messages) {
    std::map<std::string, std::vector<int>> hosts;
    for (const RankFailure& f : failures)
      if (f.message == message) hosts[f.host].push_back(f.rank);
    std::string where;
    for (const auto& [host, of_host] : hosts)
      where += (where.empty() ? "" : "; ") + host + (of_host.size() == 1 ? " rank " : " ranks ") +
               ranges(of_host);
    text += (text.empty() ? "[" : "\n[") + where + "] " + message;
  }
  return text;
}

void fail_job(int code, const std::string& message) {
  RankFailure own{0, code, host_name(), message};
  int started = 0, ended = 0, ranks = 1;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (ended) {
    print(message);
    std::_Exit(code);
  }
  own.rank = rank_of_launch();
  if (!started) start_mpi(own);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &own.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (own.rank == 0) {
    print(failure_text(collect(own, ranks), ranks));
  } else if (report(own)) {
    std::this_thread::sleep_for(2 * kCollect);  // rank 0 ends this one
  } else {
    print(failure_text({own}, ranks));
  }
  MpiSession::abort(code);
}

}  // namespace tfm::comm
