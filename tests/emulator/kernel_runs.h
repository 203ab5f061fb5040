#pragma once
// One kernel case on both devices: the CPU's kernel says what is right, the emulator's must agree
// under every order of warps and blocks with the same bits, and without any one of its barriers it
// must fail.
#include "core/master_weights.h"
#include "device/stream.h"
#include "device_case.h"

namespace tfm::test {

// As Buffer, of the host.
template <class T>
class HostArray {
 public:
  HostArray(const char*, std::int64_t n) : v_(static_cast<std::size_t>(n)) {
    if (n > 0) std::memset(static_cast<void*>(v_.data()), 0xFF, v_.size() * sizeof(T));
  }
  HostArray(const char* name, const Values& v) : HostArray(name, std::ssize(v)) { assign(v); }
  void assign(const Values& v) {
    for (std::size_t i = 0; i < v_.size(); ++i) v_[i] = static_cast<T>(static_cast<Accum<T>>(v[i]));
  }
  operator T*() { return v_.data(); }
  Values values() const {
    Values v(v_.size());
    for (std::size_t i = 0; i < v_.size(); ++i)
      v[i] = static_cast<double>(static_cast<Accum<T>>(v_[i]));
    return v;
  }

 private:
  std::vector<T> v_;
};

struct OnCpu {
  template <class T>
  using Array = HostArray<T>;
  static cpu::Stream& stream() {
    static cpu::Stream s{1};
    return s;
  }
};
// The type in which OnCpu has values of T, for kernels that round factors of products to bf16 on
// CPUs alone (kernels/cpu/rounded_product.h): it computes with floats then.
template <class D, class T>
using Unrounded = std::conditional_t<std::is_same_v<D, OnCpu> && std::is_same_v<T, bf16>, float, T>;
struct OnDevice {
  template <class T>
  using Array = Buffer<T>;
  static cuda::Stream& stream() { return device_stream(); }
};

// What an optimizer updates of parameters of type P.
template <class D, class P>
class WeightArray {
  static constexpr bool kSplit = std::is_same_v<P, bf16>, kHalf = is_half(dtype_of<P>);

 public:
  WeightArray(const char* name, const Values& v)
      : n_(std::ssize(v)), kept_(name, n_), rounded_("rounded", kHalf ? n_ : 0) {
    const Weights<P> to = *this;
    for (std::int64_t i = 0; i < n_; ++i)
      if constexpr (kHalf)
        to.set(i, static_cast<float>(v[i]));
      else
        to[i] = static_cast<P>(v[i]);
  }
  operator Weights<P>() {
    if constexpr (kHalf)
      return {kept_, rounded_};
    else
      return kept_;
  }
  Values values() {
    Values v(n_);
    for (std::int64_t i = 0; i < n_; ++i) v[i] = static_cast<Weights<P>>(*this)[i];
    return v;
  }
  Values rounded() const { return rounded_.values(); }

 private:
  std::int64_t n_;
  typename D::template Array<std::conditional_t<kSplit, Remainder, Accum<P>>> kept_;
  typename D::template Array<P> rounded_;
};

// One output; `bound`: largest difference between the devices.
struct Result {
  const char* name;
  Values values;
  double bound;
};
using Results = std::vector<Result>;

// A rounding to T, or some of the type that T is computed in, of values up to `size`.
template <class T>
double rounding(double size = 1) {
  return size * (std::is_same_v<T, bf16>  ? 8e-3
                 : std::is_same_v<T, f16> ? 1e-3
                 : sizeof(T) == 4         ? 1e-6
                                          : 2e-14);
}

inline bool same_values(const Values& a, const Values& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

inline std::vector<emulator::Options> all_orders() {
  std::vector<emulator::Options> all(4);
  all[1].warps = all[1].blocks = emulator::Order::descending;
  all[2].warps = all[2].blocks = all[3].warps = all[3].blocks = emulator::Order::random;
  all[3].seed = 77;
  return all;
}

// Runs f<OnDevice>() in every order and compares with `want`. Returns what the first run yields.
template <class F>
Results expect_like(const Results& want, F&& f) {
  Results first;
  for (const emulator::Options& o : all_orders()) {
    Results got;
    std::string text;
    EXPECT_EQ(kind_of_failure(
                  o, [&] { got = f.template operator()<OnDevice>(); }, &text),
              "")
        << text;
    if (testing::Test::HasFailure()) return got;
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (first.empty())
        expect_close(got[i].values, want[i].values, want[i].bound, want[i].name);
      else
        EXPECT_TRUE(same_values(got[i].values, first[i].values))
            << want[i].name << " depends on the order of warps and blocks";
    }
    if (first.empty()) first = got;
  }
  return first;
}
template <class F>
Results expect_as_cpu(F&& f) {
  return expect_like(f.template operator()<OnCpu>(), f);
}

// Leaves out each barrier in turn; some order must fail then, or, where threads meet in global
// memory, give another result.
template <class F>
void expect_needs_barriers(F&& f) {
  if (!emulator::hooked()) return;
  emulator::synchronisations.clear();
  const Results want = f.template operator()<OnDevice>();
  const auto all = emulator::synchronisations;
  EXPECT_FALSE(all.empty());
  for (const auto& s : all) {
    bool found = false;
    for (emulator::Options o : all_orders()) {
      o.suppressed = s.at;
      Results got;
      found =
          found || !kind_of_failure(o, [&] { got = f.template operator()<OnDevice>(); }).empty() ||
          !std::equal(got.begin(), got.end(), want.begin(), [](const Result& a, const Result& b) {
            return same_values(a.values, b.values);
          });
    }
    EXPECT_TRUE(found) << s.name << " at line " << s.at.line() << " of " << s.at.file_name()
                       << " can be left out";
  }
}

using Floats = testing::Types<float, double, bf16, f16>;
using Wides = testing::Types<float, double>;

}  // namespace tfm::test
