#pragma once
// Graphs of cuDNN's operations.
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
  std::int64_t number = 0;  // within its graph
  Place place = Place::result;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Extents sizes{1, 1, 1, 1}, strides{1, 1, 1, 1};
  std::uint32_t bits = 0;  // of a constant
};

// Of each sequence how many rows, columns and terms of a product are real: (B, 1, 1, 1) of int32;
// null: all. What is beyond is undefined.
struct Lengths {
  const Tensor *rows = nullptr, *columns = nullptr, *terms = nullptr;
};

// Reads x, y and where (numbers of tensors; -1: none), writes `to`.
struct Operation {
  enum class Kind { pointwise, reduce, matmul, reshape };
  Kind kind;
  std::int64_t x = -1, y = -1, where = -1, to = -1;
  std::array<std::int64_t, 3> lengths{-1, -1, -1};       // of matmul: of rows, columns and terms
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_IDENTITY;  // of pointwise
  cudnnReduceTensorOp_t reduction = CUDNN_REDUCE_TENSOR_ADD;  // of reduce
  std::int64_t dimension = -1;                                // of an index
};

// Operations on tensors of four dimensions, in order. Tensors are operands, which run() is given in
// the order in which they were added, constants, results that lie in a plan's workspace, or results
// that exist within the computation alone.
class Graph {
 public:
  Tensor operand(cudnnDataType_t type, const Extents& sizes,
                 const Extents& strides);  // at a multiple of 16 bytes, of int32 of 4
  Tensor constant(float value) {
    return constant(CUDNN_DATA_FLOAT, std::bit_cast<std::uint32_t>(value));
  }
  Tensor constant(std::int32_t value) {
    return constant(CUDNN_DATA_INT32, std::bit_cast<std::uint32_t>(value));
  }
  Tensor result(cudnnDataType_t type, const Extents& sizes, const Extents& strides);
  Tensor result(cudnnDataType_t type, const Extents& sizes);  // packed
  Tensor scratch(const Extents& sizes);                       // packed floats

  // Each writes `to` and returns it. Dimensions of 1 are repeated; values are computed in float,
  // int32 or as truth, as `to` is.
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& to);
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& y, const Tensor& to);
  Tensor select(const Tensor& where, const Tensor& x, const Tensor& otherwise, const Tensor& to);
  Tensor index(const Tensor& like,
               std::int64_t dimension);  // of every element of a tensor of that shape, int32
  Tensor reduce(cudnnReduceTensorOp_t reduction, const Tensor& x,
                const Tensor& to);  // over dimensions in which `to` has fewer
  Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& to,
                const Lengths& lengths = {});  // neighboring heads of a share one of b
  Tensor reshape(const Tensor& x,
                 const Tensor& to);  // the same memory under other sizes and strides

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Operation>& operations() const { return operations_; }
  std::string text() const;  // all of it, in one line

 private:
  Tensor add(Tensor t);
  Tensor add(const Operation& operation);
  Tensor constant(cudnnDataType_t type, std::uint32_t bits);

  std::vector<Tensor> tensors_;
  std::vector<Operation> operations_;
};

}  // namespace cudnn
}  // namespace tfm::cuda
