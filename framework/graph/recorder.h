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
#include "core/rows.h"
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
  DType gradient = DType::f32;  // type of its gradient
  Role role = Role::activation;
  bool wants_grad = false;
  int scope = -1;                    // recompute scope in which it was made; -1: none
  int producer = -1;                 // node; -1: leaf
  int parameter = -1;                // index given by the caller; -1: not a parameter
  bool borrowed = false;             // a parameter that another rank owns and updates
  std::function<void(Tensor)> fill;  // writes a constant
  std::int64_t bytes() const { return shape.elements() * size_of(dtype); }
};

struct Node {
  std::unique_ptr<Op> op;
  std::string name;
  std::vector<int> in, out;  // value ids in the order of the op's names; -1: absent input
  int scope = -1;
  int chunk = 0;
  comm::Purpose purpose{};  // of its collectives that have no other
};

// Where a value's columns on this rank lie in the whole, (sequences, length, all_columns).
struct Part {
  Rows rows;
  std::int64_t first_row = 0;  // of this rank among `rows` (sequence parallelism)
  std::int64_t columns = 0, first_column = 0, all_columns = 0;
  std::int64_t within = 0;  // column of the value on this rank that is the first of them
};
// A value that can be asked for by a name that follows those of parameters, as "layers.3.output".
struct NamedValue {
  std::string name;
  Value value;
  Part part;
};

// The inputs that are not absent.
OperandSet given(const std::vector<Value>& inputs);

struct OutputSpec {
  Shape shape;
  DType dtype;
  bool wants_grad = true;
  std::optional<DType> gradient = {};  // absent: dtype
};

class Recorder {
 public:
  explicit Recorder(DType dtype) : dtype_(dtype) {}
  DType dtype() const { return dtype_; }

  // Leaves lie outside the activation arena; Program::bind() gives their memory. The same parameter
  // index is the same value. `gradient` defaults to the accumulation type, since the gradient of a
  // parameter is a sum over all tokens.
  Value parameter(int index, const std::string& name, Shape shape,
                  std::optional<DType> gradient = {}, bool borrowed = false,
                  bool wants_grad = true);
  Value input(const std::string& name, Shape shape, DType dtype);
  // `fill` writes the content in host memory. The name must identify the content: the same name is
  // the same value.
  Value constant(const std::string& name, Shape shape, DType dtype,
                 std::function<void(Tensor)> fill);

  // Appends a node. `inputs` has an entry for every input that the op names, absent ones included.
  // Returns the first output; the others have the ids that follow.
  Value apply(std::unique_ptr<Op> op, const std::vector<Value>& inputs,
              std::initializer_list<OutputSpec> outputs);

  const ValueInfo& info(Value v) const { return values_[v.id]; }
  const std::vector<ValueInfo>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  // Names a value within the component that is being recorded. Nothing is kept or computed for it
  // unless it is an output of the plan.
  void name(const std::string& name, Value v, const Part& part);
  const std::vector<NamedValue>& named() const { return named_; }
  std::string qualified(const std::string& name) const {
    return prefix_.empty() ? name : prefix_ + "." + name;
  }

  // Random stream of an op that is being recorded; an internal error if its name was used before or
  // streams collide.
  std::uint32_t random_stream(const std::string& name) {
    return random_streams_.add(qualified(name));
  }

  // Starts a new chunk, whose passes can run separately from those of earlier chunks (Section).
  void next_chunk() { ++chunk_; }

  // Adds a component to the names of all that is recorded in its lifetime, such as "ffn" in
  // "layers.3.ffn". `purpose`: of its collectives that have no other; none: as outside of it.
  class Named {
   public:
    Named(Recorder& r, const std::string& name, comm::Purpose purpose = comm::Purpose::none)
        : r_(r), before_(r.prefix_), purpose_before_(r.purpose_) {
      r.prefix_ = r.qualified(name);
      if (purpose != comm::Purpose::none) r.purpose_ = purpose;
    }
    ~Named() { r_.prefix_ = before_, r_.purpose_ = purpose_before_; }
    Named(const Named&) = delete;
    Named& operator=(const Named&) = delete;

   private:
    Recorder& r_;
    std::string before_;
    comm::Purpose purpose_before_;
  };
  // A recompute scope. Values that are made in its lifetime and not read outside of it may be
  // recomputed in backward instead of kept. Nested scopes are an internal error.
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
  std::vector<NamedValue> named_;
  std::map<int, Value> parameters_;  // by the caller's index
  std::string prefix_;
  comm::Purpose purpose_{};
  RandomStreams random_streams_;
  int scope_ = -1, scopes_ = 0, chunk_ = 0;
};

}  // namespace tfm::graph
