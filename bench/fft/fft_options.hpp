// The options of bench_fft, and the names that the command line and the reports use.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convolume/fft.hpp"
#include "fft/factors.hpp"

namespace convolume::bench {

/// The implementations: this library, FFTW's own three-dimensional plan at two rigors, this library's volumes with
/// FFTW's lines and planes, ducc0 (called from Python) and MKL. algorithm2, in rotated order, is Algorithm 2 of
/// Feinberg 2015.
enum class Implementation { native, fftw, fftw_patient, algorithm2, ducc0, mkl };

struct FftOptions {
  std::vector<index_t> sizes;
  std::vector<fft::Kind> kinds;
  std::vector<fft::Order> orders;  ///< of the native spectra; FFTW's spectra are natural
  std::vector<Implementation> implementations{Implementation::native, Implementation::fftw};
  std::vector<DataType> types;
  fft::PrimeAlgorithm prime = fft::PrimeAlgorithm::automatic;
  int rounds = 9;
  double min_seconds = 0.15;
  int repeat = 1;                           ///< executions with --once
  std::filesystem::path json, fftw_wisdom;  ///< empty means no file, and the default file

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

/// Returns lengths in ascending order without repetitions, from a text such as "16,17,20:24,32:64:8": single lengths,
/// and ranges first:last or first:last:step. Throws InvalidArgument that names the item and the valid form.
std::vector<index_t> parse_sizes(const std::string& text);

using fft::largest_prime_factor;
/// The two classes of lengths with their own means. Some lengths, such as 34, are in neither.
using fft::is_smooth;
inline bool is_large_prime(index_t n) { return n >= 17 && largest_prime_factor(n) == n; }

}  // namespace convolume::bench
