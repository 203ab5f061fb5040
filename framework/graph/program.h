#pragma once
// A planned step: a flat list that is replayed unchanged. Offsets first (no memory needed to make a
// plan), pointers after bind().
#include "graph/instruction.h"
#include "graph/recorder.h"

namespace tfm::graph {

enum class Recompute : std::uint8_t { none, selective, full };

// A contiguous range of the flat parameters and of their gradients, each of which is exchanged as
// one; see optim/optimizer.h. Of a reduce_scatter a rank's result is its part of that range.
struct BucketUse {
  std::int64_t begin = 0;  // of the range, in elements
  struct Member {
    int parameter = 0;        // index
    std::int64_t offset = 0;  // in the bucket, in elements; below 0 where it begins in another one
  };
  std::vector<Member> members;
  std::int64_t elements = 0;
  comm::CollectiveCall reduce;  // of the gradients
  comm::CollectiveCall across;  // of this rank's share of their sum, over replicas of it
  comm::CollectiveCall gather;  // of parameters that are sharded, or whose updates are
};

// When gradients are summed over ranks: what all runs of a step have added up, by the last one; or
// those of every run by itself, then to be added up, over the ranks that share out the sums and,
// by the last run or by every one, over replicas.
enum class Summed : std::uint8_t { at_last, every_run, every_run_over_replicas };

// What a rank has of every bucket between runs.
struct Sharded {
  // Its share of the parameters: they are gathered for each visit of the layer that uses them.
  bool parameters = false;
  // Its share of the gradients, which every run sums.
  bool gradients = false;
  Summed summed = Summed::at_last;
};

// Memory of the leaves: indexed as the recording's values; of buckets as PlanOptions::buckets,
// shares where they are sharded.
struct Bindings {
  std::vector<Tensor> data, gradients, bucket_parameters, bucket_gradients;
};

class Program {
 public:
  // Memory of activations, gradients and workspaces.
  std::int64_t arena_bytes() const { return shared_bytes_ + slots_ * slot_bytes_; }
  std::int64_t slots() const { return slots_; }
  std::int64_t slot_bytes() const { return slot_bytes_; }  // of a micro-batch under way
  // In the arena; of what is carried in its first slot.
  std::int64_t place_of(const Buffer& b) const {
    return b.offset + (b.carried ? shared_bytes_ : 0);
  }
  int chunks() const { return static_cast<int>(recording_->nodes().back().chunk) + 1; }
  // Of what is live at step `i`, the number of steps included: the number of its section.
  int section_at(int i) const {
    return steps_[std::min<std::size_t>(static_cast<std::size_t>(i), steps_.size() - 1)].section;
  }
  bool draft() const { return draft_; }  // its buffers have no places yet
  std::int64_t unshared_bytes() const;   // what the same buffers would take without reuse
  const std::vector<Instruction>& steps() const { return steps_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }
  const Recorder& recording() const { return *recording_; }
  const std::vector<BucketUse>& buckets() const { return buckets_; }
  // Of the whole gradients, which lie right in front of the arena where they share its use.
  std::int64_t bytes_in_front() const { return front_bytes_; }
  const std::vector<Exchange>& exchanges() const { return exchanges_; }  // in the order of starts
  const Sharded& sharded() const { return sharded_; }
  // Whether an exchange takes place in a run.
  bool runs(const Exchange& x, MicroBatch run) const {
    switch (x.of) {
      case Exchange::Of::pass:
        return run.last || !of_whole_gradients(x.start);
      case Exchange::Of::parameters:
        return true;
      case Exchange::Of::updated:
        return run.first;
      case Exchange::Of::gradients:
      case Exchange::Of::shares:
        return run.last || x.buffer >= 0;
    }
    internal_error("unhandled enum value");
  }
  // The collectives of a run.
  std::vector<comm::CollectiveCall> collectives(MicroBatch run, Section section = {}) const;
  std::vector<int> parameters_without_gradient() const { return untouched_; }
  bool joined(std::size_t i) const {
    return i + 1 < steps_.size() && steps_[i + 1].pair;
  }                                // step `i` is run with the one after it
  Work work(std::size_t i) const;  // of step `i`
  // What step `i` reads and writes of its tensors, see Work; nothing of what one joined step hands
  // to the other that could stay on the way. `accumulating`: as in
  // StepState::accumulate_parameters.
  std::int64_t moved_bytes(std::size_t i, bool accumulating) const;

