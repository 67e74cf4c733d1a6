#include "bench/peers/torch_convolution.hpp"

#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "core/files.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;

std::size_t bytes_of(const ConvTensor& plain) {
  return static_cast<std::size_t>(plain.shape().elements()) * size_of(plain.type());
}

/// Writes the elements of a plain tensor. Nothing is synced, because the file is temporary.
void write(const TemporaryFile& file, const ConvTensor& plain) {
  std::ofstream out(file.path(), std::ios::binary);
  out.write(static_cast<const char*>(plain.view().data.get()), static_cast<std::streamsize>(bytes_of(plain)));
  out.close();
  if (!out) throw IoError(file.path().string() + ": writing failed; set TMPDIR to a folder with more space");
}

}  // namespace

TorchConvolution::TorchConvolution(PeerProcess& process, const ConvProblem& problem, const ConvData& data,
                                   const std::string& format, int threads)
    : process_(process), format_(format) {
  if (problem.transposed) throw Unsupported("transposed convolutions are not compared with PyTorch");
  const TemporaryFile x, w, dy;
  write(x, data.x);
  write(w, data.w);
  write(dy, data.dy);
  const Json request{{"make", format},
                     {"problem", to_string(problem)},
                     {"precision", problem.type == DataType::f32 ? "float" : "double"},
                     {"threads", threads},
                     {"x", x.path().string()},
                     {"w", w.path().string()},
                     {"dy", dy.path().string()}};
  const int used = process_.ask(request.dump()).at("threads");
  if (used != threads) throw Unsupported(fmt::format("PyTorch uses {} threads instead of {}", used, threads));
}

bool TorchConvolution::has(Direction direction) const {
  return direction == Direction::forward || (direction == Direction::training && format_ != "opaque");
}

double TorchConvolution::sample(Direction direction) {
  return process_.ask(Json{{"time", format_}, {"direction", name_of(direction)}}.dump()).at("seconds");
}

void TorchConvolution::read(Output output, ConvTensor& plain) {
  const TemporaryFile file;
  process_.ask(Json{{"write", format_}, {"output", name_of(output)}, {"file", file.path().string()}}.dump());
  const std::string bytes = read_file(file.path(), bytes_of(plain));
  if (bytes.size() != bytes_of(plain)) {
    throw NumericalError(
        fmt::format("PyTorch's {} has {} bytes, ours {}", name_of(output), bytes.size(), bytes_of(plain)));
  }
  std::memcpy(plain.view().data.get(), bytes.data(), bytes.size());
}

}  // namespace convolume::bench
