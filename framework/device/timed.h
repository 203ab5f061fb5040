#pragma once
#include <chrono>

#include "device/memory.h"

namespace tfm::device {

// Runs f. If `seconds` is given, waits for the stream and adds the elapsed time to it.
template <class F>
void timed(AnyStream stream, double* seconds, F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  if (!seconds) return;
  wait(stream);
  *seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tfm::device
