#include "comm/staged.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <type_traits>

namespace tfm::comm {
namespace {

constexpr std::int64_t kBlock = 1024;  // sums of so many elements stay in the first-level cache

// f over elements [at, at + n) of all sources: of the first half of them and of the second, each in
// this way, for which `rest` has room.
template <class T, class F>
void fold_block(std::span<const char* const> sources, std::int64_t at, std::int64_t n,
                Accum<T>* out, Accum<T>* rest, F f) {
  const T* a = reinterpret_cast<const T*>(sources[0]) + at;
  if (sources.size() == 1) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = Accum<T>(a[i]);
    return;
  }
  if (sources.size() == 2) {
    const T* b = reinterpret_cast<const T*>(sources[1]) + at;
    for (std::int64_t i = 0; i < n; ++i) out[i] = f(Accum<T>(a[i]), Accum<T>(b[i]));
    return;
  }
  const std::size_t half = sources.size() / 2;
  fold_block<T>(sources.first(half), at, n, out, rest, f);
  fold_block<T>(sources.subspan(half), at, n, rest, rest + kBlock, f);
  for (std::int64_t i = 0; i < n; ++i) out[i] = f(out[i], rest[i]);
}

// 16-bit elements are rounded once, at the end.
template <class T, class F>
void fold(const std::vector<const char*>& sources, std::int64_t n, char* out, F f) {
  const std::size_t levels = static_cast<std::size_t>(std::bit_width(sources.size()));
  std::vector<Accum<T>> blocks((levels + 1) * kBlock);
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t m = std::min(kBlock, n - at);
    fold_block<T>(sources, at, m, blocks.data(), blocks.data() + kBlock, f);
    T* to = reinterpret_cast<T*>(out) + at;
    for (std::int64_t i = 0; i < m; ++i) to[i] = T(blocks[static_cast<std::size_t>(i)]);
  }
}

template <class T>
void fold_as(Collective op, const std::vector<const char*>& sources, std::int64_t bytes,
             char* out) {
  const std::int64_t n = bytes / static_cast<std::int64_t>(sizeof(T));
  if (op == Collective::all_reduce_max) {
    fold<T>(sources, n, out,
            [](Accum<T> a, Accum<T> b) { return b > a || b != b ? b : a; });  // a NaN stays
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;  // wraps
    fold<U>(sources, n, out, [](U a, U b) { return static_cast<U>(a + b); });
  } else {
    fold<T>(sources, n, out, [](Accum<T> a, Accum<T> b) { return a + b; });
  }
}

}  // namespace

StagedCommunicator::StagedCommunicator(int rank, int size, AxisSet axes,
                                       std::shared_ptr<FlightRecorder> recorder)
    : rank_(rank), size_(size), axes_(axes), recorder_(std::move(recorder)) {
  TFM_CHECK(size > 1, "a group of one rank has nothing to exchange");
}

StagedCommunicator::ByteRange StagedCommunicator::Piece::part(int r) const {
  const std::int64_t within = static_cast<std::int64_t>(number - call.first) * call.chunk;
  const std::int64_t start = r * call.part + within;
  const std::int64_t n =
      std::clamp<std::int64_t>(std::min(call.part - within, call.count - start), 0, call.chunk);
  const auto width = size_of(call.dtype);
  return {start * width, n * width};
}

void StagedCommunicator::combine(const Call& call, const std::vector<const char*>& sources,
                                 std::int64_t bytes, char* out) {
  switch (call.dtype) {
    case DType::f32:
      return fold_as<float>(call.op, sources, bytes, out);
    case DType::bf16:
      return fold_as<bf16>(call.op, sources, bytes, out);
    case DType::f16:
      return fold_as<f16>(call.op, sources, bytes, out);
    case DType::f64:
      return fold_as<double>(call.op, sources, bytes, out);
    case DType::i32:
      return fold_as<std::int32_t>(call.op, sources, bytes, out);
    case DType::i64:
      return fold_as<std::int64_t>(call.op, sources, bytes, out);
  }
}

void StagedCommunicator::copy_own(const Piece& piece) const {
  const bool gathers = piece.call.op == Collective::all_gather;
  const ByteRange to = piece.part(rank_), from = gathers ? piece.local() : to;
  if (piece.call.in != piece.call.out + to.offset - from.offset && from.bytes > 0)
    std::memcpy(piece.call.out + to.offset, piece.call.in + from.offset,
                static_cast<std::size_t>(from.bytes));
}

