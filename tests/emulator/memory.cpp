// What every load and store is checked against: a shadow of shared memory, the list of global
// buffers, and who wrote what.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "machine.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) (void(p), void(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) (void(p), void(n))
#endif

extern "C" char __executable_start;

namespace tfm::emulator {
namespace {

// A place in a kernel: a call of an instruction, or the return address of a hook.
struct Spot {
  const void* pc = nullptr;
  Place at;
};

std::string describe_spot(const Spot& s) {
  if (!s.pc) return describe(s.at);
  char command[256], line[512];
  std::snprintf(
      command, sizeof command, "addr2line -i -s -e /proc/%d/exe %lx", int(getpid()),
      static_cast<unsigned long>(static_cast<const char*>(s.pc) - &__executable_start - 1));
  std::string text;
  if (FILE* pipe = popen(command, "r")) {
    while (std::fgets(line, sizeof line, pipe))
      text += (text.empty() ? "" : " < ") + std::string(line, std::strcspn(line, "\n"));
    pclose(pipe);
  }
  return text;
}

// Who accessed a word: one thread, several of one warp, or several warps.
constexpr std::uint32_t kSeveralWarps = 0xFFFFFFFFu, kOfOneWarp = 0x40000000u;
std::uint32_t actor(int thread, bool whole_warp) {
  return whole_warp ? kOfOneWarp | static_cast<std::uint32_t>(thread / kWarp) : thread;
}
std::uint32_t warp_of(std::uint32_t who) {
  return who == kSeveralWarps ? who : who & kOfOneWarp ? who & 0xFFFFu : who / kWarp;
}
std::string name_of_actor(std::uint32_t who) {
  if (who == kSeveralWarps) return "several warps";
  return who & kOfOneWarp ? "warp " + std::to_string(who & 0xFFFFu)
                          : "thread " + std::to_string(who);
}

struct Access {
  std::uint32_t who = 0, epoch = 0, warp_epoch = 0;
  Spot spot;
};
struct Word {  // two bytes of shared memory
  Access write, read;
  std::uint32_t pending = 0;  // epoch in which a copy into it started, 0 once it has ended
};

// No barrier lies between an access of this epoch and one by `who` now.
bool unordered(const Access& before, std::uint32_t who, std::uint32_t warp_epoch) {
  if (before.epoch != machine.epoch) return false;
  if (before.who == kSeveralWarps) return true;
  if (before.who == who && !(who & kOfOneWarp)) return false;
  return warp_of(before.who) != warp_of(who) || before.warp_epoch == warp_epoch;
}

constexpr std::size_t kSharedGuard = 64 << 10, kSharedMost = 256 << 10, kBand = 256;
std::vector<Word> shadow;
bool hooks_seen = false;

char* reserve(std::size_t bytes) {
  return static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}
char* const shared_region = reserve(kSharedMost + 2 * kSharedGuard);

template <class F>
void each_word(const void* p, std::size_t bytes, F&& f) {
  const std::size_t offset = shared_offset(p);
  for (std::size_t i = offset / 2; i < (offset + bytes + 1) / 2; ++i)
    f(shadow[i], "shared memory at " + std::to_string(2 * i));
}

void read_shared(const void* p, std::size_t bytes, int thread, bool whole_warp, const Spot& spot) {
  const std::uint32_t who = actor(thread, whole_warp),
                      warp_epoch = machine.warps[thread / kWarp].epoch;
  const std::size_t offset = shared_offset(p);
  const auto refuse = [&](const char* kind, std::size_t i, const std::string& why) {
    fail(kind, name_of_actor(who) + " reads shared memory at " + std::to_string(2 * i) + ", " +
                   describe_spot(spot) + ", " + why);
  };
  for (std::size_t i = offset / 2; i < (offset + bytes + 1) / 2; ++i) {
    Word& word = shadow[i];
    const auto writer = [&] {
      return name_of_actor(word.write.who) + ", " + describe_spot(word.write.spot);
    };
    if (word.pending >= machine.first_epoch)
      refuse("pending copy", i, "without waiting for the copy by " + writer());
    if (hooks_seen && word.write.epoch < machine.first_epoch)
      refuse("unwritten", i, "which nobody wrote");
    if (unordered(word.write, who, warp_epoch))
      refuse("race", i, "written without a barrier between by " + writer());
    Access& read = word.read;
    if (read.epoch != machine.epoch)
      read.who = who;
    else if (read.who != who)
      read.who = warp_of(read.who) == warp_of(who) ? actor(thread, true) : kSeveralWarps;
    read.epoch = machine.epoch, read.warp_epoch = warp_epoch, read.spot = spot;
  }
}

void write_shared(const void* p, std::size_t bytes, int thread, Write kind, const Spot& spot) {
  const auto who = static_cast<std::uint32_t>(thread);
  const std::uint32_t warp_epoch = machine.warps[thread / kWarp].epoch;
  const std::size_t offset = shared_offset(p);
  const auto refuse = [&](const char* what, std::size_t i, const char* why, const Access& by) {
    fail(what, name_of_actor(who) + " writes shared memory at " + std::to_string(2 * i) + ", " +
                   describe_spot(spot) + ", " + why + " by " + name_of_actor(by.who) + ", " +
                   describe_spot(by.spot));
  };
  for (std::size_t i = offset / 2; i < (offset + bytes + 1) / 2; ++i) {
    Word& word = shadow[i];
    if (kind != Write::async_end) {
      if (word.pending >= machine.first_epoch)
        refuse("pending copy", i, "without waiting for the copy", word.write);
      if (unordered(word.write, who, warp_epoch))
        refuse("race", i, "written without a barrier between", word.write);
      if (unordered(word.read, who, warp_epoch))
        refuse("race", i, "read without a barrier between", word.read);
    }
    if (kind == Write::async_start)
      word.pending = machine.epoch;
    else
      word.pending = 0, word.write.epoch = machine.epoch, word.write.warp_epoch = warp_epoch;
    word.write.who = who, word.write.spot = spot;
  }
}

// Global memory: buffers between bands in one reserved range, and for every two bytes the block
// that wrote them last.
struct Buffer {
  std::size_t bytes;
  std::string name;
  bool read_only;
};
constexpr std::size_t kArena = std::size_t{1} << 28;
constexpr unsigned char kBandByte = 0xA5;
struct Arena {
  char* base = reserve(kArena);
  std::uint64_t* writer =
      reinterpret_cast<std::uint64_t*>(reserve(kArena / 2 * sizeof(std::uint64_t)));
  std::size_t used = 0;
  std::map<std::size_t, Buffer> buffers;  // by offset
};
Arena global_memory;
bool in_arena(const void* p) {
  return static_cast<const char*>(p) >= global_memory.base &&
         static_cast<const char*>(p) < global_memory.base + kArena;
}

void access_global(const void* p, std::size_t bytes, bool write, const Spot& spot) {
  Arena& a = global_memory;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(p) - a.base);
  const auto action = [&](const std::string& rest) {
    return "thread " + std::to_string(machine.running) + (write ? " writes " : " reads ") + rest +
           ", " + describe_spot(spot);
  };
  auto it = a.buffers.upper_bound(offset);
  if (it == a.buffers.begin() ||
      offset + bytes > std::prev(it)->first + std::prev(it)->second.bytes)
    fail("bounds",
         action(std::to_string(bytes) + " bytes outside of all buffers") +
             (it == a.buffers.begin() ? ""
                                      : ", " + std::to_string(offset - std::prev(it)->first) +
                                            " past the start of " + std::prev(it)->second.name));
  const Buffer& buffer = std::prev(it)->second;
  if (write && buffer.read_only) fail("read-only", action(buffer.name));
  const std::uint64_t me = machine.launches << 32 | (machine.block_number + 1);
  for (std::size_t i = offset / 2; i < (offset + bytes + 1) / 2; ++i) {
    std::uint64_t& writer = a.writer[i];
    if (writer >> 32 == machine.launches && writer != me)
      fail("blocks", action(buffer.name) + ", written by block " +
                         std::to_string((writer & 0xFFFFFFFFu) - 1) + " in the same launch");
    if (write) writer = me;
  }
}

void hook(const void* p, std::size_t bytes, bool write, const void* pc) {
  if (machine.running < 0 || !options.memory) return;
  const char* c = static_cast<const char*>(p);
  if (c >= shared_region && c < shared_region + kSharedMost + 2 * kSharedGuard) {
    ++counts.hooked;
    if (!in_shared(p, bytes))
      fail("bounds", "access of offset " + std::to_string(shared_offset(p)) +
                         " of shared memory, " + describe_spot({pc, {}}));
    write ? write_shared(p, bytes, machine.running, Write::plain, {pc, {}})
          : read_shared(p, bytes, machine.running, false, {pc, {}});
  } else if (in_arena(p)) {
    ++counts.hooked;
    access_global(p, bytes, write, {pc, {}});
  }
}

}  // namespace

