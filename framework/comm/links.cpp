#include "comm/links.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <sstream>

namespace tfm::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTag = 32003;                // on MPI_COMM_WORLD, beside those of comm/failure.cpp
constexpr double kSeconds = 0.1;           // for a measurement
constexpr int kTrips = 200, kPieces = 64;  // at most
constexpr int kPieceBytes = 1 << 20;

void reached(int code, const char* operation) {
  if (code != MPI_SUCCESS)
    throw Error(ExitCode::environment, std::string(operation) + " failed between two nodes");
}
void send(const void* data, int bytes, int to) {
  reached(MPI_Send(data, bytes, MPI_BYTE, to, kTag, MPI_COMM_WORLD), "MPI_Send");
}
void receive(void* data, int bytes, int from) {
  reached(MPI_Recv(data, bytes, MPI_BYTE, from, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
          "MPI_Recv");
}

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Number of repetitions that fill kSeconds, which the first of two ranks decides.
int agree_on(int other, bool first, int number) {
  first ? send(&number, sizeof number, other) : receive(&number, sizeof number, other);
  return number;
}

// The shortest of some: a longer one waits for a core, too.
double round_trip(int other, bool first) {
  const auto trips = [&](int times) {
    char nothing = 0;
    double shortest = 1e30;
    for (int i = 0; i < times; ++i) {
      const auto start = Clock::now();
      if (first) send(&nothing, 1, other);
      receive(&nothing, 1, other);
      if (!first) send(&nothing, 1, other);
      shortest = std::min(shortest, since(start));
    }
    return shortest;
  };
  trips(2);  // connects
  const double once = trips(2);
  return trips(agree_on(other, first, std::clamp(static_cast<int>(kSeconds / once), 2, kTrips)));
}

// Of bytes from the sender to `other`; known to the sender.
double bandwidth(int other, bool sends, double trip) {
  std::vector<char> piece(kPieceBytes);
  const auto seconds = [&](int pieces) {
    const auto start = Clock::now();
    char done = 0;
    for (int i = 0; i < pieces; ++i)
      sends ? send(piece.data(), kPieceBytes, other) : receive(piece.data(), kPieceBytes, other);
    sends ? receive(&done, 1, other) : send(&done, 1, other);
    return std::max(since(start) - trip / 2, 1e-9);
  };
  const double once = seconds(1);
  const int pieces =
      agree_on(other, sends, std::clamp(static_cast<int>(kSeconds / once), 1, kPieces));
  return static_cast<double>(pieces) * kPieceBytes / seconds(pieces);
}

// On its first rank.
Link measure_pair(int from, int to, bool first) {
  const int other = first ? to : from;
  Link link{from, to, 0, 0};
  const double trip = round_trip(other, first);
  link.latency = trip / 2;
  link.bandwidth = bandwidth(other, first, trip);
  double back = bandwidth(other, !first, trip);
  first ? receive(&back, sizeof back, other) : send(&back, sizeof back, other);
  link.bandwidth = std::min(link.bandwidth, back);
  return link;
}

// Every rank's `mine`, one after another.
template <class T>
std::vector<T> gather(const MpiSession& session, const std::vector<T>& mine) {
  std::vector<T> all;
  for (const std::vector<T>& some : session.gather(mine, MpiSession::Scope::job))
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What the clock of `other` is ahead of this one's.
double offset_of(int other) {
  double offset = 0, shortest = 1e30;
  for (int i = 0; i < 10; ++i) {
    const double sent = wall_clock();
    double theirs = 0;
    send(&theirs, sizeof theirs, other);
    receive(&theirs, sizeof theirs, other);
    const double back = wall_clock();
    if (back - sent < shortest) shortest = back - sent, offset = theirs - (sent + back) / 2;
  }
  return offset;
}

void tell_time(int other) {
  for (int i = 0; i < 10; ++i) {
    double now = 0;
    receive(&now, sizeof now, other);
    now = wall_clock();
    send(&now, sizeof now, other);
  }
}

}  // namespace

std::vector<Link> measure_links(const MpiSession& session, const std::vector<int>& ranks,
                                const BeforeExchange& before) {
  // A round robin: the first place stays, the others move on by one after each round; with an odd
  // number of ranks one place is empty, and its partner rests.
  std::vector<int> places = ranks;
  if (places.size() % 2) places.push_back(-1);
  std::vector<Link> mine;
  const std::size_t n = places.size();
  for (std::size_t round = 0; round + 1 < n; ++round) {
    for (std::size_t i = 0; i < n / 2; ++i) {
      const auto [from, to] = std::minmax(places[i], places[n - 1 - i]);
      if (from < 0 || (session.rank() != from && session.rank() != to)) continue;
      before(session.rank() == from ? to : from);
      const Link link = measure_pair(from, to, session.rank() == from);
      if (session.rank() == from) mine.push_back(link);
    }
    std::rotate(places.begin() + 1, places.end() - 1, places.end());
  }
  std::vector<Link> all = gather(session, mine);
  std::ranges::sort(all, {}, [](const Link& l) { return std::pair(l.from, l.to); });
  return all;
}

std::vector<double> clock_offsets(const MpiSession& session, const std::vector<int>& ranks,
                                  const BeforeExchange& before) {
  std::vector<double> mine;
  for (const int other : ranks) {
    if (session.rank() == ranks[0]) {
      before(other);
      mine.push_back(other == ranks[0] ? 0 : offset_of(other));
    } else if (session.rank() == other) {
      before(ranks[0]);
      tell_time(ranks[0]);
    }
  }
  return gather(session, mine);
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::istringstream words(std::string(text, static_cast<std::size_t>(length)));
  std::string name, label, version;  // "MPICH Version: 4.0.2", "Open MPI v4.1.4, package: ..."
  words >> name >> label >> version;
  if (label != "Version:") name += " " + label;
  return name + " " + version.substr(0, version.find(','));
}

}  // namespace tfm::comm
