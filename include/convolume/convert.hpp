// Conversion of tensors between layouts and between element types. Blocked tensors are the fast way through a chain of
// convolutions: convert the first input and the last output, and keep all tensors between them blocked.
#pragma once

#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"

namespace convolume {

/// Computes target = source for all voxels and channels, and returns when the target is complete.
///
///   Tensor<float> x({1, 32, {48, 48, 48}}, &memory), blocked(x.shape(), Layout::blocked, &memory);
///   convert(run, x, blocked);
///
/// Shapes: equal, in the axis order (N, C, Z, Y, X). Each tensor is plain or blocked, of float or of double; all 16
/// combinations are supported.
///
/// Strides, in elements: any for a plain tensor, also negative ones and, for the source, 0. So crops are supported, and
/// tensors whose channels lie side by side. A blocked tensor has stride[4] = channel_block(); its other strides are
/// arbitrary.
///
/// Values: equal types keep their bits. Float to double is exact. Double to float rounds to nearest, ties to even, and
/// values beyond the range of float become infinite. Pad lanes of a blocked target become zero. Pad lanes of a blocked
/// source are not read, so they may be undefined. The bits do not depend on the number of threads or the SIMD target.
///
/// Aliasing: the source and the target must not overlap. Each takes the bytes from its first to its last element, gaps
/// between rows included. No two elements of the target may share memory.
///
/// Thread safety: several threads may convert at once, also from the same source. No thread may write the source, or
/// read or write the target, meanwhile.
///
/// Errors: InvalidArgument for a null address, an empty shape, overlapping tensors, or unsupported strides;
/// ShapeMismatch for different shapes; OverflowError for a tensor that does not fit the address space; exceptions of
/// TaskGraph::run().
CONVOLUME_API void convert(const Execution& run, const ConstTensorView& source, const TensorView& target);

/// Appends the tasks of the same conversion to a graph, and returns the tasks that complete the target. `ready` names
/// the tasks that complete the source, and those after which the target may be written. It counts channels and planes
/// as the source view does; if a view is a crop along Z, all planes are waited for. The memory of both tensors must
/// outlive the graph. Shapes, strides and overlap are checked now. Two tensors whose addresses lie behind different
/// slots (Address::in) are not checked for overlap; the caller makes sure that there is none.
CONVOLUME_API Ready append_convert(TaskGraph& graph, const Ready& ready, const ConstTensorView& source,
                                   const TensorView& target);

}  // namespace convolume
