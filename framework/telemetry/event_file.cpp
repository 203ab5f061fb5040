#include "telemetry/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.h"
#include "core/host.h"
#include "core/strings.h"
#include "io/protobuf.h"
#include "telemetry/append.h"
#include "telemetry/unix_time.h"

namespace tfm::telemetry {
namespace {

namespace fs = std::filesystem;
using io::ProtobufWriter;

// Numbers of fields in event.proto, summary.proto and tensor.proto.
enum EventField { wall_time = 1, step_number = 2, file_version = 3, summary = 5, session_log = 7 };
enum ValueField { tag_name = 1, simple_value = 2, tensor = 8, metadata = 9 };
constexpr int kValue = 1;                          // of Summary
constexpr int kStatus = 1, kStart = 1;             // of SessionLog
constexpr int kPlugin = 1, kName = 1;              // of SummaryMetadata, of PluginData
constexpr int kDataClass = 4, kTensorClass = 2;    // of SummaryMetadata
constexpr int kType = 1, kString = 7, kShape = 2;  // of TensorProto
constexpr int kStrings = 8;

constexpr std::string_view kPrefix = "events.out.tfevents.";

ProtobufWriter event(std::int64_t step) {
  ProtobufWriter e;
  e.wide_real(wall_time, unix_time());
  if (step > 0) e.number(step_number, static_cast<std::uint64_t>(step));
  return e;
}

// Files are read in the order of their names, which begin with the time: two starts within a second
// count on.
long long time_of_name(const std::string& directory) {
  long long time = static_cast<long long>(unix_time());
  std::error_code error;
  for (const fs::directory_entry& e : fs::directory_iterator(directory, error)) {
    const std::string name = e.path().filename().string();
    if (name.starts_with(kPrefix))
      time = std::max(time, std::atoll(name.c_str() + kPrefix.size()) + 1);
  }
  return time;
}

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = t[i] >> 1 ^ (t[i] & 1 ? 0x82f63b78u : 0);
    }
    return t;
  }();
  std::uint32_t sum = ~0u;
  for (const char c : bytes) sum = sum >> 8 ^ table[(sum ^ static_cast<unsigned char>(c)) & 255];
  return ~sum;
}

// `bytes` as a frame.
std::string tf_record(std::string_view bytes) {
  const auto little = [](std::uint64_t value, int size) {
    std::string text;
    for (int i = 0; i < size; ++i, value >>= 8) text += static_cast<char>(value);
    return text;
  };
  const auto masked = [&](std::string_view of) {
    const std::uint32_t sum = crc32c(of);
    return little((sum >> 15 | sum << 17) + 0xa282ead8u, 4);
  };
  const std::string length = little(bytes.size(), 8);
  return length + masked(length) + std::string(bytes) + masked(bytes);
}

}  // namespace

EventFile::EventFile(const std::string& directory, std::int64_t first_step) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    throw Error(ExitCode::retryable, directory + ": cannot be created: " + error.message());
  const std::string name = printed("%s%010lld.%s.%d.0", kPrefix.data(), time_of_name(directory),
                                   host_name().c_str(), static_cast<int>(::getpid()));
  path_ = (fs::path(directory) / name).string();
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw Error(ExitCode::retryable, path_ + ": cannot open: " + errno_text());
  const std::string version = event(0).bytes(file_version, "brain.Event:2").text();
  const std::string start =
      event(first_step).bytes(session_log, ProtobufWriter().number(kStatus, kStart).text()).text();
  if (const std::string why = append(fd_, path_, tf_record(version) + tf_record(start));
      !why.empty()) {
    ::close(fd_);
    throw Error(ExitCode::retryable, why);
  }
}

EventFile::~EventFile() { ::close(fd_); }

std::string EventFile::add(std::int64_t step, std::span<const Scalar> scalars) {
  ProtobufWriter values;
  for (const auto& [tag, value] : scalars)
    values.bytes(
        kValue,
        ProtobufWriter().bytes(tag_name, tag).real(simple_value, static_cast<float>(value)).text());
  return append(fd_, path_, tf_record(event(step).bytes(summary, values.text()).text()));
}

std::string EventFile::add_text(std::int64_t step, const std::string& tag,
                                std::string_view markdown) {
  const std::string plugin = ProtobufWriter().bytes(kName, "text").text();
  const std::string value =
      ProtobufWriter()
          .bytes(tag_name, tag)
          .bytes(tensor, ProtobufWriter()
                             .number(kType, kString)
                             .bytes(kShape, "")
                             .bytes(kStrings, markdown)
                             .text())
          .bytes(metadata,
                 ProtobufWriter().bytes(kPlugin, plugin).number(kDataClass, kTensorClass).text())
          .text();
  return append(
      fd_, path_,
      tf_record(event(step).bytes(summary, ProtobufWriter().bytes(kValue, value).text()).text()));
}

}  // namespace tfm::telemetry
