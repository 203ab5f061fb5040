#include "comm/mpi.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "comm/mpi_state.h"
#include "comm/nodewise.h"
#include "comm/shared_memory.h"

namespace tfm::comm {
namespace {

// Room for every rank's record; those of this node share it.
std::shared_ptr<FlightRecorder> make_recorder(const std::shared_ptr<MpiSession::State>& s,
                                              Layout layout) {
  const auto bytes = static_cast<std::int64_t>(FlightRecorder::record_bytes());
  char* memory = s->share(s->node, s->local_size * bytes);
  std::vector<int> world(static_cast<std::size_t>(s->local_size));
  check_mpi(MPI_Allgather(&s->rank, 1, MPI_INT, world.data(), 1, MPI_INT, s->node),
            "MPI_Allgather");
  std::vector<void*> records(static_cast<std::size_t>(s->size));
  for (int i = 0; i < s->local_size; ++i)
    records[static_cast<std::size_t>(world[static_cast<std::size_t>(i)])] = memory + i * bytes;
  return {new FlightRecorder(layout, s->rank, std::move(records)),
          [s](FlightRecorder* r) { delete r; }};
}

struct Place {
  int rank = 0, size = 0;
};
Place place_in(MPI_Comm group) {
  Place p;
  check_mpi(MPI_Comm_rank(group, &p.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(group, &p.size), "MPI_Comm_size");
  return p;
}

// What all groups of a mesh have in common.
struct GroupMaker {
  std::shared_ptr<MpiSession::State> s;
  std::shared_ptr<FlightRecorder> recorder;
  int node_ranks;
  bool own_core;

  // `exchanges`: its all_to_alls are worth groups of their own.
  std::shared_ptr<Communicator> make(int color, AxisSet axes, bool exchanges) const {
    MPI_Comm group = s->split(color, s->rank);
    const Place all = place_in(group);
    if (all.size == 1) return single_communicator();
    MPI_Comm node =
        node_ranks > 0 ? s->split_group(group, s->rank / node_ranks) : s->split_node(group);
    const Place near = place_in(node);
    // The least of all ranks: whether one node has them; whether it has a run of as many as others.
    int least[] = {near.size == all.size, near.size, -near.size, all.rank % near.size == near.rank};
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, least, 4, MPI_INT, MPI_MIN, group), "MPI_Allreduce");
    if (least[0]) return shared_memory(group, axes, false);
    s->message_groups = true;
    auto flat = message_collectives(all.rank, all.size, axes, recorder, group, s);
    const bool even = least[1] == -least[2] && least[3];
    if (!exchanges || !even || near.size == 1) return flat;
    MPI_Comm apart = s->split_group(group, near.rank);
    const Place far = place_in(apart);
    return std::make_shared<NodewiseCommunicator>(
        std::move(flat), shared_memory(node, axes, true),
        message_collectives(far.rank, far.size, axes, recorder, apart, s));
  }

 private:
  // `beside_messages`: while ranks wait in it, others of the same exchange may be on their way.
  std::shared_ptr<Communicator> shared_memory(MPI_Comm group, AxisSet axes,
                                              bool beside_messages) const {
    const Place p = place_in(group);
    char* memory = s->share(group, SharedMemoryCommunicator::memory_bytes(p.size));
    return std::make_shared<SharedMemoryCommunicator>(
        p.rank, p.size, axes, recorder, memory, own_core,
        [=, state = s.get()] { return state->bring_on_messages() || beside_messages; }, s);
  }
};

}  // namespace

MpiSession::MpiSession(double timeout) : state_(std::make_shared<State>(timeout)) {}
int MpiSession::rank() const { return state_->rank; }
int MpiSession::size() const { return state_->size; }
int MpiSession::local_rank() const { return state_->local_rank; }
int MpiSession::ranks_per_node() const { return state_->local_size; }

std::vector<std::string> MpiSession::gather(const std::string& text, Scope scope) const {
  MPI_Comm group = scope == Scope::node ? state_->node : MPI_COMM_WORLD;
  const auto size =
      static_cast<std::size_t>(scope == Scope::node ? ranks_per_node() : this->size());
  const StartWait wait("an exchange of settings", state_->timeout);
  const int mine = static_cast<int>(text.size());
  std::vector<int> lengths(size), offsets(size);
  check_mpi(MPI_Allgather(&mine, 1, MPI_INT, lengths.data(), 1, MPI_INT, group), "MPI_Allgather");
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), 0);
  check_mpi(MPI_Allgatherv(text.data(), mine, MPI_CHAR, all.data(), lengths.data(), offsets.data(),
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

Mesh make_mesh(const MpiSession& session, Layout layout, int node_ranks) {
  const auto& s = session.state();
  const bool positive = std::ranges::all_of(kAxes, [&](Axis a) { return layout[a] > 0; });
  if (!positive || layout.world() != s->size)
    throw Error(ExitCode::environment,
                "layout " + layout.str() + " needs " + std::to_string(layout.world()) +
                    " ranks, but the job has " + std::to_string(s->size) +
                    "; start that many ranks, or change the sizes under parallel");
  const StartWait wait("making groups of ranks", s->timeout);
  Mesh mesh(layout, s->rank);
  mesh.recorder = make_recorder(s, layout);
  const GroupMaker groups{s, mesh.recorder, node_ranks, s->cores_suffice()};
  for (const AxisSet axes : layout.groups()) {
    const bool exchanges =
        axes == layout.group_of(Axis::expert) || axes == layout.group_of(Axis::context);
    mesh.handle(axes) = groups.make(mesh.place(kWorld - axes), axes, exchanges);
  }
  if (layout[Axis::pipeline] > 1)
    mesh.messages = mpi_messages(layout.group(s->rank, Axis::pipeline), mesh.recorder,
                                 s->split(mesh.place(kWorld - Axis::pipeline), s->rank), s);
  check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
  return mesh;
}

}  // namespace tfm::comm
