#include "comm/axis.h"

namespace tfm::comm {

std::string_view name_of(Axis a) {
  switch (a) {
    case Axis::data:
      return "data";
    case Axis::tensor:
      return "tensor";
  }
  internal_error("unhandled enum value");
}

std::string name_of(AxisSet axes) {
  if (axes == kWorld) return "world";
  std::string text;
  for (const Axis a : kAxes)
    if (axes.contains(a)) text += (text.empty() ? "" : "+") + std::string(name_of(a));
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
  std::map<std::string, std::int64_t> sizes;
  for (const Axis a : kAxes) sizes.emplace(name_of(a), (*this)[a]);
  return sizes;
}

std::string Layout::str(std::string_view equals, std::string_view then) const {
  std::string text;
  for (const Axis a : kAxes)
    text.append(text.empty() ? "" : then)
        .append(name_of(a))
        .append(equals)
        .append(std::to_string((*this)[a]));
  return text;
}

}  // namespace tfm::comm
