#pragma once
// Graphs of cuDNN operations.
#include <cudnn.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace tfm::cuda {
namespace cudnn {

using Extents = std::array<std::int64_t, 4>;

struct Tensor {
  enum class Place { operand, constant, scratch, result };
  std::int64_t number = 0;  // index in its graph
  Place place = Place::result;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Extents sizes{1, 1, 1, 1}, strides{1, 1, 1, 1};
  std::uint32_t bits = 0;  // value of a constant
};

// Number of valid rows, columns and terms of a product for each sequence: int32 (B, 1, 1, 1); null
// means all. Results beyond them are undefined.
struct Lengths {
  const Tensor *rows = nullptr, *columns = nullptr, *terms = nullptr;
};

// Reads tensors x, y and where, writes tensor `to`; all are indices, -1 if absent.
struct Operation {
  enum class Kind { pointwise, reduce, matmul, reshape };
  Kind kind;
  std::int64_t x = -1, y = -1, where = -1, to = -1;
  std::array<std::int64_t, 3> lengths{-1, -1, -1};            // matmul: rows, columns and terms
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_IDENTITY;       // pointwise
  cudnnReduceTensorOp_t reduction = CUDNN_REDUCE_TENSOR_ADD;  // reduce
  std::int64_t dimension = -1;                                // pointwise GEN_INDEX
};

// A sequence of operations on four-dimensional tensors. A tensor is an operand, passed to
// Plan::run() in the order of addition; a constant; scratch, stored in the plan's workspace; or a
// result that exists only within the fused computation.
class Graph {
 public:
  // Operands are aligned to 16 bytes, int32 operands to 4.
  Tensor operand(cudnnDataType_t type, const Extents& sizes, const Extents& strides);
  Tensor constant(float value) {
    return constant(CUDNN_DATA_FLOAT, std::bit_cast<std::uint32_t>(value));
  }
  Tensor constant(std::int32_t value) {
    return constant(CUDNN_DATA_INT32, std::bit_cast<std::uint32_t>(value));
  }
  Tensor result(cudnnDataType_t type, const Extents& sizes, const Extents& strides);
  Tensor result(cudnnDataType_t type, const Extents& sizes);  // packed
  Tensor scratch(const Extents& sizes);                       // packed floats

  // Each operation writes `to` and returns it. Dimensions of size 1 are broadcast. The compute type
  // is int32 or boolean if `to` is, else float.
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& to);
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& y, const Tensor& to);
  Tensor select(const Tensor& where, const Tensor& x, const Tensor& otherwise, const Tensor& to);
  // int32 index along `dimension` of every element of a tensor shaped like `like`.
  Tensor index(const Tensor& like, std::int64_t dimension);
  // Reduces the dimensions in which `to` has size 1.
  Tensor reduce(cudnnReduceTensorOp_t reduction, const Tensor& x, const Tensor& to);
  // If b has fewer heads than a, consecutive heads of a share one head of b.
  Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& to, const Lengths& lengths = {});
  // The same memory with other sizes and strides.
  Tensor reshape(const Tensor& x, const Tensor& to);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Operation>& operations() const { return operations_; }
  std::string text() const;  // complete description in one line, the cache key of plans

 private:
  Tensor add(Tensor t);
  Tensor add(const Operation& operation);
  Tensor constant(cudnnDataType_t type, std::uint32_t bits);

  std::vector<Tensor> tensors_;
  std::vector<Operation> operations_;
};

}  // namespace cudnn
}  // namespace tfm::cuda
