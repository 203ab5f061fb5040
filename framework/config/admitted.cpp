#include "config/admitted.h"

#include "config/fields.h"
#include "core/error.h"

namespace tfm::config {
namespace {

class Finder : public KeyVisitor {
 public:
  explicit Finder(std::string_view key) : key_(key) {}

  using FieldVisitor::value;
  void value(const Field& f, std::int64_t&) override { see(f); }
  void value(const Field& f, std::uint64_t&) override { see(f); }
  void value(const Field& f, double&) override { see(f); }
  void value(const Field& f, bool&) override { see(f); }
  void value(const Field& f, std::string&) override { see(f); }

  Field found;

 private:
  void see(const Field& f) {
    if (key_of(f) == key_) found = f;
  }

  const std::string_view key_;
};

}  // namespace

std::vector<std::string> admitted_values(std::string_view key,
                                         const std::vector<std::int64_t>& numbers) {
  Finder finder(key);
  Config scratch;
  describe_config(scratch, finder);
  const Field& f = finder.found;
  TFM_CHECK(!f.name.empty(), "no key " + std::string(key));
  std::vector<std::string> values;
  const auto add = [&](std::int64_t n) {
    if (static_cast<double>(n) >= f.low && static_cast<double>(n) <= f.high)
      values.push_back(std::to_string(n));
  };
  if (f.kind == FieldKind::boolean) return {"false", "true"};
  for (const std::string_view word : f.choices)
    if (word != "auto") values.emplace_back(word);
  for (const std::int64_t n : numbers) add(n);
  if (f.kind == FieldKind::count && numbers.empty())
    for (auto n = static_cast<std::int64_t>(f.low); static_cast<double>(n) <= f.high; ++n) add(n);
  return values;
}

}  // namespace tfm::config
