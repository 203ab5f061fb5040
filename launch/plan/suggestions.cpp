#include <cstdio>

#include "core/strings.h"
#include "launch/plan/output.h"
#include "launch/support/automatic.h"

namespace tfm::launch {
namespace {

constexpr std::size_t kReasonsShown = 6;

Json describe(const plan::Suggestion& s, const std::vector<std::string>& overrides) {
  const double seconds = s.times.seconds();
  const plan::LayoutChoice& c = s.choice;
  return {{"overrides", overrides},
          {"layout", s.layout.sizes()},
          {"sequence", c.sequence && c.tensor > 1},
          {"context_exchange", config::word(c.context_exchange)},
          {"schedule", config::word(c.schedule)},
          {"zero", c.zero},
          {"recompute", config::word(c.recompute)},
          {"micro_batch_size", s.micro_batch},
          {"micro_batches", s.micro_batches},
          {"step_seconds", seconds},
          {"tokens_per_second", static_cast<double>(s.tokens) / seconds},
          {"total_bytes", s.bytes},
          {"limited_by", plan::name_of(s.times.limited_by())}};
}

std::string text_of(const Json& layout) {
  const Json& sizes = layout["layout"];
  std::string text = comm::Layout({.data = sizes["data"],
                                   .tensor = sizes["tensor"],
                                   .replicas = sizes.value("replicas", 1),
                                   .pipeline = sizes.value("pipeline", 1),
                                   .context = sizes.value("context", 1),
                                   .expert = sizes.value("expert", 1)})
                         .str();
  if (sizes.contains("context")) text += ", " + layout["context_exchange"].get<std::string>();
  if (layout["sequence"]) text += ", sequence";
  if (sizes.contains("pipeline")) text += ", " + layout["schedule"].get<std::string>();
  return text + ", ZeRO " + std::to_string(layout["zero"].get<int>()) + ", recompute " +
         layout["recompute"].get<std::string>() + ", micro-batches " +
         std::to_string(layout["micro_batches"].get<int>()) + " x " +
         std::to_string(layout["micro_batch_size"].get<int>());
}

void print_row(const std::string& name, const Json& s, const Json& device) {
  std::printf("%-10s %10.4g %12.4g %9.1f %7.1f  %-16s  %s\n", name.c_str(),
              s["step_seconds"].get<double>(), s["tokens_per_second"].get<double>(),
              giga(s["total_bytes"]), giga(device["memory_bytes"]),
              s["limited_by"].get<std::string>().c_str(), text_of(s).c_str());
}

void print_others(const Json& others, double fastest) {
  std::printf("\nwhy not another\n");
  const Json& slower = others["slower"];
  const auto percent = [&](const char* end) {
    return 100 * (slower[end].get<double>() / fastest - 1);
  };
  if (slower["count"] > 0)
    std::printf("%8d  slower than the first by %.3g %% to %.3g %%\n", slower["count"].get<int>(),
                percent("least_seconds"), percent("most_seconds"));
  if (others["no_faster"] > 0)
    std::printf("%8d  recompute what a layout slower than the last one above keeps\n",
                others["no_faster"].get<int>());
  if (others["bounded"] > 0)
    std::printf(
        "%8d  cannot be faster than the last one above, by their products and collectives alone\n",
        others["bounded"].get<int>());
  const Json& large = others["too_large"];
  if (large["count"] > 0)
    std::printf("%8d  do not fit: %.1f GB to %.1f GB over\n", large["count"].get<int>(),
                giga(large["least_bytes_over"]), giga(large["most_bytes_over"]));
  if (large["larger_micro_batches"] > 0)
    std::printf("%8d  do not fit: their micro-batches are larger than one that does not\n",
                large["larger_micro_batches"].get<int>());
  const Json& refused = others["refused"];
  std::int64_t rest = 0;
  for (std::size_t i = 0; i < refused.size(); ++i) {
    if (i >= kReasonsShown)
      rest += refused[i]["count"].get<std::int64_t>();
    else
      std::printf("%8d  %s\n", refused[i]["count"].get<int>(),
                  refused[i]["reason"].get<std::string>().c_str());
  }
  if (rest > 0)
    std::printf("%8lld  sizes that do not divide, too (--json has all)\n",
                static_cast<long long>(rest));
}

void print_assumptions(const Json& j) {
  const Json& d = j["device"];
  const auto tera = [&](const char* key) { return d[key].get<double>() * 1e-12; };
  std::printf(
      "\nassumed   %s: %.1f GB per rank, %.1f GB of them in reserve; products at %.4g TFLOP/s, "
      "attention at %.4g TFLOP/s,\n          memory at %.4g GB/s; %d ranks a node, links of %.4g "
      "GB/s within and %.4g GB/s between nodes\n          (%s)\n",
      d["name"].get<std::string>().c_str(), giga(d["memory_bytes"]), giga(d["reserve_bytes"]),
      tera("product_flops"), tera("attention_flops"), giga(d["bytes_per_second"]),
      d["ranks_per_node"].get<int>(), giga(d["node_bytes_per_second"]),
      giga(d["network_bytes_per_second"]), d["rates_from"].get<std::string>().c_str());
  std::printf("kept      %s as configured\n", j["kept"].get<std::string>().c_str());
}

}  // namespace

Json describe_suggestions(const plan::Suggestions& s, const config::Config& config, int ranks,
                          const plan::DeviceModel& device) {
  Json j;
  j["ranks"] = ranks;
  j["device"] = describe_device(
      device, config.precision == config::Precision::fp32 ? DType::f32 : DType::bf16);
  j["kept"] = "global batch, sequence length, precision, optimizer";
  j["suggestions"] = Json::array();
  for (const plan::Suggestion& best : s.best)
    j["suggestions"].push_back(describe(best, overrides_of(config, best.choice)));
  j["as_configured"] = nullptr;
  if (s.given) {
    j["as_configured"] = describe(*s.given, {});
    j["as_configured"]["fits"] = s.given->bytes <= device.usable_bytes();
  }
  Json& others = j["others"];
  others["slower"] = {{"count", s.slower.candidates},
                      {"least_seconds", s.slower.least},
                      {"most_seconds", s.slower.most}};
  others["no_faster"] = s.no_faster;
  others["bounded"] = s.bounded;
  others["too_large"] = {{"count", s.too_large.candidates},
                         {"least_bytes_over", s.too_large.least},
                         {"most_bytes_over", s.too_large.most},
                         {"larger_micro_batches", s.larger}};
  others["refused"] = Json::array();
  for (const auto& [reason, layouts] : s.refused)
    others["refused"].push_back({{"reason", reason}, {"count", layouts}});
  j["planned"] = s.planned;
  return j;
}

void print_suggestions(const Json& j) {
  const Json& best = j["suggestions"];
  const Json& device = j["device"];
  std::printf("%-10s %10s %12s %9s %7s  %-16s  %s\n", "", "s/step", "tokens/s", "GB/rank", "of",
              "limited by", "layout");
  for (std::size_t i = 0; i < best.size(); ++i) print_row(std::to_string(i + 1), best[i], device);
  if (best.empty())
    std::printf(j["planned"] == 0 ? "no layout of %s suits this configuration\n"
                                  : "no layout of %s fits; use more ranks\n",
                counted(j["ranks"].get<int>(), "rank").c_str());
  if (const Json& given = j["as_configured"]; !given.is_null())
    print_row(given["fits"] ? "configured" : "too large", given, device);
  if (!best.empty()) std::printf("\noverrides that choose them\n");
  for (std::size_t i = 0; i < best.size(); ++i) {
    std::string overrides;
    for (const Json& change : best[i]["overrides"]) overrides += " " + change.get<std::string>();
    std::printf("%-10zu%s\n", i + 1, overrides.empty() ? " none" : overrides.c_str());
  }
  print_others(j["others"], best.empty() ? 1 : best[0]["step_seconds"].get<double>());
  print_assumptions(j);
}

}  // namespace tfm::launch
