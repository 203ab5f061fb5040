#pragma once
// Collectives as a stream of short pieces that pass three stages: `publish` hands this rank's data
// to the others, `reduce` sums this rank's share, `finish` takes the others' results. The pieces of
// all calls pass in call order, at most kSlots at a time, so staging memory is small and fixed.
// Derived classes provide the transport.
#include <algorithm>
#include <deque>
#include <vector>

#include "comm/flight_recorder.h"
#include "comm/mesh.h"

namespace tfm::comm {

class StagedCommunicator : public Communicator {
 public:
  static constexpr int kSlots = 4;
  // Bytes of staging memory of one piece on one rank: few enough to stay in the core's cache, at
  // least 16 KiB per peer.
  static constexpr std::int64_t slot_bytes(int size) {
    return std::max<std::int64_t>(256, 16 * size) * 1024;
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(Tensor t, Collective kind) override;
  void reduce_scatter(Tensor in, Tensor out) override;
  void all_gather(Tensor in, Tensor out) override;
  void ring_shift(Tensor in, Tensor out) override;
  void all_to_all(Tensor in, Tensor out) override;
  void broadcast(Tensor t, int root) override;
  void barrier() override;
  Ticket start(Collective kind, Tensor in, Tensor out) override;
  void finish(Ticket ticket) override;

 protected:
  enum class Stage : std::uint8_t { publish, reduce, finish };

  // One collective in progress. Its data has size() parts of `part` elements, of which the last may
  // be shorter, or a single part if the data is not divided among the ranks. A piece is `chunk`
  // elements of every part.
  struct Call {
    Event event{};
    Collective op = Collective::barrier;
    // No reduce stage: ranks take the result from what the others publish.
    bool direct = false;
    char* in = nullptr;
    char* out = nullptr;
    DType dtype = DType::f32;
    int root = 0;
    std::int64_t count = 0, part = 0, chunk = 1;
    std::uint64_t first = 0, end = 0;  // numbers of its pieces in the stream: [first, end)

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
    // The bytes of part r in this piece, as a range of the call's data.
    ByteRange part(int r) const;
    ByteRange local() const { return part(0); }  // as a range of a part
  };

  StagedCommunicator(int rank, int size, AxisSet axes, std::shared_ptr<FlightRecorder> recorder);

  virtual bool ready(Stage stage, const Piece& piece) = 0;
  virtual void run(Stage stage, const Piece& piece) = 0;
  virtual void wait(Stage stage, const Piece& piece) = 0;  // until ready(stage, piece)

  // A slot's room for one rank's share.
  std::int64_t lane_bytes() const { return slot_bytes(size_) / size_ / 64 * 64; }
  // Writes the sum, or the maximum, of `sources` to `out`, in the tree order of communicator.h.
  static void combine(const Call& call, const std::vector<const char*>& sources, std::int64_t bytes,
                      char* out);
  // Copies this rank's own part of an all_gather or all_to_all to `out`.
  void copy_own(const Piece& piece) const;

 private:
  // All-reduces of up to this many bytes take one exchange instead of two.
  static constexpr std::int64_t kDirectBytes = 16 * 1024;

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
  std::deque<Call> calls_;                        // with unfinished pieces
  std::deque<std::pair<Ticket, Event>> started_;  // tickets are the ends of their pieces
  std::uint64_t submitted_ = 0;                   // pieces of all calls so far
  std::array<std::uint64_t, 3> done_{};           // pieces that have passed each stage
};

}  // namespace tfm::comm
