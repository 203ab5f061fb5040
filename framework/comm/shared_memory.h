#pragma once
// Collectives of ranks that share memory. Each rank owns kSlots staging slots and three counters,
// one a stage, which say how many pieces it has passed; a rank that waits spins shortly and then
// sleeps on the counter of the one it waits for, so that ranks may outnumber cores.
#include <atomic>
#include <functional>
#include <memory>

#include "comm/staged.h"

namespace tfm::comm {

class SharedMemoryCommunicator final : public StagedCommunicator {
 public:
  // Bytes that a group of `size` ranks shares: staging_bytes() and one page of counters for each
  // rank.
  static std::int64_t memory_bytes(int size);

  // `memory` is aligned to 64 bytes, seen by all ranks and outlives the object through `owner`.
  // Each rank clears its own part: a barrier must follow before the first call. `own_core`: every
  // rank has a core of its own.
  // `bring_on`: brings on what else this rank has under way, and says whether anything is; others
  // may wait for it, so that this rank sleeps only when nothing is.
  SharedMemoryCommunicator(int rank, int size, AxisSet axes,
                           std::shared_ptr<FlightRecorder> recorder, void* memory, bool own_core,
                           std::function<bool()> bring_on, std::shared_ptr<void> owner);

 private:
  struct Line;
  // What a stage of a piece waits for: counter `of` of the others (of `only` one, where it is not
  // below 0) to reach `count`.
  struct Awaited {
    bool nothing = false;
    int only = -1;
    Stage of = Stage::publish;
    std::uint32_t count = 0;
  };

  bool ready(Stage stage, const Piece& piece) override;
  void run(Stage stage, const Piece& piece) override;
  void wait(Stage stage, const Piece& piece) override;

  Awaited awaited(Stage stage, const Piece& piece) const;
  template <class F>
  bool all_awaited(const Awaited& a, F&& f);
  void publish(const Piece& piece);
  void reduce(const Piece& piece);
  void finish_piece(const Piece& piece);
  char* slot(int rank, const Piece& piece) const;
  Line& line(int rank) const;
  void sleep_until(int rank, Stage of, std::uint32_t count);

  char* memory_;
  bool own_core_;
  std::function<bool()> bring_on_;
  std::shared_ptr<void> owner_;
  std::vector<const char*> sources_;
};

}  // namespace tfm::comm
