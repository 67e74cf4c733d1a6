/* Tests the C interface from C: known numbers forward and backward, and the errors for invalid calls. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "convolume/convolume.h"

static int failures = 0;

static void check(int condition, const char* what, int line) {
  if (condition) return;
  ++failures;
  printf("line %d: %s; last error: %s\n", line, what, convolume_last_error());
}
#define CHECK(condition) check((condition), #condition, __LINE__)

static int close_to(double found, double expected) { return fabs(found - expected) < 1e-4; }

/* Returns the problem of a 3 x 3 x 3 input and a 2 x 2 x 2 kernel. */
static convolume_conv_problem cube(void) {
  convolume_conv_problem problem;
  CHECK(convolume_conv_problem_init(&problem) == CONVOLUME_OK);
  for (int axis = 0; axis < 3; ++axis) {
    problem.input[axis] = 3;
    problem.kernel[axis] = 2;
  }
  return problem;
}

/* Returns the sum of the 8 voxels of x = 0 .. 26 under the kernel at output i. */
static double window(int i) {
  const int z = i / 4, y = i / 2 % 2, x = i % 2;
  return 8.0 * (9 * z + 3 * y + x) + 4.0 * (9 + 3 + 1);
}

static void forward_and_backward(int threads) {
  convolume_conv_problem problem = cube();
  problem.bias = 1;
  convolume_conv* plan = NULL;
  CHECK(convolume_conv_create(&problem, threads, &plan) == CONVOLUME_OK);
  if (plan == NULL) return;
  int64_t shape[5] = {0};
  CHECK(convolume_conv_output_shape(plan, shape) == CONVOLUME_OK);
  const int64_t expected[5] = {1, 1, 2, 2, 2};
  CHECK(memcmp(shape, expected, sizeof shape) == 0);

  float x[27], w[8], y[8], dy[8], dx[27], dw[8], dbias[1];
  const float bias[1] = {0.5f};
  for (int i = 0; i < 27; ++i) x[i] = (float)i;
  for (int i = 0; i < 8; ++i) w[i] = dy[i] = 1;
  for (int round = 0; round < 2; ++round) {
    memset(y, 0xff, sizeof y);
    CHECK(convolume_conv_forward(plan, x, w, bias, y) == CONVOLUME_OK);
    for (int i = 0; i < 8; ++i) CHECK(close_to(y[i], window(i) + 0.5));
  }
  CHECK(convolume_conv_backward(plan, x, NULL, dy, w, dx, dw, dbias) == CONVOLUME_OK);
  for (int i = 0; i < 8; ++i) CHECK(close_to(dw[i], window(i)));
  for (int i = 0; i < 27; ++i) { /* the number of windows that contain the voxel */
    const int z = i / 9, row = i / 3 % 3, column = i % 3;
    CHECK(close_to(dx[i], (z == 1 ? 2 : 1) * (row == 1 ? 2 : 1) * (column == 1 ? 2 : 1)));
  }
  CHECK(close_to(dbias[0], 8));
  dbias[0] = 0;
  CHECK(convolume_conv_backward(plan, x, NULL, dy, w, NULL, NULL, dbias) == CONVOLUME_OK);
  CHECK(close_to(dbias[0], 8));

  CHECK(convolume_conv_forward(plan, x, w, NULL, y) == CONVOLUME_INVALID_ARGUMENT);
  CHECK(strstr(convolume_last_error(), "bias") != NULL);
  CHECK(convolume_conv_forward(plan, NULL, w, bias, y) == CONVOLUME_INVALID_ARGUMENT);
  CHECK(strstr(convolume_last_error(), "x is NULL") != NULL);
  CHECK(convolume_conv_forward(NULL, x, w, bias, y) == CONVOLUME_INVALID_ARGUMENT);
  CHECK(convolume_conv_backward(plan, x, NULL, NULL, w, dx, NULL, NULL) == CONVOLUME_INVALID_ARGUMENT);
  CHECK(strstr(convolume_last_error(), "dy is NULL") != NULL);
  convolume_conv_destroy(plan);
}

