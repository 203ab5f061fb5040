#pragma once
// The part of the grammar within {{ }} and tags.
#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace tfm::text::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : in_(stream) {}

  ExpressionPointer expression();
  // Expressions with commas between them, which make a tuple; `choice`: x if y else z is one.
  ExpressionPointer tuple(bool choice = true, bool in_parentheses = false);
  // What `for` and `set` assign to; `members`: also namespace.name.
  ExpressionPointer target(bool members);
  // |name(arguments)..., applied to `subject`; `first`: the first one without its |.
  ExpressionPointer filters(ExpressionPointer subject, bool first = false);

 private:
  using Kind = Expression::Kind;
  class Nested;

  ExpressionPointer either();
  ExpressionPointer both();
  ExpressionPointer negation();
  ExpressionPointer comparison();
  ExpressionPointer sum();
  ExpressionPointer concatenation();
  ExpressionPointer product();
  ExpressionPointer power();
  ExpressionPointer unary(bool with_filters = true);
  ExpressionPointer primary();
  ExpressionPointer postfix(ExpressionPointer node);
  ExpressionPointer subscript(ExpressionPointer node);
  ExpressionPointer slice_or_expression();
  ExpressionPointer test(ExpressionPointer subject);
  ExpressionPointer sequence(Kind kind, const char* close);
  void arguments(Expression& call);
  bool tuple_ends() const;
  ExpressionPointer binary(ExpressionPointer left, Token sign, ExpressionPointer right);

  TokenStream& in_;
  int depth_ = 0;
};

}  // namespace tfm::text::jinja
