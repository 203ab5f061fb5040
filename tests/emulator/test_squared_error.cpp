// Squared errors on the emulator.
#include "kernel_runs.h"
#include "kernels/squared_error.h"

namespace tfm::test {
namespace {

template <class T>
class DeviceSquaredError : public testing::Test {};
TYPED_TEST_SUITE(DeviceSquaredError, Floats);

struct SquaredErrorCase {
  std::int64_t rows;
  bool is_zero, accumulate;

  template <class D, class T>
  Results run() const {
    const Values numbers = random_values(rows, 2);
    Values elements;
    for (std::int64_t r = 0; r < rows; ++r)
      elements.push_back(r % 3 == 1 ? kNoNumber : number_element(static_cast<float>(numbers[r])));
    typename D::template Array<std::int32_t> wanted("numbers", elements);
    typename D::template Array<T> x("x", rounded<T>(random_values(rows, 1))), dx("dx", rows);
    typename D::template Array<double> total("total", 1), scale("scale", Values{0.25});
    if (accumulate) dx.assign(rounded<T>(random_values(rows, 3)));
    auto& s = D::stream();
    kernels::squared_error(s, kernels::SquaredErrorArgs<T>{rows, x, wanted, total});
    kernels::squared_error_backward(
        s, kernels::SquaredErrorBackwardArgs<T>{rows, x, wanted, scale, is_zero, dx, accumulate});
    return {{"total", total.values(), 1e-13 * static_cast<double>(rows)}, {"dx", dx.values(), 0}};
  }
};

TYPED_TEST(DeviceSquaredError, AsTheCpus) {
  for (const SquaredErrorCase& c : {SquaredErrorCase{1, false, false},
                                    {300, false, true},
                                    {1000, false, false},
                                    {7, true, false},
                                    {7, true, true}}) {
    SCOPED_TRACE(testing::Message() << c.rows);
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
  }
}

}  // namespace
}  // namespace tfm::test
