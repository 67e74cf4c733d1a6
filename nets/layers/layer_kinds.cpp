#include "nets/layers/layer_kinds.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "core/lazy.hpp"
#include "nets/layers/activation.hpp"
#include "nets/layers/convolution.hpp"
#include "nets/layers/crop.hpp"
#include "nets/layers/dropout.hpp"
#include "nets/layers/group_norm.hpp"
#include "nets/layers/join.hpp"
#include "nets/layers/max_pool.hpp"
#include "nets/layers/transposed_convolution.hpp"
#include "nets/layers/upsample.hpp"

namespace convolume::nets {
namespace {

std::vector<LayerKind>& kinds() {
  static constinit Lazy<std::vector<LayerKind>> list;
  return list.get([] {
    return std::vector<LayerKind>{
        {"conv", ConvolutionLayer::read},
        {"transposed_conv", TransposedConvolutionLayer::read},
        {"activation", ActivationLayer::read},
        {"max_pool", MaxPoolLayer::read},
        {"upsample", UpsampleLayer::read},
        {"concat", ConcatLayer::read},
        {"add", AddLayer::read},
        {"crop", CropLayer::read},
        {"dropout", DropoutLayer::read},
        {"group_norm", GroupNormLayer::read_group},
        {"instance_norm", GroupNormLayer::read_instance},
        {"layer_norm", GroupNormLayer::read_layer},
    };
  });
}

}  // namespace

const std::vector<LayerKind>& layer_kinds() { return kinds(); }

void add_layer_kind(const LayerKind& kind) {
  for (const LayerKind& known : kinds()) {
    if (known.type == kind.type) {
      throw InvalidArgument(fmt::format("layer kind '{}': there is one already; choose another name", kind.type));
    }
  }
  kinds().push_back(kind);
}

std::shared_ptr<const Layer> read_layer(TomlTable& table) {
  std::vector<std::string> types;
  for (const LayerKind& kind : kinds()) types.push_back(kind.type);
  const std::string type = table.choice("type", types);
  return std::find_if(kinds().begin(), kinds().end(), [&](const LayerKind& kind) { return kind.type == type; })
      ->read(table);
}

}  // namespace convolume::nets
