// Linear attention, of one head of a sequence. Each run of positions of one segment is by itself.
#include "kernels/chunks.h"
#include "kernels/linear_attention.h"

namespace tfm::kernels {
namespace {

inline constexpr std::int64_t kLinearChunk = 64;  // positions

template <class W>
struct LinearMemory : ChunkMemory<W> {
  static constexpr std::int64_t C = kLinearChunk;

  Matrix<W> q, k, kt;        // features (C, D), and their transposed
  Matrix<W> v, vt;           // [v, 1] (C, D + 1)
  Matrix<W> o;               // sums of seen keys, or gradients of them (C, D + 1)
  Matrix<W> qk, ov;          // products of rows (C, C)
  Matrix<W> dx, dv;          // gradients (C, D) and (C, D + 1)
  Matrix<W> state, state_t;  // (D, D + 1)
  W* through;                // (C)

  constexpr LinearMemory(const LinearSizes& s, W* base) : ChunkMemory<W>(base) {
    const auto matrix = [this](std::int64_t rows, std::int64_t cols) {
      return ChunkMemory<W>::matrix(rows, cols);
    };
    for (Matrix<W>* m : {&q, &k, &dx}) *m = matrix(C, s.size);
    for (Matrix<W>* m : {&v, &o, &dv}) *m = matrix(C, s.size + 1);
    for (Matrix<W>* m : {&qk, &ov}) *m = matrix(C, C);
    kt = matrix(s.size, C);
    vt = matrix(s.size + 1, C);
    state = matrix((s.size + 7) / 8 * 8, s.size + 1);
    state_t = matrix(s.size + 1, s.size);
    through = ChunkMemory<W>::piece(C);
  }
};

template <class T, class Team>
struct Linear {
  using W = Accum<T>;
  Team team;
  const LinearAttentionArgs<T>& a;
  LinearMemory<W> m;
  std::int64_t sequence, head;

  constexpr std::int64_t size() const { return a.sizes.size; }
  // Of position t: the row, and its first column among queries, keys or values (part 0, 1, 2).
  constexpr std::int64_t row(std::int64_t t) const { return sequence * a.length + t; }
  constexpr std::int64_t at(std::int64_t t, int part) const {
    return (row(t) * 3 + part) * a.sizes.width() + head * size();
  }
  constexpr bool padding(std::int64_t t) const { return a.segments && a.segments[row(t)] < 0; }
  // The end of the segment from t on, with the padding before, within and behind it.
  constexpr std::int64_t end_of(std::int64_t t) const {
    if (!a.segments) return a.length;
    while (t < a.length && padding(t)) ++t;
    std::int64_t end = t;
    while (end < a.length && (padding(end) || a.segments[row(end)] == a.segments[row(t)])) ++end;
    return end;
  }
  static constexpr W feature(W x) { return x > 0 ? x + W(1) : std::exp(x); }

  // Features of n positions from `first` on, and their values; zeros of padding.
  constexpr void load(std::int64_t first, std::int64_t n) const {
    team.each(n, size(), [&](std::int64_t i, std::int64_t j) {
      const W real = padding(first + i) ? W(0) : W(1);
      m.q(i, j) = real * feature(W(a.qkv[at(first + i, 0) + j]));
      m.k(i, j) = real * feature(W(a.qkv[at(first + i, 1) + j]));
    });
    team.each(n, size() + 1, [&](std::int64_t i, std::int64_t j) {
      m.v(i, j) = j < size() ? W(a.qkv[at(first + i, 2) + j]) : W(1);
    });
  }
  constexpr void clear_state() const {
    team.each(size(), size() + 1, [&](std::int64_t i, std::int64_t j) { m.state(i, j) = 0; });
  }
  // m.qk or m.ov: products of rows of `left` and of `right_t`, at and before the row.
  constexpr void seen_products(std::int64_t n, std::int64_t terms, Matrix<W> left,
                               Matrix<W> right_t, Matrix<W> to) const {
    product(team, n, n, terms, 1, left, right_t, 0, to);
    team.each(n, n, [&](std::int64_t i, std::int64_t j) { to(i, j) = j <= i ? to(i, j) : W(0); });
  }
  // Calls f(first, n) for the chunks of positions [begin, end), forward or from the end.
  template <class F>
  static constexpr void chunks(std::int64_t begin, std::int64_t end, bool forward, F&& f) {
    const std::int64_t count = (end - begin + kLinearChunk - 1) / kLinearChunk;
    for (std::int64_t c = 0; c < count; ++c) {
      const std::int64_t first = begin + (forward ? c : count - 1 - c) * kLinearChunk;
      f(first, end - first < kLinearChunk ? end - first : kLinearChunk);
    }
  }
  // state += k^T [v, 1] of the loaded positions.
  constexpr void add_to_state(std::int64_t n, Matrix<W> left, Matrix<W> right) const {
    product_t(team, size(), size() + 1, n, 1, left, right, 1, m.state);
  }

