#include "inference/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/philox.h"
#include "core/strings.h"

namespace tfm::inference {

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  const auto expect = [](bool ok, const std::string& what, double is, const std::string& legal) {
    if (!ok) throw Error(ExitCode::usage, what + " is " + number_text(is) + "; expected " + legal);
  };
  expect(options.temperature >= 0 && std::isfinite(options.temperature), "temperature",
         options.temperature, "0 (greedy) or more");
  expect(options.top_p > 0 && options.top_p <= 1, "top-p", options.top_p,
         "more than 0 and at most 1 (all tokens)");
  expect(options.top_k >= 0, "top-k", static_cast<double>(options.top_k), "0 (all tokens) or more");
}

std::vector<Sampler::Candidate> Sampler::candidates(std::span<const double> logits) const {
  TFM_CHECK(!logits.empty(), "cannot sample from no tokens");
  if (!std::ranges::all_of(logits, [](double x) { return std::isfinite(x); }))
    throw Error(ExitCode::numerical, "the model's logits are NaN or infinite");
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  if (options_.temperature == 0) return {{*std::ranges::min_element(order, likelier), 1}};
  if (options_.top_k > 0 && options_.top_k < std::ssize(order)) {
    std::ranges::partial_sort(order, order.begin() + options_.top_k, likelier);
    order.resize(static_cast<std::size_t>(options_.top_k));
  } else {
    std::ranges::sort(order, likelier);
  }
  std::vector<Candidate> all;
  double total = 0;
  for (const std::int32_t id : order) {
    all.push_back({id, std::exp((logit(id) - logit(order[0])) / options_.temperature)});
    total += all.back().weight;
  }
  std::size_t kept = 0;
  for (double mass = 0; kept < all.size() && mass < options_.top_p * total;)
    mass += all[kept++].weight;
  all.resize(kept);
  return all;
}

std::int32_t Sampler::pick(std::span<const double> logits, std::uint32_t draw) const {
  const std::vector<Candidate> all = candidates(logits);
  double mass = 0;
  for (const Candidate& c : all) mass += c.weight;
  const RandomKey key{options_.seed, Purpose::sample, stream_of("generate"), draw};
  double u = static_cast<double>(key.word(0)) * 0x1p-32 * mass;
  for (std::size_t i = 0; i + 1 < all.size(); ++i)
    if ((u -= all[i].weight) < 0) return all[i].id;
  return all.back().id;
}

}  // namespace tfm::inference
