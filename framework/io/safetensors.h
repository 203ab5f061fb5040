#pragma once
// The safetensors format: u64 little-endian N, N bytes of JSON, then the tensors, row-major and
// packed. The JSON:
//   {"__metadata__": {text: text},
//    name: {"dtype": "F32", "shape": [...], "data_offsets": [begin, end]}, ...}
// The reader trusts nothing: it refuses a header over 100 MB, duplicate or unknown keys, wrong
// types, sizes that overflow or differ from the shape's, and holes, overlaps or trailing bytes. Its
// errors are Error(input) and name file, tensor and field.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/dtype.h"
#include "io/file.h"

namespace tfm::io {

struct TensorInfo {
  std::string dtype;                 // as in the file: "F32", "BF16", ...
  std::vector<std::int64_t> shape;   // empty: a scalar
  std::uint64_t begin = 0, end = 0;  // bytes, relative to the end of the header

  std::optional<DType> type() const;  // nullopt if tfm does not compute with it
  std::int64_t elements() const;
};

class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  const TensorInfo& info(const std::string& name) const;  // Error(input) if there is none
  // Valid as long as the reader; any alignment.
  std::span<const std::byte> bytes(const std::string& name) const;
  std::span<const std::byte> file_bytes() const { return file_.bytes(); }

  // Reads elements [first, first + out.size()), converted: F32 and F64 to float or double, I32 and
  // I64 to int32 or int64. Error(input) for another element type or an integer that does not fit.
  // T: float, double, int32_t, int64_t.
  template <class T>
  void read(const std::string& name, std::int64_t first, std::span<T> out) const;
  template <class T>
  std::vector<T> read(const std::string& name) const {
    std::vector<T> out(static_cast<std::size_t>(info(name).elements()));
    read<T>(name, 0, out);
    return out;
  }

 private:
  MappedFile file_;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
  std::size_t data_at_ = 0;
};

struct TensorEntry {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
};

// Writes an AtomicFile. The data of the entries follows in their order, in calls of any size, so
// memory use does not depend on the file's size. Listing wider element types first keeps every
// tensor aligned. Wrong entries or a wrong amount of data are internal errors.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<TensorEntry>& entries,
                    std::map<std::string, std::string> metadata = {});  // {"format": "pt"} is added

  void write(std::span<const std::byte> bytes);
  template <class T>
  requires std::is_arithmetic_v<T>
  void write(std::span<const T> values) { write(std::as_bytes(values)); }
  void sync();    // checks that all data came, and brings it to disk
  void finish();  // sync(), and publishes the file

  // Of what is written so far: with finish() of the whole file.
  std::uint64_t size() const { return size_; }
  std::string checksum() const { return sum_.hex(); }

 private:
  void append(std::span<const std::byte> bytes);

  AtomicFile file_;
  Checksum sum_;
  std::uint64_t size_ = 0;
  std::uint64_t left_ = 0;  // bytes of tensor data that are still to come
};

}  // namespace tfm::io
