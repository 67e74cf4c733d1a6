// Where the time of a call of a net goes.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "convolume/conv.hpp"
#include "convolume/scheduler.hpp"

namespace convolume::bench {

/// Seconds, summed over threads: together threads times the wall clock.
struct Phases {
  double transform = 0;  ///< forward FFTs of inputs, weights and gradients
  double product = 0;    ///< what else the tasks of convolutions do: products of spectra, direct sums, packing, biases
  double inverse = 0;    ///< inverse FFTs
  double ops = 0;        ///< all other tasks: other layers, loss, optimizer, patches, checks
  double other = 0;      ///< no task runs: scheduling, waiting for each other, what lies before and behind the graph
};

/// Of one call that took `seconds`, from its trace and its transforms. `convolutions` are names of layers.
Phases phases_of(const std::vector<TraceEvent>& events, const std::set<std::string>& convolutions,
                 const TransformCounts& transforms, double seconds, int threads);

/// The median of each phase, so that they add up only nearly.
Phases median_of(const std::vector<Phases>& calls);

}  // namespace convolume::bench
