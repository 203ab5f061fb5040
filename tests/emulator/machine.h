#pragma once
// The emulator's state: one block of threads at a time.
#include <string>
#include <vector>

#include "block_emulator.h"

namespace tfm::emulator {

struct Warp;
using Instruction = void (*)(Warp&);

struct Copy {  // one cp.async under way
  char* to;
  const char* from;
  int bytes, used;
  bool moved;
  Place at;
};

// A warp instruction that a lane waits in. All lanes of a warp must bring the same one.
struct Request {
  Instruction run = nullptr;
  const char* name = "";
  Place at;
  unsigned variant = 0;
  float* c = nullptr;
  const std::uint32_t *a = nullptr, *b = nullptr;
  std::uint32_t* r = nullptr;
  const char* row = nullptr;
  std::uint64_t value = 0;
  int operand = 0;
};

enum class State : std::uint8_t { ready, in_warp_instruction, at_block_barrier, done };

struct Lane {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  void* fake_stack = nullptr;  // of the address sanitizer
  State state = State::ready;
  dim3 thread;
  Request request;
  std::vector<Copy> copies;
  std::vector<std::size_t> groups;  // ends of the committed groups in `copies`
  std::vector<const char*> hidden;  // 16 bytes each that copies brought and warpgroups do not see
};

struct Warp {
  Lane* lanes;
  int first_thread, size;
  std::uint32_t epoch;  // counts warp barriers
};

inline constexpr int kWarp = 32;

struct Machine {
  std::vector<Lane> lanes;
  std::vector<Warp> warps;
  int running = -1;        // thread whose fiber runs; -1: the scheduler
  char* shared = nullptr;  // of the block
  std::size_t shared_bytes = 0;
  std::uint64_t random = 1, launches = 0;
  std::uint32_t block_number = 0;
  std::uint32_t epoch = 1,
                first_epoch = 1;  // counts block barriers; its value when the block began
};
extern Machine machine;

inline bool in_shared(const void* p, std::size_t bytes) {
  const char* c = static_cast<const char*>(p);
  return c >= machine.shared && c + bytes <= machine.shared + machine.shared_bytes;
}
inline long shared_offset(const void* p) { return static_cast<const char*>(p) - machine.shared; }

std::uint64_t next_random();
std::string describe(Place);
bool same(Place, Place);
// Ends the launch with a Failure that names the block; from a fiber or from the scheduler.
[[noreturn]] void fail(const char* kind, const std::string& text);
// The running lane waits until its warp executed the request, or, for a null instruction, until the
// block's barrier.
void wait_for(const Request&);
bool suppressed(Place, const char* name);  // also counts it

// memory.cpp
enum class Write { plain, async_start, async_end };
void prepare_shared(std::size_t bytes);  // for one block: never written, poison
void shared_read(const void* p, std::size_t bytes, int thread, bool whole_warp, Place);
void shared_write(const void* p, std::size_t bytes, int thread, Write, Place);
void global_read(const void* p, std::size_t bytes, Place);

}  // namespace tfm::emulator
