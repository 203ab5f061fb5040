#pragma once
// Jinja's filters and tests. Problem for those that are not known, by name.
#include <string>

#include "text/jinja/operations.h"

namespace tfm::text::jinja {

Value filtered(const std::string& name, const Value& subject, const Arguments& arguments,
               const Spend& spend);
bool tested(const std::string& name, const Value& subject, const Arguments& arguments);

// item.a.b of the filters' `attribute`, whose parts of digits are indices; `otherwise` in place of
// each that is undefined.
Value by_path(const Value& item, const Value& path, const Spend& spend,
              const Value& otherwise = {});

}  // namespace tfm::text::jinja
