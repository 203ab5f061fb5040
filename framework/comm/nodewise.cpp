#include "comm/nodewise.h"

#include <algorithm>
#include <cstring>

namespace tfm::comm {
namespace {

// Transposes rows x columns blocks, which lie `stride` bytes apart in `from`: `to` gets columns x
// rows blocks without gaps.
void transpose(const char* from, std::int64_t stride, std::int64_t rows, std::int64_t columns,
               std::int64_t block, char* to) {
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < rows; ++r, to += block)
      std::memcpy(to, from + (r * columns + c) * stride, static_cast<std::size_t>(block));
}

}  // namespace

NodewiseCommunicator::NodewiseCommunicator(std::shared_ptr<Communicator> flat,
                                           std::shared_ptr<Communicator> near,
                                           std::shared_ptr<Communicator> far)
    : flat_(std::move(flat)), near_(std::move(near)), far_(std::move(far)) {
  TFM_CHECK(flat_->rank() == far_->rank() * near_->size() + near_->rank() &&
                flat_->size() == far_->size() * near_->size(),
            "ranks of a node are neighbours in the group");
}

void NodewiseCommunicator::all_to_all(Tensor in, Tensor out) {
  finish(start(Collective::all_to_all, in, out));
}

Communicator::Ticket NodewiseCommunicator::start(Collective kind, Tensor in, Tensor out) {
  if (kind != Collective::all_to_all) return 2 * flat_->start(kind, in, out);
  TFM_CHECK(in.dtype == out.dtype && in.elements() == out.elements() && in.elements() % size() == 0,
            "`in` and `out` must have an equal part for each rank");
  if (idle_.empty()) idle_.push_back(std::make_unique<Exchange>());
  Exchange& x = *under_way_.emplace_back(std::move(idle_.back()));
  idle_.pop_back();
  x.ticket = next_ += 2, x.in = in, x.out = out;
  x.part = in.elements() / size();
  x.chunk = std::max<std::int64_t>(1, kPieceBytes / size_of(in.dtype) / size());
  for (auto* buffer : {&x.packed, &x.handed, &x.sending, &x.receiving})
    buffer->resize(
        static_cast<std::size_t>(std::min(x.chunk, x.part) * size() * size_of(in.dtype)));
  for (std::int64_t begin = 0; begin < x.part; begin += x.chunk) send(x, begin);
  return x.ticket;
}

void NodewiseCommunicator::send(Exchange& x, std::int64_t begin) {
  const std::int64_t width = size_of(x.in.dtype), length = std::min(x.chunk, x.part - begin),
                     near = near_->size(), far = far_->size();
  const auto buffer = [&](std::vector<char>& bytes) {
    return Tensor{bytes.data(), x.in.dtype, {length * size()}};
  };
  transpose(static_cast<const char*>(x.in.data) + begin * width, x.part * width, far, near,
            length * width, x.packed.data());
  near_->all_to_all(buffer(x.packed), buffer(x.handed));
  receive(x);
  transpose(x.handed.data(), length * width, near, far, length * width, x.sending.data());
  x.begin = begin, x.length = length;
  x.sent = far_->start(Collective::all_to_all, buffer(x.sending), buffer(x.receiving));
}

void NodewiseCommunicator::receive(Exchange& x) {
  if (x.length == 0) return;
  far_->finish(x.sent);
  const auto width = static_cast<std::size_t>(size_of(x.in.dtype));
  const std::size_t block = static_cast<std::size_t>(x.length) * width;
  char* to = static_cast<char*>(x.out.data) + static_cast<std::size_t>(x.begin) * width;
  for (int r = 0; r < size(); ++r, to += static_cast<std::size_t>(x.part) * width)
    std::memcpy(to, x.receiving.data() + static_cast<std::size_t>(r) * block, block);
  x.length = 0;
}

void NodewiseCommunicator::finish(Ticket ticket) {
  if (ticket % 2 == 0) return flat_->finish(ticket / 2);
  const auto found = std::ranges::find(under_way_, ticket, [](const auto& x) { return x->ticket; });
  TFM_CHECK(found != under_way_.end(), "no such collective is under way");
  receive(**found);
  idle_.push_back(std::move(*found));
  under_way_.erase(found);
}

}  // namespace tfm::comm
