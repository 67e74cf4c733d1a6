// Memory modes of a net.
#pragma once

namespace convolume::nets {

/// Where the tensors and spectra of a net are stored. The mode does not change results. Nets use
/// the arena; the other modes serve diagnosis and measurements.
enum class MemoryMode {
  arena,     ///< in one memory arena, planned by their lifetimes
  slab,      ///< allocated and freed by tasks during a run (Zlateski, Lee and Seung, "ZNN", 2016, section VII)
  separate,  ///< each in its own memory, for the whole life of the net
};
const char* name_of(MemoryMode mode) noexcept;

}  // namespace convolume::nets
