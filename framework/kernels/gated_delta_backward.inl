// Gradients of the gated delta rule: chunk after chunk from the end, each computed again from the
// state before it. Gradients of decays are those of their logarithms.
#include "kernels/gated_delta.inl"

namespace tfm::kernels {
namespace {

template <class T, class Team>
struct DeltaBackward : Delta<T, Team> {
  using W = Accum<T>;
  using Base = Delta<T, Team>;
  using Base::a, Base::c, Base::m, Base::team;
  const GatedDeltaBackwardArgs<T>& g;

  constexpr DeltaBackward(const Team& t, const GatedDeltaBackwardArgs<T>& args,
                          const DeltaMemory<W>& memory, const DeltaChunk& chunk)
      : Base{t, args, memory, chunk}, g(args) {}

  // Gradient of the state after the chunk, then of the state before.
  constexpr Matrix<W> dstate(std::int64_t h) const {
    return {&m.dstate(h * m.state_rows(a.sizes), 0), m.dstate.pitch};
  }
  template <class To>
  static constexpr void put(To& to, W value, bool adds) {
    to = To(adds ? W(to) + value : value);
  }

  constexpr void chunk() const {
    const std::int64_t n = c.n, keys = a.sizes.keys;
    this->load_keys();
    team.each(n, keys, [&](std::int64_t i, std::int64_t j) { m.dk(i, j) = m.dq(i, j) = 0; });
    team.each(n, n, [&](std::int64_t i, std::int64_t j) { m.dkk(i, j) = m.dqk(i, j) = 0; });
    for (std::int64_t h = 0; h < this->heads(); ++h) head(h);
    add_lower(team, n, keys, m.dqk, m.k, m.dq);
    add_lower_t(team, n, keys, m.dqk, m.q, m.dk);
    if (a.sizes.corrects) {
      add_lower(team, n, keys, m.dkk, m.k, m.dk);
      add_lower_t(team, n, keys, m.dkk, m.k, m.dk);
    }
    if (!g.dqkv) return;
    put_rows(this->query(0), m.q, m.dq, m.inverse_q, this->scale());
    put_rows(this->key(0), m.k, m.dk, m.inverse_k, W(1));
  }

 private:
  // Through the normalization of what is at `from` in a.qkv: x becomes unit = scale x / |x|.
  constexpr void put_rows(const T* from, Matrix<W> unit, Matrix<W> d, const W* inverse,
                          W scale) const {
    const std::int64_t keys = a.sizes.keys, width = a.sizes.width();
    T* const to = g.dqkv + (from - a.qkv);
    if (!a.sizes.corrects)
      return team.each(c.n, keys, [&](std::int64_t i, std::int64_t j) {
        put(to[i * width + j], d(i, j), g.adds_qkv);
      });
    team.sums(
        c.n, keys, [&](std::int64_t i, std::int64_t j) { return unit(i, j) * d(i, j); },
        [&](std::int64_t i, W sum) { m.dg[i] = sum / scale; });
    team.each(c.n, keys, [&](std::int64_t i, std::int64_t j) {
      put(to[i * width + j], inverse[i] * (scale * d(i, j) - unit(i, j) * m.dg[i]), g.adds_qkv);
    });
  }

  constexpr void head(std::int64_t h) const {
    const std::int64_t n = c.n, keys = a.sizes.keys, values = a.sizes.values;
    this->load_gates(h);
    load_states(h);
    this->correct(h, m.state);
    transpose(team, n, values, m.x, m.xt);
    into_corrections(h);
    lower_of(team, n, values, 1, m.dy, m.xt, m.dattended);
    if (a.sizes.corrects)
      lower_of(team, n, values, -1, m.r, m.xt, m.dcorrected);
    else
      team.each(n, n, [&](std::int64_t i, std::int64_t j) { m.dcorrected(i, j) = 0; });
    into_products();
    into_keys();
    into_gates(h);
    // Here m.dy and m.u are as into_keys() has scaled them.
    product_t(team, keys, values, n, 1, m.q, m.dy, m.kept[n - 1], dstate(h));
    if (a.sizes.corrects) product_t(team, keys, values, n, -1, m.k, m.u, 1, dstate(h));
  }

  constexpr void load_states(std::int64_t h) const {
    const std::int64_t keys = a.sizes.keys, values = a.sizes.values, width = a.sizes.heads * values;
    const W* const from = g.borders + this->border(h);
    const T* const dy = g.dy + this->row(0) * width + this->head_index(h) * values;
    const Matrix<W> d = dstate(h);
    team.each(keys, values,
              [&](std::int64_t i, std::int64_t j) { m.state(i, j) = from[i * values + j]; });
    team.sums(
        keys, values, [&](std::int64_t i, std::int64_t j) { return m.state(i, j) * d(i, j); },
        [&](std::int64_t i, W sum) { m.dheld[i] = sum * m.kept[c.n - 1]; });
    transpose(team, keys, values, m.state, m.state_t);
    transpose(team, keys, values, d, m.dstate_t);
    team.each(c.n, values,
              [&](std::int64_t i, std::int64_t j) { m.dy(i, j) = W(dy[i * width + j]); });
  }

