#include "conv/choice.hpp"

#include <array>

#include <fmt/format.h>

#include "plan/sides.hpp"

namespace convolume {

const char* name_of(Engine engine) noexcept {
  switch (engine) {
    case Engine::automatic:
      return "automatic";
    case Engine::fft_tiled:
      return "fft_tiled";
    case Engine::fft_volume:
      return "fft_volume";
    case Engine::toom_cook:
      return "toom_cook";
    case Engine::direct:
      return "direct";
    case Engine::reference:
      return "reference";
    case Engine::onednn:
      return "onednn";
  }
  return "unknown";
}

std::span<const Engine> engines() noexcept {
  static constexpr std::array all{Engine::automatic, Engine::fft_tiled, Engine::fft_volume, Engine::toom_cook,
                                  Engine::direct,    Engine::reference, Engine::onednn};
  return all;
}

Engine engine_of(const std::string& name) {
  std::string names;
  for (const Engine engine : engines()) {
    if (name == name_of(engine)) return engine;
    names += fmt::format("{}{}", engine == engines().back() ? " or " : names.empty() ? "" : ", ", name_of(engine));
  }
  throw InvalidArgument(fmt::format("engine '{}' is unknown; use {}", name, names));
}

}  // namespace convolume

namespace convolume::conv {

std::string to_string(const Choice& choice) {
  const std::string name = name_of(choice.engine);
  return choice.parts ? name + " " + choice.parts->text() : name;
}

plan::Wanted wanted_of(const ConvOptions& options) {
  return {.forward = true, .data = options.want_dx, .weights = options.want_dw};
}

plan::Wanted wanted_of(const ConvProblem& problem, const ConvOptions& options) {
  return plan::Sides(problem).wanted(wanted_of(options));
}

}  // namespace convolume::conv
