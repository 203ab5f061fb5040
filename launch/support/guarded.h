#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "comm/failure.h"
#include "launch/support/cores.h"

namespace tfm::launch {

// What standard output carries: a log, without which the work is still done, or the results.
enum class Output : std::uint8_t { log, results };

// How a program is one process of several.
struct Job {
  void (*start)(char** argv) = nullptr;  // before anything else
  // Ends all ranks; null: rank 0 alone does the work, and the program needs no MPI.
  void (*end)(int code, const std::string& message) = nullptr;
};
inline constexpr Job kRanks{restart_on_share, comm::fail_job};
inline constexpr Job kFirstRankAlone;
// Every process does its own work and needs no MPI.
inline constexpr Job kEachByItself{nullptr, [](int, const std::string&) {}};

// Runs `body` and turns an exception, or results that cannot be written, into a message and the
// contract's exit code, on all ranks; an exception of another thread, too. Handles --help, -h
// and --version.
int guarded(int argc, char** argv, const std::string& help,
            const std::function<int(int, char**)>& body, Output output = Output::results,
            const Job& job = kRanks);

}  // namespace tfm::launch
