// The names of engines as values of options.
#pragma once

#include <map>
#include <string>

#include "convolume/conv.hpp"

namespace convolume::bench {

inline const std::map<std::string, Engine>& engine_names() {
  static const std::map<std::string, Engine> names = [] {
    std::map<std::string, Engine> all;
    for (const Engine engine : engines()) all.emplace(name_of(engine), engine);
    return all;
  }();
  return names;
}

}  // namespace convolume::bench