  void bind(std::byte* arena, const Bindings& bindings);
  // A value that is alive at the end of a run (an output), or a seeded gradient.
  Tensor value(Value v, std::int64_t slot = 0) const;
  Tensor gradient(Value v) const;

  // Runs the program, or a section of it with what a slot carries, once. With `seconds`, waits for
  // the device after each step and adds what it took to (*seconds)[step].
  void run(const ExecContext& context, std::vector<double>* seconds = nullptr, Section section = {},
           std::int64_t slot = 0) const;
  void run_step(std::size_t i, const ExecContext& context, std::int64_t slot = 0) const;

 private:
  friend class Planner;
  struct Resolved {
    std::vector<Tensor> in, out, grad_out;
    std::vector<GradSlot> grad_in, grad_in_accumulating;
    std::byte* workspace = nullptr;
    std::span<std::byte> scratch;
  };
  // The tensors of a slot: by buffer, and by step.
  struct Bound {
    std::vector<Tensor> tensors;
    std::vector<Resolved> steps;
  };
  Tensor resolve(int buffer, std::int64_t slot, const Bindings& bindings) const;
  Bound bind_slot(std::int64_t slot, const Bindings& bindings) const;
  bool of_whole_gradients(int step) const;
  std::pair<std::size_t, std::size_t> range(Section section) const;
  Exec exec_of(std::size_t i, const ExecContext& context, std::int64_t slot) const;
  void compute(std::size_t i, const ExecContext& context, std::int64_t slot) const;
  void exchange(std::size_t i, const ExecContext& context, std::int64_t slot) const;
  Exchanged tensors_of(const Exchange& x, const ExecContext& context, std::int64_t slot) const;
  Tensor bucket(const Exchange& x, std::int64_t slot) const;
  void clear_gaps(const Exchange& x, const ExecContext& context, std::int64_t slot) const;
  void add_sum(const Exchange& x, const ExecContext& context, std::int64_t slot) const;
  bool sums_run(const Exchange& x) const {
    return x.of == Exchange::Of::gradients && x.buffer >= 0;
  }
  // Whether the sum of a run's gradients is complete behind it.
  bool ends_sum(const Exchange& x) const {
    if (x.of != Exchange::Of::gradients && x.of != Exchange::Of::shares) return false;
    const bool over_replicas =
        sharded_.summed == Summed::every_run_over_replicas && buckets_[x.bucket].across.bytes > 0;
    return over_replicas ? x.of == Exchange::Of::shares : sums_run(x);
  }

  std::shared_ptr<const Recorder> recording_;
  std::vector<Buffer> buffers_;
  std::vector<Instruction> steps_;
  std::vector<BucketUse> buckets_;
  Sharded sharded_;
  // First element and number of those of each sharded bucket that no step writes a gradient to.
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> gaps_;
  std::vector<Exchange> exchanges_;
  std::vector<int> untouched_;
  std::int64_t shared_bytes_ = 0, slot_bytes_ = 0, slots_ = 0, front_bytes_ = 0;
  bool draft_ = false;
  std::vector<Bound> bound_;  // by slot; one without slots
  std::byte* arena_ = nullptr;
  std::vector<Tensor> bucket_parameters_, bucket_gradients_;
  mutable std::vector<comm::Communicator::Ticket> tickets_;  // of collectives under way
};

}  // namespace tfm::graph
