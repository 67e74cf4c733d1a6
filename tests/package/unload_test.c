/* Loads the shared library, convolves, unloads it, and forks: the child convolves with the library that it loads again.
 *
 *     unload_test LIBRARY
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <convolume/convolume.h>

/* Returns a function of the library. The cast goes through an object pointer, as POSIX allows. */
static void find(void* library, const char* name, void* function) {
  *(void**)function = dlsym(library, name);
  if (*(void**)function == NULL) {
    fprintf(stderr, "%s: not found\n", name);
    exit(1);
  }
}

/* Convolves 1..5 with (10, 1) on two threads. Returns whether the result is right. */
static int convolve(const char* file) {
  int (*init)(convolume_conv_problem*);
  int (*create)(const convolume_conv_problem*, int, convolume_conv**);
  int (*forward)(const convolume_conv*, const void*, const void*, const void*, void*);
  void (*destroy)(convolume_conv*);
  convolume_conv_problem problem;
  convolume_conv* plan = NULL;
  const float x[5] = {1, 2, 3, 4, 5}, w[2] = {10, 1};
  float y[4] = {0, 0, 0, 0};
  int right;
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 0;
  }
  find(library, "convolume_conv_problem_init", &init);
  find(library, "convolume_conv_create", &create);
  find(library, "convolume_conv_forward", &forward);
  find(library, "convolume_conv_destroy", &destroy);
  if (init(&problem) != 0) return 0;
  problem.input[0] = problem.input[1] = problem.kernel[0] = problem.kernel[1] = 1;
  problem.input[2] = 5;
  problem.kernel[2] = 2;
  if (create(&problem, 2, &plan) != 0 || forward(plan, x, w, NULL, y) != 0) return 0;
  destroy(plan);
  right = fabsf(y[0] - 12) < 1e-3f && fabsf(y[3] - 45) < 1e-3f;
  return dlclose(library) == 0 && right;
}

int main(int count, char** arguments) {
  int status = 1;
  pid_t child;
  if (count != 2 || !convolve(arguments[1])) return 1;
  child = fork();
  if (child == 0) {
    alarm(20);
    _exit(convolve(arguments[1]) ? 0 : 1);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    fprintf(stderr, "the child failed: status %d\n", status);
    return 1;
  }
  return convolve(arguments[1]) ? 0 : 1;
}