/* One channel in blocks of sixteen lanes: y = x[i] + 2 x[i + 1]. Lanes without a channel must be zero. */
static void blocked_tensors(void) {
  convolume_conv_problem problem = cube();
  for (int axis = 0; axis < 3; ++axis) problem.input[axis] = problem.kernel[axis] = 1;
  problem.input[2] = 3;
  problem.kernel[2] = 2;
  problem.x_layout = problem.y_layout = 1;
  convolume_conv* plan = NULL;
  CHECK(convolume_conv_create(&problem, 1, &plan) == CONVOLUME_OK);
  if (plan == NULL) return;
  float x[3 * 16] = {0}, y[2 * 16];
  const float w[2] = {1, 2};
  for (int i = 0; i < 3; ++i) x[16 * i] = (float)(i + 1);
  memset(y, 0xff, sizeof y);
  CHECK(convolume_conv_forward(plan, x, w, NULL, y) == CONVOLUME_OK);
  for (int i = 0; i < 2 * 16; ++i) CHECK(close_to(y[i], i == 0 ? 5 : i == 16 ? 8 : 0));
  convolume_conv_destroy(plan);
}

/* Seventeen channels of two voxels: plain floats to blocked doubles, blocked floats, and back. */
static void conversions(int threads) {
  const int64_t shape[5] = {1, 17, 1, 1, 2};
  int64_t elements = 0, bytes = 0;
  CHECK(convolume_tensor_elements(shape, CONVOLUME_F32, CONVOLUME_PLAIN, &elements) == CONVOLUME_OK && elements == 34);
  CHECK(convolume_tensor_elements(shape, CONVOLUME_F32, CONVOLUME_BLOCKED, &elements) == CONVOLUME_OK);
  CHECK(elements == 2 * 32);
  CHECK(convolume_tensor_elements(shape, CONVOLUME_F64, CONVOLUME_BLOCKED, &elements) == CONVOLUME_OK);
  CHECK(elements == 2 * 24);
  CHECK(convolume_tensor_bytes(shape, CONVOLUME_F64, CONVOLUME_BLOCKED, &bytes) == CONVOLUME_OK && bytes == 48 * 8);
  CHECK(convolume_tensor_bytes(shape, CONVOLUME_F32, CONVOLUME_PLAIN, &bytes) == CONVOLUME_OK && bytes == 34 * 4);

  float plain[34], single[64], back[34];
  double blocked[48];
  for (int i = 0; i < 34; ++i) plain[i] = (float)(i + 1) / 7;
  memset(blocked, 0xff, sizeof blocked);
  memset(single, 0xff, sizeof single);
  memset(back, 0xff, sizeof back);
  CHECK(convolume_convert(shape, plain, CONVOLUME_F32, CONVOLUME_PLAIN, blocked, CONVOLUME_F64, CONVOLUME_BLOCKED,
                          threads) == CONVOLUME_OK);
  for (int i = 0; i < 48; ++i) { /* the position is block, voxel, lane */
    const int channel = i / 16 * 8 + i % 8, voxel = i / 8 % 2;
    CHECK(blocked[i] == (channel < 17 ? (double)plain[2 * channel + voxel] : 0));
  }
  CHECK(convolume_convert(shape, blocked, CONVOLUME_F64, CONVOLUME_BLOCKED, single, CONVOLUME_F32, CONVOLUME_BLOCKED,
                          threads) == CONVOLUME_OK);
  CHECK(single[16] == plain[1] && single[32] == plain[32] && single[33] == 0);
  CHECK(convolume_convert(shape, single, CONVOLUME_F32, CONVOLUME_BLOCKED, back, CONVOLUME_F32, CONVOLUME_PLAIN,
                          threads) == CONVOLUME_OK);
  CHECK(memcmp(plain, back, sizeof plain) == 0);
}

