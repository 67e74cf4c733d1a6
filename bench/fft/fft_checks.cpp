#include "bench/fft/fft_checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "bench/common/contest.hpp"
#include "bench/fft/fft_options.hpp"
#include "bench/fft/fft_report.hpp"
#include "core/random.hpp"

namespace convolume::bench {
namespace {

// A root mean square needs many points. Double has fewer, to keep the whole check short.
constexpr index_t float_points = index_t{1} << 18, double_points = index_t{1} << 16;
// Checks that compare two results, or use few inputs, allow this multiple of the accuracy bound.
constexpr double property_factor = 3;

index_t wanted_points(DataType type) { return type == DataType::f32 ? float_points : double_points; }

bool is_forward(fft::Kind kind) { return kind == fft::Kind::r2c || kind == fft::Kind::c2c_forward; }

/// A point that is stored on one side of a transform.
struct Point {
  Extent3 at;
  index_t index, mirror;  // in a dense full volume: the point, and the point at minus its coordinates
  index_t offset;         // in the buffer, in elements
  double weight;          // 2 if a half spectrum stores the point also for its mirror
};

index_t index_of(const Extent3& at, const Extent3& extent) { return (at.z * extent.y + at.y) * extent.x + at.x; }
Extent3 mirrored(const Extent3& at, const Extent3& extent) {
  const auto flip = [](index_t i, index_t n) { return i == 0 ? 0 : n - i; };
  return {flip(at.z, extent.z), flip(at.y, extent.y), flip(at.x, extent.x)};
}
Extent3 shifted(const Extent3& at, const Extent3& by, const Extent3& extent) {
  return {(at.z + by.z) % extent.z, (at.y + by.y) % extent.y, (at.x + by.x) % extent.x};
}

std::vector<Point> points_of(const Extent3& extent, index_t stored_x, const Extent3& stride) {
  std::vector<Point> points;
  Extent3 at{0, 0, 0};
  for (at.z = 0; at.z < extent.z; ++at.z) {
    for (at.y = 0; at.y < extent.y; ++at.y) {
      for (at.x = 0; at.x < stored_x; ++at.x) {
        const Extent3 mirror = mirrored(at, extent);
        points.push_back({at, index_of(at, extent), index_of(mirror, extent),
                          at.z * stride.z + at.y * stride.y + at.x * stride.x, mirror.x < stored_x ? 1.0 : 2.0});
      }
    }
  }
  return points;
}

/// One side of a plan, and where its numbers are.
struct Side {
  bool real;
  std::vector<Point> points;
  index_t distance;  // elements between volumes
};

Side space_side(const fft::Plan& plan) {
  const Extent3& e = plan.problem().extent;
  return {is_real(plan.problem().kind), points_of(e, e.x, {e.y * e.x, e.x, 1}), e.volume()};
}

Side spectrum_side(const fft::Plan& plan) {
  const Extent3& e = plan.problem().extent;
  const index_t stored = is_real(plan.problem().kind) ? e.x / 2 + 1 : e.x;
  return {false, points_of(e, stored, plan.spectrum_stride()), plan.spectrum_elements()};
}

/// A plan with its buffers.
template <class T>
class Transform {
 public:
  Transform(const fft::Problem& problem, fft::PrimeAlgorithm prime)
      : plan_(fft::Plan::make(problem, {.backend = fft::Backend::native, .prime = prime})),
        in_side_(is_forward(problem.kind) ? space_side(plan_) : spectrum_side(plan_)),
        out_side_(is_forward(problem.kind) ? spectrum_side(plan_) : space_side(plan_)),
        in_bytes_(is_forward(problem.kind) ? plan_.space_bytes() : plan_.spectrum_bytes()),
        in_(in_bytes_),
        out_(is_forward(problem.kind) ? plan_.spectrum_bytes() : plan_.space_bytes()),
        scratch_(plan_.scratch_bytes()) {
    // Memory that nobody writes holds NaN. Padding of the input holds huge finite numbers. Neither may reach a result.
    std::memset(in_.get(), 0x7E, in_.bytes());
    std::memset(out_.get(), 0xFF, out_.bytes());
    std::memset(scratch_.get(), 0xFF, scratch_.bytes());
  }

