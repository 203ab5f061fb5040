#include "comm/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>

namespace tfm::comm {
namespace {

template <class T>
using Cell = std::atomic<T>;
static_assert(Cell<std::uint64_t>::is_always_lock_free && Cell<double>::is_always_lock_free,
              "shared between processes");

struct EventCell {
  Cell<Collective> op;
  Cell<AxisSet> axes;
  Cell<std::int64_t> bytes;
  Cell<std::uint64_t> number, ordinal;
  Cell<double> entered, left;
  Cell<int> peer;

  void store(const Event& e) {
    op = e.op, axes = e.axes, bytes = e.bytes, number = e.number, ordinal = e.ordinal,
    entered = e.entered, left = e.left, peer = e.peer;
  }
  Event load() const { return {op, axes, bytes, number, ordinal, entered, left, peer}; }
};

}  // namespace

struct alignas(64) FlightRecorder::Record {
  Cell<int> pid = 0;
  Cell<std::int64_t> step = -1;
  Cell<double> heartbeat = 0, moved = 0, device_moved = 0;
  Cell<std::uint64_t> waiting = 0;  // ordinal of the collective the rank waits in
  Cell<std::uint64_t> count = 0;    // collectives so far
  Cell<std::uint64_t> entered[AxisSet::kSets] = {};
  Cell<bool> reported = false;
  // Copies: what a rank or its device waits for may lie further back than the ring is long.
  EventCell waited = {}, device = {};
  EventCell ring[kEvents] = {};
};

std::string Event::str() const {
  return std::string(name_of(op)) + " #" + std::to_string(number) +
         (peer < 0                 ? ""
          : op == Collective::send ? " to rank " + std::to_string(peer)
                                   : " from rank " + std::to_string(peer)) +
         " on the " + name_of(axes) + " axis (" + std::to_string(bytes) + " bytes)";
}

std::size_t FlightRecorder::record_bytes() { return sizeof(Record); }

double FlightRecorder::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

FlightRecorder::FlightRecorder(Layout layout, int rank, std::vector<void*> records)
    : layout_(layout), rank_(rank) {
  TFM_CHECK(static_cast<int>(records.size()) == layout.world(), "one record per rank");
  for (void* r : records) records_.push_back(static_cast<Record*>(r));
  TFM_CHECK(records_[static_cast<std::size_t>(rank)], "a rank must see its own record");
  new (&own()) Record{};
  own().pid = getpid();
  own().heartbeat = now();
}

Event FlightRecorder::begin(AxisSet axes, Collective op, std::int64_t bytes, int peer) {
  Record& r = own();
  Event e{op, axes, bytes, r.entered[axes.bits()] + 1, r.count + 1, now(), 0, peer};
  r.ring[e.ordinal % kEvents].store(e);
  r.count = e.ordinal;
  r.entered[axes.bits()] = e.number;
  return e;
}

void FlightRecorder::wait(const Event& event) {
  own().moved = wait_began_ = now();
  own().waited.store(event);
  own().waiting = event.ordinal;
}

void FlightRecorder::moved() { own().moved.store(now(), std::memory_order_relaxed); }

void FlightRecorder::end(const Event& event) {
  Record& r = own();
  EventCell& cell = r.ring[event.ordinal % kEvents];
  const double left = now();
  if (cell.ordinal == event.ordinal) cell.left = left;
  if (r.waiting == event.ordinal) waited_[event.axes.bits()] += left - wait_began_;
  hand_over(event);
}

void FlightRecorder::hand_over(const Event& event) {
  if (own().waiting == event.ordinal) own().waiting = 0;
}

void FlightRecorder::device_waits(const Event& oldest) {
  own().device_moved = now();
  own().device.store(oldest);
}

void FlightRecorder::fail(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = reason;
}

std::string FlightRecorder::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void FlightRecorder::heartbeat(std::int64_t step) {
  own().step = step;
  own().heartbeat = now();
}

void FlightRecorder::sign_off() { own().pid = 0; }

FlightRecorder::Status FlightRecorder::status(int rank) const {
  const Record& r = *records_[static_cast<std::size_t>(rank)];
  Status s{r.pid, r.step, r.heartbeat, r.moved, {}, {}};
  std::ranges::copy(r.entered, s.entered.begin());
  if (const std::uint64_t waiting = r.waiting) {
    const Event e = r.waited.load();
    if (e.ordinal == waiting) s.waiting = e;
  }
  const Event device = r.device.load();
  if (device.ordinal && (!s.waiting || device.ordinal < s.waiting->ordinal))
    s.waiting = device, s.moved = r.device_moved;
  return s;
}

std::vector<Event> FlightRecorder::recent(int rank) const {
  const Record& r = *records_[static_cast<std::size_t>(rank)];
  const std::uint64_t count = r.count;
  std::vector<Event> events;
  for (std::uint64_t i = count > kEvents ? count - kEvents + 1 : 1; i <= count; ++i) {
    const Event e = r.ring[i % kEvents].load();
    if (e.ordinal == i) events.push_back(e);
  }
  return events;
}

bool FlightRecorder::claim_report() {
  for (Record* r : records_)
    if (r) return !r->reported.exchange(true);
  return false;
}

}  // namespace tfm::comm
