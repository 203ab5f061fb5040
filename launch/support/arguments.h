#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace tfm::launch {

struct OptionSpec {
  std::string name;   // "--tokens"
  bool value = true;  // takes a value
  bool many = false;  // takes further values up to the next option, and may be given again
  // Which further words are values; null: all but overrides.
  bool (*takes)(const std::string& word) = nullptr;
};

// The configuration key that a word names or probably means; empty: none.
using MeantKey = std::string (*)(const std::string& word);

// Options, `key=value` overrides and positional arguments; unknown options are Error(usage) with
// the nearest known one, or the key that is meant. `meant_key`: of a program that takes
// configuration keys, also as --section.key=value.
class Arguments {
 public:
  Arguments(int argc, char** argv, const std::vector<OptionSpec>& known,
            MeantKey meant_key = nullptr);
  bool has(const std::string& option) const { return options_.count(option) > 0; }
  std::string get(const std::string& option, const std::string& fallback = {}) const;  // the last
  std::vector<std::string> all(const std::string& option) const;
  std::int64_t integer(const std::string& option, std::int64_t fallback, std::int64_t least,
                       std::int64_t most = std::numeric_limits<std::int32_t>::max()) const;
  double real(const std::string& option, double fallback) const;
  const std::vector<std::string>& positional() const { return positional_; }
  const std::vector<std::string>& overrides() const { return overrides_; }
  const std::string& only(const std::string& what) const;  // the single positional argument
  // On rank 0: Error(usage) if a file that is to be written at the end cannot be, or is the file of
  // another of these options or a positional argument. Leaves no file behind.
  void check_outputs(const std::vector<std::string>& options) const;

 private:
  [[noreturn]] void unknown_option(const std::string& option, const std::string& value,
                                   const std::vector<OptionSpec>& known) const;
  const MeantKey meant_key_;
  std::map<std::string, std::vector<std::string>> options_;
  std::vector<std::string> positional_, overrides_;
};

}  // namespace tfm::launch
