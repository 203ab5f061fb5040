#pragma once
// Chat templates: Jinja, by an interpreter of the part of it that they use, as transformers renders
// them (trim_blocks, lstrip_blocks, loopcontrols, {% generation %}, an immutable sandbox).
//
// What differs from Jinja: no templates within templates (import, include, extends, block), no
// recursive loops; integers have 64 bits; letters change case one by one, ß aside.
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/jinja/value.h"

namespace tfm::text::jinja {

// A conversation exceeds what templates are allowed.
struct LimitError : Error {
  explicit LimitError(const std::string& message) : Error(ExitCode::input, message) {}
};

struct Span {
  std::size_t begin, end;  // bytes
  bool operator==(const Span&) const = default;
};

struct Rendering {
  std::string text;
  std::vector<Span> generations;  // what {% generation %} blocks wrote
  // What was written while a loop stood at an item of the list `messages`, in order: for each
  // message its spans, which may be several.
  std::vector<std::vector<Span>> messages;
};

class Template {
 public:
  // Error(input), which names line and column, for a source that is no template or not UTF-8.
  // `name`: the file, for messages.
  Template(std::string_view source, std::string name);
  ~Template();
  Template(Template&&) noexcept;

  // Error(input), likewise, if the template fails or refuses (raise_exception); LimitError after
  // two million steps and eight for each byte of the variables, or if a value is larger than 8 MiB.
  // `now`: for strftime_now, which is undefined without.
  Rendering render(const Dict& variables, std::optional<std::time_t> now = std::nullopt) const;
  bool marks_generations() const;  // whether it has a {% generation %} block
  const std::string& name() const { return name_; }

 private:
  struct Parsed;
  std::string name_;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace tfm::text::jinja
