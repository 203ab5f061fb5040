#include "core/task.h"

#include <atomic>

namespace tfm {
namespace {

std::function<void(const TaskState&)>& watcher() {
  static std::function<void(const TaskState&)> f;
  return f;
}
std::atomic<bool> busy = false;  // a task is watched

}  // namespace

void watch_tasks(std::function<void(const TaskState&)> f) { watcher() = std::move(f); }

Task::Task(std::string what, std::int64_t total, Unit unit)
    : what_(std::move(what)),
      total_(total),
      unit_(unit),
      start_(std::chrono::steady_clock::now()),
      watched_(watcher() && !busy.exchange(true)) {}

Task::~Task() {
  if (!watched_) return;
  tell(true);
  busy = false;
}

void Task::add(std::int64_t done) {
  done_ += done;
  if (watched_) tell(false);
}

void Task::tell(bool over) const {
  watcher()({what_, done_, total_, unit_ == Unit::bytes,
             std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(),
             over});
}

}  // namespace tfm
