// The measured choice between backends.
#include <algorithm>
#include <chrono>
#include <vector>

#include <fmt/format.h>

#include "convolume/wisdom.hpp"
#include "fft/aligned_buffer.hpp"
#include "fft/plan_impl.hpp"

namespace convolume::fft {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns everything that the choice depends on, on one line.
std::string key_of(const Problem& p, const Options& o) {
  const auto three = [](const Extent3& e) { return fmt::format("{}x{}x{}", e.z, e.y, e.x); };
  return fmt::format("fft {} {} {} kind{} {} order{} batch{} {}:{} {} {} {} {}{} rigor{} prime{}", cpu_name(),
                     simd_target(), backend_versions(), static_cast<int>(p.kind), name_of(p.type),
                     static_cast<int>(p.order), p.batch, p.space_distance, p.spectrum_distance, three(p.extent),
                     three(p.space_stride), three(p.spectrum_stride), three(p.support), p.in_place ? " in_place" : "",
                     static_cast<int>(o.rigor), static_cast<int>(o.prime)) +
         (p.unaligned ? " unaligned" : "");
}

double median_seconds(const Plan& plan) {
  const AlignedBuffer space(plan.space_bytes()), spectrum(plan.spectrum_bytes()), scratch(plan.scratch_bytes());
  // Use zeros, so that no competitor is slowed down by subnormal numbers.
  for (const AlignedBuffer* buffer : {&space, &spectrum, &scratch}) buffer->clear();
  const bool forward = plan.problem().kind == Kind::r2c || plan.problem().kind == Kind::c2c_forward;
  const void* in = forward || plan.problem().in_place ? space.get() : spectrum.get();
  void* out = forward && !plan.problem().in_place ? spectrum.get() : space.get();
  std::vector<double> seconds;
  plan.execute(in, out, scratch.get());
  const auto deadline = Clock::now() + std::chrono::milliseconds(100);
  while (seconds.size() < 5 || (seconds.size() < 101 && Clock::now() < deadline)) {
    const auto start = Clock::now();
    plan.execute(in, out, scratch.get());
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

Backend measured_backend(const Problem& problem, const Options& options) {
  WisdomStore store(WisdomStore::default_path());
  const std::string key = key_of(problem, options);
  if (const auto known = store.find(key)) {
    if (*known == "native") return Backend::native;
    if (*known == "fftw") return Backend::fftw;
  }
  if (fftw_backend_version().empty()) return Backend::native;
  std::vector<Plan> plans;
  for (const Backend backend : {Backend::native, Backend::fftw}) {
    Options candidate = options;
    candidate.backend = backend;
    plans.push_back(Plan::make(problem, candidate));
  }
  const bool native = median_seconds(plans[0]) <= median_seconds(plans[1]);
  try {
    store.store(key, native ? "native" : "fftw");
  } catch (const IoError&) {
    // The choice is still valid if it cannot be stored. The next process measures again.
  }
  return native ? Backend::native : Backend::fftw;
}

}  // namespace convolume::fft
