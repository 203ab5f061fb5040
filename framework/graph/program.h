#pragma once
// A compiled recording: a flat list of instructions that every run replays unchanged. Planning
// computes offsets only; bind() turns them into pointers.
#include "graph/instruction.h"
#include "graph/recorder.h"

namespace tfm::graph {

enum class Recompute : std::uint8_t { none, selective, full };

// A contiguous range of the flat parameters, and of their gradients, that is exchanged as one
// (optim/optimizer.h). The result of a reduce_scatter is this rank's part of the range.
struct BucketUse {
  std::int64_t begin = 0;  // first element of the range
  struct Member {
    int parameter = 0;        // index
    std::int64_t offset = 0;  // in the bucket, in elements; < 0 if it begins in another bucket
  };
  std::vector<Member> members;
  std::int64_t elements = 0;
  comm::CollectiveCall reduce;  // sums gradients over ranks
  comm::CollectiveCall across;  // sums this rank's share of that sum over replicas
  comm::CollectiveCall gather;  // gathers sharded or updated parameters
};

// When gradients are summed over ranks. A run computes one micro-batch.
enum class Summed : std::uint8_t {
  at_last,                 // runs accumulate; the last one reduces
  every_run,               // each run reduces its own gradients, the last one sums over replicas
  every_run_over_replicas  // each run reduces its own gradients and sums them over replicas
};

// What a rank holds of every bucket between runs: its share, or the whole bucket.
struct Sharded {
  bool parameters = false;  // only its share: gathered for each visit of a layer that uses them
  bool gradients = false;   // only its share: every run sums
  Summed summed = Summed::at_last;
};

// Memory outside the arena: data and gradients of leaves, indexed by value of the recording; and of
// buckets, indexed as PlanOptions::buckets: this rank's shares if they are sharded.
struct Bindings {
  std::vector<Tensor> data, gradients, bucket_parameters, bucket_gradients;
};

class Program {
 public:
  // Memory of activations, gradients and workspaces, including all slots.
  std::int64_t arena_bytes() const { return shared_bytes_ + slots_ * slot_bytes_; }
  std::int64_t slots() const { return slots_; }
  std::int64_t slot_bytes() const { return slot_bytes_; }
  // Byte offset of a buffer in the arena, or in its first slot if it is carried.
  std::int64_t place_of(const Buffer& b) const {
    return b.offset + (b.carried ? shared_bytes_ : 0);
  }
  int chunks() const { return static_cast<int>(recording_->nodes().back().chunk) + 1; }
  // Section of step i; that of the last step if i is the number of steps, where kept buffers end.
  int section_at(int i) const {
    return instructions_[std::min<std::size_t>(static_cast<std::size_t>(i),
                                               instructions_.size() - 1)]
        .section;
  }
  bool draft() const { return draft_; }  // buffers have no offsets yet, see finish()
  std::int64_t unshared_bytes() const;   // bytes of all buffers if none shared memory
  const std::vector<Instruction>& instructions() const { return instructions_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }
  const Recorder& recording() const { return *recording_; }
  const std::vector<BucketUse>& buckets() const { return buckets_; }
  // See PlanOptions::gradients_in_front.
  std::int64_t bytes_in_front() const { return front_bytes_; }
  const std::vector<Exchange>& exchanges() const { return exchanges_; }  // ordered by start
  const Sharded& sharded() const { return sharded_; }
  // Whether an exchange takes place in the run of a micro-batch.
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
  // The collectives of a run, ordered by start.
  std::vector<comm::CollectiveCall> collectives(MicroBatch run, Section section = {}) const;
  std::vector<int> parameters_without_gradient() const { return untouched_; }
  // Whether step i is fused with the next one.
  bool fused_with_next(std::size_t i) const {
    return i + 1 < instructions_.size() && instructions_[i + 1].fusion;
  }
  Work work(std::size_t i) const;  // of step i
  // Bytes that step i reads and writes. The tensor between fused steps is not counted where it need
  // not pass through memory. `accumulating`: for a micro-batch other than the first.
  std::int64_t moved_bytes(std::size_t i, bool accumulating) const;

  // Assigns memory, which must outlive the runs. `arena` has arena_bytes().
  void bind(std::byte* arena, const Bindings& bindings);
  // Tensors of an output and of a seeded gradient; an internal error if the program has none.
  Tensor value(Value v, std::int64_t slot = 0) const;
  Tensor gradient(Value v) const;

  // Runs the program once, or one section with the buffers of a slot. If `seconds` is given, waits
  // for the device after each step and adds the elapsed time to (*seconds)[step].
  void run(const ExecContext& context, std::vector<double>* seconds = nullptr, Section section = {},
           std::int64_t slot = 0) const;
  void run_instruction(std::size_t i, const ExecContext& context, std::int64_t slot = 0) const;

 private:
  friend class Planner;
  struct Resolved {
    std::vector<Tensor> in, out, grad_out;
    std::vector<GradSlot> grad_in, grad_in_accumulating;
    std::byte* workspace = nullptr;
    std::span<std::byte> scratch;
  };
  // Tensors of one slot, by buffer and by step.
  struct Bound {
    std::vector<Tensor> tensors;
    std::vector<Resolved> steps;
  };
  std::byte* address(const Buffer& b, std::int64_t slot) const {
    return arena_ + place_of(b) + (b.carried ? slot * slot_bytes_ : 0);
  }
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
  // Whether the exchange completes the sum of a run's gradients.
  bool ends_sum(const Exchange& x) const {
    if (x.of != Exchange::Of::gradients && x.of != Exchange::Of::shares) return false;
    const bool over_replicas =
        sharded_.summed == Summed::every_run_over_replicas && buckets_[x.bucket].across.bytes > 0;
    return over_replicas ? x.of == Exchange::Of::shares : sums_run(x);
  }

  std::shared_ptr<const Recorder> recording_;
  std::vector<Buffer> buffers_;
  std::vector<Instruction> instructions_;
  std::vector<BucketUse> buckets_;
  Sharded sharded_;
  // By bucket: (first element, count) of ranges without a gradient; empty unless every run sums.
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> gaps_;
  std::vector<Exchange> exchanges_;
  std::vector<int> untouched_;
  std::int64_t shared_bytes_ = 0, slot_bytes_ = 0, slots_ = 0, front_bytes_ = 0;
  bool draft_ = false;
  std::vector<Bound> bound_;  // by slot; one entry if there are no slots
  std::byte* arena_ = nullptr;
  std::vector<Tensor> bucket_parameters_, bucket_gradients_;
  mutable std::vector<comm::Communicator::Ticket> tickets_;  // of pending collectives
};

}  // namespace tfm::graph
