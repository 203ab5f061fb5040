#include "launch/support/settings.h"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>

#include "config/settings.h"
#include "core/version.h"
#include "io/file.h"

namespace tfm::launch {
namespace {

// The note GNU_BUILD_ID of the program, in hexadecimal digits; empty where the linker wrote none.
int find_build_id(dl_phdr_info* module, std::size_t, void* result) {
  const auto padded = [](std::size_t n) { return (n + 3) / 4 * 4; };
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const auto& segment = module->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(module->dlpi_addr + segment.p_vaddr);
    for (const auto* end = at + segment.p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const auto* id = at + sizeof *note + padded(note->n_namesz);
      if (note->n_type == NT_GNU_BUILD_ID)
        for (unsigned k = 0; k < note->n_descsz; ++k) {
          constexpr const char* digits = "0123456789abcdef";
          static_cast<std::string*>(result)->append({digits[id[k] >> 4], digits[id[k] & 15]});
        }
      at = id + padded(note->n_descsz);
    }
  }
  return 1;  // the program itself is the first module
}

struct Difference {
  std::string key, mine, theirs;
};

// The first key whose values differ.
Difference difference(const std::string& mine, const std::string& theirs) {
  const std::vector<config::Setting> a = config::settings_of(mine), b = config::settings_of(theirs);
  const auto value = [](const std::vector<config::Setting>& all, const std::string& key) {
    const auto at = std::ranges::find(all, key, &config::Setting::key);
    return at == all.end() ? std::string("not set") : at->value;
  };
  for (const std::vector<config::Setting>* some : {&a, &b})
    for (const config::Setting& s : *some)
      if (value(a, s.key) != value(b, s.key)) return {s.key, value(a, s.key), value(b, s.key)};
  internal_error("the configurations do not differ");
}

}  // namespace

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string build_id() {
  std::string id;
  dl_iterate_phdr(find_build_id, &id);
  return std::string(version) + (id.empty() ? "" : " (build " + id + ")");
}

std::optional<Error> first_difference(const std::vector<RankSettings>& ranks) {
  const RankSettings& first = ranks.front();
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const RankSettings& other = ranks[r];
    const auto on = [&](std::size_t rank) {
      return "rank " + std::to_string(rank) + " on host " + ranks[rank].host;
    };
    if (other.build != first.build)
      return Error(ExitCode::environment, on(r) + " runs a different build of tfm than " + on(0) +
                                              ": " + other.build + " instead of " + first.build +
                                              "; start the same program on every host");
    if (other.config == first.config) continue;
    const Difference d = difference(first.config, other.config);
    return Error(ExitCode::usage, "the configuration differs between ranks: " + d.key + " is " +
                                      d.mine + " on " + on(0) + ", but " + d.theirs + " on " +
                                      on(r) + "; start all ranks with the same file and overrides");
  }
  return {};
}

void check_same_settings(const comm::MpiSession& session, const RankSettings& mine) {
  using Scope = comm::MpiSession::Scope;
  const std::string text = mine.build + '\n' + mine.config;
  const auto sums = session.gather(io::Checksum::of(std::as_bytes(std::span(text))), Scope::job);
  if (std::ranges::all_of(sums, [&](const std::string& s) { return s == sums[0]; })) return;
  const auto hosts = session.gather(mine.host, Scope::job),
             builds = session.gather(mine.build, Scope::job),
             configs = session.gather(mine.config, Scope::job);
  std::vector<RankSettings> ranks;
  for (std::size_t r = 0; r < hosts.size(); ++r) ranks.push_back({hosts[r], builds[r], configs[r]});
  if (const auto error = first_difference(ranks)) throw *error;
}

}  // namespace tfm::launch
