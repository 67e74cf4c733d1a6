#include "conv/toom_cook/window_gradient.hpp"

#include <algorithm>
#include <array>
#include <deque>

#include "conv/caches/run_buffers.hpp"
#include "conv/caches/scratch.hpp"
#include "ops/append.hpp"

namespace convolume::conv {

template <class T>
struct WindowGradient<T>::Chunk {
  index_t sample = 0;
  Extent3 first{}, count{};  ///< windows
};

/// The memory of one chunk: half-transformed planes of both sides, and complete lines of one frequency of the planes.
template <class T>
struct WindowGradient<T>::Memory {
  PlaneStrides in_strides, out_strides;
  std::size_t in_bytes, out_bytes;            ///< of planes
  std::size_t in_line_bytes, out_line_bytes;  ///< none if lines are not transformed
  T *in_planes = nullptr, *out_planes = nullptr, *in = nullptr, *out = nullptr, *temporary = nullptr;

  std::size_t bytes() const { return in_bytes + out_bytes + in_line_bytes + out_line_bytes; }
  void take(Scratch& scratch, std::size_t temporary_bytes) {
    in_planes = scratch.take<T>(in_bytes);
    out_planes = scratch.take<T>(out_bytes);
    in = scratch.take<T>(in_line_bytes);
    out = scratch.take<T>(out_line_bytes);
    temporary = scratch.take<T>(temporary_bytes);
  }
};

/// Sums of parts while tasks are appended: a buffer, and the tasks after which it is complete or free.
template <class T>
struct WindowGradient<T>::Buffers {
  struct Sums {
    std::size_t buffer;
    std::vector<TaskId> after;
  };
  std::shared_ptr<BufferStore> store;
  std::deque<Sums> free{};
};

template <class T>
WindowGradient<T>::WindowGradient(const ConvProblem& problem)
    : problem_(problem),
      sides_(problem),
      dense_(sides_.convolution()),
      shape_{dense_.kernel},
      windows_(shape_.windows_of(dense_.output())),
      sums_(plan::window_sums(dense_)) {}

template <class T>
auto WindowGradient<T>::ranges() const -> std::vector<Range> {
  const index_t in_step = plan::sum_channels(shape_, dense_.type, dense_.in_channels),
                out_step = plan::sum_channels(shape_, dense_.type, dense_.out_channels);
  std::vector<Range> all;
  for (index_t out = 0; out < dense_.out_channels; out += out_step) {
    for (index_t in = 0; in < dense_.in_channels; in += in_step) {
      all.push_back(
          {in, std::min(in_step, dense_.in_channels - in), out, std::min(out_step, dense_.out_channels - out)});
    }
  }
  return all;
}

template <class T>
auto WindowGradient<T>::chunk(index_t number) const -> Chunk {
  const index_t i = number % sums_.per_sample();
  const Extent3& n = sums_.chunks;
  Chunk chunk{.sample = number / sums_.per_sample(),
              .first = Extent3{i / (n.y * n.x), i / n.x % n.y, i % n.x} * sums_.chunk};
  for (int axis = 0; axis < 3; ++axis) {
    chunk.count[axis] = std::min(sums_.chunk[axis], windows_[axis] - chunk.first[axis]);
  }
  return chunk;
}

template <class T>
auto WindowGradient<T>::memory_of(const Range& range, const Extent3& count) const -> Memory {
  const index_t planes = shape_.plane_frequencies();
  const index_t rows = count.volume(), points = shape_.transforms_lines() ? window_points : 0;
  const PlaneStrides in = plane_strides<T>(shape_, shape_.voxels(count).z, count, range.in_blocks());
  const PlaneStrides out = plane_strides<T>(shape_, count.z * shape_.results().z, count, range.out_blocks());
  return {.in_strides = in,
          .out_strides = out,
          .in_bytes = bytes_of<T>(planes * in.frequency),
          .out_bytes = bytes_of<T>(planes * out.frequency),
          .in_line_bytes = bytes_of<T>(points * line_stride<T>(rows, range.in_blocks())),
          .out_line_bytes = bytes_of<T>(points * line_stride<T>(rows, range.out_blocks()))};
}

template <class T>
std::size_t WindowGradient<T>::scratch_bytes(const Range& range) const {
  return memory_of(range, sums_.chunk).bytes() + plane_scratch_bytes(shape_, sums_.chunk);
}

/// Returns the operations of a task that sums a part.
template <class T>
double WindowGradient<T>::part_cost() const {
  const auto windows = static_cast<double>(dense_.batch * windows_.volume());
  const auto pairs = static_cast<double>(dense_.in_channels * dense_.out_channels);
  return 2 * static_cast<double>(shape_.frequencies()) * windows * pairs / static_cast<double>(ranges().size()) /
         static_cast<double>(sums_.parts());
}

template <class T>
std::size_t WindowGradient<T>::sums_bytes() const {
  return bytes_of<T>(shape_.frequencies() * ranges().front().step());
}

/// Transforms the rows and columns of all windows of a chunk, on both sides.
template <class T>
void WindowGradient<T>::transform_chunk(const GradientTensors<T>& tensors, const Range& range, const Chunk& chunk,
                                        const Memory& memory) const {
  const Activation* on_x = tensors.y_is_high_res ? tensors.activation : nullptr;
  const Activation* on_dy = tensors.y_is_high_res ? nullptr : tensors.activation;
  for (index_t y = 0; y < chunk.count.y; ++y) {
    const Extent3 origin = (chunk.first + Extent3{0, y, 0}) * shape_.results();
    WindowSource<T> source{.block = {},
                           .origin = origin - dense_.pad_before,
                           .planes = shape_.voxels(chunk.count).z,
                           .windows = chunk.count.x,
                           .activation = on_x};
    for (index_t block = 0; block < range.in_blocks(); ++block) {
      const index_t channel = range.in + block * lanes;
      source.block = block_of(tensors.high_res, dense_.x_layout, chunk.sample, channel);
      if (on_x != nullptr) source.y = block_of(tensors.y, dense_.x_layout, chunk.sample, channel);
      transforms_.planes(source, memory.in_planes + y * memory.in_strides.row + block * lanes, memory.in_strides,
                         memory.temporary);
    }
    source.origin = origin;
    source.planes = chunk.count.z * shape_.results().z;
    source.activation = on_dy;
    for (index_t block = 0; block < range.out_blocks(); ++block) {
      const index_t channel = range.out + block * lanes;
      source.block = block_of(tensors.low_res, dense_.y_layout, chunk.sample, channel);
      if (on_dy != nullptr) source.y = block_of(tensors.y, dense_.y_layout, chunk.sample, channel);
      transforms_.kernel_planes(source, memory.out_planes + y * memory.out_strides.row + block * lanes,
                                memory.out_strides, memory.temporary);
    }
  }
}

/// Completes the lines along Z of a chunk for one frequency of the planes, on both sides.
template <class T>
void WindowGradient<T>::transform_lines(const Chunk& chunk, index_t frequency, const Memory& memory) const {
  const index_t rows = chunk.count.volume(), layer = chunk.count.z * chunk.count.x;
  const PlaneStrides &in = memory.in_strides, &out = memory.out_strides;
  for (index_t y = 0; y < chunk.count.y; ++y) {
    WindowLines<T> lines{.planes = memory.in_planes + y * in.row + frequency * in.frequency,
                         .plane = in.plane,
                         .window = in.window,
                         .values = memory.in + y * layer * in.window,
                         .frequency = line_stride<T>(rows, in.window / lanes),
                         .row = in.window,
                         .windows_x = chunk.count.x,
                         .windows_z = chunk.count.z,
                         .channels = in.window};
    transforms_.lines(lines);
    lines.planes = memory.out_planes + y * out.row + frequency * out.frequency;
    lines.plane = out.plane;
    lines.window = out.window;
    lines.values = memory.out + y * layer * out.window;
    lines.frequency = line_stride<T>(rows, out.window / lanes);
    lines.row = lines.channels = out.window;
    transforms_.kernel_lines(lines);
  }
}

/// Adds the products of the windows of a chunk at one frequency to the sums.
template <class T>
void WindowGradient<T>::multiply(const Range& range, const Chunk& chunk, const T* in, const T* out, bool add,
                                 T* sums) const {
  multiply_({.a = in,
             .a_row = 1,
             .a_term = range.in_blocks() * lanes,
             .b = out,
             .b_term = range.out_blocks() * lanes,
             .b_column = lanes,
             .c = sums,
             .c_row = lanes,
             .c_column = range.in_count * lanes,
             .rows = range.in_count,
             .terms = chunk.count.volume(),
             .columns = range.out_blocks(),
             .add = add});
}

/// Adds the products of the windows of a chunk to the sums, one frequency of the planes after the other.
template <class T>
void WindowGradient<T>::multiply_chunk(const Range& range, const Chunk& chunk, const Memory& memory, bool add,
                                       T* sums) const {
  const PlaneStrides &in = memory.in_strides, &out = memory.out_strides;
  const index_t in_step = line_stride<T>(chunk.count.volume(), range.in_blocks());
  const index_t out_step = line_stride<T>(chunk.count.volume(), range.out_blocks());
  for (index_t f = 0; f < shape_.plane_frequencies(); ++f) {
    if (!shape_.transforms_lines()) {
      multiply(range, chunk, memory.in_planes + f * in.frequency, memory.out_planes + f * out.frequency, add,
               sums + f * range.step());
      continue;
    }
    transform_lines(chunk, f, memory);
    for (index_t h = 0; h < window_points; ++h) {
      multiply(range, chunk, memory.in + h * in_step, memory.out + h * out_step, add,
               sums + (f * window_points + h) * range.step());
    }
  }
}

/// Sums the chunks of a part.
template <class T>
void WindowGradient<T>::sum_part(const GradientTensors<T>& tensors, const Range& range, index_t part, T* sums) const {
  Scratch scratch(tensors.memory, scratch_bytes(range));
  Memory memory = memory_of(range, sums_.chunk);
  memory.take(scratch, plane_scratch_bytes(shape_, sums_.chunk));
  const index_t first = sums_.first_of_part(part);
  for (index_t number = first; number < sums_.first_of_part(part + 1); ++number) {
    const Chunk chunk = this->chunk(number);
    // The windows of a smaller chunk lie side by side, too.
    const Memory distances = memory_of(range, chunk.count);
    memory.in_strides = distances.in_strides;
    memory.out_strides = distances.out_strides;
    transform_chunk(tensors, range, chunk, memory);
    multiply_chunk(range, chunk, memory, number > first, sums);
  }
}

/// Computes the taps of the pairs number [begin, end) of a range: a block of output channels and an input channel each.
template <class T>
void WindowGradient<T>::write(const BackwardArguments& a, const Range& range, index_t begin, index_t end,
                              const T* sums) const {
  constexpr index_t most_taps = window_taps * window_taps * window_taps;
  alignas(64) T values[most_taps * lanes];
  const index_t taps = shape_.taps.volume(), plane = shape_.taps.y * shape_.taps.x;
  const View<T> dw = a.dw.as<T>();
  std::array<std::ptrdiff_t, most_taps> offset{};
  for (index_t tap = 0; tap < taps; ++tap) {
    offset[static_cast<std::size_t>(tap)] =
        &dw(0, 0, tap / plane, tap % plane / shape_.taps.x, tap % shape_.taps.x) - &dw(0, 0, 0, 0, 0);
  }
  const bool add = a.add_dw;
  for (index_t i = begin; i < end; ++i) {
    const index_t out = range.out + i / range.in_count * lanes, in = range.in + i % range.in_count;
    weights_.inverse_kernel(shape_, sums + i * lanes, range.step(), values);
    for (index_t lane = 0; lane < std::min(lanes, dense_.out_channels - out); ++lane) {
      T* const to = &dw(out + lane, in, 0, 0, 0);
      for (index_t tap = 0; tap < taps; ++tap) {
        T& one = to[offset[static_cast<std::size_t>(tap)]];
        one = values[tap * lanes + lane] + (add ? one : T{0});
      }
    }
  }
}

/// Appends the tasks that complete what a part reads.
template <class T>
void WindowGradient<T>::collect(const ConvReady& ready, const Range& range, index_t part,
                                std::vector<TaskId>& after) const {
  const Ready &x = sides_.high_res(ready.x, ready.dy), &dy = sides_.low_res(ready.x, ready.dy);
  const index_t first = sums_.first_of_part(part), end = sums_.first_of_part(part + 1);
  // Chunks of one layer read the same planes.
  const index_t layer = sums_.chunks.y * sums_.chunks.x;
  for (index_t number = first; number < end; number = (number / layer + 1) * layer) {
    const Chunk chunk = this->chunk(number);
    const index_t z = chunk.first.z * shape_.results().z, planes = chunk.count.z * shape_.results().z;
    const index_t depth = dense_.input.z, below = z - dense_.pad_before.z;
    const index_t from = std::clamp<index_t>(below, 0, depth - 1);
    x.collect(chunk.sample, range.in, range.in + range.in_count, from,
              std::clamp<index_t>(below + planes + shape_.overlap().z, from + 1, depth), after);
    dy.collect(chunk.sample, range.out, range.out + range.out_count, z, std::min(z + planes, dense_.output().z), after);
  }
}

/// Appends tasks that sum all windows of a range and write its gradient at once.
template <class T>
std::vector<TaskId> WindowGradient<T>::append_at_once(TaskGraph& graph, const ConvReady& ready,
                                                      const std::shared_ptr<const BackwardArguments>& a) const {
  std::vector<TaskId> done;
  for (const Range& range : ranges()) {
    std::vector<TaskId> after;
    collect(ready, range, 0, after);
    done.push_back(graph.add(
        {.name = "window sums", .cost = part_cost(), .scratch_bytes = scratch_bytes(range) + sums_bytes()},
        [this, a, range] {
          Scratch scratch(a->memory, sums_bytes());
          T* sums = scratch.take<T>(sums_bytes());
          sum_part(gradient_tensors<T>(problem_, sides_, *a), range, 0, sums);
          write(*a, range, 0, range.out_blocks() * range.in_count, sums);
        },
        after));
  }
  return done;
}

/// Appends the sums of one range: a task for each part, tasks that add them pairwise, and tasks that write the
/// gradient. Returns the last ones.
template <class T>
std::vector<TaskId> WindowGradient<T>::append_range(TaskGraph& graph, const ConvReady& ready,
                                                    const std::shared_ptr<const BackwardArguments>& a,
                                                    const Range& range, Buffers& buffers) const {
  using Sums = typename Buffers::Sums;
  const auto at = [store = buffers.store](std::size_t buffer) { return static_cast<T*>(store->acquire(buffer)); };
  const double cost = part_cost();
  std::vector<Sums> complete;
  for (index_t part = 0; part < sums_.parts(); ++part) {
    Sums sums = std::move(buffers.free.front());
    buffers.free.pop_front();
    collect(ready, range, part, sums.after);
    const TaskId summed = graph.add(
        {.name = "window sums", .cost = cost, .scratch_bytes = scratch_bytes(range)},
        [this, a, range, part, at, to = sums.buffer] {
          sum_part(gradient_tensors<T>(problem_, sides_, *a), range, part, at(to));
        },
        sums.after);
    complete.push_back({sums.buffer, {summed}});
    const bool last = part + 1 == sums_.parts();
    for (index_t pairs = part + 1; complete.size() > 1 && (pairs % 2 == 0 || last); pairs /= 2) {
      const Sums second = std::move(complete.back());
      complete.pop_back();
      Sums& first = complete.back();
      first.after.insert(first.after.end(), second.after.begin(), second.after.end());
      first.after = {graph.add(
          {.name = "add window sums"},
          [this, at, range, to = first.buffer, from = second.buffer] {
            transforms_.add(at(from), shape_.frequencies() * range.step(), at(to));
          },
          first.after)};
      buffers.free.push_back({second.buffer, first.after});
    }
  }
  const Sums& total = complete.front();
  std::vector<TaskId> done = ops::append_ranges(graph, "weight gradient", range.out_blocks() * range.in_count,
                                                static_cast<double>(shape_.frequencies() * lanes), total.after,
                                                [this, a, range, at, from = total.buffer](index_t begin, index_t end) {
                                                  write(*a, range, begin, end, at(from));
                                                });
  buffers.free.push_back({total.buffer, done});
  return done;
}

template <class T>
Ready WindowGradient<T>::append(TaskGraph& graph, const ConvReady& ready,
                                const std::shared_ptr<const BackwardArguments>& a) const {
  if (sums_.parts() == 1) return Ready::all_of(append_at_once(graph, ready, a));
  // One buffer for each complete sum that waits for its partner, one for the part that is summed, and one for the next.
  std::size_t count = 2;
  for (index_t parts = 1; parts < sums_.parts(); parts *= 2) ++count;
  Buffers buffers{.store = make_store(a->memory, count, sums_bytes())};
  const RunBuffers memory(graph, a->workspace, buffers.store);
  for (std::size_t i = 0; i < count; ++i) buffers.free.push_back({i, memory.ready()});
  std::vector<TaskId> done;
  for (const Range& range : ranges()) {
    const auto tasks = append_range(graph, ready, a, range, buffers);
    done.insert(done.end(), tasks.begin(), tasks.end());
  }
  memory.end(graph, "free window sums", done);
  return Ready::all_of(std::move(done));
}

template class WindowGradient<float>;
template class WindowGradient<double>;

}  // namespace convolume::conv
