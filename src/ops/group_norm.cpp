#include "ops/group_norm.hpp"

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "ops/reduce.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/group_norm.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes first.
#include "hwy/highway.h"

#include "ops/simd-inl.hpp"

#ifndef CONVOLUME_OPS_GROUP_NORM_KERNELS
#define CONVOLUME_OPS_GROUP_NORM_KERNELS
namespace convolume::ops {
namespace {
/// Constants of one feature map. The mean is kept in two parts, so that x - mean loses nothing where x is close to it.
template <class T>
struct Affine {
  T mean, mean_rest, of_x, of_dy, constant;
};
template <class T>
struct GroupNormKernels {
  /// y = of_x · (x - mean) + constant
  void (*forward)(const Affine<T>&, const T* x, T* y, index_t n);
  /// dx = of_dy · dy + of_x · (x - mean) + constant
  void (*backward)(const Affine<T>&, const T* x, const T* dy, T* dx, index_t n, bool add);
};
}  // namespace
}  // namespace convolume::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace convolume::ops::HWY_NAMESPACE {
namespace {

template <class T>
void forward(const Affine<T>& k, const T* x, T* y, index_t n) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const D d;
  const V mean = hn::Set(d, k.mean), rest = hn::Set(d, k.mean_rest), factor = hn::Set(d, k.of_x);
  const V constant = hn::Set(d, k.constant);
  map_elements(
      d, y, n, [=](V v) HWY_ATTR { return hn::MulAdd(factor, hn::Sub(hn::Sub(v, mean), rest), constant); }, x);
}

template <class T>
void backward(const Affine<T>& k, const T* x, const T* dy, T* dx, index_t n, bool add) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const D d;
  const V mean = hn::Set(d, k.mean), rest = hn::Set(d, k.mean_rest);
  const V of_x = hn::Set(d, k.of_x), of_dy = hn::Set(d, k.of_dy), constant = hn::Set(d, k.constant);
  const auto gradient = [=](V v, V g) HWY_ATTR {
    return hn::MulAdd(of_dy, g, hn::MulAdd(of_x, hn::Sub(hn::Sub(v, mean), rest), constant));
  };
  if (add) {
    map_elements(
        d, dx, n, [=](V v, V g, V before) HWY_ATTR { return hn::Add(before, gradient(v, g)); }, x, dy,
        static_cast<const T*>(dx));
  } else {
    map_elements(d, dx, n, gradient, x, dy);
  }
}

GroupNormKernels<float> group_norm_kernels_f32() { return {forward<float>, backward<float>}; }
GroupNormKernels<double> group_norm_kernels_f64() { return {forward<double>, backward<double>}; }

}  // namespace
}  // namespace convolume::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convolume::ops {
namespace {

HWY_EXPORT(group_norm_kernels_f32);
HWY_EXPORT(group_norm_kernels_f64);

template <class T>
GroupNormKernels<T> kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return HWY_DYNAMIC_DISPATCH(group_norm_kernels_f32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(group_norm_kernels_f64)();
  }
}

std::size_t size(index_t n) { return static_cast<std::size_t>(n); }

/// Samples, channels and groups of a norm, and the partial sums of its feature maps, which tasks hand to each other.
class Groups {
 public:
  Groups(const Shape5& shape, const GroupNorm& norm, std::pmr::memory_resource* memory)
      : samples(shape.n),
        channels(shape.c),
        voxels(shape.extent.volume()),
        groups(norm.groups),
        per_group(shape.c / norm.groups),
        first(size(shape.n * shape.c), memory),
        second(size(shape.n * shape.c), memory) {}

  std::size_t map(index_t n, index_t c) const { return size(n * channels + c); }
  std::size_t group(index_t n, index_t c) const { return size(n * groups + c / per_group); }
  double elements() const { return static_cast<double>(per_group) * static_cast<double>(voxels); }
  /// Sum of a partial over the group of channel c; the same bits in every task that asks.
  double total(const std::pmr::vector<double>& partial, index_t n, index_t c) const {
    double sum = 0;
    const index_t begin = c / per_group * per_group;
    for (index_t i = begin; i < begin + per_group; ++i) sum += partial[map(n, i)];
    return sum;
  }

  index_t samples, channels, voxels, groups, per_group;
  std::pmr::vector<double> first, second;  // per feature map
};

void require_norm(const Shape5& shape, const GroupNorm& norm, const NormStatistics& statistics) {
  if (norm.groups < 1 || shape.c % norm.groups != 0) {
    throw ShapeMismatch(fmt::format("group_norm: {} groups do not divide {} channels", norm.groups, shape.c));
  }
  if (!(norm.epsilon >= 0)) {
    throw InvalidArgument(fmt::format("group_norm: epsilon is {} and must not be negative", norm.epsilon));
  }
  if (statistics.mean == nullptr || statistics.rstd == nullptr) {
    throw InvalidArgument("group_norm: there is no place for the statistics, one mean and rstd per sample and group");
  }
}

