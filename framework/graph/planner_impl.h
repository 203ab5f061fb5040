#pragma once
// Implementation of the planner: planner.cpp makes the passes of a recording, exchanges.cpp cuts
// them into stages and inserts collectives, placement.cpp assigns offsets to buffers.
#include <map>

#include "graph/planner.h"

namespace tfm::graph {

class Planner {
 public:
  Planner(std::shared_ptr<const Recorder> recording, const PlanOptions& options);
  Program run();
  static void place(Program& draft);

 private:
  bool saved_by_consumers(int v) const;  // whether a consumer's backward pass reads v
  bool drops_outputs(const Node& node) const;
  void decide_dropped();
  int buffer(Buffer::Kind kind, int value, std::int64_t bytes, bool persistent);
  int forward_of(int v);
  int gradient_of(int v);
  int workspace(std::int64_t bytes);
  void take_workspaces(const Op& op, Instruction& s);
  int current(int v) { return late_[v] >= 0 ? late_[v] : forward_of(v); }
  void emit_forward(int n, bool again);
  void need(int v);
  bool read_before_written(int n, int a, int b) const;
  bool shares_gradient(int n, std::size_t k);
  void emit_backward(int n);
  void find_live_ranges();
  bool continues(std::size_t i) const;
  void fuse();
  void count_visits();
  void bound_arena();
  int section_of(int node, Phase phase) const;

  const Op& op_of(const Instruction& s) const { return *nodes_[s.node].op; }
  std::vector<comm::CollectiveCall> calls_of(const Instruction& s) const {
    return op_of(s).exchanges(s.phase);
  }
  bool has_time_beside(const Instruction& s, const Instruction& next) const;
  Instruction only(Instruction s, Instruction::Gradients gradients) const;
  void cut_into_stages();
  bool depend(const Instruction& a, const Instruction& b) const;
  void wait_late();

  // Bucket of a parameter.
  struct Home {
    int bucket = -1;
    std::int64_t offset = 0;  // in the bucket, in elements
  };
  Home home_of(int v) const;
  int bucket_buffer(int bucket, DType type);
  void put_in_front();
  void put_within(int b, int bucket_buffer, DType type);
  void find_visits();
  std::size_t first_of_visit(int visit) const;
  std::size_t begin_of_run(std::size_t at) const;
  std::size_t end_of_section(std::size_t at) const;
  void insert_gathers();
  void gather_updated();
  std::vector<int> last_writers() const;
  void put_gradients_into_buckets();
  void insert_reductions();
  void insert(std::vector<std::vector<Instruction>> before);
  void insert(std::vector<std::vector<Instruction>> starts,
              const std::vector<std::vector<Instruction>>& waits);
  Instruction add_exchange(Exchange x);
  void number_exchanges();

  const PlanOptions& options_;
  const std::vector<Node>& nodes_;
  const std::vector<ValueInfo>& values_;
  Program program_;
  std::vector<int> forward_, late_, gradient_;
  std::vector<bool> written_, dropped_;
  std::vector<std::vector<int>> consumers_;  // by value: nodes that read it, in order
  // By gradient buffer: the values that share it and whose producers have not read it yet.
  std::map<int, std::vector<int>> owners_;
  std::vector<Home> homes_;            // by parameter: the first bucket that holds some of it
  std::vector<std::size_t> visits_;    // by visit: its first step; see find_visits()
  std::vector<int> bucket_gradients_;  // by bucket: buffer of its gradients, if every run sums
};

}  // namespace tfm::graph