  constexpr void forward(std::int64_t begin, std::int64_t end) const {
    if (!a.sizes.causal)
      chunks(begin, end, true, [&](std::int64_t first, std::int64_t n) {
        load(first, n);
        add_to_state(n, m.k, m.v);
      });
    chunks(begin, end, true, [&](std::int64_t first, std::int64_t n) {
      load(first, n);
      product(team, n, size() + 1, size(), 1, m.q, m.state, 0, m.o);
      if (a.sizes.causal) {
        transpose(team, n, size(), m.k, m.kt);
        seen_products(n, size(), m.q, m.kt, m.qk);
        add_lower(team, n, size() + 1, m.qk, m.v, m.o);
        add_to_state(n, m.k, m.v);
      }
      team.each(n, size(), [&](std::int64_t i, std::int64_t j) {
        const W sum = m.o(i, size());
        a.y[row(first + i) * a.sizes.width() + head * size() + j] =
            T(sum == 0 ? W(0) : m.o(i, j) / sum);
        if (j == 0 && a.sums) a.sums[row(first + i) * a.sizes.heads + head] = sum == 0 ? W(1) : sum;
      });
    });
  }
};

// All segments of a head of a sequence.
template <class T, class Team>
constexpr void linear_forward(const Team& team, const LinearAttentionArgs<T>& a,
                              std::int64_t sequence, std::int64_t head, Accum<T>* memory) {
  using W = Accum<T>;
  const Linear<T, Team> l{team, a, LinearMemory<W>(a.sizes, memory), sequence, head};
  const std::int64_t size = a.sizes.size;
  W* const kept = a.state ? a.state + (sequence * a.sizes.heads + head) * a.sizes.state() : nullptr;
  for (std::int64_t t = 0; t < a.length;) {
    const std::int64_t end = l.end_of(t);
    team.each(size, size + 1, [&](std::int64_t i, std::int64_t j) {
      l.m.state(i, j) = kept ? kept[i * (size + 1) + j] : W(0);
    });
    l.forward(t, end);
    t = end;
  }
  if (kept)
    team.each(size, size + 1,
              [&](std::int64_t i, std::int64_t j) { kept[i * (size + 1) + j] = l.m.state(i, j); });
}

template <class T, class Team>
struct LinearBackward : Linear<T, Team> {
  using W = Accum<T>;
  using Base = Linear<T, Team>;
  using Base::a, Base::m, Base::team, Base::head, Base::size, Base::row, Base::at;
  const LinearAttentionBackwardArgs<T>& g;

  constexpr LinearBackward(const Team& t, const LinearAttentionBackwardArgs<T>& args,
                           const LinearMemory<W>& memory, std::int64_t sequence, std::int64_t h)
      : Base{t, args.forward, memory, sequence, h}, g(args) {}

