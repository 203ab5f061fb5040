#include "launch/doctor/findings.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "comm/failure.h"
#include "core/host.h"
#include "core/strings.h"

namespace tfm::launch {
namespace {

constexpr const char* kNames[] = {"ok", "warning", "problem"};
const char* name_of(Severity s) { return kNames[static_cast<int>(s)]; }

// Lines after the first begin below the first one's text.
std::string indented(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == '\n') out += std::string(22, ' ');
  }
  return out;
}

}  // namespace

void Findings::ok(const std::string& check, const std::string& text) {
  all_.push_back({Severity::ok, check, text, {}});
}
void Findings::warning(const std::string& check, const std::string& text,
                       const std::string& remedy) {
  all_.push_back({Severity::warning, check, text, remedy});
}
void Findings::problem(const std::string& check, const std::string& text,
                       const std::string& remedy) {
  all_.push_back({Severity::problem, check, text, remedy});
}

bool Findings::of_ranks(const std::string& check, const std::optional<Error>& mine,
                        const std::string& remedy) {
  const std::string separator(1, '\0');
  const auto all = gather(*launch_, mine ? std::to_string(static_cast<int>(mine->code())) +
                                               separator + host_name() + separator + mine->what()
                                         : std::string());
  std::vector<comm::RankFailure> failures;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    const auto host = all[r].find('\0') + 1, message = all[r].find('\0', host) + 1;
    failures.push_back({static_cast<int>(r), std::atoi(all[r].c_str()),
                        all[r].substr(host, message - 1 - host), all[r].substr(message)});
  }
  if (failures.empty()) return false;
  const bool input = std::ranges::all_of(failures, [](const comm::RankFailure& f) {
    return f.code == static_cast<int>(ExitCode::input);
  });
  std::string text = comm::failure_text(failures, launch_->ranks);
  std::ranges::replace(text, '\t', ' ');
  all_.push_back(
      {Severity::problem, check, text, remedy, input ? ExitCode::input : ExitCode::environment});
  return true;
}

int Findings::exit_code() const {
  int code = 0;
  for (const Finding& f : all_)
    if (f.severity == Severity::problem)
      code = std::max(code, static_cast<int>(f.code));  // 4 before 3
  return code;
}

void Findings::print() const {
  std::size_t problems = 0, warnings = 0;
  for (const Finding& f : all_) {
    std::printf("%-8s %-12s %s\n", name_of(f.severity), f.check.c_str(), indented(f.text).c_str());
    if (!f.remedy.empty()) std::printf("%-21s -> %s\n", "", indented(f.remedy).c_str());
    problems += f.severity == Severity::problem;
    warnings += f.severity == Severity::warning;
  }
  std::printf("\n%s, %s\n", problems ? counted(problems, "problem").c_str() : "no problem",
              counted(warnings, "warning").c_str());
  std::fflush(stdout);
}

nlohmann::ordered_json Findings::json() const {
  nlohmann::ordered_json j{{"exit_code", exit_code()}, {"ranks", launch_->ranks}};
  j["findings"] = nlohmann::ordered_json::array();
  for (const Finding& f : all_)
    j["findings"].push_back({{"severity", name_of(f.severity)},
                             {"check", f.check},
                             {"text", f.text},
                             {"remedy", f.remedy}});
  j.update(measured);
  return j;
}

std::vector<std::string> gather(const Launch& launch, const std::string& text) {
  return launch.gather(text);
}

std::vector<double> gather(const Launch& launch, double value) {
  std::vector<double> all;
  const std::string bytes(reinterpret_cast<const char*>(&value), sizeof value);
  for (const std::string& text : gather(launch, bytes))
    std::memcpy(&all.emplace_back(), text.data(), sizeof value);
  return all;
}

}  // namespace tfm::launch