/// The tasks of one stage, each after all tasks of the stage before in its group.
std::vector<TaskId> append_stage(TaskGraph& graph, const Groups& groups, const std::vector<TaskId>& before,
                                 const char* name, double cost, const std::function<void(index_t, index_t)>& body) {
  std::vector<TaskId> tasks;
  for (index_t n = 0; n < groups.samples; ++n) {
    for (index_t c = 0; c < groups.channels; ++c) {
      const std::size_t begin = groups.map(n, c / groups.per_group * groups.per_group);
      const std::span<const TaskId> after(before.data() + begin, size(groups.per_group));
      tasks.push_back(graph.add(
          {.name = name, .cost = cost}, [body, n, c] { body(n, c); }, after));
    }
  }
  return tasks;
}

std::vector<TaskId> append_first_stage(TaskGraph& graph, const Ready& ready, const Groups& groups, const char* name,
                                       double cost, const std::function<void(index_t, index_t)>& body) {
  return append_per_map(graph, ready, {groups.samples, groups.channels, {1, 1, 1}}, name, cost, body).tasks();
}

template <class T>
Affine<T> affine(double mean, double of_x, double of_dy, double constant) {
  const T rounded = static_cast<T>(mean);
  return {rounded, static_cast<T>(mean - static_cast<double>(rounded)), static_cast<T>(of_x), static_cast<T>(of_dy),
          static_cast<T>(constant)};
}

}  // namespace

template <class T>
Ready append_group_norm_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const T* gamma,
                                const T* beta, const View<T>& y, const NormStatistics& statistics,
                                const GroupNorm& norm, std::pmr::memory_resource* memory) {
  require_dense("group_norm", "x", x);
  require_dense("group_norm", "y", y);
  require_shape("group_norm", "y", y.shape, x.shape);
  require_norm(x.shape, norm, statistics);
  const auto groups = std::make_shared<Groups>(x.shape, norm, memory);
  const double bytes = map_bytes<T>(x.shape.extent, 1);

  const auto sum_map = [groups, x](index_t n, index_t c) {
    groups->first[groups->map(n, c)] = sum(x.channel(n, c), groups->voxels);
  };
  const auto mean_of = [groups](index_t n, index_t c) {
    return groups->total(groups->first, n, c) / groups->elements();
  };
  const auto square_map = [groups, x, mean_of](index_t n, index_t c) {
    groups->second[groups->map(n, c)] = sum_of_squares(x.channel(n, c), groups->voxels, mean_of(n, c));
  };
  // Of its own task, so that whoever waits for one normalised map may read the statistics.
  const auto finish = [groups, statistics, norm, mean_of](index_t n, index_t c) {
    const std::size_t group = groups->group(n, c);
    statistics.mean[group] = mean_of(n, c);
    statistics.rstd[group] = 1 / std::sqrt(groups->total(groups->second, n, c) / groups->elements() + norm.epsilon);
  };
  const auto normalise = [groups, x, y, gamma, beta, statistics](index_t n, index_t c) {
    const std::size_t group = groups->group(n, c);
    const double scale = gamma != nullptr ? static_cast<double>(gamma[c]) : 1;
    const double shift = beta != nullptr ? static_cast<double>(beta[c]) : 0;
    kernels<T>().forward(affine<T>(statistics.mean[group], scale * statistics.rstd[group], 0, shift), x.channel(n, c),
                         y.channel(n, c), groups->voxels);
  };

  if (groups->per_group == 1) {
    return append_per_map(graph, ready, x.shape, "instance_norm", 4 * bytes, [=](index_t n, index_t c) {
      sum_map(n, c);
      square_map(n, c);
      finish(n, c);
      normalise(n, c);
    });
  }
  const auto summed = append_first_stage(graph, ready, *groups, "group_norm_mean", bytes, sum_map);
  const auto squared = append_stage(graph, *groups, summed, "group_norm_variance", bytes, square_map);
  std::vector<TaskId> tasks;
  for (index_t n = 0; n < groups->samples; ++n) {
    for (index_t first = 0; first < groups->channels; first += groups->per_group) {
      const std::span<const TaskId> after(squared.data() + groups->map(n, first), size(groups->per_group));
      const TaskId finished = graph.add(
          {.name = "group_norm_statistics"}, [finish, n, first] { finish(n, first); }, after);
      for (index_t c = first; c < first + groups->per_group; ++c) {
        tasks.push_back(graph.add(
            {.name = "group_norm", .cost = 2 * bytes}, [normalise, n, c] { normalise(n, c); },
            std::span(&finished, 1)));
      }
    }
  }
  return Ready::per_channel(std::move(tasks), x.shape.c);
}