bool emulated() { return true; }
bool hooked() { return hooks_seen; }
void wait() {}

void prepare_shared(std::size_t bytes) {
  machine.shared = current.shared = shared_region + kSharedGuard;
  machine.shared_bytes = bytes;
  ASAN_UNPOISON_MEMORY_REGION(machine.shared, bytes);
  ASAN_POISON_MEMORY_REGION(machine.shared + bytes, kSharedMost - bytes);
  std::memset(machine.shared, 0xFF, bytes);
  if (shadow.size() < bytes / 2 + 1) shadow.resize(bytes / 2 + 1);
}

void shared_read(const void* p, std::size_t bytes, int thread, bool whole_warp, Place at) {
  if (options.memory) read_shared(p, bytes, thread, whole_warp, {nullptr, at});
}
void shared_write(const void* p, std::size_t bytes, int thread, Write kind, Place at) {
  if (options.memory) write_shared(p, bytes, thread, kind, {nullptr, at});
}
void global_read(const void* p, std::size_t bytes, Place at) {
  if (options.memory && in_arena(p)) access_global(p, bytes, false, {nullptr, at});
}

void* allocate(std::size_t bytes, const char* name) {
  Arena& a = global_memory;
  if (a.buffers.empty()) a.used = 0;
  const std::size_t at = a.used + kBand, end = (at + bytes + kBand + 255) / 256 * 256;
  if (end > kArena) throw std::bad_alloc();
  ASAN_UNPOISON_MEMORY_REGION(a.base + a.used, end - a.used);
  std::memset(a.base + a.used, kBandByte, end - a.used);
  std::memset(a.base + at, 0xFF, bytes);
  ASAN_POISON_MEMORY_REGION(a.base + a.used, kBand);
  ASAN_POISON_MEMORY_REGION(a.base + at + (bytes + 7) / 8 * 8, end - at - (bytes + 7) / 8 * 8);
  a.used = end;
  a.buffers[at] = {bytes, name, false};
  return a.base + at;
}

