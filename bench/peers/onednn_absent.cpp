#include "bench/peers/onednn_convolution.hpp"

namespace convolume::bench {

std::string onednn_version() { return {}; }

std::unique_ptr<OneDnnConvolution> onednn_convolution(const ConvProblem&, const ConvData&, int) {
  throw Unsupported(
      "bench_conv was built without oneDNN; install it (on Debian: apt-get install libdnnl-dev), then configure and "
      "build again");
}

}  // namespace convolume::bench
