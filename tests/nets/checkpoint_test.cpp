#include "nets/spec/checkpoint.hpp"

#include <fstream>

#include "testing/temporary_folder.hpp"
#include <catch2/catch.hpp>

#include "convolume/memory.hpp"
#include "core/files.hpp"

using namespace convolume;
using namespace convolume::nets;

namespace {

const char* const net_text = R"(
name = "tiny"
[input]
patch = [1, 4, 4]
[[node]]
name = "a"
type = "conv"
out_channels = 2
kernel = [1, 3, 3]
padding = "same"
)";

CheckpointHeader header(const NetSpec& spec) {
  return {.net = spec,
          .iteration = 12,
          .seed = 7,
          .numerics = "simd = AVX2\n",
          .data_digest = "abc",
          .normalisation = "volume"};
}

}  // namespace

TEST_CASE("a checkpoint gives back every number, and equal states give equal bytes") {
  const test::TemporaryFolder folder;
  SlabResource memory;
  const auto spec = parse_net(net_text, "tiny.toml", {"training.batch=3"});
  Parameters saved(spec, true, 1, &memory), loaded(spec, true, 2, &memory);
  saved.all()[0].moment2.fill(0.25f);
  save_checkpoint(folder.path() / "a.safetensors", header(spec), saved);
  save_checkpoint(folder.path() / "b.safetensors", header(spec), saved);
  CHECK(read_file(folder.path() / "a.safetensors") == read_file(folder.path() / "b.safetensors"));
  const auto read = load_checkpoint(folder.path() / "a.safetensors", loaded);
  CHECK(read.iteration == 12);
  CHECK(read.seed == 7);
  CHECK(read.numerics == "simd = AVX2\n");
  CHECK_FALSE(read.cubic);
  CheckpointHeader cubic = header(spec);
  cubic.cubic = true;
  save_checkpoint(folder.path() / "c.safetensors", cubic, saved);
  CHECK(read_checkpoint_header(folder.path() / "c.safetensors").cubic);
  CHECK(read.net.training.batch == 3);
  CHECK(read.net.recipe() == spec.recipe());
  for (std::size_t i = 0; i < saved.all().size(); ++i) {
    for (const auto member : {&Parameter::value, &Parameter::moment1, &Parameter::moment2}) {
      const auto& a = saved.all()[i].*member;
      const auto& b = loaded.all()[i].*member;
      CHECK(std::equal(a.data(), a.data() + a.elements(), b.data()));
    }
  }
}

TEST_CASE("every flipped bit of a checkpoint is noticed, header and random state included") {
  const test::TemporaryFolder folder;
  SlabResource memory;
  const auto spec = parse_net(net_text, "tiny.toml");
  Parameters parameters(spec, true, 1, &memory);
  const auto file = folder.path() / "c.safetensors";
  save_checkpoint(file, header(spec), parameters);
  const std::string good = read_file(file);
  for (std::size_t byte = 0; byte < good.size(); byte += byte < 16 ? 1 : 7) {
    std::string bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ (1 << (byte % 8)));
    write_file_atomically(file, bad);
    Parameters target(spec, true, 1, &memory);
    REQUIRE_THROWS_WITH(load_checkpoint(file, target), Catch::Contains("c.safetensors"));
  }
  for (const std::size_t length : {std::size_t{0}, std::size_t{7}, good.size() / 2, good.size() - 1}) {
    write_file_atomically(file, good.substr(0, length));
    Parameters target(spec, true, 1, &memory);
    REQUIRE_THROWS_AS(load_checkpoint(file, target), FormatError);
  }
}

TEST_CASE("a checkpoint of another net is refused by tensor and changes nothing") {
  const test::TemporaryFolder folder;
  SlabResource memory;
  const auto spec = parse_net(net_text, "tiny.toml");
  const auto other = parse_net(std::string(net_text) +
                                   "activation = \"relu\"\n[[node]]\nname = \"b\"\ntype = \"conv\"\n"
                                   "out_channels = 1\nkernel = 1\n",
                               "other.toml");
  Parameters parameters(spec, true, 1, &memory), target(other, true, 3, &memory);
  const float before = target.all()[0].value.data()[0];
  save_checkpoint(folder.path() / "c.safetensors", header(spec), parameters);
  CHECK_THROWS_WITH(load_checkpoint(folder.path() / "c.safetensors", target),
                    Catch::Contains("b.weight") && Catch::Contains("another net"));
  CHECK(target.all()[0].value.data()[0] == before);
}
