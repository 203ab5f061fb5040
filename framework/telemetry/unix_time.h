#pragma once
#include <chrono>

namespace tfm::telemetry {

inline double unix_time() {  // seconds
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tfm::telemetry
