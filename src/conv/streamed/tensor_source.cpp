// Sources and sinks in memory, and the checks of all sources and sinks.
#include <cstring>

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "convolume/streamed.hpp"

namespace convolume {
namespace {

bool within(index_t begin, index_t count, index_t size) { return begin >= 0 && count >= 1 && begin <= size - count; }

void check_box(const std::string& name, const Shape5& shape, const TensorBox& box, const void* memory) {
  bool inside = within(box.n, box.shape.n, shape.n) && within(box.c, box.shape.c, shape.c);
  for (int axis = 0; axis < 3; ++axis) {
    inside = inside && within(box.begin[axis], box.shape.extent[axis], shape.extent[axis]);
  }
  if (!inside) {
    throw InvalidArgument(
        fmt::format("{}: a box of {} from sample {}, channel {}, voxel {} on does not lie within the tensor of {}",
                    name, to_string(box.shape), box.n, box.c, to_string(box.begin), to_string(shape)));
  }
  if (memory == nullptr) throw InvalidArgument(fmt::format("{}: the memory of the box is null", name));
}

/// Calls copy(address in the view, address in the box) for each row of a box.
template <class ViewByte, class BoxByte, class Copy>
void for_each_row(ViewByte* tensor, const std::array<index_t, 5>& stride, std::size_t element, const TensorBox& box,
                  BoxByte* dense, const Copy& copy) {
  const auto row_bytes = static_cast<std::size_t>(box.shape.extent.x) * element;
  const Extent3& extent = box.shape.extent;
  for (index_t n = 0; n < box.shape.n; ++n) {
    for (index_t c = 0; c < box.shape.c; ++c) {
      for (index_t z = 0; z < extent.z; ++z) {
        for (index_t y = 0; y < extent.y; ++y, dense += row_bytes) {
          const index_t place = (box.n + n) * stride[0] + (box.c + c) * stride[1] + (box.begin.z + z) * stride[2] +
                                (box.begin.y + y) * stride[3] + box.begin.x;
          copy(tensor + static_cast<std::ptrdiff_t>(place) * static_cast<std::ptrdiff_t>(element), dense, row_bytes);
        }
      }
    }
  }
}

void check_view(const ConstTensorView& view) {
  if (!view || view.data.get() == nullptr) throw InvalidArgument("a tensor in memory: the view is null");
  if (view.layout != Layout::plain || (view.stride[4] != 1 && view.shape.extent.x > 1)) {
    throw InvalidArgument("a tensor in memory: sources and sinks need a plain view with x stride 1; copy the tensor");
  }
}

class MemorySource final : public TensorSource {
 public:
  explicit MemorySource(const ConstTensorView& view)
      : TensorSource("a tensor in memory", view.shape, view.type), view_(view) {}

 private:
  void do_read(const TensorBox& box, void* to) override {
    for_each_row(static_cast<const std::byte*>(view_.data.get()), view_.stride, size_of(type()), box,
                 static_cast<std::byte*>(to),
                 [](const std::byte* from, std::byte* dense, std::size_t bytes) { std::memcpy(dense, from, bytes); });
  }
  ConstTensorView view_;
};

class MemorySink final : public TensorSink {
 public:
  explicit MemorySink(const TensorView& view) : TensorSink("a tensor in memory", view.shape, view.type), view_(view) {}
  void finish() override {}

 private:
  void do_write(const TensorBox& box, const void* from) override {
    for_each_row(static_cast<std::byte*>(view_.data.get()), view_.stride, size_of(type()), box,
                 static_cast<const std::byte*>(from),
                 [](std::byte* to, const std::byte* dense, std::size_t bytes) { std::memcpy(to, dense, bytes); });
  }
  TensorView view_;
};

}  // namespace

void TensorSource::read(const TensorBox& box, void* to) {
  check_box(name_, shape_, box, to);
  do_read(box, to);
}

void TensorSink::write(const TensorBox& box, const void* from) {
  check_box(name_, shape_, box, from);
  do_write(box, from);
}

std::unique_ptr<TensorSource> memory_source(const ConstTensorView& tensor) {
  check_view(tensor);
  return std::make_unique<MemorySource>(tensor);
}

std::unique_ptr<TensorSink> memory_sink(const TensorView& tensor) {
  check_view(tensor);
  return std::make_unique<MemorySink>(tensor);
}

}  // namespace convolume
