#include "device/cuda/cudnn.h"

#include <dlfcn.h>

#include <algorithm>

#include "device/cuda/stream.h"
#include "device/cuda/text_folder.h"

namespace tfm::cuda::cudnn {
namespace {

#define TFM_QUOTED(x) #x
#define TFM_TEXT(x) TFM_QUOTED(x)

// By the dynamic linker's search path, else from the path that was found when tfm was configured.
void* open_library() {
  for (const char* path : {"libcudnn.so." TFM_TEXT(CUDNN_MAJOR), TFM_CUDNN_LIBRARY})
    if (void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

struct Library {
  void* file = open_library();
  bool complete = file != nullptr;
  template <class F>
  F entry(const char* name) {
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

}  // namespace

void check(cudnnStatus_t status, std::source_location at) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char text[512] = "";
  library().cudnnGetLastErrorString(text, sizeof text);
  const std::string what = std::string(at.file_name()) + ":" + std::to_string(at.line()) +
                           ": cuDNN reports " + library().cudnnGetErrorString(status) + ": " + text;
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) fail_for_memory(what);
  throw Refusal(status, what);
}

std::size_t version() { return library().complete ? library().cudnnGetVersion() : 0; }

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check(library().cudnnBackendCreateDescriptor(type, &p_));
}
Descriptor::~Descriptor() {
  if (p_) library().cudnnBackendDestroyDescriptor(p_);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::int64_t count, const void* values) {
  check(library().cudnnBackendSetAttribute(p_, name, type, count, values));
  return *this;
}
Descriptor& Descriptor::finalize() {
  check(library().cudnnBackendFinalize(p_));
  return *this;
}
std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             std::int64_t count, void* values) const {
  std::int64_t found = 0;
  check(library().cudnnBackendGetAttribute(p_, name, type, count, &found, values));
  return found;
}

Tensor Graph::add(Tensor t) {
  t.number = std::ssize(tensors_);
  return tensors_.emplace_back(t);
}
Tensor Graph::add(const Operation& operation) {
  operations_.push_back(operation);
  return tensors_[static_cast<std::size_t>(operation.to)];
}
Tensor Graph::operand(cudnnDataType_t type, const Extents& sizes, const Extents& strides) {
  return add({.place = Tensor::Place::operand, .type = type, .sizes = sizes, .strides = strides});
}
Tensor Graph::constant(cudnnDataType_t type, std::uint32_t bits) {
  return add({.place = Tensor::Place::constant, .type = type, .bits = bits});
}
Tensor Graph::result(cudnnDataType_t type, const Extents& sizes, const Extents& strides) {
  return add({.type = type, .sizes = sizes, .strides = strides});
}
Tensor Graph::result(cudnnDataType_t type, const Extents& n) {
  return result(type, n, {n[1] * n[2] * n[3], n[2] * n[3], n[3], 1});
}

Tensor Graph::scratch(const Extents& n) {
  return add({.place = Tensor::Place::scratch,
              .sizes = n,
              .strides = {n[1] * n[2] * n[3], n[2] * n[3], n[3], 1}});
}

using Kind = Operation::Kind;
Tensor Graph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& to) {
  return add({.kind = Kind::pointwise, .x = x.number, .to = to.number, .mode = mode});
}
Tensor Graph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& y,
                        const Tensor& to) {
  return add(
      {.kind = Kind::pointwise, .x = x.number, .y = y.number, .to = to.number, .mode = mode});
}
Tensor Graph::select(const Tensor& where, const Tensor& x, const Tensor& otherwise,
                     const Tensor& to) {
  return add({.kind = Kind::pointwise,
              .x = x.number,
              .y = otherwise.number,
              .where = where.number,
              .to = to.number,
              .mode = CUDNN_POINTWISE_BINARY_SELECT});
}
Tensor Graph::index(const Tensor& like, std::int64_t dimension) {
  const Tensor to = result(CUDNN_DATA_INT32, like.sizes);
  return add({.kind = Kind::pointwise,
              .x = like.number,
              .to = to.number,
              .mode = CUDNN_POINTWISE_GEN_INDEX,
              .dimension = dimension});
}
Tensor Graph::reduce(cudnnReduceTensorOp_t reduction, const Tensor& x, const Tensor& to) {
  return add({.kind = Kind::reduce, .x = x.number, .to = to.number, .reduction = reduction});
}
Tensor Graph::matmul(const Tensor& a, const Tensor& b, const Tensor& to, const Lengths& lengths) {
  const auto number = [](const Tensor* t) { return t ? t->number : -1; };
  return add({Kind::matmul,
              a.number,
              b.number,
              -1,
              to.number,
              {number(lengths.rows), number(lengths.columns), number(lengths.terms)}});
}
Tensor Graph::reshape(const Tensor& x, const Tensor& to) {
  return add({Kind::reshape, x.number, -1, -1, to.number});
}

