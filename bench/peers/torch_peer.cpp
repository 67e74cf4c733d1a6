#include "bench/peers/torch_peer.hpp"

#include <array>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "bench/peers/torch_python.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;

struct CommandOutput {
  std::string text;
  int status;
};

CommandOutput run(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw Unsupported("torch: starting a process failed");
  std::string text;
  std::array<char, 4096> part{};
  while (const std::size_t read = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), read);
  const int status = pclose(pipe);
  return {std::move(text), WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

TorchTimes::Quartiles quartiles(const Json& row, const std::string& key) {
  return {row.at(key + "_s"), row.at(key + "_low_s"), row.at(key + "_high_s")};
}

}  // namespace

TorchTimes time_torch(const ConvProblem& problem, const ConvBenchOptions& options) {
  // The grammar of problems has no characters that are special in a shell.
  const std::string command = fmt::format(
      "{} '{}/torch_conv.py' --problem {} --threads {} --rounds {} --max-seconds {} --precision {} --json - 2>&1",
      torch_python, CONVOLUME_BENCH_PEERS, to_string(problem), options.threads, options.rounds, options.max_seconds,
      problem.type == DataType::f32 ? "float" : "double");
  const CommandOutput output = run(command);
  if (output.status != 0) {
    const std::size_t end = output.text.find_last_not_of(" \n");
    const std::size_t line = output.text.rfind('\n', end);
    throw Unsupported(
        fmt::format("torch: {}", output.text.substr(line == std::string::npos ? 0 : line + 1, end - line)));
  }
  try {
    const Json row = Json::parse(output.text.substr(output.text.find('{'))).at("results").at(0);
    return {quartiles(row, "forward"), quartiles(row, "training")};
  } catch (const std::exception& error) {
    throw Unsupported(fmt::format("torch: {} printed no times: {}", torch_python, error.what()));
  }
}

}  // namespace convolume::bench
