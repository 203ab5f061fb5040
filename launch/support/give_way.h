#pragma once
// Makes the waiting threads of an OpenMP team give way where cores are busy.
//
// A waiting thread of libgomp spins for milliseconds before it sleeps, which is fast on idle cores.
// If other processes, or a limit on CPU time, keep a thread of the team off its core, the others
// spin in its way. libgomp spins for only 100 turns while the process has more OpenMP threads than
// cores (GOMP_SPINCOUNT in its manual), so an idle second team makes the first one sleep, and its
// end makes it spin again.
#include <chrono>
#include <filesystem>
#include <thread>

namespace tfm::launch {

// Seconds that the threads of a process, except thread `except`, were together ready to run without
// a core. `tasks`: /proc/self/task. 0 if the kernel does not count it (schedstat of its proc(5)).
double seconds_without_core(const std::filesystem::path& tasks, int except);

// How long waiting threads sleep before they try to spin again; 0: they go on spinning. `share`:
// average number of threads without a core while they spun; `last`: the previous result.
std::chrono::milliseconds next_rest(double share, std::chrono::milliseconds last);

// Whether OMP_WAIT_POLICY or GOMP_SPINCOUNT determines how threads wait.
bool wait_policy_is_set();

// Watches the threads of this process until it is destroyed, 20 times a second while they spin.
class GiveWay {
 public:
  // `threads`: of the team; `cores`: on which the process could run when it started.
  GiveWay(int threads, int cores, std::filesystem::path tasks = "/proc/self/task");

 private:
  std::jthread watch_;
};

}  // namespace tfm::launch
