// The tensors and caches of a group of tiles or windows.
#pragma once

#include "conv/tensor_io/direction_tensors.hpp"

namespace convolume::conv {

/// The tensors of a direction, and what a group of tiles or windows needs besides them.
template <class T>
struct GroupTensors : DirectionTensors<T> {
  const T* weights = nullptr;  ///< in the layout of TiledVoxels::weights() or WindowVoxels
  T* keep = nullptr;  ///< if not null, spectra of the source are stored here, in the layout TiledVoxels::kept()
  std::pmr::memory_resource* memory = nullptr;  ///< for the scratch of the group
};

/// Returns the tensors for y from x, or for dx from dy. The caller sets `keep`.
template <class T, class Arguments>
GroupTensors<T> group_tensors(const ConvProblem& problem, const Arguments& a, const T* weights) {
  GroupTensors<T> tensors{direction_tensors<T>(problem, a)};
  tensors.weights = weights;
  tensors.memory = a.memory;
  return tensors;
}

}  // namespace convolume::conv
