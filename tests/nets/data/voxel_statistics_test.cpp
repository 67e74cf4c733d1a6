#include "nets/data/voxel_statistics.hpp"

#include <cmath>
#include <cstring>

#include <catch2/catch.hpp>

#include "core/random.hpp"
#include "nets/data/intensity.hpp"
#include "nets/data/label_summary.hpp"

namespace convolume::nets {
namespace {

/// Returns a volume of type T whose voxels value(i) gives.
template <class T, class F>
StoredVolume made_of(index_t channels, const Extent3& extent, io::VoxelType type, const F& value) {
  StoredVolume volume(channels, extent, type, std::pmr::get_default_resource());
  for (index_t i = 0; i < volume.elements(); ++i) {
    const auto voxel = static_cast<T>(value(i));
    std::memcpy(const_cast<std::byte*>(volume.stored(i)), &voxel, sizeof voxel);
  }
  return volume;
}

double noise(index_t i) { return normal({.seed = 11}, static_cast<std::uint64_t>(i)); }

/// Returns the same voxels in pieces of whole blocks, as a file would give them.
VoxelPieces in_pieces(const StoredVolume& volume, const Extent3& chunk) {
  io::VolumeInfo info;
  info.channels = volume.shape().c;
  info.extent = volume.shape().extent;
  info.type = volume.type();
  info.chunk = chunk;
  return pieces_of(info, {{0, 0, 0}, info.extent}, 1, [&volume](const io::VoxelBox& box) {
    StoredVolume part(volume.shape().c, box.extent, volume.type(), std::pmr::get_default_resource());
    part.copy_overlap(volume, {{0, 0, 0}, volume.shape().extent}, box);
    return part;
  });
}

/// numpy.percentile(values, percent), computed from sorted values.
double percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double rank = percent / 100 * static_cast<double>(values.size() - 1);
  const auto lower = static_cast<std::size_t>(rank);
  const double a = values[lower], b = values[std::min(lower + 1, values.size() - 1)];
  const double t = rank - static_cast<double>(lower);
  return t < 0.5 ? a + (b - a) * t : b - (b - a) * (1 - t);
}

}  // namespace

TEST_CASE("statistics agree with plain sums, and have the same bits in pieces and on any threads", "[statistics]") {
  const Extent3 extent{70, 90, 131};
  const StoredVolume volume =
      made_of<std::int16_t>(2, extent, io::VoxelType::int16, [](index_t i) { return std::round(300 * noise(i)); });
  const auto n = static_cast<double>(extent.volume());
  for (const bool nonzero : {false, true}) {
    const StatisticsOptions options{.nonzero = nonzero, .slices = true, .clip = {{-200, 100}, {-1e9, 1e9}}};
    const auto whole = statistics_of(pieces_of(volume), options, nullptr);
    REQUIRE(whole);
    REQUIRE(whole->channels.size() == 2);
    REQUIRE(whole->slices.size() == 140);
    for (index_t c = 0; c < 2; ++c) {
      double count = 0, sum = 0, squares = 0, slice = 0, in_slice = 0;
      std::vector<double> values;
      for (index_t i = 0; i < extent.volume(); ++i) {
        const auto stored = static_cast<double>(volume.value(c * extent.volume() + i));
        if (nonzero && stored == 0) continue;
        values.push_back(c == 0 ? std::clamp(stored, -200.0, 100.0) : stored);
        count += 1;
        sum += values.back();
        if (i / (90 * 131) == 69) {
          slice += values.back();
          in_slice += 1;
        }
      }
      for (const double v : values) squares += (v - sum / count) * (v - sum / count);
      const auto& channel = whole->channels[static_cast<std::size_t>(c)];
      CHECK(channel.moments.count == count);
      CHECK((count < n) == nonzero);
      CHECK(channel.moments.mean == Approx(sum / count).epsilon(1e-12));
      CHECK(channel.moments.deviation() == Approx(std::sqrt(squares / count)).epsilon(1e-11));
      CHECK(whole->slices[static_cast<std::size_t>(c * 70 + 69)].mean == Approx(slice / in_slice).epsilon(1e-12));
      CHECK(channel.least == *std::min_element(values.begin(), values.end()));
      CHECK(channel.largest == *std::max_element(values.begin(), values.end()));
    }
    Scheduler scheduler(3);
    for (const Extent3 chunk : {Extent3{1, 90, 131}, Extent3{64, 64, 64}, Extent3{100, 7, 65}}) {
      const auto pieces = statistics_of(in_pieces(volume, chunk), options, &scheduler);
      REQUIRE(pieces);
      CHECK(pieces->digest == whole->digest);
      for (std::size_t c = 0; c < 2; ++c) {
        CHECK(pieces->channels[c].moments.mean == whole->channels[c].moments.mean);
        CHECK(pieces->channels[c].moments.squares == whole->channels[c].moments.squares);
      }
      for (std::size_t z = 0; z < 140; ++z) CHECK(pieces->slices[z].squares == whole->slices[z].squares);
    }
  }
}

