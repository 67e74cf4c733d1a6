#include "ops/losses.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "ops/loss_kernels.hpp"
#include "ops/reduce.hpp"

namespace convolume::ops {
namespace {

/// The data that the tasks of one loss share: the bindings, the Z ranges, and the partial sums that tasks pass to each
/// other.
template <class T>
class Loss {
 public:
  Loss(const LossOptions& options, const LossBindings<T>& bindings, std::pmr::memory_resource* memory)
      : options_(options),
        on_(bindings),
        samples_(bindings.logits.shape.n),
        channels_(bindings.logits.shape.c),
        plane_(bindings.logits.shape.extent.y * bindings.logits.shape.extent.x),
        depth_(bindings.logits.shape.extent.z),
        planes_(std::clamp<index_t>(chunk_elements / (plane_ * chunk_channels()), 1, depth_)),
        slabs_((depth_ + planes_ - 1) / planes_),
        counts_(memory),
        sums_(memory),
        partials_(memory),
        weights_(memory),
        rounded_weights_(memory),
        coefficients_(memory) {
    counts_.resize(size(samples_ * slabs_ * weights()));
    weights_.resize(size(weights()));
    rounded_weights_.resize(size(weights()));
    partials_.resize(size(samples_ * slabs_ * (channels_ / chunk_channels())));
    if (options.kind == LossKind::dice) {
      sums_.resize(partials_.size());
      coefficients_.resize(size(channels_));
    }
  }

  LossKind kind() const { return options_.kind; }
  index_t samples() const { return samples_; }
  index_t channels() const { return channels_; }
  index_t planes() const { return planes_; }
  index_t depth() const { return depth_; }
  index_t slabs() const { return slabs_; }
  /// Returns how many channels one task of the gradient covers.
  index_t chunk_channels() const { return options_.kind == LossKind::softmax_cross_entropy ? channels_ : 1; }
  /// Returns whether the weights depend on target or mask.
  bool counts() const {
    switch (options_.kind) {
      case LossKind::binary_cross_entropy:
        return on_.mask || options_.rebalance || options_.positive_weight != 1;
      case LossKind::softmax_cross_entropy:
        return true;  // counting also checks the class indices
      case LossKind::square:
        return static_cast<bool>(on_.mask);
      case LossKind::dice:
        return false;
    }
    return false;
  }
  double bytes_per_slab(double maps) const {
    return static_cast<double>(planes_ * plane_) * static_cast<double>(sizeof(T)) * maps;
  }

  /// Sums the mask per class, for one Z range.
  void count(index_t n, index_t slab) {
    const Range at = range(slab);
    double* to = &counts_[size((n * slabs_ + slab) * weights())];
    std::fill_n(to, weights(), 0.0);
    const T* mask = mask_of(n, at);
    switch (options_.kind) {
      case LossKind::binary_cross_entropy:
        for (index_t c = 0; c < channels_; ++c) {
          const BinaryCounts found =
              loss_kernels<T>().count_binary(on_.target.channel(n, c) + at.first, mask, at.voxels);
          to[2 * c] = found.negatives;
          to[2 * c + 1] = found.positives;
        }
        break;
      case LossKind::softmax_cross_entropy:
        count_classes(n, at, mask, to);
        break;
      case LossKind::square:
        to[0] = static_cast<double>(channels_) * sum(mask, at.voxels);
        break;
      case LossKind::dice:
        break;
    }
  }

  /// Computes the weight of each class, divided by the sum of all weights and by the number of weighted channels.
  void weigh() {
    weigh_classes();
    std::transform(weights_.begin(), weights_.end(), rounded_weights_.begin(),
                   [](double w) { return static_cast<T>(w); });
  }

