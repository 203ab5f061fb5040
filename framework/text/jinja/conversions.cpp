#include "text/jinja/conversions.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/strings.h"
#include "text/unicode.h"

namespace tfm::text::jinja {

Value indented(V v, A a, S spend) {
  const Value width = a.value(0, "width", std::int64_t{4});
  if (!width.string())
    spend(static_cast<std::size_t>(std::max<std::int64_t>(width.integer("width"), 0)));
  const std::string by =
      width.string()
          ? *width.string()
          : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width.integer("width"), 0)),
                        ' ');
  const bool first = flag(a, 1, "first"), blank = flag(a, 2, "blank");
  const std::vector<std::string> lines = lines_of(text_of(v) + "\n");
  std::string text(first ? by : "");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) append(text, "\n", spend);
    if (i > 0 && (blank || !lines[i].empty())) append(text, by, spend);
    append(text, lines[i], spend);
  }
  return text;
}

Value to_json(V v, A a, S spend) {
  a.expect({"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = flag(a, 0, "ensure_ascii");
  style.sort_keys = flag(a, 3, "sort_keys");
  const Value indent = a.value(1, "indent", nullptr),
              separators = a.value(2, "separators", nullptr);
  style.lines = !indent.none();
  if (style.lines) {
    style.item = ",";
    const std::int64_t width = indent.string() ? 0 : indent.integer("indent");
    if (width > 100) throw Problem("indent: expected at most 100");
    style.indent =
        indent.string()
            ? *indent.string()
            : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  if (const Sequence* s = separators.sequence()) {
    if (s->items->size() != 2) throw Problem("separators: expected two strings");
    style.item = text_of((*s->items)[0]);
    style.member = text_of((*s->items)[1]);
  }
  return json_of(v, style, spend);
}

Value to_integer(V v, A a, S) {
  const Value otherwise = a.value(0, "default", std::int64_t{0});
  if (const Undefined* u = v.get<Undefined>()) throw Problem(u->what);
  if (const double* d = v.get<double>())
    return std::isfinite(*d) && std::abs(*d) < 9e18 ? Value(static_cast<std::int64_t>(*d))
                                                    : otherwise;
  if (v.number()) return v.integer("int");
  if (!v.string()) return otherwise;
  std::string digits = stripped(*v.string(), nullptr, true, true);
  std::erase(digits, '_');
  if (digits.starts_with('+')) digits.erase(0, 1);
  std::int64_t number = 0;
  const int base = static_cast<int>(
      std::clamp<std::int64_t>(a.value(1, "base", std::int64_t{10}).integer("base"), 2, 36));
  const char prefix =
      digits.size() > 1 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '0';
  if ((base == 16 && prefix == 'x') || (base == 8 && prefix == 'o') || (base == 2 && prefix == 'b'))
    digits.erase(0, 2);
  const char* const end = digits.data() + digits.size();
  if (const auto r = std::from_chars(digits.data(), end, number, base);
      r.ec == std::errc() && r.ptr == end && !digits.empty())
    return number;
  double real = 0;
  const auto r = std::from_chars(digits.data(), end, real);
  const bool good = r.ec == std::errc() && r.ptr == end && !digits.empty() && std::isfinite(real) &&
                    std::abs(real) < 9e18;
  return good ? Value(static_cast<std::int64_t>(real)) : otherwise;
}

Value to_real(V v, A a, S) {
  if (const Undefined* u = v.get<Undefined>()) throw Problem(u->what);
  if (v.number()) return v.real();
  if (const std::string* s = v.string()) {
    std::string digits = stripped(*s, nullptr, true, true);
    if (digits.starts_with('+')) digits.erase(0, 1);
    double real = 0;
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), real);
    if (r.ec == std::errc() && r.ptr == digits.data() + digits.size() && !digits.empty())
      return real;
  }
  return a.value(0, "default", 0.0);
}

Value rounded(V v, A a, S) {
  const std::int64_t digits = a.value(0, "precision", std::int64_t{0}).integer("precision");
  const std::string method = text_of(a.value(1, "method", "common"));
  if (digits < 0 || digits > 300) throw Problem("round: expected a precision from 0 to 300");
  if (method == "common") {
    if (!v.get<double>()) return v.integer("round");
    return std::stod(printed("%.*f", static_cast<int>(digits), v.real()));
  }
  if (method != "ceil" && method != "floor") throw Problem("round: expected common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  return (method == "ceil" ? std::ceil(v.real() * scale) : std::floor(v.real() * scale)) / scale;
}

Value absolute(V v, A, S) {
  if (v.get<double>()) return std::abs(v.real());
  return v.integer("abs") < 0 ? negative(v) : Value(v.integer("abs"));
}

Value escaped(V v, A, S spend) {
  std::string text = text_of(v);
  for (const auto& [from, to] :
       {std::pair{"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}})
    text = replaced(text, from, to, -1, spend);
  return text;
}

// Words begin at the start and behind white space or one of -({[<.
Value title(V v, A, S) {
  std::string text;
  bool begins = true;
  for (const char32_t c : code_points(text_of(v))) {
    const std::string one = utf8(std::u32string(1, c));
    text += begins ? upper(one) : lower(one);
    begins =
        is_white_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
  }
  return text;
}

}  // namespace tfm::text::jinja
