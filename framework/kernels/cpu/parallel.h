#pragma once
// Loops over a stream's OpenMP team, and scratch memory per thread. Results never depend on the
// size of the team.
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "core/error.h"
#include "device/stream.h"

namespace tfm::kernels {

// Number of elements below which waking the team costs more than it saves.
inline constexpr std::int64_t kTeamWork = 16384;

// Number of threads for work that starts now: 1 if the calling thread is part of a team.
inline int usable_threads(const cpu::Stream& stream) {
  return omp_in_parallel() ? 1 : stream.threads;
}

// Sets the calling thread's OpenMP team size in this object's lifetime, for libraries that take
// their number of threads from it.
class TeamSize {
 public:
  explicit TeamSize(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~TeamSize() { omp_set_num_threads(before_); }
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;

 private:
  int before_;
};

// Calls f(i) for i in [0, n), a contiguous part in each thread. `work` is the number of elements
// that all calls touch together.
template <class F>
void parallel(cpu::Stream& stream, std::int64_t n, std::int64_t work, F&& f) {
  if (stream.threads <= 1 || n <= 1 || work < kTeamWork) {
    for (std::int64_t i = 0; i < n; ++i) f(i);
    return;
  }
#pragma omp parallel for num_threads(stream.threads) schedule(static)
  for (std::int64_t i = 0; i < n; ++i) f(i);
}

// The same for few large tasks of different lengths, with dynamic scheduling.
template <class F>
void parallel_tasks(cpu::Stream& stream, std::int64_t n, F&& f) {
  if (stream.threads <= 1 || n <= 1) {
    for (std::int64_t i = 0; i < n; ++i) f(i);
    return;
  }
#pragma omp parallel for num_threads(stream.threads) schedule(dynamic, 1)
  for (std::int64_t i = 0; i < n; ++i) f(i);
}

// Calls f(begin, end) for parts of [0, n), of which all but the last have kRange elements.
inline constexpr std::int64_t kRange = 8192;
template <class F>
void parallel_ranges(cpu::Stream& stream, std::int64_t n, F&& f) {
  parallel(stream, ceil_div(n, kRange), n,
           [&](std::int64_t i) { f(i * kRange, std::min(n, (i + 1) * kRange)); });
}

// Division of rows into blocks that depends only on their number, so that partial sums of the
// blocks can be added in a fixed order.
struct RowBlocks {
  explicit RowBlocks(std::int64_t all)
      : rows(all),
        size(std::max<std::int64_t>(16, ceil_div(all, 64))),
        count(ceil_div(all, size)) {}
  std::int64_t begin(std::int64_t block) const { return block * size; }
  std::int64_t end(std::int64_t block) const { return std::min(rows, (block + 1) * size); }
  std::int64_t rows, size, count;
};

// Memory of at least n elements, 64-byte aligned, from 2 MiB on in huge pages where there are any,
// owned by the calling thread and kept between calls, one buffer for each type and `Use`, a name:
// scratch<float, struct Scores>(n). A larger request for the same one discards its content and
// invalidates earlier pointers. Throws std::bad_alloc.
template <class T, class Use>
T* scratch(std::int64_t n) {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<void, Free> memory;
  thread_local std::int64_t capacity = 0;
  if (n > capacity) {
    constexpr std::int64_t kHugePage = 2 << 20;
    const std::int64_t size = n * static_cast<std::int64_t>(sizeof(T));
    const bool huge = size >= kHugePage;
    const std::int64_t bytes = round_up(size, huge ? kHugePage : 4096);
    memory.reset();
    capacity = 0;
    memory.reset(std::aligned_alloc(huge ? kHugePage : 64, static_cast<std::size_t>(bytes)));
    if (!memory) throw std::bad_alloc();
    if (huge) madvise(memory.get(), static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
    capacity = bytes / static_cast<std::int64_t>(sizeof(T));
  }
  return static_cast<T*>(memory.get());
}

}  // namespace tfm::kernels
