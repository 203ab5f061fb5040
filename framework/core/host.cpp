#include "core/host.h"

#include <unistd.h>

namespace tfm {

std::string host_name() {
  char text[256] = {};
  ::gethostname(text, sizeof text - 1);
  return text;
}

}  // namespace tfm
