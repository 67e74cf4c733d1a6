// Evaluates traces: how the time was spent, and what more cores would gain (Zlateski, Lee, Seung 2016, whose figures
// show speed-ups up to the number of physical cores).
#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "convolume/scheduler.hpp"
#include "scheduler/urgency.hpp"

namespace convolume {
namespace {

double seconds_of(const TraceEvent& event) { return 1e-9 * static_cast<double>(event.end - event.begin); }

/// The tasks of one run of a graph, ordered by their ids, which is a valid order of execution.
class TracedRun {
 public:
  explicit TracedRun(std::vector<const TraceEvent*> events) : events_(std::move(events)) {
    std::sort(events_.begin(), events_.end(),
              [](const TraceEvent* a, const TraceEvent* b) { return a->task < b->task; });
    std::unordered_map<TaskId, std::size_t> places;
    for (std::size_t i = 0; i < events_.size(); ++i) places[events_[i]->task] = i;
    successors_.resize(events_.size());
    predecessors_.assign(events_.size(), 0);
    for (std::size_t i = 0; i < events_.size(); ++i) {
      for (const TaskId before : events_[i]->after) {
        const auto found = places.find(before);
        if (found == places.end()) continue;  // the predecessor was skipped
        successors_[found->second].push_back(i);
        ++predecessors_[i];
      }
    }
    paths_.assign(events_.size(), 0);
    for (const TraceEvent* event : events_) {
      urgency_.push_back(scheduler::last_urgency(event->task_class, seconds_of(*event)));
    }
    for (std::size_t i = events_.size(); i-- > 0;) {
      for (const std::size_t next : successors_[i]) {
        paths_[i] = std::max(paths_[i], paths_[next]);
        urgency_[i].lengthen(urgency_[next].path);
      }
      paths_[i] += seconds_of(*events_[i]);
    }
  }

  TraceSummary::CriticalPath critical_path() const {
    TraceSummary::CriticalPath path;
    std::map<std::string, double> layers;
    const auto longer = [&](std::size_t a, std::size_t b) { return paths_[a] < paths_[b]; };
    std::vector<std::size_t> next(events_.size());
    for (std::size_t i = 0; i < next.size(); ++i) next[i] = i;
    while (!next.empty()) {
      const std::size_t i = *std::max_element(next.begin(), next.end(), longer);
      path.seconds += seconds_of(*events_[i]);
      layers[events_[i]->layer] += seconds_of(*events_[i]);
      next = successors_[i];
    }
    path.layers.assign(layers.begin(), layers.end());
    std::stable_sort(path.layers.begin(), path.layers.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    return path;
  }

  double simulate(int cores) const {
    const auto later = [&](std::size_t a, std::size_t b) {
      if (urgency_[a] > urgency_[b] || urgency_[b] > urgency_[a]) return urgency_[b] > urgency_[a];
      return a > b;
    };
    std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(later)> ready(later);
    using Ending = std::pair<double, std::size_t>;
    std::priority_queue<Ending, std::vector<Ending>, std::greater<>> running;
    std::vector<std::size_t> waiting = predecessors_;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i] == 0) ready.push(i);
    }
    double now = 0;
    while (!ready.empty() || !running.empty()) {
      while (!ready.empty() && running.size() < static_cast<std::size_t>(cores)) {
        running.emplace(now + seconds_of(*events_[ready.top()]), ready.top());
        ready.pop();
      }
      const auto [end, ended] = running.top();
      running.pop();
      now = end;
      for (const std::size_t next : successors_[ended]) {
        if (--waiting[next] == 0) ready.push(next);
      }
    }
    return now;
  }

 private:
  std::vector<const TraceEvent*> events_;
  std::vector<std::vector<std::size_t>> successors_;
  std::vector<std::size_t> predecessors_;
  std::vector<double> paths_;  // seconds to the end of the graph, including the task
  std::vector<scheduler::Urgency> urgency_;
};

std::vector<TracedRun> runs_of(const std::vector<TraceEvent>& events) {
  std::map<int, std::vector<const TraceEvent*>> by_run;
  for (const TraceEvent& event : events) by_run[event.run].push_back(&event);
  std::vector<TracedRun> runs;
  for (auto& [run, of_run] : by_run) runs.emplace_back(std::move(of_run));
  return runs;
}

/// Gaps between two tasks of a thread up to this length (seconds) count as scheduling; the rest of a gap counts as
/// idle.
constexpr double most_between = 2e-6;

TraceSummary::Thread thread_of(const std::vector<const TraceEvent*>& events, double all) {
  TraceSummary::Thread thread;
  std::int64_t last = events.front()->begin;
  for (const TraceEvent* event : events) {
    // If tasks nest, only the outer task counts.
    if (event->end <= last && event != events.front()) continue;
    thread.busy += 1e-9 * static_cast<double>(event->end - std::max(event->begin, last));
    thread.between += std::min(most_between, std::max(0.0, 1e-9 * static_cast<double>(event->begin - last)));
    last = event->end;
  }
  thread.idle = std::max(0.0, all - thread.busy - thread.between);
  return thread;
}

}  // namespace

TraceSummary summarize(const std::vector<TraceEvent>& events) {
  TraceSummary summary;
  if (events.empty()) return summary;
  std::map<int, std::vector<const TraceEvent*>> by_thread;
  std::int64_t begin = events.front().begin, end = begin;
  for (const TraceEvent& event : events) {
    begin = std::min(begin, event.begin);
    end = std::max(end, event.end);
    by_thread[event.thread].push_back(&event);
  }
  summary.seconds = 1e-9 * static_cast<double>(end - begin);
  for (const auto& [thread, of_thread] : by_thread) summary.threads.push_back(thread_of(of_thread, summary.seconds));
  for (const TracedRun& run : runs_of(events)) summary.runs.push_back(run.critical_path());
  return summary;
}

std::string to_string(const TraceSummary& summary) {
  const auto share = [&](double seconds) { return summary.seconds > 0 ? 100 * seconds / summary.seconds : 0; };
  std::string text = fmt::format("{:.2f} ms in {} run{}\n", 1e3 * summary.seconds, summary.runs.size(),
                                 summary.runs.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < summary.threads.size(); ++i) {
    const TraceSummary::Thread& t = summary.threads[i];
    text += fmt::format("thread {:<3} busy {:5.1f} %  between tasks {:4.1f} %  idle {:5.1f} %\n", i, share(t.busy),
                        share(t.between), share(t.idle));
  }
  double seconds = 0;
  std::map<std::string, double> layers;
  for (const auto& run : summary.runs) {
    seconds += run.seconds;
    for (const auto& [layer, of_layer] : run.layers) layers[layer] += of_layer;
  }
  text += fmt::format("critical path {:.2f} ms", 1e3 * seconds);
  std::vector<std::pair<std::string, double>> longest(layers.begin(), layers.end());
  std::stable_sort(longest.begin(), longest.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (longest.size() > 5) longest.resize(5);
  const char* separator = ": ";
  for (const auto& [layer, of_layer] : longest) {
    text += fmt::format("{}{} {:.2f}", separator, layer.empty() ? "(no layer)" : layer, 1e3 * of_layer);
    separator = ", ";
  }
  return text + "\n";
}

double simulate_seconds(const std::vector<TraceEvent>& events, int cores) {
  if (cores < 1) throw InvalidArgument(fmt::format("simulate: {} cores; at least 1 is needed", cores));
  double seconds = 0;
  for (const TracedRun& run : runs_of(events)) seconds += run.simulate(cores);
  return seconds;
}

}  // namespace convolume
