// tfm-bench collectives: seconds and bandwidths by size.
#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>

#include "comm/device_mesh.h"
#include "comm/watchdog.h"
#include "config/yaml.h"
#include "launch/bench/bench.h"
#include "launch/bench/rates.h"
#include "launch/support/device_choice.h"
#include "plan/device_file.h"

namespace tfm::launch {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::int64_t> sizes(const std::string& text) {
  std::vector<std::int64_t> all;
  std::stringstream in(text + ',');  // so that nothing is one item, which is refused
  for (std::string item; std::getline(in, item, ',');) {
    config::YamlNode node{.kind = config::YamlNode::Kind::scalar};
    node.text = item;
    std::string problem;
    const auto n = config::read_whole(node, true, problem);
    if (!n || n->negative || n->magnitude == 0 || n->magnitude > (std::uint64_t{1} << 36))
      throw Error(
          ExitCode::usage,
          "--bytes '" + text + "': expected comma-separated sizes such as 1Mi or 16M, up to 64Gi");
    all.push_back(static_cast<std::int64_t>(n->magnitude));
  }
  return all;
}

class CollectiveBench {
 public:
  CollectiveBench(const Launch& launch, device::Device device)
      : device_(std::move(device)),
        host_(launch.mesh({launch.ranks, 1})),
        mesh_(comm::device_mesh(host_, device_)) {}

  int ranks() const { return host_.layout.world(); }
  bool lead() const { return host_.rank() == 0; }

  Json measure(comm::Collective kind, std::int64_t bytes) {
    const std::int64_t part = round_up(ceil_div(bytes, 4 * ranks()), 16), all = part * ranks();
    const auto memory = device_.allocate(all * 4);
    const Tensor whole{memory.get(), DType::f32, {all}},
        mine{memory.get() + part * 4 * host_.rank(), DType::f32, {part}};
    const double seconds = best([&] {
      if (kind == comm::Collective::all_reduce_sum) return mesh_.world().all_reduce(whole);
      if (kind == comm::Collective::reduce_scatter)
        return mesh_.world().reduce_scatter(whole, mine);
      mesh_.world().all_gather(mine, whole);
    });
    const double rate = static_cast<double>(all * 4) / seconds, n = ranks();
    return {{"op", comm::name_of(kind)},
            {"bytes", all * 4},
            {"seconds", seconds},
            {"algorithm_bytes_per_second", rate},
            {"bus_bytes_per_second",
             rate * (n - 1) / n * (kind == comm::Collective::all_reduce_sum ? 2 : 1)}};
  }

 private:
  // Time of the slowest rank.
  double best(const std::function<void()>& f) {
    return best_of([&](int times) {
      host_.world().barrier();
      double seconds = 0;
      device::timed(device_.stream(), &seconds, [&] {
        for (int i = 0; i < times; ++i) f();
      });
      auto nanoseconds = static_cast<std::int64_t>(seconds * 1e9);
      host_.world().all_reduce({&nanoseconds, DType::i64, {1}}, comm::Collective::all_reduce_max);
      return static_cast<double>(nanoseconds) * 1e-9;
    });
  }

  device::Device device_;
  comm::Mesh host_, mesh_;
  comm::Watchdog watchdog_{host_, config::ParallelConfig{}.longest_wait()};
};

}  // namespace

plan::DeviceModel::Link network_of(const Json& results, int ranks) {
  std::map<double, std::vector<double>> seconds;  // by bytes
  for (const Json& r : results)
    if (r["op"] != comm::name_of(comm::Collective::all_reduce_sum))
      seconds[r["bytes"]].push_back(r["seconds"]);
  const auto [least, short_times] = *seconds.begin();
  const auto [most, long_times] = *seconds.rbegin();
  const double hops = ranks - 1, t = median(short_times), slower = median(long_times) - t;
  if (ranks < 2 || slower <= 0)
    throw Error(ExitCode::usage,
                "--network-file needs two ranks or more, and --bytes of two sizes of which the "
                "larger takes longer");
  const double bandwidth = hops / ranks * (most - least) / slower;
  return {std::max(0.0, t / hops - least / ranks / bandwidth), bandwidth};
}

int bench_collectives(const Arguments& args) {
  if (!args.positional().empty() || !args.overrides().empty())
    throw Error(ExitCode::usage, "tfm-bench collectives takes only options; see --help");
  config::Config config;
  const std::string device = args.get("--device", "cpu");
  const auto kind = config::value_of<config::DeviceKind>(device);
  if (!kind || *kind == config::DeviceKind::automatic)
    throw Error(ExitCode::usage, "--device '" + device + "': expected cpu or cuda");
  config.device = *kind;
  const std::vector<std::int64_t> all = sizes(args.get("--bytes", "64Ki,1Mi,16Mi,64Mi"));
  Launch launch;
  choose_device(launch, config);
  CollectiveBench bench(launch, launch.device(config));
  Json results{{"ranks", bench.ranks()}, {"device", device}, {"results", Json::array()}};
  std::vector<Bar> bars;
  if (bench.lead())
    std::printf("%d ranks, tensors of %s\n%-16s %14s %12s %12s %12s\n", bench.ranks(),
                device.c_str(), "operation", "bytes", "ms", "GB/s", "bus GB/s");
  for (comm::Collective kind : {comm::Collective::all_reduce_sum, comm::Collective::reduce_scatter,
                                comm::Collective::all_gather})
    for (std::int64_t bytes : all) {
      const Json r = bench.measure(kind, bytes);
      if (!bench.lead()) continue;
      const double bus = r["bus_bytes_per_second"].get<double>() * 1e-9;
      std::printf("%-16s %14lld %12.4f %12.2f %12.2f\n", r["op"].get<std::string>().c_str(),
                  r["bytes"].get<long long>(), r["seconds"].get<double>() * 1e3,
                  r["algorithm_bytes_per_second"].get<double>() * 1e-9, bus);
      std::fflush(stdout);
      bars.push_back({r["op"].get<std::string>() + " of " +
                          std::to_string(r["bytes"].get<std::int64_t>()) + " bytes",
                      bus, printed("%.2f GB/s", bus)});
      results["results"].push_back(r);
    }
  if (bench.lead() && args.has("--network-file")) {
    const std::string path = args.get("--network-file");
    const plan::DeviceModel::Link network = network_of(results["results"], bench.ranks());
    write_text(
        path, plan::dump_network(
                  "measured",
                  "tfm-bench collectives on " + std::to_string(bench.ranks()) + " ranks", network));
    if (network.latency <= 0)
      std::fprintf(stderr,
                   "warning: %s: no latency was found; the machine was busy, measure again when "
                   "it is idle\n",
                   path.c_str());
  }
  if (bench.lead())
    write_results(args, results,
                  "bus bandwidth of collectives on " + std::to_string(bench.ranks()) + " ranks",
                  bars);
  return 0;
}

}  // namespace tfm::launch
