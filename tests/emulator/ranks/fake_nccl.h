#pragma once
// What tests may set and see of the stand-in of NCCL.
#include <atomic>

#include "nccl.h"

namespace tfm::emulator {

struct Nccl {
  std::atomic<ncclResult_t> async_error = ncclSuccess;  // what every communicator reports
  int version = 22600;
  int communicators = 0;  // that were made
  int destroyed = 0, aborted = 0;
  int calls = 0;     // of collectives
  int messages = 0;  // sends and receives of their own
};
extern Nccl nccl;

}  // namespace tfm::emulator
