#include <algorithm>
#include <new>

#include <blosc.h>
#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include "nets/io/volume_formats.hpp"
#include "nets/io/zarr_metadata.hpp"

namespace convolume::nets::io::detail {
namespace {

[[noreturn]] void fail(const std::string& file, const std::string& found) {
  fail_format(file, "chunk", found, "the file is truncated or damaged; write or copy it again");
}

/// Decodes one zlib or gzip stream that must fill `voxels` and end there.
void inflate_all(const std::string& file, std::span<const std::byte> stored, std::span<std::byte> voxels) {
  z_stream stream{};
  constexpr int zlib_or_gzip = 32 + MAX_WBITS;
  if (inflateInit2(&stream, zlib_or_gzip) != Z_OK) throw std::bad_alloc();
  // Chunks have less than 4 GiB, the number that zlib can count. zlib does not write to its input.
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(stored.data()));
  stream.avail_in = static_cast<uInt>(stored.size());
  stream.next_out = reinterpret_cast<Bytef*>(voxels.data());
  stream.avail_out = static_cast<uInt>(voxels.size());
  const int result = inflate(&stream, Z_FINISH);
  const std::size_t missing = stream.avail_out;
  inflateEnd(&stream);
  if (result == Z_STREAM_END && missing == 0) return;
  fail(file, result == Z_STREAM_END
                 ? fmt::format("decodes to {} bytes instead of {}", voxels.size() - missing, voxels.size())
                 : "is no complete zlib stream of the right size");
}

void decode_zstd(const std::string& file, std::span<const std::byte> stored, std::span<std::byte> voxels) {
  const std::size_t got = ZSTD_decompress(voxels.data(), voxels.size(), stored.data(), stored.size());
  if (ZSTD_isError(got)) fail(file, fmt::format("Zstandard: {}", ZSTD_getErrorName(got)));
  if (got != voxels.size()) fail(file, fmt::format("decodes to {} bytes instead of {}", got, voxels.size()));
}

void decode_blosc(const std::string& file, std::span<const std::byte> stored, std::span<std::byte> voxels) {
  std::size_t bytes = 0;
  if (stored.size() < BLOSC_MIN_HEADER_LENGTH || blosc_cbuffer_validate(stored.data(), stored.size(), &bytes) < 0) {
    fail(file, "is no valid Blosc buffer");
  }
  if (bytes != voxels.size()) fail(file, fmt::format("decodes to {} bytes instead of {}", bytes, voxels.size()));
  const int got = blosc_decompress_ctx(stored.data(), voxels.data(), voxels.size(), 1);
  if (got < 0 || static_cast<std::size_t>(got) != voxels.size()) fail(file, fmt::format("Blosc: error {}", got));
}

}  // namespace

std::size_t most_decoded_bytes(const ZarrCodec& codec, std::span<const std::byte> stored) {
  constexpr std::size_t deflate_ratio = 1032, some = 64;
  switch (codec.kind) {
    case ZarrCodec::Kind::raw:
      return stored.size();
    case ZarrCodec::Kind::zlib:
    case ZarrCodec::Kind::gzip:
      return stored.size() * deflate_ratio + some;
    case ZarrCodec::Kind::zstd:
    case ZarrCodec::Kind::blosc:
      break;
  }
  return stored.size() * largest_compression_ratio;
}

std::size_t most_encoded_bytes(std::size_t bytes) noexcept {
  // Each of the codecs adds less than this to what cannot be compressed.
  return bytes + bytes / 64 + 4096;
}

void decode_chunk(const ZarrCodec& codec, const std::string& file, std::span<const std::byte> stored,
                  std::span<std::byte> voxels) {
  switch (codec.kind) {
    case ZarrCodec::Kind::raw:
      if (stored.size() != voxels.size()) {
        fail(file, fmt::format("has {} bytes instead of {}", stored.size(), voxels.size()));
      }
      std::copy(stored.begin(), stored.end(), voxels.begin());
      return;
    case ZarrCodec::Kind::zlib:
    case ZarrCodec::Kind::gzip:
      return inflate_all(file, stored, voxels);
    case ZarrCodec::Kind::zstd:
      return decode_zstd(file, stored, voxels);
    case ZarrCodec::Kind::blosc:
      return decode_blosc(file, stored, voxels);
  }
}

std::vector<std::byte> encode_chunk(const ZarrCodec& codec, const std::string& file, std::span<const std::byte> voxels,
                                    std::size_t voxel_bytes) {
  if (codec.kind == ZarrCodec::Kind::raw) return {voxels.begin(), voxels.end()};
  if (codec.kind == ZarrCodec::Kind::blosc) {
    std::vector<std::byte> out(voxels.size() + BLOSC_MAX_OVERHEAD);
    const int got = blosc_compress_ctx(codec.level, codec.shuffle, voxel_bytes, voxels.size(), voxels.data(),
                                       out.data(), out.size(), codec.blosc_name.c_str(), 0, 1);
    if (got <= 0) throw IoError(fmt::format("{}: encoding with Blosc failed: error {}", file, got));
    out.resize(static_cast<std::size_t>(got));
    return out;
  }
  std::vector<std::byte> out(ZSTD_compressBound(voxels.size()));
  const std::size_t got = ZSTD_compress(out.data(), out.size(), voxels.data(), voxels.size(), codec.level);
  if (ZSTD_isError(got)) {
    throw IoError(fmt::format("{}: encoding with Zstandard failed: {}", file, ZSTD_getErrorName(got)));
  }
  out.resize(got);
  return out;
}

}  // namespace convolume::nets::io::detail
