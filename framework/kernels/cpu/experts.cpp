#include "kernels/experts.inl"

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/router.inl"

namespace tfm::kernels {

void sort_slots(cpu::Stream&, const SortSlotsArgs& a) {
  std::fill_n(a.offsets, a.experts + 1, 0);
  for (std::int64_t s = 0; s < a.slots; ++s)
    if (a.choice[s] >= 0) ++a.offsets[a.choice[s] + 1];
  for (std::int64_t e = 0; e < a.experts; ++e) a.offsets[e + 1] += a.offsets[e];
  // The first rows of experts move on while they are filled, and back.
  for (std::int64_t s = 0; s < a.slots; ++s) {
    a.place[s] = a.choice[s] < 0 ? -1 : a.offsets[a.choice[s]]++;
    if (a.place[s] >= 0) a.slot[a.place[s]] = static_cast<std::int32_t>(s);
  }
  for (std::int64_t e = a.experts; e > 0; --e) a.offsets[e] = a.offsets[e - 1];
  a.offsets[0] = 0;
  std::fill(a.slot + a.offsets[a.experts], a.slot + a.slots, -1);
}

void send_slots(cpu::Stream& stream, const SendSlotsArgs& a) {
  const std::int64_t n = std::max(a.slots, a.ranks * a.room);
  parallel(stream, n, 4 * n, [&](std::int64_t i) { send_slot(a, i); });
}

void keep_most(cpu::Stream&, const KeepMostArgs& a) { keep_most_of(a); }

template <class T>
void gather_slots(cpu::Stream& stream, const GatherSlotsArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
    if (a.slot[r] < 0)
      std::fill_n(a.y + r * a.cols, a.cols, T{});
    else
      std::copy_n(a.x + a.slot[r] / a.top_k * a.cols, a.cols, a.y + r * a.cols);
  });
}

template <class T>
void combine_slots(cpu::Stream& stream, const CombineSlotsArgs<T>& a) {
  parallel(stream, a.tokens, a.tokens * a.cols * (a.top_k + 1), [&](std::int64_t n) {
    each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
      Vec<T> sum{};
      for (std::int64_t s = n * a.top_k; s < (n + 1) * a.top_k; ++s) {
        if (a.place[s] < 0) continue;
        const Vec<T> x = load(a.x + a.place[s] * a.cols + i, m);
        sum += a.weights ? x * a.weights[s] : x;
      }
      T* const y = a.y + n * a.cols + i;
      store(y, a.accumulate ? load(y, m) + sum : sum, m);
    });
  });
}

template <class T>
void weigh_slots(cpu::Stream& stream, const WeighSlotsArgs<T>& a) {
  const auto dot = [](const T* x, const T* y, std::int64_t n) {
    Vec<T> sum{};
    each<T>(n, [&](std::int64_t i, auto m) TFM_INLINE { sum += load(x + i, m) * load(y + i, m); });
    return sum_of<T>(sum);
  };
  const auto scale = [](T* x, std::int64_t n, Accum<T> by) {
    each<T>(n, [&](std::int64_t i, auto m) TFM_INLINE { store(x + i, load(x + i, m) * by, m); });
  };
  parallel(stream, a.rows, a.rows * (2 * a.hidden + a.cols), [&](std::int64_t r) {
    const std::int64_t s = a.slot[r];
    if (s < 0) return;
    T *const dh = a.dh + r * a.hidden, *const dy = a.dy + r * a.cols;
    Accum<T> sum = dot(a.h + r * a.hidden, dh, a.hidden);
    if (a.bias) sum += dot(a.bias + a.choice[s] * a.cols, dy, a.cols);
    a.dweights[s] = sum;
    scale(dh, a.hidden, a.weights[s]);
    scale(dy, a.cols, a.weights[s]);
  });
}

template <class T>
void gated_add(cpu::Stream& stream, const GatedAddArgs<T>& a) {
  parallel(stream, a.rows, 3 * a.rows * a.cols, [&](std::int64_t r) {
    const Accum<T> s = sigmoid(a.gate[r]);
    each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
      const std::int64_t at = r * a.cols + i;
      store(a.y + at, load(a.residual + at, m) + load(a.x + at, m) * s, m);
    });
  });
}
template <class T>
void gated_add_backward(cpu::Stream& stream, const GatedAddBackwardArgs<T>& a) {
  parallel(stream, a.rows, 3 * a.rows * a.cols, [&](std::int64_t r) {
    const Accum<T> s = sigmoid(a.gate[r]);
    Vec<T> sum{};
    each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
      const std::int64_t at = r * a.cols + i;
      const Vec<T> dy = load(a.dy + at, m);
      sum += dy * load(a.x + at, m);
      store(a.dx + at, dy * s, m);
    });
    a.dgate[r] = sum_of<T>(sum) * s * (1 - s);
  });
}

