// Decides which of two ready tasks runs first (ZNN's order: Zlateski, Lee, Seung 2016).
#pragma once

#include "convolume/scheduler.hpp"

namespace convolume::scheduler {

/// The urgency of a task. A path leads from the task to the end of the graph. An update task adds no cost to a path,
/// because it is as urgent as the most urgent task that waits for it, and last if no task waits. Tasks that release
/// memory come first.
struct Urgency {
  TaskClass task_class = TaskClass::normal;
  double path = 0;  ///< cost of the costliest path; includes the task's own cost unless it is an update
  double cost = 0;  ///< the task's own

  friend bool operator>(const Urgency& a, const Urgency& b) noexcept {
    const bool releases = a.task_class == TaskClass::release;
    if (releases != (b.task_class == TaskClass::release)) return releases;
    if (a.path != b.path) return a.path > b.path;
    if (a.task_class != b.task_class) return a.task_class == TaskClass::normal;
    return a.cost > b.cost;
  }
  /// Accounts for a successor whose path is `after`.
  void lengthen(double after) noexcept {
    const double all = after + (task_class == TaskClass::update ? 0 : cost);
    if (all > path) path = all;
  }
};

/// Returns the urgency of a task that no other task waits for.
inline Urgency last_urgency(TaskClass task_class, double cost) noexcept {
  Urgency urgency{.task_class = task_class, .path = 0, .cost = cost};
  urgency.lengthen(0);
  return urgency;
}

}  // namespace convolume::scheduler
