// The trainable numbers of a net, their gradients and the optimiser's state.
#pragma once

#include <memory_resource>
#include <string>
#include <vector>

#include "nets/net_shapes.hpp"
#include "nets/net_spec.hpp"

namespace convolume::nets {

struct Parameter {
  std::string name;  ///< "node.weight", "node.bias", "node.gamma", "node.beta"
  Tensor<float> value;
  // Of the same shape; empty unless the parameters are for training. `moment2` is Adam's second moment.
  Tensor<float> gradient, moment1, moment2;
};

/// The parameters in the order of their nodes.
class Parameters {
 public:
  /// Allocates and, from `seed` alone, initialises: He (rectifiers) or Glorot for weights, 0 for biases, 1 for gamma.
  Parameters(const NetSpec& spec, bool training, std::uint64_t seed, std::pmr::memory_resource* memory);

  std::vector<Parameter>& all() { return list_; }
  const std::vector<Parameter>& all() const { return list_; }
  /// nullptr where there is none.
  Parameter* find(const std::string& name);
  /// Numbers that are trained.
  index_t count() const;

 private:
  std::vector<Parameter> list_;
};

}  // namespace convolume::nets
