// Which of two ready tasks runs first (ZNN's order: Zlateski, Lee, Seung 2016).
#pragma once

#include "convolume/scheduler.hpp"

namespace convolume::scheduler {

/// Of a task. Paths lead to the end of the graph and count no updates but as what forces them: an update is as urgent
/// as the most urgent task that waits for it, and last where none does. What gives memory back is first.
struct Urgency {
  TaskClass task_class = TaskClass::normal;
  double path = 0;  ///< cost of the costliest one; the task's own cost included, unless it is an update
  double cost = 0;  ///< the task's own

  friend bool operator>(const Urgency& a, const Urgency& b) noexcept {
    const bool releases = a.task_class == TaskClass::release;
    if (releases != (b.task_class == TaskClass::release)) return releases;
    if (a.path != b.path) return a.path > b.path;
    if (a.task_class != b.task_class) return a.task_class == TaskClass::normal;
    return a.cost > b.cost;
  }
  /// A task of path `after` comes behind this one.
  void lengthen(double after) noexcept {
    const double all = after + (task_class == TaskClass::update ? 0 : cost);
    if (all > path) path = all;
  }
};

/// Of a task that nothing waits for.
inline Urgency last_urgency(TaskClass task_class, double cost) noexcept {
  Urgency urgency{.task_class = task_class, .path = 0, .cost = cost};
  urgency.lengthen(0);
  return urgency;
}

}  // namespace convolume::scheduler
