#include "comm/mpi.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "comm/mpi_state.h"
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

std::shared_ptr<Communicator> make_group(const std::shared_ptr<MpiSession::State>& s, int color,
                                         AxisSet axes,
                                         const std::shared_ptr<FlightRecorder>& recorder,
                                         bool force_messages, bool own_core) {
  MPI_Comm group = s->split(color, s->rank);
  int rank = 0, size = 0, near = 0;
  check_mpi(MPI_Comm_rank(group, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(group, &size), "MPI_Comm_size");
  if (size == 1) return single_communicator();
  check_mpi(MPI_Comm_size(s->split_node(group), &near), "MPI_Comm_size");
  int one_node = near == size && !force_messages;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &one_node, 1, MPI_INT, MPI_MIN, group), "MPI_Allreduce");
  if (!one_node) {
    s->message_groups = true;
    return message_collectives(rank, size, axes, recorder, group, s);
  }
  char* memory = s->share(group, SharedMemoryCommunicator::memory_bytes(size));
  return std::make_shared<SharedMemoryCommunicator>(
      rank, size, axes, recorder, memory, own_core,
      [state = s.get()] { return state->bring_on_messages(); }, s);
}

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

Mesh make_mesh(const MpiSession& session, Layout layout, bool force_messages) {
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
  const bool own_core = s->cores_suffice();
  for (const AxisSet axes : layout.groups())
    mesh.handle(axes) =
        make_group(s, mesh.place(kWorld - axes), axes, mesh.recorder, force_messages, own_core);
  if (layout[Axis::pipeline] > 1)
    mesh.messages = mpi_messages(layout.group(s->rank, Axis::pipeline), mesh.recorder,
                                 s->split(mesh.place(kWorld - Axis::pipeline), s->rank), s);
  check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
  return mesh;
}

}  // namespace tfm::comm
