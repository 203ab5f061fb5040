// Tries the products of warpgroups on whole numbers, whose sums are exact, against those of single
// warps.
#include "kernels/cuda/attention_tensor.h"

namespace tfm::kernels::gpu {
namespace {

constexpr int kThreads = 32 * kWarpgroup, kRows = kTensorRows, kWidth = 128;
constexpr std::size_t kBytes = 2 * kRows * kWidth * sizeof(bf16);

template <int N>
__device__ bool same(const float (&a)[N][4], const float (&b)[N][4]) {
  bool all = true;
  each_element<N>([&](int n, int e) { all = all && a[n][e] == b[n][e]; });
  return all;
}

template <int N>
__device__ bool rows_agree(const LeftFactor<bf16, kWidth, false>& left, const bf16* tile,
                           const LanePlace<kWidth>& lane) {
  float one[N / 8][4] = {}, other[N / 8][4] = {};
  multiply_rows<bf16, kWidth, N, false>(one, left, tile, lane);
  multiply_rows<bf16, kWidth, N, true>(other, left, tile, lane);
  return same(one, other);
}

template <int K>
__device__ bool columns_agree(const bf16* tile, const LanePlace<kWidth>& lane) {
  float left[K / 8][4], one[kWidth / 8][4] = {}, other[kWidth / 8][4] = {};
  each_element<K / 8>([&](int n, int e) {
    left[n][e] = static_cast<float>(static_cast<int>(threadIdx.x + 5 * n + 3 * e) % 9 - 4);
  });
  multiply_columns<bf16, kWidth, K, kWidth, false>(one, left, tile, lane);
  multiply_columns<bf16, kWidth, K, kWidth, true>(other, left, tile, lane);
  return same(one, other);
}

__global__ void __launch_bounds__(kThreads) try_on_tiles(ProductsOfWarp* answers) {
  ProductsOfWarp answer = ProductsOfWarp::absent;
  if constexpr (cuda::has_warpgroup_code()) {
    bf16 *left = cuda::shared_memory<bf16>(), *right = left + kRows * kWidth;
    for (int i = threadIdx.x; i < kRows * kWidth; i += kThreads) {
      const int row = i / kWidth, column = i % kWidth,
                at = place<kWidth, kRows>(row, column / 8) + column % 8;
      left[at] = cuda::narrow<bf16>(static_cast<float>((7 * row + 3 * column) % 11 - 5));
      right[at] = cuda::narrow<bf16>(static_cast<float>((5 * row + 8 * column) % 13 - 6));
    }
    cuda::show_to_warpgroups();
    cuda::block_barrier();  // both tiles are there
    const LanePlace<kWidth> lane;
    const LeftFactor<bf16, kWidth, false> rows(left, threadIdx.x / 32 * 16, lane);
    bool agree = rows_agree<64>(rows, right, lane);
    agree &= rows_agree<32>(rows, right, lane);
    agree &= columns_agree<64>(right, lane);
    agree &= columns_agree<32>(right, lane);
    answer = cuda::ballot(agree) == ~0u ? ProductsOfWarp::right : ProductsOfWarp::wrong;
  }
  if (threadIdx.x % 32 == 0) answers[threadIdx.x / 32] = answer;
}

}  // namespace

void try_products(cuda::Stream& stream, ProductsOfWarp* answers) {
  cuda::launch(stream, try_on_tiles, 1, kThreads, kBytes, answers);
}

bool multiplies_by_warpgroups(cuda::Stream& stream) {
  return cuda::allows_warpgroups() && products_are_right(stream);
}

}  // namespace tfm::kernels::gpu
