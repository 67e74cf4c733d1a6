#include "bench/fft/fft_competitors.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fftw3.h>
#include <fmt/format.h>

#include "bench/fft/fft_report.hpp"
#include "convolume/error.hpp"
#include "core/files.hpp"

namespace convolume::bench {
namespace {

class Ours final : public Competitor {
 public:
  Ours(const fft::Problem& problem, const fft::Options& options)
      : plan_(fft::Plan::make(problem, options)), scratch_(plan_.scratch_bytes()) {
    std::memset(scratch_.get(), 0, scratch_.bytes());
  }

  std::size_t in_bytes() const override {
    return to_space(plan_.problem().kind) ? plan_.spectrum_bytes() : plan_.space_bytes();
  }
  std::size_t out_bytes() const override {
    return to_space(plan_.problem().kind) ? plan_.space_bytes() : plan_.spectrum_bytes();
  }
  void bind(void* in, void* out) override {
    in_ = in;
    out_ = out;
  }
  void execute() override { plan_.execute(in_, out_, scratch_.get()); }

 private:
  fft::Plan plan_;
  Buffer scratch_;
  void *in_ = nullptr, *out_ = nullptr;
};

template <class T>
struct Api;

template <>
struct Api<float> {
  using Plan = fftwf_plan;
  using Complex = fftwf_complex;
  static constexpr auto r2c = fftwf_plan_dft_r2c_3d;
  static constexpr auto c2r = fftwf_plan_dft_c2r_3d;
  static constexpr auto c2c = fftwf_plan_dft_3d;
  static constexpr auto execute = fftwf_execute;
  static constexpr auto destroy = fftwf_destroy_plan;
  static constexpr auto export_wisdom = fftwf_export_wisdom_to_string;
  static constexpr auto import_wisdom = fftwf_import_wisdom_from_string;
  static constexpr auto forget_wisdom = fftwf_forget_wisdom;
};

template <>
struct Api<double> {
  using Plan = fftw_plan;
  using Complex = fftw_complex;
  static constexpr auto r2c = fftw_plan_dft_r2c_3d;
  static constexpr auto c2r = fftw_plan_dft_c2r_3d;
  static constexpr auto c2c = fftw_plan_dft_3d;
  static constexpr auto execute = fftw_execute;
  static constexpr auto destroy = fftw_destroy_plan;
  static constexpr auto export_wisdom = fftw_export_wisdom_to_string;
  static constexpr auto import_wisdom = fftw_import_wisdom_from_string;
  static constexpr auto forget_wisdom = fftw_forget_wisdom;
};

std::filesystem::path default_wisdom(DataType type) {
  const std::string name = "fftw-wisdom-" + precision_name(type);
  const auto variable = [](const char* key) -> std::optional<std::filesystem::path> {
    const char* value = std::getenv(key);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
  if (const auto cache = variable("XDG_CACHE_HOME")) return *cache / "convolume" / name;
  if (const auto home = variable("HOME")) return *home / ".cache" / "convolume" / name;
  return std::filesystem::temp_directory_path() / ("convolume-" + name);
}

void warn(const std::string& text) { std::fprintf(stderr, "bench_fft: warning: %s\n", text.c_str()); }

/// FFTW's wisdom of one rigor, in a file.
template <class T>
class Wisdom {
 public:
  explicit Wisdom(std::filesystem::path file) : file_(std::move(file)) {}

  /// Makes this the only wisdom that the planner knows.
  void activate() {
    if (!loaded_) load();
    Api<T>::forget_wisdom();
    if (!text_.empty()) Api<T>::import_wisdom(text_.c_str());
  }

  /// Takes over what the planner knows now.
  void update() {
    char* text = Api<T>::export_wisdom();
    if (text == nullptr) return;
    text_ = text;
    std::free(text);
    try {
      if (file_.has_parent_path()) std::filesystem::create_directories(file_.parent_path());
      write_file_atomically(file_, text_);
    } catch (const std::exception& error) {
      if (!warned_) warn(fmt::format("FFTW's plans are not kept for the next run: {}", error.what()));
      warned_ = true;
    }
  }

 private:
  void load() {
    loaded_ = true;
    std::error_code none;
    if (!std::filesystem::exists(file_, none)) return;
    try {
      text_ = read_file(file_, std::size_t{1} << 28);
    } catch (const Error& error) {
      warn(fmt::format("FFTW plans anew: {}", error.what()));
    }
    Api<T>::forget_wisdom();
    if (text_.empty() || Api<T>::import_wisdom(text_.c_str()) != 0) return;
    warn(fmt::format("{}: not wisdom of this version and precision of FFTW; planning anew", file_.string()));
    text_.clear();
  }

  std::filesystem::path file_;
  std::string text_;
  bool loaded_ = false, warned_ = false;
};

template <class T>
class Fftw final : public Competitor {
 public:
  /// If `wisdom` is null, plans are made anew.
  Fftw(fft::Kind kind, index_t n, unsigned rigor, Wisdom<T>* wisdom)
      : kind_(kind), n_(static_cast<int>(n)), rigor_(rigor), wisdom_(wisdom) {}
  ~Fftw() override {
    if (plan_ != nullptr) Api<T>::destroy(plan_);
  }

  std::size_t in_bytes() const override { return cube_bytes(kind_, data_type_of<T>(), n_).in; }
  std::size_t out_bytes() const override { return cube_bytes(kind_, data_type_of<T>(), n_).out; }

  void bind(void* in, void* out) override {
    if (wisdom_ != nullptr) {
      wisdom_->activate();
      plan_ = make(in, out, rigor_ | FFTW_WISDOM_ONLY);
      if (plan_ != nullptr) return;
    }
    plan_ = make(in, out, rigor_);
    if (plan_ == nullptr) throw Unsupported(fmt::format("FFTW made no plan for a cube of edge {}", n_));
    if (wisdom_ != nullptr) wisdom_->update();
  }
  void execute() override { Api<T>::execute(plan_); }

 private:
  using Complex = typename Api<T>::Complex;

  typename Api<T>::Plan make(void* in, void* out, unsigned flags) const {
    switch (kind_) {
      case fft::Kind::r2c:
        return Api<T>::r2c(n_, n_, n_, static_cast<T*>(in), static_cast<Complex*>(out), flags);
      case fft::Kind::c2r:
        return Api<T>::c2r(n_, n_, n_, static_cast<Complex*>(in), static_cast<T*>(out), flags);
      default:
        return Api<T>::c2c(n_, n_, n_, static_cast<Complex*>(in), static_cast<Complex*>(out),
                           kind_ == fft::Kind::c2c_forward ? FFTW_FORWARD : FFTW_BACKWARD, flags);
    }
  }

  fft::Kind kind_;
  int n_;
  unsigned rigor_;
  Wisdom<T>* wisdom_;
  typename Api<T>::Plan plan_ = nullptr;
};

}  // namespace

class FftwPlanner::Impl {
 public:
  virtual ~Impl() = default;
  virtual std::unique_ptr<Competitor> competitor(fft::Kind kind, index_t n, Implementation rigor) = 0;
};

namespace {

template <class T>
class PlannerOf final : public FftwPlanner::Impl {
 public:
  explicit PlannerOf(const std::filesystem::path& file) : measured_(file), patient_(file.string() + "-patient") {}

