// Tests random transforms, valid and invalid. Plans must be made or rejected as documented. Plans that are made must
// agree with FFTW, invert correctly, stay within their buffers, and give the same bits in every way of execution.
//
//   fft_fuzz [--seconds S] [--seed N] [--first I]
//
// Case I of seed N is always the same. The last line is `N plans, N refused, N failures`.
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "testing/sanitizers.hpp"

#include "convolume/error.hpp"
#include "tests/fft/fft_harness.hpp"

#if CONVOLUME_ADDRESS_SANITIZER || CONVOLUME_THREAD_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

using namespace convolume;
using namespace convolume::test;

namespace {

/// The random numbers of one case.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t index)
      : key_{.seed = seed, .a = static_cast<std::uint32_t>(index), .b = static_cast<std::uint32_t>(index >> 32)} {}
  /// Returns a number from first to last, both inclusive.
  index_t between(index_t first, index_t last) {
    return first + static_cast<index_t>(uniform_below(key_, count_++, static_cast<std::uint64_t>(last - first + 1)));
  }
  bool one_in(index_t n) { return between(1, n) == 1; }
  template <class Items>
  auto pick(const Items& items) {
    return items[static_cast<std::size_t>(between(0, static_cast<index_t>(std::size(items)) - 1))];
  }

 private:
  RandomKey key_;
  std::uint64_t count_ = 0;
};

Extent3 random_extent(Dice& dice) {
  constexpr index_t primes[] = {17, 19, 23, 29, 31, 37, 41,  43,  47,  53,  59,  61,  67,
                                71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131};
  Extent3 e;
  const index_t largest = dice.pick(std::array<index_t, 4>{4, 9, 17, 40});
  for (int axis = 0; axis < 3; ++axis) e[axis] = dice.one_in(4) ? 1 : dice.between(1, largest);
  if (dice.one_in(3)) e[static_cast<int>(dice.between(0, 2))] = dice.pick(primes);
  while (e.volume() > 6000) {
    const int axis = static_cast<int>(dice.between(0, 2));
    e[axis] = (e[axis] + 1) / 2;
  }
  return e;
}

/// Draws strides of nested axes in random sequence with random gaps. The batch is one of the axes. From the second axis
/// on, strides are multiples of `unit`.
void random_strides(Dice& dice, const Extent3& n, index_t batch, index_t unit, bool dense_rows, index_t row,
                    Extent3& stride, index_t& distance) {
  std::array<int, 4> sequence{2, 1, 0, 3};
  if (!dice.one_in(3)) {
    for (std::size_t i = 4; i > (dense_rows ? 2u : 1u); --i) {
      std::swap(sequence[i - 1],
                sequence[static_cast<std::size_t>(dice.between(dense_rows ? 1 : 0, static_cast<index_t>(i) - 1))]);
    }
  }
  index_t next = dense_rows ? 1 : dice.between(1, 3);
  for (const int axis : sequence) {
    (axis == 3 ? distance : stride[axis]) = next;
    const index_t count = axis == 3 ? batch : axis == 2 ? row : n[axis];
    next *= count;
    next = (next + unit - 1) / unit * unit + unit * (dice.one_in(2) ? 0 : dice.between(0, 5));
  }
}

/// Returns a problem that must be accepted.
fft::Problem random_problem(Dice& dice) {
  fft::Problem p;
  p.type = dice.one_in(2) ? DataType::f32 : DataType::f64;
  p.kind = static_cast<fft::Kind>(dice.between(0, 3));
  p.extent = random_extent(dice);
  p.batch = dice.one_in(2) ? 1 : dice.between(1, p.extent.volume() > 1000 ? 3 : 20);
  p.in_place = dice.one_in(5);
  p.unaligned = dice.one_in(4);
  if (!p.in_place && dice.one_in(2)) p.order = fft::Order::rotated;
  if (dice.one_in(3)) {
    for (int axis = 0; axis < 3; ++axis) p.support[axis] = dice.between(0, p.extent[axis]);
  }
  const Extent3 half = spectrum_extent(p);
  if (dice.one_in(2)) {
    const bool rows = p.in_place && is_real(p);
    random_strides(dice, p.extent, p.batch, rows ? 2 : 1, rows, rows ? 2 * half.x : p.extent.x, p.space_stride,
                   p.space_distance);
  } else if (dice.one_in(3)) {
    p.space_distance = space_side(p).distance + 2 * dice.between(0, 9);
  }
  if (!p.in_place && dice.one_in(3)) {
    random_strides(dice, half, p.batch, 1, false, half.x, p.spectrum_stride, p.spectrum_distance);
  }
  return p;
}

