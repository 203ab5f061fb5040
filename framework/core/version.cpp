#include "core/version.h"

namespace tfm {

const std::string_view version = TFM_VERSION;

}  // namespace tfm
