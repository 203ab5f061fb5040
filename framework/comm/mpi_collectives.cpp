#include "comm/mpi_state.h"
#include "comm/staged.h"

namespace tfm::comm {
namespace {

// Point-to-point messages between all pairs of ranks; the tag is the stage, and messages of a pair
// keep their order.
class MessageCommunicator final : public StagedCommunicator {
 public:
  MessageCommunicator(int rank, int size, AxisSet axes, std::shared_ptr<FlightRecorder> recorder,
                      MPI_Comm group, std::shared_ptr<MpiSession::State> session)
      : StagedCommunicator(rank, size, axes, std::move(recorder)),
        session_(std::move(session)),
        group_(group),
        staging_(static_cast<std::size_t>(staging_bytes(size))),
        sources_(static_cast<std::size_t>(size)) {}

 private:
  bool ready(Stage stage, const Piece& piece) override {
    auto& requests = requests_[static_cast<std::size_t>(piece.slot())];
    if (stage == Stage::publish || requests.empty() ||
        (stage == Stage::reduce && piece.call.direct))
      return true;
    return all_done(requests);
  }

  void wait(Stage stage, const Piece& piece) override {
    for (int tries = 0; !ready(stage, piece); ++tries)
      tries < 1000 ? static_cast<void>(sched_yield()) : static_cast<void>(usleep(50));
  }

  void run(Stage stage, const Piece& piece) override {
    tag_ = static_cast<int>(stage);
    if (stage == Stage::publish) publish(piece);
    if (stage == Stage::reduce && !piece.call.direct) reduce(piece);
    if (stage == Stage::finish && piece.call.direct && piece.call.reduces())
      sum(piece, piece.local(), piece.call.out);
  }

  void publish(const Piece& piece) {
    const Call& c = piece.call;
    const ByteRange local = piece.local(), own = piece.part(rank());
    if (c.op == Collective::ring_shift) {
      receive(piece, previous(), c.out + local.offset, local.bytes);
      return send(piece, next(), c.in, local);
    }
    if (c.op == Collective::all_gather || c.op == Collective::all_to_all) copy_own(piece);
    for (int i = 1; i < size(); ++i) {
      const int to = (rank() + i) % size(), from = (rank() - i + size()) % size();
      if (c.op == Collective::broadcast) {
        if (rank() == c.root) send(piece, to, c.in, local);
        if (from == c.root) receive(piece, from, c.out + local.offset, local.bytes);
      } else if (c.op == Collective::all_gather) {
        receive(piece, from, c.out + piece.part(from).offset, piece.part(from).bytes);
        send(piece, to, c.in, local);
      } else if (c.op == Collective::all_to_all) {
        receive(piece, from, c.out + piece.part(from).offset, piece.part(from).bytes);
        send(piece, to, c.in, piece.part(to));
      } else {
        receive(piece, from, lane(from, piece), c.direct ? local.bytes : own.bytes);
        send(piece, to, c.in, c.direct ? local : piece.part(to));
      }
    }
  }

  void reduce(const Piece& piece) {
    const Call& c = piece.call;
    const ByteRange own = piece.part(rank());
    sum(piece, own, c.out + (c.returns_all() ? own.offset : piece.local().offset));
    if (!c.returns_all()) return;
    for (int i = 1; i < size(); ++i) {
      const int to = (rank() + i) % size(), from = (rank() - i + size()) % size();
      receive(piece, from, c.out + piece.part(from).offset, piece.part(from).bytes);
      send(piece, to, c.out, own);
    }
  }

  void sum(const Piece& piece, ByteRange own, char* out) {
    for (int r = 0; r < size(); ++r)
      sources_[static_cast<std::size_t>(r)] =
          r == rank() ? piece.call.in + own.offset : lane(r, piece);
    combine(piece.call, sources_, own.bytes, out);
  }

  char* lane(int r, const Piece& piece) {
    return staging_.data() + piece.slot() * slot_bytes(size()) + r * lane_bytes();
  }

  // Parts without data need no message, but for a barrier's.
  MPI_Request* request(const Piece& piece, std::int64_t bytes) {
    if (bytes == 0 && piece.call.op != Collective::barrier) return nullptr;
    return &requests_[static_cast<std::size_t>(piece.slot())].emplace_back();
  }
  void send(const Piece& piece, int to, const char* base, ByteRange range) {
    if (MPI_Request* r = request(piece, range.bytes))
      check_mpi(MPI_Isend(base + range.offset, static_cast<int>(range.bytes), MPI_BYTE, to, tag_,
                          group_, r),
                "MPI_Isend");
  }
  void receive(const Piece& piece, int from, char* to, std::int64_t bytes) {
    if (MPI_Request* r = request(piece, bytes))
      check_mpi(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, from, tag_, group_, r),
                "MPI_Irecv");
  }

  std::shared_ptr<MpiSession::State> session_;
  MPI_Comm group_;
  int tag_ = 0;
  std::vector<char> staging_;
  std::array<std::vector<MPI_Request>, kSlots> requests_;
  std::vector<const char*> sources_;
};

}  // namespace

std::shared_ptr<Communicator> message_collectives(int rank, int size, AxisSet axes,
                                                  std::shared_ptr<FlightRecorder> recorder,
                                                  MPI_Comm group,
                                                  std::shared_ptr<MpiSession::State> session) {
  return std::make_shared<MessageCommunicator>(rank, size, axes, std::move(recorder), group,
                                               std::move(session));
}

}  // namespace tfm::comm
