#pragma once
// A rank's log of its collectives, in memory shared by the ranks of a node, from which a waiting
// rank can report whom it waits for. Times are in seconds of the machine's monotonic clock, which
// all processes of a node read alike.
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"

namespace tfm::comm {

// One collective of one rank. The collectives of a group are numbered from 1, alike on all its
// ranks.
struct Event {
  Collective op = Collective::barrier;
  AxisSet axes = kWorld;
  std::int64_t bytes = 0;
  std::uint64_t number = 0;
  std::uint64_t ordinal = 0;  // among all collectives of the rank
  double entered = 0;
  double left = 0;          // 0: not complete
  int peer = -1;            // of a message: the peer's rank in the job
  std::string str() const;  // "all_reduce #12 on the data axis (1048576 bytes)"
};

class FlightRecorder {
 public:
  static constexpr int kEvents = 256;  // remembered per rank

  static std::size_t record_bytes();
  static double now();

  // records[r]: record_bytes() bytes of shared memory for world rank r, aligned to 64 bytes; null
  // for a rank of another node. The constructor clears this rank's own record; a barrier must
  // follow before other records are read.
  FlightRecorder(Layout layout, int rank, std::vector<void*> records);

  // Called by the communicators of this rank.
  Event begin(AxisSet axes, Collective op, std::int64_t bytes, int peer = -1);
  void wait(const Event& event);  // from here on this rank waits for others in `event`
  void moved();                   // progress: some of the awaited data arrived
  void end(const Event& event);
  // Seconds between wait() and end(), summed over this rank's collectives so far and indexed by
  // AxisSet::bits(). Excludes collectives that a device completes.
  const std::array<double, AxisSet::kSets>& waited() const { return waited_; }
  // Hands `event` over to a device: the rank itself no longer waits in it, and end() is called
  // later, possibly by another thread.
  void hand_over(const Event& event);
  // Sets the oldest collective that the device has not completed; an ordinal of 0 means none.
  void device_waits(const Event& oldest);
  // Records the communication library's report that no collective of this rank can complete. The
  // first reason is kept.
  void fail(const std::string& reason);

  // Records that this rank is alive at `step`, outside collectives.
  void heartbeat(std::int64_t step);
  // Records that this rank ends normally and that its process may exit.
  void sign_off();

  struct Status {
    int pid = 0;  // 0: signed off
    std::int64_t step = -1;
    double heartbeat = 0;
    double moved = 0;  // when the rank last made progress inside the collective it waits in
    // The collective in which the rank waits, or its device; the older one if both do.
    std::optional<Event> waiting;
    // Number of the last collective entered, indexed by AxisSet::bits().
    std::array<std::uint64_t, AxisSet::kSets> entered{};
  };
  int rank() const { return rank_; }
  int world() const { return layout_.world(); }
  bool visible(int rank) const { return records_[static_cast<std::size_t>(rank)] != nullptr; }
  Status status(int rank) const;              // `rank` must be visible
  std::vector<Event> recent(int rank) const;  // oldest first, at most kEvents
  // World ranks of the group of `rank` along `axes`.
  std::vector<int> members(AxisSet axes, int rank) const { return layout_.group(rank, axes); }
  bool claim_report();          // true for the first caller of the node
  std::string failure() const;  // the reason given to fail(), or ""

 private:
  struct Record;
  Record& own() const { return *records_[static_cast<std::size_t>(rank_)]; }

  Layout layout_;
  int rank_;
  std::vector<Record*> records_;
  double wait_began_ = 0;
  std::array<double, AxisSet::kSets> waited_{};
  mutable std::mutex mutex_;
  std::string failure_;
};

}  // namespace tfm::comm
