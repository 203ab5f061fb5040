// What the emulator's kernel tests ask of it, on a GPU: memory that the host and kernels reach, and
// nothing of the rest. Orders of warps, races and left out barriers are the emulator's alone.
#include <cstring>
#include <map>

#include "device/cuda/stream.h"
#include "emulator/emulator.h"

namespace tfm::emulator {
namespace {

constexpr std::size_t kBand = 4096;
constexpr unsigned char kGuard = 0xA5;
std::map<void*, std::size_t> sizes;  // of buffers between two bands

}  // namespace

Options options;
Counts counts;
std::vector<Synchronisation> synchronisations;

bool emulated() { return false; }
bool hooked() { return false; }
void wait() { cuda::check(cudaDeviceSynchronize()); }

void* allocate(std::size_t bytes, const char*) {
  void* all = nullptr;
  cuda::check(cudaMallocManaged(&all, bytes + 2 * kBand));
  std::memset(all, kGuard, bytes + 2 * kBand);
  void* const p = static_cast<unsigned char*>(all) + kBand;
  std::memset(p, 0xFF, bytes);
  sizes[p] = bytes;
  return p;
}

void set_read_only(const void*) {}

bool release(void* p) {
  wait();
  const auto of = sizes.find(p);
  unsigned char* const begin = static_cast<unsigned char*>(p);
  bool whole = true;
  for (std::size_t i = 0; i < kBand; ++i)
    whole = whole && begin[-1 - static_cast<std::ptrdiff_t>(i)] == kGuard &&
            begin[of->second + i] == kGuard;
  sizes.erase(of);
  cuda::check(cudaFree(begin - kBand));
  return whole;
}

}  // namespace tfm::emulator
