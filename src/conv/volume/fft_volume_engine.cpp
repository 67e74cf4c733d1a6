// Convolution of whole volumes in the frequency domain, as in ZNN (Feinberg 2015, equations 1-4 and 7). Every spectrum
// is computed once and used by all products that need it. Sums over channels are computed in the frequency domain, so
// there is one inverse transform per output.
#include "conv/volume/fft_volume_engine.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "conv/caches/buffer_store.hpp"
#include "conv/caches/caches.hpp"
#include "conv/caches/run_buffers.hpp"
#include "conv/caches/scratch.hpp"
#include "conv/caches/source_hash.hpp"
#include "conv/choice.hpp"
#include "conv/spectra/frequency_product.hpp"
#include "conv/spectra/transform_meter.hpp"
#include "conv/volume/channel_sum.hpp"
#include "conv/volume/fft_volume_geometry.hpp"
#include "conv/volume/kernel_transform.hpp"
#include "convolume/fft.hpp"
#include "plan/cost_model.hpp"

namespace convolume::conv {
namespace {

/// Returns the buffers of the spectra alone. They keep the whole cache alive.
std::shared_ptr<BufferStore> maps_of(const std::shared_ptr<Spectra::Impl>& spectra) {
  return {spectra, &spectra->maps};
}

/// Appends a task that compares a feature map of x with the one from which its spectrum was computed.
template <class Arguments>
TaskId append_source_check(TaskGraph& graph, const std::shared_ptr<const Arguments>& a, index_t n, index_t c,
                           const std::vector<TaskId>& after) {
  return graph.add(
      {.name = "check input spectrum"},
      [a, n, c] {
        const auto map = static_cast<std::size_t>(n * a->x.shape.c + c);
        if (a->x_hat->source_hash[map] == hash_map(a->x, n, c)) return;
        throw StaleCache(
            fmt::format("convolution: x_hat does not hold the spectra of x (sample {}, channel {}); run "
                        "forward on this x with this cache first",
                        n, c));
      },
      after);
}

template <class T>
class FftVolumeEngine final : public ConvEngine {
 public:
  FftVolumeEngine(const ConvProblem& p, const ConvOptions& options)
      : problem_(p),
        geometry_(p),
        high_res_(geometry_, geometry_.high_res, p.type, options.fft),
        low_res_(geometry_, geometry_.low_res, p.type, high_res_.options()),
        kernel_(*high_res_.forward, p.kernel, p.dilation, high_res_.options()),
        cache_(options.cache_spectra) {
    count_ = high_res_.forward->spectrum_elements();
    spectrum_stride_ = round_up(2 * count_, static_cast<index_t>(64 / sizeof(T)));
    map_bytes_ = bytes_of(spectrum_stride_ * geometry_.transforms);
    weight_bytes_ = bytes_of(spectrum_stride_);
    pairs_ = geometry_.low_res.channels * high_res_per_group();
    const auto all = static_cast<double>(weight_bytes_) * static_cast<double>(pairs_);
    keep_weights_ = cache_ && (options.memory_budget == 0 || all <= static_cast<double>(options.memory_budget));
  }

  Ready append_prepare(TaskGraph& graph, const Ready& ready,
                       std::shared_ptr<const PrepareArguments> arguments) const override;
  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> arguments) const override;
  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> arguments) const override;

  void init_weights(PreparedWeights::Impl& w) const override {
    w.geometry = fmt::format("{} of {} dilation {} groups {}, {}", key(), to_string(problem_.w_shape()),
                             to_string(problem_.dilation), problem_.groups, keep_weights_ ? "spectra" : "packed");
    w.spectra.init(w.memory, keep_weights_ ? static_cast<std::size_t>(pairs_) : 0, weight_bytes_);
    w.packed.init(w.memory, keep_weights_ ? 0 : 1, bytes_of(problem_.w_shape().elements()));
  }
  void init_input_spectra(Spectra::Impl& s) const override { init_spectra(s, problem_.in_channels, "x"); }
  void init_gradient_spectra(Spectra::Impl& s) const override { init_spectra(s, problem_.out_channels, "dy"); }

  std::string numerics() const override {
    return fmt::format("fft_volume {} transforms of {}, kernels {}; {}; {}", geometry_.transforms,
                       to_string(geometry_.transform), kernel_.describe(), high_res_.forward->describe(),
                       high_res_.inverse->describe());
  }
  std::vector<CacheCost> caches() const override;
  TransformCounts transforms() const noexcept override { return meter_.counts(); }
  bool x_hat_replaces_x() const noexcept override { return !checks_sources(); }

