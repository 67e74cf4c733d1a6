// oneDNN's convolutions, for comparison. Used only if requested by name, and never chosen by `automatic`.
#pragma once

#include "conv/engine.hpp"

namespace convolume::conv {

Implementation onednn_implementation();

}  // namespace convolume::conv
