// The `convolve` subcommand: a convolution from file to file, of tensors that need not fit into memory.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "convolume/convolve.hpp"

namespace CLI {
class App;
}

namespace convolume::tools {

class ConvolveCommand {
 public:
  void add_to(CLI::App& app);
  /// Returns false if a stop request ended the convolution.
  bool run(std::stop_token stop);

 private:
  nets::ConvolveOptions options_;
  std::string problem_, type_ = "f32", engine_ = "automatic", memory_;
  std::vector<double> cost_;
  std::vector<std::int64_t> tile_;
  bool dry_run_ = false, json_ = false, quiet_ = false, unbuffered_ = false;
};

}  // namespace convolume::tools
