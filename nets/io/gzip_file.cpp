#include "nets/io/gzip_file.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>
#include <zlib.h>

#include "convolume/error.hpp"

namespace convolume::nets::io::detail {
namespace {

constexpr std::size_t piece = std::size_t{256} << 10;

/// An inflate stream of zlib that reads a file piece by piece.
class Inflater {
 public:
  explicit Inflater(const ReadableFile& file) : file_(file), in_(piece) {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Returns the number of bytes decoded into `out`; 0 at the end of the file.
  std::size_t next(std::span<std::byte> out) {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out == out.size()) {
      if (stream_.avail_in == 0) refill();
      if (between_members_) {
        if (stream_.avail_in == 0) return 0;
        // A file may hold several gzip members, one behind the other.
        if (inflateReset(&stream_) != Z_OK) fail("its state is lost");
        between_members_ = false;
      }
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        between_members_ = true;
        ++members_;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        fail(members_ > 0 && stream_.total_out == 0 ? "something that is not gzip follows its end"
                                                    : (stream_.msg != nullptr ? stream_.msg : "damaged"));
      } else if (ended_ && stream_.avail_out == out.size()) {
        fail("it ends too early");
      }
    }
    return out.size() - stream_.avail_out;
  }

 private:
  [[noreturn]] void fail(const char* found) const {
    throw FormatError(fmt::format("{}: gzip: {} (at byte {}); the file is truncated or damaged, write or copy it again",
                                  file_.path().string(), found, at_ - stream_.avail_in));
  }
  void refill() {
    const std::size_t got = file_.read_at(at_, in_);
    at_ += got;
    ended_ = got == 0;  // the size of the file may have changed since it was opened
    stream_.next_in = reinterpret_cast<Bytef*>(in_.data());
    stream_.avail_in = static_cast<uInt>(got);
  }

  const ReadableFile& file_;
  std::vector<std::byte> in_;
  std::uint64_t at_ = 0;
  z_stream stream_{};
  bool between_members_ = false, ended_ = false;
  int members_ = 0;
};

}  // namespace

DecodedFile::DecodedFile(const ReadableFile& file, std::uint64_t in_memory, std::uint64_t most,
                         const std::filesystem::path& temporary_folder) {
  Inflater inflater(file);
  std::vector<std::byte> out(piece);
  for (std::size_t got = inflater.next(out); got > 0; got = inflater.next(out)) {
    if (size_ + got > most) {
      throw FormatError(
          fmt::format("{}: gzip: decodes to more than {} bytes, which its header declares; the file is "
                      "damaged",
                      file.path().string(), most));
    }
    append(std::span(out).first(got), in_memory, temporary_folder);
  }
}

void DecodedFile::append(std::span<const std::byte> bytes, std::uint64_t in_memory,
                         const std::filesystem::path& folder) {
  if (!file_ && size_ + bytes.size() > in_memory) {
    file_.emplace(ReadableFile::temporary(folder));
    for (std::uint64_t at = 0; at < size_; at += block_bytes) {
      file_->write_at(at, {blocks_[at / block_bytes].get(), std::min<std::size_t>(block_bytes, size_ - at)});
    }
    blocks_.clear();
  }
  if (file_) {
    file_->write_at(size_, bytes);
    size_ += bytes.size();
    return;
  }
  while (!bytes.empty()) {
    const std::size_t at = size_ % block_bytes;
    if (at == 0) blocks_.emplace_back(new std::byte[block_bytes]);
    const std::size_t now = std::min(bytes.size(), block_bytes - at);
    std::memcpy(blocks_.back().get() + at, bytes.data(), now);
    bytes = bytes.subspan(now);
    size_ += now;
  }
}

void DecodedFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  if (file_) {
    file_->read_at(offset, bytes);
    return;
  }
  while (!bytes.empty()) {
    const std::size_t at = offset % block_bytes, now = std::min(bytes.size(), block_bytes - at);
    std::memcpy(bytes.data(), blocks_[offset / block_bytes].get() + at, now);
    bytes = bytes.subspan(now);
    offset += now;
  }
}

struct GzipWriter::State {
  z_stream stream{};
  std::vector<std::byte> out = std::vector<std::byte>(piece);
};

GzipWriter::GzipWriter(AtomicFile& file) : file_(file), state_(std::make_unique<State>()) {
  // zlib's own gzip header has no time and no name.
  constexpr int level = 6, memory = 8;
  if (deflateInit2(&state_->stream, level, Z_DEFLATED, 16 + MAX_WBITS, memory, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
}
GzipWriter::~GzipWriter() { deflateEnd(&state_->stream); }

void GzipWriter::append(std::span<const std::byte> bytes) {
  constexpr std::size_t most = std::size_t{1} << 30;  // zlib counts in 32 bits
  for (; bytes.size() > most; bytes = bytes.subspan(most)) deflate_all(bytes.first(most), false);
  deflate_all(bytes, false);
}

void GzipWriter::finish() { deflate_all({}, true); }

void GzipWriter::deflate_all(std::span<const std::byte> bytes, bool last) {
  z_stream& stream = state_->stream;
  // zlib does not write to its input, but an older interface says that it may.
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  do {
    stream.next_out = reinterpret_cast<Bytef*>(state_->out.data());
    stream.avail_out = static_cast<uInt>(state_->out.size());
    deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);
    file_.append(std::span(state_->out).first(state_->out.size() - stream.avail_out));
  } while (stream.avail_out == 0);
}

}  // namespace convolume::nets::io::detail
