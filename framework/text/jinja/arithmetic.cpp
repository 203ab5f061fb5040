// Python's arithmetic operators.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "text/jinja/operations.h"

namespace tfm::text::jinja {
namespace {

[[noreturn]] void no_operation(std::string_view op, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b})
    if (const Undefined* u = v->get<Undefined>()) throw Problem(u->what);
  throw Problem("'" + std::string(op) + "' is not possible for values of types " +
                std::string(a.type()) + " and " + std::string(b.type()));
}

[[noreturn]] void too_large() { throw Problem("the result is no integer of 64 bits"); }

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (base == 0 || base == 1) return base;
    if (base == -1) return exponent % 2 ? -1 : 1;
    if (__builtin_mul_overflow(result, base, &result)) too_large();
  }
  return result;
}

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  if (b == 0) throw Problem("division by zero");
  if (b == -1) {
    std::int64_t result;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) too_large();
    return result;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Value of_integers(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool over = false;
  if (op == "+") over = __builtin_add_overflow(a, b, &result);
  if (op == "-") over = __builtin_sub_overflow(a, b, &result);
  if (op == "*") over = __builtin_mul_overflow(a, b, &result);
  if (op == "//") result = floor_divided(a, b);
  if (op == "%") {
    if (b == 0) throw Problem("division by zero");
    result = b == -1 ? 0 : a - floor_divided(a, b) * b;
  }
  if (op == "**") {
    if (b < 0 && a == 0) throw Problem("division by zero");
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    result = power(a, b);
  }
  if (over) too_large();
  return result;
}

Value of_reals(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") {
    const double result = std::pow(a, b);
    if (std::isnan(result) || std::isinf(result)) throw Problem("the power is no number");
    return result;
  }
  if (b == 0) throw Problem("division by zero");
  if (op == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == "%") return rest == 0 ? std::copysign(0.0, b) : rest;
  return std::floor((a - rest) / b + 0.5);
}

Value repeated(const Value& value, std::int64_t times, const Spend& spend) {
  times = std::max<std::int64_t>(times, 0);
  const auto size = value.string() ? value.string()->size() : value.sequence()->items->size();
  std::size_t whole = 0;
  if (__builtin_mul_overflow(size, static_cast<std::size_t>(times), &whole))
    whole = ~std::size_t{0} / 8;
  check_size(whole);
  if (!value.string()) check_size(whole * sizeof(Value));
  spend(whole);
  if (size == 0) times = 0;
  if (const std::string* s = value.string()) {
    std::string text;
    for (std::int64_t i = 0; i < times; ++i) text += *s;
    return text;
  }
  List items;
  for (std::int64_t i = 0; i < times; ++i)
    items.insert(items.end(), value.sequence()->items->begin(), value.sequence()->items->end());
  return Value::sequence(std::move(items), value.sequence()->kind);
}

bool repeats(const Value& value) {
  return value.string() || (value.sequence() && value.sequence()->kind != SequenceKind::stream);
}

}  // namespace

Value arithmetic(std::string_view op, const Value& a, const Value& b, const Spend& spend) {
  if (a.number() && b.number()) {
    if (a.get<double>() || b.get<double>() || op == "/") return of_reals(op, a.real(), b.real());
    return of_integers(op, a.integer(""), b.integer(""));
  }
  const std::string *const s = a.string(), *const t = b.string();
  if (op == "+" && s && t) {
    spend(s->size() + t->size());
    return *s + *t;
  }
  const Sequence *const u = a.sequence(), *const v = b.sequence();
  if (op == "+" && u && v && u->kind == v->kind && u->kind != SequenceKind::stream) {
    spend(u->items->size() + v->items->size());
    List items = *u->items;
    items.insert(items.end(), v->items->begin(), v->items->end());
    return Value::sequence(std::move(items), u->kind);
  }
  const auto whole = [](const Value& n) { return n.number() && !n.get<double>(); };
  if (op == "*" && repeats(a) && whole(b)) return repeated(a, b.integer(""), spend);
  if (op == "*" && whole(a) && repeats(b)) return repeated(b, a.integer(""), spend);
  if (op == "%" && s) return formatted(*s, b, spend);
  no_operation(op, a, b);
}

Value negative(const Value& value) {
  if (const double* d = value.get<double>()) return -*d;
  if (const Undefined* u = value.get<Undefined>()) throw Problem(u->what);
  return of_integers("-", 0, value.integer("the sign"));
}

namespace {

// The value of a conversion such as %-5d, whose flags, width and precision are in `spec`.
std::string converted(const std::string& spec, char type, const Value& value) {
  if (type == 's' || type == 'r') {
    const std::string text = type == 's' ? text_of(value) : repr_of(value);
    if (spec == "%") return text;
    const std::string out = printed((spec + "s").c_str(), text.c_str());
    if (out.size() < text.size() && spec.find('.') == spec.npos) return text;
    return out;
  }
  const std::string integers = "diuxXo", reals = "fFeEgG";
  if (integers.find(type) != integers.npos) {
    if (value.get<double>() && !(std::abs(value.real()) < 9e18)) too_large();
    const long long n =
        value.get<double>() ? static_cast<long long>(value.real()) : value.integer("format");
    return printed((spec + "ll" + (type == 'u' ? 'd' : type)).c_str(), n);
  }
  if (reals.find(type) != reals.npos) return printed((spec + type).c_str(), value.real());
  throw Problem(std::string("the conversion %") + type +
                " is not supported; expected one of s r d i x X o f e g");
}

}  // namespace

std::string formatted(const std::string& format, const Value& values, const Spend& spend) {
  const Sequence* tuple = values.sequence();
  if (tuple && tuple->kind != SequenceKind::tuple) tuple = nullptr;
  std::size_t used = 0;
  std::string text;
  const auto next = [&]() -> Value {
    if (used >= (tuple ? tuple->items->size() : 1))
      throw Problem("not enough values for the format");
    return tuple ? (*tuple->items)[used++] : (++used, values);
  };
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      text += format[i];
      continue;
    }
    std::string spec = "%";
    for (++i; i < format.size() &&
              std::string_view("-+ 0#.123456789").find(format[i]) != std::string_view::npos;
         ++i)
      spec += format[i];
    if (spec.size() > 8) throw Problem("the width of a conversion is too large");
    if (i >= format.size()) throw Problem("the format ends within a conversion");
    if (format[i] == '%')
      text += '%';
    else if (format[i] == '(') {
      const std::size_t end = format.find(')', i);
      if (end == format.npos || end + 1 >= format.size() || !values.dict())
        throw Problem("expected %(name)s with a dictionary");
      const Value named = item(values, Value(format.substr(i + 1, end - i - 1)));
      append(text, converted(spec, format[end + 1], named), spend);
      i = end + 1;
      used = 1;
    } else
      append(text, converted(spec, format[i], next()), spend);
  }
  if (used < (tuple ? tuple->items->size() : values.dict() ? 0 : 1))
    throw Problem("not all values are used by the format");
  return text;
}

}  // namespace tfm::text::jinja
