// Checks of a transform: it must equal a reference, and it must have the properties by which FFTW's own verifier
// (libbench2/verify-lib.c) judges a transform without a reference.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "testing/reference_dft.hpp"

#include "convolume/fft.hpp"

namespace convolume::bench {

using Wide = std::complex<long double>;

/// Random volumes and their reference transforms. One volume serves several kinds at once. The real and the imaginary
/// parts of a volume are two real inputs. A spectrum is the sum of a Hermitian spectrum and i times another one, and
/// the transforms of both are real. All inputs are exact in the type and use its whole mantissa, because numbers of few
/// bits would add up without rounding.
class CheckInputs {
 public:
  enum class Use { complex_or_real_input, hermitian_input };
  static Use use_for(fft::Kind kind) {
    return kind == fft::Kind::c2r ? Use::hermitian_input : Use::complex_or_real_input;
  }

  CheckInputs(const Extent3& extent, index_t batch, DataType type, Use use);

  const Extent3& extent() const { return extent_; }
  index_t batch() const { return batch_; }
  index_t blocks() const { return blocks_; }  ///< batches of different volumes; at least 2
  index_t points() const { return points_; }  ///< points of a volume
  const Wide* values(index_t block, index_t volume) const;
  const Wide* transforms(index_t block, index_t volume) const;
  const test::ReferenceDft3<long double>& reference() const { return reference_; }

 private:
  void draw(Wide* volume, std::uint32_t stream, DataType type, Use use) const;

  Extent3 extent_;
  index_t batch_, points_, blocks_;
  test::ReferenceDft3<long double> reference_;
  std::vector<Wide> values_, transforms_;
};

inline constexpr std::string_view accuracy_name = "accuracy";

/// A relative L2 error, or a substitute for it, and its bound.
struct Check {
  std::string_view name;
  double error, bound;
  bool passed() const { return error <= bound; }  // false for NaN
};

struct CheckReport {
  std::vector<Check> checks;
  std::string plan;  ///< fft::Plan::describe()
};

/// Runs all checks of one problem with the native backend, on inputs of its extent, batch, type and use. Throws the
/// exceptions of planning and execution.
CheckReport check(const CheckInputs& inputs, const fft::Problem& problem, fft::PrimeAlgorithm prime);

}  // namespace convolume::bench
