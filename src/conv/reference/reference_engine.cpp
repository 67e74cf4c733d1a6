// The definition of convolution as loops, with sums in double. All other engines are tested against it. It is the last
// engine that `automatic` may choose.
#include "conv/reference/reference_engine.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "conv/caches/caches.hpp"
#include "conv/choice.hpp"
#include "ops/activation.hpp"
#include "plan/cost_model.hpp"
#include "plan/sides.hpp"

namespace convolume::conv {
namespace {

/// Calls body() for the voxels [begin, end), in the order in which x changes fastest.
template <class Body>
void for_each_voxel(const Extent3& begin, const Extent3& end, const Body& body) {
  for (index_t z = begin.z; z < end.z; ++z) {
    for (index_t y = begin.y; y < end.y; ++y) {
      for (index_t x = begin.x; x < end.x; ++x) body(Extent3{z, y, x});
    }
  }
}
template <class Body>
void for_each_voxel(const Extent3& extent, const Body& body) {
  for_each_voxel({0, 0, 0}, extent, body);
}

template <class T>
T& at(const View<T>& view, index_t n, index_t c, const Extent3& i) {
  return view(n, c, i.z, i.y, i.x);
}

bool inside(const Extent3& i, const Extent3& e) {
  return i.z >= 0 && i.z < e.z && i.y >= 0 && i.y < e.y && i.x >= 0 && i.x < e.x;
}

template <class T>
class ReferenceEngine final : public ConvEngine {
 public:
  explicit ReferenceEngine(const ConvProblem& p) : p_(p), sides_(p), output_(p.output()) {}

  void init_weights(PreparedWeights::Impl& w) const override {
    w.geometry = fmt::format("reference {} of {}", name_of(p_.type), to_string(p_.w_shape()));
    w.packed.init(w.memory, 1, static_cast<std::size_t>(p_.w_shape().elements()) * sizeof(T));
  }
  void init_input_spectra(Spectra::Impl& s) const override { s.geometry = "reference"; }
  void init_gradient_spectra(Spectra::Impl& s) const override { s.geometry = "reference"; }
  std::string numerics() const override { return "reference"; }

  Ready append_prepare(TaskGraph& graph, const Ready& ready, std::shared_ptr<const PrepareArguments> a) const override {
    const TaskId task = graph.add(
        {.name = "pack weights"},
        [this, a] {
          const View<T> packed(static_cast<T*>(a->prepared->packed.acquire(0)), p_.w_shape());
          const auto w = a->w.as<T>();
          for (index_t o = 0; o < packed.shape.n; ++o) {
            for (index_t c = 0; c < packed.shape.c; ++c) {
              for_each_voxel(p_.kernel, [&](const Extent3& j) { at(packed, o, c, j) = at(w, o, c, j); });
            }
          }
        },
        ready.tasks());
    return Ready::all_of({task});
  }

  Ready append_forward(TaskGraph& graph, const ConvReady& ready,
                       std::shared_ptr<const ForwardArguments> a) const override {
    const double cost = p_.flops() / static_cast<double>(p_.batch * p_.out_channels);
    std::vector<TaskId> tasks;
    for (index_t i = 0; i < p_.batch * p_.out_channels; ++i) {
      const index_t n = i / p_.out_channels, o = i % p_.out_channels;
      std::vector<TaskId> after = ready.w.tasks();
      ready.x.collect(n, 0, p_.in_channels, after);
      tasks.push_back(graph.add(
          {.name = "reference forward", .cost = cost}, [this, a, n, o] { forward_map(*a, n, o); }, after));
    }
    return Ready::per_channel(std::move(tasks), p_.out_channels);
  }

