// The libraries that bench_fft --side-by-side compares beside FFTW: ducc0 and MKL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/common/contest.hpp"
#include "bench/fft/fft_options.hpp"
#include "bench/peers/mkl_fft.hpp"
#include "bench/peers/peer_process.hpp"

namespace convolume::bench {

/// ducc0 and MKL, as far as the options name them and they are installed.
class FftPeers {
 public:
  /// Starts or loads them. MKL's results are compared with ours for a small cube; throws NumericalError if they differ.
  explicit FftPeers(const FftOptions& options);

  bool has_ducc0() const { return ducc0_ != nullptr; }
  bool has_mkl() const { return mkl_ != nullptr; }
  const MklFft& mkl() const { return *mkl_; }
  /// Makes ducc0's arrays for a cube of edge n and returns the competitor. Only the last one made may be called.
  OtherCompetitor ducc0(fft::Kind kind, DataType type, index_t n);
  /// Returns the seconds that a call of ducc0 from Python takes without any transform, measured with the last cube.
  double ducc0_call() const { return ducc0_call_; }

  /// Returns, for each peer that was left out, its name and the reason.
  const std::vector<std::pair<std::string, std::string>>& left_out() const { return left_out_; }
  /// Adds the versions of the peers and the reasons of those that were left out.
  void add_to(nlohmann::ordered_json& report) const;

 private:
  std::unique_ptr<PeerProcess> ducc0_;
  std::unique_ptr<MklFft> mkl_;
  double ducc0_call_ = 0;
  std::vector<std::pair<std::string, std::string>> left_out_;
};

}  // namespace convolume::bench
