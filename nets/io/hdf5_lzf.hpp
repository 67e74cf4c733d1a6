// The filter "lzf" of HDF5, which programs that use h5py often choose.
#pragma once

#include <hdf5.h>

namespace convolume::nets::io::detail {

inline constexpr H5Z_filter_t lzf_filter = 32000;  // registered with the HDF Group

/// Makes HDF5 decode chunks of the filter lzf. HDF5 itself does not know it, and would look for a plugin. Call it with
/// an Hdf5Session.
void register_lzf();

}  // namespace convolume::nets::io::detail
