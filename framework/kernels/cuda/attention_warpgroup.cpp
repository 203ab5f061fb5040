#include "kernels/cuda/attention_warpgroup.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "device/cuda/scratch.h"

namespace tfm::kernels::gpu {
namespace {

class Products {
 public:
  explicit Products(cuda::Stream& stream) : stream_(stream) {}
  bool are_right() {
    if (!found_ && !stream_.capturing()) found_ = find();
    return found_ == ProductsOfWarp::right;
  }

 private:
  ProductsOfWarp find() {
    const cuda::Scratch<ProductsOfWarp> answers(stream_, kWarpgroup);
    try_products(stream_, answers);
    std::array<ProductsOfWarp, kWarpgroup> all{};
    cuda::check(cudaMemcpyAsync(all.data(), answers, sizeof all, cudaMemcpyDefault, stream_.get()));
    stream_.wait();
    const ProductsOfWarp least = *std::min_element(all.begin(), all.end());
    if (least == ProductsOfWarp::wrong)
      std::fprintf(stderr,
                   "warning: products of warpgroups on this GPU are not what they should be; "
                   "attention uses those of single warps, which are slower\n");
    return least;
  }

  cuda::Stream& stream_;
  std::optional<ProductsOfWarp> found_;
};

}  // namespace

bool products_are_right(cuda::Stream& stream) { return stream.own<Products>().are_right(); }

}  // namespace tfm::kernels::gpu
