#include "telemetry/append.h"

#include <unistd.h>

#include <cerrno>

#include "core/strings.h"

namespace tfm::telemetry {

std::string append(int fd, const std::string& path, std::string_view bytes) {
  const off_t before = ::lseek(fd, 0, SEEK_END);
  ssize_t n;
  do n = ::write(fd, bytes.data(), bytes.size());
  while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(bytes.size())) return {};
  const std::string why =
      n < 0 ? errno_text()
            : "only " + std::to_string(n) + " bytes of a line were written; the disk may be full";
  if (n > 0 && before >= 0 && ::ftruncate(fd, before) != 0)
    return path + ": " + why + "; the incomplete line remains";
  return path + ": " + why;
}

}  // namespace tfm::telemetry
