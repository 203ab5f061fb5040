// Vector operations against their definitions: whole packs, remainders and misaligned starts.
#include "device_case.h"
#include "kernels/elementwise.h"

namespace tfm::test {
namespace {

template <class T>
class DeviceElementwise : public testing::Test {};
using Types = testing::Types<float, double, bf16, f16>;
TYPED_TEST_SUITE(DeviceElementwise, Types);

TYPED_TEST(DeviceElementwise, CopiesScalesAndAdds) {
  using T = TypeParam;
  const Values x = rounded<T>(random_values(3003, 1)), y = rounded<T>(random_values(3003, 2));
  for (std::int64_t n : {0, 1, 7, 2048, 3001})
    for (std::int64_t first : {0, 2})
      for (bool accumulate : {false, true})
        for (float scale : {1.0f, 0.3f}) {
          Buffer<T> dx("x", x), dy("y", 3003);
          dy.assign(y);
          kernels::copy(device_stream(),
                        kernels::CopyArgs<T>{n, dx + first, dy + first, accumulate, scale});
          Values want = y;
          for (std::int64_t i = first; i < first + n; ++i)
            want[i] =
                (accumulate ? y[i] : 0) + x[i] * static_cast<double>(static_cast<Accum<T>>(scale));
          expect_close(dy.values(), rounded<T>(want), sizeof(T) == 2 ? 4e-3 : tolerance<T>(2), "y");
        }
}

TYPED_TEST(DeviceElementwise, CopiesRows) {
  using T = TypeParam;
  constexpr std::int64_t rows = 9, x_stride = 83, y_stride = 75;
  const Values x = rounded<T>(random_values(rows * x_stride, 1)),
               y = rounded<T>(random_values(rows * y_stride, 2));
  for (const std::int64_t cols : {0, 1, 8, 72})
    for (const bool accumulate : {false, true}) {
      Buffer<T> dx("x", x), dy("y", rows * y_stride);
      dy.assign(y);
      kernels::copy_rows(device_stream(), kernels::CopyRowsArgs<T>{rows, cols, dx + 3, x_stride,
                                                                   dy + 1, y_stride, accumulate});
      Values want = y;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c)
          want[r * y_stride + 1 + c] =
              (accumulate ? want[r * y_stride + 1 + c] : 0) + x[r * x_stride + 3 + c];
      EXPECT_EQ(dy.values(), rounded<T>(want));
    }
}

TYPED_TEST(DeviceElementwise, CapsSoftly) {
  using T = TypeParam;
  constexpr std::int64_t rows = 5, stride = 83;
  constexpr double kCap = 0.75;
  const Values x = rounded<T>(random_values(rows * stride, 1, 3));
  for (const std::int64_t cols : {1, 8, 72}) {
    Buffer<T> dx("x", x), dy("y", rows * stride);
    dy.assign(x);
    kernels::softcap(device_stream(), kernels::SoftcapArgs<T>{rows, cols, stride, kCap, dx, dy});
    Values want = x;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        want[r * stride + c] = kCap * std::tanh(x[r * stride + c] / kCap);
    expect_close(dy.values(), rounded<T>(want), sizeof(T) == 2 ? 4e-3 : tolerance<T>(4), "y");
  }
  const std::int64_t n = rows * stride;
  const Values y = rounded<T>(random_values(n, 2, 0.7)), dy = rounded<T>(random_values(n, 3)),
               before = rounded<T>(random_values(n, 4));
  for (const bool accumulate : {false, true}) {
    Buffer<T> of_y("y", y), of_dy("dy", dy), dx("dx", n);
    dx.assign(before);
    kernels::softcap_backward(
        device_stream(), kernels::SoftcapBackwardArgs<T>{n, kCap, of_y, of_dy, dx, accumulate});
    Values want(n);
    for (std::int64_t i = 0; i < n; ++i)
      want[i] = (accumulate ? before[i] : 0) + dy[i] * (1 - y[i] / kCap * (y[i] / kCap));
    expect_close(dx.values(), rounded<T>(want), sizeof(T) == 2 ? 1e-2 : tolerance<T>(8), "dx");
  }
}

template <class From, class To>
void expect_converted_rows() {
  constexpr std::int64_t rows = 5, x_stride = 83, y_stride = 75;
  const Values x = rounded<From>(random_values(rows * x_stride, 1)),
               y = rounded<To>(random_values(rows * y_stride, 2));
  for (const std::int64_t cols : {0, 1, 8, 72})
    for (const bool accumulate : {false, true}) {
      Buffer<From> dx("x", x);
      Buffer<To> dy("y", rows * y_stride);
      dy.assign(y);
      kernels::convert_rows(device_stream(),
                            kernels::ConvertRowsArgs<From, To>{rows, cols, dx + 3, x_stride, dy + 1,
                                                               y_stride, accumulate});
      Values want = y;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c) {
          double& to = want[r * y_stride + 1 + c];
          to = rounded<To>({(accumulate ? to : 0) + x[r * x_stride + 3 + c]})[0];
        }
      expect_close(dy.values(), want, sizeof(To) == 2 ? 0 : tolerance<To>(1), "y");
    }
}
TYPED_TEST(DeviceElementwise, ConvertsRows) {
  expect_converted_rows<TypeParam, Accum<TypeParam>>();
  expect_converted_rows<Accum<TypeParam>, TypeParam>();
}

TYPED_TEST(DeviceElementwise, Fills) {
  using T = TypeParam;
  Buffer<T> y("y", 1000);
  y.assign(Values(1000, 7.0));
  kernels::fill(device_stream(), kernels::FillArgs<T>{997, T(2.5f), y + 1});
  Values want(1000, 2.5);
  want[0] = want[998] = want[999] = 7;
  EXPECT_EQ(y.values(), want);
}

TYPED_TEST(DeviceElementwise, AddsABiasToEachRow) {
  using T = TypeParam;
  for (std::int64_t cols : {1, 5, 64, 72}) {
    const Values x = rounded<T>(random_values(33 * cols, 1)),
                 bias = rounded<T>(random_values(cols, 2));
    Buffer<T> dx("x", 33 * cols), db("bias", bias);
    dx.assign(x);
    kernels::add_bias(device_stream(), kernels::AddBiasArgs<T>{33, cols, db, dx});
    Values want = x;
    for (std::int64_t i = 0; i < 33 * cols; ++i) want[i] += bias[i % cols];
    EXPECT_EQ(dx.values(), rounded<T>(want));
  }
}

template <class Half>
void converts() {
  Values x = random_values(1001, 1, 100);
  x[3] = 1e-7, x[4] = 65519, x[5] = 65520, x[6] = -1e30, x[7] = -0.0, x[8] = 3e-41;
  Buffer<float> wide("wide", x), back("back", 1001);
  Buffer<Half> half("half", 1001);
  kernels::convert_rows(device_stream(),
                        kernels::ConvertRowsArgs<float, Half>{1, 1001, wide, 1001, half, 1001});
  kernels::convert_rows(device_stream(),
                        kernels::ConvertRowsArgs<Half, float>{1, 1001, half, 1001, back, 1001});
  EXPECT_EQ(half.values(), rounded<Half>(x));
  EXPECT_EQ(back.values(), rounded<Half>(x));
}
TEST(DeviceElementwise, ConvertsAsTheHostDoes) {
  converts<bf16>();
  converts<f16>();
}

}  // namespace
}  // namespace tfm::test
