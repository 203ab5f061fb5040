#include "comm/axis.h"

namespace tfm::comm {

std::string_view name_of(Axis a) {
  switch (a) {
    case Axis::replica:
      return "replica";
    case Axis::shard:
      return "shard";
    case Axis::tensor:
      return "tensor";
  }
  internal_error("unhandled enum value");
}

std::string name_of(AxisSet axes) {
  if (axes == kWorld) return "world";
  std::string text = (axes & kData) == kData ? "data" : "";
  for (const Axis a : kAxes)
    if ((text.empty() || !kData.contains(a)) && axes.contains(a))
      text += (text.empty() ? "" : "+") + std::string(name_of(a));
  return text;
}

std::vector<int> Layout::group(int rank, AxisSet axes) const {
  std::vector<int> ranks;
  for (int r = 0; r < world(); ++r)
    if (place(r, kWorld - axes) == place(rank, kWorld - axes)) ranks.push_back(r);
  return ranks;
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
  return all;
}

std::string Layout::str(std::string_view equals, std::string_view then) const {
  std::string text;
  for (const auto& [name, n] : sizes())
    text.append(text.empty() ? "" : then).append(name).append(equals).append(std::to_string(n));
  return text;
}

std::string Layout::str() const {
  const int replicas = sizes_[Axis::replica];
  return "data " + std::to_string(size(kData)) +
         (replicas > 1 ? " in " + std::to_string(replicas) + " replicas" : "") + " x tensor " +
         std::to_string(sizes_[Axis::tensor]);
}

}  // namespace tfm::comm
