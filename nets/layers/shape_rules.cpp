#include "nets/layers/shape_rules.hpp"

#include <algorithm>

namespace convolume::nets {
namespace {

index_t floor_div(index_t a, index_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

}  // namespace

AxisView windowed(AxisView a, index_t span, index_t stride, index_t pad) {
  const double s = static_cast<double>(span), p = static_cast<double>(pad);
  a.origin += ((s - 1) / 2 - p) * a.jump;
  a.low -= p * a.jump;
  a.high += (s - 1 - p) * a.jump;
  a.jump *= static_cast<double>(stride);
  return a;
}

AxisView transposed(AxisView a, index_t span, index_t stride, index_t pad) {
  const double s = static_cast<double>(span), p = static_cast<double>(pad);
  a.jump /= static_cast<double>(stride);
  a.origin -= ((s - 1) / 2 - p) * a.jump;
  a.low -= (s - 1 - p) * a.jump;
  a.high += p * a.jump;
  return a;
}

void set_padded(NodeShape& y, int axis, index_t before, index_t behind) {
  y.padded_before[axis] = std::clamp<index_t>(before, 0, y.extent[axis]);
  y.padded_behind[axis] = std::clamp<index_t>(behind, 0, y.extent[axis]);
}

void pad_window(NodeShape& y, const NodeShape& x, int axis, index_t span, index_t stride, index_t pad) {
  const index_t touched = x.padded_before[axis] + pad;
  const index_t last_clean = floor_div(x.extent[axis] - x.padded_behind[axis] + pad - span, stride);
  set_padded(y, axis, (touched + stride - 1) / stride, y.extent[axis] - 1 - last_clean);
}

void pad_transposed(NodeShape& y, const NodeShape& x, int axis, index_t span, index_t stride, index_t pad) {
  set_padded(y, axis, (x.padded_before[axis] - 1) * stride + span - pad,
             y.extent[axis] - ((x.extent[axis] - x.padded_behind[axis]) * stride - pad));
}

}  // namespace convolume::nets