  /// Computes loss and gradient of one Z range of a channel, or of all channels if the loss couples them.
  void evaluate(index_t n, index_t c, index_t slab) {
    const Range at = range(slab);
    const T* x = on_.logits.channel(n, c) + at.first;
    const T* target = on_.target.channel(n, c) + at.first;
    T* gradient = on_.dlogits.channel(n, c) + at.first;
    const T* mask = mask_of(n, at);
    double& partial = partials_[index(n, c, slab)];
    const LossKernels<T> kernels = loss_kernels<T>();
    switch (options_.kind) {
      case LossKind::binary_cross_entropy:
        partial = kernels.binary(x, target, mask, gradient, at.voxels, rounded_weights_[size(2 * c)],
                                 rounded_weights_[size(2 * c + 1)]);
        break;
      case LossKind::softmax_cross_entropy:
        partial = kernels.softmax(x, on_.logits.stride[1], target, mask, gradient, on_.dlogits.stride[1], at.voxels,
                                  channels_, rounded_weights_.data());
        break;
      case LossKind::square:
        partial = kernels.square(x, target, mask, gradient, at.voxels, weights_[0]);
        break;
      case LossKind::dice:
        kernels.dice_gradient(x, target, mask, gradient, at.voxels, coefficients_[size(c)].of_target,
                              coefficients_[size(c)].of_all);
        break;
    }
  }

  void sum_dice(index_t n, index_t c, index_t slab) {
    const Range at = range(slab);
    sums_[index(n, c, slab)] = loss_kernels<T>().dice_sums(
        on_.logits.channel(n, c) + at.first, on_.target.channel(n, c) + at.first, mask_of(n, at), at.voxels);
  }

  /// Computes the dice loss, and the coefficients of its gradient for each channel.
  void finish_dice() {
    double loss = 0;
    for (index_t c = 0; c < channels_; ++c) {
      DiceSums all{};
      for (index_t n = 0; n < samples_; ++n) {
        for (index_t slab = 0; slab < slabs_; ++slab) {
          const DiceSums& part = sums_[index(n, c, slab)];
          all.overlap += part.overlap;
          all.predicted += part.predicted;
          all.target += part.target;
        }
      }
      const double above = 2 * all.overlap + options_.smooth;
      const double below = all.predicted + all.target + options_.smooth;
      const auto channels = static_cast<double>(channels_);
      if (below == 0) {  // nothing predicted, nothing labelled, no smoothing: a perfect match
        coefficients_[size(c)] = {};
        continue;
      }
      loss += 1 - above / below;
      coefficients_[size(c)] = {static_cast<T>(-2 / (channels * below)),
                                static_cast<T>(above / (channels * below * below))};
    }
    *on_.loss = loss / static_cast<double>(channels_);
  }

  void finish() {
    double loss = 0;
    for (const double partial : partials_) loss += partial;
    *on_.loss = loss;
  }

 private:
  struct Range {
    index_t first, voxels;
  };
  struct Coefficients {
    T of_target = 0, of_all = 0;
  };

  static std::size_t size(index_t n) { return static_cast<std::size_t>(n); }
  std::size_t index(index_t n, index_t c, index_t slab) const {
    return size((n * (channels_ / chunk_channels()) + c) * slabs_ + slab);
  }
  /// Returns how many channels have weights of their own. All other losses weight their channels together.
  index_t weighted_channels() const { return options_.kind == LossKind::binary_cross_entropy ? channels_ : 1; }
  index_t weights() const { return weighted_channels() * classes(); }
  index_t classes() const {
    switch (options_.kind) {
      case LossKind::binary_cross_entropy:
        return 2;
      case LossKind::softmax_cross_entropy:
        return channels_;
      default:
        return 1;
    }
  }
  Range range(index_t slab) const {
    const index_t z = slab * planes_;
    return {z * plane_, (std::min(depth_, z + planes_) - z) * plane_};
  }
  const T* mask_of(index_t n, const Range& at) const { return on_.mask ? on_.mask.channel(n, 0) + at.first : nullptr; }

