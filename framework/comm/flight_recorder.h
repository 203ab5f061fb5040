#pragma once
// A rank's log of its collectives, kept in memory that the ranks of a node share, so that a rank
// that waits can say for whom. Times are seconds of the machine's monotonic clock, which all
// processes of a node read alike.
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"

namespace tfm::comm {

// One collective of one rank. Collectives of a group are numbered from 1, equally on all its ranks.
struct Event {
  Collective op = Collective::barrier;
  AxisSet axes = kWorld;
  std::int64_t bytes = 0;
  std::uint64_t number = 0;
  std::uint64_t ordinal = 0;  // among all collectives of the rank
  double entered = 0;
  double left = 0;          // 0: not complete
  int peer = -1;            // of a message: the other rank of the job
  std::string str() const;  // "all_reduce #12 on the data axis (1048576 bytes)"
};

class FlightRecorder {
 public:
  static constexpr int kEvents = 256;  // remembered per rank

  static std::size_t record_bytes();
  static double now();

  // records[r]: record_bytes() of shared memory for world rank r, aligned to 64 bytes, or null on
  // another node. The constructor clears the own record; a barrier must follow before others are
  // read.
  FlightRecorder(Layout layout, int rank, std::vector<void*> records);

  // Called by the communicators of this rank.
  Event begin(AxisSet axes, Collective op, std::int64_t bytes, int peer = -1);
  void wait(const Event& event);  // from here on this rank waits for others in `event`
  void moved();                   // some of its data arrived
  void end(const Event& event);
  // Seconds between wait() and end(), of all collectives of this rank so far, by AxisSet::bits();
  // those that a device completes are not in them.
  const std::array<double, AxisSet::kSets>& waited() const { return waited_; }
  // A device completes `event`, whose end is told later, maybe by another thread: this rank's own
  // no longer waits in it.
  void hand_over(const Event& event);
  // The oldest collective that the device has not completed; its ordinal is 0 where there is none.
  void device_waits(const Event& oldest);
  // The communication library reports that no collective of this rank can complete. The first
  // reason is kept.
  void fail(const std::string& reason);

  // This rank is alive outside collectives.
  void heartbeat(std::int64_t step);
  // This rank ends normally; its process may exit.
  void sign_off();

  struct Status {
    int pid = 0;  // 0: signed off
    std::int64_t step = -1;
    double heartbeat = 0;
    double moved = 0;  // when the rank last made progress inside the collective it waits in
    std::optional<Event> waiting;  // the collective it waits in, or its device: the older one
    // Number of the last collective, by AxisSet::bits().
    std::array<std::uint64_t, AxisSet::kSets> entered{};
  };
  int rank() const { return rank_; }
  int world() const { return layout_.world(); }
  bool visible(int rank) const { return records_[static_cast<std::size_t>(rank)] != nullptr; }
  Status status(int rank) const;              // of a visible rank
  std::vector<Event> recent(int rank) const;  // oldest first, at most kEvents
  // World ranks of this rank's group.
  std::vector<int> members(AxisSet axes) const { return layout_.group(rank_, axes); }
  bool claim_report();          // true for the first caller of the node
  std::string failure() const;  // of this rank, or nothing

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
