#include "bench/conv/ladder_loops.hpp"

namespace convolume::bench::ladder {

void algorithm_2(const Extents& n, const float* x, const float* w, float* y, float* w_tap, float* x_tap, float* sums) {
  for (long row = 0; row < n.out_rows; ++row) {
    for (long column = 0; column < n.out_columns; ++column) {
      for (long i = 0; i < n.out_channels * n.batch; ++i) sums[i] = 0;
      for (long ky = 0; ky < n.kernel_rows; ++ky) {
        for (long kx = 0; kx < n.kernel_columns; ++kx) {
          for (long i = 0; i < n.out_channels * n.in_channels; ++i) {
            w_tap[i] = w[(i * n.kernel_rows + ky) * n.kernel_columns + kx];
          }
          for (long c = 0; c < n.in_channels; ++c) {
            for (long b = 0; b < n.batch; ++b) {
              x_tap[c * n.batch + b] = x[((b * n.in_channels + c) * n.in_rows + row + ky) * n.in_columns + column + kx];
            }
          }
          for (long k = 0; k < n.out_channels; ++k) {
            for (long b = 0; b < n.batch; ++b) {
              float sum = sums[k * n.batch + b];
              for (long c = 0; c < n.in_channels; ++c) sum += w_tap[k * n.in_channels + c] * x_tap[c * n.batch + b];
              sums[k * n.batch + b] = sum;
            }
          }
        }
      }
      for (long k = 0; k < n.out_channels; ++k) {
        for (long b = 0; b < n.batch; ++b) {
          y[((b * n.out_channels + k) * n.out_rows + row) * n.out_columns + column] = sums[k * n.batch + b];
        }
      }
    }
  }
}

}  // namespace convolume::bench::ladder
