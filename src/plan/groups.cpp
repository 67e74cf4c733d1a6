#include "plan/groups.hpp"

namespace convolume::plan {

bool is_depthwise(const ConvProblem& p) noexcept {
  return p.groups > 1 && p.groups == p.in_channels && p.groups == p.out_channels;
}

ConvProblem one_group(ConvProblem p) noexcept {
  p.in_channels /= p.groups;
  p.out_channels /= p.groups;
  p.groups = 1;
  return p;
}

}  // namespace convolume::plan