void set_read_only(const void* p) {
  global_memory.buffers.at(static_cast<const char*>(p) - global_memory.base).read_only = true;
}

bool release(void* p) {
  Arena& a = global_memory;
  const auto it = a.buffers.find(static_cast<char*>(p) - a.base);
  const std::size_t bytes = it->second.bytes;
  a.buffers.erase(it);
  char* c = static_cast<char*>(p);
  ASAN_UNPOISON_MEMORY_REGION(c - kBand, bytes + 2 * kBand);
  bool untouched = true;
  for (std::size_t i = 0; i < kBand; ++i)
    untouched &= static_cast<unsigned char>(c[-1 - std::ptrdiff_t(i)]) == kBandByte &&
                 static_cast<unsigned char>(c[bytes + i]) == kBandByte;
  return untouched;
}

bool in_global_memory(const void* p) { return in_arena(p); }

void set_hooked() { hooks_seen = true; }

}  // namespace tfm::emulator

// The hooks that g++ calls before loads and stores of code compiled with -fsanitize=thread.
extern "C" {
using tfm::emulator::hook;
#define TFM_HOOKS(n)                                                                         \
  void __tsan_read##n(void* p) { hook(p, n, false, __builtin_return_address(0)); }           \
  void __tsan_write##n(void* p) { hook(p, n, true, __builtin_return_address(0)); }           \
  void __tsan_unaligned_read##n(void* p) { hook(p, n, false, __builtin_return_address(0)); } \
  void __tsan_unaligned_write##n(void* p) { hook(p, n, true, __builtin_return_address(0)); }
TFM_HOOKS(1)
TFM_HOOKS(2)
TFM_HOOKS(4)
TFM_HOOKS(8)
TFM_HOOKS(16)
void __tsan_read_range(void* p, std::size_t n) { hook(p, n, false, __builtin_return_address(0)); }
void __tsan_write_range(void* p, std::size_t n) { hook(p, n, true, __builtin_return_address(0)); }
void __tsan_init() { tfm::emulator::set_hooked(); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
