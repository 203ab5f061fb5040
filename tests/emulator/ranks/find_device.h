#pragma once
// For tests that are built twice: for a GPU, and for the block emulator, which then does all work
// as late as it may.
#include "device/cuda/stream.h"
#ifdef TFM_EMULATOR_RANKS
#include "fake_runtime.h"
#endif

namespace tfm::test {

inline bool find_device() {
#ifdef TFM_EMULATOR_RANKS
  emulator::runtime.late = true;
#endif
  return !cuda::usable_devices().empty();
}

}  // namespace tfm::test
