#pragma once
// The tape: model code calls functions that append {op, inputs, outputs}. Recording order is
// execution order.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/random_streams.h"
#include "graph/op.h"

namespace tfm::graph {

struct Value {
  int id = -1;
  explicit operator bool() const { return id >= 0; }
};

enum class Role : std::uint8_t { activation, parameter, input, constant };

struct ValueInfo {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  DType gradient = DType::f32;  // its type
  Role role = Role::activation;
  bool wants_grad = false;
  int scope = -1;                    // recompute scope it was made in
  int producer = -1;                 // node
  int parameter = -1;                // caller's index, for parameters
  bool borrowed = false;             // a parameter that another rank updates
  std::function<void(Tensor)> fill;  // of a constant
  std::int64_t bytes() const {
    return shape.elements() * static_cast<std::int64_t>(size_of(dtype));
  }
};

struct Node {
  std::unique_ptr<Op> op;
  std::string name;
  std::vector<int> in, out;  // values by the op's names; -1: an input that was not given
  int scope = -1;
  int chunk = 0;
};

// The inputs that are there.
Tensors given(const std::vector<Value>& inputs);

struct OutputSpec {
  Shape shape;
  DType dtype;
  bool wants_grad = true;
};

class Recorder {
 public:
  explicit Recorder(DType dtype) : dtype_(dtype) {}
  DType dtype() const { return dtype_; }

  // Leaves live outside the activation arena; their memory is given when the program is bound.
  // The gradient of a parameter, a sum over all tokens, is of the accumulation type unless
  // `gradient` says otherwise.
  Value parameter(int index, const std::string& name, Shape shape,
                  std::optional<DType> gradient = {}, bool borrowed = false);
  Value input(const std::string& name, Shape shape, DType dtype);
  // `fill` writes it, in host memory. The name says what it holds: the same name is the same value.
  Value constant(const std::string& name, Shape shape, DType dtype,
                 std::function<void(Tensor)> fill);

  // Appends a node with all inputs that its op names, absent ones included. Returns its first
  // output, the others follow with consecutive ids.
  Value apply(std::unique_ptr<Op> op, const std::vector<Value>& inputs,
              std::initializer_list<OutputSpec> outputs);

  const ValueInfo& info(Value v) const { return values_[v.id]; }
  const std::vector<ValueInfo>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  std::string qualified(const std::string& name) const {
    return prefix_.empty() ? name : prefix_ + "." + name;
  }

  // The random stream of an op that is recorded now; its name must be new, and so must the stream.
  std::uint32_t random_stream(const std::string& name) {
    return random_streams_.add(qualified(name));
  }

  // What follows is a chunk of its own, whose passes may run apart from those before (Section).
  void next_chunk() { ++chunk_; }

  // Names what is recorded while it lives: "layers.3" + "ffn" ...
  class Named {
   public:
    Named(Recorder& r, const std::string& name) : r_(r), before_(r.prefix_) {
      r.prefix_ = r.qualified(name);
    }
    ~Named() { r_.prefix_ = before_; }
    Named(const Named&) = delete;
    Named& operator=(const Named&) = delete;

   private:
    Recorder& r_;
    std::string before_;
  };
  // Values made while it lives and not read outside of it may be recomputed in backward instead of
  // kept. Scopes do not nest: one inside another is an internal error.
  class Checkpoint {
   public:
    explicit Checkpoint(Recorder& r);
    ~Checkpoint() { r_.scope_ = -1; }
    Checkpoint(const Checkpoint&) = delete;
    Checkpoint& operator=(const Checkpoint&) = delete;

   private:
    Recorder& r_;
  };

 private:
  Value leaf(ValueInfo info);
  DType dtype_;
  std::vector<ValueInfo> values_;
  std::vector<Node> nodes_;
  std::map<int, Value> parameters_;  // by the caller's index
  std::string prefix_;
  RandomStreams random_streams_;
  int scope_ = -1, scopes_ = 0, chunk_ = 0;
};

}  // namespace tfm::graph
