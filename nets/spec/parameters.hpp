// The trainable parameters of a net, their gradients and the optimiser's state.
#pragma once

#include <memory_resource>
#include <string>
#include <vector>

#include "nets/base/parameter.hpp"
#include "nets/spec/net_spec.hpp"

namespace convolume::nets {

/// The parameters in the order of their nodes.
class Parameters {
 public:
  /// Allocates the parameters and initialises them from `seed` alone: He (rectifiers) or Glorot for weights, 0 for
  /// biases and beta, 1 for gamma.
  Parameters(const NetSpec& spec, bool training, std::uint64_t seed, std::pmr::memory_resource* memory);

  std::vector<Parameter>& all() { return list_; }
  const std::vector<Parameter>& all() const { return list_; }
  /// Returns nullptr if there is no such parameter.
  Parameter* find(const std::string& name);
  /// Returns the number of trainable elements.
  index_t count() const;

 private:
  std::vector<Parameter> list_;
};

}  // namespace convolume::nets
