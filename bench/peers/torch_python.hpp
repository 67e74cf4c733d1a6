// Who runs the scripts that time PyTorch.
#pragma once

namespace convolume::bench {

/// Where Debian puts python3-torch. Python elsewhere does not find it.
constexpr const char* torch_python = "/usr/bin/python3";

}  // namespace convolume::bench