  const fft::Plan& plan() const { return plan_; }
  const Side& in() const { return in_side_; }
  const Side& out() const { return out_side_; }

  /// Transforms the input with the points value(volume, point).
  template <class Value>
  void execute(const Value& value) {
    for (index_t b = 0; b < plan_.problem().batch; ++b) {
      for (const Point& point : in_side_.points) {
        const Wide v = value(b, point);
        T* at = element(in_, in_side_, b, point);
        at[0] = static_cast<T>(v.real());
        if (!in_side_.real) at[1] = static_cast<T>(v.imag());
      }
    }
    plan_.execute(in_.get(), out_.get(), scratch_.get());
  }

  /// Transforms the result of another transform.
  void execute_on_result(const Transform& other) {
    std::memcpy(in_.get(), other.out_.get(), in_bytes_);
    plan_.execute(in_.get(), out_.get(), scratch_.get());
  }

  std::complex<double> input(index_t volume, const Point& point) const { return read(in_, in_side_, volume, point); }
  std::complex<double> result(index_t volume, const Point& point) const { return read(out_, out_side_, volume, point); }

 private:
  static T* element(const Buffer& buffer, const Side& side, index_t volume, const Point& point) {
    return static_cast<T*>(buffer.get()) + (side.real ? 1 : 2) * (volume * side.distance + point.offset);
  }
  static std::complex<double> read(const Buffer& buffer, const Side& side, index_t volume, const Point& point) {
    const T* at = element(buffer, side, volume, point);
    return {static_cast<double>(at[0]), side.real ? 0.0 : static_cast<double>(at[1])};
  }

  fft::Plan plan_;
  Side in_side_, out_side_;
  std::size_t in_bytes_;
  Buffer in_, out_, scratch_;
};

/// The part of the inputs that one execution uses.
struct Sample {
  index_t block;
  bool second;  // the second of the two real or Hermitian inputs in a complex one
};

/// Squared distance and squared length, summed over points.
class Distance {
 public:
  void add(const Wide& found, const Wide& wanted, double weight) {
    off_ += weight * norm(found - wanted);
    length_ += weight * norm(wanted);
  }
  double relative() const { return static_cast<double>(std::sqrt(off_ / length_)); }

