#include "ops/group_norm.hpp"

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "ops/activation.hpp"
#include "ops/norm_kernels.hpp"

namespace convolume::ops {
namespace {

std::size_t size(index_t n) { return static_cast<std::size_t>(n); }

/// A range of channels that contains whole groups and, except at the end of the tensor, whole channel blocks. It is the
/// smallest such range.
struct Cluster {
  index_t c0, c1;
};

/// The parts and groups of a norm, and the sums that tasks pass to each other.
class Groups {
 public:
  Groups(const Shape5& shape, const Cut& c, const GroupNorm& norm, std::pmr::memory_resource* memory)
      : parts(c),
        plane(shape.extent.y * shape.extent.x),
        groups(norm.groups),
        per_group(shape.c / norm.groups),
        elements(static_cast<double>(per_group) * static_cast<double>(shape.extent.volume())),
        first(size(shape.n * shape.c * c.slabs), memory),
        second(first.size(), memory),
        first_total(size(shape.n * norm.groups), memory),
        second_total(first_total.size(), memory) {
    for (index_t end = 0; end < shape.c;) {
      const index_t begin = end;
      do {
        end += per_group;
      } while (end < shape.c && end % parts.block_channels != 0);
      clusters.push_back({begin, end});
    }
  }

  std::size_t group(index_t n, index_t c) const { return size(n * groups + c / per_group); }
  std::size_t partial(index_t n, index_t c, index_t slab) const {
    return size((n * parts.channels + c) * parts.slabs + slab);
  }
  std::size_t partial(const Part& part, index_t c) const { return partial(part.n, c, part.z0 / parts.planes); }
  double voxels(const Part& part) const { return static_cast<double>((part.z1 - part.z0) * plane); }
  double voxels(index_t slab) const { return voxels(part_of(parts, 0, 0, slab)); }
  /// Returns whether every group lies in one task.
  bool local() const {
    for (const Cluster& cluster : clusters) {
      if (cluster.c1 - cluster.c0 > parts.block_channels) return false;
    }
    return parts.slabs == 1;
  }
  /// Calls f(c, slab) for the sums of the group that begins with channel `begin`, in the order in which they are
  /// joined.
  template <class F>
  void for_each_partial(index_t begin, const F& f) const {
    for (index_t c = begin; c < begin + per_group; ++c) {
      for (index_t slab = 0; slab < parts.slabs; ++slab) f(c, slab);
    }
  }

