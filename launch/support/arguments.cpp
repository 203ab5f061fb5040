#include "launch/support/arguments.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/error.h"
#include "core/host.h"
#include "core/strings.h"

namespace tfm::launch {
namespace {

[[noreturn]] void bad_option(const std::string& text) {
  throw Error(ExitCode::usage, text + "; see --help");
}

bool is_configuration(const std::string& word) {
  return word.ends_with(".yaml") || word.ends_with(".yml");
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

void Arguments::unknown_option(const std::string& option, const std::string& value,
                               const std::vector<OptionSpec>& known) const {
  std::vector<std::string_view> names;
  for (const OptionSpec& o : known) names.push_back(o.name);
  std::string help;
  const std::string word = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  const auto hint = [&](const std::string& text) {
    if (help.empty()) help = text;
  };
  if (const std::string near(nearest(option, names)); !near.empty())
    hint("; did you mean '" + near + "'?");
  if (meant_key_ && is_configuration(value))
    hint("; write the configuration file without an option: " + value);
  if (const std::string key = meant_key_ ? meant_key_(word) : ""; !key.empty())
    hint("; did you mean " + key + "=" + (value.empty() ? "VALUE" : value) + "?");
  bad_option("unknown option '" + option + "'" + help);
}

Arguments::Arguments(int argc, char** argv, const std::vector<OptionSpec>& known,
                     MeantKey meant_key)
    : meant_key_(meant_key) {
  std::vector<std::string>* further = nullptr;  // values of the option before
  bool (*takes)(const std::string&) = nullptr;  // which of them
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i], inline_value;
    const auto equals = arg.find('=');
    const bool dashed = arg.starts_with("--") && arg.size() > 2;
    if (dashed && meant_key_ && equals != std::string::npos && arg.find('.') < equals) {
      overrides_.push_back(arg.substr(2));
      continue;
    }
    const bool short_option = arg.size() > 1 && arg[0] == '-' && equals == std::string::npos;
    const bool is_key = meant_key_ && equals != std::string::npos && arg.find('.') < equals &&
                        arg.find('/') > equals && !is_file(arg);
    if (further && !arg.starts_with("--") && (takes ? takes(arg) : !is_key)) {
      further->push_back(arg);
      continue;
    }
    if (!arg.starts_with("--") && (!short_option || is_file(arg))) {
      const bool override_form = equals != std::string::npos && arg.find('/') > equals &&
                                 (!positional_.empty() || !is_file(arg));
      (override_form ? overrides_ : positional_).push_back(arg);
      continue;
    }
    if (equals != std::string::npos) inline_value = arg.substr(equals + 1), arg.resize(equals);
    const auto spec = std::find_if(known.begin(), known.end(),
                                   [&](const OptionSpec& o) { return o.name == arg; });
    if (spec == known.end()) {
      if (equals == std::string::npos && i + 1 < argc && argv[i + 1][0] != '-')
        inline_value = argv[i + 1];
      unknown_option(arg, inline_value, known);
    }
    if (!spec->value && equals != std::string::npos) bad_option(arg + " does not take a value");
    if (spec->value && equals == std::string::npos) {
      const auto is_next = [&](const OptionSpec& o) { return o.name == argv[i + 1]; };
      if (i + 1 >= argc || std::ranges::any_of(known, is_next)) bad_option(arg + " needs a value");
      inline_value = argv[++i];
    }
    std::vector<std::string>& values = options_[arg];
    values.push_back(inline_value);
    further = spec->many ? &values : nullptr;
    takes = spec->takes;
  }
}

std::string Arguments::get(const std::string& option, const std::string& fallback) const {
  const auto it = options_.find(option);
  return it == options_.end() ? fallback : it->second.back();
}

std::vector<std::string> Arguments::all(const std::string& option) const {
  const auto it = options_.find(option);
  return it == options_.end() ? std::vector<std::string>() : it->second;
}

std::int64_t Arguments::integer(const std::string& option, std::int64_t fallback,
                                std::int64_t least, std::int64_t most) const {
  if (!has(option)) return fallback;
  char* end = nullptr;
  const std::string text = get(option);
  errno = 0;
  const long long v = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || errno == ERANGE || v < least || v > most)
    bad_option(option + " '" + text + "': expected a whole number of at least " +
               std::to_string(least) + " and at most " + std::to_string(most));
  return v;
}

double Arguments::real(const std::string& option, double fallback) const {
  if (!has(option)) return fallback;
  char* end = nullptr;
  const std::string text = get(option);
  const double v = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(v >= 0))
    bad_option(option + " '" + text + "': expected a number of at least 0");
  return v;
}

const std::string& Arguments::only(const std::string& what) const {
  if (positional_.size() == 1) return positional_[0];
  std::string help;
  for (std::size_t i = 0; meant_key_ && help.empty() && i + 1 < positional_.size(); ++i) {
    const std::string& word = positional_[i];
    if (is_configuration(word) || is_file(word)) continue;
    const std::string key = meant_key_(word);
    if (!key.empty() && (key == word || word.find('.') < word.find('/')))
      help = "; write a key and its value as " + key + "=" + positional_[i + 1];
  }
  bad_option("expected one " + what + ", got " + std::to_string(positional_.size()) +
             (positional_.size() > 1 ? " ('" + positional_[1] + "')" : "") + help);
}

void Arguments::check_outputs(const std::vector<std::string>& options) const {
  if (rank_of_launch() != 0) return;
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::set<fs::path> taken;
  for (const std::string& argument : positional_)
    taken.insert(fs::weakly_canonical(fs::absolute(argument, ignored), ignored));
  for (const std::string& option : options) {
    if (!has(option)) continue;
    const std::string file = get(option);
    const bool there = fs::exists(file, ignored);
    if (!std::ofstream(file, std::ios::app))
      throw Error(ExitCode::usage, option + " '" + file + "' cannot be written");
    const bool keeps = fs::is_regular_file(file, ignored);  // a terminal takes one after another
    if (!there) fs::remove(file, ignored);
    if (!taken.insert(fs::weakly_canonical(fs::absolute(file, ignored), ignored)).second && keeps)
      throw Error(ExitCode::usage, option + " '" + file + "' is named twice; choose another file");
  }
}

}  // namespace tfm::launch