 private:
  static std::size_t bytes_of(index_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); }
  index_t high_res_per_group() const { return geometry_.high_res.channels / problem_.groups; }
  index_t low_res_per_group() const { return geometry_.low_res.channels / problem_.groups; }
  const plan::Sides& sides() const { return geometry_.sides; }
  const Transforms& x_transforms() const { return sides().x(high_res_, low_res_); }
  const Transforms& y_transforms() const { return sides().y(high_res_, low_res_); }
  std::size_t volume_bytes() const { return bytes_of(geometry_.volume.plane_stride * geometry_.volume.extent.z); }
  std::size_t row_bytes() const { return bytes_of(geometry_.volume.extent.x); }

  // Scratch of map_spectrum() and map_from_spectrum(), weight_spectrum(), sum_over_channels(), weight_gradient().
  std::size_t map_scratch_bytes(const Transforms& plans) const {
    return volume_bytes() + row_bytes() + std::max(plans.forward->scratch_bytes(), plans.inverse->scratch_bytes()) +
           192;
  }
  std::size_t kernel_bytes() const { return bytes_of(problem_.kernel.volume()); }
  std::size_t kernel_scratch_bytes() const { return kernel_bytes() + kernel_.scratch_bytes() + 128; }
  std::size_t sum_scratch_bytes(index_t terms) const {
    const std::size_t pointers = 2 * static_cast<std::size_t>(terms) * sizeof(T*);
    return pointers + (keep_weights_ ? 0 : terms_per_pass * weight_bytes_ + kernel_scratch_bytes());
  }
  std::size_t gradient_scratch_bytes() const {
    const std::size_t pointers = 2 * static_cast<std::size_t>(problem_.batch * geometry_.transforms) * sizeof(T*);
    return pointers + weight_bytes_ + 64 + kernel_scratch_bytes();
  }

  /// Returns a text that is equal for plans that can read each other's spectra.
  std::string key() const {
    return fmt::format("fft_volume {} {} {}x{} {}",
                       high_res_.options().backend == fft::Backend::fftw ? "fftw" : "native", name_of(problem_.type),
                       geometry_.transforms, to_string(geometry_.transform),
                       geometry_.order == fft::Order::rotated ? "rotated" : "natural");
  }

  void init_spectra(Spectra::Impl& s, index_t channels, const char* of) const {
    const Side& side = *of == 'x' ? geometry_.x_side() : geometry_.y_side();
    s.geometry = fmt::format("{} of {} at {} step {}", key(), to_string(Shape5{problem_.batch, channels, side.extent}),
                             to_string(side.offset), to_string(side.step));
    const auto maps = static_cast<std::size_t>(problem_.batch * channels);
    s.maps.init(s.memory, maps, map_bytes_);
    s.source_hash.assign(maps, 0);
  }

  void map_spectrum(Counted what, const Side& side, const Transforms& plans, const T* map,
                    const std::array<index_t, 5>& stride, const VolumePrologue<T>& end,
                    std::pmr::memory_resource* memory, T* spectrum) const;
  void weight_spectrum(const T* kernel, const std::array<index_t, 5>& stride, std::pmr::memory_resource* memory,
                       T* spectrum) const;
  void map_from_spectrum(const Side& side, const Transforms& plans, const T* spectrum, const VolumeEpilogue<T>& end,
                         std::pmr::memory_resource* memory, T* map, const std::array<index_t, 5>& stride) const;

  /// Returns the index of the spectrum for low-resolution channel `o` and high-resolution channel `c` of the same
  /// group.
  index_t pair(index_t o, index_t c) const { return o * high_res_per_group() + c % high_res_per_group(); }

  void sum_over_channels(const Spectra::Impl& from, const PreparedWeights::Impl& w, bool to_low_res, index_t n,
                         index_t channel, Terms some, std::pmr::memory_resource* memory, T* sum) const;
  void weight_gradient(const Spectra::Impl& x_hat, const Spectra::Impl& dy_hat, index_t o, index_t c,
                       const BackwardArguments& arguments) const;
  void collect_weights(const Ready& ready, bool to_low_res, index_t channel, std::vector<TaskId>& out) const;

  std::vector<TaskId> append_gradient_spectra(TaskGraph& graph, const ConvReady& ready,
                                              const std::shared_ptr<const BackwardArguments>& a,
                                              const std::shared_ptr<Spectra::Impl>& own_dy,
                                              const std::vector<TaskId>& before,
                                              const std::shared_ptr<std::vector<double>>& sums) const;
  std::vector<TaskId> append_input_spectra(TaskGraph& graph, const Ready& ready,
                                           const std::shared_ptr<const BackwardArguments>& a,
                                           const std::shared_ptr<Spectra::Impl>& own_x,
                                           const std::vector<TaskId>& before,
                                           const std::vector<TaskId>& gradient) const;
  // Append the parts of append_backward(). `gradient` are the tasks that complete the spectra of dy.
  Ready append_bias_gradient(TaskGraph& graph, const std::shared_ptr<const BackwardArguments>& a,
                             const std::shared_ptr<std::vector<double>>& sums,
                             const std::vector<TaskId>& gradient) const;
  std::vector<TaskId> append_input_gradient(TaskGraph& graph, const ConvReady& ready,
                                            const std::shared_ptr<const BackwardArguments>& a,
                                            const std::shared_ptr<Spectra::Impl>& own_dy,
                                            const std::vector<TaskId>& gradient) const;
  std::vector<TaskId> append_weight_gradient(TaskGraph& graph, const std::shared_ptr<const BackwardArguments>& a,
                                             const std::shared_ptr<Spectra::Impl>& own_x,
                                             const std::shared_ptr<Spectra::Impl>& own_dy,
                                             const std::vector<TaskId>& input,
                                             const std::vector<TaskId>& gradient) const;

  ConvProblem problem_;
  FftVolumeGeometry geometry_;
  Transforms high_res_, low_res_;
  KernelTransform<T> kernel_;
  bool cache_;
  index_t count_ = 0;            // complex numbers of one transform
  index_t spectrum_stride_ = 0;  // real numbers between the transforms of a feature map
  std::size_t map_bytes_ = 0, weight_bytes_ = 0;
  index_t pairs_ = 0;
  bool keep_weights_ = true;
  VolumeMaps<T> maps_;
  SpectrumKernels<T> products_ = spectrum_kernels<T>();
  mutable TransformMeter meter_;
};