  std::unique_ptr<Competitor> competitor(fft::Kind kind, index_t n, Implementation rigor) override {
    const bool patient = rigor == Implementation::fftw_patient;
    return std::make_unique<Fftw<T>>(kind, n, patient ? FFTW_PATIENT : FFTW_MEASURE, patient ? &patient_ : &measured_);
  }

 private:
  Wisdom<T> measured_, patient_;
};

}  // namespace

FftwPlanner::FftwPlanner(DataType type, std::filesystem::path wisdom) {
  if (wisdom.empty()) wisdom = default_wisdom(type);
  if (type == DataType::f32) {
    impl_ = std::make_unique<PlannerOf<float>>(wisdom);
  } else {
    impl_ = std::make_unique<PlannerOf<double>>(wisdom);
  }
}
FftwPlanner::~FftwPlanner() = default;
FftwPlanner::FftwPlanner(FftwPlanner&&) noexcept = default;

std::unique_ptr<Competitor> FftwPlanner::competitor(fft::Kind kind, index_t n, Implementation rigor) {
  return impl_->competitor(kind, n, rigor);
}

std::unique_ptr<Competitor> native_contestant(const fft::Problem& problem, fft::PrimeAlgorithm prime) {
  return std::make_unique<Ours>(problem, fft::Options{.backend = fft::Backend::native, .prime = prime});
}

std::unique_ptr<Competitor> algorithm2_contestant(const fft::Problem& problem) {
  return std::make_unique<Ours>(problem, fft::Options{.backend = fft::Backend::fftw});
}

std::unique_ptr<Competitor> fftw_estimate_contestant(DataType type, fft::Kind kind, index_t n) {
  if (type == DataType::f32) return std::make_unique<Fftw<float>>(kind, n, FFTW_ESTIMATE, nullptr);
  return std::make_unique<Fftw<double>>(kind, n, FFTW_ESTIMATE, nullptr);
}

std::string fftw_name(DataType type) { return type == DataType::f32 ? fftwf_version : ::fftw_version; }

}  // namespace convolume::bench