  Cut parts;
  index_t plane, groups, per_group;
  double elements;                                     // of a group
  std::pmr::vector<double> first, second;              // per sample, channel and Z range
  std::pmr::vector<double> first_total, second_total;  // per sample and group
  std::vector<Cluster> clusters;
};

void require_norm(const Shape5& shape, const GroupNorm& norm, const NormStatistics& statistics) {
  if (norm.groups < 1 || shape.c % norm.groups != 0) {
    throw ShapeMismatch(fmt::format("group_norm: {} groups do not divide {} channels", norm.groups, shape.c));
  }
  if (!(norm.epsilon >= 0)) {
    throw InvalidArgument(fmt::format("group_norm: epsilon is {}; it must not be negative", norm.epsilon));
  }
  if (statistics.mean == nullptr || statistics.rstd == nullptr) {
    throw InvalidArgument(
        "group_norm: the memory for statistics is missing; pass one mean and rstd per sample and group");
  }
}

/// Adds one task body(n, cluster) per sample and cluster, after the parts of the cluster.
template <class Body>
std::vector<TaskId> append_clusters(TaskGraph& graph, const Groups& groups, const char* name,
                                    const std::vector<TaskId>& parts, const Body& body) {
  const index_t width = groups.parts.block_channels;
  std::vector<TaskId> tasks;
  for (index_t n = 0; n < groups.parts.samples; ++n) {
    for (const Cluster& cluster : groups.clusters) {
      const index_t block = cluster.c0 / width, blocks = (cluster.c1 + width - 1) / width - block;
      const std::span<const TaskId> after(parts.data() + (n * groups.parts.blocks + block) * groups.parts.slabs,
                                          size(blocks * groups.parts.slabs));
      tasks.push_back(graph.add(
          {.name = name}, [body, n, cluster] { body(n, cluster); }, after));
    }
  }
  return tasks;
}

/// Returns a function that collects the task of the cluster to which a part belongs.
auto after_cluster(const Groups& groups, const std::vector<TaskId>& tasks) {
  return [&](const Part& part, std::vector<TaskId>& after) {
    std::size_t k = 0;
    while (groups.clusters[k].c1 <= part.c0) ++k;
    after.push_back(tasks[size(part.n) * groups.clusters.size() + k]);
  };
}

/// Calls f(lane, c) for the lanes of a part that hold a channel. In a plain part, every lane holds the same channel.
template <class T, class F>
void for_each_lane(const Groups& groups, const Part& part, const F& f) {
  const bool plain = groups.parts.block_channels == 1;
  const index_t lanes = plain ? View<T>::lanes : part.c1 - part.c0;
  for (index_t lane = 0; lane < lanes; ++lane) f(lane, plain ? part.c0 : part.c0 + lane);
}

/// Adds the sums of the lanes to sums of the channels of a part.
template <class T>
void store_sums(const Groups& groups, const Part& part, const LaneSums<T>& sums, std::pmr::vector<double>& to) {
  for (index_t c = part.c0; c < part.c1; ++c) to[groups.partial(part, c)] = 0;
  for_each_lane<T>(groups, part, [&](index_t lane, index_t c) { to[groups.partial(part, c)] += sums.value[lane]; });
}

/// Computes, for each channel of a part, the sum and the sum of squared deviations from the channel's mean in this
/// part.
template <class T>
void sum_moments(Groups& groups, const View<const T>& x, const Part& part) {
  const NormKernels<T> kernels = norm_kernels<T>();
  LaneSums<T> sums, center{};
  kernels.sum(first_of(x, part), elements_of(x, part), sums);
  store_sums(groups, part, sums, groups.first);
  for_each_lane<T>(groups, part, [&](index_t lane, index_t c) {
    center.value[lane] = groups.first[groups.partial(part, c)] / groups.voxels(part);
  });
  kernels.squares(first_of(x, part), elements_of(x, part), center, sums);
  store_sums(groups, part, sums, groups.second);
}

/// Computes mean and reciprocal standard deviation of the groups of a cluster from the moments of their parts.
void finish_statistics(const Groups& groups, const NormStatistics& statistics, double epsilon, index_t n,
                       const Cluster& cluster) {
  for (index_t begin = cluster.c0; begin < cluster.c1; begin += groups.per_group) {
    double total = 0, squares = 0;
    groups.for_each_partial(begin, [&](index_t c, index_t slab) { total += groups.first[groups.partial(n, c, slab)]; });
    const double mean = total / groups.elements;
    groups.for_each_partial(begin, [&](index_t c, index_t slab) {
      const std::size_t at = groups.partial(n, c, slab);
      const double voxels = groups.voxels(slab), shift = groups.first[at] / voxels - mean;
      squares += groups.second[at] + voxels * shift * shift;
    });
    statistics.mean[groups.group(n, begin)] = mean;
    statistics.rstd[groups.group(n, begin)] = 1 / std::sqrt(squares / groups.elements + epsilon);
  }
}

template <class T>
void set_lane(LaneAffine<T>& affine, index_t lane, double mean, double of_x, double of_dy, double constant) {
  affine.mean[lane] = static_cast<T>(mean);
  affine.mean_rest[lane] = static_cast<T>(mean - static_cast<double>(affine.mean[lane]));
  affine.of_x[lane] = static_cast<T>(of_x);
  affine.of_dy[lane] = static_cast<T>(of_dy);
  affine.constant[lane] = static_cast<T>(constant);
}

template <class T>
double parameter(const T* values, index_t c, double otherwise) {
  return values != nullptr ? static_cast<double>(values[c]) : otherwise;
}

/// Elements that the stages of a part pass to each other in the L1.
constexpr index_t piece_elements = 1024;

/// Returns the constants of the norm itself. They are zero in pad lanes, so that these stay zero.
template <class T>
LaneAffine<T> norm_constants(const Groups& groups, const T* gamma, const T* beta, const NormStatistics& statistics,
                             const Part& part) {
  LaneAffine<T> affine{};
  for_each_lane<T>(groups, part, [&](index_t lane, index_t c) {
    const std::size_t group = groups.group(part.n, c);
    set_lane(affine, lane, statistics.mean[group], parameter(gamma, c, 1) * statistics.rstd[group], 0,
             parameter(beta, c, 0));
  });
  return affine;
}

template <class T>
void normalise(const Groups& groups, const View<const T>& x, const View<T>& y, const T* gamma, const T* beta,
               const NormStatistics& statistics, const Activation& activation, const Part& part) {
  const LaneAffine<T> affine = norm_constants(groups, gamma, beta, statistics, part);
  const NormKernels<T> norm = norm_kernels<T>();
  const T* from = first_of(x, part);
  T* to = first_of(y, part);
  const index_t elements = elements_of(y, part);
  if (activation.kind == Activation::Kind::none) return norm.forward(affine, from, to, elements);
  const ActivationKernels<T> act = activation_kernels<T>();
  const bool clears =
      fills_pad_lanes(activation) && groups.parts.block_channels > 1 && part.c1 - part.c0 < View<T>::lanes;
  for (index_t i = 0; i < elements; i += piece_elements) {
    const index_t count = std::min(piece_elements, elements - i);
    norm.forward(affine, from + i, to + i, count);
    act.forward(activation, to + i, to + i, count);
    if (clears) clear_pad_lanes(to + i, part.c1 - part.c0, count / View<T>::lanes);
  }
}

/// Replaces dy by the gradient before the activation, whose output is computed again from x.
template <class T>
void undo_activation(const Groups& groups, const View<const T>& x, const View<T>& dy, const T* gamma, const T* beta,
                     const NormStatistics& statistics, const Activation& activation, const Part& part) {
  const LaneAffine<T> affine = norm_constants(groups, gamma, beta, statistics, part);
  const NormKernels<T> norm = norm_kernels<T>();
  const ActivationKernels<T> act = activation_kernels<T>();
  const T* from = first_of(x, part);
  T* gradient = first_of(dy, part);
  const index_t elements = elements_of(dy, part);
  alignas(64) T y[piece_elements];
  for (index_t i = 0; i < elements; i += piece_elements) {
    const index_t count = std::min(piece_elements, elements - i);
    norm.forward(affine, from + i, y, count);
    act.forward(activation, y, y, count);
    act.gradient(activation, y, gradient + i, gradient + i, count, false);
  }
}

/// Computes first = Σ dy and second = Σ dy · h of each channel of a part, where h = (x - mean) · rstd.
template <class T>
void sum_gradients(Groups& groups, const View<const T>& x, const View<const T>& dy, const NormStatistics& statistics,
                   const Part& part) {
  LaneSums<T> center{}, of_dy, of_products;
  for_each_lane<T>(groups, part,
                   [&](index_t lane, index_t c) { center.value[lane] = statistics.mean[groups.group(part.n, c)]; });
  norm_kernels<T>().products(first_of(dy, part), first_of(x, part), elements_of(x, part), center, of_dy, of_products);
  store_sums(groups, part, of_dy, groups.first);
  store_sums(groups, part, of_products, groups.second);
  for (index_t c = part.c0; c < part.c1; ++c) {
    groups.second[groups.partial(part, c)] *= statistics.rstd[groups.group(part.n, c)];
  }
}

/// Computes Σ gamma · first and Σ gamma · second of the groups of a cluster.
template <class T>
void total_gradients(Groups& groups, const T* gamma, index_t n, const Cluster& cluster) {
  for (index_t begin = cluster.c0; begin < cluster.c1; begin += groups.per_group) {
    double first = 0, second = 0;
    groups.for_each_partial(begin, [&](index_t c, index_t slab) {
      const std::size_t at = groups.partial(n, c, slab);
      first += parameter(gamma, c, 1) * groups.first[at];
      second += parameter(gamma, c, 1) * groups.second[at];
    });
    groups.first_total[groups.group(n, begin)] = first;
    groups.second_total[groups.group(n, begin)] = second;
  }
}

/// Computes dx = rstd · (gamma · dy - (Σ gamma · first + h · Σ gamma · second) / elements), with sums over the group.
template <class T>
void gradient(const Groups& groups, const View<const T>& x, const View<const T>& dy, const View<T>& dx, const T* gamma,
              const NormStatistics& statistics, bool add, const Part& part) {
  LaneAffine<T> affine{};
  for_each_lane<T>(groups, part, [&](index_t lane, index_t c) {
    const std::size_t group = groups.group(part.n, c);
    const double rstd = statistics.rstd[group], share = rstd / groups.elements;
    set_lane(affine, lane, statistics.mean[group], -share * groups.second_total[group] * rstd,
             rstd * parameter(gamma, c, 1), -share * groups.first_total[group]);
  });
  norm_kernels<T>().backward(affine, first_of(x, part), first_of(dy, part), first_of(dx, part), elements_of(dx, part),
                             add);
}

/// Computes dgamma and dbeta, each summed over samples and Z ranges.
template <class T>
void sum_parameters(const Groups& groups, T* dgamma, T* dbeta, bool add) {
  const auto reduce = [&](const std::pmr::vector<double>& partial, T* to) {
    if (to == nullptr) return;
    for (index_t c = 0; c < groups.parts.channels; ++c) {
      double sum = 0;
      for (index_t n = 0; n < groups.parts.samples; ++n) {
        for (index_t slab = 0; slab < groups.parts.slabs; ++slab) sum += partial[groups.partial(n, c, slab)];
      }
      to[c] = static_cast<T>(add ? static_cast<double>(to[c]) + sum : sum);
    }
  };
  reduce(groups.second, dgamma);
  reduce(groups.first, dbeta);
}

}  // namespace

template <class T>
Ready append_group_norm_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const T* gamma,
                                const T* beta, const View<T>& y, const NormStatistics& statistics,
                                const GroupNorm& norm, std::pmr::memory_resource* memory) {
  require_dense("group_norm", "x", x);
  require_dense("group_norm", "y", y);
  require_like("group_norm", "y", y, x);
  require_norm(x.shape, norm, statistics);
  const auto groups = std::make_shared<Groups>(x.shape, cut(y), norm, memory);
  const double epsilon = norm.epsilon;
  const auto finish = [=](index_t n, const Cluster& cluster) {
    finish_statistics(*groups, statistics, epsilon, n, cluster);
  };
  const Activation activation = norm.activation;
  const auto write = [=](const Part& part) { normalise<T>(*groups, x, y, gamma, beta, statistics, activation, part); };

  if (groups->local()) {
    auto tasks =
        append_parts(graph, groups->parts, "group_norm", bytes_of<T>(4), same_part(ready, x, y), [=](const Part& part) {
          sum_moments<T>(*groups, x, part);
          finish(part.n, {part.c0, part.c1});
          write(part);
        });
    return ready_of(graph, groups->parts, std::move(tasks), y);
  }
  const auto summed = append_parts(graph, groups->parts, "group_norm_moments", bytes_of<T>(1), same_part(ready, x, y),
                                   [=](const Part& part) { sum_moments<T>(*groups, x, part); });
  // Separate tasks finish the statistics, so that a task that waits for a normalised part may also read the statistics
  // of its groups.
  const auto finished = append_clusters(graph, *groups, "group_norm_statistics", summed, finish);
  auto tasks =
      append_parts(graph, groups->parts, "group_norm", bytes_of<T>(2), after_cluster(*groups, finished), write);
  return ready_of(graph, groups->parts, std::move(tasks), y);
}