template <class T>
void FftVolumeEngine<T>::map_spectrum(Counted what, const Side& side, const Transforms& plans, const T* map,
                                      const std::array<index_t, 5>& stride, const VolumePrologue<T>& end,
                                      std::pmr::memory_resource* memory, T* spectrum) const {
  const std::size_t fft_bytes = plans.forward->scratch_bytes();
  Scratch scratch(memory, volume_bytes() + row_bytes() + fft_bytes + 192);
  T* volume = scratch.take<T>(volume_bytes());
  T* row = scratch.take<T>(row_bytes());
  T* fft_scratch = scratch.take<T>(fft_bytes);
  maps_.load(side, geometry_.volume, map, stride, plans.planes, end, row, volume);
  meter_.measure(what, [&] {
    for (index_t t = 0; t < geometry_.transforms; ++t) {
      plans.forward->execute(volume + t * geometry_.volume.plane_stride, spectrum + t * spectrum_stride_, fft_scratch);
    }
  });
}

template <class T>
void FftVolumeEngine<T>::weight_spectrum(const T* kernel, const std::array<index_t, 5>& stride,
                                         std::pmr::memory_resource* memory, T* spectrum) const {
  Scratch scratch(memory, kernel_scratch_bytes());
  T* dense = scratch.take<T>(kernel_bytes());
  T* kernel_scratch = scratch.take<T>(kernel_.scratch_bytes());
  copy_kernel(problem_.kernel, kernel, stride, dense, View<T>(dense, {1, 1, problem_.kernel}).stride);
  meter_.measure(Counted::weights, [&] { kernel_.forward(dense, spectrum, kernel_scratch); });
}

template <class T>
void FftVolumeEngine<T>::map_from_spectrum(const Side& side, const Transforms& plans, const T* spectrum,
                                           const VolumeEpilogue<T>& end, std::pmr::memory_resource* memory, T* map,
                                           const std::array<index_t, 5>& stride) const {
  const std::size_t fft_bytes = plans.inverse->scratch_bytes();
  Scratch scratch(memory, volume_bytes() + row_bytes() + fft_bytes + 192);
  T* volume = scratch.take<T>(volume_bytes());
  T* row = scratch.take<T>(row_bytes());
  T* fft_scratch = scratch.take<T>(fft_bytes);
  meter_.measure(Counted::inverse, [&] {
    for (index_t t = 0; t < geometry_.transforms; ++t) {
      plans.inverse->execute(spectrum + t * spectrum_stride_, volume + t * geometry_.volume.plane_stride, fft_scratch);
    }
  });
  VolumeEpilogue<T> scaled = end;
  scaled.scale = static_cast<T>(1.0 / static_cast<double>(geometry_.transform.volume()));
  maps_.store(side, geometry_.volume, volume, scaled, row, map, stride);
}

