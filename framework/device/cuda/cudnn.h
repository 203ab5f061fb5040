#pragma once
// Graphs of cuDNN's operations (its backend interface) and their execution plans. The library is
// loaded at the first use, so programs run where it is missing.
#include <cudnn.h>

#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tfm::cuda {

class Stream;
class TextFolder;

namespace cudnn {

// A call that cuDNN rejected, with its message.
class Refusal : public Error {
 public:
  Refusal(cudnnStatus_t status, const std::string& text)
      : Error(ExitCode::environment, text), status_(status) {}
  cudnnStatus_t status() const { return status_; }

 private:
  cudnnStatus_t status_;
};
void check(cudnnStatus_t status, std::source_location at = std::source_location::current());

std::size_t version();  // of the library, 91900 for 9.19.0; 0: there is none

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  ~Descriptor();
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  std::int64_t count, const void* values);
  Descriptor& finalize();
  // Reads at most `count` values and returns how many there are.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, void* values) const;
  operator cudnnBackendDescriptor_t() const { return p_; }

  // The attribute's type is that of the value.
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, type_of(value), 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const std::array<std::int64_t, 4>& v) {
    return set(name, CUDNN_TYPE_INT64, 4, v.data());
  }

 private:
  static constexpr auto type_of(std::int64_t) { return CUDNN_TYPE_INT64; }
  static constexpr auto type_of(bool) { return CUDNN_TYPE_BOOLEAN; }
  static constexpr auto type_of(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
  static constexpr auto type_of(cudnnPointwiseMode_t) { return CUDNN_TYPE_POINTWISE_MODE; }
  static constexpr auto type_of(cudnnReduceTensorOp_t) {
    return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  }
  static constexpr auto type_of(cudnnBackendHeurMode_t) { return CUDNN_TYPE_HEUR_MODE; }
  static constexpr auto type_of(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
  static constexpr auto type_of(cudnnBackendDescriptor_t) { return CUDNN_TYPE_BACKEND_DESCRIPTOR; }

  cudnnBackendDescriptor_t p_ = nullptr;
};

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

// Where a plan runs: the handle's device, or one that is only described, for which plans are made
// but cannot run.
struct Target {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t properties = nullptr;
};

class Plan {
 public:
  // The first that builds of those which cuDNN's heuristics propose and do not say to give other
  // bits in each run; Refusal: why none does.
  Plan(const Graph& graph, const Target& target);
  // From the text of one, which holds its compiled kernels. Refusal where cuDNN does not take it,
  // as that of another version or kind of device.
  Plan(const Graph& graph, const Target& target, const std::string& text);
  std::string text() const;
  std::int64_t workspace() const { return scratch_ + workspace_; }  // bytes
  // Starts the work on the handle's stream. The workspace starts at a multiple of 256 bytes.
  void run(cudnnHandle_t handle, std::span<const void* const> operands, void* workspace) const;

 private:
  Descriptor& keep(cudnnBackendDescriptorType_t type) { return kept_.emplace_back(type); }
  void place(const Graph& graph);
  void lower(const Tensor& tensor);
  cudnnBackendDescriptor_t lower(const Operation& operation, const std::vector<Tensor>& tensors);
  bool finish(cudnnBackendDescriptor_t configuration, const Target& target);
  void finish(Descriptor plan, const Target& target);

  std::deque<Descriptor> kept_;
  std::vector<cudnnBackendDescriptor_t> lowered_;               // the tensors
  std::vector<std::int64_t> operands_, constants_, scratches_;  // cuDNN's numbers of them
  std::vector<std::uint32_t> values_;                           // of the constants
  std::vector<std::int64_t> places_;  // of the scratches, in bytes from the start of the workspace
  const Descriptor* plan_ = nullptr;
  std::int64_t workspace_ = 0,
               scratch_ = 0;  // bytes; the engine's part of the workspace follows the scratches
};

// Compiles nothing where the folder has such a plan; otherwise it is kept there.
Plan plan_of(const Graph& graph, const Target& target, const TextFolder& kept);

// A handle whose work goes to one stream. Refusal where cuDNN does not take the device.
class Handle {
 public:
  explicit Handle(const Stream& stream);
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator cudnnHandle_t() const { return p_; }

 private:
  cudnnHandle_t p_ = nullptr;
};

}  // namespace cudnn
}  // namespace tfm::cuda
