#pragma once
// Collectives of ranks that share memory. Each rank owns kSlots staging slots and one counter per
// stage, which counts the pieces that have passed it. A waiting rank spins briefly and then sleeps
// on the counter of the rank that it waits for, so ranks may outnumber cores.
#include <functional>
#include <memory>

#include "comm/staged.h"

namespace tfm::comm {

class SharedMemoryCommunicator final : public StagedCommunicator {
 public:
  // Bytes of shared memory for a group of `size` ranks: per rank staging_bytes() and one page of
  // counters.
  static std::int64_t memory_bytes(int size);

  // `memory`: aligned to 64 bytes, visible to all ranks and kept alive by `owner`. Each rank clears
  // its own part; a barrier must follow before the first call. `own_core`: every rank has a core of
  // its own. `bring_on`: progresses this rank's other communication, on which other ranks may
  // depend, and returns whether any is known to be in flight; the rank sleeps longer if none is.
  SharedMemoryCommunicator(int rank, int size, AxisSet axes,
                           std::shared_ptr<FlightRecorder> recorder, void* memory, bool own_core,
                           std::function<bool()> bring_on, std::shared_ptr<void> owner);

 private:
  struct Line;
  // What a stage of a piece waits for: counter `of` of all other ranks, or of rank `only` if that
  // is not negative, to reach `count`. `nothing`: it need not wait.
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
