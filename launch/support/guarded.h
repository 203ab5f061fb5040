#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "comm/failure.h"

namespace tfm::launch {

// What standard output carries: a log, without which the work is still done, or the results.
enum class Output : std::uint8_t { log, results };

// Ends all ranks of a job; null: rank 0 alone does the work, and the program needs no MPI.
using EndJob = void (*)(int code, const std::string& message);
inline constexpr EndJob kFirstRankAlone = nullptr;
// Every process does its own work and needs no MPI.
inline void each_by_itself(int, const std::string&) {}

// Runs `body` and turns an exception, or results that cannot be written, into a message and the
// contract's exit code, on all ranks; an exception of another thread, too. Handles --help and
// --version.
int guarded(int argc, char** argv, const std::string& help,
            const std::function<int(int, char**)>& body, Output output = Output::results,
            EndJob end_job = comm::fail_job);

}  // namespace tfm::launch
