#include "nets/train/best_validation.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"
#include "core/json.hpp"

namespace convolume::nets {

bool BestValidation::count(std::int64_t at, double now) {
  validated = at;
  const bool less_is_better = score.ends_with("error");
  const bool better = std::isnan(value) ? !std::isnan(now) : less_is_better ? now < value : now > value;
  worse = better ? 0 : worse + 1;
  if (!better) return false;
  value = now;
  iteration = at;
  return true;
}

std::string BestValidation::to_text() const {
  const nlohmann::json stored = std::isnan(value) ? nlohmann::json() : nlohmann::json(value);
  return convolume::to_text(nlohmann::json{{"value", stored},
                                           {"iteration", iteration},
                                           {"validated", validated},
                                           {"worse", worse},
                                           {"score", score},
                                           {"data", data}});
}

BestValidation BestValidation::from_text(const std::string& text) {
  try {
    const auto json = parse_json(text);
    BestValidation best;
    if (!json.at("value").is_null()) best.value = json.at("value").get<double>();
    best.iteration = json.at("iteration").get<std::int64_t>();
    best.validated = json.at("validated").get<std::int64_t>();
    best.worse = json.at("worse").get<std::int64_t>();
    best.score = json.at("score").get<std::string>();
    best.data = json.at("data").get<std::string>();
    return best;
  } catch (const nlohmann::json::exception& error) {
    throw FormatError(fmt::format("best validation: {}", error.what()));
  }
}

}  // namespace convolume::nets
