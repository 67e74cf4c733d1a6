// A net in PyTorch, timed call by call by bench/torch_net.py in a process of its own.
#pragma once

#include "bench/common/child_process.hpp"
#include "bench/net/measured_net.hpp"

namespace convolume::bench {

class TorchNet {
 public:
  /// `format` is contiguous or channels_last_3d. Throws Unsupported where Python or PyTorch is missing, with what to
  /// do, and NumericalError where it did not become the same net.
  TorchNet(const nets::NetSpec& spec, const std::string& format, int threads);

  struct Call {
    double seconds = 0;
    std::size_t peak_bytes = 0;  ///< so far, beyond what PyTorch itself needs
  };
  /// One timed call, behind 50 ms of rest and a call that is not timed. Throws Unsupported with PyTorch's reason.
  Call call(Work work);

  const std::string& version() const { return version_; }

 private:
  std::unique_ptr<ChildProcess> process_;
  std::string version_;
};

}  // namespace convolume::bench
