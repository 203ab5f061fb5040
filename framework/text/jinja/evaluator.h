#pragma once
// Runs a parsed template.
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/operations.h"
#include "text/jinja/template.h"

namespace tfm::text::jinja {

class Evaluator {
 public:
  Evaluator(const Dict& variables, std::optional<std::time_t> now);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  Rendering run(const Body& body);        // Problem
  std::size_t at() const { return at_; }  // the offset of what was evaluated last

 private:
  struct Scope {
    std::map<std::string, Value> variables = {};
    std::shared_ptr<Scope> parent = {};
  };
  using ScopePointer = std::shared_ptr<Scope>;
  enum class Flow : std::uint8_t { on, stop, next };  // stop and next: of the loop around
  // A call within others; bounds the recursion.
  class Deeper {
   public:
    explicit Deeper(Evaluator& e) : e_(e) {
      constexpr int deepest = 1000;
      if (++e_.depth_ > deepest) throw Problem("calls are nested too deep");
    }
    ~Deeper() { --e_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Evaluator& e_;
  };

  void spend(std::size_t size);
  // What a filter, a test or `in` looks through of a value.
  static std::size_t read_by(const Expression& e, const Value& value, bool with_arguments);
  void write(std::string_view text);
  Flow execute(const Body& body, const ScopePointer& scope);
  Flow execute(const Statement& s, const ScopePointer& scope);
  Flow branch(const Statement& s, const ScopePointer& scope);
  Flow loop(const Statement& s, const ScopePointer& scope);
  Flow with(const Statement& s, const ScopePointer& scope);
  void set_block(const Statement& s, const ScopePointer& scope);
  void call_block(const Statement& s, const ScopePointer& scope);
  void generation(const Statement& s, const ScopePointer& scope);
  // The text of a body, in a scope of its own.
  std::string captured(const Body& body, const ScopePointer& scope);
  // `first`: where the defaults of the parameters begin in s.parts.
  Value macro(const Statement& s, std::size_t first, const ScopePointer& scope);
  std::string call_macro(const Statement& s, std::size_t first, const ScopePointer& scope,
                         const Arguments& given);
  void assign(const Expression& target, const Value& value, const ScopePointer& scope);

  Value evaluate(const Expression& e, const ScopePointer& scope);
  Value operation(const Expression& e, const ScopePointer& scope);
  Value lookup(const std::string& name, const Scope* scope) const;
  Value filter(const Expression& e, const Value& subject, const ScopePointer& scope);
  // A chain of filters whose innermost subject is `text`.
  Value filter_chain(const Expression& e, const std::string& text, const ScopePointer& scope);
  Value call(const Expression& e, const ScopePointer& scope, const Arguments& more = {});
  Value compare(const Expression& e, const ScopePointer& scope);
  Arguments arguments(const Expression& e, const ScopePointer& scope);
  Value subscript(const Expression& e, const ScopePointer& scope);

  const Dict& variables_;
  std::map<std::string, Value> globals_;
  std::map<const Dict*, std::size_t> messages_;  // items of the variable `messages`
  std::optional<std::size_t> message_;           // at which the loop around stands
  std::vector<ScopePointer> with_macros_;        // a macro and its scope hold each other
  Rendering result_;
  std::string* out_;
  std::size_t at_ = 0, steps_ = 0, most_steps_;
  int depth_ = 0;
  Spend spend_;
};

}  // namespace tfm::text::jinja
