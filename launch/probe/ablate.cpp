#include "launch/probe/ablate.h"

#include <algorithm>
#include <charconv>

#include "core/strings.h"
#include "launch/probe/contents.h"
#include "models/registry.h"

namespace tfm::launch {
namespace {

// Parts whose weights of this suffix have columns that can be put to zero, and the columns.
std::map<std::string, std::int64_t> parts_with(const nn::ParameterSet& parameters,
                                               const std::string& suffix) {
  std::map<std::string, std::int64_t> all;
  for (int i = 0; i < parameters.size(); ++i)
    for (const nn::PartSpec& p : parameters.spec(i).parts)
      if (p.name.ends_with(suffix))
        all[p.name.substr(0, p.name.size() - suffix.size())] = parameters.spec(i).cols;
  return all;
}

std::vector<std::int64_t> indices(const std::string& text, const std::string& list,
                                  const Ablation& a) {
  std::vector<std::int64_t> all;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    std::int64_t i = -1;
    const auto [end, error] = std::from_chars(list.data() + at, list.data() + comma, i);
    if (error != std::errc{} || end != list.data() + comma || i < 0 || i >= a.count)
      throw Error(ExitCode::usage, "--ablate " + in_quotes(text) +
                                       ": expected `all`, or numbers from 0 to " +
                                       std::to_string(a.count - 1) + " with commas between them");
    if (std::ranges::find(all, i) == all.end()) all.push_back(i);
    at = comma + 1;
  }
  return all;
}

}  // namespace

Ablation ablation_of(const std::string& text, const config::Config& config) {
  const std::size_t colon = text.find(':'), equals = text.find('=');
  const std::string kind =
      colon < equals ? text.substr(colon + 1, equals - colon - 1) : std::string();
  if (equals == std::string::npos || (kind != "unit" && kind != "head"))
    throw Error(ExitCode::usage, "--ablate " + in_quotes(text) +
                                     ": expected PART:unit=I,... or PART:head=I,..., such as "
                                     "layers.0.ffn:unit=17 or layers.0.attention:head=all");
  config::Config c = config;
  c.parallel = {};
  const auto model = models::make_model(c, comm::single_mesh());
  const bool units = kind == "unit";
  const auto parts = parts_with(model->parameters(), units ? ".down.weight" : ".output.weight");
  Ablation a{.part = text.substr(0, colon)};
  const auto found = parts.find(a.part);
  if (found == parts.end()) {
    std::vector<std::string_view> names;
    for (const auto& [name, columns] : parts) names.push_back(name);
    const std::string near(nearest(a.part, names, 4));
    throw Error(ExitCode::usage,
                "--ablate " + in_quotes(text) + ": the model has no such part with " + kind + "s" +
                    (near.empty() ? "; expected one as " + std::string(names.front())
                                  : "; did you mean '" + near + "'?"));
  }
  a.weight = a.part + (units ? ".down.weight" : ".output.weight");
  a.count = units ? found->second : layer_of(c.model.stacks(), a.part).n_heads;
  a.width = div_exact(found->second, a.count);
  if (const std::string list = text.substr(equals + 1); list != kAll)
    a.which = indices(text, list, a);
  return a;
}

ZeroColumns::ZeroColumns(train::Engine& engine, const std::string& weight, std::int64_t first,
                         std::int64_t count)
    : engine_(engine) {
  const auto& slices = engine.model().parameters().slices();
  const auto found = std::ranges::find(slices, weight, &nn::PartSlice::name);
  if (found == slices.end()) return;
  slice_ = &*found;
  before_.resize(static_cast<std::size_t>(slice_->elements()));
  float* const there = static_cast<float*>(engine.flat().parameters) + slice_->offset;
  device::download(engine.device().stream(), before_.data(), there, std::ssize(before_) * 4);
  std::vector<float> now = before_;
  const std::int64_t cols = slice_->full[1];
  nn::each_run(
      *slice_, 0, slice_->elements(), [&](std::int64_t whole, std::int64_t mine, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i)
          if (const std::int64_t col = (whole + i) % cols; col >= first && col < first + count)
            now[static_cast<std::size_t>(mine + i)] = 0;
      });
  device::upload(engine.device().stream(), there, now.data(), std::ssize(now) * 4);
}

ZeroColumns::~ZeroColumns() {
  if (!slice_) return;
  float* const there = static_cast<float*>(engine_.flat().parameters) + slice_->offset;
  device::upload(engine_.device().stream(), there, before_.data(), std::ssize(before_) * 4);
}

}  // namespace tfm::launch
