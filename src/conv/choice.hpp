// Everything that decides how a problem is convolved, also as text: an engine, and what the engine decides beyond
// itself. The text is the engine's name, followed by the words of its parts, for example "reference",
// "fft_tiled fwd=18x11x15*4 bwd_d=16x16x16*4 bwd_w=20x20x20*1", or "direct fwd=n*.y*.c.x.|.kz.ky.kx.c16.x14.k32
// bwd_d=... bwd_w=...".
#pragma once

#include <memory>
#include <string>

#include "convolume/conv.hpp"
#include "plan/cost_model.hpp"

namespace convolume::conv {

/// What an engine decides for a problem, for example tiles or loop nests. Immutable. It holds nothing that its text
/// does not.
class ChoiceParts {
 public:
  ChoiceParts() = default;
  ChoiceParts(const ChoiceParts&) = delete;
  ChoiceParts& operator=(const ChoiceParts&) = delete;
  virtual ~ChoiceParts() = default;

  /// Returns the words that follow the engine's name.
  virtual std::string text() const = 0;
  /// Returns whether the parts of the directions can be exchanged one by one.
  virtual bool separate() const { return true; }
  /// Returns these parts with that of one direction taken from `other`, which is of the same engine. The result is
  /// separate.
  virtual std::shared_ptr<const ChoiceParts> with(plan::Direction direction, const ChoiceParts& other) const = 0;
};
using SharedParts = std::shared_ptr<const ChoiceParts>;

struct Choice {
  Engine engine = Engine::reference;
  SharedParts parts{};  ///< null: the engine takes what its cost model prefers, or has no parts

  bool has_separate_parts() const { return parts && parts->separate(); }
  /// Returns the parts if they are of this class, else null.
  template <class Parts>
  const Parts* as() const {
    return dynamic_cast<const Parts*>(parts.get());
  }
};
std::string to_string(const Choice& choice);
inline bool operator==(const Choice& a, const Choice& b) {
  return a.engine == b.engine && (a.parts == b.parts || to_string(a) == to_string(b));
}

/// Return the directions that `options` want. If the problem is passed, the directions are mapped to
/// plan::Sides::convolution().
plan::Wanted wanted_of(const ConvOptions& options);
plan::Wanted wanted_of(const ConvProblem& problem, const ConvOptions& options);

}  // namespace convolume::conv
