// A net in another library: PyTorch, onnxruntime or OpenVINO. A separate process times each call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/net/measured_net.hpp"
#include "bench/peers/peer_process.hpp"

namespace convolume::bench {

/// A library in one of its settings.
struct NetPeer {
  std::string name;     ///< torch, onnxruntime or openvino
  std::string setting;  ///< memory format of PyTorch, or the precision of the others
  /// Returns e.g. "PyTorch, contiguous".
  std::string title() const;
  /// Returns whether it computes what we compute; bfloat16 is less work.
  bool same_precision() const { return setting != "bfloat16"; }
};

/// Returns the settings in which a library takes part.
std::vector<NetPeer> settings_of(const std::string& name);
/// Returns whether a library trains; the others infer only.
bool trains(const std::string& name);

class PeerNet {
 public:
  /// Starts the library with the net. If `any_blas` is set, PyTorch may use a BLAS that holds it back. Throws the
  /// exceptions of PeerProcess, and NumericalError if the nets have different numbers of parameters.
  PeerNet(const NetPeer& peer, const nets::NetSpec& spec, int threads, bool any_blas);

  struct Call {
    double seconds = 0;
    std::size_t peak_bytes = 0;  ///< peak so far, without the memory of the library itself
  };
  /// Times one call, after 50 ms of rest and one untimed call. Throws Unsupported with the library's reason.
  Call call(Work work);

  const PeerFacts& facts() const { return process_->facts(); }

 private:
  std::unique_ptr<PeerProcess> process_;
};

}  // namespace convolume::bench
