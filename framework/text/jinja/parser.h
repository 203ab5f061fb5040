#pragma once
// The grammar of Jinja 3.1 with its extension loopcontrols and transformers' {% generation %};
// without templates that use others (import, include, extends, block).
#include <string>

#include "text/jinja/ast.h"

namespace tfm::text::jinja {

// Throws Broken.
Body parse(const std::string& normal_source);

}  // namespace tfm::text::jinja
