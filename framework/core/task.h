#pragma once
// Long work that says how far it is, to whoever watches in this process.
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace tfm {

struct TaskState {
  const std::string& what;           // "verifying step-00000500"
  std::int64_t done = 0, total = 0;  // total: 0 where it is not known
  bool bytes = false;                // else things that are counted
  double seconds = 0;                // since it began
  bool over = false;
};

// From now on; nothing: nobody watches. Not to be called while a task runs.
void watch_tasks(std::function<void(const TaskState&)> watcher);

// Lives as long as the work. One task at a time is watched: those that begin within it are part of
// it. Of one thread.
class Task {
 public:
  enum class Unit { things, bytes };
  Task(std::string what, std::int64_t total, Unit unit = Unit::things);
  ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  void add(std::int64_t done);

 private:
  void tell(bool over) const;

  std::string what_;
  std::int64_t done_ = 0, total_ = 0;
  Unit unit_;
  std::chrono::steady_clock::time_point start_;
  bool watched_ = false;
};

}  // namespace tfm
