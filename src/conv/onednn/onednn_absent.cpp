#include "conv/engine.hpp"

namespace convolume::conv {

Answer offer_onednn(const ConvProblem&, const ConvOptions&) {
  return std::string("built without oneDNN; configure with -DCONVOLUME_ONEDNN=ON");
}

}  // namespace convolume::conv
