/* The convolution of Figure 6 of paper 004 (Tavarageri et al., PolyScientist) as C. */
#ifndef CONVOLUME_BENCH_BLOCKED_LOOPS_H
#define CONVOLUME_BENCH_BLOCKED_LOOPS_H

#ifdef __cplusplus
extern "C" {
#endif

enum { blocked_loops_block = 16 }; /* channels of a tile: GEMM_BLOCK of the paper */

/* Extents of one sample. The input has its padding. */
struct BlockedLoops {
  int in_tiles, out_tiles; /* blocks of channels */
  int in_h, in_w, out_h, out_w;
  int kernel_h, kernel_w, stride_h, stride_w;
};

/* Adds the convolution of one sample to `output`. Layouts: input [tile][y][x][16], output the same, filter
   [output tile][input tile][ky][kx][input channel][output channel]. */
void blocked_loops(const struct BlockedLoops* extents, const float* input, const float* filter, float* output);

#ifdef __cplusplus
}
#endif

#endif
