// Checks the cost model: compares its choice with every engine and with other tiles.
#pragma once

#include "bench/conv/conv_options.hpp"

namespace convolume::bench {

/// Returns the exit status: 1 if a problem could not be measured.
int conv_choices(const ConvBenchOptions& options);

/// Compares the choices of today's model with the seconds that an earlier run wrote (ConvBenchOptions::recorded),
/// without measuring. Whoever fits constants of the model sees what they change. Throws IoError if there is no such
/// report.
int judge_recorded_choices(const ConvBenchOptions& options);

}  // namespace convolume::bench
