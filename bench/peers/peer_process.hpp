// A peer from Python: one of the services in bench/peers, in the virtual environment build/peers.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/common/child_process.hpp"
#include "convolume/error.hpp"

namespace convolume::bench {

/// What a peer says of itself. Texts are empty if they do not apply.
struct PeerFacts {
  std::string version{};
  int threads = 0;               ///< 0: they differ from request to request
  std::string blas{}, onednn{};  ///< with the mapped file, or "linked statically"
};

/// Returns e.g. "2.13.0, 2 threads, BLAS: MKL 2024.2 (linked statically), oneDNN: ...".
std::string to_string(const PeerFacts& facts);
/// Adds the facts to a row of a report.
void add_to(nlohmann::ordered_json& row, const PeerFacts& facts);

/// The process of a peer has ended, so that nothing more can be asked of it.
class PeerEnded : public Unsupported {
 public:
  using Unsupported::Unsupported;
};

/// A service that runs in a process of its own; service.py describes what is sent. One thread at a time.
class PeerProcess {
 public:
  /// Starts a script of bench/peers. Throws Unsupported, with the reason and the remedy, if there is no build/peers, if
  /// a package is missing or has another version than the pinned one, or if the peer cannot be used.
  explicit PeerProcess(const std::string& script, const std::vector<std::string>& arguments = {});

  /// Sends a command and returns the answer. Throws Unsupported with the peer's reason, or PeerEnded.
  nlohmann::ordered_json ask(const std::string& command);

  const PeerFacts& facts() const { return facts_; }
  /// Returns everything that the peer said when it started.
  const nlohmann::ordered_json& start() const { return start_; }

 private:
  nlohmann::ordered_json answer();

  std::string script_;
  ChildProcess process_;
  nlohmann::ordered_json start_;
  PeerFacts facts_;
};

}  // namespace convolume::bench