TEST_CASE("a digest is of each voxel, of the type and of the extent", "[statistics]") {
  const auto digest = [](const StoredVolume& volume) { return statistics_of(pieces_of(volume), {}, nullptr)->digest; };
  const auto zeros = [](index_t) { return 0; };
  const auto first = digest(made_of<std::uint8_t>(1, {3, 70, 5}, io::VoxelType::uint8, zeros));
  CHECK(digest(made_of<std::uint8_t>(1, {3, 70, 5}, io::VoxelType::uint8, zeros)) == first);
  CHECK(digest(made_of<std::int8_t>(1, {3, 70, 5}, io::VoxelType::int8, zeros)) != first);
  CHECK(digest(made_of<std::uint8_t>(1, {3, 5, 70}, io::VoxelType::uint8, zeros)) != first);
  for (const index_t changed : {0, 349, 1049}) {
    const auto one = [changed](index_t i) { return i == changed ? 1 : 0; };
    CHECK(digest(made_of<std::uint8_t>(1, {3, 70, 5}, io::VoxelType::uint8, one)) != first);
  }
}

TEST_CASE("percentiles are those of numpy, for every type and over several volumes", "[statistics]") {
  const std::vector<double> percents{0, 0.5, 33.3, 50, 99.5, 100};
  const auto check = [&]<class T>(T, io::VoxelType type, double scale) {
    const auto value = [scale](index_t i) {
      return std::is_unsigned_v<T> ? std::abs(scale * noise(i)) : scale * noise(i);
    };
    const StoredVolume a = made_of<T>(1, {5, 40, 66}, type, value);
    const StoredVolume b = made_of<T>(1, {1, 1, 7}, type, [&](index_t i) { return i < 3 ? 0.0 : 2 * value(i); });
    for (const bool nonzero : {false, true}) {
      std::vector<double> values;
      for (const StoredVolume* volume : {&a, &b}) {
        for (index_t i = 0; i < volume->elements(); ++i) {
          T voxel;
          std::memcpy(&voxel, volume->stored(i), sizeof voxel);
          if (!nonzero || voxel != T{0}) values.push_back(static_cast<double>(voxel));
        }
      }
      Scheduler scheduler(2);
      const VoxelPieces volumes[] = {in_pieces(a, {1, 40, 66}), pieces_of(b)};
      const auto found = percentiles_of(volumes, 0, percents, nonzero, &scheduler);
      REQUIRE(found);
      for (std::size_t i = 0; i < percents.size(); ++i) CHECK((*found)[i] == percentile(values, percents[i]));
    }
  };
  check(std::uint8_t{}, io::VoxelType::uint8, 50);
  check(std::int16_t{}, io::VoxelType::int16, 5000);
  check(std::int32_t{}, io::VoxelType::int32, 1e8);
  check(std::uint32_t{}, io::VoxelType::uint32, 1e8);
  check(std::int64_t{}, io::VoxelType::int64, 1e12);
  check(std::uint64_t{}, io::VoxelType::uint64, 1e12);
  check(float{}, io::VoxelType::float32, 3);
  check(double{}, io::VoxelType::float64, 3);
  const StoredVolume zeros = made_of<float>(1, {1, 1, 4}, io::VoxelType::float32, [](index_t) { return 0; });
  const VoxelPieces none[] = {pieces_of(zeros)};
  CHECK(std::isnan((*percentiles_of(none, 0, percents, true, nullptr))[0]));
}

