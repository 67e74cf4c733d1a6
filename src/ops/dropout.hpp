// Inverted dropout.
#pragma once

#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "core/random.hpp"
#include "ops/append.hpp"

namespace convolume::ops {

/// Computes y[i] = 0 if element first + i of the tensor is dropped, else x[i] / (1 - rate), for i in [0, n). Elements
/// are counted in N C Z Y X order over the whole tensor. Element e is dropped if word e % 4 of philox(key, e / 4) is
/// below rate·2^32, so the result is a pure function of the key. The function is its own adjoint: the backward pass is
/// the same call on dy. y may equal x. 0 <= rate < 1; `first` is not negative. Thread-safe; allocates nothing.
template <class T>
void dropout(const RandomKey& key, double rate, index_t first, const T* x, T* y, index_t n) noexcept;

/// Appends dropout of x into y. The views have the same shape, the same layout and dense channel blocks. Elements are
/// counted in N C Z Y X order in both layouts, so that plain and blocked tensors lose the same elements. The key is
/// read when a task runs. In the backward pass it must be the key that the forward pass read. Throws InvalidArgument
/// for a rate outside [0, 1) or a null key.
template <class T>
Ready append_dropout_forward(TaskGraph& graph, const Ready& ready, const ConstView<T>& x, const View<T>& y, double rate,
                             const RandomKey* key);
/// Appends dx = dropout of dy, or dx += dropout of dy if `add` (dx and dy then must not alias).
template <class T>
Ready append_dropout_backward(TaskGraph& graph, const Ready& ready, const ConstView<T>& dy, const View<T>& dx,
                              double rate, const RandomKey* key, bool add);

}  // namespace convolume::ops
