// The competitors in a contest of nets: nets of this library, and of others.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/net/measured_net.hpp"
#include "bench/net/net_phases.hpp"
#include "bench/net/net_side_by_side.hpp"
#include "bench/peers/peer_net.hpp"

namespace convolume::bench {

/// A net with one kind of work, which is called once per round.
class NetCompetitor {
 public:
  explicit NetCompetitor(Work work) : work_(work) {}
  virtual ~NetCompetitor() = default;
  NetCompetitor(const NetCompetitor&) = delete;
  NetCompetitor& operator=(const NetCompetitor&) = delete;

  /// Makes the net and calls it, so that all memory is allocated.
  virtual void prepare() = 0;
  /// Returns the seconds of one call.
  virtual double sample() = 0;
  /// Returns the name for messages.
  virtual std::string name() const = 0;
  /// Returns how much the resident memory of the process grew, up to its peak, while the net was made and called.
  virtual std::size_t resident_bytes() const = 0;

  Work work() const { return work_; }
  double median() const;
  double low() const;
  double high() const;
  std::vector<double> seconds{};  ///< one value per round

 private:
  Work work_;
};

/// The settings of one of our competitors.
struct Variant {
  Engine engine;
  fft::Backend backend;
  bool cache;
  nets::MemoryMode memory;
  std::optional<bool> hardened{};  ///< without a value, the environment decides
  std::string limit = "usual";     ///< of the memory of training: usual, all (keeps all spectra), or MiB at the peak
  friend bool operator==(const Variant&, const Variant&) = default;
};
std::string to_string(const Variant& variant);
const char* checks_of(const Variant& variant);  ///< ", hardened" or ", plain"; empty if the environment decides

class OurNet : public NetCompetitor {
 public:
  /// If `rest` is set, each timed call follows 50 ms of rest and one untimed call. This is needed beside competitors
  /// whose threads stay busy for a while after each call.
  OurNet(Work work, const Variant& variant, bool rest, const NetContestOptions& options, const nets::NetSpec& spec)
      : NetCompetitor(work), variant_(variant), rest_(rest), o_(options), spec_(spec) {}

  void prepare() override;
  double sample() override;
  std::string name() const override;
  /// Returns the variant as text, with the engine if several engines compete.
  std::string label() const;
  std::size_t resident_bytes() const override { return resident_bytes_; }
  /// Returns the peak of the allocated bytes; see MeasuredNet.
  std::size_t peak_bytes() const { return net_->peak_bytes(); }

  const Variant& variant() const { return variant_; }
  const MeasuredNet& net() const { return *net_; }
  /// Returns the transforms of one call; all calls are equal.
  const TransformCounts& transforms() const { return transforms_; }
  Phases phases() const { return median_of(phases_); }
  const std::vector<double>& losses() const { return losses_; }  ///< one value per round
  /// Returns the tasks of the last timed call.
  std::vector<TraceEvent> last_call() const { return trace_->events(); }

 private:
  Variant variant_;
  bool rest_;
  const NetContestOptions& o_;
  const nets::NetSpec& spec_;
  std::unique_ptr<Trace> trace_ = std::make_unique<Trace>();
  std::unique_ptr<MeasuredNet> net_;
  std::size_t resident_bytes_ = 0;
  TransformCounts transforms_{};
  std::vector<Phases> phases_;
  std::vector<double> losses_;
};

/// Another library in one of its settings. The two kinds of work of a setting share a process.
class PeerCompetitor : public NetCompetitor {
 public:
  PeerCompetitor(Work work, NetPeer peer, std::shared_ptr<PeerNet> net)
      : NetCompetitor(work), peer_(std::move(peer)), net_(std::move(net)) {}

  void prepare() override { sample(); }
  double sample() override;
  std::string name() const override { return peer_.title(); }
  std::size_t resident_bytes() const override { return resident_bytes_.value_or(0); }
  const NetPeer& peer() const { return peer_; }
  const PeerFacts& facts() const { return net_->facts(); }

 private:
  NetPeer peer_;
  std::shared_ptr<PeerNet> net_;
  std::optional<std::size_t> resident_bytes_{};
};

const char* name_of_cache(bool cache);
const std::string& name_of(fft::Backend backend);

}  // namespace convolume::bench
