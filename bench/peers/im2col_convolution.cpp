#include "bench/peers/im2col_convolution.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

namespace convolume::bench {
namespace {

// Constants of the C interface of every BLAS.
constexpr int row_major = 101, as_is = 111, transposed = 112;

/// c = a * b + beta * c for row-major matrices of m x k, k x n and m x n.
template <class T>
using Gemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, T alpha, const T* a, int lda,
                      const T* b, int ldb, T beta, T* c, int ldc);

/// A shared library, which stays loaded until the process ends.
class BlasLibrary {
 public:
  explicit BlasLibrary(Blas blas) {
    const bool open = blas == Blas::openblas;
    // By path, because an alternative of Debian decides what the plain name of ATLAS means.
    file_ = open ? "libopenblas.so.0" : "/usr/lib/x86_64-linux-gnu/atlas/libblas.so.3";
    package_ = open ? "libopenblas0-pthread" : "libatlas3-base";
    handle_ = dlopen(file_, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) fail(dlerror());
  }

  template <class Function>
  Function find(const char* name) const {
    void* const symbol = dlsym(handle_, name);
    if (symbol == nullptr) fail(fmt::format("has no {}", name));
    return reinterpret_cast<Function>(symbol);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Unsupported(fmt::format("{}: {}; on Debian: apt-get install {}", file_, reason, package_));
  }

  const char *file_, *package_;
  void* handle_ = nullptr;
};

/// A row of results of one tap, along X: the results from `begin` to `end` read x, the others read padding.
struct WindowRow {
  index_t column = 0;          ///< number of the first result
  index_t begin = 0, end = 0;  ///< results of this row that read x
  index_t source = 0;          ///< voxel of x that the first of them reads
};

template <class T>
class Im2colConvolution final : public ConvCompetitor {
 public:
  Im2colConvolution(const ConvProblem& problem, const ConvData& data, Blas blas, int threads)
      : problem_(problem),
        data_(data),
        scheduler_(threads),
        y_(problem.type, problem.y_shape()),
        dx_(problem.type, problem.x_shape()),
        dw_(problem.type, problem.w_shape()) {
    const BlasLibrary library(blas);
    gemm_ = library.find<Gemm<T>>(sizeof(T) == sizeof(float) ? "cblas_sgemm" : "cblas_dgemm");
    if (blas == Blas::openblas) library.find<void (*)(int)>("openblas_set_num_threads")(threads);
    results_ = problem.output().volume();
    taps_ = problem.kernel.volume();
    channels_ = problem.in_channels / problem.groups;
    maps_ = problem.out_channels / problem.groups;
    const Extent3 one{1, 1, 1}, none{0, 0, 0};
    if (std::max(results_, channels_ * taps_) > std::numeric_limits<int>::max())
      throw Unsupported(
          fmt::format("im2col does not serve {}: the matrix is too large for a BLAS", to_string(problem)));
    joins_ = results_ == 1 && problem.kernel == problem.input && problem.groups == 1 && problem.pad_before == none;
    copies_ = !joins_ && (problem.kernel != one || problem.stride != one || problem.pad_before != none ||
                          problem.output() != problem.input);
    if (copies_) allocate_columns();
    add_tasks();
  }

  void execute(Direction direction) override {
    const bool all = direction == Direction::training;
    if (all || direction == Direction::forward) for_each_group([this] { forward(); });
    if (all || direction == Direction::backward_data) for_each_group([this] { backward_data(); });
    if (all || direction == Direction::backward_weights) for_each_group([this] { backward_weights(); });
  }

  void read(Output output, ConvTensor& plain) override {
    (output == Output::y ? y_ : output == Output::dx ? dx_ : dw_).store(plain);
  }

 private:
  template <class Element, class Tensor>
  static Element* of(Tensor& tensor) {
    return tensor.view().template as<std::remove_const_t<Element>>().data;
  }

