#include "core/random_streams.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/philox.h"

namespace tfm {
namespace {

[[noreturn]] void fail(std::uint32_t stream, std::string_view before, std::string_view name) {
  const std::string both = "'" + std::string(before) + "' and '" + std::string(name) +
                           "' map to the same random stream " + std::to_string(stream);
  TFM_CHECK(before != name, both + "; rename one of them");
  // Of 2^32 streams, names of some thousand layers may share one.
  throw Error(ExitCode::usage, "model.n_layers: " + both +
                                   " and would draw the same numbers; expected fewer layers");
}

}  // namespace

std::uint32_t RandomStreams::add(const std::string& name) {
  const std::uint32_t stream = stream_of(name);
  const auto [at, added] = names_.emplace(stream, name);
  if (!added) fail(stream, at->second, name);
  return stream;
}

void check_random_streams(const std::vector<std::string_view>& names) {
  std::vector<std::pair<std::uint32_t, std::string_view>> streams;
  for (const std::string_view name : names) streams.emplace_back(stream_of(name), name);
  std::ranges::stable_sort(streams, {}, [](const auto& s) { return s.first; });
  for (std::size_t i = 1; i < streams.size(); ++i)
    if (streams[i - 1].first == streams[i].first)
      fail(streams[i].first, streams[i - 1].second, streams[i].second);
}

}  // namespace tfm
