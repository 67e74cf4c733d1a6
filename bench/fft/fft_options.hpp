// What bench_fft is asked to do, and the names by which the command line and the reports call it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convolume/fft.hpp"
#include "fft/factors.hpp"

namespace convolume::bench {

/// Who transforms: this library, FFTW's own three-dimensional plan at a rigor, or this library's volumes with FFTW's
/// lines and planes, which in rotated order is Algorithm 2 of Feinberg 2015.
enum class Implementation { native, fftw, fftw_patient, algorithm2 };

struct FftOptions {
  std::vector<index_t> sizes;
  std::vector<fft::Kind> kinds;
  std::vector<fft::Order> orders;  ///< of the native spectra; FFTW's are natural
  std::vector<Implementation> implementations{Implementation::native, Implementation::fftw};
  std::vector<DataType> types;
  fft::PrimeAlgorithm prime = fft::PrimeAlgorithm::automatic;
  int rounds = 9;
  double min_seconds = 0.15;
  int repeat = 1;                           ///< executions of a transform that is run for others to watch
  std::filesystem::path json, fftw_wisdom;  ///< empty: none; the default place

  bool has(Implementation implementation) const;
};

const std::map<std::string, fft::Kind>& kind_names();
const std::map<std::string, fft::Order>& order_names();
const std::map<std::string, Implementation>& implementation_names();
const std::map<std::string, fft::PrimeAlgorithm>& algorithm_names();
const std::map<std::string, DataType>& precision_names();

const std::string& name_of(fft::Kind kind);
const std::string& name_of(fft::Order order);
const std::string& name_of(Implementation implementation);
const std::string& name_of(fft::PrimeAlgorithm algorithm);
const std::string& precision_name(DataType type);

/// Lengths in ascending order without repetitions, from "16,17,20:24,32:64:8": single ones and ranges first:last or
/// first:last:step. Throws InvalidArgument naming the item and how it should look.
std::vector<index_t> parse_sizes(const std::string& text);

using fft::largest_prime_factor;
/// The two classes of lengths that means are reported for; neither holds, say, 34.
using fft::is_smooth;
inline bool is_large_prime(index_t n) { return n >= 17 && largest_prime_factor(n) == n; }

}  // namespace convolume::bench