namespace {

constexpr std::int64_t kShareRows = 32;  // threads divide what an expert computes at multiples

// Divides the rows that experts compute, size(e) of cost(e) each, among the threads: calls
// f(e, begin, end) for those of a thread. The last part of an expert has more than `least` rows, or
// all of them.
template <class Size, class Cost, class F>
void each_share(cpu::Stream& stream, std::int64_t experts, std::int64_t least, Size&& size,
                Cost&& cost, F&& f) {
  std::int64_t all = 0;
  for (std::int64_t e = 0; e < experts; ++e) all += size(e) * cost(e);
  const std::int64_t threads = usable_threads(stream);
  cpu::Stream team{static_cast<int>(threads)};
  parallel(team, threads, kTeamWork, [&](std::int64_t t) {
    std::int64_t before = 0;
    for (std::int64_t e = 0; e < experts; before += size(e) * cost(e), ++e) {
      const auto row = [&](std::int64_t share) {
        const std::int64_t n = size(e), at = (all * share / threads - before) / cost(e),
                           r = at / kShareRows * kShareRows;
        return at <= 0 ? 0 : share == threads || n - r <= least ? n : r;
      };
      const std::int64_t begin = row(t), end = row(t + 1);
      if (begin < end) f(e, begin, end);
    }
  });
}

}  // namespace

template <class T>
void grouped_gemm(cpu::Stream& stream, const GroupedGemmArgs<T>& a) {
  const auto rows = [&](std::int64_t e) { return std::int64_t{a.offsets[e + 1]} - a.offsets[e]; };
  const auto product = [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    const std::int64_t first = a.offsets[e] + begin;
    gemm(stream, GemmArgs<T>{.transpose_b = a.transpose_b,
                             .m = end - begin,
                             .n = a.n,
                             .k = a.k,
                             .a = a.a + first * a.k,
                             .lda = a.k,
                             .b = a.b + e * a.n * a.k,
                             .ldb = a.transpose_b ? a.k : a.n,
                             .c = a.c + first * a.n,
                             .ldc = a.n,
                             .bias = a.bias ? a.bias + e * a.n : nullptr});
  };
  if (a.offsets[a.experts] < 2 * kShareRows * usable_threads(stream))
    for (std::int64_t e = 0; e < a.experts; ++e) product(e, 0, rows(e));
  else
    each_share(
        stream, a.experts, kFewRows, rows, [](std::int64_t) { return 1; }, product);
  std::fill(a.c + a.offsets[a.experts] * a.n, a.c + a.rows * a.n, T{});
}

template <class T>
void grouped_gradients(cpu::Stream& stream, const GroupedGradientsArgs<T>& a) {
  using W = Accum<T>;
  constexpr std::int64_t kWrite = 128;  // rows that take as long as to write the result
  const auto rows = [&](std::int64_t e) { return std::int64_t{a.offsets[e + 1]} - a.offsets[e]; };
  const auto outputs = [&](std::int64_t) { return a.out; };
  const auto cost = [&](std::int64_t e) { return kWrite + rows(e); };
  const auto part = [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    const std::int64_t first = a.offsets[e], m = end - begin;
    const T* const dy = a.dy + first * a.out + begin;
    W* const dw = a.dw + (e * a.out + begin) * a.in;
    W* const db = a.db ? a.db + e * a.out + begin : nullptr;
    cpu::Stream alone{1};
    if (rows(e) > 0) {
      gemm(alone, GemmArgs<T, W>{.transpose_a = true,
                                 .m = m,
                                 .n = a.in,
                                 .k = rows(e),
                                 .a = dy,
                                 .lda = a.out,
                                 .b = a.x + first * a.in,
                                 .ldb = a.in,
                                 .beta = W(a.accumulate_dw),
                                 .c = dw,
                                 .ldc = a.in});
      if (db) column_sum(alone, ColumnSumArgs<T>{rows(e), m, a.out, dy, db, a.accumulate_db});
      return;
    }
    if (!a.accumulate_dw) fill(alone, FillArgs<W>{m * a.in, W{0}, dw});
    if (db && !a.accumulate_db) fill(alone, FillArgs<W>{m, W{0}, db});
  };
  each_share(stream, a.experts, 0, outputs, cost, part);
}

#define TFM_INSTANTIATE(T)                                                        \
  template void gather_slots(cpu::Stream&, const GatherSlotsArgs<T>&);            \
  template void combine_slots(cpu::Stream&, const CombineSlotsArgs<T>&);          \
  template void gated_add(cpu::Stream&, const GatedAddArgs<T>&);                  \
  template void gated_add_backward(cpu::Stream&, const GatedAddBackwardArgs<T>&); \
  template void weigh_slots(cpu::Stream&, const WeighSlotsArgs<T>&);              \
  template void grouped_gemm(cpu::Stream&, const GroupedGemmArgs<T>&);            \
  template void grouped_gradients(cpu::Stream&, const GroupedGradientsArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
