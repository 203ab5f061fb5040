#include "graph/recorder.h"

namespace tfm::graph {

std::string_view name_of(Phase p) {
  switch (p) {
    case Phase::forward:
      return "forward";
    case Phase::recompute:
      return "recompute";
    case Phase::backward:
      return "backward";
    case Phase::gather:
      return "gather";
    case Phase::reduce:
      return "reduce";
  }
  return "?";
}

OperandSet given(const std::vector<Value>& inputs) {
  OperandSet there;
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k]) there.insert(k);
  return there;
}

Recorder::Checkpoint::Checkpoint(Recorder& r) : r_(r) {
  TFM_CHECK(r.scope_ < 0,
            "recompute scopes cannot be nested; found one inside '" + r.prefix_ + "'");
  r.scope_ = r.scopes_++;
}

Value Recorder::leaf(ValueInfo info) {
  values_.push_back(std::move(info));
  return {static_cast<int>(values_.size()) - 1};
}

Value Recorder::parameter(int index, const std::string& name, Shape shape,
                          std::optional<DType> gradient, bool borrowed, bool wants_grad) {
  const auto [at, fresh] = parameters_.try_emplace(index);
  if (fresh)
    at->second = leaf({.name = name,
                       .shape = shape,
                       .dtype = dtype_,
                       .gradient = gradient.value_or(accum_type(dtype_)),
                       .role = Role::parameter,
                       .wants_grad = wants_grad,
                       .parameter = index,
                       .borrowed = borrowed});
  return at->second;
}

Value Recorder::input(const std::string& name, Shape shape, DType dtype) {
  return leaf({.name = name, .shape = shape, .dtype = dtype, .role = Role::input});
}

Value Recorder::constant(const std::string& name, Shape shape, DType dtype,
                         std::function<void(Tensor)> fill) {
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (values_[i].role == Role::constant && values_[i].name == name) return {static_cast<int>(i)};
  return leaf({.name = name,
               .shape = shape,
               .dtype = dtype,
               .role = Role::constant,
               .fill = std::move(fill)});
}

void Recorder::name(const std::string& name, Value v, const Part& part) {
  named_.push_back({qualified(name), v, part});
}

Value Recorder::apply(std::unique_ptr<Op> op, const std::vector<Value>& inputs,
                      std::initializer_list<OutputSpec> outputs) {
  Node node{.op = std::move(op), .scope = scope_, .chunk = chunk_, .purpose = purpose_};
  node.name = qualified(std::string(node.op->kind()));
  bool wants_grad = node.op->crosses_ranks();
  for (Value v : inputs) {
    TFM_CHECK(v.id < static_cast<int>(values_.size()),
              node.name + " reads a value of another recording");
    node.in.push_back(v.id);
    if (v) wants_grad |= values_[v.id].wants_grad;
  }
  const int first = static_cast<int>(values_.size());
  for (const OutputSpec& o : outputs) {
    node.out.push_back(static_cast<int>(values_.size()));
    values_.push_back(
        {.name = node.name + (node.out.size() > 1 ? "." + std::to_string(node.out.size() - 1) : ""),
         .shape = o.shape,
         .dtype = o.dtype,
         .gradient = o.gradient.value_or(o.dtype),
         .wants_grad = wants_grad && o.wants_grad,
         .scope = scope_,
         .producer = static_cast<int>(nodes_.size())});
  }
  nodes_.push_back(std::move(node));
  return {first};
}

}  // namespace tfm::graph
