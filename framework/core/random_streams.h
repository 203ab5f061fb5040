#pragma once
// The random streams in use for one purpose, by name.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tfm {

class RandomStreams {
 public:
  // stream_of(name). A name that was added before, and two names whose hashes collide, would draw
  // the same numbers: an internal error that gives both names.
  std::uint32_t add(const std::string& name);

 private:
  std::map<std::uint32_t, std::string> names_;
};

// The same of names that are all known.
void check_random_streams(const std::vector<std::string_view>& names);

}  // namespace tfm
