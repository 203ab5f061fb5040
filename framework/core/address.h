#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace tfm {

struct Address {
  std::string host;
  int port = 0;
};
// Of "host:port" or "[v6]:port"; nullopt if it is none, or the port exceeds 65535.
std::optional<Address> address_of(std::string_view text);

}  // namespace tfm