  ConvGradientReady append_backward(TaskGraph& graph, const ConvReady& ready,
                                    std::shared_ptr<const BackwardArguments> a) const override {
    const double cost = p_.flops() / static_cast<double>(p_.batch * p_.in_channels);
    ConvGradientReady result;
    if (a->dx) {
      std::vector<TaskId> tasks;
      for (index_t i = 0; i < p_.batch * p_.in_channels; ++i) {
        const index_t n = i / p_.in_channels, c = i % p_.in_channels;
        std::vector<TaskId> after = ready.w.tasks();
        ready.dy.collect(n, 0, p_.out_channels, after);
        ready.dx.collect(n, c, c + 1, after);
        tasks.push_back(graph.add(
            {.name = "reference input gradient", .cost = cost}, [this, a, n, c] { input_gradient(*a, n, c); }, after));
      }
      result.dx = Ready::per_channel(std::move(tasks), p_.in_channels);
    }
    std::vector<TaskId> all = ready.dy.tasks();
    const auto x_tasks = ready.x.tasks();
    all.insert(all.end(), x_tasks.begin(), x_tasks.end());
    if (a->dw) {
      std::vector<TaskId> tasks;
      for (index_t first = 0; first < p_.w_shape().n; ++first) {
        tasks.push_back(graph.add(
            {.name = "reference weight gradient", .cost = cost}, [this, a, first] { weight_gradient(*a, first); },
            all));
      }
      result.dw = Ready::all_of(std::move(tasks));
    }
    if (a->dbias) {
      const TaskId task = graph.add(
          {.name = "bias gradient"}, [this, a] { bias_gradient(*a); }, all);
      result.dbias = Ready::all_of({task});
    }
    return result;
  }

 private:
  /// Returns the position on the high-resolution side that the low-resolution voxel `i` uses with
  /// kernel voxel `j`.
  Extent3 high_res_position(const Extent3& i, const Extent3& j) const {
    return i * p_.stride + j * p_.dilation - p_.pad_before;
  }

  /// Returns whether a low-resolution voxel uses the high-resolution voxel `i` with kernel voxel `j`, and stores that
  /// voxel in `result`.
  bool low_res_position(const Extent3& i, const Extent3& j, const Extent3& extent, Extent3& result) const {
    const Extent3 dense = i + p_.pad_before - j * p_.dilation;
    for (int axis = 0; axis < 3; ++axis) {
      if (dense[axis] < 0 || dense[axis] % p_.stride[axis] != 0) return false;
      result[axis] = dense[axis] / p_.stride[axis];
    }
    return inside(result, extent);
  }

  View<const T> weights(const PreparedWeights::Impl& w) const {
    return {static_cast<const T*>(w.packed.get(0)), p_.w_shape()};
  }

  /// Returns the sum over the high-resolution channels of a group around one low-resolution voxel. `read(c, i)` returns
  /// a value of the high-resolution tensor.
  template <class Read>
  double to_low_res(const View<const T>& w, index_t o, const Extent3& i, const Extent3& high_res,
                    const Read& read) const {
    const index_t per_group = w.shape.c;
    const index_t group = o / (w.shape.n / p_.groups);
    double sum = 0;
    for (index_t c = 0; c < per_group; ++c) {
      for_each_voxel(p_.kernel, [&](const Extent3& j) {
        const Extent3 at_high_res = high_res_position(i, j);
        if (inside(at_high_res, high_res))
          sum += read(group * per_group + c, at_high_res) * static_cast<double>(at(w, o, c, j));
      });
    }
    return sum;
  }

  /// Returns the sum over the low-resolution channels of a group around one high-resolution voxel.
  template <class Read>
  double to_high_res(const View<const T>& w, index_t c, const Extent3& i, const Extent3& low_res,
                     const Read& read) const {
    const index_t per_group = w.shape.n / p_.groups;
    const index_t group = c / w.shape.c;
    double sum = 0;
    Extent3 at_low_res;
    // Kernel voxels outside this range are used by no low-resolution voxel. A large kernel has many such voxels.
    const Extent3 reach = i + p_.pad_before, last = (low_res - Extent3::all(1)) * p_.stride;
    Extent3 begin, end;
    for (int axis = 0; axis < 3; ++axis) {
      const index_t step = p_.dilation[axis];
      begin[axis] = std::max<index_t>(0, (reach[axis] - last[axis] + step - 1) / step);
      end[axis] = std::min(p_.kernel[axis], reach[axis] / step + 1);
    }
    for (index_t o = group * per_group; o < (group + 1) * per_group; ++o) {
      for_each_voxel(begin, end, [&](const Extent3& j) {
        if (low_res_position(i, j, low_res, at_low_res)) {
          sum += read(o, at_low_res) * static_cast<double>(at(w, o, c % w.shape.c, j));
        }
      });
    }
    return sum;
  }

