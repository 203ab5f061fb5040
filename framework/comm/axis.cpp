#include "comm/axis.h"

#include <algorithm>
#include <optional>

namespace tfm::comm {

std::string_view name_of(Axis a) {
  switch (a) {
    case Axis::pipeline:
      return "pipeline";
    case Axis::replica:
      return "replica";
    case Axis::shard:
      return "shard";
    case Axis::expert:
      return "expert";
    case Axis::context:
      return "context";
    case Axis::tensor:
      return "tensor";
  }
  internal_error("unhandled enum value");
}

std::string name_of(AxisSet axes) {
  if (axes == kWorld) return "world";
  const AxisSet experts = kData - Axis::expert, shards = kData - Axis::replica;
  std::string text;
  AxisSet named;
  for (const auto& [all, name] :
       {std::pair{kData, "data"}, {experts, "expert_data"}, {shards, "shard"}})
    if (text.empty() && (axes & all) == all) text = name, named = all;
  for (const Axis a : kAxes)
    if ((axes - named).contains(a))
      text +=
          (text.empty() ? "" : "+") + (a == Axis::shard ? "expert_shard" : std::string(name_of(a)));
  return text;
}

std::vector<int> Layout::group(int rank, AxisSet axes) const {
  std::vector<int> ranks{0};
  for (const Axis a : kAxes) {
    std::vector<int> more;
    for (const int outer : ranks) {
      const int first = axes.contains(a) ? 0 : coordinate(rank, a);
      const int last = axes.contains(a) ? sizes_[a] : first + 1;
      for (int i = first; i < last; ++i) more.push_back(outer * sizes_[a] + i);
    }
    ranks = std::move(more);
  }
  return ranks;
}

namespace {

// Of which groups are made, where several ranks are along each of `where`.
struct Group {
  AxisSet axes, where = {};
};
// ZeRO shards over the first what all data ranks have; ranks along the second have the same
// experts.
constexpr AxisSet kShards = kData - Axis::replica, kExpertData = kData - Axis::expert;
constexpr Group kGroups[] = {
    {kData},
    {Axis::tensor},
    {kWorld},
    {Axis::replica, Axis::replica},
    {kShards, Axis::replica},
    {kShards | Axis::tensor, Axis::replica},
    {kData | Axis::pipeline, Axis::pipeline},
    {kWorld - Axis::pipeline, Axis::pipeline},
    {Axis::context, Axis::context},
    {kData | Axis::context, Axis::context},
    {kShards | Axis::context, Axis::replica | Axis::context},
    {kShards | Axis::context | Axis::tensor, Axis::replica | Axis::context},
    {kWorld - Axis::tensor, Axis::pipeline | Axis::context},
    {Axis::expert, Axis::expert},
    {kExpertData, Axis::expert},
    {kExpertData | Axis::tensor, Axis::expert},
    {kExpertData | Axis::context, Axis::expert | Axis::context},
    {kExpertData | Axis::context | Axis::tensor, Axis::expert | Axis::context},
    {Axis::shard, Axis::expert | Axis::replica},
    {Axis::shard | Axis::tensor, Axis::expert | Axis::replica},
    {Axis::shard | Axis::context, Axis::expert | Axis::replica | Axis::context},
    {Axis::shard | Axis::context | Axis::tensor, Axis::expert | Axis::replica | Axis::context},
};

template <class F>
void each_group(const Layout& layout, F&& f) {
  for (const Group& g : kGroups)
    if (std::ranges::none_of(kAxes, [&](Axis a) { return g.where.contains(a) && layout[a] == 1; }))
      f(g.axes);
}

}  // namespace

std::vector<AxisSet> Layout::groups() const {
  std::vector<AxisSet> all;
  each_group(*this, [&](AxisSet axes) { all.push_back(axes); });
  return all;
}

AxisSet Layout::group_of(AxisSet axes) const {
  std::optional<AxisSet> nearest;
  const auto apart = [&](AxisSet a) { return (a - axes) | (axes - a); };
  each_group(*this, [&](AxisSet a) {
    if (size(apart(a)) == 1 && (!nearest || apart(a).count() < apart(*nearest).count()))
      nearest = a;
  });
  return nearest.value_or(axes);
}

int Layout::stride(AxisSet axes) const {
  int apart = 1;
  for (std::size_t i = kAxes.size(); i-- > 0; apart *= sizes_[kAxes[i]])
    if (axes.contains(kAxes[i]) && sizes_[kAxes[i]] > 1) return apart;
  return apart;
}

std::map<std::string, std::int64_t> Layout::sizes() const {
  std::map<std::string, std::int64_t> all{{"data", size(kData)}, {"tensor", sizes_[Axis::tensor]}};
  if (const int n = sizes_[Axis::replica]; n > 1) all.emplace("replicas", n);
  for (const Axis a : {Axis::pipeline, Axis::context, Axis::expert})
    if (sizes_[a] > 1) all.emplace(name_of(a), sizes_[a]);
  return all;
}

std::string Layout::str(std::string_view equals, std::string_view then) const {
  std::string text;
  for (const auto& [name, n] : sizes())
    text.append(text.empty() ? "" : then).append(name).append(equals).append(std::to_string(n));
  return text;
}

std::string Layout::str() const {
  const auto times = [&](Axis a) {
    return std::string(name_of(a)) + " " + std::to_string(sizes_[a]);
  };
  const int replicas = sizes_[Axis::replica];
  return (sizes_[Axis::pipeline] > 1 ? times(Axis::pipeline) + " x " : "") + "data " +
         std::to_string(size(kData)) +
         (replicas > 1 ? " in " + std::to_string(replicas) + " replicas" : "") +
         (sizes_[Axis::expert] > 1 ? " with " + times(Axis::expert) : "") +
         (sizes_[Axis::context] > 1 ? " x " + times(Axis::context) : "") + " x " +
         times(Axis::tensor);
}

}  // namespace tfm::comm
