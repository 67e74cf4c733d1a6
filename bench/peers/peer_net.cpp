#include "bench/peers/peer_net.hpp"

#include <fmt/format.h>

#include "bench/common/temporary_file.hpp"
#include "convolume/error.hpp"
#include "core/files.hpp"
#include "nets/spec/net_json.hpp"

namespace convolume::bench {

std::string NetPeer::title() const {
  const char* const library = name == "torch" ? "PyTorch" : name == "openvino" ? "OpenVINO" : "onnxruntime";
  return fmt::format("{}, {}", library, setting);
}

std::vector<NetPeer> settings_of(const std::string& name) {
  if (name == "torch") return {{name, "contiguous"}, {name, "channels_last_3d"}};
  if (name == "openvino") return {{name, "float32"}, {name, "bfloat16"}};
  return {{name, "float32"}};  // onnxruntime has no bfloat16 convolutions on CPUs
}

bool trains(const std::string& name) { return name == "torch"; }

PeerNet::PeerNet(const NetPeer& peer, const nets::NetSpec& spec, int threads, bool any_blas) {
  const TemporaryFile description;
  write_file_atomically(description.path(), nets::to_json(spec));
  std::vector<std::string> arguments{"--net", description.path().string(), "--threads", fmt::to_string(threads)};
  if (peer.name == "torch") {
    arguments.insert(arguments.end(), {"--format", peer.setting});
    if (any_blas) arguments.emplace_back("--any-blas");
  } else {
    arguments.insert(arguments.end(), {"--runtime", peer.name, "--precision", peer.setting});
  }
  // The process sends its facts after it has read the description.
  process_ = std::make_unique<PeerProcess>(peer.name == "torch" ? "torch_net.py" : "onnx_net.py", arguments);
  SlabResource memory;
  const index_t ours = nets::Parameters(spec, false, 0, &memory).count(), theirs = process_->start().at("parameters");
  if (ours == theirs) return;
  throw NumericalError(
      fmt::format("{} has {} parameters, but the net in {} has {}", spec.name, ours, peer.title(), theirs));
}

PeerNet::Call PeerNet::call(Work work) {
  const auto answer = process_->ask(name_of(work));
  return {answer.at("seconds"), answer.at("peak_bytes")};
}

}  // namespace convolume::bench