/// Computes equations 1 and 2: the sum over some of the channels of the other side that are in the same group as
/// `channel`.
template <class T>
void FftVolumeEngine<T>::sum_over_channels(const Spectra::Impl& from, const PreparedWeights::Impl& w, bool to_low_res,
                                           index_t n, index_t channel, Terms some, std::pmr::memory_resource* memory,
                                           T* sum) const {
  const index_t all = to_low_res ? high_res_per_group() : low_res_per_group(), terms = some.end - some.begin;
  const index_t group = channel / (to_low_res ? low_res_per_group() : high_res_per_group());
  const index_t source_channels = to_low_res ? geometry_.high_res.channels : geometry_.low_res.channels;
  std::pmr::vector<const T*> maps(static_cast<std::size_t>(terms), memory), weights(maps.size(), memory);
  const auto map_of = [&](index_t t) {
    return static_cast<const T*>(
        from.maps.get(static_cast<std::size_t>(n * source_channels + group * all + some.begin + t)));
  };
  const auto pair_of = [&](index_t t) {
    const index_t other = group * all + some.begin + t;
    return to_low_res ? pair(channel, other) : pair(other, channel);
  };
  if (keep_weights_) {
    for (index_t t = 0; t < terms; ++t) {
      weights[static_cast<std::size_t>(t)] = static_cast<const T*>(w.spectra.get(static_cast<std::size_t>(pair_of(t))));
    }
    for (index_t p = 0; p < geometry_.transforms; ++p) {
      for (index_t t = 0; t < terms; ++t) maps[static_cast<std::size_t>(t)] = map_of(t) + p * spectrum_stride_;
      products_.sum_products(maps.data(), weights.data(), terms, to_low_res, count_, false, sum + p * spectrum_stride_);
    }
    return;
  }
  // Weight spectra are recomputed for terms_per_pass terms at a time. The additions and their order are the same, so
  // the bits are the same.
  Scratch scratch(memory, terms_per_pass * weight_bytes_);
  std::array<T*, terms_per_pass> spectra{};
  for (T*& spectrum : spectra) spectrum = scratch.take<T>(weight_bytes_);
  const View<const T> packed(static_cast<const T*>(w.packed.get(0)), problem_.w_shape());
  for (index_t begin = 0; begin < terms; begin += terms_per_pass) {
    const index_t pass = std::min(terms_per_pass, terms - begin);
    for (index_t t = 0; t < pass; ++t) {
      const index_t index = pair_of(begin + t);
      T* spectrum = spectra[static_cast<std::size_t>(t)];
      weight_spectrum(packed.channel(index / high_res_per_group(), index % high_res_per_group()), packed.stride, memory,
                      spectrum);
      weights[static_cast<std::size_t>(t)] = spectrum;
    }
    for (index_t p = 0; p < geometry_.transforms; ++p) {
      for (index_t t = 0; t < pass; ++t) maps[static_cast<std::size_t>(t)] = map_of(begin + t) + p * spectrum_stride_;
      products_.sum_products(maps.data(), weights.data(), pass, to_low_res, count_, begin > 0,
                             sum + p * spectrum_stride_);
    }
  }
}

/// Computes equation 3. The sum over samples (and planes) is computed before the only inverse transform.
template <class T>
void FftVolumeEngine<T>::weight_gradient(const Spectra::Impl& x_hat, const Spectra::Impl& dy_hat, index_t o, index_t c,
                                         const BackwardArguments& a) const {
  const Spectra::Impl &high_res = sides().high_res(x_hat, dy_hat), &low_res = sides().low_res(x_hat, dy_hat);
  std::pmr::vector<const T*> left(a.memory), right(a.memory);
  for (auto* side : {&left, &right}) side->reserve(static_cast<std::size_t>(problem_.batch * geometry_.transforms));
  for (index_t n = 0; n < problem_.batch; ++n) {
    const auto* f =
        static_cast<const T*>(high_res.maps.get(static_cast<std::size_t>(n * geometry_.high_res.channels + c)));
    const auto* g =
        static_cast<const T*>(low_res.maps.get(static_cast<std::size_t>(n * geometry_.low_res.channels + o)));
    for (index_t p = 0; p < geometry_.transforms; ++p) {
      left.push_back(f + p * spectrum_stride_);
      right.push_back(g + p * spectrum_stride_);
    }
  }
  Scratch scratch(a.memory, weight_bytes_ + 64 + kernel_scratch_bytes());
  T* sum = scratch.take<T>(weight_bytes_);
  T* dense = scratch.take<T>(kernel_bytes());
  T* kernel_scratch = scratch.take<T>(kernel_.scratch_bytes());
  products_.sum_products(left.data(), right.data(), static_cast<index_t>(left.size()), true, count_, false, sum);
  meter_.measure(Counted::inverse, [&] { kernel_.inverse(sum, dense, kernel_scratch); });
  const auto dw = a.dw.as<T>();
  const T scale = static_cast<T>(1.0 / static_cast<double>(geometry_.transform.volume()));
  copy_kernel(problem_.kernel, static_cast<const T*>(dense), View<T>(dense, {1, 1, problem_.kernel}).stride,
              dw.channel(o, c % high_res_per_group()), dw.stride, a.add_dw, scale);
}

