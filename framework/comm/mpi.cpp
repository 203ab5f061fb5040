#include "comm/mpi.h"

#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "comm/flight_recorder.h"
#include "comm/shared_memory.h"

namespace tfm::comm {
namespace {

void check(int code, const char* operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0, rank = -1;
  MPI_Error_string(code, text, &length);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  throw Error(ExitCode::environment, std::string(operation) + " failed on rank " +
                                         std::to_string(rank) + ": " +
                                         std::string(text, static_cast<std::size_t>(length)));
}

using Requests = std::vector<MPI_Request>;

bool all_done(Requests& requests) {
  int done = 0;
  check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall");
  if (done) requests.clear();
  return done != 0;
}

}  // namespace

struct MpiSession::State {
  int rank = 0, size = 1;
  MPI_Comm node = MPI_COMM_NULL;
  int local_rank = 0, local_size = 1;
  std::vector<MPI_Comm> groups;
  std::vector<MPI_Win> windows;
  std::set<std::map<std::pair<int, int>, Requests>*> outboxes;  // of Messages

  // MPI may need the sender's calls for a long message to arrive.
  bool bring_on_messages() {
    bool under_way = false;
    for (auto* outbox : outboxes)
      for (auto& [channel, requests] : *outbox)
        under_way |= !requests.empty() && !all_done(requests);
    return under_way;
  }

  State() {
    int started = 0, provided = 0;
    check(MPI_Initialized(&started), "MPI_Initialized");
    TFM_CHECK(!started, "one MpiSession per process");
    // Open MPI polls in blocking calls; this makes it yield between polls.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/0);
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    node = split_node(MPI_COMM_WORLD);
    check(MPI_Comm_rank(node, &local_rank), "MPI_Comm_rank");
    check(MPI_Comm_size(node, &local_size), "MPI_Comm_size");
  }

  ~State() {
    if (size > 1 && std::uncaught_exceptions() > 0) return;
    for (MPI_Win& w : windows) {
      MPI_Win_unlock_all(w);
      MPI_Win_free(&w);
    }
    for (MPI_Comm& g : groups) MPI_Comm_free(&g);
    MPI_Finalize();
  }

  MPI_Comm keep(MPI_Comm group) {
    check(MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    groups.push_back(group);
    return group;
  }

  MPI_Comm split(int color, int key) {
    MPI_Comm group = MPI_COMM_NULL;
    check(MPI_Comm_split(MPI_COMM_WORLD, color, key, &group), "MPI_Comm_split");
    return keep(group);
  }

  MPI_Comm split_node(MPI_Comm parent) {
    MPI_Comm group = MPI_COMM_NULL;
    check(MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &group),
          "MPI_Comm_split_type");
    return keep(group);
  }

  // Every rank of this node can have a core of its own.
  bool cores_suffice() const {
    std::array<cpu_set_t, 16> mask{};  // the kernel's most: 16384
    if (sched_getaffinity(0, sizeof mask, mask.data()) != 0) mask = {};
    check(MPI_Allreduce(MPI_IN_PLACE, mask.data(), sizeof mask, MPI_BYTE, MPI_BOR, node),
          "MPI_Allreduce");
    return local_size <= CPU_COUNT_S(sizeof mask, mask.data());
  }

  // Memory that all ranks of `group` see at their own addresses.
  char* share(MPI_Comm group, std::int64_t bytes) {
    int rank = 0, unit = 1;
    check(MPI_Comm_rank(group, &rank), "MPI_Comm_rank");
    void* memory = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    MPI_Aint size = rank == 0 ? bytes + 64 : 0;
    check(MPI_Win_allocate_shared(size, 1, MPI_INFO_NULL, group, &memory, &window),
          "MPI_Win_allocate_shared");
    check(MPI_Win_shared_query(window, 0, &size, &unit, &memory), "MPI_Win_shared_query");
    check(MPI_Win_lock_all(MPI_MODE_NOCHECK, window), "MPI_Win_lock_all");
    windows.push_back(window);
    // The implementations place the pages alike in all processes, so all round up alike.
    return reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(memory) + 63) / 64 * 64);
  }
};

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
        staging_(static_cast<std::size_t>(staging_bytes(0, size))),
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
    if (c.op == Collective::all_gather) copy_own(piece);
    for (int i = 1; i < size(); ++i) {
      const int to = (rank() + i) % size(), from = (rank() - i + size()) % size();
      if (c.op == Collective::broadcast) {
        if (rank() == c.root) send(piece, to, c.in, local);
        if (from == c.root) receive(piece, from, c.out + local.offset, local.bytes);
      } else if (c.op == Collective::all_gather) {
        receive(piece, from, c.out + piece.part(from).offset, piece.part(from).bytes);
        send(piece, to, c.in, local);
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
      check(MPI_Isend(base + range.offset, static_cast<int>(range.bytes), MPI_BYTE, to, tag_,
                      group_, r),
            "MPI_Isend");
  }
  void receive(const Piece& piece, int from, char* to, std::int64_t bytes) {
    if (MPI_Request* r = request(piece, bytes))
      check(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, from, tag_, group_, r), "MPI_Irecv");
  }

  std::shared_ptr<MpiSession::State> session_;
  MPI_Comm group_;
  int tag_ = 0;
  std::vector<char> staging_;
  std::array<std::vector<MPI_Request>, kSlots> requests_;
  std::vector<const char*> sources_;
};

