#pragma once
// Execution plans of cuDNN, by its backend API. The library is loaded at the first use, so programs
// also run without it.
#include <cudnn.h>

#include <cstdint>
#include <deque>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "device/cuda/cudnn_graph.h"

namespace tfm::cuda {

class Stream;
class TextFolder;

namespace cudnn {

// Error(environment): cuDNN rejected a call. Holds its message.
class Refusal : public Error {
 public:
  Refusal(cudnnStatus_t status, const std::string& text)
      : Error(ExitCode::environment, text), status_(status) {}
  cudnnStatus_t status() const { return status_; }

 private:
  cudnnStatus_t status_;
};
// Throws Refusal, or device::OutOfMemory if cuDNN ran out of device memory.
void check(cudnnStatus_t status, std::source_location at = std::source_location::current());

std::size_t version();  // of the library, such as 91900 for 9.19.0; 0 if it cannot be used

// Owns a descriptor of the backend API.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  ~Descriptor();
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  std::int64_t count, const void* values);
  Descriptor& finalize();
  // Reads at most `count` values and returns the number that cuDNN reports.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, void* values) const;
  operator cudnnBackendDescriptor_t() const { return p_; }

  // Sets one value; the attribute type follows from the C++ type.
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

// Device for which plans are made: that of a handle, or one given only by its properties. Plans for
// the latter cannot be run.
struct Target {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t properties = nullptr;
};

class Plan {
 public:
  // Builds the first proposal of cuDNN's heuristics that is supported, of those that are marked as
  // nondeterministic only if there is no other. Throws the last Refusal if there is none.
  Plan(const Graph& graph, const Target& target);
  // Restores a plan from its text(), which holds the compiled kernels. Throws Refusal if cuDNN
  // rejects it, for example because it is of another version or kind of device.
  Plan(const Graph& graph, const Target& target, const std::string& text);
  std::string text() const;
  std::int64_t workspace() const { return scratch_ + workspace_; }  // bytes
  // Enqueues the work on the handle's stream. `workspace` is aligned to 256 bytes. `operands` are
  // in the order in which they were added to the graph.
  void run(cudnnHandle_t handle, std::span<const void* const> operands, void* workspace) const;

 private:
  Descriptor& keep(cudnnBackendDescriptorType_t type) { return kept_.emplace_back(type); }
  void place(const Graph& graph);
  void lower(const Tensor& tensor);
  cudnnBackendDescriptor_t lower(const Operation& operation, const std::vector<Tensor>& tensors);
  bool finish(cudnnBackendDescriptor_t configuration, const Target& target, bool marked);
  void finish(Descriptor plan, const Target& target);

  std::deque<Descriptor> kept_;
  std::vector<cudnnBackendDescriptor_t> lowered_;               // descriptors of the tensors
  std::vector<std::int64_t> operands_, constants_, scratches_;  // their cuDNN ids
  std::vector<std::uint32_t> values_;                           // bits of the constants
  std::vector<std::int64_t> places_;  // byte offsets of the scratch tensors in the workspace
  const Descriptor* plan_ = nullptr;
  // Bytes of the workspace: `scratch_` for scratch tensors, then `workspace_` for the engine.
  std::int64_t workspace_ = 0, scratch_ = 0;
};

// Restores the plan for the graph from the folder, or builds it and keeps it there.
Plan plan_of(const Graph& graph, const Target& target, const TextFolder& kept);

// A cuDNN handle bound to one stream. Throws Refusal if cuDNN does not support the device.
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
