#pragma once
// Checks that the random streams used for one purpose do not collide.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tfm {

class RandomStreams {
 public:
  // Returns stream_of(name). Error(usage) that gives both names if its hash equals that of another
  // name, since both would draw the same numbers; an internal error if the name was added before.
  std::uint32_t add(const std::string& name);

 private:
  std::map<std::uint32_t, std::string> names_;
};

// The same check for a complete list of names.
void check_random_streams(const std::vector<std::string_view>& names);

}  // namespace tfm
