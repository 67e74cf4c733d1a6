// Replaces the FFTW backend in a library that is built without FFTW.
#include "fft/plan_impl.hpp"

namespace convolume::fft {

std::shared_ptr<const Plan::Impl> make_fftw_plan(const Problem&, const Options&) {
  throw Unsupported("fft: this library was built without FFTW; use Backend::native, or build with CONVOLUME_FFTW=ON");
}

std::string fftw_backend_version() { return {}; }

}  // namespace convolume::fft
