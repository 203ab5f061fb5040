// What lies between the ranks: links between nodes, clocks, the transport of each axis, and how
// fast each rank computes.
#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/device_mesh.h"
#include "core/strings.h"
#include "device/timed.h"
#include "launch/bench/rates.h"
#include "launch/doctor/doctor.h"
#include "plan/step_plan.h"

namespace tfm::launch {
namespace {

constexpr double kClockSeconds = 1;           // by which clocks of nodes may differ
constexpr double kSlowLink = 0.5;             // of the median link
constexpr int kMeasurements = 4;              // of links, of which the best counts
constexpr double kSlowRank = 1.5;             // times the median time of a product
constexpr double kSlowAxis = 10;              // times the expected time of a sum
constexpr std::int64_t kSumBytes = 16 << 20;  // of a sum that an axis is timed with
constexpr std::int64_t kProductSize = 512;
constexpr double kProductSeconds = 0.2;
constexpr int kProductTries =
    10;  // of which the best counts: others on the host slow one for a while
constexpr std::chrono::milliseconds kProductPause(300);
// Two ranks of a node through shared memory, as tfm-plan has it.
constexpr double kSharedMemory = 5e9;

constexpr const char* kReach =
    "check cables, firewalls and the interface (Open MPI: --mca btl_tcp_if_include and "
    "oob_tcp_if_include, both with the subnet that all nodes share)";

template <class T>
double median(std::vector<T> v) {
  std::ranges::sort(v);
  return static_cast<double>(v[v.size() / 2]);  // of two the faster
}

std::vector<int> first_ranks(const Examination& e) {
  std::vector<int> ranks;
  for (const Node& n : e.nodes) ranks.push_back(n.ranks[0]);
  return ranks;
}

void check_links(const Examination& e, const Expected& expected,
                 const comm::BeforeExchange& before) {
  double usual = 0;
  const auto poor = [&](const comm::Link& l) {
    return l.bandwidth < expected.bandwidth || l.latency > expected.latency;
  };
  const auto odd = [&](const comm::Link& l) { return l.bandwidth < kSlowLink * usual; };
  auto links = comm::measure_links(*e.launch.session, first_ranks(e), before);
  for (int again = 0;; ++again) {
    std::vector<double> rates;
    for (const comm::Link& l : links) rates.push_back(l.bandwidth);
    usual = median(rates);
    const auto slow = [&](const comm::Link& l) { return poor(l) || odd(l); };
    if (again == kMeasurements - 1 || std::ranges::none_of(links, slow)) break;
    const auto more = comm::measure_links(*e.launch.session, first_ranks(e), before);
    for (std::size_t i = 0; i < links.size(); ++i) {
      links[i].bandwidth = std::max(links[i].bandwidth, more[i].bandwidth);
      links[i].latency = std::min(links[i].latency, more[i].latency);
    }
  }
  bool good = true;
  for (const comm::Link& l : links) {
    const std::string pair = e.name_of(l.from) + " and " + e.name_of(l.to),
                      found = printed("%.3f GB/s", l.bandwidth * 1e-9) + ", " +
                              printed("%.0f us", l.latency * 1e6);
    e.findings.measured["links"].push_back({{"from", l.from},
                                            {"to", l.to},
                                            {"bytes_per_second", l.bandwidth},
                                            {"seconds", l.latency}});
    if (!poor(l) && !odd(l)) continue;
    good = false;
    e.findings.problem(
        "links",
        "between " + pair + ": " + found + "; expected " +
            (!poor(l) ? "about the " + printed("%.3f GB/s", usual * 1e-9) + " of the median pair"
                      : "at least " + printed("%.3f GB/s", expected.bandwidth * 1e-9) +
                            " and at most " + printed("%.0f us", expected.latency * 1e6)),
        "leave that node out, or have its network card, cable and switch port looked at; name the "
        "fast interface (Open MPI: --mca btl_tcp_if_include); where this network is all there is, "
        "say so with --bandwidth and --latency");
  }
  const auto slowest = std::ranges::min_element(links, {}, &comm::Link::bandwidth);
  if (good)
    e.findings.ok("links", counted(links.size(), "pair") + " of nodes, the slowest " +
                               printed("%.3f GB/s", slowest->bandwidth * 1e-9) + " and " +
                               printed("%.0f us", slowest->latency * 1e6));
}

void check_clocks(const Examination& e, const comm::BeforeExchange& before) {
  const auto ahead = comm::clock_offsets(*e.launch.session, first_ranks(e), before);
  std::size_t worst = 0;
  for (std::size_t i = 0; i < ahead.size(); ++i) {
    e.findings.measured["clock_offsets"][e.nodes[i].host] = ahead[i];
    if (std::abs(ahead[i]) > std::abs(ahead[worst])) worst = i;
  }
  const std::string text = "the clock of " + e.nodes[worst].host + " is " +
                           printed("%+.3f s", ahead[worst]) + " off that of " + e.nodes[0].host;
  if (std::abs(ahead[worst]) > kClockSeconds)
    return e.findings.problem("clocks", text, "start a time service on every node (chrony, ntpd)");
  e.findings.ok("clocks", printed("they differ by at most %.3f s", std::abs(ahead[worst])));
}

// Seconds of a sum over the groups of `axes`, all at once: what the ranks of a node send to other
// nodes, through its one link; else what passes through shared memory.
double expected_seconds(const Examination& e, const comm::Layout& layout, comm::AxisSet axes,
                        double link) {
  double seconds = 2.0 * kSumBytes * layout.size(axes) / kSharedMemory;
  for (const Node& n : e.nodes) {
    double out = 0;
    for (const int r : n.ranks)
      for (const int other : layout.group(r, axes))
        if (std::ranges::find(n.ranks, other) == n.ranks.end())
          out += 2.0 * kSumBytes / layout.size(axes);
    if (out > 0) seconds = std::max(seconds, out / link);
  }
  return seconds;
}

bool spans_nodes(const Examination& e, const comm::Layout& layout, comm::AxisSet axes) {
  return std::ranges::any_of(e.nodes, [&](const Node& n) {
    return std::ranges::any_of(n.ranks, [&](int r) {
      return std::ranges::any_of(layout.group(r, axes), [&](int other) {
        return std::ranges::find(n.ranks, other) == n.ranks.end();
      });
    });
  });
}

// The slowest rank's seconds of a sum of kSumBytes, of a few tries, or more until it takes
// `enough`.
double seconds_of_sum(const Examination& e, device::Device& device, const comm::Mesh& host,
                      comm::Communicator& group, double enough) {
  const auto memory = device.allocate(kSumBytes);
  const Tensor t{memory.get(), DType::f32, {kSumBytes / 4}};
  double best = 1e30;
  for (int i = 0; i < 4 || (i < 16 && best > enough); ++i) {  // the first connects
    host.world().barrier();
    double seconds = 0;
    device::timed(device.stream(), &seconds, [&] { group.all_reduce(t); });
    const auto all = e.launch.gather(seconds);
    best = std::min(best, *std::ranges::max_element(all));
  }
  return best;
}

std::string transport(const Examination& e, const comm::RankContext& rank, comm::AxisSet axes) {
  if (rank.tensors.group(axes).on_stream()) return "NCCL";
  const bool far = spans_nodes(e, rank.mesh.layout, axes);
  return std::string(rank.device.is_cpu() ? "" : "staged through the host: ") +
         (far ? "MPI messages" : "shared memory");
}

void check_axis(const Examination& e, comm::RankContext& rank, comm::AxisSet axes, double link) {
  const std::string name = comm::name_of(axes);
  e.patience.wait_for("a sum over the " + name + " axis", kReach);
  const double expected = expected_seconds(e, rank.mesh.layout, axes, link),
               seconds = seconds_of_sum(e, rank.device, rank.mesh, rank.tensors.group(axes),
                                        kSlowAxis * expected),
               rate = static_cast<double>(kSumBytes) / seconds;
  const std::string by = transport(e, rank, axes);
  const std::string text = name + " by " + by + ": 16 MiB are summed in " +
                           printed("%.2f ms", seconds * 1e3) + printed(", %.2f GB/s", rate * 1e-9);
  e.findings.measured["axes"].push_back({{"axis", name},
                                         {"ranks", rank.mesh.layout.size(axes)},
                                         {"transport", by},
                                         {"seconds", seconds},
                                         {"expected_seconds", expected}});
  const comm::Layout& layout = rank.mesh.layout;
  const auto group = [&](comm::AxisSet a) { return layout.group(rank.mesh.rank(), a); };
  if (group(axes) == group(nn::kModelAxes) && spans_nodes(e, layout, axes))
    return e.findings.warning(
        "axes", text + "; tensor groups span nodes",
        "lower parallel.tensor to what a node has ranks, and map ranks by slot");
  if (!rank.tensors.group(axes).on_stream() && seconds > kSlowAxis * expected)
    return e.findings.warning(
        "axes", text + printed("; expected about %.2f ms", expected * 1e3),
        "see that nothing else runs on the nodes, and look at links and cores");
  e.findings.ok("axes", text);
}

// Times a product on every rank at once.
void check_speed(const Examination& e, device::Device device) {
  const std::int64_t n = device.is_cpu() ? kProductSize : 8 * kProductSize;
  // Over many of the kernel's time slices, which what else runs there takes a share of.
  const auto mean = [&](const std::function<void()>& work) {
    work();
    double seconds = 0;
    int times = 0;
    for (; seconds < kProductSeconds; ++times) device::timed(device.stream(), &seconds, work);
    return seconds / times;
  };
  std::vector<double> rates(static_cast<std::size_t>(e.launch.ranks));
  const auto slow = [&](double rate) { return rate * kSlowRank < median(rates); };
  for (int tries = 0; tries < kProductTries; ++tries) {
    if (tries > 0 && std::ranges::none_of(rates, slow)) break;
    if (tries > 0) std::this_thread::sleep_for(kProductPause);
    e.patience.wait_for("a product on every rank", "look at the rank that does not finish");
    e.launch.gather(0.0);  // all at once, as in a step
    const auto found = e.launch.gather(product_rate(device, DType::f32, n, mean));
    std::ranges::transform(rates, found, rates.begin(), std::ranges::max);
  }
  const double usual = median(rates);
  const std::string size = std::to_string(n) + " x " + std::to_string(n);
  e.findings.measured["product_flops_per_second"] = rates;
  bool good = true;
  for (std::size_t r = 0; r < rates.size(); ++r) {
    if (!slow(rates[r])) continue;
    good = false;
    e.findings.problem("speed",
                       e.name_of(static_cast<int>(r)) + " computes a product of " + size + " at " +
                           printed("%.1f GFLOP/s", rates[r] * 1e-9) + ", the median rank at " +
                           printed("%.1f GFLOP/s", usual * 1e-9) +
                           ": every step waits for the slowest rank",
                       "end what else runs there; look at that node's clock rate, temperature and "
                       "cores, or leave it out");
  }
  const auto slowest = std::ranges::min_element(rates) - rates.begin();
  if (good)
    e.findings.ok("speed", "a product of " + size + ": the slowest is " +
                               e.name_of(static_cast<int>(slowest)) + " with " +
                               printed("%.1f", *std::ranges::min_element(rates) * 1e-9) + " of " +
                               printed("%.1f GFLOP/s", usual * 1e-9));
}

}  // namespace

void check_network(const Examination& e, const Expected& expected) {
  if (e.nodes.size() < 2) return;
  const comm::BeforeExchange before = [&](int other) {
    e.patience.wait_for("an answer of " + e.name_of(other), kReach);
  };
  check_links(e, expected, before);
  check_clocks(e, before);
}

void check_device_and_axes(const Examination& e, const config::Config& config) {
  e.patience.wait_for("the devices of all ranks", "look at the ranks that say nothing");
  std::optional<device::Device> device;
  const auto error = error_of([&] { device = e.launch.device(config); });
  if (e.findings.of_ranks("device", error)) return;
  std::vector<std::string> names;
  for (const std::string& name : e.launch.gather(device->description()))
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  std::string text = names[0];
  for (std::size_t i = 1; i < names.size(); ++i) text += "; " + names[i];
  e.findings.ok("device", text);
  check_speed(e, *device);
  if (e.launch.ranks == 1) return;
  e.patience.wait_for("the groups of ranks along each axis", kReach);
  comm::RankContext rank = comm::rank_context(*device, e.launch.mesh(config::layout_of(config)),
                                              plan::mesh_options(config));
  double link = kSharedMemory;
  if (e.findings.measured.contains("links"))
    for (const auto& l : e.findings.measured["links"])
      link = std::min(link, l["bytes_per_second"].get<double>());
  for (const comm::AxisSet axes : rank.mesh.layout.groups()) {
    const int size = rank.mesh.layout.size(axes);
    if (size > 1 && (axes == comm::kWorld || size < e.launch.ranks))
      check_axis(e, rank, axes, link);
  }
}

}  // namespace tfm::launch
