#include "core/json.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "convolume/error.hpp"

using namespace convolume;
using Catch::Matchers::Contains;

TEST_CASE("JSON is read and written") {
  const std::string text = R"({"a":[1,2.5,null,true],"b":{"c":"\u00e4"}})";
  CHECK(to_text(parse_json(text)) == "{\"a\":[1,2.5,null,true],\"b\":{\"c\":\"\u00e4\"}}");
  CHECK(to_text(nlohmann::ordered_json{{"z", 1}, {"a", 2}}) == R"({"z":1,"a":2})");
  CHECK(to_text(nlohmann::json{{"z", 1}}, 1) == "{\n \"z\": 1\n}");
}

TEST_CASE("JSON that is damaged, deep or ambiguous is refused") {
  for (const char* text : {"", "{", "[1,]", "{\"a\":1} 2", "nan", "[\"\xff\"]"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(parse_json(text), Contains("not valid JSON"));
  }
  CHECK_THROWS_WITH(parse_json("{\"a\": 1, \"b\": {\"c\": 1, \"c\": 2}}"), "key 'c' is used twice");
  CHECK_NOTHROW(parse_json("[{\"a\": 1}, {\"a\": 1}]"));
  CHECK_NOTHROW(parse_json("[[[1]]]", 3));
  CHECK_THROWS_WITH(parse_json("[[[[1]]]]", 3), Contains("more than 3"));
  CHECK_THROWS_AS(parse_json(std::string(1000000, '[')), FormatError);
  CHECK_THROWS_AS(to_text(nlohmann::json("\xff")), FormatError);
}
