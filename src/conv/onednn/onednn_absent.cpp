#include "conv/onednn/onednn_engine.hpp"

namespace convolume::conv {

Implementation onednn_implementation() {
  return {Engine::onednn,
          "onednn",
          false,
          [](const ConvProblem&, const ConvOptions&, const ChoiceParts*) {
            return std::string("this build has no oneDNN; configure with -DCONVOLUME_ONEDNN=ON");
          },
          nullptr,
          nullptr};
}

}  // namespace convolume::conv
