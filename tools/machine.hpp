// The `machine` subcommand: what is known of this machine, and measuring it.
#pragma once

#include <string>

#include "tools/progress.hpp"

namespace convolume::tools {

/// Returns the row in use as a table, or as one JSON object.
std::string machine_table();
std::string machine_json();

/// Measures this machine and writes the row to `file`. Returns a table that compares it with the row in use.
std::string save_machine(const std::string& file, int threads, ProgressDisplay& display);

}  // namespace convolume::tools
