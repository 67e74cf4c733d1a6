#include "scheduler/trace.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/fork.hpp"

namespace convolume {
namespace scheduler {

TraceStretch::TraceStretch(Trace::Impl* trace, const SharedLabels& labels, int run) noexcept
    : trace_(trace), run_(run) {
  if (trace_ == nullptr) return;
  labels_ = labels;
  const std::lock_guard lock(fork_lock(ForkLock::traces));
  if (trace_->spare.empty()) return;
  records_ = std::move(trace_->spare.back());
  trace_->spare.pop_back();
}

void TraceStretch::add(TaskId task, std::int64_t begin, std::int64_t end) noexcept {
  try {
    records_.push_back({task, begin, end});
  } catch (...) {
    ++lost_;
  }
}

TraceStretch::~TraceStretch() {
  if (trace_ == nullptr) return;
  const std::lock_guard lock(fork_lock(ForkLock::traces));
  trace_->lost += lost_;
  const std::size_t count = records_.size();
  try {
    if (count == 0) {
      if (records_.capacity() > 0) trace_->spare.push_back(std::move(records_));
      return;
    }
    const int next = static_cast<int>(trace_->threads.size());
    const int thread = trace_->threads.emplace(std::this_thread::get_id(), next).first->second;
    trace_->stretches.push_back({std::move(labels_), run_, thread, std::move(records_)});
  } catch (...) {
    trace_->lost += count;
  }
}

}  // namespace scheduler

Trace::Trace() : impl_(std::make_unique<Impl>()) {}
Trace::~Trace() = default;
Trace::Trace(Trace&&) noexcept = default;
Trace& Trace::operator=(Trace&&) noexcept = default;

std::vector<TraceEvent> Trace::events() const {
  const std::lock_guard lock(fork_lock(ForkLock::traces));
  std::vector<TraceEvent> all;
  for (const Impl::Stretch& stretch : impl_->stretches) {
    for (const scheduler::TaskRecord& record : stretch.records) {
      const scheduler::TaskLabel& label = (*stretch.labels)[static_cast<std::size_t>(record.task)];
      all.push_back({.name = label.name,
                     .layer = label.layer,
                     .bytes = label.bytes,
                     .thread = stretch.thread,
                     .begin = record.begin,
                     .end = record.end,
                     .run = stretch.run,
                     .task = record.task,
                     .task_class = label.task_class,
                     .after = label.after});
    }
  }
  // If two tasks nest, the outer one comes first, even if both began at the same clock reading.
  std::stable_sort(all.begin(), all.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tuple(a.begin, -a.end) < std::tuple(b.begin, -b.end);
  });
  return all;
}

std::size_t Trace::lost() const {
  const std::lock_guard lock(fork_lock(ForkLock::traces));
  return impl_->lost;
}

void Trace::clear() {
  const std::lock_guard lock(fork_lock(ForkLock::traces));
  for (Impl::Stretch& stretch : impl_->stretches) {
    stretch.records.clear();
    impl_->spare.push_back(std::move(stretch.records));
  }
  impl_->stretches.clear();
  impl_->threads.clear();
  impl_->lost = 0;
  impl_->runs = 0;
}

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

std::string chrome_trace(const std::vector<TracedProcess>& processes) {
  // Times are in microseconds in this format.
  std::string json = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  const char* separator = "\n";
  for (std::size_t pid = 0; pid < processes.size(); ++pid) {
    json += fmt::format("{}{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {}, \"args\": {{\"name\": {}}}}}",
                        separator, pid, quoted(processes[pid].name));
    separator = ",\n";
    auto zero = std::numeric_limits<std::int64_t>::max();
    for (const TraceEvent& event : processes[pid].events) zero = std::min(zero, event.begin);
    for (const TraceEvent& event : processes[pid].events) {
      fmt::format_to(std::back_inserter(json),
                     ",\n{{\"name\": {}, \"cat\": {}, \"ph\": \"X\", \"pid\": {}, \"tid\": {}, \"ts\": {:.3f}, "
                     "\"dur\": {:.3f}, \"args\": {{\"layer\": {}, \"bytes\": {:.0f}, \"run\": {}, \"task\": {}, "
                     "\"class\": {}, \"after\": [{}]}}}}",
                     quoted(event.name), quoted(event.layer), pid, event.thread,
                     1e-3 * static_cast<double>(event.begin - zero),
                     1e-3 * static_cast<double>(event.end - event.begin), quoted(event.layer), event.bytes, event.run,
                     event.task, quoted(name_of(event.task_class)), fmt::join(event.after, ", "));
    }
  }
  return json + "\n]}\n";
}

}  // namespace convolume
