// Runs equal pieces of work as tasks.
#pragma once

#include <algorithm>
#include <stop_token>

#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume::nets {

/// Calls body(i) for each i in [0, count), as tasks of at most 64 ranges. Returns false if a stop request ended the run
/// early. Rethrows the first exception of a task.
template <class Body>
bool run_parallel(Scheduler& scheduler, const char* name, index_t count, const Body& body, std::stop_token stop = {}) {
  TaskGraph graph;
  const index_t per_task = (count + 63) / 64;
  for (index_t begin = 0; begin < count; begin += per_task) {
    const index_t end = std::min(count, begin + per_task);
    graph.add({.name = name, .cost = static_cast<double>(end - begin)}, [&body, begin, end] {
      for (index_t i = begin; i < end; ++i) body(i);
    });
  }
  return graph.run(scheduler, std::move(stop)) == RunResult::completed;
}

}  // namespace convolume::nets
