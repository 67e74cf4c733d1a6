/* Convolutions from C, and from every language that calls C.
 *
 * A problem is planned once and executed many times:
 *
 *   convolume_conv_problem problem;
 *   convolume_conv_problem_init(&problem);
 *   problem.in_channels = problem.out_channels = 32;
 *   for (int axis = 0; axis < 3; ++axis) problem.input[axis] = 48, problem.kernel[axis] = 5;
 *   convolume_conv *plan = NULL;
 *   if (convolume_conv_create(&problem, 2, &plan) != CONVOLUME_OK) { puts(convolume_last_error()); return 1; }
 *   convolume_conv_forward(plan, x, w, NULL, y);
 *   convolume_conv_destroy(plan);
 *
 * Arrays of three run along (Z, Y, X). Tensors are dense, in axis order (N, C, Z, Y, X) with X fastest, of the element
 * type of the problem, aligned as that type is; outputs must not overlap anything else. "Forward" is cross-correlation,
 * as in PyTorch. Equal calls give equal bits on any number of threads.
 *
 * A plan may be used by several threads at once. No C++ exception leaves these functions: they return a status, and
 * convolume_last_error() tells the story. */
#ifndef CONVOLUME_H
#define CONVOLUME_H

#include <stdint.h>

#if defined(__GNUC__)
#define CONVOLUME_C_API __attribute__((visibility("default")))
#else
#define CONVOLUME_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a function returns, as int. Values never change their meaning. */
enum {
  CONVOLUME_OK = 0,
  CONVOLUME_INVALID_ARGUMENT = 1, /* a field or pointer that makes no sense; shapes that do not agree */
  CONVOLUME_UNSUPPORTED = 2,      /* makes sense, but this build or machine does not serve it */
  CONVOLUME_OVERFLOW = 3,         /* a tensor that would not fit the address space */
  CONVOLUME_OUT_OF_MEMORY = 4,
  CONVOLUME_INTERNAL_ERROR = 5
};

enum { CONVOLUME_F32 = 0, CONVOLUME_F64 = 1 };

enum { CONVOLUME_PLAIN = 0, CONVOLUME_BLOCKED = 1 };

enum {
  CONVOLUME_NO_ACTIVATION = 0,
  CONVOLUME_RELU = 1,
  CONVOLUME_LEAKY_RELU = 2,
  CONVOLUME_SIGMOID = 3,
  CONVOLUME_TANH = 4
};

/* A 3-D convolution with weights out_channels x in_channels / groups x kernel, or, transposed (PyTorch's
 * ConvTranspose3d), in_channels x out_channels / groups x kernel. Start from convolume_conv_problem_init(). */
typedef struct convolume_conv_problem {
  int64_t data_type; /* CONVOLUME_F32 or CONVOLUME_F64 */
  int64_t batch, in_channels, out_channels, groups;
  int64_t input[3], kernel[3];
  int64_t stride[3], dilation[3]; /* 1 is dense */
  int64_t pad_before[3], pad_after[3];
  int64_t transposed;         /* 0 or 1 */
  int64_t output_padding[3];  /* transposed only; below the stride on each axis */
  int64_t x_layout, y_layout; /* CONVOLUME_PLAIN or CONVOLUME_BLOCKED */
  int64_t bias;               /* 1: y = activation(sum + bias), 0: without bias */
  int64_t activation;         /* CONVOLUME_NO_ACTIVATION, CONVOLUME_RELU, ... */
  double activation_slope;    /* of CONVOLUME_LEAKY_RELU for negative input; positive */
} convolume_conv_problem;

/* A plan with its threads and memory. */
typedef struct convolume_conv convolume_conv;

/* "major.minor.patch" of the loaded library. Never fails; the string lives as long as the library. */
CONVOLUME_C_API const char* convolume_version(void);

/* What went wrong in the last call of this thread that did not return CONVOLUME_OK; "" before the first. Valid until
 * the next call of this thread. */
CONVOLUME_C_API const char* convolume_last_error(void);

/* Single precision, plain, every count, extent, stride and dilation 1, no padding, no bias, no activation. */
CONVOLUME_C_API int convolume_conv_problem_init(convolume_conv_problem* problem);

/* Plans `problem` for `threads` threads, the caller counted. On success *out must be destroyed by the caller; otherwise
 * it is NULL. */
CONVOLUME_C_API int convolume_conv_create(const convolume_conv_problem* problem, int threads, convolume_conv** out);

/* NULL is allowed. No call may be running on the plan. */
CONVOLUME_C_API void convolume_conv_destroy(convolume_conv* plan);

/* The extents of y: batch, channels, Z, Y, X. */
CONVOLUME_C_API int convolume_conv_output_shape(const convolume_conv* plan, int64_t shape[5]);

/* Writes y. `bias` holds out_channels values and is NULL exactly where the problem has none. */
CONVOLUME_C_API int convolume_conv_forward(const convolume_conv* plan, const void* x, const void* w, const void* bias,
                                           void* y);

/* Writes those of dx, dw and dbias that are not NULL, overwriting what they hold, from dy, the gradient of y. `y` is
 * what forward wrote; it is needed where the problem has an activation and may be NULL elsewhere. */
CONVOLUME_C_API int convolume_conv_backward(const convolume_conv* plan, const void* x, const void* y, const void* dy,
                                            const void* w, void* dx, void* dw, void* dbias);

#ifdef __cplusplus
}
#endif

#endif