  constexpr void put(std::int64_t to, W value) const {
    g.dqkv[to] = T(g.adds ? W(g.dqkv[to]) + value : value);
  }
  // Also m.o, gradients of the sums: of the numerators, then of the denominator.
  constexpr void load_gradients(std::int64_t first, std::int64_t n) const {
    this->load(first, n);
    const auto from = [&](std::int64_t i) {
      return row(first + i) * a.sizes.width() + head * size();
    };
    const auto sum = [&](std::int64_t i) { return a.sums[row(first + i) * a.sizes.heads + head]; };
    team.sums(
        n, size(),
        [&](std::int64_t i, std::int64_t j) { return W(g.dy[from(i) + j]) * W(a.y[from(i) + j]); },
        [&](std::int64_t i, W s) { m.through[i] = -s / sum(i); });
    team.each(n, size() + 1, [&](std::int64_t i, std::int64_t j) {
      m.o(i, j) = j < size() ? W(g.dy[from(i) + j]) / sum(i) : m.through[i];
    });
  }
  // m.dx, the gradient of features, as that of queries or keys.
  constexpr void put_features(std::int64_t first, std::int64_t n, int part) const {
    team.each(n, size(), [&](std::int64_t i, std::int64_t j) {
      const bool nothing = this->padding(first + i);
      const std::int64_t to = at(first + i, part) + j;
      const W x = W(a.qkv[to]);
      put(to, nothing ? W(0) : x > 0 ? m.dx(i, j) : m.dx(i, j) * std::exp(x));
    });
  }

  // From the start, with the state of keys and values before.
  constexpr void queries(std::int64_t begin, std::int64_t end) const {
    this->clear_state();
    if (!a.sizes.causal)
      this->chunks(begin, end, true, [&](std::int64_t first, std::int64_t n) {
        this->load(first, n);
        this->add_to_state(n, m.k, m.v);
      });
    this->chunks(begin, end, true, [&](std::int64_t first, std::int64_t n) {
      load_gradients(first, n);
      transpose(team, size(), size() + 1, m.state, m.state_t);
      product(team, n, size(), size() + 1, 1, m.o, m.state_t, 0, m.dx);
      if (a.sizes.causal) {
        transpose(team, n, size() + 1, m.v, m.vt);
        this->seen_products(n, size() + 1, m.o, m.vt, m.ov);
        add_lower(team, n, size(), m.ov, m.k, m.dx);
        this->add_to_state(n, m.k, m.v);
      }
      put_features(first, n, 0);
    });
  }
  // From the end, with the gradient of the state after.
  constexpr void keys_and_values(std::int64_t begin, std::int64_t end) const {
    this->clear_state();
    if (!a.sizes.causal)
      this->chunks(begin, end, true, [&](std::int64_t first, std::int64_t n) {
        load_gradients(first, n);
        this->add_to_state(n, m.q, m.o);
      });
    this->chunks(begin, end, false, [&](std::int64_t first, std::int64_t n) {
      load_gradients(first, n);
      transpose(team, size(), size() + 1, m.state, m.state_t);
      product(team, n, size() + 1, size(), 1, m.k, m.state, 0, m.dv);
      product(team, n, size(), size() + 1, 1, m.v, m.state_t, 0, m.dx);
      if (a.sizes.causal) {
        transpose(team, n, size(), m.k, m.kt);
        this->seen_products(n, size(), m.q, m.kt, m.qk);
        add_lower_t(team, n, size() + 1, m.qk, m.o, m.dv);
        transpose(team, n, size() + 1, m.v, m.vt);
        this->seen_products(n, size() + 1, m.o, m.vt, m.ov);
        add_lower_t(team, n, size(), m.ov, m.q, m.dx);
        this->add_to_state(n, m.q, m.o);
      }
      put_features(first, n, 1);
      team.each(n, size(),
                [&](std::int64_t i, std::int64_t j) { put(at(first + i, 2) + j, m.dv(i, j)); });
    });
  }
};

template <class T, class Team>
constexpr void linear_backward(const Team& team, const LinearAttentionBackwardArgs<T>& g,
                               std::int64_t sequence, std::int64_t head, Accum<T>* memory) {
  const LinearBackward<T, Team> l(team, g, LinearMemory<Accum<T>>(g.forward.sizes, memory),
                                  sequence, head);
  for (std::int64_t t = 0; t < g.forward.length;) {
    const std::int64_t end = l.end_of(t);
    l.queries(t, end);
    l.keys_and_values(t, end);
    t = end;
  }
}

}  // namespace
}  // namespace tfm::kernels
