// The gated delta rule in chunks, of one key head and the heads that share it.
#include "kernels/chunks.h"
#include "kernels/gated_delta.h"

namespace tfm::kernels {
namespace {

inline constexpr double kDeltaEps = 1e-6;  // of the lengths of queries and keys

// What a team keeps of a chunk of C positions.
template <class W>
struct DeltaMemory : ChunkMemory<W> {
  static constexpr std::int64_t C = kDeltaChunk;

  Matrix<W> k, q, kt;             // (C, Dk), and its transposed
  Matrix<W> kk, qk;               // products of keys, and of queries and keys (C, C)
  Matrix<W> decay;                // between positions (C, C), of one head as what follows
  Matrix<W> attended, corrected;  // qk and beta kk, decayed; the second strictly lower
  Matrix<W> x;                    // (C, Dv): corrections, by which states change
  Matrix<W> u;                    // (C, Dv)
  Matrix<W> state;                // (Dk, Dv), of all heads in forward
  W *inverse_k, *inverse_q, *rate, *kept, *beta;
  // Backward alone.
  Matrix<W> state_t, dstate, dstate_t;        // the second of all heads
  Matrix<W> dy, xt, r, dk, dq, through;       // r: of what corrections are solved from
  Matrix<W> dattended, dcorrected, dqk, dkk;  // the last two, of all heads
  W *dbeta, *dg, *dlasting, *dheld;  // of log-decays: dg; dlasting and dheld until the chunk's end

  constexpr DeltaMemory(const DeltaSizes& s, bool backward, W* base) : ChunkMemory<W>(base) {
    const auto piece = [this](std::int64_t n) { return ChunkMemory<W>::piece(n); };
    const auto matrix = [this](std::int64_t rows, std::int64_t cols) {
      return ChunkMemory<W>::matrix(rows, cols);
    };
    const std::int64_t d = s.keys, dv = s.values, heads = s.heads / s.key_heads;
    for (Matrix<W>* m : {&k, &q}) *m = matrix(C, d);
    kt = matrix(d, C);
    for (Matrix<W>* m : {&kk, &qk, &decay, &attended, &corrected}) *m = matrix(C, C);
    for (Matrix<W>* m : {&x, &u}) *m = matrix(C, dv);
    state = matrix(state_rows(s) * (backward ? 1 : heads), dv);
    for (W** v : {&inverse_k, &inverse_q, &rate, &kept, &beta}) *v = piece(C);
    if (!backward) return;
    for (Matrix<W>* m : {&state_t, &dstate_t}) *m = matrix(dv, d);
    dstate = matrix(state_rows(s) * heads, dv);
    for (Matrix<W>* m : {&dy, &r}) *m = matrix(C, dv);
    xt = matrix(dv, C);
    for (Matrix<W>* m : {&dk, &dq, &through}) *m = matrix(C, d);
    for (Matrix<W>* m : {&dattended, &dcorrected, &dqk, &dkk}) *m = matrix(C, C);
    for (W** v : {&dbeta, &dg, &dlasting}) *v = piece(C);
    dheld = piece(d);
  }
  static constexpr std::int64_t state_rows(const DeltaSizes& s) { return (s.keys + 7) / 8 * 8; }
};

// Positions [first, first + n) of a sequence.
struct DeltaChunk {
  std::int64_t sequence, key_head, index, first, n;
};

template <class T, class Team>
struct Delta {
  using W = Accum<T>;
  Team team;
  const DeltaInputs<T>& a;
  DeltaMemory<W> m;
  DeltaChunk c;

