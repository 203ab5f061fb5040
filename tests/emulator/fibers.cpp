// Fibers and the scheduler: lanes run until all of a warp, or all of the block, have arrived at the
// same instruction.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "machine.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}  // fibers of a failed launch are never unwound
#endif

namespace tfm::emulator {

Options options;
Counts counts;
Current current;
Machine machine;
std::vector<Synchronisation> synchronisations;

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStack = 512 << 10;
const void* scheduler_stack;
std::size_t scheduler_stack_bytes;
void leave(void** fake, const void* to, std::size_t bytes) {
  __sanitizer_start_switch_fiber(fake, to, bytes);
}
void arrive(void* fake, const void** from, std::size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake, from, bytes);
}
#else
constexpr std::size_t kStack = 128 << 10;
const void* scheduler_stack;
std::size_t scheduler_stack_bytes;
void leave(void**, const void*, std::size_t) {}
void arrive(void*, const void**, std::size_t*) {}
#endif
// From one lane's stack to the next: no power of two, by which all would share a few lines of a
// cache.
constexpr std::size_t kStackStride = kStack + 17 * 64;
constexpr std::uint32_t kCanary = 0xC0FFEE;

const std::function<void()>* body;
void* scheduler_pointer;
std::string failure_kind, failure_text;

