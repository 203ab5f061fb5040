// Writes a checkpoint: every rank its shard; rank 0 writes the manifest, publishes by rename and
// removes old checkpoints.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>

#include "checkpoint/manifest.h"
#include "comm/consensus.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace tfm::checkpoint {
namespace {

namespace fs = std::filesystem;

// Runs `work` and returns its error message; empty: none.
template <class F>
std::string attempt(F&& work) {
  try {
    work();
    return {};
  } catch (const std::exception& e) {
    return *e.what() ? e.what() : "unknown error";
  }
}

// The first error of any rank, on every rank.
std::string agree(const CheckpointRanks& ranks, const std::string& error) {
  const auto all = ranks.gather(error);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (!all[r].empty()) return "rank " + std::to_string(r) + ": " + all[r];
  return {};
}

std::string shard_name(const CheckpointRanks& ranks) {
  return printed("shard-%05d-of-%05d.safetensors", ranks.rank, ranks.size);
}

// The chunk's shape in the safetensors header: the slice's where the chunk is all of it, else flat.
std::vector<std::int64_t> entry_shape(const Chunk& p, const StridedRows& rows) {
  if (p.first != 0 || p.count != rows.elements()) return {p.count};
  std::vector<std::int64_t> shape;
  for (int i = 0; i < p.full_shape.rank(); ++i)
    shape.push_back(i == p.axis ? p.end - p.begin : p.full_shape[i]);
  return shape;
}

std::string write_shard(const std::string& folder, std::span<const Chunk> chunks,
                        const CheckpointRanks& ranks) {
  std::vector<io::TensorEntry> entries;
  std::vector<StoredChunk> stored;
  std::set<std::string> used;
  std::map<std::string, int> copies;  // the last number of each name
  for (const auto& p : chunks) {
    const auto rows = rows_of(p.full_shape, p);
    TFM_CHECK(rows && p.first >= 0 && p.count >= 0 && p.first + p.count <= rows->elements(),
              "chunk of " + p.name + " lies outside " + p.full_shape.str());
    std::string entry = p.name;
    for (int& n = copies[p.name]; !used.insert(entry).second;)
      entry = p.name + "@" + std::to_string(++n);
    entries.push_back({entry, "F32", entry_shape(p, *rows)});
    StoredChunk s;
    static_cast<Slice&>(s) = p;
    if (p.axis < 0) s.axis = -1, s.begin = s.end = 0;
    s.name = p.name;
    s.entry = std::move(entry);
    s.full_shape = p.full_shape;
    stored.push_back(std::move(s));
  }
  const std::string name = shard_name(ranks);
  io::SafetensorsWriter writer(folder + "/" + name, entries);
  for (const auto& p : chunks)
    p.each_block([&](const float* data, std::int64_t n) {
      writer.write(std::span<const float>(data, static_cast<std::size_t>(n)));
    });
  writer.finish();
  return chunk_list({name, writer.size(), writer.checksum()}, stored);
}

void prepare(const std::string& dir, const std::string& folder) {
  io::create_directories(dir);
  fs::remove_all(folder);
  fs::create_directory(folder);
}

// Swaps the names a and b, atomically where the file system supports it.
void exchange(const std::string& a, const std::string& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS)
    throw Error(ExitCode::retryable, a + ": cannot swap names with " + b + ": " + errno_text());
  const std::string aside = b + ".old.tmp";
  io::rename_file(b, aside);
  io::rename_file(a, b);
  io::rename_file(aside, a);
}

// Renames `folder` to `path`; renames back if syncing the directory or updating `latest` fails.
void publish(const std::string& dir, const std::string& folder, const std::string& path) {
  const bool again = fs::exists(path);
  again ? exchange(folder, path) : io::rename_file(folder, path);
  try {
    io::sync_directory(dir);
    const std::string latest = dir + "/latest";
    if (!fs::is_regular_file(fs::symlink_status(latest))) fs::remove(latest);  // someone's link
    io::replace_file(latest, fs::path(path).filename().string() + "\n");
  } catch (...) {
    again ? exchange(folder, path) : io::rename_file(path, folder);
    throw;
  }
  std::error_code ignored;  // clean() removes what remains
  if (again) fs::remove_all(folder, ignored);
}