 private:
  static long double norm(const Wide& v) { return v.real() * v.real() + v.imag() * v.imag(); }
  long double off_ = 0, length_ = 0;
};

Wide product(const Wide& a, const Wide& b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

/// Returns (a + conj b) / 2, or (a - conj b) / 2i: the two parts whose transforms are real.
Wide hermitian_part(const Wide& a, const Wide& b, bool second) {
  if (!second) return {(a.real() + b.real()) / 2, (a.imag() - b.imag()) / 2};
  return {(a.imag() + b.imag()) / 2, (b.real() - a.real()) / 2};
}

/// Returns the bound of the relative error. Smooth lengths round least. The algorithms for large primes round more.
double accuracy_bound(const fft::Plan& plan) {
  const Extent3& e = plan.problem().extent;
  const index_t prime = std::max({largest_prime_factor(e.z), largest_prime_factor(e.y), largest_prime_factor(e.x)});
  const std::string text = plan.describe();
  const auto names = [&](const char* word) { return text.find(word) != std::string::npos; };
  double factor = 0.35;
  if (prime >= 13) factor = 0.40;
  if (prime > 13 && (!names("generic") || names("rader") || names("bluestein"))) factor = 0.7;
  // Without fused multiply-adds every product is rounded once more.
  if (names("SSE4") || names("SCALAR") || names("EMU128")) factor *= 1.25;
  const double epsilon = plan.problem().type == DataType::f32 ? 0x1p-23 : 0x1p-52;
  return epsilon * std::max(0.5, factor * std::sqrt(std::log2(static_cast<double>(e.volume()))));
}

template <class T>
class Checker {
 public:
  Checker(const CheckInputs& inputs, const fft::Problem& problem, fft::PrimeAlgorithm prime)
      : inputs_(inputs), problem_(problem), prime_(prime), transform_(problem, prime) {
    bound_ = accuracy_bound(transform_.plan());
  }

  CheckReport run() {
    CheckReport report{.checks = {}, .plan = transform_.plan().describe()};
    report.checks.push_back({accuracy_name, accuracy(), bound_});
    const double loose = property_factor * bound_;
    if (is_forward(problem_.kind)) report.checks.push_back({"round trip", round_trip(), loose});
    report.checks.push_back({"linearity", linearity(), loose});
    report.checks.push_back({"impulse", impulse(), loose});
    report.checks.push_back({"shift", shift(), loose});
    report.checks.push_back({"Parseval", parseval(), loose});
    return report;
  }

 private:
  using Values = std::vector<std::complex<double>>;

  const Extent3& extent() const { return problem_.extent; }

  Wide input(const Sample& sample, index_t volume, index_t index, index_t mirror) const {
    const Wide* x = inputs_.values(sample.block, volume);
    if (problem_.kind == fft::Kind::r2c) return sample.second ? x[index].imag() : x[index].real();
    if (problem_.kind == fft::Kind::c2r) return hermitian_part(x[index], x[mirror], sample.second);
    return x[index];
  }

  Wide expected(const Sample& sample, index_t volume, const Point& point) const {
    const Wide* y = inputs_.transforms(sample.block, volume);
    switch (problem_.kind) {
      case fft::Kind::r2c:
        return hermitian_part(y[point.index], y[point.mirror], sample.second);
      case fft::Kind::c2r:
        return sample.second ? y[point.mirror].imag() : y[point.mirror].real();
      case fft::Kind::c2c_forward:
        return y[point.index];
      case fft::Kind::c2c_backward:
        break;
    }
    return y[point.mirror];  // the backward transform is the forward one at the mirrored point
  }

  void execute(const Sample& sample) {
    transform_.execute([&](index_t b, const Point& p) { return input(sample, b, p.index, p.mirror); });
  }

  template <class Body>
  void for_each_result(const Body& body) const {
    for (index_t b = 0; b < problem_.batch; ++b) {
      for (const Point& point : transform_.out().points) body(b, point, transform_.result(b, point));
    }
  }

  Values results() const {
    Values values;
    for_each_result([&](index_t, const Point&, std::complex<double> v) { values.push_back(v); });
    return values;
  }

  double accuracy() {
    const index_t wanted = wanted_points(problem_.type);
    const index_t each = inputs_.points() * inputs_.batch();
    Distance distance;
    index_t seen = 0;
    for (index_t block = 0; block < inputs_.blocks() && seen < wanted; ++block) {
      for (const bool second : {false, true}) {
        if (second && !is_real(problem_.kind)) continue;
        const Sample sample{block, second};
        execute(sample);
        for_each_result([&](index_t b, const Point& point, const std::complex<double>& found) {
          distance.add(found, expected(sample, b, point), point.weight);
        });
        seen += each;
      }
    }
    return distance.relative();
  }

  double round_trip() {
    execute({0, false});
    fft::Problem back = problem_;
    back.kind = problem_.kind == fft::Kind::r2c ? fft::Kind::c2r : fft::Kind::c2c_backward;
    Transform<T> inverse(back, prime_);
    inverse.execute_on_result(transform_);
    Distance distance;
    const auto scale = static_cast<double>(inputs_.points());
    for (index_t b = 0; b < problem_.batch; ++b) {
      for (const Point& p : inverse.out().points) {
        distance.add(inverse.result(b, p) / scale, input({0, false}, b, p.index, p.mirror), 1);
      }
    }
    return distance.relative();
  }

  /// Checks that the transform of a mean is the mean of the transforms.
  double linearity() {
    const Sample a{0, false}, b = is_real(problem_.kind) ? Sample{0, true} : Sample{1, false};
    execute(a);
    const Values of_a = results();
    execute(b);
    const Values of_b = results();
    transform_.execute([&](index_t v, const Point& p) {
      return (input(a, v, p.index, p.mirror) + input(b, v, p.index, p.mirror)) / 2.0L;
    });
    Distance distance;
    std::size_t i = 0;
    for_each_result([&](index_t, const Point& p, const std::complex<double>& found) {
      distance.add(found, (of_a[i] + of_b[i]) / 2.0, p.weight);
      ++i;
    });
    return distance.relative();
  }

  /// Returns a random point for each volume.
  std::vector<Extent3> random_places(std::uint32_t purpose) const {
    const RandomKey key{.seed = 11, .a = static_cast<std::uint32_t>(inputs_.points()), .b = purpose};
    std::uint64_t drawn = 0;
    const auto draw = [&](index_t n) {
      return static_cast<index_t>(uniform_below(key, drawn++, static_cast<std::uint64_t>(n)));
    };
    std::vector<Extent3> places(static_cast<std::size_t>(problem_.batch));
    for (Extent3& place : places) {
      for (int axis = 0; axis < 3; ++axis) place[axis] = draw(extent()[axis]);
    }
    return places;
  }

  /// Returns exp(-+2 pi i a.b / n), with the sign of the transform.
  Wide wave(const Extent3& a, const Extent3& b) const {
    const Wide phase = inputs_.reference().phase(a, b);
    return is_forward(problem_.kind) ? phase : std::conj(phase);
  }

  /// Checks that a single point becomes one wave. In a half spectrum the mirror of the point is set too, and the result
  /// is a cosine.
  double impulse() {
    const bool hermitian = problem_.kind == fft::Kind::c2r;
    const std::vector<Extent3> places = random_places(1);
    transform_.execute([&](index_t b, const Point& p) {
      const index_t place = index_of(places[static_cast<std::size_t>(b)], extent());
      return Wide(p.index == place || (hermitian && p.mirror == place) ? 1 : 0);
    });
    Distance distance;
    for (index_t b = 0; b < problem_.batch; ++b) {
      const Extent3& place = places[static_cast<std::size_t>(b)];
      const bool twice = hermitian && !(mirrored(place, extent()) == place);
      for (const Point& p : transform_.out().points) {
        Wide wanted = wave(place, p.at);
        if (hermitian) wanted = (twice ? 2 : 1) * wanted.real();
        distance.add(transform_.result(b, p), wanted, p.weight);
      }
    }
    return distance.relative();
  }

  double shift() {
    const std::vector<Extent3> by = random_places(2);
    execute({0, false});
    const Values still = results();
    return problem_.kind == fft::Kind::c2r ? shift_of_result(by, still) : shift_of_input(by, still);
  }

  /// Checks that a shift of the input multiplies the result by a wave.
  double shift_of_input(const std::vector<Extent3>& by, const Values& still) {
    transform_.execute([&](index_t b, const Point& p) {
      const Extent3 from = shifted(p.at, by[static_cast<std::size_t>(b)], extent());
      return input({0, false}, b, index_of(from, extent()), index_of(mirrored(from, extent()), extent()));
    });
    Distance distance;
    std::size_t i = 0;
    for_each_result([&](index_t b, const Point& p, const std::complex<double>& found) {
      distance.add(found, product(still[i++], std::conj(wave(by[static_cast<std::size_t>(b)], p.at))), p.weight);
    });
    return distance.relative();
  }

  /// Checks that a product of the input with a wave shifts the result. This form is for spectra that must remain
  /// spectra of real volumes.
  double shift_of_result(const std::vector<Extent3>& by, const Values& still) {
    transform_.execute([&](index_t b, const Point& p) {
      return product(input({0, false}, b, p.index, p.mirror), wave(by[static_cast<std::size_t>(b)], p.at));
    });
    Distance distance;
    for_each_result([&](index_t b, const Point& p, const std::complex<double>& found) {
      const Extent3 from = shifted(p.at, by[static_cast<std::size_t>(b)], extent());
      distance.add(found, still[static_cast<std::size_t>(b * inputs_.points() + index_of(from, extent()))], 1);
    });
    return distance.relative();
  }

  /// Checks that both sides have the same energy, up to the number of points.
  double parseval() {
    execute({1, false});
    long double in = 0, out = 0;
    for (index_t b = 0; b < problem_.batch; ++b) {
      for (const Point& p : transform_.in().points) in += p.weight * std::norm(transform_.input(b, p));
    }
    for_each_result([&](index_t, const Point& p, const std::complex<double>& v) { out += p.weight * std::norm(v); });
    in *= static_cast<long double>(inputs_.points());
    return static_cast<double>(std::abs(out - in) / in);
  }

  const CheckInputs& inputs_;
  fft::Problem problem_;
  fft::PrimeAlgorithm prime_;
  Transform<T> transform_;
  double bound_;
};

}  // namespace

CheckInputs::CheckInputs(const Extent3& extent, index_t batch, DataType type, Use use)
    : extent_(extent),
      batch_(batch),
      points_(extent.volume()),
      blocks_(std::max<index_t>(2, (wanted_points(type) + points_ * batch - 1) / (points_ * batch))),
      reference_(extent),
      values_(static_cast<std::size_t>(blocks_ * batch * points_)) {
  for (index_t volume = 0; volume < blocks_ * batch; ++volume) {
    draw(&values_[static_cast<std::size_t>(volume * points_)], static_cast<std::uint32_t>(volume), type, use);
  }
  transforms_ = values_;
  for (index_t volume = 0; volume < blocks_ * batch; ++volume) {
    reference_.forward(&transforms_[static_cast<std::size_t>(volume * points_)]);
  }
}

/// Draws multiples of 2^-23 or 2^-52 in [-1, 1). They use all bits of the type, and the sum of two of them is exact in
/// long double.
void CheckInputs::draw(Wide* volume, std::uint32_t stream, DataType type, Use use) const {
  const RandomKey key{.seed = 3, .a = static_cast<std::uint32_t>(points_), .b = stream};
  std::uint64_t drawn = 0;
  const auto number = [&] {
    const auto words = philox(key, drawn++);
    const std::uint64_t bits = (std::uint64_t{words[0]} << 32) | words[1];
    return type == DataType::f32 ? static_cast<long double>(bits >> 40) * 0x1p-23L - 1
                                 : static_cast<long double>(bits >> 11) * 0x1p-52L - 1;
  };
  const auto complex_number = [&](bool real) {
    const long double re = number();
    return Wide(re, real ? 0 : number());
  };
  for (const Point& point : points_of(extent_, extent_.x, {0, 0, 0})) {
    if (use == Use::complex_or_real_input) {
      volume[point.index] = complex_number(false);
    } else if (point.index <= point.mirror) {
      const bool real = point.index == point.mirror;
      const Wide h = complex_number(real), g = complex_number(real), i(0, 1);
      volume[point.mirror] = product(i, std::conj(g)) + std::conj(h);
      volume[point.index] = product(i, g) + h;
    }
  }
}

const Wide* CheckInputs::values(index_t block, index_t volume) const {
  return &values_[static_cast<std::size_t>((block * batch_ + volume) * points_)];
}

const Wide* CheckInputs::transforms(index_t block, index_t volume) const {
  return &transforms_[static_cast<std::size_t>((block * batch_ + volume) * points_)];
}

CheckReport check(const CheckInputs& inputs, const fft::Problem& problem, fft::PrimeAlgorithm prime) {
  if (problem.type == DataType::f32) return Checker<float>(inputs, problem, prime).run();
  return Checker<double>(inputs, problem, prime).run();
}

}  // namespace convolume::bench