  template <class Body>
  void for_each_group(const Body& body) {
    const index_t products = joins_ ? 1 : problem_.batch;
    for (sample_ = 0; sample_ < products; ++sample_) {
      for (group_ = 0; group_ < problem_.groups; ++group_) body();
    }
  }

  void allocate_columns() {
    try {
      columns_.resize(static_cast<std::size_t>(channels_ * taps_ * results_));
    } catch (const std::bad_alloc&) {
      throw Unsupported(
          fmt::format("im2col does not serve {}: there is no memory for a matrix of {:.3g} GB", to_string(problem_),
                      1e-9 * sizeof(T) * static_cast<double>(channels_ * taps_) * static_cast<double>(results_)));
    }
  }

  /// Adds a task per channel to both graphs: one copies its windows, the other adds columns to dx.
  void add_tasks() {
    for (index_t c = 0; c < channels_; ++c) {
      to_columns_.add({.name = "im2col"}, [this, c] { copy_windows(c); });
      from_columns_.add({.name = "col2im"}, [this, c] { add_windows(c); });
    }
  }

  index_t input_offset(index_t channel) const {
    return (sample_ * problem_.in_channels + group_ * channels_ + channel) * problem_.input.volume();
  }
  index_t output_offset() const { return (sample_ * problem_.out_channels + group_ * maps_) * results_; }
  index_t weight_offset() const { return group_ * maps_ * channels_ * taps_; }

  /// Calls visit(WindowRow) for every row of results of a tap.
  template <class Visit>
  void for_each_row(const Extent3& tap, const Visit& visit) const {
    const Extent3 n = problem_.output(), &in = problem_.input;
    const auto first = [&](int axis) { return tap[axis] * problem_.dilation[axis] - problem_.pad_before[axis]; };
    const index_t step = problem_.stride.x, x0 = first(2);
    WindowRow row;
    row.begin = std::min(n.x, x0 >= 0 ? 0 : (step - 1 - x0) / step);
    row.end = x0 >= in.x ? row.begin : std::max(row.begin, std::min(n.x, (in.x - 1 - x0) / step + 1));
    for (index_t z = 0; z < n.z; ++z) {
      const index_t iz = z * problem_.stride.z + first(0);
      for (index_t y = 0; y < n.y; ++y) {
        const index_t iy = y * problem_.stride.y + first(1);
        WindowRow here = row;
        here.column = (z * n.y + y) * n.x;
        if (iz < 0 || iz >= in.z || iy < 0 || iy >= in.y) here.end = here.begin;
        here.source = (iz * in.y + iy) * in.x + x0 + here.begin * step;
        visit(here);
      }
    }
  }

  /// Calls visit(row of columns, tap) for every tap of a channel.
  template <class Visit>
  void for_each_tap(index_t channel, const Visit& visit) {
    T* column = columns_.data() + channel * taps_ * results_;
    const Extent3& k = problem_.kernel;
    for (index_t z = 0; z < k.z; ++z) {
      for (index_t y = 0; y < k.y; ++y) {
        for (index_t x = 0; x < k.x; ++x, column += results_) visit(column, Extent3{z, y, x});
      }
    }
  }

  void copy_windows(index_t channel) {
    const T* const map = of<const T>(data_.x) + input_offset(channel);
    const index_t step = problem_.stride.x, length = problem_.output().x;
    for_each_tap(channel, [&](T* column, const Extent3& tap) {
      for_each_row(tap, [&](const WindowRow& row) {
        T* const to = column + row.column;
        std::fill(to, to + row.begin, T(0));
        if (step == 1 && row.end > row.begin) {
          std::copy_n(map + row.source, row.end - row.begin, to + row.begin);
        } else {
          for (index_t i = row.begin; i < row.end; ++i) to[i] = map[row.source + (i - row.begin) * step];
        }
        std::fill(to + row.end, to + length, T(0));
      });
    });
  }

