// Squared errors against plain loops.
#include "kernels/squared_error.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

template <class T>
class SquaredErrors : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SquaredErrors, Types);

TYPED_TEST(SquaredErrors, OfNumbersThatThereAre) {
  using T = TypeParam;
  const std::vector<std::int32_t> numbers{number_element(-2.5f), kNoNumber, number_element(0),
                                          number_element(1e3f)};
  Guarded<T> x(Values{1, 5, -0.5, 1e3}), fresh(4), added(Values{1, 2, 3, 4});
  const double scale = 0.5;
  double total = -1;
  cpu::Stream s{1};
  kernels::squared_error(s, kernels::SquaredErrorArgs<T>{4, x, numbers.data(), &total});
  EXPECT_EQ(total, 3.5 * 3.5 + 0.25);
  for (const bool accumulate : {false, true})
    kernels::squared_error_backward(
        s, kernels::SquaredErrorBackwardArgs<T>{4, x, numbers.data(), &scale, false,
                                                accumulate ? added : fresh, accumulate});
  EXPECT_EQ(fresh.values(), (Values{3.5, 0, -0.5, 0}));
  EXPECT_EQ(added.values(), (Values{4.5, 2, 2.5, 4}));
  kernels::squared_error_backward(
      s, kernels::SquaredErrorBackwardArgs<T>{4, x, numbers.data(), &scale, true, fresh, false});
  EXPECT_EQ(fresh.values(), Values(4, 0));
}

}  // namespace
}  // namespace tfm::test