/* Checks that a conversion from plain floats to blocked floats is rejected with `status` and a message with `part`. */
static void no_conversion(const int64_t* shape, const void* source, void* target, int64_t type, int status,
                          const char* part, int line) {
  check(convolume_convert(shape, source, CONVOLUME_F32, CONVOLUME_PLAIN, target, type, CONVOLUME_BLOCKED, 1) == status,
        "status", line);
  check(strstr(convolume_last_error(), part) != NULL, part, line);
}

static void bad_conversions(void) {
  const int64_t shape[5] = {1, 2, 1, 1, 2}, empty[5] = {1, 2, 0, 1, 2};
  const int64_t huge[5] = {INT64_MAX / 2, 2, 1, 1, INT64_MAX / 2};
  float from[4] = {0}, to[32];
  int64_t count = -1;
  no_conversion(shape, NULL, to, CONVOLUME_F32, CONVOLUME_INVALID_ARGUMENT, "source is NULL", __LINE__);
  no_conversion(shape, from, NULL, CONVOLUME_F32, CONVOLUME_INVALID_ARGUMENT, "target is NULL", __LINE__);
  no_conversion(NULL, from, to, CONVOLUME_F32, CONVOLUME_INVALID_ARGUMENT, "shape is NULL", __LINE__);
  no_conversion(shape, from, to, 2, CONVOLUME_INVALID_ARGUMENT, "convolume_convert: target_type is 2", __LINE__);
  no_conversion(shape, to + 31, to, CONVOLUME_F32, CONVOLUME_INVALID_ARGUMENT, "overlap", __LINE__);
  no_conversion(empty, from, to, CONVOLUME_F32, CONVOLUME_INVALID_ARGUMENT, "0 x 1 x 2", __LINE__);
  no_conversion(huge, from, to, CONVOLUME_F32, CONVOLUME_OVERFLOW, "", __LINE__);
  CHECK(convolume_convert(shape, from, CONVOLUME_F32, -1, to, CONVOLUME_F32, CONVOLUME_BLOCKED, 1) ==
        CONVOLUME_INVALID_ARGUMENT);
  CHECK(strstr(convolume_last_error(), "source_layout is -1") != NULL);
  CHECK(convolume_convert(shape, from, CONVOLUME_F32, CONVOLUME_PLAIN, to, CONVOLUME_F32, CONVOLUME_BLOCKED, 0) ==
        CONVOLUME_INVALID_ARGUMENT);
  CHECK(convolume_tensor_elements(shape, CONVOLUME_F32, 2, &count) == CONVOLUME_INVALID_ARGUMENT);
  CHECK(strstr(convolume_last_error(), "convolume_tensor_elements: layout is 2; use 0 to 1") != NULL);
  CHECK(convolume_tensor_elements(shape, CONVOLUME_F32, CONVOLUME_PLAIN, NULL) == CONVOLUME_INVALID_ARGUMENT);
  CHECK(convolume_tensor_bytes(NULL, CONVOLUME_F32, CONVOLUME_PLAIN, &count) == CONVOLUME_INVALID_ARGUMENT);
  CHECK(convolume_tensor_bytes(huge, CONVOLUME_F32, CONVOLUME_PLAIN, &count) == CONVOLUME_OVERFLOW);
  CHECK(count == -1);
}

