// Scalings as JSON. A limit that is infinite is null.
#pragma once

#include <cmath>

#include <nlohmann/json.hpp>

#include "nets/data/stored_volume.hpp"

namespace convolume::nets {

inline nlohmann::json to_json(const VolumeScaling& scaling) {
  const auto limit = [](double v) { return std::isfinite(v) ? nlohmann::json(v) : nlohmann::json(); };
  nlohmann::json list = nlohmann::json::array();
  for (const Scaling& s : scaling.list) list.push_back({s.shift, s.scale, limit(s.low), limit(s.high)});
  return {{"planes", scaling.planes}, {"list", list}};
}

/// Throws nlohmann::json::exception if the JSON is something else.
inline VolumeScaling scaling_from_json(const nlohmann::json& json) {
  VolumeScaling scaling{.planes = json.at("planes").get<index_t>()};
  for (const auto& one : json.at("list")) {
    Scaling s{one.at(0).get<double>(), one.at(1).get<double>()};
    if (!one.at(2).is_null()) s.low = one.at(2).get<double>();
    if (!one.at(3).is_null()) s.high = one.at(3).get<double>();
    scaling.list.push_back(s);
  }
  return scaling;
}

}  // namespace convolume::nets
