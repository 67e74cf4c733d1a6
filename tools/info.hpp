// The texts that `convolume info` prints about the machine, the libraries and the traffic of a net.
#pragma once

#include <string>
#include <vector>

#include "convolume/nets.hpp"

namespace convolume::tools {

std::string machine_text();

/// Returns the memory traffic of a net's convolutions by cache level, as a table or as a JSON object.
std::string blocking_table(const std::vector<nets::LayerBlocking>& layers);
std::string blocking_json(const std::vector<nets::LayerBlocking>& layers);

}  // namespace convolume::tools
