// The counts of a loop nest, as the command shows them.
#pragma once

#include <string>
#include <vector>

#include "convolume/nest.hpp"

namespace convolume::tools {

/// The loops of a nest from one loop on.
struct NestLevel {
  std::string loop;
  plan::BoundLoop bound;
  bool parallel = false, in_microkernel = false;
  plan::Extents tile{};              ///< iterations that the loops from here on cover
  std::vector<plan::Fetch> fetches;  ///< of the operands, in their order
};

struct NestCounts {
  std::string problem, direction, layout;
  plan::NestSpace space;
  plan::LoopNest nest;
  std::size_t phases = 1, phase = 0;
  std::size_t element_bytes = 4;
  std::vector<NestLevel> levels;
  std::vector<plan::Buffer> buffers;
};

/// Returns the bytes of an average stretch of neighbouring addresses; 0 if nothing is fetched.
double run_bytes(const plan::Fetch& fetch, std::size_t element_bytes);

/// Returns bytes as "12.5 KiB".
std::string bytes_text(double bytes);

/// Returns a picture as SVG: loops as nested boxes, and the footprints of each loop's inside in bars beside them.
std::string nest_picture(const NestCounts& counts);

}  // namespace convolume::tools
