// Who takes part in a contest of nets: ours, and PyTorch's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/net/measured_net.hpp"
#include "bench/net/net_phases.hpp"
#include "bench/net/net_side_by_side.hpp"
#include "bench/peers/torch_net.hpp"

namespace convolume::bench {

/// One net at one kind of work, called round after round.
class NetEntrant {
 public:
  explicit NetEntrant(Work work) : work_(work) {}
  virtual ~NetEntrant() = default;
  NetEntrant(const NetEntrant&) = delete;
  NetEntrant& operator=(const NetEntrant&) = delete;

  /// Makes the net and calls it, so that all memory is taken.
  virtual void prepare() = 0;
  /// Seconds of one call.
  virtual double sample() = 0;
  /// For messages.
  virtual std::string name() const = 0;
  /// Growth of the process's resident memory up to its peak while the net was made and called.
  virtual std::size_t resident_bytes() const = 0;

  Work work() const { return work_; }
  double median() const;
  double low() const;
  double high() const;
  std::vector<double> seconds{};  ///< of the rounds

 private:
  Work work_;
};

/// How one of ours works.
struct Way {
  Engine engine;
  fft::Backend backend;
  bool cache;
  nets::MemoryMode memory;
  std::optional<bool> hardened{};  ///< without a value as the environment says
  friend bool operator==(const Way&, const Way&) = default;
};
std::string to_string(const Way& way);
const char* checks_of(const Way& way);  ///< ", hardened", or ", plain"; empty where the environment says

class OurNet : public NetEntrant {
 public:
  /// With `rest`, before each timed call lie 50 ms of rest and a call that is not timed. That is for entrants that keep
  /// threads of their own busy for a while behind each call.
  OurNet(Work work, const Way& way, bool rest, const NetContestOptions& options, const nets::NetSpec& spec)
      : NetEntrant(work), way_(way), rest_(rest), o_(options), spec_(spec) {}

  void prepare() override;
  double sample() override;
  std::string name() const override;
  std::size_t resident_bytes() const override { return resident_bytes_; }
  /// What was asked for; see MeasuredNet.
  std::size_t peak_bytes() const { return net_->peak_bytes(); }

  const Way& way() const { return way_; }
  const MeasuredNet& net() const { return *net_; }
  /// Of one call; all are alike.
  const TransformCounts& transforms() const { return transforms_; }
  Phases phases() const { return median_of(phases_); }
  const std::vector<double>& losses() const { return losses_; }  ///< of the rounds
  /// What ran in the last timed call.
  std::vector<TraceEvent> last_call() const { return trace_->events(); }

 private:
  Way way_;
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

/// PyTorch in one memory format. Both kinds of work of a format share a process.
class TorchEntrant : public NetEntrant {
 public:
  TorchEntrant(Work work, std::string format, std::shared_ptr<TorchNet> net)
      : NetEntrant(work), format_(std::move(format)), net_(std::move(net)) {}

  void prepare() override { sample(); }
  double sample() override;
  std::string name() const override { return "PyTorch, " + format_; }
  std::size_t resident_bytes() const override { return resident_bytes_.value_or(0); }
  const std::string& format() const { return format_; }

 private:
  std::string format_;
  std::shared_ptr<TorchNet> net_;
  std::optional<std::size_t> resident_bytes_{};
};

const char* name_of_cache(bool cache);
const std::string& name_of(fft::Backend backend);

}  // namespace convolume::bench
