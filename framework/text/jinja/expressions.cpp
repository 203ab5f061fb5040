#include "text/jinja/expressions.h"

#include <charconv>
#include <utility>

namespace tfm::text::jinja {
namespace {

ExpressionPointer make(Expression::Kind kind, std::size_t at, std::string text = "") {
  return std::make_unique<Expression>(Expression{.kind = kind, .at = at, .text = std::move(text)});
}
ExpressionPointer constant(std::size_t at, Value value) {
  auto node = make(Expression::Kind::constant, at);
  node->value = std::move(value);
  return node;
}

}  // namespace

// Counts how deep the tree gets, by a call of the grammar within others or a further operator.
class ExpressionParser::Nested {
 public:
  explicit Nested(ExpressionParser& parser, int levels = 1)
      : parser_(parser), before_(parser.depth_) {
    if (levels > 0) add();
  }
  ~Nested() { parser_.depth_ = before_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  void add() {
    constexpr int deepest = 400;
    if (++parser_.depth_ > deepest)
      throw Broken{"the expression is nested deeper than " + std::to_string(deepest) + " levels",
                   parser_.in_.now().at};
  }

 private:
  ExpressionParser& parser_;
  int before_;
};

ExpressionPointer ExpressionParser::expression() {
  Nested nested(*this);
  ExpressionPointer node = either();
  while (in_.is_name("if")) {
    nested.add();
    auto choice = make(Kind::choice, in_.take().at);
    choice->parts.push_back(either());
    choice->parts.push_back(std::move(node));
    choice->parts.push_back(in_.skip_name("else") ? expression() : nullptr);
    node = std::move(choice);
  }
  return node;
}

ExpressionPointer ExpressionParser::either() {
  Nested links(*this, 0);
  ExpressionPointer node = both();
  while (in_.is_name("or")) {
    links.add();
    auto whole = make(Kind::either, in_.take().at);
    whole->parts.push_back(std::move(node));
    whole->parts.push_back(both());
    node = std::move(whole);
  }
  return node;
}

ExpressionPointer ExpressionParser::both() {
  Nested links(*this, 0);
  ExpressionPointer node = negation();
  while (in_.is_name("and")) {
    links.add();
    auto whole = make(Kind::both, in_.take().at);
    whole->parts.push_back(std::move(node));
    whole->parts.push_back(negation());
    node = std::move(whole);
  }
  return node;
}

ExpressionPointer ExpressionParser::negation() {
  if (!in_.is_name("not")) return comparison();
  const Nested nested(*this);
  auto node = make(Kind::negate, in_.take().at);
  node->parts.push_back(negation());
  return node;
}

ExpressionPointer ExpressionParser::comparison() {
  auto whole = make(Kind::compare, in_.now().at);
  whole->parts.push_back(sum());
  while (true) {
    const bool not_in =
        in_.is_name("not") && in_.ahead().text == "in" && in_.ahead().kind == Token::Kind::name;
    bool sign = false;
    for (const char* op : {"==", "!=", ">", ">=", "<", "<="}) sign |= in_.is_sign(op);
    if (!sign && !not_in && !in_.is_name("in")) break;
    whole->names.push_back(not_in ? "not in" : in_.now().text);
    in_.take();
    if (not_in) in_.take();
    whole->parts.push_back(sum());
  }
  return whole->names.empty() ? std::move(whole->parts[0]) : std::move(whole);
}

ExpressionPointer ExpressionParser::binary(ExpressionPointer left, Token sign,
                                           ExpressionPointer right) {
  auto node = make(Kind::binary, sign.at, std::move(sign.text));
  node->parts.push_back(std::move(left));
  node->parts.push_back(std::move(right));
  return node;
}

ExpressionPointer ExpressionParser::sum() {
  Nested links(*this, 0);
  ExpressionPointer node = concatenation();
  while (in_.is_sign("+") || in_.is_sign("-")) {
    links.add();
    Token sign = in_.take();
    node = binary(std::move(node), std::move(sign), concatenation());
  }
  return node;
}

ExpressionPointer ExpressionParser::concatenation() {
  auto whole = make(Kind::concat, in_.now().at);
  do whole->parts.push_back(product());
  while (in_.skip_sign("~"));
  return whole->parts.size() == 1 ? std::move(whole->parts[0]) : std::move(whole);
}

ExpressionPointer ExpressionParser::product() {
  Nested links(*this, 0);
  ExpressionPointer node = power();
  while (in_.is_sign("*") || in_.is_sign("/") || in_.is_sign("//") || in_.is_sign("%")) {
    links.add();
    Token sign = in_.take();
    node = binary(std::move(node), std::move(sign), power());
  }
  return node;
}

ExpressionPointer ExpressionParser::power() {
  Nested links(*this, 0);
  ExpressionPointer node = unary();
  while (in_.is_sign("**")) {
    links.add();
    Token sign = in_.take();
    node = binary(std::move(node), std::move(sign), unary());
  }
  return node;
}

ExpressionPointer ExpressionParser::unary(bool with_filters) {
  ExpressionPointer node;
  if (in_.is_sign("-") || in_.is_sign("+")) {
    const Nested nested(*this);
    Token sign = in_.take();
    node = make(Kind::sign, sign.at, std::move(sign.text));
    node->parts.push_back(unary(false));
  } else {
    node = primary();
  }
  Nested links(*this, 0);
  node = postfix(std::move(node));
  while (with_filters) {
    links.add();
    if (in_.is_sign("|")) {
      node = filters(std::move(node));
    } else if (in_.is_name("is")) {
      node = test(std::move(node));
    } else if (in_.is_sign("(")) {
      node = postfix(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExpressionPointer ExpressionParser::primary() {
  const Token token = in_.now();
  using enum Token::Kind;
  if (token.kind == name) {
    in_.take();
    const std::string& t = token.text;
    if (t == "true" || t == "True" || t == "false" || t == "False")
      return constant(token.at, t.size() == 4);
    if (t == "none" || t == "None") return constant(token.at, nullptr);
    return make(Kind::name, token.at, t);
  }
  if (token.kind == string) {
    std::string text;
    while (in_.is(string)) text += in_.take().text;
    return constant(token.at, std::move(text));
  }
  if (token.kind == integer || token.kind == real) {
    in_.take();
    const char *const begin = token.text.data(), *const end = begin + token.text.size();
    std::int64_t whole = 0;
    double number = 0;
    const std::errc error = token.kind == integer ? std::from_chars(begin, end, whole).ec
                                                  : std::from_chars(begin, end, number).ec;
    if (error != std::errc()) throw Broken{"the number is too large", token.at};
    return token.kind == integer ? constant(token.at, whole) : constant(token.at, number);
  }
  if (in_.skip_sign("(")) {
    ExpressionPointer node = tuple(true, true);
    in_.expect_sign(")");
    return node;
  }
  if (in_.is_sign("[")) return sequence(Kind::list, "]");
  if (in_.is_sign("{")) return sequence(Kind::dict, "}");
  in_.fail("an expression");
}

ExpressionPointer ExpressionParser::sequence(Kind kind, const char* close) {
  auto node = make(kind, in_.take().at);
  while (!in_.is_sign(close)) {
    node->parts.push_back(expression());
    if (kind == Kind::dict) {
      in_.expect_sign(":");
      node->parts.push_back(expression());
    }
    if (!in_.is_sign(close)) in_.expect_sign(",");
  }
  in_.take();
  return node;
}

bool ExpressionParser::tuple_ends() const {
  return in_.is(Token::Kind::end_print) || in_.is(Token::Kind::end_block) || in_.is_sign(")") ||
         in_.is_any_name({"in", "recursive"});
}

ExpressionPointer ExpressionParser::tuple(bool choice, bool in_parentheses) {
  const Nested nested(*this);
  auto whole = make(Kind::tuple, in_.now().at);
  bool comma = false;
  while (!tuple_ends()) {
    whole->parts.push_back(choice ? expression() : either());
    if (!in_.skip_sign(",")) break;
    comma = true;
  }
  if (comma || (whole->parts.empty() && in_parentheses)) return whole;
  if (whole->parts.empty()) in_.fail("an expression");
  return std::move(whole->parts[0]);
}

ExpressionPointer ExpressionParser::target(bool members) {
  const Nested nested(*this);
  auto whole = make(Kind::tuple, in_.now().at);
  bool comma = false;
  while (!tuple_ends() && !in_.is_sign("=")) {
    ExpressionPointer one;
    if (in_.skip_sign("(")) {
      one = target(members);
      in_.expect_sign(")");
    } else {
      Token token = in_.expect(Token::Kind::name, "the name of a variable");
      one = make(Kind::name, token.at, std::move(token.text));
      if (members && in_.skip_sign(".")) {
        auto member = make(Kind::attribute, one->at,
                           in_.expect(Token::Kind::name, "the name of a member").text);
        member->parts.push_back(std::move(one));
        one = std::move(member);
      }
    }
    for (const char* word : {"true", "false", "none", "True", "False", "None"})
      if (one->kind == Kind::name && one->text == word)
        throw Broken{"nothing can be assigned to " + one->text, one->at};
    whole->parts.push_back(std::move(one));
    if (!in_.skip_sign(",")) break;
    comma = true;
  }
  if (comma) return whole;
  if (whole->parts.empty()) in_.fail("the name of a variable");
  return std::move(whole->parts[0]);
}

ExpressionPointer ExpressionParser::postfix(ExpressionPointer node) {
  Nested links(*this, 0);
  while (true) {
    links.add();
    if (in_.is_sign(".") || in_.is_sign("[")) {
      node = subscript(std::move(node));
    } else if (in_.is_sign("(")) {
      auto call = make(Kind::call, in_.now().at);
      call->parts.push_back(std::move(node));
      arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExpressionPointer ExpressionParser::subscript(ExpressionPointer node) {
  const Token sign = in_.take();
  auto result = make(Kind::item, sign.at);
  result->parts.push_back(std::move(node));
  if (sign.text == ".") {
    if (in_.is(Token::Kind::integer)) {
      result->parts.push_back(primary());
      return result;
    }
    result->kind = Kind::attribute;
    result->text = in_.expect(Token::Kind::name, "a name or a number after the dot").text;
    return result;
  }
  auto keys = make(Kind::tuple, sign.at);
  bool comma = false;
  while (!in_.is_sign("]")) {
    keys->parts.push_back(slice_or_expression());
    if (in_.is_sign("]")) break;
    in_.expect_sign(",");
    comma = true;
  }
  if (keys->parts.empty()) in_.fail("an index");
  in_.take();
  result->parts.push_back(comma ? std::move(keys) : std::move(keys->parts[0]));
  return result;
}

ExpressionPointer ExpressionParser::slice_or_expression() {
  auto slice = make(Kind::slice, in_.now().at);
  slice->parts.resize(3);
  for (std::size_t i = 0; i < 3; ++i) {
    if (!in_.is_sign(":") && !in_.is_sign("]") && !in_.is_sign(",")) slice->parts[i] = expression();
    if (!in_.is_sign(":")) {
      if (i == 0 && slice->parts[0]) return std::move(slice->parts[0]);
      if (i == 0) in_.fail("an index");
      break;
    }
    if (i < 2) in_.take();
  }
  return slice;
}

void ExpressionParser::arguments(Expression& call) {
  in_.expect_sign("(");
  const Nested nested(*this);
  while (!in_.is_sign(")")) {
    const bool named = in_.is(Token::Kind::name) && in_.ahead().kind == Token::Kind::sign &&
                       in_.ahead().text == "=";
    if (named || in_.is_sign("*") || in_.is_sign("**")) {
      call.names.push_back(in_.take().text);
      if (named) in_.take();
    } else if (!call.names.empty()) {
      in_.fail("a named argument, as those before it");
    }
    call.parts.push_back(expression());
    if (!in_.is_sign(")")) in_.expect_sign(",");
  }
  in_.take();
}

ExpressionPointer ExpressionParser::filters(ExpressionPointer subject, bool first) {
  Nested links(*this, 0);
  while (first || in_.skip_sign("|")) {
    links.add();
    first = false;
    Token name = in_.expect(Token::Kind::name, "the name of a filter");
    auto node = make(Kind::filter, name.at, std::move(name.text));
    node->parts.push_back(std::move(subject));
    if (in_.is_sign("(")) arguments(*node);
    subject = std::move(node);
  }
  return subject;
}

ExpressionPointer ExpressionParser::test(ExpressionPointer subject) {
  in_.take();
  const bool negated = in_.skip_name("not");
  Token name = in_.expect(Token::Kind::name, "the name of a test");
  auto node = make(Kind::test, name.at, std::move(name.text));
  node->parts.push_back(std::move(subject));
  const bool value = in_.is(Token::Kind::string) || in_.is(Token::Kind::integer) ||
                     in_.is(Token::Kind::real) || in_.is_sign("[") || in_.is_sign("{") ||
                     (in_.is(Token::Kind::name) &&
                      !in_.is_any_name({"else", "or", "and", "is", "if", "in", "not"}));
  if (in_.is_sign("("))
    arguments(*node);
  else if (value)
    node->parts.push_back(postfix(primary()));
  if (!negated) return node;
  auto whole = make(Kind::negate, node->at);
  whole->parts.push_back(std::move(node));
  return whole;
}

}  // namespace tfm::text::jinja