/// Changes one field, mostly to an invalid value.
void spoil(Dice& dice, fft::Problem& p) {
  constexpr index_t values[] = {-1,
                                0,
                                1,
                                2,
                                3,
                                7,
                                -(index_t{1} << 62),
                                index_t{1} << 62,
                                std::numeric_limits<index_t>::max(),
                                std::numeric_limits<index_t>::min()};
  constexpr index_t small[] = {-5, -1, 0, 1, 2, 3, 5, 64, 1000};
  const int axis = static_cast<int>(dice.between(0, 2));
  switch (dice.between(0, 8)) {
    case 0:
      p.extent[axis] = dice.pick(values);
      break;
    case 1:
      p.batch = dice.pick(values);
      break;
    case 2:
      p.space_distance = dice.one_in(2) ? dice.pick(values) : dice.pick(small);
      break;
    case 3:
      p.spectrum_distance = dice.one_in(2) ? dice.pick(values) : dice.pick(small);
      break;
    case 4:
      p.space_stride[axis] = dice.one_in(2) ? dice.pick(values) : dice.pick(small);
      break;
    case 5:
      p.spectrum_stride[axis] = dice.one_in(2) ? dice.pick(values) : dice.pick(small);
      break;
    case 6:
      p.support[axis] = dice.one_in(2) ? dice.pick(values) : p.extent[axis] + dice.between(1, 3);
      break;
    case 7:
      p.in_place = !p.in_place;
      break;
    default:
      p.order = p.order == fft::Order::natural ? fft::Order::rotated : fft::Order::natural;
  }
}

template <class T>
std::vector<std::complex<T>> convert(const std::vector<std::complex<double>>& points) {
  std::vector<std::complex<T>> result;
  for (const auto& value : points) {
    result.emplace_back(static_cast<T>(value.real()), static_cast<T>(value.imag()));
  }
  return result;
}

/// Returns an input and FFTW's result in double, dense and in natural order.
template <class T>
Sample<T> fftw_sample(const fft::Problem& p, std::uint64_t seed) {
  fft::Problem dense{.type = DataType::f64, .kind = p.kind, .extent = p.extent, .batch = p.batch};
  std::vector<std::complex<double>> in;
  std::uint64_t count = 0;
  const bool forward = is_forward(p);
  for_points(p.batch, forward ? p.extent : spectrum_extent(p),
             [&](std::size_t, index_t, index_t z, index_t y, index_t x) {
               const bool wanted = !forward || in_support(p, z, y, x);
               const double re = normal({.seed = seed}, count++), im = normal({.seed = seed}, count++);
               in.emplace_back(wanted ? re : 0.0, wanted && p.kind != fft::Kind::r2c ? im : 0.0);
             });
  if (p.kind == fft::Kind::c2r) make_hermitian(in, p);
  Sample<T> sample{.in = convert<T>(in), .out = {}};
  in.clear();
  for (const auto& value : sample.in) in.emplace_back(value);
  const auto out = run(fft::Plan::make(dense, {.backend = fft::Backend::fftw}), in).out;
  index_t kept = 0;
  for_points(p.batch, forward ? spectrum_extent(p) : p.extent,
             [&](std::size_t i, index_t, index_t z, index_t y, index_t x) {
               const bool wanted = forward || in_support(p, z, y, x);
               kept += wanted ? 1 : 0;
               sample.norm += std::norm(out[i]);
               sample.out.emplace_back(wanted ? out[i] : 0.0);
             });
  sample.norm *= static_cast<long double>(kept) / static_cast<long double>(out.size());
  return sample;
}

Execute random_execute(Dice& dice) {
  switch (dice.between(0, 3)) {
    case 0:
      return serially;
    case 1:
      return with_workers(static_cast<int>(dice.between(1, 4)));
    case 2:
      return item_by_item(Items::reversed);
    default:
      return item_by_item(Items::shuffled, static_cast<std::uint64_t>(dice.between(0, 99)));
  }
}

