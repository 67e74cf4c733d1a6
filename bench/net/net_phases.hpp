// How the time of a call of a net is divided into phases.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "convolume/conv.hpp"
#include "convolume/scheduler.hpp"

namespace convolume::bench {

/// Seconds, summed over threads. All phases together are the number of threads times the wall-clock time.
struct Phases {
  double transform = 0;  ///< forward FFTs of inputs, weights and gradients
  double product = 0;    ///< all other work of convolution tasks: products of spectra, direct sums, packing, biases
  double inverse = 0;    ///< inverse FFTs
  double ops = 0;        ///< all other tasks: other layers, loss, optimizer, patches, checks
  double other = 0;      ///< no task runs: scheduling, waiting, and code before and after the graph
};

/// Returns the phases of one call that took `seconds`. `convolutions` holds the names of the convolution layers.
Phases phases_of(const std::vector<TraceEvent>& events, const std::set<std::string>& convolutions,
                 const TransformCounts& transforms, double seconds, int threads);

/// Returns the median of each phase. The medians add up only approximately.
Phases median_of(const std::vector<Phases>& calls);

}  // namespace convolume::bench
