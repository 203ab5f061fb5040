// What the launcher made of a job: ranks, builds and configurations, cores, memory.
#include <algorithm>
#include <cstdio>
#include <map>

#include "core/host.h"
#include "core/strings.h"
#include "launch/doctor/doctor.h"
#include "launch/support/automatic.h"
#include "launch/support/control_group.h"
#include "launch/support/settings.h"
#include "verify/as_run.h"

namespace tfm::launch {
namespace {

std::string ranks_text(const std::vector<int>& ranks) {
  const bool row = ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  if (ranks.size() == 1) return "rank " + std::to_string(ranks[0]);
  if (row) return "ranks " + std::to_string(ranks.front()) + "-" + std::to_string(ranks.back());
  std::string text = "ranks";
  for (const int r : ranks) text += (r == ranks[0] ? " " : ", ") + std::to_string(r);
  return text;
}

// "CPUs 0-7 of NUMA node 0, GPU 0000:07:00.0"
std::vector<std::string> places_of_ranks(const Examination& e, bool on_gpu) {
  std::string place = name_of_cpus(topology_of_machine().get(), e.launch.cores.cpus);
  if (on_gpu) place += ", GPU " + device::Device::bus_id(e.launch.local_rank());
  const std::vector<std::string> places = e.launch.gather(place);
  e.findings.measured["places"] = places;
  return places;
}

// Where each rank runs, for the nodes that are alike together: "a and 3 nodes alike: rank 0 on
// ...".
std::string places_text(const std::vector<Node>& nodes, const std::vector<std::string>& places) {
  std::map<std::vector<std::string>, std::vector<const Node*>> alike;
  for (const Node& n : nodes) {
    std::vector<std::string> of_node;
    for (const int r : n.ranks) of_node.push_back(places[static_cast<std::size_t>(r)]);
    alike[of_node].push_back(&n);
  }
  std::string text;
  for (const auto& [of_node, found] : alike) {
    text += (text.empty() ? "" : "; ") + found[0]->host;
    if (found.size() > 1) text += " and " + counted(found.size() - 1, "node") + " alike";
    for (std::size_t i = 0; i < of_node.size(); ++i)
      text += (i == 0 ? ": rank " : ", rank ") + std::to_string(found[0]->ranks[i]) + " on " +
              of_node[i];
  }
  return text;
}

double gigabytes(std::int64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

}  // namespace

Patience::Patience(double seconds) : seconds_(seconds) {
  thread_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      const bool woken = wake_.wait_for(lock, std::chrono::duration<double>(seconds_),
                                        [this] { return stop_ || moved_; });
      moved_ = false;
      if (woken || what_.empty()) continue;
      std::fprintf(stderr, "tfm-doctor: rank %d on %s has waited %.0f s for %s; %s\n",
                   rank_of_launch(), host_name().c_str(), seconds_, what_.c_str(), remedy_.c_str());
      comm::MpiSession::abort(static_cast<int>(ExitCode::environment));
    }
  });
}

Patience::~Patience() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Patience::wait_for(const std::string& what, const std::string& remedy) {
  {
    const std::lock_guard lock(mutex_);
    what_ = what, remedy_ = remedy, moved_ = true;
  }
  wake_.notify_all();
}

std::vector<Node> nodes_of(const Launch& launch) {
  // Ranks of a node have the same first rank.
  std::vector<int> of_node{rank_of_launch()};
  if (launch.session) of_node = launch.session->gather(of_node[0], comm::MpiSession::Scope::node);
  const auto nodes = launch.gather(of_node[0]);
  const auto hosts = launch.gather(host_name());
  std::vector<Node> all;
  std::map<int, std::size_t> place;
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    const auto [at, first] = place.emplace(nodes[r], all.size());
    if (first) all.push_back({hosts[r], {}});
    all[at->second].ranks.push_back(static_cast<int>(r));
  }
  return all;
}

std::string Examination::name_of(int rank) const {
  for (const Node& n : nodes)
    if (std::ranges::find(n.ranks, rank) != n.ranks.end())
      return "rank " + std::to_string(rank) + " on " + n.host;
  return "rank " + std::to_string(rank);
}

bool check_launch(const Examination& e) {
  if (const auto& foreign = e.launch.foreign) {
    e.findings.problem("launch", foreign->found, foreign->remedy);
    return false;
  }
  std::string text;
  for (const Node& n : e.nodes)
    text += (text.empty() ? "" : "; ") + n.host + ": " + ranks_text(n.ranks);
  const auto [fewest, most] =
      std::ranges::minmax_element(e.nodes, {}, [](const Node& n) { return n.ranks.size(); });
  e.findings.measured["nodes"] = nlohmann::ordered_json::array();
  for (const Node& n : e.nodes)
    e.findings.measured["nodes"].push_back({{"host", n.host}, {"ranks", n.ranks}});
  if (fewest->ranks.size() == most->ranks.size())
    e.findings.ok("launch", counted(e.nodes.size(), "node") + ", " + text);
  else
    e.findings.warning(
        "launch", "nodes have different numbers of ranks, so that some wait for others: " + text,
        "give each host the same slots= in the hostfile, or a number of ranks that "
        "the nodes divide");
  return true;
}

