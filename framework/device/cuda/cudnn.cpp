#include "device/cuda/cudnn.h"

#include <dlfcn.h>

#include <algorithm>

#include "device/cuda/stream.h"

namespace tfm::cuda::cudnn {
namespace {

#define TFM_QUOTED(x) #x
#define TFM_TEXT(x) TFM_QUOTED(x)

// Beside the program's other libraries, else where it was when tfm was configured.
void* open_library() {
  for (const char* path : {"libcudnn.so." TFM_TEXT(CUDNN_MAJOR), TFM_CUDNN_LIBRARY})
    if (void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

struct Library {
  void* file = open_library();
  bool complete = file != nullptr;
  template <class F> F entry(const char* name) {
    void* p = file ? dlsym(file, name) : nullptr;
    complete &= p != nullptr;
    return reinterpret_cast<F>(p);
  }
#define TFM_ENTRY(name) decltype(&::name) name = entry<decltype(&::name)>(#name)
  TFM_ENTRY(cudnnGetVersion);
  TFM_ENTRY(cudnnGetErrorString);
  TFM_ENTRY(cudnnGetLastErrorString);
  TFM_ENTRY(cudnnCreate);
  TFM_ENTRY(cudnnDestroy);
  TFM_ENTRY(cudnnSetStream);
  TFM_ENTRY(cudnnBackendCreateDescriptor);
  TFM_ENTRY(cudnnBackendDestroyDescriptor);
  TFM_ENTRY(cudnnBackendSetAttribute);
  TFM_ENTRY(cudnnBackendGetAttribute);
  TFM_ENTRY(cudnnBackendFinalize);
  TFM_ENTRY(cudnnBackendExecute);
#undef TFM_ENTRY
};
const Library& library() {
  static const Library loaded;
  return loaded;
}

// Bytes, of operands.
std::int64_t alignment_of(cudnnDataType_t type) { return type == CUDNN_DATA_FLOAT ? 4 : 16; }
constexpr Extents kOne{1, 1, 1, 1};

}  // namespace

void check(cudnnStatus_t status, std::source_location at) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char text[512] = "";
  library().cudnnGetLastErrorString(text, sizeof text);
  throw Refusal(status, std::string(at.file_name()) + ":" + std::to_string(at.line()) + ": cuDNN reports " + library().cudnnGetErrorString(status) +
                            ": " + text);
}

std::size_t version() { return library().complete ? library().cudnnGetVersion() : 0; }

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) { check(library().cudnnBackendCreateDescriptor(type, &p_)); }
Descriptor::~Descriptor() {
  if (p_) library().cudnnBackendDestroyDescriptor(p_);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  check(library().cudnnBackendSetAttribute(p_, name, type, count, values));
  return *this;
}
Descriptor& Descriptor::finalize() {
  check(library().cudnnBackendFinalize(p_));
  return *this;
}
std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, void* values) const {
  std::int64_t found = 0;
  check(library().cudnnBackendGetAttribute(p_, name, type, count, &found, values));
  return found;
}

Tensor Graph::tensor(cudnnDataType_t type, const Extents& sizes, const Extents& strides, Place place) {
  return {keep(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
              .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, ++numbers_)
              .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
              .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
              .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
              .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment_of(type))
              .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, place == Place::host)
              .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, place == Place::nowhere)
              .finalize(),
          type, sizes, strides};
}
Tensor Graph::operand(cudnnDataType_t type, const Extents& sizes, const Extents& strides) {
  const Tensor t = tensor(type, sizes, strides, Place::device);
  operands_.push_back(numbers_);
  return t;
}
Tensor Graph::constant(cudnnDataType_t type, std::uint32_t bits) {
  const Tensor t = tensor(type, kOne, kOne, Place::host);
  constants_.push_back(numbers_);
  values_.push_back(bits);
  return t;
}
Tensor Graph::result(cudnnDataType_t type, const Extents& sizes, const Extents& strides) { return tensor(type, sizes, strides, Place::nowhere); }
Tensor Graph::result(cudnnDataType_t type, const Extents& n) { return result(type, n, {n[1] * n[2] * n[3], n[2] * n[3], n[3], 1}); }

void Graph::add(Descriptor& operation) { operations_.push_back(operation.finalize()); }

