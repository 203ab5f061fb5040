#include "core/random_streams.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/philox.h"

namespace tfm {
namespace {

void check_apart(bool apart, std::uint32_t stream, std::string_view before, std::string_view name) {
  TFM_CHECK(apart, "'" + std::string(before) + "' and '" + std::string(name) +
                       "' map to the same random stream " + std::to_string(stream) +
                       "; rename one of them");
}

}  // namespace

std::uint32_t RandomStreams::add(const std::string& name) {
  const std::uint32_t stream = stream_of(name);
  const auto [at, added] = names_.emplace(stream, name);
  check_apart(added, stream, at->second, name);
  return stream;
}

void check_random_streams(const std::vector<std::string_view>& names) {
  std::vector<std::pair<std::uint32_t, std::string_view>> streams;
  for (const std::string_view name : names) streams.emplace_back(stream_of(name), name);
  std::ranges::stable_sort(streams, {}, [](const auto& s) { return s.first; });
  for (std::size_t i = 1; i < streams.size(); ++i)
    check_apart(streams[i - 1].first != streams[i].first, streams[i].first, streams[i - 1].second,
                streams[i].second);
}

}  // namespace tfm
