#include <algorithm>

#include <fmt/format.h>

#include "nets/layers/activation.hpp"
#include "nets/layers/convolution.hpp"
#include "nets/layers/dropout.hpp"
#include "nets/layers/group_norm.hpp"
#include "nets/layers/join.hpp"
#include "nets/layers/max_pool.hpp"
#include "nets/layers/transposed_convolution.hpp"
#include "nets/layers/upsample.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::nets {
namespace {

/// Appends nodes by name. Input 0 is the net's input, input i + 1 is node i.
class Builder {
 public:
  template <class Kind, class... Arguments>
  std::size_t add(std::string name, std::vector<std::size_t> inputs, const Arguments&... arguments) {
    nodes_.push_back(
        {.name = std::move(name), .inputs = std::move(inputs), .layer = std::make_shared<const Kind>(arguments...)});
    return nodes_.size();
  }
  std::vector<NodeSpec> take() { return std::move(nodes_); }

 private:
  std::vector<NodeSpec> nodes_;
};

ConvolutionKeys same_conv(index_t channels, const Extent3& kernel, const Activation& activation) {
  ConvolutionKeys conv;
  conv.out_channels = channels;
  conv.kernel = kernel;
  conv.same = true;
  conv.activation = activation;
  return conv;
}

class UnetBuilder {
 public:
  explicit UnetBuilder(const UnetOptions& options) : o_(options) {}

  std::vector<NodeSpec> build() {
    std::vector<std::size_t> skips;
    std::size_t at = 0;
    for (index_t level = 0; level < o_.depth; ++level) {
      at = block(fmt::format("down{}", level), at, level);
      if (level + 1 == o_.depth) break;
      skips.push_back(at);
      const Extent3 pool = at_level(o_.pools, level);
      at = b_.add<MaxPoolLayer>(fmt::format("pool{}", level), {at}, ops::MaxPool{pool, pool, Extent3::all(1)});
    }
    if (o_.dropout > 0) at = b_.add<DropoutLayer>("dropout", {at}, o_.dropout);
    for (index_t level = o_.depth - 1; level-- > 0;) {
      at = upwards(at, level);
      at = b_.add<ConcatLayer>(fmt::format("skip{}", level), {skips[static_cast<std::size_t>(level)], at});
      at = block(fmt::format("up{}", level), at, level);
    }
    b_.add<ConvolutionLayer>("logits", {at}, same_conv(o_.out_channels, Extent3::all(1), {}));
    return b_.take();
  }

 private:
  static Extent3 at_level(const std::vector<Extent3>& list, index_t level) {
    return list[std::min(static_cast<std::size_t>(level), list.size() - 1)];
  }
  index_t channels(index_t level) const { return o_.width << level; }

  std::size_t normalised(const std::string& name, std::size_t at, index_t width) {
    if (o_.norm == "none") return at;
    index_t groups = o_.norm == "instance" ? 0 : o_.norm == "layer" ? 1 : std::min(o_.groups, width);
    if (groups > 0 && width % groups != 0) groups = 1;
    at = b_.add<GroupNormLayer>(name + "_norm", {at}, groups, 1e-5);
    return b_.add<ActivationLayer>(name + "_act", {at}, o_.activation);
  }

  std::size_t block(const std::string& name, std::size_t at, index_t level) {
    const bool fused = o_.norm == "none";
    std::size_t first = 0;
    for (index_t i = 0; i < o_.convs; ++i) {
      const std::string conv = fmt::format("{}_conv{}", name, i);
      at = b_.add<ConvolutionLayer>(
          conv, {at}, same_conv(channels(level), at_level(o_.kernels, level), fused ? o_.activation : Activation{}));
      at = normalised(conv, at, channels(level));
      if (i == 0) first = at;
    }
    if (o_.residual && o_.convs > 1) at = b_.add<AddLayer>(name + "_residual", {first, at});
    return at;
  }

  std::size_t upwards(std::size_t at, index_t level) {
    const Extent3 factor = at_level(o_.pools, level);
    const std::string name = fmt::format("upsample{}", level);
    if (!o_.transposed) {
      at = b_.add<UpsampleLayer>(name, {at}, factor);
      return b_.add<ConvolutionLayer>(name + "_conv", {at}, same_conv(channels(level), Extent3::all(1), o_.activation));
    }
    ConvolutionKeys conv;
    conv.out_channels = channels(level);
    conv.kernel = conv.stride = factor;
    return b_.add<TransposedConvolutionLayer>(name, {at}, conv);
  }

  UnetOptions o_;
  Builder b_;
};

}  // namespace

std::vector<NodeSpec> width_depth_nodes(index_t width, index_t depth, const Extent3& kernel,
                                        const Activation& activation, index_t out_channels) {
  Builder b;
  std::size_t at = 0;
  for (index_t layer = 0; layer < depth; ++layer) {
    ConvolutionKeys conv;
    const bool last = layer + 1 == depth;
    conv.out_channels = last ? out_channels : width;
    conv.kernel = kernel;
    if (!last) conv.activation = activation;
    at = b.add<ConvolutionLayer>(last ? "logits" : fmt::format("conv{}", layer + 1), {at}, conv);
  }
  return b.take();
}

std::vector<NodeSpec> unet_nodes(const UnetOptions& options) { return UnetBuilder(options).build(); }

}  // namespace convolume::nets
