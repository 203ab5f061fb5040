// Where a program's buffers lie.
#include <algorithm>
#include <utility>

#include "graph/planner_impl.h"

namespace tfm::graph {
namespace {

constexpr std::int64_t kAligned = 64;

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

// In front of the arena, by their begins: gradients, and between them what always is 0.
std::vector<Placed> gradients_in_front(const Program& p) {
  std::vector<Placed> all;
  for (const Buffer& b : p.buffers())
    if (b.in_front) all.push_back({b.first, b.last, b.offset, b.offset + b.bytes});
  std::ranges::sort(all, {}, &Placed::begin);
  const std::size_t gradients = all.size();
  std::int64_t at = -p.bytes_in_front();
  for (std::size_t i = 0; i <= gradients; ++i) {
    const std::int64_t next = i < gradients ? all[i].begin : 0;
    if (next > at) all.push_back({0, static_cast<int>(p.steps().size()), at, next});
    if (i < gradients) at = all[i].end;
  }
  std::ranges::sort(all, {}, &Placed::begin);
  return all;
}

// The most bytes that are live at once, beside what is `placed`: no placement takes less.
std::int64_t most_live(const Program& p, bool carried, const std::vector<Placed>& placed) {
  std::vector<std::int64_t> change(p.steps().size() + 2);
  const auto add = [&](int first, int last, std::int64_t bytes) {
    change[static_cast<std::size_t>(first)] += bytes;
    change[static_cast<std::size_t>(last) + 1] -= bytes;
  };
  for (const Placed& x : placed) add(x.first, x.last, x.end - x.begin);
  for (const int b : in_arena(p.buffers(), carried))
    add(p.buffers()[b].first, p.buffers()[b].last, round_up(p.buffers()[b].bytes, kAligned));
  std::int64_t live = 0, most = 0;
  for (const std::int64_t c : change) most = std::max(most, live += c);
  return most - (placed.empty() ? 0 : p.bytes_in_front());
}

// In the order given, each at the lowest offset that is free during its life. Returns the bytes
// taken of the arena.
std::int64_t put(std::vector<Buffer>& buffers, const std::vector<int>& order,
                 std::vector<Placed> placed) {
  const std::int64_t lowest = placed.empty() ? 0 : placed[0].begin;
  std::int64_t bytes = 0;
  for (const int b : order) {
    Buffer& buf = buffers[b];
    const std::int64_t size = round_up(buf.bytes, kAligned);
    std::int64_t offset = lowest;
    for (const Placed& other : placed) {
      if (other.first > buf.last || buf.first > other.last) continue;
      if (offset + size <= other.begin) break;
      offset = std::max(offset, other.end);
    }
    buf.offset = offset;
    bytes = std::max(bytes, offset + size);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, &Placed::begin),
                  {buf.first, buf.last, offset, offset + size});
  }
  return bytes;
}

// In the better of two orders: what is largest first, or what lives longest.
std::int64_t place(std::vector<Buffer>& buffers, bool carried, const std::vector<Placed>& placed) {
  std::vector<int> largest = in_arena(buffers, carried), longest = largest;
  const auto size = [&](int b) { return buffers[b].bytes; };
  const auto life = [&](int b) { return std::pair(buffers[b].last - buffers[b].first, size(b)); };
  std::ranges::stable_sort(largest, std::greater(), size);
  std::ranges::stable_sort(longest, std::greater(), life);
  const std::int64_t by_life = put(buffers, longest, placed),
                     by_size = put(buffers, largest, placed);
  return by_size <= by_life ? by_size : put(buffers, longest, placed);
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
  p.shared_bytes_ = graph::place(p.buffers_, false, gradients_in_front(p));
  p.slot_bytes_ = graph::place(p.buffers_, true, {});
  for (Buffer& b : p.buffers_)
    if (b.within >= 0) {
      b.carried = p.buffers_[b.within].carried;
      b.offset += p.buffers_[b.within].offset;
    }
  p.draft_ = false;
}

}  // namespace tfm::graph
