#include "text/jinja/evaluator.h"

#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "text/jinja/filters.h"

namespace tfm::text::jinja {

using Kind = Statement::Kind;

Rendering Evaluator::run(const Body& body) {
  execute(body, std::make_shared<Scope>());
  return std::move(result_);
}

void Evaluator::spend(std::size_t size) {
  constexpr std::size_t bytes_a_step = 256;
  steps_ += 1 + size / bytes_a_step;
  if (steps_ > most_steps_)
    throw Exceeded("the template takes more than " + std::to_string(most_steps_) +
                   " steps for a conversation of this length");
}

void Evaluator::write(std::string_view text) {
  spend(text.size());
  if (out_ == &result_.text && message_ && !text.empty()) {
    std::vector<Span>& spans = result_.messages[*message_];
    const std::size_t begin = out_->size(), end = begin + text.size();
    if (!spans.empty() && spans.back().end == begin)
      spans.back().end = end;
    else
      spans.push_back({begin, end});
  }
  out_->append(text);
}

Evaluator::Flow Evaluator::execute(const Body& body, const ScopePointer& scope) {
  const Deeper deeper(*this);
  for (const Statement& s : body) {
    spend(0);
    at_ = s.at;
    if (const Flow flow = execute(s, scope); flow != Flow::on) return flow;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::execute(const Statement& s, const ScopePointer& scope) {
  switch (s.kind) {
    case Kind::text:
      write(s.text);
      break;
    case Kind::print: {
      const Value value = evaluate(*s.parts[0], scope);
      at_ = s.parts[0]->at;
      write(text_of(value));
      break;
    }
    case Kind::branch:
      return branch(s, scope);
    case Kind::loop:
      return loop(s, scope);
    case Kind::set:
      assign(*s.parts[0], evaluate(*s.parts[1], scope), scope);
      break;
    case Kind::set_block:
      set_block(s, scope);
      break;
    case Kind::macro:
      scope->variables[s.text] = macro(s, 0, scope);
      break;
    case Kind::call_block:
      call_block(s, scope);
      break;
    case Kind::filter_block:
      write(text_of(filter_chain(*s.parts[0], captured(s.bodies[0], scope), scope)));
      break;
    case Kind::generation:
      generation(s, scope);
      break;
    case Kind::with:
      return with(s, scope);
    case Kind::stop:
      return Flow::stop;
    case Kind::next:
      return Flow::next;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::branch(const Statement& s, const ScopePointer& scope) {
  for (std::size_t i = 0; i < s.bodies.size(); ++i)
    if (i == s.parts.size() || truth(evaluate(*s.parts[i], scope)))
      return execute(s.bodies[i], scope);
  return Flow::on;
}

Evaluator::Flow Evaluator::loop(const Statement& s, const ScopePointer& scope) {
  const Value iterable = evaluate(*s.parts[1], scope);
  at_ = s.parts[1]->at;
  spend(iterable.breadth());
  const int depth = deeper(iterable.depth());
  auto items = std::make_shared<List>();
  for (Value& item : items_of(iterable)) {
    spend(0);
    if (s.parts[2]) {
      const auto inner = std::make_shared<Scope>(Scope{.parent = scope});
      assign(*s.parts[0], item, inner);
      if (!truth(evaluate(*s.parts[2], inner))) continue;
    }
    items->push_back(std::move(item));
  }
  const auto message = message_;
  Flow flow = Flow::on;
  for (std::size_t i = 0; i < items->size() && flow != Flow::stop; ++i) {
    const auto inner = std::make_shared<Scope>(Scope{.parent = scope});
    at_ = s.at;
    spend(0);
    const Value& item = (*items)[i];
    assign(*s.parts[0], item, inner);
    inner->variables["loop"] =
        Value(std::make_shared<const Loop>(Loop{.items = items, .index = i, .depth = depth}));
    if (const auto found = messages_.find(item.dict()); found != messages_.end())
      message_ = found->second;
    flow = execute(s.bodies[0], inner);
    message_ = message;
  }
  return items->empty() && s.bodies.size() > 1 ? execute(s.bodies[1], scope) : Flow::on;
}

Evaluator::Flow Evaluator::with(const Statement& s, const ScopePointer& scope) {
  const auto inner = std::make_shared<Scope>(Scope{.parent = scope});
  for (std::size_t i = 0; i < s.parts.size(); i += 2)
    assign(*s.parts[i], evaluate(*s.parts[i + 1], scope), inner);
  return execute(s.bodies[0], inner);
}

std::string Evaluator::captured(const Body& body, const ScopePointer& scope) {
  std::string text;
  std::string* const out = std::exchange(out_, &text);
  execute(body, std::make_shared<Scope>(Scope{.parent = scope}));
  out_ = out;
  return text;
}

void Evaluator::set_block(const Statement& s, const ScopePointer& scope) {
  const std::string text = captured(s.bodies[0], scope);
  assign(*s.parts[0], s.parts[1] ? filter_chain(*s.parts[1], text, scope) : Value(text), scope);
}

void Evaluator::call_block(const Statement& s, const ScopePointer& scope) {
  Arguments caller;
  caller.named.emplace_back("caller", macro(s, 1, scope));
  const Value value = call(*s.parts[0], scope, caller);
  write(text_of(value));
}

// As transformers, which takes a block within a macro for one where the macro's text goes.
void Evaluator::generation(const Statement& s, const ScopePointer& scope) {
  const std::string text = captured(s.bodies[0], scope);
  const std::size_t begin = result_.text.size();
  result_.generations.push_back({begin, begin + text.size()});
  write(text);
}

Value Evaluator::macro(const Statement& s, std::size_t first, const ScopePointer& scope) {
  if (with_macros_.empty() || with_macros_.back() != scope) with_macros_.push_back(scope);
  return std::make_shared<const Function>(Function{
      s.text.empty() ? "caller" : s.text, [this, &s, first, scope](const Arguments& given) {
        return Value(call_macro(s, first, scope, given));
      }});
}

std::string Evaluator::call_macro(const Statement& s, std::size_t first, const ScopePointer& scope,
                                  const Arguments& given) {
  const auto inner = std::make_shared<Scope>(Scope{.parent = scope});
  const std::size_t count = s.names.size(), defaults = s.parts.size() - first;
  if (given.positional.size() > count)
    throw Problem("the macro has " + counted(count, "parameter") + ", the call " +
                  counted(given.positional.size(), "argument"));
  for (const auto& [name, value] : given.named) {
    if (name != "caller" && std::ranges::find(s.names, name) == s.names.end())
      throw Problem("the macro has no parameter " + in_quotes(name));
    inner->variables[name] = value;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Value* const value = given.find(i, s.names[i]);
    if (value)
      inner->variables[s.names[i]] = *value;
    else if (i + defaults >= count)
      inner->variables[s.names[i]] = evaluate(*s.parts[first + i + defaults - count], inner);
    else
      inner->variables[s.names[i]] =
          Undefined{"parameter " + in_quotes(s.names[i]) + " was not provided"};
  }
  return captured(s.bodies[0], inner);
}

void Evaluator::assign(const Expression& target, const Value& value, const ScopePointer& scope) {
  if (target.kind == Expression::Kind::name) {
    scope->variables[target.text] = value;
  } else if (target.kind == Expression::Kind::attribute) {
    at_ = target.at;
    const Value object = lookup(target.parts[0]->text, scope.get());
    const auto* const space = object.get<std::shared_ptr<Namespace>>();
    if (!space) throw Problem(in_quotes(target.parts[0]->text) + " is no namespace");
    if (target.text.starts_with('_')) throw Problem("members of a namespace cannot begin with _");
    check_member(value);
    (**space)[target.text] = value;
  } else {
    at_ = target.at;
    const List items = items_of(value);
    if (items.size() != target.parts.size())
      throw Problem("expected " + counted(target.parts.size(), "value") + " to unpack, got " +
                    std::to_string(items.size()));
    for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], scope);
  }
}

}  // namespace tfm::text::jinja