template <class T>
Ready FftVolumeEngine<T>::append_prepare(TaskGraph& graph, const Ready& ready,
                                         std::shared_ptr<const PrepareArguments> a) const {
  std::vector<TaskId> tasks;
  const double cost = static_cast<double>(high_res_per_group()) * kernel_.flops();
  for (index_t o = 0; o < geometry_.low_res.channels; ++o) {
    std::vector<TaskId> after;
    ready.collect(0, o, o + 1, after);
    if (!tasks.empty() && !keep_weights_) after.push_back(tasks.back());  // the first task allocates the packed buffer
    tasks.push_back(graph.add(
        {.name = keep_weights_ ? "weight spectra" : "pack weights",
         .cost = cost,
         .scratch_bytes = keep_weights_ ? kernel_scratch_bytes() : 0},
        [this, a, o] {
          const auto w = a->w.as<T>();
          for (index_t c = 0; c < high_res_per_group(); ++c) {
            if (keep_weights_) {
              auto* spectrum = static_cast<T*>(a->prepared->spectra.acquire(static_cast<std::size_t>(pair(o, c))));
              weight_spectrum(w.channel(o, c), w.stride, a->prepared->memory, spectrum);
              continue;
            }
            const View<T> packed(static_cast<T*>(a->prepared->packed.acquire(0)), problem_.w_shape());
            copy_kernel(problem_.kernel, w.channel(o, c), w.stride, packed.channel(o, c), packed.stride);
          }
        },
        after));
  }
  return Ready::per_channel(std::move(tasks), geometry_.low_res.channels);
}

template <class T>
void FftVolumeEngine<T>::collect_weights(const Ready& ready, bool to_low_res, index_t channel,
                                         std::vector<TaskId>& out) const {
  if (to_low_res) {
    ready.collect(0, channel, channel + 1, out);
  } else {
    const index_t group = channel / high_res_per_group();
    ready.collect(0, group * low_res_per_group(), (group + 1) * low_res_per_group(), out);
  }
}

template <class T>
Ready FftVolumeEngine<T>::append_forward(TaskGraph& graph, const ConvReady& ready,
                                         std::shared_ptr<const ForwardArguments> a) const {
  const index_t in = problem_.in_channels, out = problem_.out_channels;
  const double transform_cost = high_res_.forward->flops() * static_cast<double>(geometry_.transforms);
  // If the caller passes no cache, the spectra live from their first use to their last use within the run.
  const auto own = std::make_shared<Spectra::Impl>();
  own->memory = a->memory;
  if (a->x_hat == nullptr) init_input_spectra(*own);
  const RunBuffers buffers(graph, a->workspace, maps_of(own));
  std::vector<TaskId> spectra;
  for (index_t i = 0; i < problem_.batch * in; ++i) {
    std::vector<TaskId> after = buffers.ready();
    ready.x.collect(i / in, i % in, i % in + 1, after);
    spectra.push_back(graph.add(
        {.name = "input spectrum", .cost = transform_cost, .scratch_bytes = map_scratch_bytes(x_transforms())},
        [this, a, own, i, in] {
          Spectra::Impl& s = a->x_hat != nullptr ? *a->x_hat : *own;
          const auto x = a->x.as<T>();
          auto* spectrum = static_cast<T*>(s.maps.acquire(static_cast<std::size_t>(i)));
          map_spectrum(Counted::input, geometry_.x_side(), x_transforms(), x.channel(i / in, i % in), x.stride, {},
                       a->memory, spectrum);
          if (checks_sources()) s.source_hash[static_cast<std::size_t>(i)] = hash_map(a->x, i / in, i % in);
        },
        after));
  }
  const bool to_low_res = !sides().y_is_high_res();
  const double product_cost = transform_cost + 8.0 * static_cast<double>(count_ * geometry_.transforms) *
                                                   static_cast<double>(in / problem_.groups);
  std::vector<TaskId> outputs;
  for (index_t i = 0; i < problem_.batch * out; ++i) {
    const index_t n = i / out, o = i % out;
    const index_t group = o / (out / problem_.groups), per_group = in / problem_.groups;
    std::vector<TaskId> after;
    for (index_t c = group * per_group; c < (group + 1) * per_group; ++c) {
      after.push_back(spectra[static_cast<std::size_t>(n * in + c)]);
    }
    collect_weights(ready.w, to_low_res, o, after);
    const auto part = [this, a, own, n, o, to_low_res](Terms terms, T* sum) {
      sum_over_channels(a->x_hat != nullptr ? *a->x_hat : *own, *a->w, to_low_res, n, o, terms, a->memory, sum);
    };
    outputs.push_back(append_sum<T>(
        graph,
        {.name = "output volume",
         .cost = product_cost,
         .scratch_bytes = std::max(sum_scratch_bytes(per_group), map_scratch_bytes(y_transforms()))},
        {.terms = per_group, .sums = problem_.batch * out, .bytes = map_bytes_}, a->memory, a->workspace, part,
        [this, a, n, o](T* sum) {
          VolumeEpilogue<T> end{.activation = problem_.epilogue.activation};
          if (problem_.epilogue.bias) end.bias = a->bias.as<T>()(0, o, 0, 0, 0);
          const auto y = a->y.as<T>();
          map_from_spectrum(geometry_.y_side(), y_transforms(), sum, end, a->memory, y.channel(n, o), y.stride);
        },
        after));
  }
  buffers.end(graph, "free input spectra", outputs);
  return Ready::per_channel(std::move(outputs), out);
}