// switch_stack saves the callee's registers on this stack, below the address to return to, and the
// stack's pointer in *from; it goes on where `to` was saved. kAbove: words above the address that a
// new stack is aligned by.
#if defined(__x86_64__)
constexpr int kRegisters = 6, kAbove = 1;
__attribute__((naked, noinline)) void switch_stack([[maybe_unused]] void** from,
                                                   [[maybe_unused]] void* to) {
  asm("pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15;"
      "movq %rsp, (%rdi); movq %rsi, %rsp;"
      "popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; ret");
}
#elif defined(__aarch64__)
constexpr int kRegisters = 19, kAbove = 0;
extern "C" void switch_stack(void** from, void* to);
asm(R"(.text
.p2align 2
.type switch_stack, %function
switch_stack:
  stp d8, d9, [sp, -160]!
  stp d10, d11, [sp, 16]
  stp d12, d13, [sp, 32]
  stp d14, d15, [sp, 48]
  stp x19, x20, [sp, 64]
  stp x21, x22, [sp, 80]
  stp x23, x24, [sp, 96]
  stp x25, x26, [sp, 112]
  stp x27, x28, [sp, 128]
  stp x29, x30, [sp, 144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x29, x30, [sp, 144]
  ldp x27, x28, [sp, 128]
  ldp x25, x26, [sp, 112]
  ldp x23, x24, [sp, 96]
  ldp x21, x22, [sp, 80]
  ldp x19, x20, [sp, 64]
  ldp d14, d15, [sp, 48]
  ldp d12, d13, [sp, 32]
  ldp d10, d11, [sp, 16]
  ldp d8, d9, [sp], 160
  ret)");
#else
#error "switch_stack is written for x86-64 and aarch64"
#endif

void to_scheduler(bool for_good) {
  Lane& lane = machine.lanes[machine.running];
  leave(for_good ? nullptr : &lane.fake_stack, scheduler_stack, scheduler_stack_bytes);
  switch_stack(&lane.stack_pointer, scheduler_pointer);
  arrive(lane.fake_stack, &scheduler_stack, &scheduler_stack_bytes);
}

void fiber_main() {
  arrive(nullptr, &scheduler_stack, &scheduler_stack_bytes);
  (*body)();
  machine.lanes[machine.running].state = State::done;
  to_scheduler(true);
  std::abort();
}

void resume(int thread) {
  Lane& lane = machine.lanes[thread];
  current.thread = lane.thread;
  machine.running = thread;
  void* fake = nullptr;
  leave(&fake, lane.stack, kStack);
  switch_stack(&scheduler_pointer, lane.stack_pointer);
  arrive(fake, nullptr, nullptr);
  machine.running = -1;
  if (!failure_kind.empty()) throw Failure(failure_kind, failure_text);
}

// The i-th of n in the chosen order; `shift` is random in the random one.
int pick(Order order, int i, int n, int shift) {
  return order == Order::ascending ? i : order == Order::descending ? n - 1 - i : (i + shift) % n;
}
int random_shift(int n) {
  return options.warps == Order::random ? static_cast<int>(next_random() % n) : 0;
}

void require_same_request(const Warp& warp) {
  const Request& first = warp.lanes[0].request;
  for (int i = 0; i < warp.size; ++i) {
    const Lane& lane = warp.lanes[i];
    const auto place = [&](int j) {
      const Lane& l = warp.lanes[j];
      return "lane " + std::to_string(j) +
             (l.state == State::done
                  ? " has left"
                  : std::string(" is at ") + l.request.name + " " + describe(l.request.at));
    };
    if (lane.state == State::in_warp_instruction && lane.request.run == first.run &&
        lane.request.variant == first.variant &&
        warp.lanes[0].state == State::in_warp_instruction && same(lane.request.at, first.at))
      continue;
    fail("divergence",
         "warp " + std::to_string(warp.first_thread / kWarp) + ": " + place(0) + ", " + place(i));
  }
}

// Until each lane has left or waits at the block's barrier; in random order sometimes a warp pauses
// before that.
void run_warp(Warp& warp) {
  for (;;) {
    const int shift = random_shift(warp.size);
    for (int j = 0; j < warp.size; ++j) {
      const int i = pick(options.warps, j, warp.size, shift);
      if (warp.lanes[i].state == State::ready) resume(warp.first_thread + i);
    }
    const auto waits = [](const Lane& l) { return l.state == State::in_warp_instruction; };
    if (std::none_of(warp.lanes, warp.lanes + warp.size, waits)) return;
    require_same_request(warp);
    warp.lanes[0].request.run(warp);
    for (int i = 0; i < warp.size; ++i) warp.lanes[i].state = State::ready;
    if (options.warps == Order::random && next_random() % 4 == 0) return;
  }
}

void release_block_barrier() {
  const Lane* first = nullptr;
  for (const Lane& lane : machine.lanes)
    if (lane.state == State::at_block_barrier && !first) first = &lane;
  for (std::size_t i = 0; i < machine.lanes.size(); ++i) {
    const Lane& lane = machine.lanes[i];
    const auto refuse = [&](const std::string& how) {
      fail("divergence",
           "block_barrier " + describe(first->request.at) + ": thread " + std::to_string(i) + how);
    };
    if (lane.state == State::done) refuse(" has left");
    if (!same(lane.request.at, first->request.at)) refuse(" is at " + describe(lane.request.at));
  }
  for (Lane& lane : machine.lanes) lane.state = State::ready;
  ++machine.epoch, ++counts.block_barriers;
}

char* stacks(int n) {
  static char* pool = nullptr;
  static int size = 0;
  if (size < n) {
    pool = static_cast<char*>(mmap(nullptr, kStackStride * n, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    size = n;
  }
  return pool;
}

void prepare(Lane& lane, char* stack) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, kStack);
#endif
  lane.stack = stack;
  lane.state = State::ready;
  lane.fake_stack = nullptr;
  lane.copies.clear(), lane.groups.clear(), lane.hidden.clear();
  std::memcpy(stack, &kCanary, sizeof kCanary);
  // What switch_stack restores: registers, then fiber_main as return address; the stack is then
  // aligned as after a call.
  auto* top = reinterpret_cast<std::uint64_t*>(stack + kStack - 64);
  for (int i = 0; i < kAbove; ++i) *--top = 0;
  *--top = reinterpret_cast<std::uint64_t>(&fiber_main);
  for (int i = 0; i < kRegisters; ++i) *--top = 0;
  lane.stack_pointer = top;
}

void run_block(std::size_t shared_bytes) {
  ++counts.blocks, ++machine.epoch;
  machine.first_epoch = machine.epoch;
  prepare_shared(shared_bytes);
  char* pool = stacks(static_cast<int>(machine.lanes.size()));
  for (std::size_t i = 0; i < machine.lanes.size(); ++i)
    prepare(machine.lanes[i], pool + kStackStride * i);
  const auto n = static_cast<int>(machine.warps.size());
  for (;;) {
    const int shift = random_shift(n);
    for (int i = 0; i < n; ++i) run_warp(machine.warps[pick(options.warps, i, n, shift)]);
    const auto count = [](State s) {
      return std::count_if(machine.lanes.begin(), machine.lanes.end(),
                           [=](const Lane& l) { return l.state == s; });
    };
    const std::ptrdiff_t done = count(State::done), waiting = count(State::at_block_barrier),
                         all = std::ssize(machine.lanes);
    if (done == all) break;
    if (done + waiting == all) release_block_barrier();
  }
  for (const Lane& lane : machine.lanes) {
    counts.unwaited_copies += std::ssize(lane.copies);
    if (std::memcmp(lane.stack, &kCanary, sizeof kCanary) != 0)
      fail("launch", "a thread's local variables exceed the emulator's stack");
  }
}

std::vector<std::uint32_t> block_order(std::uint32_t n) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  if (options.blocks == Order::descending) std::reverse(order.begin(), order.end());
  if (options.blocks == Order::random)
    for (std::uint32_t i = n; i > 1; --i) std::swap(order[i - 1], order[next_random() % i]);
  return order;
}

}  // namespace

