// Tensors in files, as sources and sinks of streamed convolutions.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "convolume/streamed.hpp"
#include "nets/io/volume_info.hpp"

namespace convolume::nets {

/// A tensor in a file, and what transfers from or to it cost.
template <class Tensor>
struct TensorFile {
  std::unique_ptr<Tensor> tensor;
  TransferPrice price;
  std::size_t held = 0;  ///< bytes of memory that it takes
};

struct TensorOptions {
  bool direct = false;                                     ///< reads raw files past the page cache
  std::size_t memory = 0;                                  ///< most bytes of a file that is read as a whole
  std::filesystem::path temporary{};                       ///< folder for compressed files that cannot be read in part
  std::function<void(const std::string& note)> on_note{};  ///< as in ConvolveOptions
};

/// Opens x: a raw file or a volume in any format. `shape` and `type` are those of the problem. Throws ShapeMismatch
/// that names the file if its shape differs, and what opening throws.
TensorFile<TensorSource> open_tensor(const std::string& file, const Shape5& shape, DataType type,
                                     const TensorOptions& options);
/// Opens w: a raw file, safetensors, or a 5-D HDF5 dataset.
TensorFile<TensorSource> open_weights(const std::string& file, const Shape5& shape, DataType type,
                                      const TensorOptions& options);
/// Reads a bias of so many channels: a raw file, safetensors of shape [k], or an HDF5 dataset [k][1][1][1]. Throws as
/// open_weights() does.
template <class T>
Tensor<T> read_bias(const std::string& file, index_t channels, const TensorOptions& options);
/// Begins to write y.
TensorFile<TensorSink> create_tensor(const std::string& file, const Shape5& shape, DataType type);
/// Throws what create_tensor() would throw for a name or a shape that no format takes, and writes nothing.
void check_tensor_writable(const std::string& file, const Shape5& shape, DataType type);
/// Returns the price of reading from a volume: that of raw files if nothing has to be decoded.
TransferPrice price_of_reading(const io::VolumeInfo& volume);
/// Returns the price of writing to a file of this name.
TransferPrice price_of_writing(const std::string& file);

}  // namespace convolume::nets