template <class T>
std::vector<TaskId> FftVolumeEngine<T>::append_gradient_spectra(
    TaskGraph& graph, const ConvReady& ready, const std::shared_ptr<const BackwardArguments>& a,
    const std::shared_ptr<Spectra::Impl>& own_dy, const std::vector<TaskId>& before,
    const std::shared_ptr<std::vector<double>>& sums) const {
  const index_t out = problem_.out_channels;
  std::vector<TaskId> tasks;
  for (index_t i = 0; i < problem_.batch * out; ++i) {
    std::vector<TaskId> after = before;
    ready.dy.collect(i / out, i % out, i % out + 1, after);
    tasks.push_back(graph.add(
        {.name = "gradient spectrum",
         .cost = high_res_.forward->flops() * static_cast<double>(geometry_.transforms),
         .scratch_bytes = map_scratch_bytes(y_transforms())},
        [this, a, own_dy, sums, i, out] {
          Spectra::Impl& s = a->dy_hat != nullptr ? *a->dy_hat : *own_dy;
          const auto dy = a->dy.as<T>();
          VolumePrologue<T> end{.sum = sums ? &(*sums)[static_cast<std::size_t>(i)] : nullptr};
          if (problem_.epilogue.activation.kind != Activation::Kind::none) {
            const auto y = a->y.as<T>();
            end.activation = &problem_.epilogue.activation;
            end.y = y.channel(i / out, i % out);
            end.y_stride = y.stride;
          }
          auto* spectrum = static_cast<T*>(s.maps.acquire(static_cast<std::size_t>(i)));
          map_spectrum(Counted::gradient, geometry_.y_side(), y_transforms(), dy.channel(i / out, i % out), dy.stride,
                       end, a->memory, spectrum);
        },
        after));
  }
  return tasks;
}

/// Returns the tasks that provide the spectra of x for the weight gradient. They compute the spectra. If the forward
/// pass kept the spectra, they only check them, if checks_sources().
template <class T>
std::vector<TaskId> FftVolumeEngine<T>::append_input_spectra(TaskGraph& graph, const Ready& ready,
                                                             const std::shared_ptr<const BackwardArguments>& a,
                                                             const std::shared_ptr<Spectra::Impl>& own_x,
                                                             const std::vector<TaskId>& before,
                                                             const std::vector<TaskId>& gradient) const {
  const index_t in = problem_.in_channels;
  std::vector<TaskId> tasks;
  for (index_t i = 0; i < problem_.batch * in; ++i) {
    std::vector<TaskId> after = before;
    ready.collect(i / in, i % in, i % in + 1, after);
    if (a->x_hat == nullptr) {
      // In a graph with both passes, x is complete long before dy. Without the next line, the recomputed x_hat would be
      // kept for a long time, although spectra are not to be cached.
      if (!cache_) after.insert(after.end(), gradient.begin(), gradient.end());
      tasks.push_back(graph.add(
          {.name = "input spectrum",
           .cost = high_res_.forward->flops() * static_cast<double>(geometry_.transforms),
           .scratch_bytes = map_scratch_bytes(x_transforms())},
          [this, a, own_x, i, in] {
            const auto x = a->x.as<T>();
            auto* spectrum = static_cast<T*>(own_x->maps.acquire(static_cast<std::size_t>(i)));
            map_spectrum(Counted::input, geometry_.x_side(), x_transforms(), x.channel(i / in, i % in), x.stride, {},
                         a->memory, spectrum);
          },
          after));
      continue;
    }
    if (!checks_sources()) continue;
    // The check comes after the gradient, and so after the forward pass that fills the cache.
    after.insert(after.end(), gradient.begin(), gradient.end());
    tasks.push_back(append_source_check(graph, a, i / in, i % in, after));
  }
  return tasks;
}

template <class T>
Ready FftVolumeEngine<T>::append_bias_gradient(TaskGraph& graph, const std::shared_ptr<const BackwardArguments>& a,
                                               const std::shared_ptr<std::vector<double>>& sums,
                                               const std::vector<TaskId>& gradient) const {
  const index_t out = problem_.out_channels;
  const TaskId task = graph.add(
      {.name = "bias gradient"},
      [this, a, sums, out] {
        const auto dbias = a->dbias.as<T>();
        for (index_t o = 0; o < out; ++o) {
          double sum = 0;
          for (index_t n = 0; n < problem_.batch; ++n) sum += (*sums)[static_cast<std::size_t>(n * out + o)];
          T& target = dbias(0, o, 0, 0, 0);
          target = a->add_dw ? target + static_cast<T>(sum) : static_cast<T>(sum);
        }
      },
      gradient);
  return Ready::all_of({task});
}