std::uint64_t next_random() {  // xorshift64
  std::uint64_t& x = machine.random;
  x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  return x;
}

bool same(Place a, Place b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || !std::strcmp(a.file_name(), b.file_name()));
}

std::string describe(Place at) {
  const std::string file = at.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(at.line()) + ":" +
         std::to_string(at.column());
}

void fail(const char* kind, const std::string& text) {
  const dim3 b = current.block;
  failure_kind = kind;
  failure_text = text + " [block " + std::to_string(b.x) + "," + std::to_string(b.y) + "," +
                 std::to_string(b.z) + "]";
  if (machine.running < 0) throw Failure(failure_kind, failure_text);
  to_scheduler(true);
  std::abort();
}

void wait_for(const Request& request) {
  Lane& lane = machine.lanes[machine.running];
  lane.request = request;
  lane.state = request.run ? State::in_warp_instruction : State::at_block_barrier;
  to_scheduler(false);
}

bool suppressed(Place at, const char* name) {
  static std::size_t last = 0;  // most lanes come to where the one before came
  if (last >= synchronisations.size() || !same(synchronisations[last].at, at)) {
    const auto it = std::find_if(synchronisations.begin(), synchronisations.end(),
                                 [&](const auto& s) { return same(s.at, at); });
    last = static_cast<std::size_t>(it - synchronisations.begin());
    if (it == synchronisations.end()) synchronisations.push_back({at, name, 0});
  }
  ++synchronisations[last].times;
  return options.suppressed.line() != 0 && same(at, options.suppressed);
}

void launch(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread) {
  failure_kind.clear();
  machine.running = -1;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z,
                      threads = std::uint64_t{block.x} * block.y * block.z;
  if (blocks == 0 || grid.x > 0x7FFFFFFFu || grid.y > 65535 || grid.z > 65535)
    fail("launch", "not a grid that CUDA starts");
  if (threads == 0 || threads > 1024 || block.z > 64)
    fail("launch", "not a block that CUDA starts");
  if (shared_bytes > 163 * 1024) fail("launch", "more shared memory than an A100 has");
  body = &thread;
  current.grid_size = grid, current.block_size = block;
  machine.random = options.seed * 0x9E3779B97F4A7C15u | 1;
  ++machine.launches;
  machine.lanes.assign(threads, {});
  for (unsigned t = 0; t < threads; ++t)
    machine.lanes[t].thread = {t % block.x, t / block.x % block.y, t / block.x / block.y};
  machine.warps.clear();
  for (int first = 0; first < static_cast<int>(threads); first += kWarp)
    machine.warps.push_back(
        {&machine.lanes[first], first, std::min(kWarp, static_cast<int>(threads) - first), 1});
  for (std::uint32_t i : block_order(static_cast<std::uint32_t>(blocks))) {
    current.block = {i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y};
    machine.block_number = i;
    run_block(shared_bytes);
  }
}

}  // namespace tfm::emulator
