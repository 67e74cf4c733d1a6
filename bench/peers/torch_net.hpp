// A net in PyTorch. bench/peers/torch_net.py times each call in a separate process.
#pragma once

#include "bench/common/child_process.hpp"
#include "bench/net/measured_net.hpp"

namespace convolume::bench {

class TorchNet {
 public:
  /// Starts PyTorch with the net. `format` is contiguous or channels_last_3d. Throws Unsupported that says what to
  /// install if Python or PyTorch is missing, and NumericalError if the nets have different numbers of parameters.
  TorchNet(const nets::NetSpec& spec, const std::string& format, int threads);

  struct Call {
    double seconds = 0;
    std::size_t peak_bytes = 0;  ///< peak so far, without the memory of PyTorch itself
  };
  /// Times one call, after 50 ms of rest and one untimed call. Throws Unsupported with PyTorch's reason.
  Call call(Work work);

  const std::string& version() const { return version_; }

 private:
  std::unique_ptr<ChildProcess> process_;
  std::string version_;
};

}  // namespace convolume::bench
