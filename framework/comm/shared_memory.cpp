#include "comm/shared_memory.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <atomic>
#include <cstring>
#include <new>

namespace tfm::comm {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kStream = 16 * 1024;
constexpr int kSpins = 4000, kYields = 8;
using Counter = std::atomic<std::uint32_t>;
static_assert(Counter::is_always_lock_free && sizeof(Counter) == 4, "a futex word");

bool reached(std::uint32_t value, std::uint32_t count) {
  return static_cast<std::int32_t>(value - count) >= 0;
}  // may wrap

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // waits some ten cycles, as `yield` does on few processors
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

void futex(Counter& word, int op, std::uint32_t value, const timespec* limit = nullptr) {
  syscall(SYS_futex, &word, op, value, limit, nullptr, 0);
}
// Between looks at other communication: what MPI has taken may leave in its next call only.
constexpr timespec kSleep{.tv_sec = 0, .tv_nsec = 10'000'000};

void copy(char* to, const char* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

// Into a slot, for a rank on another core where `far`. Long data goes past the caches: fetching a
// line that is modified in a far core's cache takes several times as long as fetching it from
// memory.
void copy_out(char* slot, const char* from, std::int64_t bytes, [[maybe_unused]] bool far) {
#if defined(__SSE2__)
  if (far && bytes >= kStream) {
    const std::int64_t lines = bytes / 64 * 64;
    for (std::int64_t i = 0; i < lines; i += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(slot + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    copy(slot + lines, from + lines, bytes - lines);
    return _mm_sfence();
  }
#endif
  copy(slot, from, bytes);
}

}  // namespace

struct alignas(64) SharedMemoryCommunicator::Line {
  Counter passed[3];
  Counter sleepers;      // ranks that sleep on one of these counters
  std::atomic<int> cpu;  // where the rank last ran
};

std::int64_t SharedMemoryCommunicator::memory_bytes(int size) {
  return size * (kPage + staging_bytes(size));
}

SharedMemoryCommunicator::SharedMemoryCommunicator(int rank, int size, AxisSet axes,
                                                   std::shared_ptr<FlightRecorder> recorder,
                                                   void* memory, bool own_core,
                                                   std::function<bool()> bring_on,
                                                   std::shared_ptr<void> owner)
    : StagedCommunicator(rank, size, axes, std::move(recorder)),
      memory_(static_cast<char*>(memory)),
      own_core_(own_core),
      bring_on_(std::move(bring_on)),
      owner_(std::move(owner)),
      sources_(static_cast<std::size_t>(size)) {
  new (&line(rank)) Line{};
  std::memset(memory_ + size * kPage + rank * kSlots * slot_bytes(size), 0,
              static_cast<std::size_t>(kSlots * slot_bytes(size)));
}

SharedMemoryCommunicator::Line& SharedMemoryCommunicator::line(int rank) const {
  return *reinterpret_cast<Line*>(memory_ + rank * kPage);
}

char* SharedMemoryCommunicator::slot(int rank, const Piece& piece) const {
  return memory_ + size() * kPage + (rank * kSlots + piece.slot()) * slot_bytes(size());
}

SharedMemoryCommunicator::Awaited SharedMemoryCommunicator::awaited(Stage stage,
                                                                    const Piece& piece) const {
  const auto number = static_cast<std::uint32_t>(piece.number);
  if (stage == Stage::publish)
    return {piece.number < kSlots, -1, Stage::finish, number + 1 - kSlots};
  if (stage == Stage::reduce) return {piece.call.direct, -1, Stage::publish, number + 1};
  if (!piece.call.direct) return {!piece.call.returns_all(), -1, Stage::reduce, number + 1};
  const int only = piece.call.op == Collective::broadcast    ? piece.call.root
                   : piece.call.op == Collective::ring_shift ? previous()
                                                             : -1;
  return {only == rank(), only, Stage::publish, number + 1};
}

template <class F>
bool SharedMemoryCommunicator::all_awaited(const Awaited& a, F&& f) {
  if (a.nothing) return true;
  if (a.only >= 0) return f(a.only);
  for (int r = 0; r < size(); ++r)
    if (r != rank() && !f(r)) return false;
  return true;
}

bool SharedMemoryCommunicator::ready(Stage stage, const Piece& piece) {
  const Awaited a = awaited(stage, piece);
  return all_awaited(a, [&](int r) {
    return reached(line(r).passed[static_cast<int>(a.of)].load(std::memory_order_acquire), a.count);
  });
}

void SharedMemoryCommunicator::wait(Stage stage, const Piece& piece) {
  const Awaited a = awaited(stage, piece);
  all_awaited(a, [&](int r) {
    sleep_until(r, a.of, a.count);
    return true;
  });
}

void SharedMemoryCommunicator::sleep_until(int rank, Stage of, std::uint32_t count) {
  Line& l = line(rank);
  Counter& counter = l.passed[static_cast<int>(of)];
  const bool same_core = l.cpu.load(std::memory_order_relaxed) ==
                         sched_getcpu();  // spinning would keep it from running
  for (int i = own_core_ && !same_core ? kSpins : 0; i > 0; --i, relax())
    if (reached(counter.load(std::memory_order_acquire), count)) return;
  for (int i = kYields; i > 0; --i, sched_yield())
    if (reached(counter.load(std::memory_order_acquire), count)) return;
  while (bring_on_()) {
    if (reached(counter.load(std::memory_order_acquire), count)) return;
    usleep(50);
  }
  ++l.sleepers;
  for (std::uint32_t value = counter; !reached(value, count); value = counter) {
    futex(counter, FUTEX_WAIT, value, &kSleep);
    bring_on_();
  }
  --l.sleepers;
}

void SharedMemoryCommunicator::run(Stage stage, const Piece& piece) {
  if (stage == Stage::publish) publish(piece);
  if (stage == Stage::reduce) reduce(piece);
  if (stage == Stage::finish) finish_piece(piece);
  Line& l = line(rank());
  l.cpu.store(sched_getcpu(), std::memory_order_relaxed);
  Counter& counter = l.passed[static_cast<int>(stage)];
  counter = static_cast<std::uint32_t>(piece.number + 1);
  if (l.sleepers > 0) futex(counter, FUTEX_WAKE, INT32_MAX);
}

void SharedMemoryCommunicator::publish(const Piece& piece) {
  const Call& c = piece.call;
  if (c.direct && c.op != Collective::all_to_all) {
    const bool source = c.op != Collective::broadcast || c.root == rank();
    if (source)
      copy_out(slot(rank(), piece), c.in + piece.local().offset, piece.local().bytes, own_core_);
    return;
  }
  for (int r = 0; r < size(); ++r)
    if (r != rank())
      copy_out(slot(rank(), piece) + r * lane_bytes(), c.in + piece.part(r).offset,
               piece.part(r).bytes, own_core_);
}

void SharedMemoryCommunicator::reduce(const Piece& piece) {
  const Call& c = piece.call;
  if (c.direct) return;
  const ByteRange own = piece.part(rank());
  if (own.bytes == 0) return;
  const std::int64_t lane = rank() * lane_bytes();
  for (int r = 0; r < size(); ++r)
    sources_[static_cast<std::size_t>(r)] = r == rank() ? c.in + own.offset : slot(r, piece) + lane;
  // `out` of a reduce_scatter is one part long.
  char* out = c.out + (c.returns_all() ? own.offset : piece.local().offset);
  combine(c, sources_, own.bytes, out);
  if (c.returns_all()) copy_out(slot(rank(), piece) + lane, out, own.bytes, own_core_);
}

void SharedMemoryCommunicator::finish_piece(const Piece& piece) {
  const Call& c = piece.call;
  const ByteRange local = piece.local();
  if (c.op == Collective::broadcast) {
    if (c.root != rank()) copy(c.out + local.offset, slot(c.root, piece), local.bytes);
  } else if (c.op == Collective::ring_shift) {
    copy(c.out + local.offset, slot(previous(), piece), local.bytes);
  } else if (c.op == Collective::all_gather) {
    copy_own(piece);
    for (int r = 0; r < size(); ++r)
      if (r != rank()) copy(c.out + piece.part(r).offset, slot(r, piece), piece.part(r).bytes);
  } else if (c.op == Collective::all_to_all) {
    copy_own(piece);
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        copy(c.out + piece.part(r).offset, slot(r, piece) + rank() * lane_bytes(),
             piece.part(r).bytes);
  } else if (c.direct && c.reduces()) {
    for (int r = 0; r < size(); ++r) sources_[static_cast<std::size_t>(r)] = slot(r, piece);
    combine(c, sources_, local.bytes, c.out + local.offset);
  } else if (c.returns_all()) {
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        copy(c.out + piece.part(r).offset, slot(r, piece) + r * lane_bytes(), piece.part(r).bytes);
  }
}

}  // namespace tfm::comm