std::string Graph::text() const {
  std::string text;
  const auto add = [&](std::initializer_list<std::int64_t> fields) {
    for (const std::int64_t field : fields) text += std::to_string(field) + " ";
  };
  for (const Tensor& t : tensors_) {
    add({static_cast<int>(t.place), t.type, t.bits});
    for (int d = 0; d < 4; ++d) add({t.sizes[d], t.strides[d]});
  }
  for (const Operation& o : operations_)
    add({static_cast<int>(o.kind), o.x, o.y, o.where, o.to, o.lengths[0], o.lengths[1],
         o.lengths[2], o.mode, o.reduction, o.dimension});
  return text;
}

namespace {

// Whether cuDNN's notes say that the engine is not deterministic. Of one that adds up in memory
// those of version 9.19 do not.
bool is_marked(const Descriptor& engine) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  const std::int64_t n = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                    CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
  return std::find(notes, notes + n, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != notes + n;
}

// cuDNN's number of a tensor.
std::int64_t id_of(const Tensor& t) { return t.number + 1; }

}  // namespace

void Plan::place(const Graph& graph) {
  for (const Tensor& t : graph.tensors()) {
    if (t.place == Tensor::Place::operand) operands_.push_back(id_of(t));
    if (t.place == Tensor::Place::constant)
      constants_.push_back(id_of(t)), values_.push_back(t.bits);
    if (t.place == Tensor::Place::scratch) {
      scratches_.push_back(id_of(t)), places_.push_back(scratch_);
      scratch_ += round_up(t.sizes[0] * t.strides[0] * 4, 256);
    }
  }
}

void Plan::lower(const Tensor& t) {
  lowered_.push_back(
      keep(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
          .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id_of(t))
          .set(CUDNN_ATTR_TENSOR_DATA_TYPE, t.type)
          .set(CUDNN_ATTR_TENSOR_DIMENSIONS, t.sizes)
          .set(CUDNN_ATTR_TENSOR_STRIDES, t.strides)
          .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{t.type == CUDNN_DATA_INT32 ? 4 : 16})
          .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, t.place == Tensor::Place::constant)
          .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.place == Tensor::Place::result)
          .finalize());
}

cudnnBackendDescriptor_t Plan::lower(const Operation& o, const std::vector<Tensor>& tensors) {
  const auto at = [&](std::int64_t number) { return lowered_[static_cast<std::size_t>(number)]; };
  const auto finished = [](Descriptor& d) -> cudnnBackendDescriptor_t { return d.finalize(); };
  switch (o.kind) {
    case Kind::pointwise: {
      const cudnnDataType_t type = tensors[static_cast<std::size_t>(o.to)].type;
      Descriptor& how =
          keep(CUDNN_BACKEND_POINTWISE_DESCRIPTOR).set(CUDNN_ATTR_POINTWISE_MODE, o.mode);
      how.set(CUDNN_ATTR_POINTWISE_MATH_PREC,
              type == CUDNN_DATA_INT32 || type == CUDNN_DATA_BOOLEAN ? type : CUDNN_DATA_FLOAT);
      if (o.dimension >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, o.dimension);
      Descriptor& d = keep(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
                          .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, finished(how));
      d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(o.x));
      if (o.y >= 0) d.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(o.y));
      if (o.where >= 0) d.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(o.where));
      return finished(d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(o.to)));
    }
    case Kind::reduce: {
      Descriptor& how =
          keep(CUDNN_BACKEND_REDUCTION_DESCRIPTOR).set(CUDNN_ATTR_REDUCTION_OPERATOR, o.reduction);
      Descriptor& d = keep(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
      d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC,
            finished(how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)));
      return finished(d.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(o.x))
                          .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(o.to)));
    }
    case Kind::matmul: {
      Descriptor& how =
          keep(CUDNN_BACKEND_MATMUL_DESCRIPTOR).set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
      Descriptor& d = keep(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
                          .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, finished(how));
      d.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(o.x))
          .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(o.y));
      constexpr std::array kLengths{CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
                                    CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
                                    CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC};
      for (std::size_t i = 0; i < kLengths.size(); ++i)
        if (o.lengths[i] >= 0) d.set(kLengths[i], at(o.lengths[i]));
      return finished(d.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(o.to)));
    }
    case Kind::reshape:
      break;
  }
  Descriptor& d = keep(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  return finished(d.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(o.x))
                      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(o.to)));
}

