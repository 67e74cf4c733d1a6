#include "bench/net/net_phases.hpp"

#include <algorithm>

#include "bench/common/contest.hpp"

namespace convolume::bench {

Phases phases_of(const std::vector<TraceEvent>& events, const std::set<std::string>& convolutions,
                 const TransformCounts& transforms, double seconds, int threads) {
  double in_convolutions = 0, in_others = 0;
  for (const TraceEvent& event : events) {
    (convolutions.contains(event.layer) ? in_convolutions : in_others) +=
        1e-9 * static_cast<double>(event.end - event.begin);
  }
  return {.transform = transforms.seconds - transforms.inverse_seconds,
          .product = std::max(0.0, in_convolutions - transforms.seconds),
          .inverse = transforms.inverse_seconds,
          .ops = in_others,
          .other = std::max(0.0, threads * seconds - in_convolutions - in_others)};
}

Phases median_of(const std::vector<Phases>& calls) {
  Phases result;
  for (double Phases::*const phase :
       {&Phases::transform, &Phases::product, &Phases::inverse, &Phases::ops, &Phases::other}) {
    std::vector<double> values;
    for (const Phases& call : calls) values.push_back(call.*phase);
    result.*phase = quantile(std::move(values), 0.5);
  }
  return result;
}

}  // namespace convolume::bench
