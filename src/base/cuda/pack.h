#ifndef PLANISH_SRC_BASE_CUDA_PACK_H_
#define PLANISH_SRC_BASE_CUDA_PACK_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

// Number of elements that a thread of a kernel reads at once.
namespace planish::internal::cuda {

/// Bytes of a pack.
inline constexpr int kPackBytes = 16;

template <class T>
inline constexpr int kFullPack = kPackBytes / static_cast<int>(sizeof(T));

/// Address of an array, or null, and the stride of a matrix.
class StridedArray {
 public:
  template <class E>
  // NOLINTNEXTLINE(google-explicit-constructor): arrays are listed as they are
  StridedArray(const E* data, int64_t stride = 0)
      : data_(data), stride_(stride), bytes_(sizeof(E)) {}

  /// Returns whether packs of `pack` elements are aligned in every row.
  bool Allows(int pack) const {
    const auto bytes = static_cast<uintptr_t>(std::min<int64_t>(kPackBytes, pack * bytes_));
    return data_ == nullptr ||
           (reinterpret_cast<uintptr_t>(data_) % bytes == 0 && stride_ % pack == 0);
  }

 private:
  const void* data_;
  int64_t stride_, bytes_;
};

/// Returns the elements that a thread reads at once from runs of `run` elements of these arrays: a
/// full pack, or 1.
template <class T>
int PackOf(int64_t run, std::initializer_list<StridedArray> arrays) {
  constexpr int kPack = kFullPack<T>;
  const bool packed = run % kPack == 0 &&
                      std::all_of(arrays.begin(), arrays.end(),
                                  [](const StridedArray& array) { return array.Allows(kPack); });
  return packed ? kPack : 1;
}

/// Calls f(pack) with the result of PackOf as a constant.
template <class T, class F>
void VisitPack(int pack, F&& f) {
  if (pack == 1) return f(std::integral_constant<int, 1>());
  f(std::integral_constant<int, kFullPack<T>>());
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_PACK_H_