  constexpr std::int64_t heads() const { return a.sizes.heads / a.sizes.key_heads; }
  constexpr std::int64_t row(std::int64_t i) const { return c.sequence * a.length + c.first + i; }
  constexpr const T* query(std::int64_t i) const {
    return a.qkv + row(i) * a.sizes.width() + c.key_head * a.sizes.keys;
  }
  constexpr const T* key(std::int64_t i) const { return query(i) + a.sizes.key_width(); }
  // Columns of values, and of gates, of head h of the key head.
  constexpr std::int64_t head_index(std::int64_t h) const { return c.key_head * heads() + h; }
  constexpr std::int64_t value_column(std::int64_t h) const {
    return 2 * a.sizes.key_width() + head_index(h) * a.sizes.values;
  }
  constexpr std::int64_t border(std::int64_t h) const {
    return ((c.sequence * a.sizes.chunks(a.length) + c.index) * a.sizes.heads + head_index(h)) *
           a.sizes.state();
  }
  constexpr W skip(std::int64_t h) const { return a.skip ? W(a.skip[head_index(h)]) : W(0); }
  constexpr W scale() const { return W(1) / std::sqrt(static_cast<W>(a.sizes.keys)); }

  // Queries and keys, whose length becomes 1 where they correct, and their products.
  constexpr void load_keys() const {
    const std::int64_t width = a.sizes.keys, n = c.n;
    const auto unit = [&](auto source, Matrix<W> to, W* inverse, W factor) {
      team.each(n, width, [&](std::int64_t i, std::int64_t j) { to(i, j) = W(source(i)[j]); });
      if (!a.sizes.corrects) return;
      team.sums(
          n, width, [&](std::int64_t i, std::int64_t j) { return to(i, j) * to(i, j); },
          [&](std::int64_t i, W sum) { inverse[i] = W(1) / std::sqrt(sum + W(kDeltaEps)); });
      team.each(n, width, [&](std::int64_t i, std::int64_t j) { to(i, j) *= inverse[i] * factor; });
    };
    unit([this](std::int64_t i) { return key(i); }, m.k, m.inverse_k, W(1));
    unit([this](std::int64_t i) { return query(i); }, m.q, m.inverse_q, scale());
    transpose(team, n, width, m.k, m.kt);
    if (a.sizes.corrects)
      product(team, n, n, width, 1, m.k, m.kt, 0, m.kk);
    else
      team.each(n, n, [&](std::int64_t i, std::int64_t j) { m.kk(i, j) = 0; });
    product(team, n, n, width, 1, m.q, m.kt, 0, m.qk);
  }

  // Decays of head h between positions and from the start of the chunk, and what is decayed by
  // them. `rate` is 0 where a state begins.
  constexpr void load_gates(std::int64_t h) const {
    const std::int64_t n = c.n, all = a.sizes.heads;
    const auto& t = m;
    const W* const gates = a.gates + head_index(h);
    const std::int32_t* const segments = a.segments;
    team.each(1, n, [&](std::int64_t, std::int64_t i) {
      const std::int64_t r = row(i);
      const bool begins = segments && c.first + i > 0 && segments[r] != segments[r - 1];
      t.beta[i] = gates[r * 2 * all];
      t.rate[i] = begins ? W(0) : std::exp(gates[r * 2 * all + all]);
    });
    team.once([&] {
      W product = 1;
      for (std::int64_t i = 0; i < n; ++i) t.kept[i] = product *= t.rate[i];
    });
    team.each(n, n, [&](std::int64_t i, std::int64_t j) {
      t.decay(i, j) = t.attended(i, j) = t.corrected(i, j) = 0;
    });
    team.each(1, n, [&](std::int64_t, std::int64_t i) {
      t.decay(i, i) = 1;
      t.attended(i, i) = t.qk(i, i);
    });
    team.down(n, [&](std::int64_t i, std::int64_t j) {
      const W d = t.rate[i] * t.decay(i - 1, j);
      t.decay(i, j) = d;
      t.attended(i, j) = t.qk(i, j) * d;
      t.corrected(i, j) = t.kk(i, j) * d * t.beta[i];
    });
  }