  // m.r: gradients of what corrections are solved from; of it dbeta and gradients of values, and
  // what passes by the state.
  constexpr void into_corrections(std::int64_t h) const {
    const std::int64_t n = c.n, values = a.sizes.values, width = a.sizes.width(),
                       at = this->row(0) * width + this->value_column(h);
    product(team, n, values, a.sizes.keys, 1, m.k, dstate(h), 0, m.r);
    team.each(n, values, [&](std::int64_t i, std::int64_t j) { m.r(i, j) *= m.decay(n - 1, i); });
    team.sums(
        n, values, [&](std::int64_t i, std::int64_t j) { return m.x(i, j) * m.r(i, j); },
        [&](std::int64_t i, W sum) { m.dlasting[i] = sum; });
    add_lower_t(team, n, values, m.attended, m.dy, m.r);
    if (a.sizes.corrects) team.solve(n, values, true, m.corrected, m.r);
    team.sums(
        n, values,
        [&](std::int64_t i, std::int64_t j) {
          return m.r(i, j) * (W(a.qkv[at + i * width + j]) - m.kept[i] * m.u(i, j));
        },
        [&](std::int64_t i, W sum) { m.dbeta[i] = sum; });
    if (g.skip_terms)
      team.sums(
          n, values,
          [&](std::int64_t i, std::int64_t j) { return m.dy(i, j) * W(a.qkv[at + i * width + j]); },
          [&](std::int64_t i, W sum) {
            g.skip_terms[this->row(i) * a.sizes.heads + this->head_index(h)] = sum;
          });
    if (!g.dqkv) return;
    const W skip = this->skip(h);
    team.each(n, values, [&](std::int64_t i, std::int64_t j) {
      const W d = m.beta[i] * m.r(i, j);
      put(g.dqkv[at + i * width + j], a.skip ? d + skip * m.dy(i, j) : d, g.adds_qkv);
    });
  }

  // From m.dattended and m.dcorrected to products of queries and keys, beta, and decays between
  // positions.
  constexpr void into_products() const {
    const std::int64_t n = c.n;
    team.sums_below(
        n,
        [&](std::int64_t i, std::int64_t j) {
          return m.dcorrected(i, j) * m.kk(i, j) * m.decay(i, j);
        },
        [&](std::int64_t i, W sum) { m.dbeta[i] += sum; });
    team.each(1, n, [&](std::int64_t, std::int64_t i) { m.dqk(i, i) += m.dattended(i, i); });
    team.below(n, [&](std::int64_t i, std::int64_t j) {
      const W d = m.decay(i, j), of_query = m.dattended(i, j) * d,
              of_key = m.dcorrected(i, j) * d * m.beta[i];
      m.dqk(i, j) += of_query;
      m.dkk(i, j) += of_key;
      m.dattended(i, j) = of_query * m.qk(i, j) + of_key * m.kk(i, j);
    });
    team.sums_below(
        n, [&](std::int64_t i, std::int64_t j) { return m.dattended(i, j); },
        [&](std::int64_t i, W sum) { m.dg[i] = sum; });
    team.down(n, [&](std::int64_t i, std::int64_t j) { m.dg[j] -= m.dattended(i, j); });
  }

  // Through states, and gradients of states, to queries and keys.
  constexpr void into_keys() const {
    const std::int64_t n = c.n, keys = a.sizes.keys, values = a.sizes.values;
    team.each(n, values, [&](std::int64_t i, std::int64_t j) {
      m.dy(i, j) *= m.kept[i];
      m.u(i, j) = m.r(i, j) * m.kept[i] * m.beta[i];
      m.x(i, j) *= m.decay(n - 1, i);
    });
    const auto through = [&](Matrix<W> from, W sign, Matrix<W> with, Matrix<W> to) {
      product(team, n, keys, values, sign, from, m.state_t, 0, m.through);
      team.each(n, keys, [&](std::int64_t i, std::int64_t j) { to(i, j) += m.through(i, j); });
      team.sums(
          n, keys, [&](std::int64_t i, std::int64_t j) { return m.through(i, j) * with(i, j); },
          [&](std::int64_t i, W sum) { m.dg[i] += sum; });
    };
    through(m.dy, 1, m.q, m.dq);
    if (a.sizes.corrects) through(m.u, -1, m.k, m.dk);
    product(team, n, keys, values, 1, m.x, m.dstate_t, 1, m.dk);
  }

  // A decay is part of all that a later position takes from before it.
  constexpr void into_gates(std::int64_t h) const {
    const std::int64_t all = a.sizes.heads;
    team.once([&] {
      W sum = 0;
      for (std::int64_t k = 0; k < a.sizes.keys; ++k) sum += m.dheld[k];
      for (std::int64_t i = 0; i < c.n; ++i) sum += m.dlasting[i];
      for (std::int64_t i = c.n - 1; i >= 0; --i) {
        sum += m.dg[i] - m.dlasting[i];
        m.dg[i] = m.rate[i] == 0 ? W(0) : sum;
      }
    });
    if (!g.dgates) return;
    W* const to = g.dgates + this->row(0) * 2 * all + this->head_index(h);
    team.each(1, c.n, [&](std::int64_t, std::int64_t i) {
      put(to[i * 2 * all], m.dbeta[i], g.adds_gates);
      put(to[i * 2 * all + all], m.dg[i], g.adds_gates);
    });
  }
};

template <class T, class Team>
constexpr void delta_backward(const Team& team, const GatedDeltaBackwardArgs<T>& a,
                              std::int64_t sequence, std::int64_t key_head, Accum<T>* memory) {
  using W = Accum<T>;
  const DeltaMemory<W> m(a.sizes, true, memory);
  team.each(m.state_rows(a.sizes) * (a.sizes.heads / a.sizes.key_heads), a.sizes.values,
            [&](std::int64_t i, std::int64_t j) { m.dstate(i, j) = 0; });
  for (std::int64_t index = a.sizes.chunks(a.length) - 1; index >= 0; --index) {
    const std::int64_t first = index * kDeltaChunk,
                       n = a.length - first < kDeltaChunk ? a.length - first : kDeltaChunk;
    DeltaBackward<T, Team>(team, a, m, {sequence, key_head, index, first, n}).chunk();
  }
}

}  // namespace
}  // namespace tfm::kernels