// Messages between the ranks of a pipeline. A rank that waits in one also brings on the others that
// it has under way.
class Messages final : public Communicator {
 public:
  Messages(std::vector<int> ranks, int rank, std::shared_ptr<FlightRecorder> recorder,
           MPI_Comm group, std::shared_ptr<MpiSession::State> session)
      : ranks_(std::move(ranks)),
        rank_(rank),
        recorder_(std::move(recorder)),
        group_(group),
        session_(std::move(session)) {
    session_->outboxes.insert(&sent_);
  }
  ~Messages() override {
    session_->outboxes.erase(&sent_);
    if (std::uncaught_exceptions() == 0)
      for (auto& [channel, requests] : sent_)
        MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  void all_reduce(Tensor, Collective) override { refuse(); }
  void reduce_scatter(Tensor, Tensor) override { refuse(); }
  void all_gather(Tensor, Tensor) override { refuse(); }
  void ring_shift(Tensor, Tensor) override { refuse(); }
  void broadcast(Tensor, int) override { refuse(); }
  void barrier() override { refuse(); }
  Ticket start(Collective, Tensor, Tensor) override { refuse(); }
  void finish(Ticket) override { refuse(); }

  void send(Tensor t, Tensor buffer, int to, int tag) override {
    const Event event = begin(Collective::send, t, to);
    Requests& requests = sent_[{to, tag}];
    wait_for(requests);
    if (buffer.data != t.data)
      std::memcpy(buffer.data, t.data, static_cast<std::size_t>(t.bytes()));
    each_piece(buffer, [&](char* data, int bytes) {
      check(MPI_Isend(data, bytes, MPI_BYTE, to, tag, group_, &requests.emplace_back()),
            "MPI_Isend");
    });
    recorder_->end(event);
  }
  void receive(Tensor t, int from, int tag) override {
    const Event event = begin(Collective::receive, t, from);
    Requests requests;
    each_piece(t, [&](char* data, int bytes) {
      check(MPI_Irecv(data, bytes, MPI_BYTE, from, tag, group_, &requests.emplace_back()),
            "MPI_Irecv");
    });
    wait_for(requests);
    recorder_->end(event);
  }

 private:
  [[noreturn]] static void refuse() {
    internal_error("the ranks of a pipeline exchange messages only");
  }
  template <class F>
  static void each_piece(const Tensor& t, F&& f) {
    constexpr std::int64_t kMost = 1 << 30;  // MPI counts with an int
    for (std::int64_t at = 0; at < t.bytes(); at += kMost)
      f(static_cast<char*>(t.data) + at, static_cast<int>(std::min(kMost, t.bytes() - at)));
  }
  Event begin(Collective op, const Tensor& t, int peer) {
    const Event event =
        recorder_->begin(Axis::pipeline, op, t.bytes(), ranks_[static_cast<std::size_t>(peer)]);
    recorder_->wait(event);
    return event;
  }
  static void wait_for(Requests& requests) {
    for (int tries = 0; !all_done(requests); ++tries)
      tries < 1000 ? static_cast<void>(sched_yield()) : static_cast<void>(usleep(50));
  }

  std::vector<int> ranks_;  // of the job
  int rank_;
  std::shared_ptr<FlightRecorder> recorder_;
  MPI_Comm group_;
  std::shared_ptr<MpiSession::State> session_;
  std::map<std::pair<int, int>, Requests> sent_;  // the last one, by receiver and tag
};

// Room for every rank's record; those of this node share it.
std::shared_ptr<FlightRecorder> make_recorder(const std::shared_ptr<MpiSession::State>& s,
                                              Layout layout) {
  const auto bytes = static_cast<std::int64_t>(FlightRecorder::record_bytes());
  char* memory = s->share(s->node, s->local_size * bytes);
  std::vector<int> world(static_cast<std::size_t>(s->local_size));
  check(MPI_Allgather(&s->rank, 1, MPI_INT, world.data(), 1, MPI_INT, s->node), "MPI_Allgather");
  std::vector<void*> records(static_cast<std::size_t>(s->size));
  for (int i = 0; i < s->local_size; ++i)
    records[static_cast<std::size_t>(world[static_cast<std::size_t>(i)])] = memory + i * bytes;
  return {new FlightRecorder(layout, s->rank, std::move(records)),
          [s](FlightRecorder* r) { delete r; }};
}

std::shared_ptr<Communicator> make_group(const std::shared_ptr<MpiSession::State>& s, int color,
                                         AxisSet axes,
                                         const std::shared_ptr<FlightRecorder>& recorder,
                                         bool force_messages, bool own_core) {
  MPI_Comm group = s->split(color, s->rank);
  int rank = 0, size = 0, near = 0;
  check(MPI_Comm_rank(group, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(group, &size), "MPI_Comm_size");
  if (size == 1) return single_communicator();
  check(MPI_Comm_size(s->split_node(group), &near), "MPI_Comm_size");
  int one_node = near == size && !force_messages;
  check(MPI_Allreduce(MPI_IN_PLACE, &one_node, 1, MPI_INT, MPI_MIN, group), "MPI_Allreduce");
  if (!one_node) return std::make_shared<MessageCommunicator>(rank, size, axes, recorder, group, s);
  char* memory = s->share(group, SharedMemoryCommunicator::memory_bytes(size));
  return std::make_shared<SharedMemoryCommunicator>(
      rank, size, axes, recorder, memory, own_core,
      [state = s.get()] { return state->bring_on_messages(); }, s);
}

}  // namespace

bool launched_by_mpirun() {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (std::getenv(name)) return true;
  return false;
}

int rank_of_launch() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  return 0;
}

