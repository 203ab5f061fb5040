#pragma once
// A parsed template.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace tfm::text::jinja {

struct Expression;
using ExpressionPointer = std::unique_ptr<Expression>;  // may be null where a part is optional

struct Expression {
  enum class Kind : std::uint8_t {
    constant,
    name,
    list,
    tuple,
    dict,       // keys and values in turn
    attribute,  // parts[0].text
    item,       // parts[0][parts[1]]
    slice,      // of an item: begin, end, step
    call,       // what is called, arguments; the last ones have `names`, * and ** among them
    filter,     // likewise; parts[0] is null for the text of a block
    test,       // likewise
    negate,     // not
    sign,       // `text`: + or -
    binary,     // `text`: the operator
    compare,    // operands, and `names`, the operators between them
    concat,
    both,
    either,
    choice,  // parts[1] if parts[0] else parts[2]
  };
  Kind kind;
  std::size_t at;  // offset in the source
  std::string text = {};
  Value value = {};
  std::vector<ExpressionPointer> parts = {};
  std::vector<std::string> names = {};
};

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
  enum class Kind : std::uint8_t {
    text,
    print,       // parts[0]
    branch,      // bodies[i] if parts[i]; the last may have no test
    loop,        // target, iterable, condition or null; body, else
    set,         // target, value
    set_block,   // target, filter or null; body
    macro,       // `text`: its name; `names`, of which the last have the defaults `parts`; body
    call_block,  // parts[0]: a call; `names` and further parts as of a macro; body
    filter_block,
    generation,
    with,  // targets and values in turn; body
    stop,  // break
    next,  // continue
  };
  Kind kind;
  std::size_t at;
  std::string text = {};
  std::vector<ExpressionPointer> parts = {};
  std::vector<std::string> names = {};
  std::vector<Body> bodies = {};
};

}  // namespace tfm::text::jinja
