#include "core/random_streams.h"

#include "core/error.h"
#include "core/philox.h"

namespace tfm {

std::uint32_t RandomStreams::add(const std::string& name) {
  const std::uint32_t stream = stream_of(name);
  const auto [at, added] = names_.emplace(stream, name);
  TFM_CHECK(added, "'" + at->second + "' and '" + name + "' map to the same random stream " +
                       std::to_string(stream) + "; rename one of them");
  return stream;
}

}  // namespace tfm