  // x, the corrections of head h, from the state before; and u: what the state holds at the keys,
  // zeros where nothing is corrected.
  constexpr void correct(std::int64_t h, Matrix<W> state) const {
    const auto& t = m;
    const T* const v = a.qkv + value_column(h);
    const std::int64_t width = a.sizes.width(), values = a.sizes.values, first = row(0);
    if (a.sizes.corrects)
      product(team, c.n, values, a.sizes.keys, 1, t.k, state, 0, t.u);
    else
      team.each(c.n, values, [&](std::int64_t i, std::int64_t j) { t.u(i, j) = 0; });
    team.each(c.n, values, [&](std::int64_t i, std::int64_t j) {
      t.x(i, j) = t.beta[i] * (W(v[(first + i) * width + j]) - t.kept[i] * t.u(i, j));
    });
    if (a.sizes.corrects) team.solve(c.n, values, false, t.corrected, t.x);
  }
};

// All chunks of a key head of a sequence.
template <class T, class Team>
constexpr void delta_forward(const Team& team, const GatedDeltaArgs<T>& a, std::int64_t sequence,
                             std::int64_t key_head, Accum<T>* memory) {
  using W = Accum<T>;
  const DeltaMemory<W> t(a.sizes, false, memory);
  Delta<T, Team> d{team, a, t, {sequence, key_head, 0, 0, 0}};
  const std::int64_t keys = a.sizes.keys, values = a.sizes.values, heads = d.heads(),
                     rows = t.state_rows(a.sizes);
  const auto of = [&](std::int64_t h) { return Matrix<W>{&t.state(h * rows, 0), t.state.pitch}; };
  const auto kept = [&](std::int64_t h) {
    return a.state + (sequence * a.sizes.heads + d.head_index(h)) * a.sizes.state();
  };
  for (std::int64_t h = 0; h < heads; ++h) {
    const W* const from = a.state ? kept(h) : nullptr;
    team.each(keys, values, [&, s = of(h)](std::int64_t i, std::int64_t j) {
      s(i, j) = from ? from[i * values + j] : W(0);
    });
  }
  for (; d.c.first < a.length; ++d.c.index, d.c.first += kDeltaChunk) {
    const std::int64_t n = d.c.n =
        a.length - d.c.first < kDeltaChunk ? a.length - d.c.first : kDeltaChunk;
    d.load_keys();
    for (std::int64_t h = 0; h < heads; ++h) {
      const Matrix<W> state = of(h);
      d.load_gates(h);
      if (a.borders)
        team.each(keys, values, [&, to = a.borders + d.border(h)](std::int64_t i, std::int64_t j) {
          to[i * values + j] = state(i, j);
        });
      d.correct(h, state);
      product(team, n, values, keys, 1, t.q, state, 0, t.u);
      team.each(n, values, [&](std::int64_t i, std::int64_t j) { t.u(i, j) *= t.kept[i]; });
      add_lower(team, n, values, t.attended, t.x, t.u);
      T* const y = a.y + d.row(0) * a.sizes.heads * values + d.head_index(h) * values;
      const std::int64_t width = a.sizes.heads * values, of_v = a.sizes.width();
      const T* const v = a.qkv + d.row(0) * of_v + d.value_column(h);
      const W skip = d.skip(h);
      team.each(n, values, [&](std::int64_t i, std::int64_t j) {
        y[i * width + j] = T(a.skip ? t.u(i, j) + skip * W(v[i * of_v + j]) : t.u(i, j));
        t.x(i, j) *= t.decay(n - 1, i);
      });
      product_t(team, keys, values, n, 1, t.k, t.x, t.kept[n - 1], state);
    }
  }
  for (std::int64_t h = 0; a.state && h < heads; ++h)
    team.each(keys, values, [&, s = of(h), to = kept(h)](std::int64_t i, std::int64_t j) {
      to[i * values + j] = s(i, j);
    });
}

}  // namespace
}  // namespace tfm::kernels
