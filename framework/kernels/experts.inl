// Kernels of experts whose code CPUs and GPUs share.
#include "kernels/experts.h"

namespace tfm::kernels {
namespace {

// What belongs to slot i and to sent row i.
constexpr void send_slot(const SendSlotsArgs& a, std::int64_t i) {
  const std::int64_t each = a.experts / a.ranks;
  if (i == 0) {
    double most = a.before ? *a.before : 0;
    for (std::int64_t to = 0; to < a.ranks; ++to) {
      const std::int64_t rows = a.offsets[(to + 1) * each] - a.offsets[to * each];
      const double excess = static_cast<double>(rows - a.room) / a.even;
      most = excess > most ? excess : most;
    }
    *a.excess = most;
  }
  if (i < a.slots) {
    const std::int64_t to = a.choice[i] < 0 ? 0 : a.choice[i] / each,
                       at = a.choice[i] < 0 ? a.room : a.place[i] - a.offsets[to * each];
    a.sent_place[i] = at < a.room ? static_cast<std::int32_t>(to * a.room + at) : -1;
  }
  if (i >= a.ranks * a.room) return;
  const std::int64_t to = i / a.room, row = a.offsets[to * each] + i % a.room;
  const std::int32_t slot = row < a.offsets[(to + 1) * each] ? a.slot[row] : -1;
  a.sent_slot[i] = slot;
  a.sent_choice[i] = slot < 0 ? -1 : static_cast<std::int32_t>(a.choice[slot] - to * each);
  if (a.sent_row) {
    DropoutPlace of = a.rows;
    of.slot = &slot;
    a.sent_row[i] = static_cast<std::int32_t>(of.row(a.dropout, 0));
  }
}

constexpr void keep_most_of(const KeepMostArgs& a) {
  *a.most = a.first || *a.x > *a.most ? *a.x : *a.most;
}

}  // namespace
}  // namespace tfm::kernels
