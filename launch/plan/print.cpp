#include <algorithm>
#include <cstdio>

#include "launch/plan/output.h"

namespace tfm::launch {
namespace {

void print_fit(const Json& j) {
  const Json& d = j["device"];
  std::printf(
      "\nmemory            %.1f GB per rank: %s %s (%.1f GB per rank, %.1f GB of them in "
      "reserve)\n",
      giga(j["memory"][0]["total_bytes"]), j["fits"] ? "fits" : "DOES NOT FIT",
      d["name"].get<std::string>().c_str(), giga(d["memory_bytes"]), giga(d["reserve_bytes"]));
  if (j["fits"]) return;
  if (j["nearest_fit"].is_null()) {
    std::printf(
        "                  smaller micro-batches, recompute, ZeRO stages and more tensor, pipeline "
        "and context ranks do not help; use more ranks\n");
    return;
  }
  std::printf("                  it would fit with");
  for (const Json& change : j["nearest_fit"]["changes"])
    std::printf(" %s", change.get<std::string>().c_str());
  std::printf(": %.1f GB per rank\n", giga(j["nearest_fit"]["total_bytes"]));
}

void print_prediction(const Json& j) {
  std::printf("\npredicted         %.4g s per step, %.4g tokens/s, limited by %s\n",
              j["step_seconds"].get<double>(), j["tokens_per_second"].get<double>(),
              j["limited_by"].get<std::string>().c_str());
  std::printf(
      "utilization       %.1f %% of %.4g FLOP/s per rank (without masked attention), nominal %.1f "
      "%% (with it)\n",
      j["mfu"].get<double>() * 100, j["device"]["peak_flops"].get<double>(),
      j["mfu_nominal"].get<double>() * 100);
  if (j["shape"]["shapes"] > 1)
    std::printf(
        "                  for the longest of %d length buckets: %d sequences of %d tokens\n",
        j["shape"]["shapes"].get<int>(), j["shape"]["sequences"].get<int>(),
        j["shape"]["length"].get<int>());
  for (const char* part : {"seconds", "seconds_by_limit"}) {
    std::printf("%-17s", part == std::string("seconds") ? "by phase" : "by cause");
    for (const auto& [name, seconds] : j[part].items())
      std::printf(" %s %.1f %%", name.c_str(),
                  100 * seconds.get<double>() / j["step_seconds"].get<double>());
    std::printf("\n");
  }
}

// Ranks that follow each other and need the same share a line.
void print_memory(const Json& j) {
  const Json& memory = j["memory"];
  const auto needs = [](const Json& m) {
    return std::pair{m["categories"], m.value("page_locked", Json())};
  };
  std::printf("\n%-11s %16s", "rank", "total bytes");
  for (const auto& [name, bytes] : memory[0]["categories"].items())
    std::printf(" %16s", name.c_str());
  if (memory[0].contains("page_locked")) std::printf(" %16s", "host: locked");
  for (std::size_t i = 0, next = 0; i < memory.size(); i = next) {
    const Json& m = memory[i];
    while (next < memory.size() && needs(memory[next]) == needs(m)) ++next;
    const std::string last = next > i + 1 ? "-" + std::to_string(next - 1) : "";
    std::printf("\n%-11s %16lld", (std::to_string(i) + last).c_str(),
                m["total_bytes"].get<long long>());
    for (const auto& [name, bytes] : m["categories"].items())
      std::printf(" %16lld", bytes.get<long long>());
    if (m.contains("page_locked"))
      std::printf(" %16lld", m["page_locked"]["total_bytes"].get<long long>());
  }
  std::printf("\n");
}

void print_traffic(const Json& j) {
  if (j["traffic"].empty()) return;
  std::printf("\nbytes that a rank sends in a step, by rings\n%-16s %-8s %12s %16s\n", "operation",
              "axis", "count", "GB sent");
  for (const Json& t : j["traffic"])
    std::printf("%-16s %-8s %12lld %16.6g\n", t["op"].get<std::string>().c_str(),
                t["axis"].get<std::string>().c_str(), t["count"].get<long long>(),
                giga(t["ring_bytes"]));
  for (const Json& t : j["textbook_traffic"]) {
    std::printf("%s: %.6g GB; textbook %.6g GB (%s)\n", t["axis"].get<std::string>().c_str(),
                giga(t["ring_bytes"]), giga(t["textbook_ring_bytes"]),
                t["formula"].get<std::string>().c_str());
    for (const Json& d : t["differences"])
      std::printf("  %+16.6g  %s\n", giga(d["ring_bytes"]), d["why"].get<std::string>().c_str());
  }
}

void print_calls(std::span<const comm::CollectiveCall> calls, const char* indent) {
  for (const Json& c : describe_collectives(calls))
    std::printf("%s%-16s %-8s %16lld %8lld\n", indent, c["op"].get<std::string>().c_str(),
                c["axis"].get<std::string>().c_str(), c["bytes"].get<long long>(),
                c["count"].get<long long>());
}

// Micro-batches that exchange the same are one block.
void print_collectives(const plan::StepPlan& p) {
  const std::vector<comm::CollectiveCall> all = p.collectives();
  std::vector<comm::CollectiveCall> one =
      p.largest().train_program.collectives({.first = false, .last = false});
  std::erase_if(one, [&](const auto& c) { return p.mesh.layout.size(c.axes) == 1; });
  std::printf("\ncollectives of a step, in order\n%-16s %-8s %16s %8s\n", "operation", "axis",
              "bytes", "count");
  const auto first = one.empty() ? all.end() : std::ranges::search(all, one).begin();
  auto last = first;
  std::int64_t times = 0;
  while (all.end() - last >= static_cast<std::ptrdiff_t>(one.size()) && last != all.end() &&
         std::equal(one.begin(), one.end(), last)) {
    last += static_cast<std::ptrdiff_t>(one.size());
    ++times;
  }
  if (times < 2) return print_calls(all, "");
  print_calls({all.begin(), first}, "");
  std::printf("%lld micro-batches, each:\n", static_cast<long long>(times));
  print_calls(one, "  ");
  print_calls({last, all.end()}, "");
}

}  // namespace

void print_plan(const Json& j, const plan::RankPlans& plans) {
  std::printf("parameters        %lld\n", j["parameters"].get<long long>());
  std::printf("layout            %s, micro-batch %d, %d micro-batches per step\n",
              plans.first().mesh.layout.str().c_str(), j["micro_batch_size"].get<int>(),
              j["micro_batches"].get<int>());
  for (const auto& [key, text] : j["chosen"].items())
    std::printf("%-17s %s\n", key == "recompute" ? "recompute" : "micro-batch",
                text.get<std::string>().c_str());
  if (j.contains("layers_per_stage"))
    std::printf("layers per stage  %s\n", j["layers_per_stage"].dump().c_str());
  std::printf(
      "matrix products   %.4g FLOP per step (causal attention counts half), %lld tokens per step\n",
      j["flops_per_step"].get<double>(), j["tokens_per_step"].get<long long>());
  print_prediction(j);
  print_fit(j);
  print_memory(j);
  print_traffic(j);
  print_collectives(plans.first());
}

}  // namespace tfm::launch
