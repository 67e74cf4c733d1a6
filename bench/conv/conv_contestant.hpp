// Contestants that compute the same convolution from the same data, in each direction.
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

/// What a convolution reads, plain.
struct ConvData {
  /// Tensors of the problem's type, undefined.
  explicit ConvData(const ConvProblem& problem);
  /// Normal numbers.
  void fill_normal();
  ConvTensor x, w, dy;
};

class ConvContestant {
 public:
  virtual ~ConvContestant() = default;
  /// One pass. The first one of a direction sets up what the later ones use.
  virtual void execute(Direction direction) = 0;
  /// The last result, into a plain tensor.
  virtual void read(Output output, ConvTensor& plain) = 0;
};

/// A problem with its tensors, workers and memory, and a plan and a task graph for each direction: forward alone is
/// planned as for inference, a gradient alone together with the forward pass, training with both gradients. The layouts
/// are those of the problem.
class PlannedConvolution final : public ConvContestant {
 public:
  struct Options {
    ConvOptions conv{};
    int threads = 1;
    /// Whether a pass by itself begins with the preparation of its weights; training always does.
    bool prepare_forward = true, prepare_backward = true;
    bool tune = false;  ///< measure the choices of plans
    /// What plans are made of instead (ConvOptions::choice).
    std::function<std::string(Direction)> choose{};
  };

  /// Throws Unsupported where no engine serves the problem.
  PlannedConvolution(const ConvProblem& problem, const ConvData& data, const Options& options);

  void execute(Direction direction) override;
  void read(Output output, ConvTensor& plain) override { tensor(output).store(plain); }

  void poison(Output output) { tensor(output).poison(); }
  bool clean_padding(Output output) { return tensor(output).clean_padding(); }
  /// Made when it is first asked for, with its graph.
  const ConvPlan& plan(Direction direction);
  /// Notes tasks from now on (Scheduler::record).
  void record(Trace* trace) { scheduler_.record(trace); }
  std::size_t peak_bytes() const { return memory_.statistics().peak_bytes; }

 private:
  struct Planned {
    Planned(ConvPlan made, const Execution& run, const ConvTensor& w);
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
  std::array<std::unique_ptr<Planned>, direction_count> planned_;  // where they were asked for
};

/// Times passes. A short pass is timed for a millisecond, after one that brings its data into the caches; of the first
/// one nothing is known, and it is timed as it is.
class PassTimer {
 public:
  /// Of one pass.
  double seconds(ConvContestant& contestant, Direction direction);

 private:
  double last_ = 0;  // 0: there was none
};

/// The problem with blocked tensors wherever they are wide enough.
ConvProblem with_layout(ConvProblem problem, Layout layout);
/// "blocked" where any tensor is.
Layout layout_of(const ConvProblem& problem);

/// The reason that an engine gave, out of the story of all engines.
std::string refusal(const Unsupported& error, Engine engine);

}  // namespace convolume::bench
