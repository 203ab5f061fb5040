#pragma once
// TensorBoard's event files: TFRecord frames (length, masked CRC-32C of the length, bytes, masked
// CRC-32C of the bytes; numbers are little-endian) that hold messages of TensorFlow's event.proto.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tfm::telemetry {

using Scalar = std::pair<std::string, double>;  // tag and value

class EventFile {
 public:
  // Creates a file in `directory`, which is created too; its name sorts after those present.
  // TensorBoard then ignores what earlier files have for `first_step` and later steps.
  // Error(retryable) if it cannot be written.
  EventFile(const std::string& directory, std::int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Written at once. Both return "", or why it failed.
  std::string add(std::int64_t step, std::span<const Scalar> scalars);
  std::string add_text(std::int64_t step, const std::string& tag, std::string_view markdown);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace tfm::telemetry