  void add_windows(index_t channel) {
    T* const map = of<T>(dx_) + input_offset(channel);
    const index_t step = problem_.stride.x;
    std::fill_n(map, problem_.input.volume(), T(0));
    for_each_tap(channel, [&](const T* column, const Extent3& tap) {
      for_each_row(tap, [&](const WindowRow& row) {
        const T* const from = column + row.column;
        for (index_t i = row.begin; i < row.end; ++i) map[row.source + (i - row.begin) * step] += from[i];
      });
    });
  }

  /// Returns the columns of the current sample and group.
  const T* windows() {
    if (!copies_) return of<const T>(data_.x) + input_offset(0);
    to_columns_.run(scheduler_);
    return columns_.data();
  }

  void forward() {
    if (joins_) {
      multiply({problem_.batch, maps_, channels_ * taps_}, of<const T>(data_.x), false, of<const T>(data_.w), true,
               of<T>(y_), 0);
      return;
    }
    multiply({maps_, results_, channels_ * taps_}, of<const T>(data_.w) + weight_offset(), false, windows(), false,
             of<T>(y_) + output_offset(), 0);
  }

  void backward_data() {
    if (joins_) {
      multiply({problem_.batch, channels_ * taps_, maps_}, of<const T>(data_.dy), false, of<const T>(data_.w), false,
               of<T>(dx_), 0);
      return;
    }
    T* const product = copies_ ? columns_.data() : of<T>(dx_) + input_offset(0);
    multiply({channels_ * taps_, results_, maps_}, of<const T>(data_.w) + weight_offset(), true,
             of<const T>(data_.dy) + output_offset(), false, product, 0);
    if (copies_) from_columns_.run(scheduler_);
  }

  void backward_weights() {
    if (joins_) {
      multiply({maps_, channels_ * taps_, problem_.batch}, of<const T>(data_.dy), true, of<const T>(data_.x), false,
               of<T>(dw_), 0);
      return;
    }
    multiply({maps_, channels_ * taps_, results_}, of<const T>(data_.dy) + output_offset(), false, windows(), true,
             of<T>(dw_) + weight_offset(), sample_ == 0 ? T(0) : T(1));
  }

  /// Extents of a product: rows of the result, its columns, and terms of a sum.
  struct Product {
    index_t rows, columns, terms;
  };
  void multiply(const Product& p, const T* a, bool transpose_a, const T* b, bool transpose_b, T* c, T beta) const {
    const int m = static_cast<int>(p.rows), n = static_cast<int>(p.columns), k = static_cast<int>(p.terms);
    gemm_(row_major, transpose_a ? transposed : as_is, transpose_b ? transposed : as_is, m, n, k, T(1), a,
          transpose_a ? m : k, b, transpose_b ? k : n, beta, c, n);
  }

  ConvProblem problem_;
  const ConvData& data_;
  Scheduler scheduler_;
  ConvTensor y_, dx_, dw_;
  std::vector<T> columns_;
  TaskGraph to_columns_, from_columns_;
  Gemm<T> gemm_ = nullptr;
  index_t results_ = 0, taps_ = 0, channels_ = 0, maps_ = 0;  // channels and maps of one group
  bool copies_ = true;
  bool joins_ = false;  // a kernel covers all of x, so one product computes all samples
  index_t sample_ = 0, group_ = 0;
};

}  // namespace

std::string openblas_core() { return BlasLibrary(Blas::openblas).find<const char* (*)()>("openblas_get_corename")(); }

std::unique_ptr<ConvCompetitor> im2col_convolution(const ConvProblem& problem, const ConvData& data, Blas blas,
                                                   int threads) {
  if (problem.transposed) throw Unsupported("im2col serves no transposed convolutions");
  if (problem.type == DataType::f32) return std::make_unique<Im2colConvolution<float>>(problem, data, blas, threads);
  return std::make_unique<Im2colConvolution<double>>(problem, data, blas, threads);
}

}  // namespace convolume::bench
