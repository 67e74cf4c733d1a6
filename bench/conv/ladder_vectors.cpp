#include "bench/conv/ladder_loops.hpp"

namespace convolume::bench::ladder {
namespace {

/// Adds w * x to y, for all samples of a voxel: matrices of out_channels x in_channels and in_channels x batch.
void add_product(const Extents& n, const float* w, const float* x, float* __restrict y) {
  for (long k = 0; k < n.out_channels; ++k) {
    float* const to = y + k * n.batch;
    for (long c = 0; c < n.in_channels; ++c) {
      const float weight = w[k * n.in_channels + c];
      const float* const from = x + c * n.batch;
      for (long b = 0; b < n.batch; ++b) to[b] += weight * from[b];
    }
  }
}

void clear(float* y, long elements) {
  for (long i = 0; i < elements; ++i) y[i] = 0;
}

const float* voxel(const Extents& n, const float* x, long row, long column) {
  return x + (row * n.in_columns + column) * n.in_channels * n.batch;
}

const float* tap(const Extents& n, const float* w, long ky, long kx) {
  return w + (ky * n.kernel_columns + kx) * n.out_channels * n.in_channels;
}

/// Output channels that share a load of x.
constexpr long rows_of_w = 4;

/// Adds the products of a tap for `columns` columns of x and y that lie side by side.
void add_products(const Extents& n, const float* w, const float* x, float* __restrict y, long columns) {
  for (long k = 0; k < n.out_channels; k += rows_of_w) {
    for (long column = 0; column < columns; ++column) {
      float* const to = y + (column * n.out_channels + k) * n.batch;
      const float* const from = x + column * n.in_channels * n.batch;
      for (long c = 0; c < n.in_channels; ++c) {
        const float w0 = w[k * n.in_channels + c], w1 = w[(k + 1) * n.in_channels + c],
                    w2 = w[(k + 2) * n.in_channels + c], w3 = w[(k + 3) * n.in_channels + c];
        for (long b = 0; b < n.batch; ++b) {
          const float value = from[c * n.batch + b];
          to[b] += w0 * value;
          to[n.batch + b] += w1 * value;
          to[2 * n.batch + b] += w2 * value;
          to[3 * n.batch + b] += w3 * value;
        }
      }
    }
  }
}

}  // namespace

void over_samples(const Extents& n, const float* x, const float* w, float* y) {
  for (long row = 0; row < n.out_rows; ++row) {
    for (long column = 0; column < n.out_columns; ++column) {
      float* const sums = y + (row * n.out_columns + column) * n.out_channels * n.batch;
      clear(sums, n.out_channels * n.batch);
      for (long ky = 0; ky < n.kernel_rows; ++ky) {
        for (long kx = 0; kx < n.kernel_columns; ++kx) {
          add_product(n, tap(n, w, ky, kx), voxel(n, x, row + ky, column + kx), sums);
        }
      }
    }
  }
}

void in_blocks(const Extents& n, long block, const float* x, const float* w, float* y) {
  for (long row = 0; row < n.out_rows; ++row) {
    for (long column = 0; column < n.out_columns; column += block) {
      const long columns = column + block < n.out_columns ? block : n.out_columns - column;
      float* const sums = y + (row * n.out_columns + column) * n.out_channels * n.batch;
      clear(sums, columns * n.out_channels * n.batch);
      for (long ky = 0; ky < n.kernel_rows; ++ky) {
        for (long kx = 0; kx < n.kernel_columns; ++kx) {
          add_products(n, tap(n, w, ky, kx), voxel(n, x, row + ky, column + kx), sums, columns);
        }
      }
    }
  }
}

}  // namespace convolume::bench::ladder
