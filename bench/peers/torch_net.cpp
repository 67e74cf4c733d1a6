#include "bench/peers/torch_net.hpp"

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "bench/peers/torch_python.hpp"
#include "convolume/error.hpp"
#include "core/files.hpp"
#include "nets/net_json.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;

/// A temporary file that is removed with this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    std::string pattern = (std::filesystem::temp_directory_path() / "bench_net-XXXXXX").string();
    const int file = mkstemp(pattern.data());
    if (file < 0) throw IoError(pattern + ": making a temporary file failed; set TMPDIR to a writable folder");
    close(file);
    path_ = pattern;
    write_file_atomically(path_, content);
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Json answer_of(ChildProcess& process) {
  const auto line = process.read_line();
  if (!line) throw Unsupported("PyTorch's process ended without an answer; it may have run out of memory");
  const Json answer = Json::parse(*line, nullptr, false);
  if (!answer.is_object()) throw Unsupported("PyTorch's process sent an unknown answer: '" + *line + "'");
  if (answer.contains("error")) throw Unsupported(answer["error"].get<std::string>());
  return answer;
}

std::vector<std::string> command(const std::filesystem::path& net, const std::string& format, int threads) {
  // -B prevents compiled copies of scripts in the source folders.
  return {torch_python,
          "-B",
          CONVOLUME_BENCH_PEERS "/torch_net.py",
          "--serve",
          "--net",
          net.string(),
          "--threads",
          fmt::to_string(threads),
          "--format",
          format};
}

}  // namespace

TorchNet::TorchNet(const nets::NetSpec& spec, const std::string& format, int threads) {
  if (!std::filesystem::exists(torch_python)) {
    throw Unsupported(fmt::format("{} is missing: apt-get install python3-torch", torch_python));
  }
  const TemporaryFile description(nets::to_json(spec));
  process_ = std::make_unique<ChildProcess>(command(description.path(), format, threads));
  // The process sends a line after it has read the description.
  const Json facts = answer_of(*process_);
  version_ = facts.at("torch");
  SlabResource memory;
  const index_t ours = nets::Parameters(spec, false, 0, &memory).count(), theirs = facts.at("parameters");
  if (ours != theirs) {
    throw NumericalError(fmt::format("{} has {} parameters, but the net in PyTorch has {}", spec.name, ours, theirs));
  }
}

TorchNet::Call TorchNet::call(Work work) {
  process_->write_line(name_of(work));
  const Json answer = answer_of(*process_);
  return {answer.at("seconds"), answer.at("peak_bytes")};
}

}  // namespace convolume::bench
