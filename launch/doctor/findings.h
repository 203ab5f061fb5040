#pragma once
// The findings of tfm-doctor's checks, as a table and as JSON. All ranks collect the same findings.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/support/program.h"

namespace tfm::launch {

enum class Severity : std::uint8_t { ok, warning, problem };

struct Finding {
  Severity severity = Severity::ok;
  std::string check;   // "cores"
  std::string text;    // what was found
  std::string remedy;  // what to do; empty if `text` says it or nothing is to be done
  ExitCode code = ExitCode::environment;  // for problems
};

class Findings {
 public:
  explicit Findings(const Launch& launch) : launch_(&launch) {}

  void ok(const std::string& check, const std::string& text);
  void warning(const std::string& check, const std::string& text, const std::string& remedy);
  void problem(const std::string& check, const std::string& text, const std::string& remedy);
  // Collective: adds the problems of single ranks, with equal ones merged and hosts and ranks
  // listed. In a message, what is to be done follows the last semicolon. False if no rank has a
  // problem.
  bool of_ranks(const std::string& check, const std::optional<Error>& mine,
                const std::string& remedy = {});

  // 0: no problem; 3: data is missing or unreadable and nothing else is wrong; 4: any other
  // problem.
  int exit_code() const;
  void print() const;
  nlohmann::ordered_json json() const;
  nlohmann::ordered_json measured =
      nlohmann::ordered_json::object();  // what the checks measured, by name

 private:
  const Launch* launch_;
  std::vector<Finding> all_;
};

// What `body` throws, as an Error; nullopt if nothing.
template <class F>
std::optional<Error> error_of(F&& body) {
  try {
    std::forward<F>(body)();
    return {};
  } catch (const Error& e) {
    return e;
  } catch (const std::exception& e) {
    return Error(ExitCode::environment, e.what());
  }
}

}  // namespace tfm::launch
