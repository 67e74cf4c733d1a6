// PyTorch's convolution as a competitor. bench/peers/torch_conv.py computes and times it in a separate process.
#pragma once

#include <array>
#include <string>

#include "bench/common/temporary_file.hpp"
#include "bench/conv/conv_competitor.hpp"
#include "bench/peers/peer_process.hpp"

namespace convolume::bench {

/// The memory formats in which PyTorch takes part. Opaque means oneDNN's own layout with weights that are already
/// packed; PyTorch has it for inference only.
inline constexpr std::array torch_formats{"contiguous", "channels_last_3d", "opaque"};

/// A problem in one memory format. Several may share a process, which then holds the last one of each format.
class TorchConvolution final : public ConvCompetitor {
 public:
  /// `process` runs torch_conv.py and outlives this object. Throws Unsupported if PyTorch cannot compute the problem in
  /// this format.
  TorchConvolution(PeerProcess& process, const ConvProblem& problem, const ConvData& data, const std::string& format,
                   int threads);

  /// Returns whether PyTorch computes the direction: fwd, and, except for opaque, training.
  bool has(Direction direction) const override;
  void execute(Direction direction) override { sample(direction); }
  double sample(Direction direction) override;
  void read(Output output, ConvTensor& plain) override;

  const std::string& format() const { return format_; }

 private:
  PeerProcess& process_;
  std::string format_;
};

}  // namespace convolume::bench
