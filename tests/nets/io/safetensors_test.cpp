#include "nets/io/safetensors.hpp"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "io_testing.hpp"

using namespace convolume;
using namespace convolume::nets;
using namespace convolume::nets::io;
using namespace convolume::nets::testing;

namespace {

const std::vector<double> doubles{0.5, -2.25};
const std::vector<float> floats{1, 2, 3, 4, 5, 6};
const std::vector<std::int64_t> integers{-7};
const std::vector<std::uint8_t> bytes{1, 2, 255};

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<NamedTensor> tensors() {
  return {{"step.size", StoredType::f64, {2}, bytes_of(doubles)},
          {"weights \"x\"", StoredType::f32, {2, 1, 3}, bytes_of(floats)},
          {"empty", StoredType::f32, {0, 4}, {}},
          {"iteration", StoredType::i64, {}, bytes_of(integers)},
          {"mask", StoredType::u8, {3}, bytes_of(bytes)}};
}

std::string le64(std::uint64_t value) {
  std::string text(8, '\0');
  std::memcpy(text.data(), &value, 8);
  return text;
}

std::string refusal(const std::filesystem::path& file, const std::string& contents) {
  write_bytes(file, contents);
  const auto message = message_of<FormatError>([&] { read_safetensors(file); });
  CHECK(contains(message, file.string()));
  return message;
}

std::string with_header(const std::string& header, const std::string& data = "") {
  return le64(header.size()) + header + data;
}

}  // namespace

TEST_CASE("tensors and metadata come back as they were written", "[io][safetensors]") {
  const Directory directory;
  const auto file = directory / "a.safetensors";
  // Keys and values that look like the digest must not be taken for it.
  const std::map<std::string, std::string> metadata{{"a\"digest", "00000000000000000000000000000000"},
                                                    {"b", "{\"digest\":\"00000000000000000000000000000000\""},
                                                    {"c", "line\nbreak, \u00fc, \x01"},
                                                    {"zeta", ""}};
  write_safetensors(file, tensors(), metadata);
  auto opened = read_safetensors(file);
  const auto read = std::move(opened);
  CHECK(read.metadata() == metadata);
  CHECK(read.digest().size() == 32);
  const auto expected = tensors();
  REQUIRE(read.tensors().size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(read.tensors()[i].name == expected[i].name);
    CHECK(read.tensors()[i].type == expected[i].type);
    CHECK(read.tensors()[i].shape == expected[i].shape);
    CHECK(std::equal(expected[i].bytes.begin(), expected[i].bytes.end(), read.tensors()[i].bytes.begin(),
                     read.tensors()[i].bytes.end()));
  }
  CHECK(read.at("mask").bytes.size() == 3);
  CHECK(read.find("nothing") == nullptr);
  CHECK(contains(message_of<FormatError>([&] { read.at("nothing"); }), "tensor 'nothing'"));

  const std::string first = read_bytes(file);
  std::uint64_t length = 0;
  std::memcpy(&length, first.data(), 8);
  CHECK(length % 8 == 0);
  write_safetensors(file, tensors(), metadata);
  CHECK(read_bytes(file) == first);
  write_safetensors(file, {});
  CHECK(read_safetensors(file).tensors().empty());
  CHECK(read_safetensors(file).metadata().empty());
}

TEST_CASE("every flipped bit, truncation and extension of a safetensors file is noticed", "[io][safetensors]") {
  const Directory directory;
  const auto file = directory / "a.safetensors";
  for (const bool with_tensors : {true, false}) {
    write_safetensors(file, with_tensors ? tensors() : std::vector<NamedTensor>(), {{"key", "value"}});
    const std::string whole = read_bytes(file);
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      CAPTURE(bit);
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      refusal(file, damaged);
    }
    for (std::size_t length = 0; length < whole.size(); ++length) refusal(file, whole.substr(0, length));
    for (const char c : {'\0', ' ', 'x'}) {
      refusal(file, whole + c);
      refusal(file, whole + std::string(8, c));
      refusal(file, whole + std::string(4096, c));
    }
    refusal(file, whole + whole);
  }
}

