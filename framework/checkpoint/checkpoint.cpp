#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "checkpoint/manifest.h"
#include "core/task.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace tfm::checkpoint {

namespace fs = std::filesystem;

struct CheckpointReader::Shards {
  std::vector<std::unique_ptr<io::SafetensorsReader>> open;
  std::set<const StoredChunk*> checked;

  // The chunk's elements; throws where the shard's header is not what the manifest says.
  std::span<const std::byte> data(const std::string& dir, const Manifest& manifest,
                                  const StoredChunk& p) {
    open.resize(manifest.files.size());
    const auto& file = manifest.files[p.file];
    auto& shard = open[p.file];
    if (!shard) {
      shard = std::make_unique<io::SafetensorsReader>(dir + "/" + file.name);
      if (shard->file_bytes().size() != file.bytes) {
        const auto size = shard->file_bytes().size();
        shard.reset();
        throw Error(ExitCode::input, dir + "/" + file.name + ": has " + std::to_string(size) +
                                         " bytes; expected the manifest's " +
                                         std::to_string(file.bytes));
      }
    }
    if (checked.insert(&p).second) {
      const auto& info = shard->info(p.entry);
      if (info.type() != DType::f32 || info.elements() != p.count) {
        checked.erase(&p);
        throw Error(ExitCode::input, shard->path() + ": tensor " + in_quotes(p.entry) +
                                         " differs from the manifest; expected " +
                                         std::to_string(p.count) + " elements of F32");
      }
    }
    return shard->bytes(p.entry);
  }
};

namespace {

// Read, not mapped: what a disk cannot read is an error here, and would be a signal there.
std::string checksum(const std::string& path, Task& task) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::vector<char> piece(1 << 20);
  io::Checksum sum;
  do {
    file.read(piece.data(), std::ssize(piece));
    sum.add(std::as_bytes(std::span(piece).first(static_cast<std::size_t>(file.gcount()))));
    task.add(file.gcount());
  } while (file);
  if (!file.eof()) throw Error(ExitCode::input, path + ": cannot be read: " + errno_text());
  return sum.hex();
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& step_dir)
    : dir_(step_dir), shards_(std::make_unique<Shards>()) {
  const io::MappedFile file(dir_ + "/" + manifest_name);
  manifest_ = from_text(file.path(),
                        {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  for (const auto& p : manifest_.chunks) chunks_[p.name].push_back(&p);
}

CheckpointReader::~CheckpointReader() = default;

void CheckpointReader::verify() const {
  std::set<std::string> expected{manifest_name};
  std::int64_t bytes = 0;
  for (const ShardFile& f : manifest_.files) bytes += static_cast<std::int64_t>(f.bytes);
  Task task("verifying " + dir_, bytes, Task::Unit::bytes);
  for (const auto& f : manifest_.files) {
    const io::MappedFile file(dir_ + "/" + f.name);
    if (!expected.insert(f.name).second)
      throw Error(ExitCode::input,
                  dir_ + "/" + manifest_name + ": lists the file " + f.name + " twice");
    if (file.bytes().size() != f.bytes)
      throw Error(ExitCode::input, file.path() + ": has " + std::to_string(file.bytes().size()) +
                                       " bytes; expected the manifest's " +
                                       std::to_string(f.bytes));
    if (checksum(file.path(), task) != f.xxh3_128)
      throw Error(ExitCode::input, file.path() +
                                       ": the file is damaged: its checksum differs from the "
                                       "manifest's; restore it or use another checkpoint");
  }
  for (const auto& e : fs::directory_iterator(dir_))
    if (const auto name = e.path().filename().string();
        name.rfind("shard-", 0) == 0 && !expected.count(name))
      throw Error(ExitCode::input,
                  dir_ + "/" + name + ": the manifest does not list this file; remove it");
  check_headers();
}

void CheckpointReader::check_headers() const {
  for (const auto& p : manifest_.chunks) shards_->data(dir_, manifest_, p);
}

const Shape& CheckpointReader::shape(const std::string& name) const {
  const auto found = chunks_.find(name);
  if (found == chunks_.end())
    throw Error(ExitCode::input, dir_ + "/" + manifest_name + ": no tensor " + in_quotes(name));
  return found->second.front()->full_shape;
}

std::vector<std::string> CheckpointReader::names() const {
  std::vector<std::string> out;
  for (const auto& [name, chunks] : chunks_) out.push_back(name);
  return out;
}

namespace {

struct ElementRange {
  std::int64_t from = 0;  // element within the chunk
  std::int64_t length =
      0;  // contiguous elements from there on; 0: the chunk does not have this element
};

// Position of element `at` of the whole tensor within a chunk.
ElementRange locate(const StoredChunk& p, const StridedRows& rows, std::int64_t at) {
  if (rows.row == 0 || p.count == 0) return {};
  const std::int64_t row = at / rows.stride, column = at % rows.stride - rows.offset;
  if (column < 0 || column >= rows.row) return {};
  const std::int64_t from = row * rows.row + column - p.first;
  if (from < 0 || from >= p.count) return {};
  const bool gapless = rows.row == rows.stride;
  return {from, gapless ? p.count - from : std::min(rows.row - column, p.count - from)};
}

}  // namespace

void CheckpointReader::read(const std::string& name, const Slice& slice, float* out) const {
  const Shape& full = shape(name);
  const auto target = rows_of(full, slice);
  TFM_CHECK(target && slice.first >= 0 && slice.count >= 0 &&
                slice.first + slice.count <= target->elements(),
            "the requested slice of " + name + " lies outside " + full.str());
  const auto& chunks = chunks_.at(name);
  std::vector<StridedRows> rows;
  for (const auto* p : chunks) rows.push_back(*rows_of(full, *p));

  std::size_t hint = 0;  // the chunk that had the elements read last
  for (std::int64_t t = slice.first, end = slice.first + slice.count; t < end;) {
    const std::int64_t column = t % target->row;
    std::int64_t at = t / target->row * target->stride + target->offset + column;
    std::int64_t left = std::min(target->row - column, end - t);
    t += left;
    while (left > 0) {
      ElementRange run;
      std::size_t tried = 0;
      for (; tried < chunks.size() && run.length == 0; ++tried) {
        if (tried > 0) hint = (hint + 1) % chunks.size();
        run = locate(*chunks[hint], rows[hint], at);
      }
      if (run.length == 0)
        throw Error(ExitCode::input, dir_ + "/" + manifest_name + ": tensor " + in_quotes(name) +
                                         ": no shard holds element " + std::to_string(at) + " of " +
                                         std::to_string(full.elements()));
      const std::int64_t n = std::min(run.length, left);
      const auto bytes = shards_->data(dir_, manifest_, *chunks[hint]);
      std::memcpy(out, bytes.data() + run.from * sizeof(float),
                  static_cast<std::size_t>(n) * sizeof(float));
      out += n;
      at += n;
      left -= n;
    }
  }
}

// What cannot be seen is not taken for absent.
void expect_listed(const std::string& dir, const std::error_code& error) {
  if (!error || error == std::errc::no_such_file_or_directory ||
      error == std::errc::not_a_directory)
    return;
  throw Error(error == std::errc::permission_denied ? ExitCode::usage : ExitCode::retryable,
              dir + ": its checkpoints cannot be listed: " + error.message());
}

std::int64_t count_steps(const std::string& dir) {
  std::int64_t count = 0;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error))
    count += step_of(at->path().filename().string()).has_value();
  return count;
}

