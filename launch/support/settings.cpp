#include "launch/support/settings.h"

#include <elf.h>
#include <link.h>

#include <algorithm>

#include "config/settings.h"
#include "core/host.h"
#include "core/strings.h"
#include "core/version.h"
#include "io/file.h"
#include "kernels/instructions.h"

namespace tfm::launch {
namespace {

// What a module is looked for by: a part of its name, empty for the program, the first one.
struct BuildId {
  std::string_view module;
  std::string digits;
};

// The note GNU_BUILD_ID of a module, in hexadecimal digits; empty where the linker wrote none.
int find_build_id(dl_phdr_info* module, std::size_t, void* result) {
  auto& wanted = *static_cast<BuildId*>(result);
  if (std::string_view(module->dlpi_name).find(wanted.module) == std::string_view::npos) return 0;
  const auto padded = [](std::size_t n) { return (n + 3) / 4 * 4; };
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const auto& segment = module->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(module->dlpi_addr + segment.p_vaddr);
    for (const auto* end = at + segment.p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const auto* id = at + sizeof *note + padded(note->n_namesz);
      if (note->n_type == NT_GNU_BUILD_ID)
        for (unsigned k = 0; k < note->n_descsz; ++k) wanted.digits += hex_digits(id[k]);
      at = id + padded(note->n_descsz);
    }
  }
  return 1;
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

std::string build_id(bool with_kernels) {
  BuildId program, kernels{"libtfm_kernels", ""};
  dl_iterate_phdr(find_build_id, &program);
  if (with_kernels) dl_iterate_phdr(find_build_id, &kernels);
  std::string text(version);
  if (!program.digits.empty()) text += " (build " + program.digits + ")";
  if (!kernels.digits.empty()) text += " (kernels " + kernels.digits + ")";
  return text;
}

RankSettings settings_of_rank(const config::Config* config) {
  const bool on_gpu = config && config->device == config::DeviceKind::cuda;
  return {host_name(), build_id(!on_gpu), on_gpu ? "" : kernels::instructions(),
          config ? config::dump_config(*config) : ""};
}

std::optional<Error> first_difference(const std::vector<RankSettings>& ranks) {
  const RankSettings& first = ranks.front();
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const RankSettings& other = ranks[r];
    const auto on = [&](std::size_t rank) {
      return "rank " + std::to_string(rank) + " on host " + ranks[rank].host;
    };
    if (other.instructions != first.instructions)
      return Error(ExitCode::environment,
                   on(r) + " computes by " + other.instructions + ", " + on(0) + " by " +
                       first.instructions +
                       ": copies of a parameter on both would drift apart; use hosts of one kind, "
                       "or hide instructions on all hosts: "
                       "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F ONEDNN_MAX_CPU_ISA=AVX2");
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
  const std::string text = mine.build + '\n' + mine.instructions + '\n' + mine.config;
  const auto sums = session.gather(io::Checksum::of(std::as_bytes(std::span(text))), Scope::job);
  if (std::ranges::all_of(sums, [&](const std::string& s) { return s == sums[0]; })) return;
  const auto ranks = of_all_ranks(
      mine, [&](const std::string& value) { return session.gather(value, Scope::job); });
  if (const auto error = first_difference(ranks)) throw *error;
}

}  // namespace tfm::launch
