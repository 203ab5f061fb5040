#pragma once
// One logical checkpoint, readable at any layout.
//   dir/step-00000500/shard-00000-of-00004.safetensors ... the chunks of each rank
//   dir/step-00000500/manifest.json                         what is where, sizes and checksums;
//   ends with its own checksum dir/latest                                             the name of
//   the newest dir/best                                               a symbolic link to the best
//   of a run with eval.stop
// Everything is written to step-00000500.tmp/ and synced, then published by one rename: a
// checkpoint is either complete or absent.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/best.h"
#include "comm/communicator.h"
#include "core/shape.h"
#include "optim/loss_scale.h"

namespace tfm::checkpoint {

// A contiguous range of elements of one logical fp32 tensor: [first, first + count), row-major, of
// the slice [begin, end) along `axis`.
struct Slice {
  int axis = -1;  // -1: the whole tensor, begin and end are ignored
  std::int64_t begin = 0, end = 0;
  std::int64_t first = 0, count = 0;
};
struct Chunk : Slice {
  std::string name;  // says what it is: "model/layers.0.ffn.up.weight", "adam.m/...", "adam.v/..."
  Shape full_shape;
  static constexpr std::int64_t kBlock = 1 << 20;
  const float* data = nullptr;  // count elements; null: read() yields them
  // n <= kBlock elements from `begin` on, which are valid until the next call.
  std::function<const float*(std::int64_t begin, std::int64_t n)> read;
  // f(elements, number of them), in order.
  template <class F>
  void each_block(F&& f) const {
    if (data) return f(data, count);
    for (std::int64_t at = 0; at < count; at += kBlock) {
      const std::int64_t n = std::min(kBlock, count - at);
      f(read(at, n), n);
    }
  }
};

struct CheckpointInfo {
  std::int64_t step = 0;
  std::int64_t updates = 0;       // steps whose update was applied; others had no finite gradient
  std::int64_t samples_seen = 0;  // the data position
  bool evaluation_due = false;    // of this step, which was given up for a request to stop
  std::int64_t data_tokens = 0;   // of the training data; 0: a checkpoint that does not say
  std::uint64_t seed = 0;
  std::map<std::string, std::int64_t> layout;  // of the run that wrote it: {"data": 2, "tensor": 2}
  std::string config;                          // YAML
  std::string extra = "{}";                    // a JSON object supplied by the caller
  optim::LossScale loss_scale;                 // restored if it is dynamic
  std::optional<Best> best;                    // of a run with eval.stop; dir/best names its step
};
struct ShardFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string xxh3_128;
};
struct StoredChunk : Slice {
  std::string name, entry;  // the logical tensor; the tensor's name within the file
  Shape full_shape;
  std::size_t file = 0;  // index into Manifest::files
};
struct Manifest : CheckpointInfo {
  std::vector<ShardFile> files;
  std::vector<StoredChunk> chunks;
};

// Communication between the ranks that write a checkpoint. All three are collective.
struct CheckpointRanks {
  int rank = 0, size = 1;
  std::function<void()> barrier = [] {};
  // Every rank's string, in rank order, on every rank.
  std::function<std::vector<std::string>(const std::string&)> gather = [](const std::string& s) {
    return std::vector<std::string>{s};
  };
};
CheckpointRanks checkpoint_ranks(comm::Communicator& world);  // `world` must outlive the result

struct CheckpointResult {   // the same on every rank
  std::string path;         // empty where it failed
  std::uint64_t bytes = 0;  // of all shards
  std::string
      error;  // why this checkpoint was given up, by which rank; the previous ones are untouched
  std::string warning;  // published, but the best could not be named, or an old one removed
  bool ok() const { return error.empty(); }
};

// Collective: every rank gives its chunks (together they must cover each tensor; copies are
// allowed, one of them is read). Never throws for what a file system does: a failure on any rank
// makes all ranks give up together. `keep` > 0: afterwards only the newest max(keep, 2) checkpoints
// up to this step, later ones and the best stay; 0: all stay.
CheckpointResult write_checkpoint(const std::string& dir, const CheckpointInfo& info,
                                  std::span<const Chunk> chunks, std::int64_t keep,
                                  const CheckpointRanks& ranks);

// Errors are Error(input) naming the file and the tensor or field.
class CheckpointReader {
 public:
  explicit CheckpointReader(
      const std::string& step_dir);  // reads and checks the manifest; shards are opened when needed
  ~CheckpointReader();

  const Manifest& manifest() const { return manifest_; }
  void verify() const;  // every file: there, nothing beside it, size, checksum, chunks as
                        // described; reads all bytes
  bool has(const std::string& name) const { return chunks_.count(name) > 0; }
  void check_headers() const;  // every shard: there, of its size, chunks as described
  const Shape& shape(const std::string& name) const;
  std::vector<std::string> names() const;
  // Assembles the slice from the chunks that hold it. `out`: slice.count elements.
  void read(const std::string& name, const Slice& slice, float* out) const;
  void read(const std::string& name, int axis, std::int64_t begin, std::int64_t end,
            std::int64_t first, std::int64_t count, float* out) const {
    read(name, Slice{axis, begin, end, first, count}, out);
  }

 private:
  struct Shards;
  std::string dir_;
  Manifest manifest_;
  std::map<std::string, std::vector<const StoredChunk*>> chunks_;
  std::unique_ptr<Shards> shards_;
};

enum class Verification : std::uint8_t { checksums, headers };  // headers: reads no tensor

// Called by one rank. The path of the checkpoint to resume from: what `latest` names if it
// verifies, else the newest step-* before that which does, else the newest of all; nothing where
// there is no step-* folder. Each checkpoint skipped is reported through `log`, with the reason.
// Throws Error(input) if there are checkpoints and none verifies.
std::optional<std::string> find_latest(const std::string& dir,
                                       const std::function<void(const std::string&)>& log,
                                       Verification verification = Verification::checksums);

// Called by one rank that holds the lock: removes what interrupted writes left behind, and puts
// back what they had put aside. Returns the names removed.
std::vector<std::string> clean(const std::string& dir);

}  // namespace tfm::checkpoint