/// Returns what is wrong with the transform, or an empty text.
template <class T>
std::string judge(Dice& dice, const fft::Plan& plan, const fft::Options& options) {
  const fft::Problem& p = plan.problem();
  const auto sample = fftw_sample<T>(p, static_cast<std::uint64_t>(dice.between(0, 1 << 30)));
  const auto outcome = run(plan, sample.in);
  if (!outcome.complaint.empty()) return outcome.complaint;
  // The measured difference contains FFTW's own error too.
  const double bound = 3 * accuracy(p.extent) + 1;
  ErrorSum error;
  error.add(outcome.out, sample);
  if (!(error.relative() <= bound * epsilon<T>)) {
    return "differs from FFTW by " + std::to_string(error.relative() / epsilon<T>) + " epsilons";
  }
  const auto again = run(plan, sample.in, random_execute(dice));
  if (!again.complaint.empty()) return "executed in pieces: " + again.complaint;
  if (!same_bits(again.out, outcome.out)) return "other bits when executed in pieces";
  if (!is_forward(p)) return {};
  fft::Problem home = p;
  home.kind = opposite(p.kind);
  const auto back = run(fft::Plan::make(home, options), outcome.out);
  if (!back.complaint.empty()) return "on the way back: " + back.complaint;
  std::vector<std::complex<long double>> expected;
  long double norm = 0;
  for (const auto& value : sample.in) {
    expected.emplace_back(std::complex<long double>(value) * static_cast<long double>(p.extent.volume()));
    norm += std::norm(expected.back());
  }
  // Zeros outside the support would come back as rounding errors of the points inside, so they are not requested.
  ErrorSum round_trip;
  round_trip.add(back.out, expected);
  if (norm > 0 && !(round_trip.relative() <= 2 * bound * epsilon<T>)) {
    return "comes back with an error of " + std::to_string(round_trip.relative() / epsilon<T>) + " epsilons";
  }
  return {};
}

/// The arguments that reproduce the current case, and its description.
std::string current_case;

/// Prints the current case if a sanitizer ends the program.
void name_case_at_death() {
#if CONVOLUME_ADDRESS_SANITIZER || CONVOLUME_THREAD_SANITIZER
  __sanitizer_set_death_callback([] { std::cout << current_case << "ended the program" << std::endl; });
#endif
}

enum class Verdict { served, refused, failed };

struct Result {
  Verdict verdict;
  std::string text;
};

Result check(Dice& dice) {
  fft::Problem problem = random_problem(dice);
  const bool spoiled = dice.one_in(3);
  if (spoiled) spoil(dice, problem);
  const std::vector<std::string> targets = available_simd_targets();
  const SimdScope scope(dice.pick(targets));
  fft::Options options;
  options.backend = dice.one_in(4) ? fft::Backend::fftw : fft::Backend::native;
  options.prime = static_cast<fft::PrimeAlgorithm>(dice.between(0, 4));
  const std::string text = current_case + to_text(problem) +
                           (options.backend == fft::Backend::fftw ? " by fftw" : " by native") + " on " +
                           simd_target() + " prime algorithm " + std::to_string(static_cast<int>(options.prime)) +
                           (spoiled ? " (spoiled)" : "") + ": ";
  current_case = text;
  try {
    const auto plan = fft::Plan::make(problem, options);
    // A spoiled problem may be valid but too large to run.
    if (plan.space_bytes() + plan.spectrum_bytes() > std::size_t{64} << 20) return {Verdict::served, {}};
    const std::string wrong =
        problem.type == DataType::f32 ? judge<float>(dice, plan, options) : judge<double>(dice, plan, options);
    return {wrong.empty() ? Verdict::served : Verdict::failed, text + wrong};
  } catch (const InvalidArgument& error) {
    return {spoiled ? Verdict::refused : Verdict::failed, text + error.what()};
  } catch (const OverflowError& error) {
    return {spoiled ? Verdict::refused : Verdict::failed, text + error.what()};
  } catch (const Unsupported& error) {
    return {spoiled ? Verdict::refused : Verdict::failed, text + error.what()};
  } catch (const std::exception& error) {
    return {Verdict::failed, text + "undocumented exception: " + error.what()};
  }
}

}  // namespace

int main(int argc, char** argv) {
  name_case_at_death();
  double seconds = 5;
  std::uint64_t seed = 1, first = 0;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (value != nullptr && option == "--seconds") {
      seconds = std::strtod(value, nullptr);
    } else if (value != nullptr && option == "--seed") {
      seed = std::strtoull(value, nullptr, 10);
    } else if (value != nullptr && option == "--first") {
      first = std::strtoull(value, nullptr, 10);
    } else {
      std::cerr << "usage: fft_fuzz [--seconds S] [--seed N] [--first I]\n";
      return 2;
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  long plans = 0, refused = 0, failures = 0;
  for (std::uint64_t i = first; (i == first || elapsed() < seconds) && failures < 20; ++i) {
    current_case = "--seed " + std::to_string(seed) + " --first " + std::to_string(i) + " --seconds 0: ";
    Dice dice(seed, i);
    const Result result = check(dice);
    plans += result.verdict == Verdict::served ? 1 : 0;
    refused += result.verdict == Verdict::refused ? 1 : 0;
    if (result.verdict != Verdict::failed) continue;
    ++failures;
    std::cout << result.text << std::endl;
  }
  std::cout << plans << " plans, " << refused << " refused, " << failures << " failures" << std::endl;
  return failures == 0 ? 0 : 1;
}
