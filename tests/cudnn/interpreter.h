#pragma once
// What a graph of cuDNN's operations says, computed in float64 on the CPU: the meaning that its
// operations are documented to have.
#include <bit>
#include <cmath>
#include <functional>
#include <map>

#include "device/cuda/cudnn_graph.h"
#include "support/kernel_case.h"

namespace tfm::test {

class Interpreter {
 public:
  // operands: memory in the order of the graph's operands, at least as long as their strides reach;
  // written where a result goes there.
  Interpreter(const cuda::cudnn::Graph& graph, std::vector<Values*> operands)
      : graph_(graph), values_(graph.tensors().size()) {
    std::size_t next = 0;
    for (const Tensor& t : graph.tensors()) {
      Values& v = values_[t.number];
      v.resize(t.sizes[0] * t.sizes[1] * t.sizes[2] * t.sizes[3], NAN);
      if (t.place == Tensor::Place::constant)
        v[0] = t.type == CUDNN_DATA_FLOAT ? std::bit_cast<float>(t.bits)
                                          : std::bit_cast<std::int32_t>(t.bits);
      if (t.place != Tensor::Place::operand) continue;
      memory_[t.number] = operands.at(next++);
      each(t, [&](const Index& i) { v[flat(t, i)] = memory_[t.number]->at(offset(t, i)); });
    }
    for (const Operation& o : graph.operations()) run(o);
    for (const Operation& o : graph.operations())
      if (const Tensor& t = graph.tensors()[o.to]; t.place == Tensor::Place::operand)
        each(t, [&](const Index& i) {
          memory_[t.number]->at(offset(t, i)) = values_[t.number][flat(t, i)];
        });
  }

 private:
  using Tensor = cuda::cudnn::Tensor;
  using Operation = cuda::cudnn::Operation;
  using Index = cuda::cudnn::Extents;

  static std::int64_t offset(const Tensor& t, const Index& i) {
    return i[0] * t.strides[0] + i[1] * t.strides[1] + i[2] * t.strides[2] + i[3] * t.strides[3];
  }
  // Of the element of a packed array; dimensions of 1 are repeated, fewer heads are shared by
  // neighbors.
  static std::int64_t flat(const Tensor& t, const Index& i, std::int64_t heads = 0) {
    std::int64_t at = 0;
    for (int d = 0; d < 4; ++d)
      at = at * t.sizes[d] + (t.sizes[d] == 1   ? 0
                              : d == 1 && heads ? i[d] / (heads / t.sizes[d])
                                                : i[d]);
    return at;
  }
  static void each(const Tensor& t, const std::function<void(const Index&)>& f) {
    Index i;
    for (i[0] = 0; i[0] < t.sizes[0]; ++i[0])
      for (i[1] = 0; i[1] < t.sizes[1]; ++i[1])
        for (i[2] = 0; i[2] < t.sizes[2]; ++i[2])
          for (i[3] = 0; i[3] < t.sizes[3]; ++i[3]) f(i);
  }

  static double apply(cudnnPointwiseMode_t mode, double x, double y, double where) {
    switch (mode) {
      case CUDNN_POINTWISE_IDENTITY:
        return x;
      case CUDNN_POINTWISE_ADD:
        return x + y;
      case CUDNN_POINTWISE_SUB:
        return x - y;
      case CUDNN_POINTWISE_MUL:
        return x * y;
      case CUDNN_POINTWISE_DIV:
        return x / y;
      case CUDNN_POINTWISE_EXP:
        return std::exp(x);
      case CUDNN_POINTWISE_LOG:
        return std::log(x);
      case CUDNN_POINTWISE_CMP_GE:
        return x >= y;
      case CUDNN_POINTWISE_CMP_LT:
        return x < y;
      case CUDNN_POINTWISE_LOGICAL_AND:
        return x != 0 && y != 0;
      case CUDNN_POINTWISE_BINARY_SELECT:
        return where != 0 ? x : y;
      default:
        ADD_FAILURE() << "pointwise mode " << mode;
        return NAN;
    }
  }

  void run(const Operation& o) {
    const Tensor &x = graph_.tensors()[o.x], &y = graph_.tensors()[std::max<std::int64_t>(0, o.y)],
                 &to = graph_.tensors()[o.to];
    const Tensor& where = graph_.tensors()[std::max<std::int64_t>(0, o.where)];
    Values &out = values_[o.to], &in = values_[o.x];
    if (o.kind == Operation::Kind::pointwise)
      each(to, [&](const Index& i) {
        const double second = o.y < 0 ? NAN : values_[o.y][flat(y, i)],
                     third = o.where < 0 ? NAN : values_[o.where][flat(where, i)];
        out[flat(to, i)] = o.dimension >= 0 ? static_cast<double>(i[o.dimension])
                                            : apply(o.mode, in[flat(x, i)], second, third);
      });
    if (o.kind == Operation::Kind::reduce) {
      const bool largest = o.reduction == CUDNN_REDUCE_TENSOR_MAX;
      std::fill(out.begin(), out.end(), largest ? -INFINITY : 0);
      each(x, [&](const Index& i) {
        double& sum = out[flat(to, i, x.sizes[1])];
        sum = largest ? std::max(sum, in[flat(x, i)]) : sum + in[flat(x, i)];
      });
    }
    if (o.kind == Operation::Kind::matmul)
      each(to, [&](const Index& i) {
        // How far a dimension is real; beyond that nothing is known of the product.
        const auto real = [&](std::size_t which, std::int64_t all) {
          const std::int64_t lengths = o.lengths[which];
          return lengths < 0 ? all : static_cast<std::int64_t>(values_[lengths][i[0]]);
        };
        double sum = i[2] < real(0, to.sizes[2]) && i[3] < real(1, to.sizes[3]) ? 0 : NAN;
        for (std::int64_t k = 0; k < real(2, x.sizes[3]); ++k)
          sum += in[flat(x, {i[0], i[1], i[2], k})] *
                 values_[o.y][flat(y, {i[0], i[1], k, i[3]}, x.sizes[1])];
        out[flat(to, i)] = sum;
      });
    if (o.kind == Operation::Kind::reshape) {
      std::map<std::int64_t, double> memory;
      each(x, [&](const Index& i) { memory[offset(x, i)] = in[flat(x, i)]; });
      each(to, [&](const Index& i) { out[flat(to, i)] = memory.at(offset(to, i)); });
    }
  }

  const cuda::cudnn::Graph& graph_;
  std::vector<Values> values_;  // packed
  std::map<std::int64_t, Values*> memory_;
};

}  // namespace tfm::test
