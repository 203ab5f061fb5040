#pragma once
// Progress of long-running work, reported to a watcher in the same process.
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace tfm {

struct TaskState {
  const std::string& what;           // "verifying step-00000500"
  std::int64_t done = 0, total = 0;  // total: 0 if it is not known
  bool bytes = false;                // done and total are bytes, not items
  double seconds = 0;                // since the start
  bool over = false;                 // the last report of the task
};

// Sets the watcher of tasks that start later; an empty function removes it. Must not be called
// while a task runs.
void watch_tasks(std::function<void(const TaskState&)> watcher);

// Covers the work done in its lifetime. Only one task is reported at a time: tasks that start while
// it lives are taken as part of it. Each task is used by one thread.
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
