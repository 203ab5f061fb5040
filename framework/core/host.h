#pragma once
#include <string>

namespace tfm {

std::string host_name();  // of this machine

}  // namespace tfm
