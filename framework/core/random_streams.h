#pragma once
// The random streams in use for one purpose, by name.
#include <cstdint>
#include <map>
#include <string>

namespace tfm {

class RandomStreams {
 public:
  // stream_of(name). A name that was added before, and two names whose hashes collide, would draw
  // the same numbers: an internal error that gives both names.
  std::uint32_t add(const std::string& name);

 private:
  std::map<std::uint32_t, std::string> names_;
};

}  // namespace tfm
