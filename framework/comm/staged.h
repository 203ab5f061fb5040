#pragma once
// Collectives as a stream of short pieces that pass three stages: `publish` hands this rank's data
// to the others, `reduce` sums this rank's share of it, `finish` takes the others' results. Pieces
// of all calls pass in call order, at most kSlots at a time, so the staging memory is small and
// fixed. How data travels is left to the derived class.
#include <algorithm>
#include <deque>
#include <vector>

#include "comm/flight_recorder.h"
#include "comm/mesh.h"

namespace tfm::comm {

class StagedCommunicator : public Communicator {
 public:
  static constexpr int kSlots = 4;
  // Staging memory of one piece on one rank: short enough to stay in the core's cache, at least 16
  // KiB a peer.
  static constexpr std::int64_t slot_bytes(int size) {
    return std::max<std::int64_t>(256, 16 * size) * 1024;
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(Tensor t, Collective kind) override;
  void reduce_scatter(Tensor in, Tensor out) override;
  void all_gather(Tensor in, Tensor out) override;
  void ring_shift(Tensor in, Tensor out) override;
  void broadcast(Tensor t, int root) override;
  void barrier() override;
  Ticket start(Collective kind, Tensor in, Tensor out) override;
  void finish(Ticket ticket) override;

 protected:
  enum class Stage : std::uint8_t { publish, reduce, finish };

  // One call. Its data has size() parts of `part` elements (the last ones may be shorter), or one
  // where no rank sees a part of it only; a piece is `chunk` elements of every part.
  struct Call {
    Event event{};
    Collective op = Collective::barrier;
    bool direct =
        false;  // ranks publish to others, which take the result themselves: no reduce stage
    char* in = nullptr;
    char* out = nullptr;
    DType dtype = DType::f32;
    int root = 0;
    std::int64_t count = 0, part = 0, chunk = 1;
    std::uint64_t first = 0, end = 0;  // numbers of its pieces in the stream

    bool reduces() const { return op <= Collective::reduce_scatter; }
    bool returns_all() const { return op <= Collective::all_reduce_max; }
  };
  struct ByteRange {
    std::int64_t offset = 0, bytes = 0;
  };
  struct Piece {
    const Call& call;
    std::uint64_t number;
    int slot() const { return static_cast<int>(number % kSlots); }
    ByteRange part(int r) const;                 // bytes of part r of the call's data in this piece
    ByteRange local() const { return part(0); }  // the same within a part
  };

  StagedCommunicator(int rank, int size, AxisSet axes, std::shared_ptr<FlightRecorder> recorder);

  virtual bool ready(Stage stage, const Piece& piece) = 0;
  virtual void run(Stage stage, const Piece& piece) = 0;
  virtual void wait(Stage stage, const Piece& piece) = 0;  // until ready(stage, piece)

  std::int64_t lane_bytes() const {
    return slot_bytes(size_) / size_ / 64 * 64;
  }  // a slot's room for one rank's share
  // Adds (or takes the maximum of) sources[0], sources[1], ... in this order into `out`.
  static void combine(const Call& call, const std::vector<const char*>& sources, std::int64_t bytes,
                      char* out);
  // The own part of an all_gather.
  void copy_own(const Piece& piece) const;

 private:
  static constexpr std::int64_t kDirectBytes =
      16 * 1024;  // sums up to this length take one exchange instead of two

  Call call(Collective kind, Tensor in, Tensor out) const;
  const Call& submit(Call call, std::int64_t bytes);
  void submit_and_complete(Call call, std::int64_t bytes);
  void complete(std::uint64_t end, const Event& event);
  Piece at(Stage stage);
  bool advance_stage(Stage stage);
  bool advance();
  std::uint64_t& done(Stage stage) { return done_[static_cast<std::size_t>(stage)]; }

  int rank_, size_;
  AxisSet axes_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::deque<Call> calls_;                        // with pieces still to finish
  std::deque<std::pair<Ticket, Event>> started_;  // by the end of their pieces
  std::uint64_t submitted_ = 0;                   // pieces of all calls so far
  std::array<std::uint64_t, 3> done_{};           // pieces that have passed each stage
};

}  // namespace tfm::comm
