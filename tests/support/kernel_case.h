#pragma once
// Helpers of the kernels' tests: data, guarded buffers, tolerances, central differences.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "core/philox.h"
#include "support/reference.h"

namespace tfm::test {

using reference::Values;

// Reproducible values in [-scale, scale], exact in float.
inline Values random_values(std::int64_t n, std::uint32_t stream, double scale = 1) {
  const RandomKey key{7, Purpose::sample, stream, 0};
  Values v(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    v[i] = static_cast<float>((key.word(i) * 0x1p-31 - 1) * scale);
  return v;
}

// A value, or every one, as type T holds it.
template <class T>
double round_to(double x) {
  return static_cast<double>(static_cast<Accum<T>>(static_cast<T>(static_cast<Accum<T>>(x))));
}
template <class T>
Values rounded(Values v) {
  for (double& x : v) x = round_to<T>(x);
  return v;
}

// A buffer between two bands that must keep their bits.
template <class T>
class Guarded {
 public:
  explicit Guarded(const Values& v) : Guarded(std::ssize(v)) {
    for (std::int64_t i = 0; i < n_; ++i) data()[i] = static_cast<T>(static_cast<Accum<T>>(v[i]));
  }
  explicit Guarded(std::int64_t n, T fill = T(std::numeric_limits<Accum<T>>::quiet_NaN()))
      : n_(n), all_(n + 2 * kBand, kGuard) {
    std::fill_n(data(), n, fill);
  }
  ~Guarded() {
    for (std::int64_t i = 0; i < kBand; ++i) {
      EXPECT_EQ(all_[i], kGuard) << "written " << kBand - i << " before the buffer";
      EXPECT_EQ(all_[kBand + n_ + i], kGuard) << "written " << i + 1 << " past the buffer";
    }
  }
  Guarded(const Guarded& o) = default;
  T* data() { return all_.data() + kBand; }
  operator T*() { return data(); }
  std::int64_t size() const { return n_; }
  Values values() { return Values(data(), data() + n_); }
  std::vector<T> raw() { return std::vector<T>(data(), data() + n_); }

 private:
  static constexpr std::int64_t kBand = 64;
  static constexpr T kGuard = T(Accum<T>(12345));
  std::int64_t n_;
  std::vector<T> all_;
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Allowed error: `terms` roundings of values of the expected size.
template <class T>
double tolerance(double size = 1, double terms = 1) {
  return (sizeof(T) == 4 ? 6e-7 : 1e-13) * size * std::max(1.0, std::sqrt(terms));
}

inline void expect_close(const Values& got, const Values& want, double bound, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  std::size_t worst = 0;
  double error = -1;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double e = got[i] == want[i] ? 0 : std::abs(got[i] - want[i]);
    if (!(e <= error)) error = e, worst = i;
    if (std::isnan(e)) break;
  }
  EXPECT_LE(error, bound) << what << " at " << worst << " of " << got.size();
  if (!(error <= bound))
    std::printf("%s[%zu] = %.9g, expected %.9g\n", what, worst, got[worst], want[worst]);
}

// d f / d x by central differences of fourth order.
inline Values differences(Values x, const std::function<double(const Values&)>& f,
                          double h = 1e-3) {
  Values d(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    auto value = [&](double step) { return x[i] = at + step, f(x); };
    d[i] = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h);
    x[i] = at;
  }
  return d;
}

inline double dot(const Values& a, const Values& b) {
  double s = 0;
  for (std::size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
  return s;
}

inline Values plus(Values a, const Values& b, double factor = 1) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}

}  // namespace tfm::test