  void weigh_classes() {
    std::fill(weights_.begin(), weights_.end(), 0.0);
    if (!counts()) {
      const auto elements = static_cast<double>(samples_ * channels_ * depth_ * plane_);
      std::fill(weights_.begin(), weights_.end(), 1 / elements);
      return;
    }
    for (index_t c = 0; c < weighted_channels(); ++c) weigh_channel(size(c));
  }

  void weigh_channel(std::size_t channel) {
    const auto k = size(classes());
    const std::span<double> weight(&weights_[channel * k], k);
    double total = 0;
    for (std::size_t i = channel * k; i < counts_.size(); i += weights_.size()) {
      for (std::size_t j = 0; j < k; ++j) {
        weight[j] += counts_[i + j];
        total += counts_[i + j];
      }
    }
    double norm = 0;
    for (std::size_t i = 0; i < k; ++i) {
      const double counted = weight[i];
      if (counted == 0) continue;
      double w = options_.rebalance ? total / (static_cast<double>(k) * counted) : 1;
      if (options_.kind == LossKind::binary_cross_entropy && i == 1) w *= options_.positive_weight;
      weight[i] = w;
      norm += w * counted;
    }
    norm *= static_cast<double>(weighted_channels());
    for (double& w : weight) w = norm > 0 ? w / norm : 0;
  }

  void count_classes(index_t n, const Range& at, const T* mask, double* to) const {
    const T* target = on_.target.channel(n, 0) + at.first;
    for (index_t i = 0; i < at.voxels; ++i) {
      const T m = mask != nullptr ? mask[i] : T{1};
      if (!(m > 0)) continue;
      const T value = target[i];
      if (!(value >= 0 && value < static_cast<T>(channels_)) || value != std::floor(value)) {
        const index_t voxel = at.first + i, x = on_.target.shape.extent.x;
        throw InvalidArgument(fmt::format(
            "softmax_cross_entropy: the target of sample {} at voxel ({}, {}, {}) is {}, which is not a class index in "
            "[0, {}); mask the voxel out or correct the labels",
            n, voxel / plane_, voxel % plane_ / x, voxel % x, value, channels_));
      }
      to[static_cast<index_t>(value)] += static_cast<double>(m);
    }
  }

