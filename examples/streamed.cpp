// A 3 x 3 x 3 convolution of tensors in files, within a few MiB of memory. The result has the bits of the same
// convolution in memory.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include <convolume/convolume.hpp>

using namespace convolume;

namespace {

/// A folder that is removed with its files.
struct TemporaryFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("convolume-streamed-" + std::to_string(std::random_device{}()));
  TemporaryFolder() { std::filesystem::create_directory(path); }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
};

void fill_with_noise(Tensor<float>& tensor, unsigned seed) {
  std::minstd_rand random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  for (index_t i = 0; i < tensor.elements(); ++i) tensor.data()[i] = values(random);
}

void write(const std::filesystem::path& file, const Tensor<float>& tensor) {
  std::ofstream out(file, std::ios::binary);
  out.exceptions(std::ios::badbit | std::ios::failbit);
  out.write(reinterpret_cast<const char*>(tensor.data()), tensor.elements() * 4);
}

bool file_has_bits_of(const std::filesystem::path& file, Tensor<float>& tensor, Tensor<float>& scratch) {
  std::ifstream in(file, std::ios::binary);
  in.read(reinterpret_cast<char*>(scratch.data()), scratch.elements() * 4);
  return in.good() && std::memcmp(scratch.data(), tensor.data(), static_cast<std::size_t>(tensor.elements()) * 4) == 0;
}

}  // namespace

int main() {
  const ConvProblem problem{.in_channels = 8,
                            .out_channels = 8,
                            .input = {96, 96, 96},
                            .kernel = {3, 3, 3},
                            .pad_before = {1, 1, 1},
                            .pad_after = {1, 1, 1}};
  SlabResource memory;
  Scheduler scheduler(default_threads());
  const Execution run{scheduler, &memory};
  const TemporaryFolder folder;
  Tensor<float> x(problem.x_shape(), &memory), w(problem.w_shape(), &memory), y(problem.y_shape(), &memory);
  fill_with_noise(x, 1);
  fill_with_noise(w, 2);
  write(folder.path / "x.raw", x);
  write(folder.path / "w.raw", w);

  // From file to file.
  const StreamedConv conv =
      StreamedConv::make(problem, {.memory = std::size_t{12} << 20, .threads = scheduler.threads()});
  const auto x_file = raw_source({.path = folder.path / "x.raw", .shape = problem.x_shape()});
  const auto w_file = raw_source({.path = folder.path / "w.raw", .shape = problem.w_shape()});
  const auto y_file = raw_sink({.path = folder.path / "y.raw", .shape = problem.y_shape()});
  conv.run(run, *x_file, *w_file, {}, *y_file);

  // In memory, by the plan that was streamed.
  const PreparedWeights w_hat = conv.plan().prepare(run, w);
  conv.plan().forward(run, {.x = x, .w = w_hat, .y = y});

  const StreamCosts& costs = conv.costs();
  const bool same = file_has_bits_of(folder.path / "y.raw", y, x);
  std::printf("%s%.1f MiB of tensors convolved within %.1f MiB, in %d tiles: %s bits\n", conv.explain().c_str(),
              8.0 * static_cast<double>(y.elements()) / (1 << 20), static_cast<double>(costs.peak_bytes) / (1 << 20),
              static_cast<int>(costs.tiles), same ? "the same" : "OTHER");
  return same ? 0 : 1;
}