TEST_CASE("each way to normalise does what it says", "[statistics]") {
  const Extent3 extent{4, 9, 10};
  const auto scaled = [&](const IntensitySpec& spec) {
    StoredVolume volume = made_of<std::uint16_t>(1, extent, io::VoxelType::uint16,
                                                 [](index_t i) { return (i * 37) % 360 < 100 ? 0 : (i * 37) % 360; });
    normalise(volume, spec);
    std::vector<double> values;
    for (index_t i = 0; i < volume.elements(); ++i) values.push_back(static_cast<double>(volume.value(i)));
    return values;
  };
  const auto mean_of = [](const std::vector<double>& v, std::size_t first, std::size_t count) {
    double sum = 0;
    for (std::size_t i = first; i < first + count; ++i) sum += v[i];
    return sum / static_cast<double>(count);
  };
  const auto plain = scaled({.normalise = Normalise::none});
  CHECK(*std::max_element(plain.begin(), plain.end()) == 359);
  const auto slices = scaled({.normalise = Normalise::slice});
  for (std::size_t z = 0; z < 4; ++z) CHECK(mean_of(slices, z * 90, 90) == Approx(0).margin(1e-6));
  const auto min_max = scaled({.normalise = Normalise::min_max});
  CHECK(*std::min_element(min_max.begin(), min_max.end()) == 0);
  CHECK(*std::max_element(min_max.begin(), min_max.end()) == Approx(1));
  // The 10th percentile is 0 and the 90th is 323.1, as numpy.percentile() says.
  const IntensitySpec percentiles{.normalise = Normalise::percentiles, .percentiles = {10, 90}};
  const auto stretched = scaled(percentiles);
  CHECK(*std::max_element(stretched.begin(), stretched.end()) == Approx(359 / 323.1).epsilon(1e-6));
  IntensitySpec clipped = percentiles;
  clipped.clip = true;
  const auto limited = scaled(clipped);
  CHECK(*std::max_element(limited.begin(), limited.end()) == Approx(1));
  // Without the zeros, the least voxel is 100.
  const auto of_foreground = scaled({.normalise = Normalise::min_max, .nonzero = true});
  for (std::size_t i = 0; i < plain.size(); ++i) {
    REQUIRE(of_foreground[i] == Approx((plain[i] - 100) / (359 - 100)).margin(1e-6));
  }
  StoredVolume flat =
      made_of<std::uint8_t>(1, extent, io::VoxelType::uint8, [](index_t i) { return i % 3 == 0 ? 7 : 0; });
  CHECK_THROWS_WITH(normalise(flat, {.nonzero = true}), Catch::Contains("7"));
  // Without the zeros, the voxels that are not 0 have mean 0.
  const auto foreground = scaled({.nonzero = true});
  double sum = 0;
  for (std::size_t i = 0; i < foreground.size(); ++i) sum += plain[i] != 0 ? foreground[i] : 0;
  CHECK(sum == Approx(0).margin(1e-3));
}

TEST_CASE("settings of intensities are kept in a text", "[statistics]") {
  const IntensitySpec spec{.normalise = Normalise::dataset, .percentiles = {1, 98.7}, .clip = true, .nonzero = true};
  const VolumeScaling scaling{{{.shift = 0.1, .scale = 1.0 / 3, .low = -1, .high = 7}, {}}, 0};
  const auto [read, read_scaling] = parse_intensity(intensity_text(spec, scaling), "x");
  CHECK(read == spec);
  CHECK(read_scaling.list == scaling.list);
  CHECK_THROWS_WITH(parse_intensity("volume", "run/x.safetensors"),
                    Catch::Contains("run/x.safetensors: normalisation"));
  CHECK_THROWS_AS(parse_intensity(R"({"normalise":"dataset","percentiles":[0,1],"clip":false,"nonzero":false})", "x"),
                  FormatError);
}

TEST_CASE("labels are counted, and positions of classes are found whatever the pieces", "[statistics]") {
  const Extent3 extent{65, 66, 90};
  const auto value = [](index_t i) { return i % 1000 == 5 ? 3 : i % 7 == 0 ? 2 : i == 77 ? 9 : i % 2; };
  const StoredVolume labels = made_of<std::uint8_t>(1, extent, io::VoxelType::uint8, value);
  const auto whole = summarise_labels(pieces_of(labels), {}, nullptr);
  REQUIRE(whole);
  REQUIRE(whole->classes.size() == 4);
  std::vector<std::uint64_t> counts(10);
  std::vector<std::uint64_t> third;
  for (index_t i = 0; i < extent.volume(); ++i) {
    ++counts[static_cast<std::size_t>(value(i))];
    if (value(i) == 3) third.push_back(static_cast<std::uint64_t>(i));
  }
  for (std::size_t c = 0; c < 4; ++c) CHECK(whole->classes[c].count == counts[c]);
  CHECK(whole->classes[0].positions.empty());
  CHECK(whole->classes[3].positions == third);
  for (const std::size_t c : {1, 2}) {
    const auto& positions = whole->classes[c].positions;
    CHECK(positions.size() == most_positions);
    CHECK(std::is_sorted(positions.begin(), positions.end()));
    CHECK(std::adjacent_find(positions.begin(), positions.end()) == positions.end());
    const bool right = std::all_of(positions.begin(), positions.end(), [&](std::uint64_t i) {
      return value(static_cast<index_t>(i)) == static_cast<index_t>(c);
    });
    CHECK(right);
    // Positions come from everywhere.
    const auto middle = static_cast<std::uint64_t>(extent.volume() / 2);
    const auto lower = std::count_if(positions.begin(), positions.end(), [&](std::uint64_t i) { return i < middle; });
    CHECK(std::abs(static_cast<double>(lower) - 5000) < 300);
  }
  CHECK_FALSE(whole->not_listed);
  CHECK_FALSE(whole->not_whole);
  CHECK(whole->largest == FoundVoxel{5, 3});
  CHECK(whole->not_unit == FoundVoxel{0, 2});
  Scheduler scheduler(3);
  CHECK(summarise_labels(in_pieces(labels, {1, 66, 90}), {}, &scheduler) == whole);
}

}  // namespace convolume::nets