template <class T>
GroupNormGradients append_group_norm_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x,
                                              const T* gamma, const NormStatistics& statistics, const ConstView<T>& dy,
                                              const View<T>& dx, bool add_dx, T* dgamma, T* dbeta, bool add_parameters,
                                              const GroupNorm& norm, std::pmr::memory_resource* memory) {
  require_dense("group_norm gradient", "x", x);
  require_dense("group_norm gradient", "dy", dy);
  require_shape("group_norm gradient", "dy", dy.shape, x.shape);
  require_norm(x.shape, norm, statistics);
  if (dx) {
    require_dense("group_norm gradient", "dx", dx);
    require_shape("group_norm gradient", "dx", dx.shape, x.shape);
  }
  const auto groups = std::make_shared<Groups>(x.shape, norm, memory);
  const double bytes = map_bytes<T>(x.shape.extent, 1);

  // With h = (x - mean) · rstd: first = Σ dy, second = Σ dy · h of each feature map.
  const auto summed = append_first_stage(
      graph, ready, *groups, "group_norm_sums", 2 * bytes, [groups, x, dy, statistics](index_t n, index_t c) {
        const std::size_t group = groups->group(n, c), map = groups->map(n, c);
        groups->first[map] = sum(dy.channel(n, c), groups->voxels);
        groups->second[map] = statistics.rstd[group] * sum_of_products(dy.channel(n, c), x.channel(n, c),
                                                                       groups->voxels, statistics.mean[group]);
      });

  GroupNormGradients done;
  std::vector<TaskId> parameters = summed;
  if (dgamma != nullptr || dbeta != nullptr) {
    const auto sum_samples = [groups, dgamma, dbeta, add_parameters] {
      const auto reduce = [&](const std::pmr::vector<double>& partial, T* to) {
        if (to == nullptr) return;
        for (index_t c = 0; c < groups->channels; ++c) {
          double sum = 0;
          for (index_t n = 0; n < groups->samples; ++n) sum += partial[groups->map(n, c)];
          to[c] = static_cast<T>(add_parameters ? static_cast<double>(to[c]) + sum : sum);
        }
      };
      reduce(groups->second, dgamma);
      reduce(groups->first, dbeta);
    };
    parameters = {graph.add({.name = "group_norm_parameters"}, sum_samples, summed)};
  }
  done.parameters = Ready::all_of(std::move(parameters));
  if (!dx) return done;

  // dx = rstd · (gamma · dy - (Σ gamma · first + h · Σ gamma · second) / elements), sums over the group.
  const auto gradient = [groups, x, dy, dx, gamma, statistics, add_dx](index_t n, index_t c) {
    const auto gamma_of = [gamma](index_t i) { return gamma != nullptr ? static_cast<double>(gamma[i]) : 1; };
    double first = 0, second = 0;
    const index_t begin = c / groups->per_group * groups->per_group;
    for (index_t i = begin; i < begin + groups->per_group; ++i) {
      first += gamma_of(i) * groups->first[groups->map(n, i)];
      second += gamma_of(i) * groups->second[groups->map(n, i)];
    }
    const std::size_t group = groups->group(n, c);
    const double rstd = statistics.rstd[group], share = rstd / groups->elements();
    kernels<T>().backward(affine<T>(statistics.mean[group], -share * second * rstd, rstd * gamma_of(c), -share * first),
                          x.channel(n, c), dy.channel(n, c), dx.channel(n, c), groups->voxels, add_dx);
  };
  done.dx =
      Ready::per_channel(append_stage(graph, *groups, summed, "group_norm_gradient", 3 * bytes, gradient), x.shape.c);
  return done;
}

template Ready append_group_norm_forward<float>(TaskGraph&, const Ready&, const ConstView<float>&, const float*,
                                                const float*, const View<float>&, const NormStatistics&,
                                                const GroupNorm&, std::pmr::memory_resource*);
template Ready append_group_norm_forward<double>(TaskGraph&, const Ready&, const ConstView<double>&, const double*,
                                                 const double*, const View<double>&, const NormStatistics&,
                                                 const GroupNorm&, std::pmr::memory_resource*);
template GroupNormGradients append_group_norm_backward<float>(TaskGraph&, const Ready&, const ConstView<float>&,
                                                              const float*, const NormStatistics&,
                                                              const ConstView<float>&, const View<float>&, bool, float*,
                                                              float*, bool, const GroupNorm&,
                                                              std::pmr::memory_resource*);
template GroupNormGradients append_group_norm_backward<double>(TaskGraph&, const Ready&, const ConstView<double>&,
                                                               const double*, const NormStatistics&,
                                                               const ConstView<double>&, const View<double>&, bool,
                                                               double*, double*, bool, const GroupNorm&,
                                                               std::pmr::memory_resource*);

}  // namespace convolume::ops
#endif  // HWY_ONCE
