#pragma once
// Runs CUDA kernels on the CPU: a fiber for each thread, warp instructions once all their lanes
// have arrived, and checks that no GPU makes. Kernels are compiled as C++ against
// kernels/cuda/block.h with TFM_EMULATOR; their loads and stores are seen through the hooks of
// -fsanitize=thread, which memory.cpp defines. Not proven here: timing, occupancy, the compiler's
// machine code, the memory model between blocks.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_runtime.h"

namespace tfm::emulator {

enum class Order { ascending, descending, random };
enum class Copies {
  at_wait,
  at_issue,
  either
};  // when cp.async moves its bytes; until then the destination is poison
// How an mma adds 16 products to its accumulator; hardware does not say.
enum class Sum { chain, once_rounded, reversed, truncated_halves };

struct Options {
  Order warps =
      Order::ascending;  // of warps within a block, and of lanes between two warp instructions
  Order blocks = Order::ascending;  // of blocks within a grid
  Copies copies = Copies::at_wait;
  Sum sum = Sum::chain;
  bool memory =
      true;  // check loads and stores: races, bounds, never written, read-only; in hooked builds
  bool warpgroups = false;        // the device has their products
  bool wrong_warpgroups = false;  // but they are wrong
  int exp2_noise = 0;  // perturb exp2_approximate by up to this many units in the last place
  std::uint64_t seed = 1;
  std::source_location suppressed;  // a barrier or wait that does nothing; none by default
};
extern Options options;

// What a kernel did wrong. Kinds: divergence, race, unwritten, pending copy, not shown, poison,
// bounds, alignment, address space, read-only, blocks, launch.
struct Failure : std::runtime_error {
  Failure(std::string k, const std::string& text)
      : std::runtime_error(k + ": " + text), kind(std::move(k)) {}
  std::string kind;
};

struct Counts {
  long blocks, mma, warpgroup_mma, ldmatrix, bank_conflicts, copies, unwaited_copies,
      block_barriers, hooked;
};
extern Counts counts;

// Every barrier and wait executed since the list was cleared.
struct Synchronisation {
  std::source_location at;
  const char* name;
  long times;
};
extern std::vector<Synchronisation> synchronisations;

bool emulated();  // false where these tests run on a GPU (tests/gpu/kernel_memory.cpp)
bool hooked();    // kernels were compiled with hooks
void wait();      // until all kernels are done, as they are here once they are launched
void launch(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);

// Global memory, all bits set, between guard bands. `release` says whether the bands are untouched.
void* allocate(std::size_t bytes, const char* name);
void set_read_only(const void* p);
bool release(void* p);
bool in_global_memory(const void* p);

}  // namespace tfm::emulator
