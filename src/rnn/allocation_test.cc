// A step whose parameters are packed allocates no memory, as who computes in real time needs it.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "planish/rnn.h"
#include "src/rnn/testing.h"

namespace {
std::atomic<int> allocations{0};
}

// Inlined, malloc and free look like a mismatch with new and delete.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t size, std::align_val_t alignment) {
  ++allocations;
  const auto a = static_cast<size_t>(alignment);
  if (void* p = std::aligned_alloc(a, (size + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace planish {
namespace {

TEST(RnnAllocationTest, NoneInAPackedStep) {
  for (const Cell cell : internal::kCells) {
    if (internal::RecipeOf(cell).over == internal::Over::kBatch) continue;
    for (const int64_t batch : {1, 5}) {
      const tests::RnnProblem<float> p(cell, {1, batch, 33, 40});
      RnnOptions<float> options = p.Options();
      options.packed = RnnPackedParams<float>(cell, 33, 40, p.Inputs().params);
      std::vector<float> h = p.layer.h0, c = p.layer.c0;
      RnnStepArgs<float> args{.batch = batch, .inputs = 33, .hidden = 40};
      args.x = p.layer.x.data();
      args.h = args.h_next = h.data();
      if (!c.empty()) args.c = args.c_next = c.data();
      RnnStep<float>(cell, args, options);
      const int before = allocations;
      ASSERT_GT(before, 0);  // they are counted
      for (int i = 0; i < 10; ++i) RnnStep<float>(cell, args, options);
      EXPECT_EQ(allocations, before) << tests::NameOf(cell) << " batch " << batch;
    }
  }
}

}  // namespace
}  // namespace planish
