#include "nets/report/run_log.hpp"

#include <cmath>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "core/files.hpp"
#include "nets/train/best_validation.hpp"

using namespace convolume;
using namespace convolume::nets;

namespace {

Scores scores(double dice, double auc) {
  Scores made;
  made.values = {{"pixel_error", 0.25}, {"dice", dice}, {"roc_auc", auc}};
  return made;
}

}  // namespace

TEST_CASE("the best validation has the largest score, or the least pixel error, and is never NaN") {
  BestValidation best;
  CHECK_FALSE(best.count(10, std::nan("")));
  CHECK(best.worse == 1);
  CHECK(best.count(20, 0.5));
  CHECK_FALSE(best.count(30, 0.5));
  CHECK_FALSE(best.count(40, std::nan("")));
  CHECK(best.worse == 2);
  CHECK(best.count(50, 0.6));
  CHECK(best.iteration == 50);
  CHECK(best.worse == 0);
  BestValidation least;
  least.score = "pixel_error";
  CHECK(least.count(10, 0.3));
  CHECK_FALSE(least.count(20, 0.4));
  CHECK(least.count(30, 0.2));
}

TEST_CASE("the best validation is kept as text, to the bit") {
  BestValidation best;
  CHECK(std::isnan(BestValidation::from_text(best.to_text()).value));
  best.score = "dice";
  best.data = "0123";
  best.count(7, 1.0 / 3);
  best.count(8, 0.1);
  const auto read = BestValidation::from_text(best.to_text());
  CHECK(read.value == 1.0 / 3);
  CHECK(read.iteration == 7);
  CHECK(read.validated == 8);
  CHECK(read.worse == 1);
  CHECK(read.score == "dice");
  CHECK(read.data == "0123");
  for (const char* text : {"", "{}", "[]", "{\"value\": \"a\", \"iteration\": 1, \"validated\": 1, \"worse\": 0}"}) {
    CHECK_THROWS_AS(BestValidation::from_text(text), FormatError);
  }
}

TEST_CASE("a log goes on after an iteration with all of its scores") {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  {
    RunLog log(file, false, 0);
    log.write(1, 0.5, 2.5, std::nullopt);
    log.write(2, 1, std::nan(""), scores(0.75, std::nan("")));
    log.write(3, 1.5, 1.25, std::nullopt);
    log.write(4, 2, 1, std::nullopt);
  }
  RunLog log(file, true, 3);
  CHECK(log.seconds_before() == 1.5);
  REQUIRE(log.losses().size() == 3);
  CHECK(std::isnan(log.losses()[1].loss));
  REQUIRE(log.validations().size() == 1);
  CHECK(log.validations()[0].iteration == 2);
  CHECK(log.validations()[0].scores.at("dice") == 0.75);
  CHECK(std::isnan(log.validations()[0].scores.at("roc_auc")));
  CHECK(log.validations()[0].scores.values[1].name == "roc_auc");
  CHECK(log.validations()[0].scores.values[2].name == "dice");

  // The validation of iteration 3 had been interrupted.
  log.add_scores(2, scores(0.9, 0.9));  // not the last line
  log.add_scores(3, scores(0.5, 0.5));
  log.add_scores(3, scores(0.6, 0.6));  // it has scores now
  log.write(4, 2.5, 1, std::nullopt);
  const std::string text = read_file(file);
  CHECK(text.substr(text.find("{\"iteration\":3")) ==
        "{\"iteration\":3,\"seconds\":1.5,\"loss\":1.25,\"pixel_error\":0.25,\"dice\":0.5,\"roc_auc\":0.5}\n"
        "{\"iteration\":4,\"seconds\":2.5,\"loss\":1.0}\n");
  CHECK(log.validations().size() == 2);

  RunLog lost(folder.path() / "lost.jsonl", true, 3);
  lost.add_scores(3, scores(0.5, 0.5));
  CHECK(lost.losses().empty());
}