/* Two channels in double precision, weights of -1, a leaky ReLU of slope 0.25: y = -0.25 * sum. */
static void double_with_activation(void) {
  convolume_conv_problem problem = cube();
  problem.data_type = CONVOLUME_F64;
  problem.in_channels = 2;
  problem.activation = CONVOLUME_LEAKY_RELU;
  problem.activation_slope = 0.25;
  convolume_conv* plan = NULL;
  CHECK(convolume_conv_create(&problem, 1, &plan) == CONVOLUME_OK);
  if (plan == NULL) return;
  double x[54], w[16], y[8], dy[8], dw[16];
  for (int i = 0; i < 54; ++i) x[i] = i % 27;
  for (int i = 0; i < 16; ++i) w[i] = -1;
  for (int i = 0; i < 8; ++i) dy[i] = 1;
  CHECK(convolume_conv_forward(plan, x, w, NULL, y) == CONVOLUME_OK);
  for (int i = 0; i < 8; ++i) CHECK(close_to(y[i], -0.25 * 2 * window(i)));
  CHECK(convolume_conv_backward(plan, x, y, dy, w, NULL, dw, NULL) == CONVOLUME_OK);
  for (int i = 0; i < 16; ++i) CHECK(close_to(dw[i], 0.25 * window(i % 8)));
  CHECK(convolume_conv_backward(plan, x, NULL, dy, w, NULL, dw, NULL) == CONVOLUME_INVALID_ARGUMENT);
  CHECK(strstr(convolume_last_error(), "y is NULL") != NULL);
  convolume_conv_destroy(plan);
}

/* Checks that the problem is rejected with `status` and a message that contains `part`. */
static void refused(const convolume_conv_problem* problem, int status, const char* part, int line) {
  convolume_conv* plan = (convolume_conv*)&failures;
  check(convolume_conv_create(problem, 1, &plan) == status, "status", line);
  check(plan == NULL, "plan is NULL", line);
  check(strstr(convolume_last_error(), part) != NULL, part, line);
}

static void bad_problems(void) {
  convolume_conv_problem problem = cube();
  problem.kernel[1] = 4;
  refused(&problem, CONVOLUME_INVALID_ARGUMENT, "along y the kernel spans 4", __LINE__);
  problem = cube();
  problem.groups = 2;
  refused(&problem, CONVOLUME_INVALID_ARGUMENT, "groups", __LINE__);
  problem = cube();
  problem.data_type = 7;
  refused(&problem, CONVOLUME_INVALID_ARGUMENT, "data_type is 7", __LINE__);
  problem = cube();
  problem.activation = -1;
  refused(&problem, CONVOLUME_INVALID_ARGUMENT, "activation is -1", __LINE__);
  problem = cube();
  problem.stride[2] = 0;
  refused(&problem, CONVOLUME_INVALID_ARGUMENT, "stride.x is 0", __LINE__);
  problem = cube();
  problem.batch = problem.in_channels = INT64_MAX / 2;
  refused(&problem, CONVOLUME_OVERFLOW, "", __LINE__);
  refused(NULL, CONVOLUME_INVALID_ARGUMENT, "problem is NULL", __LINE__);
  problem = cube();
  convolume_conv* plan = NULL;
  CHECK(convolume_conv_create(&problem, 0, &plan) == CONVOLUME_INVALID_ARGUMENT);
  CHECK(convolume_conv_create(&problem, 1, NULL) == CONVOLUME_INVALID_ARGUMENT);
  CHECK(convolume_conv_problem_init(NULL) == CONVOLUME_INVALID_ARGUMENT);
  convolume_conv_destroy(NULL);
}

static void* error_of_new_thread(void* unused) {
  (void)unused;
  return convolume_last_error()[0] == '\0' ? NULL : &failures;
}

int main(void) {
  CHECK(convolume_last_error()[0] == '\0');
  CHECK(strchr(convolume_version(), '.') != NULL);
  forward_and_backward(1);
  forward_and_backward(3);
  blocked_tensors();
  conversions(1);
  conversions(3);
  bad_conversions();
  double_with_activation();
  bad_problems();
  CHECK(convolume_last_error()[0] != '\0');
  pthread_t thread;
  void* result = &failures;
  CHECK(pthread_create(&thread, NULL, error_of_new_thread, NULL) == 0 && pthread_join(thread, &result) == 0);
  CHECK(result == NULL);
  printf(failures == 0 ? "c_api: all good\n" : "c_api: %d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
