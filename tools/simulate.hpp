// The simulate command, which reads traces and simulates other numbers of cores.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convolume/scheduler.hpp"

namespace convolume::tools {

/// Reads a trace that chrome_trace() wrote. Throws IoError, and InvalidArgument naming the invalid event and field.
std::vector<TracedProcess> read_chrome_trace(const std::filesystem::path& file);

/// Reports where each process's time went, and how much faster than one core each number of cores could have been.
std::string simulation_text(const std::vector<TracedProcess>& processes, const std::vector<int>& cores);

}  // namespace convolume::tools