MpiSession::MpiSession() : state_(std::make_shared<State>()) {}
int MpiSession::rank() const { return state_->rank; }
int MpiSession::size() const { return state_->size; }
int MpiSession::local_rank() const { return state_->local_rank; }
int MpiSession::ranks_per_node() const { return state_->local_size; }

std::vector<std::string> MpiSession::gather(const std::string& text, Scope scope) const {
  MPI_Comm group = scope == Scope::node ? state_->node : MPI_COMM_WORLD;
  const auto size =
      static_cast<std::size_t>(scope == Scope::node ? ranks_per_node() : this->size());
  const int mine = static_cast<int>(text.size());
  std::vector<int> lengths(size), offsets(size);
  check(MPI_Allgather(&mine, 1, MPI_INT, lengths.data(), 1, MPI_INT, group), "MPI_Allgather");
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), 0);
  check(MPI_Allgatherv(text.data(), mine, MPI_CHAR, all.data(), lengths.data(), offsets.data(),
                       MPI_CHAR, group),
        "MPI_Allgatherv");
  std::vector<std::string> texts(size);
  for (std::size_t r = 0; r < size; ++r)
    texts[r] =
        all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r]));
  return texts;
}

void MpiSession::abort(int code) {
  std::fflush(nullptr);
  int started = 0, ended = 0, level = 0, main = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (started && !ended) {
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&main);
    if (level == MPI_THREAD_MULTIPLE || main) MPI_Abort(MPI_COMM_WORLD, code);
  }
  std::_Exit(code);  // without MPI's leave the launcher ends the others
}

Mesh make_mesh(const MpiSession& session, Layout layout, bool force_messages) {
  const auto& s = session.state();
  const bool positive = std::ranges::all_of(kAxes, [&](Axis a) { return layout[a] > 0; });
  if (!positive || layout.world() != s->size)
    throw Error(ExitCode::environment,
                "layout " + layout.str() + " needs " + std::to_string(layout.world()) +
                    " ranks, but the job has " + std::to_string(s->size) +
                    "; start that many ranks, or change the sizes under parallel");
  Mesh mesh(layout, s->rank);
  mesh.recorder = make_recorder(s, layout);
  const bool own_core = s->cores_suffice();
  for (const AxisSet axes : layout.groups())
    mesh.handle(axes) = axes == Axis::pipeline
                            ? std::make_shared<Messages>(
                                  layout.group(s->rank, axes), mesh.place(axes), mesh.recorder,
                                  s->split(mesh.place(kWorld - axes), s->rank), s)
                            : make_group(s, mesh.place(kWorld - axes), axes, mesh.recorder,
                                         force_messages, own_core);
  check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
  return mesh;
}

}  // namespace tfm::comm
