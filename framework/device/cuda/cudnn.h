#pragma once
// Execution plans of cuDNN (its backend interface). The library is loaded at the first use, so
// programs run where it is missing.
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