bool check_settings(const Examination& e, const config::Config* config,
                    const std::optional<Error>& unreadable) {
  if (e.findings.of_ranks("configuration", unreadable,
                          "give every node the same file, in a shared folder or as a copy"))
    return false;
  const auto ranks = of_all_ranks(settings_of_rank(config),
                                  [&](const std::string& value) { return e.launch.gather(value); });
  if (const auto difference = first_difference(ranks)) {
    const std::string text = difference->what();
    const auto cut = text.rfind("; ");
    e.findings.problem(difference->code() == ExitCode::usage ? "configuration" : "build",
                       text.substr(0, cut), text.substr(cut + 2));
    return false;
  }
  e.findings.ok("build", ranks[0].build + ", " +
                             (ranks[0].instructions.empty() ? "" : ranks[0].instructions + ", ") +
                             comm::mpi_version() + " on all ranks");
  if (config) e.findings.ok("configuration", "the same on all ranks");
  return true;
}

void check_cores(const Examination& e, bool on_gpu) {
  const RankCores& mine = e.launch.cores;
  struct Cores {
    int threads, own, share, together;
  };
  const auto all = e.launch.gather(
      Cores{mine.threads, static_cast<int>(mine.cpus.size()), mine.share, mine.together});
  bool good = true;
  for (const Node& n : e.nodes) {
    int threads = 0;
    for (const int r : n.ranks) threads += all[static_cast<std::size_t>(r)].threads;
    const Cores& first = all[static_cast<std::size_t>(n.ranks[0])];
    const auto few = std::ranges::find_if(n.ranks, [&](int r) {
      return all[static_cast<std::size_t>(r)].own < all[static_cast<std::size_t>(r)].share;
    });
    const std::string of = counted(n.ranks.size(), "rank") + " on " + n.host;
    if (few != n.ranks.end() && !on_gpu) {
      const Cores& c = all[static_cast<std::size_t>(*few)];
      e.findings.problem("cores",
                         e.name_of(*few) + " is bound to " + counted(c.own, "core") +
                             ", its share of the node is " + std::to_string(c.share),
                         "bind each rank to its share (Open MPI: mpirun --map-by slot:PE=" +
                             std::to_string(c.share) +
                             ", or no binding options; Slurm: "
                             "--cpus-per-task=" +
                             std::to_string(c.share) + ")");
      good = false;
    }
    if (threads > first.together) {
      const int fit = std::max(1, first.together / static_cast<int>(n.ranks.size()));
      e.findings.problem(
          "cores",
          of + " start " + std::to_string(threads) + " threads on " +
              counted(first.together, "core"),
          static_cast<int>(n.ranks.size()) > first.together
              ? "start at most " + std::to_string(first.together) +
                    " ranks on this node, or bind them to more of its cores"
              : "set OMP_NUM_THREADS=" + std::to_string(fit) + ", or leave it unset");
      good = false;
    } else if (!on_gpu && 2 * threads <= first.together) {
      e.findings.warning(
          "cores",
          of + " use " + std::to_string(threads) + " of " + counted(first.together, "core"),
          "leave OMP_NUM_THREADS unset: ranks share out the node's cores");
    }
  }
  const std::string places = places_text(e.nodes, places_of_ranks(e, on_gpu));
  if (good) e.findings.ok("cores", counted(all[0].threads, "thread") + " of rank 0; " + places);
}

void check_memory(const Examination& e, const config::Config& config) {
  const bool on_gpu = config.device == config::DeviceKind::cuda;
  std::int64_t available = available_memory();
  if (on_gpu) {
    const auto none = error_of([&] { device::Device::describe_gpu(e.launch.local_rank()); });
    if (std::ranges::count(e.launch.gather(none ? 1 : 0), 1) > 0) return;
    available = device_model(e.launch, config).memory_bytes;
  }
  const PlannedMemory planned = planned_memory(e.launch, config);
  const std::int64_t bytes = on_gpu ? planned.rank : planned.host;
  const std::string text = printed("%.2f", gigabytes(bytes)) + " GB by the plan, ",
                    of = printed("%.2f", gigabytes(available)) + " GB";
  std::optional<Error> mine;
  if (bytes > available)
    mine.emplace(ExitCode::environment,
                 on_gpu ? "a rank takes " + text + "but its GPU has " + of
                        : "the node's ranks take " + text + "but the node has " + of);
  if (!e.findings.of_ranks("memory", mine,
                           "take a layout that tfm-plan says fits, or fewer ranks on a node"))
    e.findings.ok("memory", (on_gpu ? "rank 0 takes " : "the ranks of the first node take ") +
                                text + "of " + of);
}

}  // namespace tfm::launch
