#include "bench/peers/peer_process.hpp"

#include <filesystem>

#include <fmt/format.h>

#include "convolume/error.hpp"

namespace convolume::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* python = CONVOLUME_PEERS_PYTHON;

std::vector<std::string> command(const std::string& script, const std::vector<std::string>& arguments) {
  if (!std::filesystem::exists(python)) {
    throw Unsupported("build/peers is missing; tools/install_packages.sh --peers makes it");
  }
  // -B prevents compiled copies of scripts in the source folders.
  std::vector<std::string> words{python, "-B", fmt::format("{}/{}", CONVOLUME_BENCH_PEERS, script)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace

std::string to_string(const PeerFacts& facts) {
  std::string text = facts.version;
  if (facts.threads > 0) text += fmt::format(", {} thread{}", facts.threads, facts.threads == 1 ? "" : "s");
  if (!facts.blas.empty()) text += ", BLAS: " + facts.blas;
  if (!facts.onednn.empty()) text += ", oneDNN: " + facts.onednn;
  return text;
}

void add_to(Json& row, const PeerFacts& facts) {
  row.update(Json{{"version", facts.version}, {"blas", facts.blas}, {"onednn", facts.onednn}});
  if (facts.threads > 0) row["peer_threads"] = facts.threads;
}

PeerProcess::PeerProcess(const std::string& script, const std::vector<std::string>& arguments)
    : script_(script), process_(command(script, arguments)), start_(answer()) {
  facts_ = {.version = start_.at("version"),
            .threads = start_.value("threads", 0),
            .blas = start_.value("blas", ""),
            .onednn = start_.value("onednn", "")};
}

Json PeerProcess::ask(const std::string& command) {
  process_.write_line(command);
  return answer();
}

Json PeerProcess::answer() {
  const auto line = process_.read_line();
  if (!line) {
    throw PeerEnded(fmt::format("{} ended without an answer; it may have run out of memory", script_));
  }
  Json answer = Json::parse(*line, nullptr, false);
  if (!answer.is_object()) throw Unsupported(fmt::format("{} sent an unknown answer: '{}'", script_, *line));
  if (answer.contains("error")) throw Unsupported(answer["error"].get<std::string>());
  return answer;
}

}  // namespace convolume::bench
