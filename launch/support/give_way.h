#pragma once
// Lets threads of an OpenMP team that wait for each other give way where cores are busy.
//
// A thread of libgomp that waits spins for milliseconds before it sleeps, which is fast on idle
// cores. Where other processes, or a limit on CPU time, keep a thread of the team from its core,
// the others spin in its way. libgomp spins for 100 turns only while the process has more OpenMP
// threads than cores (GOMP_SPINCOUNT in its manual), so an idle second team makes the first one
// sleep, and its end makes it spin again.
#include <chrono>
#include <filesystem>
#include <thread>

namespace tfm::launch {

// Seconds that the threads of a process together were ready to run and had no core, but for thread
// `except`. `tasks`: /proc/self/task; 0 where the kernel does not count it (schedstat of its
// proc(5)).
double seconds_without_core(const std::filesystem::path& tasks, int except);

// How long waiting threads sleep before they try to spin again, 0 where they go on spinning.
// `share`: threads without a core, on average, while they spun; `last`: the previous result.
std::chrono::milliseconds next_rest(double share, std::chrono::milliseconds last);

// OMP_WAIT_POLICY or GOMP_SPINCOUNT say how threads wait.
bool wait_policy_is_set();

// Watches the threads of this process until it is destroyed, 20 times a second while they spin.
class GiveWay {
 public:
  // `threads`: of the team; `cores`: that the process could run on when it started.
  GiveWay(int threads, int cores, std::filesystem::path tasks = "/proc/self/task");

 private:
  std::jthread watch_;
};

}  // namespace tfm::launch
