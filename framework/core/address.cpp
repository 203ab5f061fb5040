#include "core/address.h"

namespace tfm {

std::optional<Address> address_of(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == text.npos) return {};
  std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string_view::npos;
  if (!digits || host.empty()) return {};
  const Address address{std::string(host), std::stoi(std::string(port))};
  return address.port <= 65535 ? std::optional(address) : std::nullopt;
}

}  // namespace tfm