/// Returns the tasks that compute dx, one per sample and channel.
template <class T>
std::vector<TaskId> FftVolumeEngine<T>::append_input_gradient(TaskGraph& graph, const ConvReady& ready,
                                                              const std::shared_ptr<const BackwardArguments>& a,
                                                              const std::shared_ptr<Spectra::Impl>& own_dy,
                                                              const std::vector<TaskId>& gradient) const {
  const index_t in = problem_.in_channels, out = problem_.out_channels;
  const bool to_low_res = sides().y_is_high_res();
  const index_t per_group = out / problem_.groups;
  std::vector<TaskId> tasks;
  for (index_t i = 0; i < problem_.batch * in; ++i) {
    const index_t n = i / in, c = i % in, group = c / (in / problem_.groups);
    std::vector<TaskId> after;
    for (index_t o = group * per_group; o < (group + 1) * per_group; ++o) {
      after.push_back(gradient[static_cast<std::size_t>(n * out + o)]);
    }
    collect_weights(ready.w, to_low_res, c, after);
    ready.dx.collect(n, c, c + 1, after);
    const auto part = [this, a, own_dy, n, c, to_low_res](Terms terms, T* sum) {
      sum_over_channels(a->dy_hat != nullptr ? *a->dy_hat : *own_dy, *a->w, to_low_res, n, c, terms, a->memory, sum);
    };
    tasks.push_back(append_sum<T>(
        graph,
        {.name = "input gradient",
         .cost = high_res_.inverse->flops() * static_cast<double>(geometry_.transforms),
         .scratch_bytes = std::max(sum_scratch_bytes(per_group), map_scratch_bytes(x_transforms()))},
        {.terms = per_group, .sums = problem_.batch * in, .bytes = map_bytes_}, a->memory, a->workspace, part,
        [this, a, n, c](T* sum) {
          const auto dx = a->dx.as<T>();
          map_from_spectrum(geometry_.x_side(), x_transforms(), sum, {.add = a->add_dx}, a->memory, dx.channel(n, c),
                            dx.stride);
        },
        after));
  }
  return tasks;
}

/// Returns the tasks that compute dw, one per pair of channels.
template <class T>
std::vector<TaskId> FftVolumeEngine<T>::append_weight_gradient(TaskGraph& graph,
                                                               const std::shared_ptr<const BackwardArguments>& a,
                                                               const std::shared_ptr<Spectra::Impl>& own_x,
                                                               const std::shared_ptr<Spectra::Impl>& own_dy,
                                                               const std::vector<TaskId>& input,
                                                               const std::vector<TaskId>& gradient) const {
  const index_t in = problem_.in_channels, out = problem_.out_channels;
  std::vector<TaskId> tasks;
  const double cost = kernel_.flops() + 8.0 * static_cast<double>(count_ * geometry_.transforms * problem_.batch);
  for (index_t i = 0; i < pairs_; ++i) {
    const index_t o = i / high_res_per_group();
    const index_t c = o / low_res_per_group() * high_res_per_group() + i % high_res_per_group();
    // A pair waits only for its own feature maps. If each pair waited for all maps, the dependencies would not fit
    // into memory.
    const index_t x_channel = sides().low_res(o, c), y_channel = sides().low_res(c, o);
    std::vector<TaskId> after;
    for (index_t n = 0; n < problem_.batch; ++n) {
      if (!input.empty()) after.push_back(input[static_cast<std::size_t>(n * in + x_channel)]);
      after.push_back(gradient[static_cast<std::size_t>(n * out + y_channel)]);
    }
    tasks.push_back(graph.add(
        {.name = "weight gradient", .cost = cost, .scratch_bytes = gradient_scratch_bytes()},
        [this, a, own_dy, own_x, o, c] {
          weight_gradient(a->x_hat != nullptr ? *a->x_hat : *own_x, a->dy_hat != nullptr ? *a->dy_hat : *own_dy, o, c,
                          *a);
        },
        after));
  }
  return tasks;
}