Plan::Plan(const Graph& graph, const Target& target) {
  place(graph);
  std::vector<cudnnBackendDescriptor_t> all;
  for (const Tensor& t : graph.tensors()) lower(t);
  for (const Operation& o : graph.operations()) all.push_back(lower(o, graph.tensors()));
  Descriptor& operations = keep(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  operations.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(all),
                 all.data());
  if (target.handle) operations.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle);
  operations.finalize();
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                 static_cast<cudnnBackendDescriptor_t>(operations));
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.properties) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.properties);
  heuristics.finalize();
  std::int64_t proposals =
      heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  all.clear();
  for (std::int64_t i = 0; i < proposals; ++i)
    all.push_back(keep(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  proposals = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                             proposals, all.data());
  Refusal last(CUDNN_STATUS_NOT_SUPPORTED, "cuDNN has no engine for this graph");
  for (const bool marked : {false, true})
    for (std::int64_t i = 0; i < proposals; ++i) try {
        if (finish(all[static_cast<std::size_t>(i)], target, marked)) return;
      } catch (const Refusal& refusal) {
        last = refusal;
      }
  throw last;
}

bool Plan::finish(cudnnBackendDescriptor_t configuration, const Target& target, bool marked) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t p = engine;
  std::int64_t found = 0;
  check(library().cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found, &p));
  if (is_marked(engine) != marked) return false;
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  finish(std::move(plan), target);
  return true;
}

void Plan::finish(Descriptor plan, const Target& target) {
  if (target.handle) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
  if (target.properties) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.properties);
  plan.finalize().get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace_);
  plan_ = &kept_.emplace_back(std::move(plan));
}

Plan::Plan(const Graph& graph, const Target& target, const std::string& text) {
  place(graph);
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(text),
           text.data());
  finish(std::move(plan), target);
}

std::string Plan::text() const {
  constexpr auto kText = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
  std::string text(static_cast<std::size_t>(plan_->get(kText, CUDNN_TYPE_CHAR, 0, nullptr)), 0);
  plan_->get(kText, CUDNN_TYPE_CHAR, std::ssize(text), text.data());
  return text;
}

Plan plan_of(const Graph& graph, const Target& target, const TextFolder& kept) {
  const std::string key = graph.text();
  if (const auto text = kept.find(key)) try {
      return Plan(graph, target, *text);
    } catch (const Refusal&) {
    }
  Plan plan(graph, target);
  kept.keep(key, plan.text());
  return plan;
}

void Plan::run(cudnnHandle_t handle, std::span<const void* const> operands, void* workspace) const {
  TFM_CHECK(operands.size() == operands_.size(), "one pointer per operand");
  std::vector<std::int64_t> ids = operands_;
  std::vector<const void*> pointers(operands.begin(), operands.end());
  ids.insert(ids.end(), constants_.begin(), constants_.end());
  for (const std::uint32_t& value : values_) pointers.push_back(&value);
  ids.insert(ids.end(), scratches_.begin(), scratches_.end());
  for (const std::int64_t place : places_)
    pointers.push_back(static_cast<std::byte*>(workspace) + place);
  void* rest = static_cast<std::byte*>(workspace) + scratch_;
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::ssize(ids), ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(pointers),
           pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &rest).finalize();
  check(library().cudnnBackendExecute(handle, *plan_, pack));
}

Handle::Handle(const Stream& stream) {
  check(library().cudnnCreate(&p_));
  check(library().cudnnSetStream(p_, stream.get()));
}
Handle::~Handle() { library().cudnnDestroy(p_); }

}  // namespace tfm::cuda::cudnn