TEST_CASE("headers that promise what the file does not hold are refused by field", "[io][safetensors]") {
  const Directory directory;
  const auto file = directory / "a.safetensors";
  const std::string digest = "\"__metadata__\":{\"digest\":\"00000000000000000000000000000000\"}";
  const auto tensor = [&](const std::string& entry, const std::string& data = "12345678") {
    return refusal(file, with_header("{" + digest + "," + entry + "}", data));
  };
  CHECK(contains(refusal(file, ""), "header length"));
  CHECK(contains(refusal(file, le64(~0ull) + "{}"), "header length"));
  CHECK(contains(refusal(file, le64(3) + "{}"), "header length: 3 bytes in a file of 10"));
  CHECK(contains(refusal(file, with_header("{")), "not valid JSON"));
  CHECK(contains(refusal(file, with_header("[]")), "not a JSON object"));
  CHECK(contains(refusal(file, with_header("{}")), "__metadata__"));
  CHECK(contains(refusal(file, with_header("{\"__metadata__\":{}}")), "'digest': missing"));
  CHECK(contains(refusal(file, with_header("{\"__metadata__\":{\"digest\":1}}")), "'digest'': not a text") == false);
  CHECK(contains(refusal(file, with_header("{\"__metadata__\":{\"k\":1}}")), "metadata 'k': not a text"));
  CHECK(contains(refusal(file, with_header("{\"__metadata__\":{\"digest\":\"12\"}}")), "is not a digest"));
  CHECK(contains(refusal(file, with_header("{" + digest + "}")), "is stored"));
  CHECK(contains(refusal(file, with_header("{" + digest + "}", "more")), "4 bytes, more than the tensors take"));
  CHECK(contains(refusal(file, with_header(std::string(100000, '['))), "nested"));
  CHECK(contains(tensor("\"a\":1"), "tensor 'a': needs exactly"));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}"), "dtype: \"F16\""));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}"), "-2 is not a size"));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}"), "2.0 is not a size"));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}"), "shape: not a list"));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}"), "not a pair"));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9]}"), "0 to 9 of 8"));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}"), "8 to 0"));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}"), "takes 12 bytes"));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]}"),
                 "more bytes than 2^63"));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}"), "gap"));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                        "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}"),
                 "tensor 'b' data_offsets: overlap"));
  CHECK(contains(tensor("\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                        "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"),
                 "key 'a' is used twice"));
  CHECK(contains(message_of<IoError>([&] { read_safetensors(directory / "none"); }), "none"));
  CHECK(contains(message_of<IoError>([&] { read_safetensors(directory / ""); }), "directory"));
  CHECK(contains(message_of<IoError>([&] { read_safetensors(file, 10); }), "at most 10"));
}

TEST_CASE("tensors that cannot be written are refused", "[io][safetensors]") {
  const Directory directory;
  const auto file = directory / "a.safetensors";
  const auto write = [&](const NamedTensor& tensor) { write_safetensors(file, std::vector{tensor, tensors()[0]}); };
  CHECK_THROWS_AS(write({"", StoredType::f32, {6}, bytes_of(floats)}), InvalidArgument);
  CHECK_THROWS_AS(write({"__metadata__", StoredType::f32, {6}, bytes_of(floats)}), InvalidArgument);
  CHECK_THROWS_AS(write({"step.size", StoredType::f32, {6}, bytes_of(floats)}), InvalidArgument);
  CHECK_THROWS_AS(write({"\xff", StoredType::f32, {6}, bytes_of(floats)}), InvalidArgument);
  CHECK_THROWS_AS(write({"a", StoredType::f32, {-6}, bytes_of(floats)}), InvalidArgument);
  CHECK_THROWS_AS(write({"a", StoredType::f32, {5}, bytes_of(floats)}), ShapeMismatch);
  CHECK_THROWS_AS(write_safetensors(file, {}, {{"digest", "x"}}), InvalidArgument);
  CHECK(directory.files() == 0);
}

TEST_CASE("a full disk leaves the old checkpoint and nothing else", "[io][safetensors]") {
  const Directory directory;
  const auto file = directory / "a.safetensors";
  write_safetensors(file, tensors());
  const std::string before = read_bytes(file);
  const std::vector<float> large(10000, 1.0f);
  {
    const FullDisk full(4096);
    const auto message = message_of<IoError>([&] {
      write_safetensors(file, std::vector<NamedTensor>{{"large", StoredType::f32, {10000}, bytes_of(large)}});
    });
    CHECK(contains(message, file.string()));
  }
  CHECK(read_bytes(file) == before);
  CHECK(directory.files() == 1);
}

TEST_CASE("an independent reader agrees", "[io][safetensors]") {
  if (std::system("python3 -c '' > /dev/null 2>&1") != 0) {
    WARN("SKIPPED: python3 is not available");
    return;
  }
  const Directory directory;
  const auto file = directory / "a.safetensors";
  write_safetensors(file, tensors(), {{"version", "7"}});
  const auto output = directory / "output";
  const std::string command = "python3 " CONVOLUME_SAFETENSORS_SCRIPT " " + file.string() + " > " + output.string();
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(read_bytes(output) == "digest = " + read_safetensors(file).digest() +
                                  "\nversion = 7\n"
                                  "step.size F64 [2] 0.5 -2.25\n"
                                  "weights \"x\" F32 [2, 1, 3] 1.0 2.0 3.0 4.0\n"
                                  "empty F32 [0, 4]\n"
                                  "iteration I64 [] -7\n"
                                  "mask U8 [3] 1 2 255\n");
}
