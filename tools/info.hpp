// The `info` subcommand: describes the machine, nets, checkpoints and volumes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convolume/nets.hpp"

namespace CLI {
class App;
}

namespace convolume::tools {

std::string machine_text();

/// Returns the memory traffic of a net's convolutions by cache level, as a table or as a JSON object.
std::string blocking_table(const std::vector<nets::LayerBlocking>& layers);
std::string blocking_json(const std::vector<nets::LayerBlocking>& layers);

/// Returns predicted seconds against memory for training a net: as a table, as a JSON object, or as an SVG picture.
std::string memory_table(const std::vector<nets::MemoryPoint>& points);
std::string memory_json(const std::vector<nets::MemoryPoint>& points);
std::string memory_picture(const std::vector<nets::MemoryPoint>& points, const std::string& net);

class InfoCommand {
 public:
  void add_to(CLI::App& app);
  int run() const;

 private:
  void check_options(nets::FileKind kind) const;
  void print_memory_curve() const;

  std::string file_, svg_;
  std::vector<std::string> overrides_;
  std::vector<std::int64_t> patch_;
  int threads_ = 0;
  bool blocking_ = false, memory_curve_ = false, json_ = false;
};

}  // namespace convolume::tools