StagedCommunicator::Call StagedCommunicator::call(Collective kind, Tensor in, Tensor out) const {
  Call c{.op = kind,
         .in = static_cast<char*>(in.data),
         .out = static_cast<char*>(out.data),
         .dtype = in.dtype};
  const auto width = size_of(in.dtype);
  TFM_CHECK(in.dtype == out.dtype, "`in` and `out` have one type");
  if (kind == Collective::all_gather) {
    TFM_CHECK(in.elements() * size_ == out.elements(), "`out` must hold one `in` per rank");
    c.direct = true;
    c.count = out.elements();
    c.part = in.elements();
    c.chunk = slot_bytes(size_) / width;
    return c;
  }
  if (kind == Collective::ring_shift) {
    TFM_CHECK(in.elements() == out.elements(), "`in` and `out` have one size");
    c.direct = true;
    c.count = c.part = in.elements();
    c.chunk = slot_bytes(size_) / width;
    return c;
  }
  if (kind == Collective::all_to_all) {
    TFM_CHECK(in.elements() == out.elements() && in.elements() % size_ == 0,
              "`in` and `out` must have an equal part for each rank");
    c.direct = true;
    c.count = in.elements();
    c.part = c.count / size_;
    c.chunk = lane_bytes() / width;
    return c;
  }
  TFM_CHECK(c.reduces(), "`start` runs no " + std::string(name_of(kind)));
  c.count = in.elements();
  c.direct = c.returns_all() && in.bytes() <= kDirectBytes;
  c.chunk = lane_bytes() / width;
  if (c.direct) {
    c.part = c.count;
  } else if (c.returns_all()) {
    c.part = round_up(ceil_div(c.count, size_), 64 / width);
  } else {
    TFM_CHECK(in.elements() == out.elements() * size_, "`in` must hold one `out` per rank");
    c.part = out.elements();
  }
  return c;
}

void StagedCommunicator::all_reduce(Tensor t, Collective kind) {
  TFM_CHECK(kind <= Collective::all_reduce_max, "all_reduce supports sum and maximum");
  submit_and_complete(call(kind, t, t), t.bytes());
}

void StagedCommunicator::reduce_scatter(Tensor in, Tensor out) {
  submit_and_complete(call(Collective::reduce_scatter, in, out), in.bytes());
}

void StagedCommunicator::all_gather(Tensor in, Tensor out) {
  submit_and_complete(call(Collective::all_gather, in, out), out.bytes());
}

void StagedCommunicator::ring_shift(Tensor in, Tensor out) {
  submit_and_complete(call(Collective::ring_shift, in, out), in.bytes());
}

void StagedCommunicator::all_to_all(Tensor in, Tensor out) {
  submit_and_complete(call(Collective::all_to_all, in, out), in.bytes());
}

void StagedCommunicator::broadcast(Tensor t, int root) {
  TFM_CHECK(root >= 0 && root < size_, "the root must be a rank of the group");
  Call c{.op = Collective::broadcast,
         .direct = true,
         .in = static_cast<char*>(t.data),
         .out = static_cast<char*>(t.data)};
  c.dtype = t.dtype;
  c.root = root;
  c.count = c.part = t.elements();
  c.chunk = slot_bytes(size_) / size_of(c.dtype);
  submit_and_complete(c, t.bytes());
}

void StagedCommunicator::barrier() { submit_and_complete({.direct = true}, 0); }

Communicator::Ticket StagedCommunicator::start(Collective kind, Tensor in, Tensor out) {
  const Call& c = submit(call(kind, in, out), std::max(in.bytes(), out.bytes()));
  started_.emplace_back(c.end, c.event);
  const Ticket ticket = c.end;
  while (advance()) {
  }
  return ticket;
}

void StagedCommunicator::finish(Ticket ticket) {
  const auto found = std::ranges::find(started_, ticket, &std::pair<Ticket, Event>::first);
  TFM_CHECK(found != started_.end(), "no such collective is under way");
  const Event event = found->second;
  started_.erase(found);
  complete(ticket, event);
}

const StagedCommunicator::Call& StagedCommunicator::submit(Call call, std::int64_t bytes) {
  call.event = recorder_->begin(axes_, call.op, bytes);
  call.first = submitted_;
  submitted_ += call.op == Collective::barrier
                    ? 1
                    : static_cast<std::uint64_t>(ceil_div(call.part, call.chunk));
  call.end = submitted_;
  return calls_.emplace_back(call);
}

void StagedCommunicator::submit_and_complete(Call call, std::int64_t bytes) {
  const Call& c = submit(call, bytes);
  complete(c.end, Event(c.event));
}

void StagedCommunicator::complete(std::uint64_t end, const Event& event) {
  recorder_->wait(event);
  while (done(Stage::finish) < end) {
    if (advance()) {
      recorder_->moved();
      continue;
    }
    const Stage stage = done(Stage::finish) < done(Stage::reduce)    ? Stage::finish
                        : done(Stage::reduce) < done(Stage::publish) ? Stage::reduce
                                                                     : Stage::publish;
    wait(stage, at(stage));
  }
  while (!calls_.empty() && calls_.front().end <= done(Stage::finish)) calls_.pop_front();
  recorder_->end(event);
}

StagedCommunicator::Piece StagedCommunicator::at(Stage stage) {
  const std::uint64_t number = done(stage);
  const auto call = std::upper_bound(calls_.begin(), calls_.end(), number,
                                     [](std::uint64_t n, const Call& c) { return n < c.end; });
  return {*call, number};
}

bool StagedCommunicator::advance_stage(Stage stage) {
  const std::uint64_t limit = stage == Stage::publish
                                  ? std::min(submitted_, done(Stage::finish) + kSlots)
                              : stage == Stage::reduce ? done(Stage::publish)
                                                       : done(Stage::reduce);
  if (done(stage) == limit) return false;
  const Piece piece = at(stage);
  if (!ready(stage, piece)) return false;
  run(stage, piece);
  ++done(stage);
  return true;
}

bool StagedCommunicator::advance() {
  bool moved = false;
  for (Stage stage : {Stage::publish, Stage::reduce, Stage::finish}) moved |= advance_stage(stage);
  return moved;
}

}  // namespace tfm::comm
