#include "bench/fft/fft_once.hpp"

#include <fmt/format.h>

#include "bench/common/contest.hpp"
#include "bench/fft/fft_competitors.hpp"
#include "convolume/error.hpp"

namespace convolume::bench {
namespace {

std::unique_ptr<Competitor> contestant_of(const FftOptions& options) {
  const fft::Problem problem{.type = options.types.front(),
                             .kind = options.kinds.front(),
                             .extent = Extent3::all(options.sizes.front()),
                             .order = options.orders.front()};
  switch (options.implementations.front()) {
    case Implementation::native:
      return native_contestant(problem, options.prime);
    case Implementation::algorithm2:
      return algorithm2_contestant(problem);
    case Implementation::fftw:
      return fftw_estimate_contestant(problem.type, problem.kind, problem.extent.x);
    default:
      throw InvalidArgument("--once supports native, fftw and algorithm2; name one of them in --impl");
  }
}

}  // namespace

int once(const FftOptions& options) {
  if (options.implementations.size() != 1) throw InvalidArgument("--once runs one implementation; name one in --impl");
  if (options.sizes.size() != 1 || options.kinds.size() != 1 || options.orders.size() != 1) {
    throw InvalidArgument("--once runs one transform; name one size, one kind and one order");
  }
  std::vector<std::unique_ptr<Competitor>> competitors;
  competitors.push_back(contestant_of(options));
  Arena arena(std::move(competitors), options.types.front(), false);
  for (int i = 0; i < options.repeat; ++i) arena.time(0, 1);
  const Implementation implementation = options.implementations.front();
  fmt::print("{} {} {} {} {}: {} executions\n", name_of(implementation), name_of(options.kinds.front()),
             implementation == Implementation::fftw ? "natural" : name_of(options.orders.front()),
             precision_name(options.types.front()), options.sizes.front(), options.repeat);
  return 0;
}

}  // namespace convolume::bench
