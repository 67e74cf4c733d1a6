/* Convolutions for C and for all languages that can call C.
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
 * Arrays of three elements are in the order (Z, Y, X). Tensors are dense, in the axis order (N, C, Z, Y, X) with X
 * fastest. They have the element type of the problem and its alignment. Outputs must not overlap any other tensor.
 * "Forward" is cross-correlation, as in PyTorch. Equal calls give equal bits on any number of threads.
 *
 * Several threads may use a plan at once. No C++ exception leaves these functions: they return a status, and
 * convolume_last_error() returns the message. */
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

/* The status that functions return, as int. The values never change their meaning. */
enum {
  CONVOLUME_OK = 0,
  CONVOLUME_INVALID_ARGUMENT = 1, /* an invalid field, a null pointer, or shapes that differ */
  CONVOLUME_UNSUPPORTED = 2,      /* valid, but not supported by this build or machine */
  CONVOLUME_OVERFLOW = 3,         /* a tensor that does not fit the address space */
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
  CONVOLUME_TANH = 4,
  CONVOLUME_SOFTSIGN = 5 /* x / (1 + |x|) */
};

/* A 3-D convolution. The weights have the shape out_channels x in_channels / groups x kernel. If it is transposed
 * (PyTorch's ConvTranspose3d), they have the shape in_channels x out_channels / groups x kernel. Set the defaults with
 * convolume_conv_problem_init() first. */
typedef struct convolume_conv_problem {
  int64_t data_type; /* CONVOLUME_F32 or CONVOLUME_F64 */
  int64_t batch, in_channels, out_channels, groups;
  int64_t input[3], kernel[3];
  int64_t stride[3], dilation[3]; /* 1 means dense */
  int64_t pad_before[3], pad_after[3];
  int64_t transposed;         /* 0 or 1 */
  int64_t output_padding[3];  /* only if transposed; less than the stride on each axis */
  int64_t x_layout, y_layout; /* CONVOLUME_PLAIN or CONVOLUME_BLOCKED */
  int64_t bias;               /* 1: y = activation(sum + bias); 0: y = activation(sum) */
  int64_t activation;         /* CONVOLUME_NO_ACTIVATION, CONVOLUME_RELU, ... */
  double activation_slope;    /* for negative input of CONVOLUME_LEAKY_RELU; positive */
} convolume_conv_problem;

/* A plan with its threads and memory. */
typedef struct convolume_conv convolume_conv;

/* Returns "major.minor.patch" of the loaded library. Never fails. The string is valid as long as the library is
 * loaded. */
CONVOLUME_C_API const char* convolume_version(void);

/* Returns the message of the last call in this thread that did not return CONVOLUME_OK, or "" if there was none. The
 * string is valid until the next call in this thread. */
CONVOLUME_C_API const char* convolume_last_error(void);

/* Sets the defaults: single precision, plain layouts, 1 for every count, extent, stride and dilation, no padding, no
 * bias, no activation. */
CONVOLUME_C_API int convolume_conv_problem_init(convolume_conv_problem* problem);

/* Plans `problem` for `threads` threads, the caller included. On success the caller must destroy *out. On failure *out
 * is NULL. */
CONVOLUME_C_API int convolume_conv_create(const convolume_conv_problem* problem, int threads, convolume_conv** out);

/* Destroys a plan. NULL is allowed. No call may be running on the plan. */
CONVOLUME_C_API void convolume_conv_destroy(convolume_conv* plan);

/* Writes the extents of y: batch, channels, Z, Y, X. */
CONVOLUME_C_API int convolume_conv_output_shape(const convolume_conv* plan, int64_t shape[5]);

/* Computes y. `bias` holds out_channels values, and must be NULL if and only if the problem has no bias. */
CONVOLUME_C_API int convolume_conv_forward(const convolume_conv* plan, const void* x, const void* w, const void* bias,
                                           void* y);

/* Computes gradients from dy, the gradient of y, and overwrites dx, dw and dbias with them. Each of the three may be
 * NULL and is then not computed. `y` is the result of the forward pass. It may be NULL if the problem has no
 * activation. */
CONVOLUME_C_API int convolume_conv_backward(const convolume_conv* plan, const void* x, const void* y, const void* dy,
                                            const void* w, void* dx, void* dw, void* dbias);

/* Writes the number of elements, or of bytes, that a dense tensor of this shape (batch, channels, Z, Y, X) stores in a
 * layout. `data_type` is CONVOLUME_F32 or CONVOLUME_F64; `layout` is CONVOLUME_PLAIN or CONVOLUME_BLOCKED. A blocked
 * tensor stores blocks of 16 channels (8 in double precision) at each voxel, the last one filled up with zeros. */
CONVOLUME_C_API int convolume_tensor_elements(const int64_t shape[5], int64_t data_type, int64_t layout,
                                              int64_t* elements);
CONVOLUME_C_API int convolume_tensor_bytes(const int64_t shape[5], int64_t data_type, int64_t layout, int64_t* bytes);

/* Converts a dense tensor of this shape to another layout, another element type, or both, on `threads` threads, the
 * caller included. Blocked tensors are the fast way through a chain of convolutions: convert the first input and the
 * last output. Values are rounded to the nearest float. Pad lanes of a blocked target become zero. The arrays must not
 * overlap. Several threads may call this function at once. */
CONVOLUME_C_API int convolume_convert(const int64_t shape[5], const void* source, int64_t source_type,
                                      int64_t source_layout, void* target, int64_t target_type, int64_t target_layout,
                                      int threads);

#ifdef __cplusplus
}
#endif

#endif
