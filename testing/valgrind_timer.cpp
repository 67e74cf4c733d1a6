// Lets programs start under Valgrind on machines whose hypervisor hides the instruction rdtscp. libhwy executes it when
// it is loaded, to find the resolution of a timer that nothing here uses, and Valgrind refuses it there. This library
// is preloaded, so its function takes the place of libhwy's.

namespace hwy::platform {

double TimerResolution();
[[gnu::visibility("default")]] double TimerResolution() { return 1e-9; }

}  // namespace hwy::platform
