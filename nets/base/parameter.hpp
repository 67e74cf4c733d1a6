// A trainable parameter of a net.
#pragma once

#include <map>
#include <string>

#include "convolume/ready.hpp"
#include "convolume/tensor.hpp"

namespace convolume::nets {

/// A parameter with its gradient and the optimiser's state.
struct Parameter {
  std::string name;  ///< "node.weight", "node.bias", "node.gamma", "node.beta"
  Tensor<float> value;
  // Tensors of the same shape; they are empty unless the parameters are for training. `moment2` is Adam's second
  // moment.
  Tensor<float> gradient, moment1, moment2;
};

/// Says when the parameters of a net, or their gradients, are up to date, by parameter name. Parameters that are not
/// named are up to date from the start.
using ParameterReady = std::map<std::string, Ready>;

}  // namespace convolume::nets
