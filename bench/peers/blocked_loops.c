#include "bench/peers/blocked_loops.h"

#include <stddef.h>

enum { block = blocked_loops_block };

void blocked_loops(const struct BlockedLoops* n, const float* restrict input, const float* restrict filter,
                   float* restrict output) {
  for (int ofm_tile = 0; ofm_tile < n->out_tiles; ++ofm_tile) {
    for (int ifm_tile = 0; ifm_tile < n->in_tiles; ++ifm_tile) {
      for (int oj = 0; oj < n->out_h; ++oj) {
        const int ij = oj * n->stride_h;
        float* const row = output + ((size_t)ofm_tile * n->out_h + oj) * n->out_w * block;
        for (int kj = 0; kj < n->kernel_h; ++kj) {
          for (int ki = 0; ki < n->kernel_w; ++ki) {
            const size_t tap = (((size_t)ofm_tile * n->in_tiles + ifm_tile) * n->kernel_h + kj) * n->kernel_w + ki;
            const float* const matrix = filter + tap * block * block;
            const float* const from = input + (((size_t)ifm_tile * n->in_h + ij + kj) * n->in_w + ki) * block;
            /* The paper's microkernel computes what follows: a product of matrices. */
            for (int oi = 0; oi < n->out_w; ++oi) {
              const int ii = oi * n->stride_w;
              for (int ofm = 0; ofm < block; ++ofm) {
                for (int ifm = 0; ifm < block; ++ifm) {
                  row[(size_t)oi * block + ofm] += matrix[ifm * block + ofm] * from[(size_t)ii * block + ifm];
                }
              }
            }
          }
        }
      }
    }
  }
}
