// Trains a net for a few iterations, and writes all data that another implementation needs to repeat and compare them:
//   parity_dump NET.toml DATA.toml OUT.safetensors OUT.json [ITERATIONS]
// OUT.json describes the net, with generators expanded.
// OUT.safetensors holds, per iteration i: "i/input", "i/label" (both of the whole patch), "i/logits", "i/loss",
// "i/gradient/PARAMETER" (before clipping). It also holds "initial/PARAMETER" and "final/PARAMETER".
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "testing/patches.hpp"

#include "convolume/memory.hpp"
#include "convolume/scheduler.hpp"
#include "core/files.hpp"
#include "nets/io/safetensors.hpp"
#include "nets/spec/net_json.hpp"
#include "nets/train/trainer.hpp"

namespace convolume::nets {
namespace {

/// Copies of tensors, which are written to a file together.
class Record {
 public:
  void add(std::string name, const Tensor<float>& tensor) {
    const Shape5& s = tensor.shape();
    store(std::move(name), io::StoredType::f32, {s.n, s.c, s.extent.z, s.extent.y, s.extent.x},
          std::as_bytes(std::span(tensor.data(), static_cast<std::size_t>(tensor.elements()))));
  }
  void add(std::string name, double number) {
    store(std::move(name), io::StoredType::f64, {1}, std::as_bytes(std::span(&number, 1)));
  }
  void write(const std::filesystem::path& file) const { io::write_safetensors(file, tensors_); }

 private:
  void store(std::string name, io::StoredType type, std::vector<index_t> shape, std::span<const std::byte> bytes) {
    const auto& copy = contents_.emplace_back(bytes.begin(), bytes.end());
    tensors_.push_back({.name = std::move(name), .type = type, .shape = std::move(shape), .bytes = copy});
  }

  std::deque<std::vector<std::byte>> contents_;
  std::vector<io::NamedTensor> tensors_;
};

void add_patches(Record& record, const std::string& prefix, const NetSpec& spec, const Dataset& data,
                 std::uint64_t seed, std::int64_t iteration) {
  Tensor<float> image({spec.training.batch, 1, spec.patch}), label({spec.training.batch, 1, spec.patch});
  for (index_t n = 0; n < spec.training.batch; ++n) {
    const auto draw = PatchDraw::draw(data, spec.patch, seed, static_cast<std::uint64_t>(iteration), n);
    const test::MadePatch made = test::make_patch(data, draw, spec.patch);
    std::copy_n(made.image.data(), made.image.elements(), image.view().channel(n, 0));
    std::copy_n(made.label.data(), made.label.elements(), label.view().channel(n, 0));
  }
  record.add(prefix + "input", image);
  record.add(prefix + "label", label);
}

void dump(const char* net, const char* data_file, const char* out, const char* json, int iterations) {
  const std::uint64_t seed = 7;
  Scheduler scheduler(2);
  SlabResource memory;
  {
    const Dataset data = load_dataset(data_file, {.memory = &memory});
    const NetSpec spec = load_net(net);
    write_file_atomically(json, to_json(spec));
    Trainer trainer(spec, data, seed, {}, scheduler, &memory);
    Record record;
    for (const Parameter& p : trainer.parameters().all()) record.add("initial/" + p.name, p.value);
    for (int i = 0; i < iterations; ++i) {
      const std::string prefix = std::to_string(i) + "/";
      add_patches(record, prefix, spec, data, seed, trainer.iteration());
      const auto loss = trainer.step();
      record.add(prefix + "loss", loss.value());
      record.add(prefix + "logits", trainer.network().logits());
      for (const Parameter& p : trainer.parameters().all()) record.add(prefix + "gradient/" + p.name, p.gradient);
    }
    trainer.flush();
    for (const Parameter& p : trainer.parameters().all()) record.add("final/" + p.name, p.value);
    record.write(out);
  }
}

}  // namespace
}  // namespace convolume::nets

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: parity_dump NET.toml DATA.toml OUT.safetensors OUT.json [ITERATIONS]\n");
    return 2;
  }
  try {
    convolume::nets::dump(argv[1], argv[2], argv[3], argv[4], argc > 5 ? std::stoi(argv[5]) : 10);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parity_dump: %s\n", error.what());
    return 1;
  }
  return 0;
}
