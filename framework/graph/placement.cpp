// Placement of a program's buffers in the arena.
#include <algorithm>
#include <utility>

#include "device/arena.h"
#include "graph/planner_impl.h"

namespace tfm::graph {
namespace {

struct Placed {
  int first, last;  // steps
  std::int64_t begin, end;
};

std::vector<int> in_arena(const std::vector<Buffer>& buffers, bool carried) {
  std::vector<int> some;
  for (int b = 0; b < static_cast<int>(buffers.size()); ++b)
    if (buffers[b].in_arena() && buffers[b].first >= 0 && buffers[b].carried == carried)
      some.push_back(b);
  return some;
}

// Occupied ranges in front of the arena, sorted by begin: gradients, and the gaps between them,
// which must always stay zero.
std::vector<Placed> gradients_in_front(const Program& p) {
  std::vector<Placed> all;
  for (const Buffer& b : p.buffers())
    if (b.in_front) all.push_back({b.first, b.last, b.offset, b.offset + b.bytes});
  std::ranges::sort(all, {}, &Placed::begin);
  const std::size_t gradients = all.size();
  std::int64_t at = -p.bytes_in_front();
  for (std::size_t i = 0; i <= gradients; ++i) {
    const std::int64_t next = i < gradients ? all[i].begin : 0;
    if (next > at) all.push_back({0, static_cast<int>(p.instructions().size()), at, next});
    if (i < gradients) at = all[i].end;
  }
  std::ranges::sort(all, {}, &Placed::begin);
  return all;
}

// Lower bound of the bytes of any placement: the most bytes that are live at once in the arena,
// given what is `placed` in front of it.
std::int64_t most_live(const Program& p, bool carried, const std::vector<Placed>& placed) {
  std::vector<std::int64_t> change(p.instructions().size() + 2);
  const auto add = [&](int first, int last, std::int64_t bytes) {
    change[static_cast<std::size_t>(first)] += bytes;
    change[static_cast<std::size_t>(last) + 1] -= bytes;
  };
  for (const Placed& x : placed) add(x.first, x.last, x.end - x.begin);
  for (const int b : in_arena(p.buffers(), carried))
    add(p.buffers()[b].first, p.buffers()[b].last,
        round_up(p.buffers()[b].bytes, device::kAlignment));
  std::int64_t live = 0, most = 0;
  for (const std::int64_t c : change) most = std::max(most, live += c);
  return most - (placed.empty() ? 0 : p.bytes_in_front());
}

// The placed ranges sorted by begin: all of them, and those live in each span of kSpan steps. Most
// buffers live within one span. In a span, adjacent ranges that are live throughout it are merged.
class Occupied {
 public:
  Occupied(const std::vector<Placed>& placed, std::size_t steps)
      : lowest_(placed.empty() ? 0 : placed[0].begin), spans_(steps / kSpan + 1) {
    for (const Placed& p : placed) add(p);
  }

  // The lowest offset at which `size` bytes are free in steps [first, last].
  std::int64_t lowest_free(int first, int last, std::int64_t size) const {
    std::int64_t offset = lowest_;
    for (const Placed& p : first / kSpan == last / kSpan ? spans_[first / kSpan] : all_) {
      if (p.first > last || first > p.last) continue;
      if (offset + size <= p.begin) break;
      offset = std::max(offset, p.end);
    }
    return offset;
  }

  void add(const Placed& p) {
    insert(all_, p);
    for (int s = p.first / kSpan; s <= p.last / kSpan; ++s) {
      const auto throughout = [&](const Placed& x) {
        return x.first <= s * kSpan && x.last >= (s + 1) * kSpan - 1;
      };
      std::vector<Placed>& span = spans_[s];
      const auto next = place_of(span, p);
      if (next != span.begin() && throughout(p) && throughout(*std::prev(next)) &&
          std::prev(next)->end == p.begin)
        std::prev(next)->end = p.end;
      else
        span.insert(next, p);
    }
  }

 private:
  static constexpr int kSpan = 64;
  static std::vector<Placed>::iterator place_of(std::vector<Placed>& some, const Placed& p) {
    return std::ranges::upper_bound(some, p.begin, {}, &Placed::begin);
  }
  static void insert(std::vector<Placed>& some, const Placed& p) {
    some.insert(place_of(some, p), p);
  }

  std::int64_t lowest_;
  std::vector<Placed> all_;
  std::vector<std::vector<Placed>> spans_;
};

// Places buffers in the given order, each at the lowest offset that is free while it is live.
// Returns the bytes used in the arena.
std::int64_t put(std::vector<Buffer>& buffers, const std::vector<int>& order, Occupied occupied) {
  std::int64_t bytes = 0;
  for (const int b : order) {
    Buffer& buf = buffers[b];
    const std::int64_t size = round_up(buf.bytes, device::kAlignment);
    buf.offset = occupied.lowest_free(buf.first, buf.last, size);
    bytes = std::max(bytes, buf.offset + size);
    occupied.add({buf.first, buf.last, buf.offset, buf.offset + size});
  }
  return bytes;
}

// Places buffers in the better of two orders: largest first, or longest-lived first. Returns the
// bytes used.
std::int64_t place(std::vector<Buffer>& buffers, bool carried, const Occupied& occupied) {
  std::vector<int> largest = in_arena(buffers, carried), longest = largest;
  const auto size = [&](int b) { return buffers[b].bytes; };
  const auto life = [&](int b) { return std::pair(buffers[b].last - buffers[b].first, size(b)); };
  std::ranges::stable_sort(largest, std::greater(), size);
  std::ranges::stable_sort(longest, std::greater(), life);
  std::vector<Buffer> by_size = buffers;
  const std::int64_t bytes = put(buffers, longest, occupied),
                     other = put(by_size, largest, occupied);
  if (other <= bytes) buffers = std::move(by_size);
  return std::min(bytes, other);
}

}  // namespace

void Planner::bound_arena() {
  for (Buffer& b : program_.buffers_)
    b.carried = options_.slots > 0 && b.in_arena() && b.first >= 0 && !b.lasting &&
                program_.section_at(b.first) != program_.section_at(b.last);
  program_.shared_bytes_ = most_live(program_, false, gradients_in_front(program_));
  program_.slot_bytes_ = most_live(program_, true, {});
  program_.draft_ = true;
}

void Planner::place(Program& p) {
  p.shared_bytes_ =
      graph::place(p.buffers_, false, Occupied(gradients_in_front(p), p.instructions_.size()));
  p.slot_bytes_ = graph::place(p.buffers_, true, Occupied({}, p.instructions_.size()));
  for (Buffer& b : p.buffers_)
    if (b.within >= 0) {
      b.carried = p.buffers_[b.within].carried;
      b.offset += p.buffers_[b.within].offset;
    }
  p.draft_ = false;
}

}  // namespace tfm::graph