Tensor Graph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* y, const Tensor* where, const Tensor& to,
                        std::optional<std::int64_t> axis) {
  const bool computes_in_float = to.type != CUDNN_DATA_INT32 && to.type != CUDNN_DATA_BOOLEAN;
  Descriptor& how = keep(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, computes_in_float ? CUDNN_DATA_FLOAT : to.type);
  if (axis) how.set(CUDNN_ATTR_POINTWISE_AXIS, *axis);
  Descriptor& operation = keep(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, static_cast<cudnnBackendDescriptor_t>(how.finalize()));
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor);
  if (y) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, y->descriptor);
  if (where) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, where->descriptor);
  add(operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to.descriptor));
  return to;
}
Tensor Graph::select(const Tensor& where, const Tensor& x, const Tensor& otherwise, const Tensor& to) {
  return pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, &otherwise, &where, to);
}
Tensor Graph::index(const Tensor& like, std::int64_t dimension) {
  return pointwise(CUDNN_POINTWISE_GEN_INDEX, like, nullptr, nullptr, result(CUDNN_DATA_INT32, like.sizes), dimension);
}
Tensor Graph::reduce(cudnnReduceTensorOp_t op, const Tensor& x, const Tensor& to) {
  Descriptor& how = keep(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, op).set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  add(keep(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
          .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, static_cast<cudnnBackendDescriptor_t>(how))
          .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor)
          .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to.descriptor));
  return to;
}
Tensor Graph::matmul(const Tensor& a, const Tensor& b, const Tensor& to) {
  Descriptor& how = keep(CUDNN_BACKEND_MATMUL_DESCRIPTOR).set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  add(keep(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
          .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, static_cast<cudnnBackendDescriptor_t>(how))
          .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor)
          .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor)
          .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, to.descriptor));
  return to;
}
Tensor Graph::reshape(const Tensor& x, const Tensor& to) {
  add(keep(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
          .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor)
          .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to.descriptor));
  return to;
}

namespace {

// Every run of the engine gives the same bits.
bool repeats(const Descriptor& engine) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  const std::int64_t n =
      engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
  return std::find(notes, notes + n, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == notes + n;
}

}  // namespace

Plan::Plan(Graph graph, const Target& target) : graph_(std::move(graph)) {
  Descriptor& operations = kept_.emplace_back(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  operations.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(graph_.operations_), graph_.operations_.data());
  if (target.handle) operations.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle);
  operations.finalize();
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, static_cast<cudnnBackendDescriptor_t>(operations));
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.properties) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.properties);
  heuristics.finalize();
  std::int64_t proposals = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<cudnnBackendDescriptor_t> all;
  for (std::int64_t i = 0; i < proposals; ++i) all.push_back(kept_.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  proposals = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, proposals, all.data());
  Refusal last(CUDNN_STATUS_NOT_SUPPORTED, "cuDNN has no engine of repeatable results for this graph");
  for (std::int64_t i = 0; i < proposals; ++i) try {
      if (finish(all[i], target)) return;
    } catch (const Refusal& refusal) {
      last = refusal;
    }
  throw last;
}

bool Plan::finish(cudnnBackendDescriptor_t configuration, const Target& target) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t p = engine;
  std::int64_t found = 0;
  check(library().cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found, &p));
  if (!repeats(engine)) return false;
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (target.handle) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
  if (target.properties) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.properties);
  plan.finalize().get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace_);
  plan_ = &kept_.emplace_back(std::move(plan));
  return true;
}

void Plan::run(cudnnHandle_t handle, std::span<const void* const> operands, void* workspace) const {
  TFM_CHECK(operands.size() == graph_.operands_.size(), "a pointer for each operand");
  std::vector<std::int64_t> numbers = graph_.operands_;
  numbers.insert(numbers.end(), graph_.constants_.begin(), graph_.constants_.end());
  std::vector<const void*> pointers(operands.begin(), operands.end());
  for (const std::uint32_t& value : graph_.values_) pointers.push_back(&value);
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::ssize(numbers), numbers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(pointers), pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace).finalize();
  check(library().cudnnBackendExecute(handle, *plan_, pack));
}

Handle::Handle(const Stream& stream) {
  check(library().cudnnCreate(&p_));
  check(library().cudnnSetStream(p_, stream.get()));
}
Handle::~Handle() { library().cudnnDestroy(p_); }

}  // namespace tfm::cuda::cudnn
