#include "launch/doctor/findings.h"

#include <algorithm>
#include <cstdio>

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
  const comm::RankFailure own =
      mine ? comm::RankFailure{0, static_cast<int>(mine->code()), host_name(), mine->what()}
           : comm::RankFailure{.code = 0};
  std::vector<comm::RankFailure> failures;
  for (const std::string& bytes : launch_->gather(comm::pack(own.code, own.host, own.message))) {
    comm::RankFailure& f = failures.emplace_back();
    f.rank = static_cast<int>(std::ssize(failures)) - 1;
    comm::unpack(bytes, f.code, f.host, f.message);
  }
  std::erase_if(failures, [](const comm::RankFailure& f) { return f.code == 0; });
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

}  // namespace tfm::launch
