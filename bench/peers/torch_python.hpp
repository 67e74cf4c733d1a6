// The Python interpreter for the scripts that time PyTorch.
#pragma once

namespace convolume::bench {

/// Debian installs python3-torch for this interpreter; others do not find it.
constexpr const char* torch_python = "/usr/bin/python3";

}  // namespace convolume::bench
