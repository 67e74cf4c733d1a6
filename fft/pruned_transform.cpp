#include "fft/pruned_transform.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "core/checked.hpp"

namespace convolume::fft {
namespace {

/// Number of frequencies of a plane that are combined at a time, so that the same piece of every plane stays in the
/// cache.
constexpr index_t chunk = 256;
}  // namespace

template <class T>
PrunedTransform<T>::PrunedTransform(const Plan& volume, const Extent3& support, const Extent3& step) {
  const Extent3 n = volume.problem().extent, stride = volume.spectrum_stride();
  // The axes from the outermost to the innermost in memory. An axis of length 1 may have the same stride as its
  // neighbour; then it lies outside that neighbour.
  std::array<int, 3> order{0, 1, 2};
  if (volume.problem().order == Order::rotated) order = {1, 2, 0};
  const Extent3 voxel_stride{support.y * support.x, support.x, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    const int axis = order[i];
    Axis& a = axes_[i];
    if (support[axis] < 1 || (support[axis] - 1) * step[axis] >= n[axis]) {
      throw InvalidArgument(fmt::format(
          "pruned transform: {} voxels with a distance of {} do not fit into {} points; use a longer transform",
          support[axis], step[axis], n[axis]));
    }
    const index_t used = axis == 2 ? n.x / 2 + 1 : n[axis];
    a.support = support[axis];
    a.voxel_stride = voxel_stride[axis];
    a.frequencies = i == 2 ? (stride[order[1]] > used ? stride[order[1]] : used) : used;
    const auto size = static_cast<std::size_t>(2 * a.support * a.frequencies);
    a.by_voxel.assign(size, T{0});
    a.by_frequency.assign(size, T{0});
    a.inverse_by_voxel.assign(size, T{0});
    for (index_t j = 0; j < a.support; ++j) {
      for (index_t f = 0; f < used; ++f) {
        const auto turns =
            static_cast<long double>(f * ((j * step[axis]) % n[axis]) % n[axis]) / static_cast<long double>(n[axis]);
        const long double angle = 2 * std::numbers::pi_v<long double> * turns;
        const bool mirrored = axis == 2 && f != 0 && 2 * f != n.x;
        const long double weight = mirrored ? 2 : 1;
        const auto at = [&](index_t row, index_t columns, index_t column) {
          return static_cast<std::size_t>(2 * (row * columns + column));
        };
        const T re = static_cast<T>(std::cos(angle)), im = static_cast<T>(-std::sin(angle));
        a.by_voxel[at(j, a.frequencies, f)] = a.by_frequency[at(f, a.support, j)] = re;
        a.by_voxel[at(j, a.frequencies, f) + 1] = a.by_frequency[at(f, a.support, j) + 1] = im;
        a.inverse_by_voxel[at(j, a.frequencies, f)] = static_cast<T>(weight * std::cos(angle));
        a.inverse_by_voxel[at(j, a.frequencies, f) + 1] = static_cast<T>(weight * std::sin(angle));
      }
    }
  }
}

template <class T>
std::size_t PrunedTransform<T>::scratch_bytes() const noexcept {
  const index_t planes = axes_[0].support * plane();
  const index_t lines = axes_[0].support * axes_[1].support * axes_[2].frequencies;
  return static_cast<std::size_t>(round_up(2 * planes, 16) + 2 * lines) * sizeof(T);
}

template <class T>
double PrunedTransform<T>::flops() const noexcept {
  const double spectrum = static_cast<double>(axes_[0].frequencies) * static_cast<double>(plane());
  return 8.0 * (static_cast<double>(axes_[0].support) * spectrum +
                static_cast<double>(axes_[0].support * axes_[1].support) * static_cast<double>(plane()));
}

template <class T>
void PrunedTransform<T>::forward(const T* voxels, T* spectrum, T* scratch) const {
  const auto& [outer, middle, inner] = axes_;
  const index_t line = 2 * inner.frequencies;
  T* planes = scratch;
  T* lines = scratch + round_up(2 * outer.support * plane(), 16);
  std::vector<const T*> terms(static_cast<std::size_t>(std::max({outer.support, middle.support, inner.support})));
  std::vector<T> values(static_cast<std::size_t>(2 * inner.support), T{0});
  for (index_t a = 0; a < outer.support; ++a) {
    for (index_t b = 0; b < middle.support; ++b) {
      for (index_t c = 0; c < inner.support; ++c) {
        values[static_cast<std::size_t>(2 * c)] =
            voxels[a * outer.voxel_stride + b * middle.voxel_stride + c * inner.voxel_stride];
        terms[static_cast<std::size_t>(c)] = inner.by_voxel.data() + c * line;
      }
      kernels_.combine(terms.data(), values.data(), inner.support, inner.frequencies, false,
                       lines + (a * middle.support + b) * line);
    }
    for (index_t b = 0; b < middle.support; ++b) {
      terms[static_cast<std::size_t>(b)] = lines + (a * middle.support + b) * line;
    }
    for (index_t f = 0; f < middle.frequencies; ++f) {
      kernels_.combine(terms.data(), middle.by_frequency.data() + 2 * f * middle.support, middle.support,
                       inner.frequencies, false, planes + 2 * a * plane() + f * line);
    }
  }
  for (index_t begin = 0; begin < plane(); begin += chunk) {
    for (index_t a = 0; a < outer.support; ++a) {
      terms[static_cast<std::size_t>(a)] = planes + 2 * (a * plane() + begin);
    }
    for (index_t f = 0; f < outer.frequencies; ++f) {
      kernels_.combine(terms.data(), outer.by_frequency.data() + 2 * f * outer.support, outer.support,
                       std::min(chunk, plane() - begin), false, spectrum + 2 * (f * plane() + begin));
    }
  }
}

template <class T>
void PrunedTransform<T>::inverse(const T* spectrum, T* voxels, T* scratch) const {
  const auto& [outer, middle, inner] = axes_;
  const index_t line = 2 * inner.frequencies;
  T* planes = scratch;
  T* sum = scratch + round_up(2 * outer.support * plane(), 16);
  std::vector<const T*> terms(static_cast<std::size_t>(std::max(outer.frequencies, middle.frequencies)));
  for (index_t begin = 0; begin < plane(); begin += chunk) {
    for (index_t f = 0; f < outer.frequencies; ++f) {
      terms[static_cast<std::size_t>(f)] = spectrum + 2 * (f * plane() + begin);
    }
    for (index_t a = 0; a < outer.support; ++a) {
      kernels_.combine(terms.data(), outer.inverse_by_voxel.data() + 2 * a * outer.frequencies, outer.frequencies,
                       std::min(chunk, plane() - begin), false, planes + 2 * (a * plane() + begin));
    }
  }
  for (index_t a = 0; a < outer.support; ++a) {
    for (index_t f = 0; f < middle.frequencies; ++f) {
      terms[static_cast<std::size_t>(f)] = planes + 2 * a * plane() + f * line;
    }
    for (index_t b = 0; b < middle.support; ++b) {
      kernels_.combine(terms.data(), middle.inverse_by_voxel.data() + 2 * b * middle.frequencies, middle.frequencies,
                       inner.frequencies, false, sum);
      for (index_t c = 0; c < inner.support; ++c) {
        const T* twiddle = inner.inverse_by_voxel.data() + c * line;
        double value = 0;
        for (index_t f = 0; f < line; f += 2) {
          value += static_cast<double>(twiddle[f]) * static_cast<double>(sum[f]) -
                   static_cast<double>(twiddle[f + 1]) * static_cast<double>(sum[f + 1]);
        }
        voxels[a * outer.voxel_stride + b * middle.voxel_stride + c * inner.voxel_stride] = static_cast<T>(value);
      }
    }
  }
}

template class PrunedTransform<float>;
template class PrunedTransform<double>;

}  // namespace convolume::fft
