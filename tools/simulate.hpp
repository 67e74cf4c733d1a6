// The simulate command: traces read again.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convolume/scheduler.hpp"

namespace convolume::tools {

/// What chrome_trace() wrote. Throws IoError, and InvalidArgument naming the event and field that make no sense.
std::vector<TracedProcess> read_chrome_trace(const std::filesystem::path& file);

/// Where each process's time went, and how much faster so many cores could have been than one.
std::string simulation_text(const std::vector<TracedProcess>& processes, const std::vector<int>& cores);

}  // namespace convolume::tools
