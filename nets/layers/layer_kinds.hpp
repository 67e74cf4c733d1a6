// The list of the kinds of layers, by their names in TOML files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nets/base/toml_reader.hpp"
#include "nets/layers/layer.hpp"

namespace convolume::nets {

/// A kind of layer: its name, as in `type = "conv"`, and a function that reads its keys and throws ConfigError.
struct LayerKind {
  std::string type;
  std::shared_ptr<const Layer> (*read)(TomlTable& table);
};

/// Returns all kinds, in the order in which messages list them.
const std::vector<LayerKind>& layer_kinds();
/// Adds a kind. Throws InvalidArgument if there is one of this name. Not thread-safe: call it before nets are read.
void add_layer_kind(const LayerKind& kind);

/// Reads a layer from the table of a node. Throws ConfigError.
std::shared_ptr<const Layer> read_layer(TomlTable& table);

}  // namespace convolume::nets
