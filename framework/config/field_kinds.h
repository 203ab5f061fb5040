#pragma once
// Constructors for fields of each kind, used by the lists of keys.
#include "config/field_reader.h"

namespace tfm::config::field {

inline Field number(std::string_view name, double low, std::string_view help,
                    double high = 2147483647.0) {
  return {.name = name, .help = help, .kind = FieldKind::count, .low = low, .high = high};
}
inline Field real(std::string_view name, double low, std::string_view help) {
  return {.name = name, .help = help, .kind = FieldKind::real, .low = low};
}
inline Field fraction(std::string_view name, std::string_view help) {  // [0, 1)
  return {
      .name = name, .help = help, .kind = FieldKind::real, .low = 0, .high = 1, .high_open = true};
}
inline Field share(std::string_view name, std::string_view help) {  // [0, 1]
  return {.name = name, .help = help, .kind = FieldKind::real, .low = 0, .high = 1};
}
inline Field flag(std::string_view name, std::string_view help) {
  return {.name = name, .help = help, .kind = FieldKind::boolean};
}
inline Field text(std::string_view name, std::string_view help) {
  return {.name = name, .help = help};
}
inline Field choice(std::string_view name, std::vector<std::string_view> choices,
                    std::string_view help) {
  return {.name = name, .help = help, .kind = FieldKind::choice, .choices = std::move(choices)};
}
// One of the words of an enum of options.h.
inline Field option(std::string_view name, std::string_view help) {
  return {.name = name, .help = help, .kind = FieldKind::choice};
}
inline Field section(std::string_view name, std::string_view help) {
  return {.name = name, .help = help};
}

inline Field required(Field f) { return f.required = true, f; }
inline Field derived(Field f, std::string_view from) { return f.fallback = from, f; }
inline Field with_word(Field f, std::string_view word) { return f.automatic = word, f; }

}  // namespace tfm::config::field