  void forward_map(const ForwardArguments& a, index_t n, index_t o) const {
    const auto x = a.x.as<T>();
    const auto y = a.y.as<T>();
    const auto w = weights(*a.w);
    const double bias = p_.epilogue.bias ? static_cast<double>(a.bias.as<T>()(0, o, 0, 0, 0)) : 0.0;
    const auto read = [&](index_t c, const Extent3& i) { return static_cast<double>(at(x, n, c, i)); };
    for_each_voxel(output_, [&](const Extent3& i) {
      const double sum =
          sides_.y_is_high_res() ? to_high_res(w, o, i, p_.input, read) : to_low_res(w, o, i, p_.input, read);
      at(y, n, o, i) = static_cast<T>(ops::activation_value(p_.epilogue.activation, sum + bias));
    });
  }

  /// Returns dy times the gradient of the fused activation.
  double dz(const BackwardArguments& a, index_t n, index_t o, const Extent3& i) const {
    const double dy = static_cast<double>(at(a.dy.as<T>(), n, o, i));
    if (p_.epilogue.activation.kind == Activation::Kind::none) return dy;
    return dy * ops::activation_slope(p_.epilogue.activation, static_cast<double>(at(a.y.as<T>(), n, o, i)));
  }

  void input_gradient(const BackwardArguments& a, index_t n, index_t c) const {
    const auto w = weights(*a.w);
    const auto dx = a.dx.as<T>();
    const auto read = [&](index_t o, const Extent3& i) { return dz(a, n, o, i); };
    for_each_voxel(p_.input, [&](const Extent3& i) {
      const double sum =
          sides_.y_is_high_res() ? to_low_res(w, c, i, output_, read) : to_high_res(w, c, i, output_, read);
      T& target = at(dx, n, c, i);
      target = static_cast<T>(a.add_dx ? static_cast<double>(target) + sum : sum);
    });
  }

  void weight_gradient(const BackwardArguments& a, index_t low_res_channel) const {
    const auto x = a.x.as<T>();
    const auto dw = a.dw.as<T>();
    const index_t group = low_res_channel / (dw.shape.n / p_.groups);
    const Extent3 low_res = sides_.low_res(p_.input, output_), high_res = sides_.high_res(p_.input, output_);
    for (index_t c = 0; c < dw.shape.c; ++c) {
      const index_t high_res_channel = group * dw.shape.c + c;
      for_each_voxel(p_.kernel, [&](const Extent3& j) {
        double sum = 0;
        for (index_t n = 0; n < p_.batch; ++n) {
          for_each_voxel(low_res, [&](const Extent3& i) {
            const Extent3 at_high_res = high_res_position(i, j);
            if (!inside(at_high_res, high_res)) return;
            sum += sides_.y_is_high_res()
                       ? static_cast<double>(at(x, n, low_res_channel, i)) * dz(a, n, high_res_channel, at_high_res)
                       : static_cast<double>(at(x, n, high_res_channel, at_high_res)) * dz(a, n, low_res_channel, i);
          });
        }
        T& target = at(dw, low_res_channel, c, j);
        target = static_cast<T>(a.add_dw ? static_cast<double>(target) + sum : sum);
      });
    }
  }

  void bias_gradient(const BackwardArguments& a) const {
    const auto dbias = a.dbias.as<T>();
    for (index_t o = 0; o < p_.out_channels; ++o) {
      double sum = 0;
      for (index_t n = 0; n < p_.batch; ++n) {
        for_each_voxel(output_, [&](const Extent3& i) { sum += dz(a, n, o, i); });
      }
      T& target = dbias(0, o, 0, 0, 0);
      target = static_cast<T>(a.add_dw ? static_cast<double>(target) + sum : sum);
    }
  }

  ConvProblem p_;
  plan::Sides sides_;
  Extent3 output_;
};

std::string unsupported_reason(const ConvProblem& problem, const ConvOptions&, const ChoiceParts*) {
  const bool plain = problem.x_layout == Layout::plain && problem.y_layout == Layout::plain;
  return plain ? "" : "needs plain layouts";
}

Estimate estimate(const ConvProblem& problem, const ConvOptions& options, const MachineModel& machine,
                  const ChoiceParts*) {
  return {plan::reference_seconds(problem, wanted_of(options), machine), 0};
}

std::unique_ptr<ConvEngine> create(const ConvProblem& problem, const ConvOptions&, const ChoiceParts*) {
  return create_for_type<ReferenceEngine>(problem);
}

}  // namespace

Implementation reference_implementation() {
  return {Engine::reference, "reference", false, unsupported_reason, estimate, create};
}

}  // namespace convolume::conv
