#pragma once
// Internals of the MPI transport: the state of a session and the factories of its groups.
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "comm/flight_recorder.h"
#include "comm/mpi.h"

namespace tfm::comm {

// Error(environment) unless an MPI call succeeded.
inline void check_mpi(int code, const char* operation) {
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

// Whether all requests are complete; clears them if so.
inline bool all_done(Requests& requests) {
  int done = 0;
  check_mpi(
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
      "MPI_Testall");
  if (done) requests.clear();
  return done != 0;
}

// The last message to a receiver with a tag.
struct SentMessage {
  Requests requests;  // empty: it has arrived
  Event event;
};
using Outbox = std::map<std::pair<int, int>, SentMessage>;  // by receiver and tag

struct MpiSession::State {
  const double timeout;
  int rank = 0, size = 1;
  MPI_Comm node = MPI_COMM_NULL;
  int local_rank = 0, local_size = 1;
  std::vector<MPI_Comm> groups;
  std::vector<MPI_Win> windows;
  std::set<Outbox*> outboxes;   // of MpiMessages
  bool message_groups = false;  // whether some collectives are made of messages

  // Progresses the sends in flight, which MPI may complete only within the sender's calls. Of a
  // send that it has reported complete it may still hold data, until a next call. Returns whether
  // an outbox has any in flight.
  bool bring_on_messages() {
    bool under_way = false;
    if (int found = 0; message_groups)
      check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, node, &found, MPI_STATUS_IGNORE),
                "MPI_Iprobe");
    for (auto* outbox : outboxes)
      for (auto& [channel, sent] : *outbox)
        under_way |= !sent.requests.empty() && !all_done(sent.requests);
    return under_way;
  }

  explicit State(double start_timeout) : timeout(start_timeout) {
    int started = 0, provided = 0;
    check_mpi(MPI_Initialized(&started), "MPI_Initialized");
    TFM_CHECK(!started, "one MpiSession per process");
    // Open MPI polls in blocking calls; this makes it yield between polls.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/0);
    // Windows are memory of one node alone, which this component cannot share; in Open MPI 5 it
    // says so as an error.
    setenv("OMPI_MCA_osc", "^ucx", /*overwrite=*/0);
    // Streams beyond the GPU's queues, 8 unless this says more, wait for each other: a receive
    // could wait for a send that needs the other rank's receive (see nccl.h). The driver reads it
    // at the first CUDA call, which may be MPI's.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
    const StartWait wait("starting MPI", timeout);
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
              "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    node = split_node(MPI_COMM_WORLD);
    check_mpi(MPI_Comm_rank(node, &local_rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(node, &local_size), "MPI_Comm_size");
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
    check_mpi(MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    groups.push_back(group);
    return group;
  }

  MPI_Comm split(int color, int key) {
    MPI_Comm group = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(MPI_COMM_WORLD, color, key, &group), "MPI_Comm_split");
    return keep(group);
  }

  MPI_Comm split_group(MPI_Comm parent, int color) {
    MPI_Comm group = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(parent, color, rank, &group), "MPI_Comm_split");
    return keep(group);
  }

  MPI_Comm split_node(MPI_Comm parent) {
    MPI_Comm group = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &group),
              "MPI_Comm_split_type");
    return keep(group);
  }

  // Collective over the node: whether every rank of it can have a core of its own.
  bool cores_suffice() const {
    std::array<cpu_set_t, 16> mask{};  // room for 16384 CPUs, the kernel's maximum
    if (sched_getaffinity(0, sizeof mask, mask.data()) != 0) mask = {};
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, mask.data(), sizeof mask, MPI_BYTE, MPI_BOR, node),
              "MPI_Allreduce");
    return local_size <= CPU_COUNT_S(sizeof mask, mask.data());
  }

  // Collective over `group`: `bytes` bytes of memory shared by its ranks and aligned to 64 bytes,
  // at this process's own address. It lives as long as the session.
  char* share(MPI_Comm group, std::int64_t bytes) {
    int rank = 0, unit = 1;
    check_mpi(MPI_Comm_rank(group, &rank), "MPI_Comm_rank");
    void* memory = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    MPI_Aint size = rank == 0 ? bytes + 64 : 0;
    check_mpi(MPI_Win_allocate_shared(size, 1, MPI_INFO_NULL, group, &memory, &window),
              "MPI_Win_allocate_shared");
    check_mpi(MPI_Win_shared_query(window, 0, &size, &unit, &memory), "MPI_Win_shared_query");
    check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window), "MPI_Win_lock_all");
    windows.push_back(window);
    // MPI maps the pages with the same alignment in all processes, so all round up alike.
    return reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(memory) + 63) / 64 * 64);
  }
};

// Waits until all requests are complete, and yields the core to other processes meanwhile.
inline void wait_for(Requests& requests) {
  for (int tries = 0; !all_done(requests); ++tries)
    tries < 1000 ? static_cast<void>(sched_yield()) : static_cast<void>(usleep(50));
}

// A communicator over ranks of any hosts, built on messages.
std::shared_ptr<Communicator> message_collectives(int rank, int size, AxisSet axes,
                                                  std::shared_ptr<FlightRecorder> recorder,
                                                  MPI_Comm group,
                                                  std::shared_ptr<MpiSession::State> session);
// `stages`: the ranks of the job that are those of `group`.
std::shared_ptr<Messages> mpi_messages(std::vector<int> stages,
                                       std::shared_ptr<FlightRecorder> recorder, MPI_Comm group,
                                       std::shared_ptr<MpiSession::State> session);

}  // namespace tfm::comm
