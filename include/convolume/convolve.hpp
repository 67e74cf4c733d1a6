// Convolutions from file to file, for tensors that do not fit into memory.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "convolume/memory.hpp"
#include "convolume/streamed.hpp"

namespace convolume::nets {

/// Input, output and settings of a convolution of files.
///
/// x and y are "a.raw" (or .bin: the elements of NCDHW without a header, in the machine's byte order), or volumes in
/// any format of docs/formats.md, whose channels are those of the tensor. A batch of more than one needs raw files or
/// 5-D HDF5 datasets [n][c][z][y][x]. Volumes of other types are converted. w is "w.raw", "w.safetensors" (with ":NAME"
/// if it holds several tensors), or a 5-D HDF5 dataset [k][c][kz][ky][kx]. bias is a file of the same kinds with k
/// values: a tensor of shape [k] in safetensors, a 4-D dataset [k][1][1][1] in HDF5.
struct ConvolveOptions {
  ConvProblem problem{};
  std::string x, w, y;
  std::string bias{};  ///< empty for none; otherwise the problem gets a bias
  /// Bytes for tiles, prepared weights and the working memory of the engine; 0 means half of what the system allows.
  std::size_t memory = 0;
  ConvOptions conv{};
  int threads = 0;                       ///< 0 means default_threads()
  std::optional<TransferPrice> price{};  ///< of transfers from and to files; if absent, it follows from their formats
  std::optional<StreamTile> tile{};      ///< see StreamOptions
  int buffers = 4;                       ///< see StreamOptions
  bool direct = false;                   ///< reads raw files past the page cache
  std::pmr::memory_resource* upstream = mmap_resource();
  std::function<void(index_t done, index_t tiles)> on_progress;
  /// Called with what a user should know of the files, for example metadata that is ignored.
  std::function<void(const std::string& note)> on_note{};
  std::stop_token stop;
};

/// What a convolution of files will do, or has done.
struct ConvolveReport {
  StreamCosts costs;
  std::string explanation;              ///< StreamedConv::explain()
  std::optional<StreamReport> run;      ///< absent if it was only planned or if a stop request came first
  std::size_t measured_peak_bytes = 0;  ///< of what ConvolveOptions::memory limits
};

/// Plans a convolution of files: opens x and w, checks shapes and types, and writes nothing. Throws what
/// convolve_files() throws before it starts.
CONVOLUME_API ConvolveReport plan_convolution(const ConvolveOptions& options);

/// Convolves. y appears under its name when it is complete; after a failure, a stop request or a kill, what had the
/// name before is unchanged. The bits do not depend on memory or threads unless input channels are split (see
/// StreamedConv). Throws any Error: InvalidArgument that names the least memory, ShapeMismatch, IoError, FormatError,
/// Unsupported.
CONVOLUME_API ConvolveReport convolve_files(const ConvolveOptions& options);

}  // namespace convolume::nets