std::optional<std::string> find_latest(const std::string& dir,
                                       const std::function<void(const std::string&)>& log,
                                       Verification verification) {
  std::set<std::int64_t, std::greater<>> steps;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error))
    if (const auto step = step_of(at->path().filename().string())) steps.insert(*step);
  expect_listed(dir, error);
  const auto valid = [&](const std::string& name) {
    try {
      const CheckpointReader reader(dir + "/" + name);
      verification == Verification::checksums ? reader.verify() : reader.check_headers();
      return true;
    } catch (const std::exception& e) {
      log("checkpoint " + name + " is skipped: " + e.what());
      return false;
    }
  };
  std::optional<std::int64_t> tried;
  const bool has_latest = fs::exists(dir + "/latest", error);
  expect_listed(dir, error);
  if (has_latest) {
    try {
      const io::MappedFile file(dir + "/latest");
      std::string name(reinterpret_cast<const char*>(file.bytes().data()),
                       std::min<std::size_t>(file.bytes().size(), 64));
      while (!name.empty() && (name.back() == '\n' || name.back() == '\r' || name.back() == ' '))
        name.pop_back();
      tried = step_of(name);
      if (!tried)
        log(dir + "/latest names " + in_quotes(name) + "; expected a name such as step-00000500");
    } catch (const Error& e) {
      log(e.what());
    }
    if (tried && valid(step_name(*tried))) return dir + "/" + step_name(*tried);
  } else if (!steps.empty()) {
    log(dir + "/latest is missing; searching " + std::to_string(steps.size()) +
        " step-* directories");
  }
  // Later steps than the latest are of another run: they come last.
  for (const bool later : {false, true})
    for (const auto step : steps)
      if (step != tried && (tried && step > *tried) == later && valid(step_name(step))) {
        if (later)
          log("checkpoint " + step_name(step) + " is later than " + step_name(*tried) +
              ", which was the latest, and so of another run");
        return dir + "/" + step_name(step);
      }
  if (!steps.empty())
    throw Error(ExitCode::input, dir + ": none of the " + std::to_string(steps.size()) +
                                     " checkpoints is intact; restore one, or " +
                                     "move them elsewhere to start from scratch");
  return std::nullopt;
}

std::vector<std::string> clean(const std::string& dir) {
  std::vector<fs::path> stale;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const auto dot = name.find('.');
    const bool ours = dot != std::string::npos &&
                      (step_of(name.substr(0, dot)) || name.substr(0, dot) == "latest" ||
                       name.substr(0, dot) == "best");
    if (ours && (name.substr(dot) == ".tmp" || name.substr(dot) == ".old.tmp"))
      stale.push_back(at->path());
  }
  std::vector<std::string> removed;
  for (const auto& path : stale) {
    // Put aside in favor of a copy that has not come to its place.
    if (const fs::path place = dir / path.filename().replace_extension().replace_extension();
        path.filename().string().ends_with(".old.tmp") && !fs::exists(place) &&
        fs::exists(path / manifest_name)) {
      io::rename_file(path, place);
      io::sync_directory(dir);
      continue;
    }
    fs::remove_all(path, error);
    if (error)
      throw Error(ExitCode::retryable,
                  path.string() +
                      ": cannot remove this leftover of an interrupted write: " + error.message());
    removed.push_back(path.filename().string());
  }
  return removed;
}

}  // namespace tfm::checkpoint
