#include "tools/simulate.hpp"

#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"

namespace convolume::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr double longest_trace_us = 1e12;  // eleven days; then nanoseconds fit their type

/// Returns a finite number from 0 to `most`. Throws InvalidArgument.
double number_at(const Json& object, const char* name, double most, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) {
    throw InvalidArgument(fmt::format("{}: '{}' is missing or no number; give a trace from --trace", where, name));
  }
  const double value = found->get<double>();
  if (!(value >= 0 && value <= most)) {
    throw InvalidArgument(fmt::format("{}: '{}' is {}; valid values are 0 to {}", where, name, value, most));
  }
  return value;
}

int integer_at(const Json& object, const char* name, const std::string& where) {
  return static_cast<int>(number_at(object, name, 1 << 30, where));
}

TaskClass class_at(const Json& args, const std::string& where) {
  const std::string name = args.value("class", name_of(TaskClass::normal));
  for (const TaskClass one : {TaskClass::release, TaskClass::normal, TaskClass::update}) {
    if (name == name_of(one)) return one;
  }
  throw InvalidArgument(fmt::format("{}: class '{}' is unknown; it is release, normal or update", where, name));
}

TraceEvent event_of(const Json& event, const std::string& where) {
  const auto found = event.find("args");
  if (found == event.end() || !found->is_object()) {
    throw InvalidArgument(fmt::format("{}: 'args' is missing; give a trace from --trace", where));
  }
  const Json& args = *found;
  const double begin = number_at(event, "ts", longest_trace_us, where);
  const double length = number_at(event, "dur", longest_trace_us, where);
  TraceEvent result{.name = event.value("name", ""),
                    .layer = args.value("layer", ""),
                    .thread = integer_at(event, "tid", where),
                    .begin = static_cast<std::int64_t>(std::llround(1e3 * begin)),
                    .end = static_cast<std::int64_t>(std::llround(1e3 * (begin + length))),
                    .run = integer_at(args, "run", where),
                    .task = integer_at(args, "task", where),
                    .task_class = class_at(args, where)};
  const Json after = args.value("after", Json::array());
  for (const Json& before : after) {
    const TaskId id = before.is_number_integer() ? before.get<TaskId>() : -1;
    // Tasks are numbered in an order in which they can run. Another order would make the simulation wait for itself.
    if (id < 0 || id >= result.task) {
      throw InvalidArgument(fmt::format("{}: task {} cannot come after task {}", where, result.task, before.dump()));
    }
    result.after.push_back(id);
  }
  return result;
}

}  // namespace

std::vector<TracedProcess> read_chrome_trace(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw IoError(fmt::format("{}: cannot be read", file.string()));
  const Json json = Json::parse(stream, nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("traceEvents") || !json["traceEvents"].is_array()) {
    throw InvalidArgument(fmt::format("{}: is no Chrome trace (JSON with traceEvents)", file.string()));
  }
  constexpr int most_processes = 4096;
  std::vector<TracedProcess> processes;
  std::size_t number = 0;
  for (const Json& event : json["traceEvents"]) {
    const std::string where = fmt::format("{}: event {}", file.string(), number++);
    if (!event.is_object()) throw InvalidArgument(where + " is no object");
    const auto pid = static_cast<std::size_t>(number_at(event, "pid", most_processes, where));
    if (pid >= processes.size()) processes.resize(pid + 1);
    try {
      const std::string phase = event.value("ph", "");
      if (phase == "M") processes[pid].name = event.at("args").value("name", "");
      if (phase == "X") processes[pid].events.push_back(event_of(event, where));
    } catch (const Json::exception& error) {
      throw InvalidArgument(fmt::format("{}: {}", where, error.what()));
    }
  }
  return processes;
}

std::string simulation_text(const std::vector<TracedProcess>& processes, const std::vector<int>& cores) {
  std::string text;
  for (const TracedProcess& process : processes) {
    if (process.events.empty()) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", process.name, to_string(summarize(process.events)));
    const double one = simulate_seconds(process.events, 1);
    text += fmt::format("{:>6} {:>12} {:>9} {:>11}\n", "cores", "ms at least", "speed-up", "efficiency");
    for (const int count : cores) {
      const double seconds = simulate_seconds(process.events, count);
      const double speed_up = seconds > 0 ? one / seconds : 1;
      text +=
          fmt::format("{:>6} {:>12.3f} {:>9.2f} {:>9.0f} %\n", count, 1e3 * seconds, speed_up, 100 * speed_up / count);
    }
  }
  return text.empty() ? "the trace contains no task\n" : text;
}

}  // namespace convolume::tools