// Points the link dir/best to the checkpoint of `step`, if there is one.
void link_best(const std::string& dir, std::int64_t step) {
  if (!fs::exists(dir + "/" + step_name(step))) return;
  fs::remove(dir + "/best.tmp");
  fs::create_directory_symlink(step_name(step), dir + "/best.tmp");
  if (fs::is_directory(fs::symlink_status(dir + "/best")))  // a copy that followed the link
    io::rename_file(dir + "/best", dir + "/best.old");
  io::rename_file(dir + "/best.tmp", dir + "/best");
  io::sync_directory(dir);
}

// Removes what is older than the last `keep`, but never the best one, also where the link to it
// could not be made, nor what a link left behind names. Later steps are of another run, from which
// this one does not continue.
void retain(const std::string& dir, const CheckpointInfo& written, std::int64_t keep) {
  if (keep <= 0) return;
  std::error_code none;
  const std::string linked = fs::read_symlink(dir + "/best", none).string();
  std::vector<std::int64_t> steps;
  for (const auto& e : fs::directory_iterator(dir))
    if (const auto step = step_of(e.path().filename().string());
        step && *step < written.step && step_name(*step) != linked &&
        !(written.best && written.best->step == *step))
      steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  for (std::size_t i = static_cast<std::size_t>(std::max<std::int64_t>(keep, 2)) - 1;
       i < steps.size(); ++i) {
    const std::string path = dir + "/" + step_name(steps[i]);
    io::rename_file(path, path + ".tmp");  // no reader sees it half removed
    fs::remove_all(path + ".tmp");
  }
}

}  // namespace

CheckpointResult write_checkpoint(const std::string& dir, const CheckpointInfo& info,
                                  std::span<const Chunk> chunks, std::int64_t keep,
                                  const CheckpointRanks& ranks) {
  const std::string path = dir + "/" + step_name(info.step), folder = path + ".tmp";
  const bool first = ranks.rank == 0;
  CheckpointResult result;
  const auto give_up = [&](std::string error) {
    ranks.barrier();  // no rank writes into the folder any more
    std::error_code ignored;
    if (first) fs::remove_all(folder, ignored);
    ranks.barrier();
    result.error = path + ": cannot be written: " + error;
    return result;
  };

  if (auto e = agree(ranks, first ? attempt([&] { prepare(dir, folder); }) : ""); !e.empty())
    return give_up(e);
  std::string shard;
  std::string error = attempt([&] { shard = write_shard(folder, chunks, ranks); });
  if (auto e = agree(ranks, error); !e.empty()) return give_up(e);

  const auto shards = ranks.gather(shard);
  std::int64_t bytes = 0;
  error = attempt([&] {
    if (!first) return;
    Manifest manifest;
    static_cast<CheckpointInfo&>(manifest) = info;
    for (const auto& s : shards) add_shard(manifest, s);
    for (const auto& f : manifest.files) bytes += f.bytes;
    io::replace_file(folder + "/" + manifest_name, to_text(manifest));
    publish(dir, folder, path);
  });
  if (auto e = agree(ranks, error); !e.empty()) return give_up(e);

  result.path = path;
  comm::unpack(ranks.gather(comm::pack(bytes))[0], result.bytes);
  std::string warning;
  if (first && info.best) warning = attempt([&] { link_best(dir, info.best->step); });
  if (first)
    if (const std::string more = attempt([&] { retain(dir, info, keep); }); !more.empty())
      warning += (warning.empty() ? "" : "; ") + more;
  result.warning = agree(ranks, warning);
  return result;
}

CheckpointRanks checkpoint_ranks(comm::Communicator& world) {
  return {.rank = world.rank(),
          .size = world.size(),
          .barrier = [&world] { world.barrier(); },
          .gather = [&world](const std::string& s) { return comm::gather(world, s); }};
}

}  // namespace tfm::checkpoint