template <class T>
ConvGradientReady FftVolumeEngine<T>::append_backward(TaskGraph& graph, const ConvReady& ready,
                                                      std::shared_ptr<const BackwardArguments> a) const {
  const index_t in = problem_.in_channels, out = problem_.out_channels;
  const bool want_dx = static_cast<bool>(a->dx), want_dw = static_cast<bool>(a->dw);
  auto own_dy = std::make_shared<Spectra::Impl>();
  auto own_x = std::make_shared<Spectra::Impl>();
  own_dy->memory = own_x->memory = a->memory;
  if (a->dy_hat == nullptr) init_gradient_spectra(*own_dy);
  // If spectra are not cached, each product has its own spectra of dy.
  const bool separate_dy = !cache_ && a->dy_hat == nullptr && want_dx && want_dw;
  auto own_dy_for_dw = own_dy;
  if (separate_dy) {
    own_dy_for_dw = std::make_shared<Spectra::Impl>();
    own_dy_for_dw->memory = a->memory;
    init_gradient_spectra(*own_dy_for_dw);
  }
  if (a->x_hat == nullptr && want_dw) init_input_spectra(*own_x);
  const RunBuffers dy_buffers(graph, a->workspace, maps_of(own_dy)), x_buffers(graph, a->workspace, maps_of(own_x));
  // If `separate_dy` is false, the spectra for dw are those for dx.
  const RunBuffers dw_buffers = separate_dy ? RunBuffers(graph, a->workspace, maps_of(own_dy_for_dw)) : dy_buffers;
  std::shared_ptr<std::vector<double>> sums;
  if (a->dbias) sums = std::make_shared<std::vector<double>>(static_cast<std::size_t>(problem_.batch * out), 0.0);

  const auto gradient = append_gradient_spectra(graph, ready, a, own_dy, dy_buffers.ready(), sums);
  const auto gradient_for_dw =
      separate_dy ? append_gradient_spectra(graph, ready, a, own_dy_for_dw, dw_buffers.ready(), nullptr) : gradient;
  ConvGradientReady result;
  std::vector<TaskId> users;  // tasks that read the spectra of dy
  if (a->dbias) result.dbias = append_bias_gradient(graph, a, sums, gradient);
  if (want_dx) {
    users = append_input_gradient(graph, ready, a, own_dy, gradient);
    result.dx = Ready::per_channel(users, in);
  }
  std::vector<TaskId> input_users;
  if (want_dw) {
    const auto input = append_input_spectra(graph, ready.x, a, own_x, x_buffers.ready(), gradient_for_dw);
    input_users = append_weight_gradient(graph, a, own_x, own_dy_for_dw, input, gradient_for_dw);
    if (!separate_dy) users.insert(users.end(), input_users.begin(), input_users.end());
    result.dw = Ready::all_of(input_users);
  }
  if (users.empty()) users = gradient;
  dy_buffers.end(graph, "free gradient spectra", users);
  x_buffers.end(graph, "free input spectra", input_users);
  if (separate_dy) dw_buffers.end(graph, "free gradient spectra", input_users);
  return result;
}

template <class T>
std::vector<CacheCost> FftVolumeEngine<T>::caches() const {
  const auto& machine = machine_model();
  const double one = plan::transform_seconds(high_res_.forward->flops(), machine);
  const double maps = static_cast<double>(problem_.batch * geometry_.transforms);
  const auto bytes = [&](index_t count, std::size_t each) { return static_cast<std::size_t>(count) * each; };
  // Without w_hat, both passes transform the weights again for each sample.
  const auto repeated = static_cast<double>(pairs_ * (2 * problem_.batch - 1));
  return {
      {.name = "x_hat",
       .bytes = bytes(problem_.batch * problem_.in_channels, map_bytes_),
       .seconds_saved = one * maps * static_cast<double>(problem_.in_channels),
       .kept = cache_,
       .budgeted = false,
       .content = CacheCost::Content::input},
      {.name = "dy_hat",
       .bytes = bytes(problem_.batch * problem_.out_channels, map_bytes_),
       .seconds_saved = one * maps * static_cast<double>(problem_.out_channels),
       .kept = cache_,
       .budgeted = false,
       .content = CacheCost::Content::gradient},
      {.name = "w_hat", .bytes = bytes(pairs_, weight_bytes_), .seconds_saved = one * repeated, .kept = keep_weights_}};
}

std::string unsupported_reason(const ConvProblem& problem, const ConvOptions&, const ChoiceParts*) {
  if (leaves_out_voxels(problem)) return no_cropped_volumes;
  if (problem.x_layout == Layout::plain && problem.y_layout == Layout::plain) return {};
  return "reads and writes whole feature maps and needs plain layouts";
}

Estimate estimate(const ConvProblem& problem, const ConvOptions& options, const MachineModel& machine,
                  const ChoiceParts*) {
  const FftVolumeGeometry geometry(problem);
  const double seconds =
      plan::fft_volume_seconds(problem, geometry.transform, geometry.transforms, wanted_of(options), machine);
  // A map of several planes has a spectrum for each plane; a pair of channels has one spectrum for all planes.
  const double spectrum = static_cast<double>(geometry.transform.volume()) * static_cast<double>(size_of(problem.type));
  const plan::Wanted wanted = wanted_of(options);
  const index_t channels = problem.in_channels + (wanted.data || wanted.weights ? problem.out_channels : 0);
  const double maps = spectrum * static_cast<double>(geometry.transforms * problem.batch * channels);
  const double weights = spectrum * static_cast<double>(problem.w_shape().n * problem.w_shape().c);
  const bool kept =
      options.cache_spectra && (options.memory_budget == 0 || weights <= static_cast<double>(options.memory_budget));
  return {seconds, maps + (kept ? weights : 0)};
}

std::unique_ptr<ConvEngine> create(const ConvProblem& problem, const ConvOptions& options, const ChoiceParts*) {
  return create_for_type<FftVolumeEngine>(problem, options);
}

}  // namespace

Implementation fft_volume_implementation() {
  return {Engine::fft_volume, "fft_volume", false, unsupported_reason, estimate, create};
}

}  // namespace convolume::conv
