#include "nets/report/event_files.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "core/files.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view prefix = "events.out.tfevents.";  // TensorBoard reads such files in the order of names
constexpr const char* loss_tag = "loss";

// Protocol buffers: a field is a key, which is 8 * number + type, and a value. Event has wall_time = 1, step = 2,
// file_version = 3, summary = 5; Summary has value = 1; Value has tag = 1, simple_value = 2.
constexpr char wall_time_key = 8 * 1 + 1, step_key = 8 * 2, file_version_key = 8 * 3 + 2, summary_key = 8 * 5 + 2;
constexpr char value_key = 8 * 1 + 2, tag_key = 8 * 1 + 2, simple_value_key = 8 * 2 + 5;
constexpr std::size_t wall_time_bytes = 1 + sizeof(double);

template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string field(char key, const std::string& content) { return key + varint(content.size()) + content; }

std::string scalar(const std::string& tag, double value) {
  return field(value_key, field(tag_key, tag) + simple_value_key + bytes_of(static_cast<float>(value)));
}

/// Returns the checksum of the TFRecord format: CRC32C (Castagnoli), rotated and with a constant added.
std::uint32_t masked_crc(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82F63B78 & (0 - (crc & 1)));
  }
  return std::rotr(~crc, 15) + 0xA282EAD8;
}

/// Returns an event of the present time as a TFRecord.
std::string record(const std::string& fields) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string event = wall_time_key + bytes_of(std::chrono::duration<double>(now).count()) + fields;
  const std::string size = bytes_of(std::uint64_t{event.size()});
  return size + bytes_of(masked_crc(size)) + event + bytes_of(masked_crc(event));
}

std::string record(std::int64_t iteration, const std::string& values) {
  return record(step_key + varint(static_cast<std::uint64_t>(iteration)) + field(summary_key, values));
}

}  // namespace

EventFiles::EventFiles(const fs::path& folder, bool resume) {
  std::error_code error;
  fs::create_directories(folder, error);
  std::vector<fs::path> earlier;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix)) earlier.push_back(at->path());
  }
  for (const fs::path& file : earlier) {
    if (resume) read(file);
    if (!resume && !error) fs::remove(file, error);
  }
  if (error) throw IoError(fmt::format("{}: opening the folder failed: {}", folder.string(), error.message()));
  std::size_t number = resume ? earlier.size() : 0;
  do {
    file_ = folder / fmt::format("{}{:06}", prefix, number++);
  } while (fs::exists(file_, error));
  stream_.open(file_, std::ios::binary);
  if (!stream_) throw IoError(fmt::format("{}: creating the file failed; check the permissions", file_.string()));
  append(record(field(file_version_key, "brain.Event:2")));
}

/// Notes what a file holds. The last record of a killed run may be incomplete; reading ends there.
void EventFiles::read(const fs::path& file) {
  const std::string text = read_file(file);
  std::string_view rest = text;
  const auto take = [&](auto& value) {
    if (rest.size() < sizeof value) return false;
    std::memcpy(&value, rest.data(), sizeof value);
    rest.remove_prefix(sizeof value);
    return true;
  };
  std::uint64_t size = 0;
  std::uint32_t crc = 0;  // of the size, then of the event
  while (take(size) && take(crc) && crc == masked_crc(bytes_of(size)) && size <= rest.size()) {
    const std::string_view event = rest.substr(0, size);
    rest.remove_prefix(size);
    if (!take(crc) || crc != masked_crc(event)) break;
    if (size <= wall_time_bytes || event[wall_time_bytes] != step_key) continue;  // the file's version
    std::int64_t iteration = 0;
    std::size_t at = wall_time_bytes + 1;
    for (int shift = 0; at < size && shift < 63; shift += 7) {
      iteration |= std::int64_t{event[at] & 0x7F} << shift;
      if ((event[at++] & 0x80) == 0) break;
    }
    const bool loss = event.find(field(tag_key, loss_tag)) != event.npos;
    if (loss) last_loss_ = std::max(last_loss_, iteration);
    if (!loss) validated_.insert(iteration);
  }
}

void EventFiles::append(const std::string& records) {
  stream_ << records << std::flush;
  if (!stream_) throw IoError(fmt::format("{}: writing failed; free some space and resume the run", file_.string()));
}

void EventFiles::update(const RunLog& log) {
  std::string records;
  const auto written = [&](const LossPoint& point) { return point.iteration <= last_loss_; };
  auto loss = std::partition_point(log.losses().begin(), log.losses().end(), written);
  for (; loss != log.losses().end(); ++loss) {
    records += record(loss->iteration, scalar(loss_tag, loss->loss));
    last_loss_ = loss->iteration;
  }
  auto validation = log.validations().end();
  while (validation != log.validations().begin() && !validated_.contains(std::prev(validation)->iteration)) {
    --validation;
  }
  for (; validation != log.validations().end(); ++validation) {
    std::string values;
    for (const Score& score : validation->scores.values) {
      if (!std::isnan(score.value)) values += scalar("validation/" + score.name, score.value);
    }
    records += record(validation->iteration, values);
    validated_.insert(validation->iteration);
  }
  if (!records.empty()) append(records);
}

}  // namespace convolume::nets
