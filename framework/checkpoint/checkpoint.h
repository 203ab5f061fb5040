#pragma once
// One logical checkpoint, readable at any layout.
//   dir/step-00000500/shard-00000-of-00004.safetensors   the chunks of each rank
//   dir/step-00000500/manifest.json   files, chunks and checksums, with its own checksum at the end
//   dir/latest                        the name of the newest checkpoint
//   dir/best                          a symbolic link to the best one of a run with eval.stop
//
// Everything is written to step-00000500.tmp/, synced, and published by one rename: a checkpoint is
// either complete or absent.
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

// Elements [first, first + count), in row-major order, of the slice [begin, end) along `axis` of
// one logical fp32 tensor.
struct Slice {
  int axis = -1;  // -1: the whole tensor, begin and end are ignored
  std::int64_t begin = 0, end = 0;
  std::int64_t first = 0, count = 0;
};
struct Chunk : Slice {
  // The logical tensor: "model/layers.0.ffn.up.weight", "adam.m/...", "adam.v/...".
  std::string name;
  Shape full_shape;
  static constexpr std::int64_t kBlock = 1 << 20;
  const float* data = nullptr;  // count elements; null: read() yields them
  // Returns n <= kBlock elements from `begin` on, valid until the next call.
  std::function<const float*(std::int64_t begin, std::int64_t n)> read;
  // Calls f(elements, count) for consecutive blocks of elements.
  template <class F>
  void each_block(F&& f) const {
    if (data) return f(data, count);
    for (std::int64_t at = 0; at < count; at += kBlock) {
      const std::int64_t n = std::min(kBlock, count - at);
      f(read(at, n), n);
    }
  }
};

// Seconds that a checkpoint takes at most to write or to read: 16 bytes of each of its parameters
// at the 20 MB/s of a slow disk.
inline double longest_transfer(std::int64_t parameters) {
  return 16 / 20e6 * static_cast<double>(parameters);
}

struct CheckpointInfo {
  std::int64_t step = 0;
  std::int64_t updates = 0;       // steps whose update was applied: with finite gradients
  std::int64_t samples_seen = 0;  // the data position
  // The evaluation of this step was abandoned for a stop request and has to be repeated.
  bool evaluation_due = false;
  std::int64_t data_tokens = 0;  // of the training data; 0: unknown
  std::uint64_t seed = 0;
  // Layout of the writing run: {"data": 2, "tensor": 2}.
  std::map<std::string, std::int64_t> layout;
  std::string config;        // YAML
  std::string directory;     // from which its relative paths count; empty: none counts
  std::string init;          // model.init; empty: random, or unknown
  std::string tokenizer;     // data::fingerprint_of_sides(); empty: no data.tokenizer, or unknown
  std::string extra = "{}";  // a JSON object supplied by the caller
  optim::LossScale loss_scale;  // restored if it is dynamic
  std::optional<Best> best;     // of a run with eval.stop; dir/best links to its step
};
struct ShardFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string xxh3_128;
};
struct StoredChunk : Slice {
  // The logical tensor, and the chunk's name within the file.
  std::string name, entry;
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
  // Why and by which rank this checkpoint was abandoned; the previous ones are untouched.
  std::string error;
  // The checkpoint is published, but `best` could not be updated or an old one not removed.
  std::string warning;
  bool ok() const { return error.empty(); }
};

// Collective: every rank passes its chunks, which together must cover each tensor. Ranks may pass
// copies; one of them is read back. Does not throw for file system errors: a failure on any rank
// makes all ranks abandon the checkpoint. If `keep` > 0, only the newest max(keep, 2) checkpoints
// up to this step, later ones and the best remain afterwards; 0: all remain.
CheckpointResult write_checkpoint(const std::string& dir, const CheckpointInfo& info,
                                  std::span<const Chunk> chunks, std::int64_t keep,
                                  const CheckpointRanks& ranks);

// Errors are Error(input) naming the file and the tensor or field.
class CheckpointReader {
 public:
  // Reads and checks the manifest; shards are opened when needed.
  explicit CheckpointReader(const std::string& step_dir);
  ~CheckpointReader();

  const Manifest& manifest() const { return manifest_; }
  // Checks that every file is there with its size, checksum and chunks, and that there is no
  // unlisted shard. Reads all bytes.
  void verify() const;
  bool has(const std::string& name) const { return chunks_.count(name) > 0; }
  // Checks that every shard is there with its size and chunks. Reads headers only.
  void check_headers() const;
  const Shape& shape(const std::string& name) const;
  std::vector<std::string> names() const;
  // Assembles `slice` from the chunks that hold it into `out`, of slice.count elements.
  void read(const std::string& name, const Slice& slice, float* out) const;

 private:
  struct Shards;
  std::string dir_;
  Manifest manifest_;
  std::map<std::string, std::vector<const StoredChunk*>> chunks_;
  std::unique_ptr<Shards> shards_;
};

// The number of step-* entries of a directory, whatever they hold; 0 if it cannot be listed.
std::int64_t count_steps(const std::string& dir);

enum class Verification : std::uint8_t { checksums, headers };  // headers: reads no tensor data

// Called on one rank. Returns the path of the checkpoint to resume from: the one that `latest`
// names if it verifies, otherwise the newest step-* before it that verifies, otherwise the newest
// of all that does; nullopt if there is no step-* folder. Reports each skipped checkpoint to `log`
// with the reason. Error(input) if there are checkpoints and none verifies.
std::optional<std::string> find_latest(const std::string& dir,
                                       const std::function<void(const std::string&)>& log,
                                       Verification verification = Verification::checksums);

// Called on one rank that holds the RunLock: removes what interrupted writes left behind and
// restores what they had set aside. Returns the names removed.
std::vector<std::string> clean(const std::string& dir);

}  // namespace tfm::checkpoint