  LossOptions options_;
  LossBindings<T> on_;
  index_t samples_, channels_, plane_, depth_;
  index_t planes_, slabs_;  // planes of a Z range, Z ranges of a feature map
  std::pmr::vector<double> counts_;
  std::pmr::vector<DiceSums> sums_;
  std::pmr::vector<double> partials_;
  std::pmr::vector<double> weights_;  // per weighted channel and class; see weigh()
  std::pmr::vector<T> rounded_weights_;
  std::pmr::vector<Coefficients> coefficients_;
};

}  // namespace

const char* name_of(LossKind kind) noexcept {
  switch (kind) {
    case LossKind::binary_cross_entropy:
      return "binary_cross_entropy";
    case LossKind::softmax_cross_entropy:
      return "softmax_cross_entropy";
    case LossKind::square:
      return "square";
    case LossKind::dice:
      return "dice";
  }
  return "unknown";
}

template <class T>
void validate(const LossOptions& options, const LossBindings<T>& bindings) {
  const char* name = name_of(options.kind);
  const auto require = [name](std::string_view what, const auto& view) {
    require_layout(name, what, view.layout, Layout::plain);
    require_dense(name, what, view);
  };
  require("logits", bindings.logits);
  require("target", bindings.target);
  require("dlogits", bindings.dlogits);
  const Shape5 one_channel{bindings.logits.shape.n, 1, bindings.logits.shape.extent};
  const bool indices = options.kind == LossKind::softmax_cross_entropy;
  require_shape(name, "target", bindings.target.shape, indices ? one_channel : bindings.logits.shape);
  require_shape(name, "dlogits", bindings.dlogits.shape, bindings.logits.shape);
  if (bindings.mask) {
    require("mask", bindings.mask);
    require_shape(name, "mask", bindings.mask.shape, one_channel);
  }
  if (bindings.loss == nullptr)
    throw InvalidArgument(fmt::format("{}: loss has no data: bind memory for the loss to it", name));
  if (!(options.positive_weight > 0) || !(options.smooth >= 0)) {
    throw InvalidArgument(
        fmt::format("{}: positive_weight is {} and must be positive; smooth is {} and must not be "
                    "negative",
                    name, options.positive_weight, options.smooth));
  }
}

template <class T>
Ready append_loss(TaskGraph& graph, const Ready& ready, const LossOptions& options, const LossBindings<T>& bindings,
                  std::pmr::memory_resource* memory, const Ready& labels) {
  validate(options, bindings);
  const auto loss = std::make_shared<Loss<T>>(options, bindings, memory);
  const std::string name = name_of(options.kind);
  // Target and mask have different numbers of channels. Therefore no part of `labels` corresponds to a part of both.
  const std::vector<TaskId> labelled = labels.tasks();
  const auto planes_of = [&](index_t slab) {
    const index_t first = slab * loss->planes();
    return std::pair(first, std::min(loss->depth(), first + loss->planes()));
  };
  std::vector<TaskId> after;

  std::vector<TaskId> counted;
  if (loss->counts()) {
    for (index_t n = 0; n < loss->samples(); ++n) {
      for (index_t slab = 0; slab < loss->slabs(); ++slab) {
        counted.push_back(graph.add(
            {.name = name + "_count", .cost = loss->bytes_per_slab(2)}, [loss, n, slab] { loss->count(n, slab); },
            labelled));
      }
    }
  }

  const index_t step = loss->chunk_channels();
  const auto per_slab = [&](const std::string& task, double maps, const std::vector<TaskId>& before, auto body) {
    std::vector<TaskId> tasks;
    for (index_t n = 0; n < loss->samples(); ++n) {
      for (index_t c = 0; c < loss->channels(); c += step) {
        for (index_t slab = 0; slab < loss->slabs(); ++slab) {
          const auto [first, last] = planes_of(slab);
          after = before;
          ready.collect(n, c, c + step, first, last, after);
          tasks.push_back(graph.add(
              {.name = task, .cost = loss->bytes_per_slab(maps)}, [loss, n, c, slab, body] { body(*loss, n, c, slab); },
              after));
        }
      }
    }
    return tasks;
  };

  std::vector<TaskId> weighed;
  if (options.kind == LossKind::dice) {
    const std::vector<TaskId> summed = per_slab(
        name + "_sums", 3, labelled, [](Loss<T>& on, index_t n, index_t c, index_t slab) { on.sum_dice(n, c, slab); });
    weighed.push_back(graph.add(
        {.name = name}, [loss] { loss->finish_dice(); }, summed));
  } else {
    counted.insert(counted.end(), labelled.begin(), labelled.end());
    weighed.push_back(graph.add(
        {.name = name + "_weights"}, [loss] { loss->weigh(); }, counted));
  }
  std::vector<TaskId> evaluated =
      per_slab(name + "_gradient", 4 * static_cast<double>(step), weighed,
               [](Loss<T>& on, index_t n, index_t c, index_t slab) { on.evaluate(n, c, slab); });
  if (options.kind != LossKind::dice)
    graph.add(
        {.name = name}, [loss] { loss->finish(); }, evaluated);
  return {std::move(evaluated), loss->channels() / step, loss->slabs(), step, loss->planes()};
}

template void validate(const LossOptions&, const LossBindings<float>&);
template void validate(const LossOptions&, const LossBindings<double>&);
template Ready append_loss(TaskGraph&, const Ready&, const LossOptions&, const LossBindings<float>&,
                           std::pmr::memory_resource*, const Ready&);
template Ready append_loss(TaskGraph&, const Ready&, const LossOptions&, const LossBindings<double>&,
                           std::pmr::memory_resource*, const Ready&);

}  // namespace convolume::ops
