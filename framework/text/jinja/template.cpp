#include "text/jinja/template.h"

#include <algorithm>

#include "core/error.h"
#include "core/utf8.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace tfm::text::jinja {

struct Template::Parsed {
  std::string source;
  Body body;
  bool generations = false;
};

namespace {

std::string message(const std::string& name, const std::string& source, std::size_t at,
                    const std::string& what) {
  const std::string_view before = std::string_view(source).substr(0, at);
  const auto line = std::ranges::count(before, '\n') + 1;
  const std::size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return name + ":" + std::to_string(line) + ":" + std::to_string(before.size() - begin + 1) +
         ": " + what;
}

[[noreturn]] void fail(const std::string& name, const std::string& source, std::size_t at,
                       const std::string& what) {
  throw Error(ExitCode::input, message(name, source, at, what));
}

bool marks(const Body& body) {
  return std::ranges::any_of(body, [](const Statement& s) {
    return s.kind == Statement::Kind::generation || std::ranges::any_of(s.bodies, marks);
  });
}

}  // namespace

Template::Template(std::string_view source, std::string name) : name_(std::move(name)) {
  auto parsed = std::make_unique<Parsed>();
  parsed->source = normal_source(source);
  constexpr std::size_t most = std::size_t{1} << 20;
  if (source.size() > most)
    throw Error(ExitCode::input, name_ + ": the template is longer than 1 MiB");
  if (const std::size_t valid = utf8_valid_prefix(parsed->source); valid < parsed->source.size())
    fail(name_, parsed->source, valid, "the template is not UTF-8");
  try {
    parsed->body = parse(parsed->source);
  } catch (const Broken& broken) {
    fail(name_, parsed->source, broken.at, broken.what);
  } catch (const Problem& problem) {
    throw Error(ExitCode::input, name_ + ": " + problem.what());
  }
  parsed->generations = marks(parsed->body);
  parsed_ = std::move(parsed);
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;

bool Template::marks_generations() const { return parsed_->generations; }

Rendering Template::render(const Dict& variables, std::optional<std::time_t> now) const {
  Evaluator evaluator(variables, now);
  try {
    return evaluator.run(parsed_->body);
  } catch (const Exceeded& problem) {
    throw LimitError(message(name_, parsed_->source, evaluator.at(), problem.what()));
  } catch (const Problem& problem) {
    fail(name_, parsed_->source, evaluator.at(), problem.what());
  }
}

}  // namespace tfm::text::jinja