template <class T>
GroupNormGradients append_group_norm_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x,
                                              const T* gamma, const T* beta, const NormStatistics& statistics,
                                              const ConstView<T>& dy, const View<T>& dx, bool add_dx, T* dgamma,
                                              T* dbeta, bool add_parameters, const GroupNorm& norm,
                                              std::pmr::memory_resource* memory) {
  require_dense("group_norm gradient", "x", x);
  require_dense("group_norm gradient", "dy", dy);
  require_like("group_norm gradient", "dy", dy, x);
  require_norm(x.shape, norm, statistics);
  if (dx) {
    require_dense("group_norm gradient", "dx", dx);
    require_like("group_norm gradient", "dx", dx, x);
  }
  const auto groups = std::make_shared<Groups>(x.shape, cut(x), norm, memory);
  const Activation activation = norm.activation;
  const bool activated = activation.kind != Activation::Kind::none;
  if (activated && (add_dx || !dx.data.same_place(dy.data))) {
    throw InvalidArgument("group_norm gradient: with an activation, dx must be dy and must not be added to");
  }
  const auto sum = [=](const Part& part) {
    if (activated) undo_activation<T>(*groups, x, dx, gamma, beta, statistics, activation, part);
    sum_gradients<T>(*groups, x, dy, statistics, part);
  };
  const auto total = [=](index_t n, const Cluster& cluster) { total_gradients(*groups, gamma, n, cluster); };
  const auto write = [=](const Part& part) { gradient<T>(*groups, x, dy, dx, gamma, statistics, add_dx, part); };
  const auto collect = same_part(ready, x, dy, dx ? View<const T>(dx) : x);

  GroupNormGradients done;
  std::vector<TaskId> summed;
  if (dx && groups->local()) {
    summed = append_parts(graph, groups->parts, "group_norm_gradient", bytes_of<T>(activated ? 6 : 5), collect,
                          [=](const Part& part) {
                            sum(part);
                            total(part.n, {part.c0, part.c1});
                            write(part);
                          });
    done.dx = ready_of(graph, groups->parts, summed, dx);
  } else {
    summed = append_parts(graph, groups->parts, "group_norm_sums", bytes_of<T>(activated ? 3 : 2), collect, sum);
  }
  if (dx && !groups->local()) {
    const auto totals = append_clusters(graph, *groups, "group_norm_totals", summed, total);
    auto tasks = append_parts(graph, groups->parts, "group_norm_gradient", bytes_of<T>(3),
                              after_cluster(*groups, totals), write);
    done.dx = ready_of(graph, groups->parts, std::move(tasks), dx);
  }
  std::vector<TaskId> parameters = summed;
  if (dgamma != nullptr || dbeta != nullptr) {
    parameters = {graph.add(
        {.name = "group_norm_parameters"}, [=] { sum_parameters(*groups, dgamma, dbeta, add_parameters); }, summed)};
  }
  done.parameters = Ready::all_of(std::move(parameters));
  return done;
}

template Ready append_group_norm_forward<float>(TaskGraph&, const Ready&, const ConstView<float>&, const float*,
                                                const float*, const View<float>&, const NormStatistics&,
                                                const GroupNorm&, std::pmr::memory_resource*);
template Ready append_group_norm_forward<double>(TaskGraph&, const Ready&, const ConstView<double>&, const double*,
                                                 const double*, const View<double>&, const NormStatistics&,
                                                 const GroupNorm&, std::pmr::memory_resource*);
template GroupNormGradients append_group_norm_backward<float>(TaskGraph&, const Ready&, const ConstView<float>&,
                                                              const float*, const float*, const NormStatistics&,
                                                              const ConstView<float>&, const View<float>&, bool, float*,
                                                              float*, bool, const GroupNorm&,
                                                              std::pmr::memory_resource*);
template GroupNormGradients append_group_norm_backward<double>(TaskGraph&, const Ready&, const ConstView<double>&,
                                                               const double*, const double*, const NormStatistics&,
                                                               const ConstView<double>&, const View<double>&, bool,
                                                               double*, double*, bool, const GroupNorm&,
                                                               std::pmr::memory_resource*);

}  // namespace convolume::ops
