// Ranges of numbers, and what is expected of a value.
#include "config/reflect.h"

namespace tfm::config {
namespace {

std::string bounds(const Field& f) {
  const bool has_low = f.low > -std::numeric_limits<double>::infinity();
  const bool has_high = f.high < std::numeric_limits<double>::infinity();
  if (f.low == f.high) return " of " + number_text(f.low);
  std::string s;
  if (has_low) s += (f.low_open ? " > " : " >= ") + number_text(f.low);
  if (has_low && has_high) s += " and";
  if (has_high) s += (f.high_open ? " < " : " <= ") + number_text(f.high);
  return s;
}

std::string printed(std::int64_t x) { return std::to_string(x); }
std::string printed(std::uint64_t x) { return std::to_string(x); }
std::string printed(double x) { return number_text(x); }

template <class T>
bool is_below_high(const Field& f, T x) {
  const auto value = static_cast<double>(x);
  return f.high_open ? value < f.high : value <= f.high;
}
template <class T>
bool is_above_low(const Field& f, T x) {
  const auto value = static_cast<double>(x);
  return f.low_open ? value > f.low : value >= f.low;
}
template <class T>
std::string problem_of(const Field& f, T x) {
  if (is_below_high(f, x) && is_above_low(f, x)) return {};
  return printed(x) + " is out of range; expected " + expected_value(f);
}

class RangeChecker : public KeyVisitor {
 public:
  explicit RangeChecker(const RangeReport& report) : report_(report) {}
  using FieldVisitor::value;
  void value(const Field& f, std::int64_t& x) override { check(f, x); }
  void value(const Field& f, std::uint64_t& x) override { check(f, x); }
  void value(const Field& f, double& x) override { check(f, x); }
  void value(const Field&, bool&) override {}
  void value(const Field&, std::string&) override {}
  void section(const Field& f, const Body& body, bool absent) override {
    if (!absent) inside(f, body);
  }

 private:
  template <class T>
  void check(const Field& f, T x) {
    if (x == 0 && !f.automatic.empty()) return;
    if (const std::string problem = range_problem(f, x); !problem.empty())
      report_(key_of(f), problem);
  }
  const RangeReport& report_;
};

}  // namespace

std::string range_problem(const Field& f, std::int64_t x) { return problem_of(f, x); }
std::string range_problem(const Field& f, std::uint64_t x) { return problem_of(f, x); }
std::string range_problem(const Field& f, double x) { return problem_of(f, x); }

void check_ranges(const Describe& fields, const RangeReport& report) {
  RangeChecker checker(report);
  fields(checker);
}

std::string expected_value(const Field& f) {
  const std::string word = f.automatic.empty() ? "" : std::string(f.automatic) + " or ";
  switch (f.kind) {
    case FieldKind::integer:
    case FieldKind::count:
    case FieldKind::size:
      return word + "a whole number" + bounds(f);
    case FieldKind::real:
      return word + "a number" + bounds(f);
    case FieldKind::boolean:
      return "true or false";
    case FieldKind::text:
      return word + "text";
    case FieldKind::choice:
      break;
  }
  return word + "one of " + join(f.choices);
}

}  // namespace tfm::config
