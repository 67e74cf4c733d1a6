// Competitors that compute the same convolution from the same data, in each direction.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/conv/conv_options.hpp"
#include "bench/conv/conv_tensor.hpp"
#include "convolume/memory.hpp"

namespace convolume::bench {

enum class Output { y, dx, dw };
const char* name_of(Output output) noexcept;
Shape5 shape_of(const ConvProblem& problem, Output output);
std::vector<Output> outputs_of(Direction direction);

/// The inputs of a convolution, in plain layout.
struct ConvData {
  /// Allocates tensors of the problem's type, with undefined values.
  explicit ConvData(const ConvProblem& problem);
  /// Fills all tensors with normal random numbers.
  void fill_normal();
  ConvTensor x, w, dy;
};

class ConvCompetitor {
 public:
  virtual ~ConvCompetitor() = default;
  /// Executes one pass. The first pass of a direction sets up what later passes use.
  virtual void execute(Direction direction) = 0;
  /// Returns whether it computes this direction at all.
  virtual bool has(Direction) const { return true; }
  /// Returns the seconds of one pass, after 50 ms of rest and untimed passes for at least a millisecond.
  virtual double sample(Direction direction);
  /// Copies the last result to a plain tensor.
  virtual void read(Output output, ConvTensor& plain) = 0;
};

/// A problem with its tensors, threads and memory, and a plan and a task graph for each direction. The plan for forward
/// is made as for inference, the plan for a single gradient together with the forward pass, and the plan for training
/// with both gradients. The layouts are those of the problem.
class PlannedConvolution final : public ConvCompetitor {
 public:
  struct Options {
    ConvOptions conv{};
    int threads = 1;
    /// Whether the pass includes the preparation of its weights. Training always includes it.
    bool prepare_forward = true, prepare_backward = true;
    bool tune = false;  ///< choose by measurement (ConvPlan::tune)
    /// Returns the choice for a direction (ConvOptions::choice), instead of the cost model.
    std::function<std::string(Direction)> choose{};
  };

  /// Throws Unsupported if no engine serves the problem.
  PlannedConvolution(const ConvProblem& problem, const ConvData& data, const Options& options);

  void execute(Direction direction) override;
  void read(Output output, ConvTensor& plain) override { tensor(output).store(plain); }

  void poison(Output output) { tensor(output).poison(); }
  bool clean_padding(Output output) { return tensor(output).clean_padding(); }
  /// Returns the plan of a direction. The first call makes the plan and its graph.
  const ConvPlan& plan(Direction direction);
  /// Records tasks from now on (Scheduler::record).
  void record(Trace* trace) { scheduler_.record(trace); }
  std::size_t peak_bytes() const { return memory_.statistics().peak_bytes; }

 private:
  struct Planned {
    Planned(ConvPlan made, std::pmr::memory_resource* memory);
    ConvPlan plan;
    PreparedWeights prepared;
    Spectra x_hat, dy_hat;
    TaskGraph graph;
  };

  Planned& planned(Direction direction);
  ConvTensor tensor_like(const ConvTensor& plain, Layout layout);
  ConvTensor& tensor(Output output);
  void build(Direction direction, Planned& one);

  ConvProblem problem_;
  Options options_;
  SlabResource memory_;
  Scheduler scheduler_;
  Execution run_;
  ConvTensor x_, w_, dy_, y_, dx_, dw_;
  std::array<std::unique_ptr<Planned>, direction_count> planned_;  // made when first requested
};

/// Times passes. A short pass is repeated for a millisecond, after one untimed pass that brings its data into the
/// caches. The first pass is timed once, because its length is not yet known.
class PassTimer {
 public:
  /// Returns the seconds of one pass.
  double seconds(ConvCompetitor& competitor, Direction direction);

 private:
  double last_ = 0;  // 0: no pass has been timed
};

/// Returns the problem with blocked tensors, except those with too few channels.
ConvProblem with_layout(ConvProblem problem, Layout layout);
/// Returns blocked if any tensor of the problem is blocked.
Layout layout_of(const ConvProblem& problem);

/// Returns the reason of one engine from the report about all engines.
std::string refusal(const Unsupported& error, Engine engine);

}  // namespace convolume::bench
