// The text that `convolume info` prints about machine and libraries.
#pragma once

#include <string>

namespace convolume::tools {

std::string machine_text();

}  // namespace convolume::tools
