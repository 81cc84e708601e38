// Recurrent layers of the C interface have the bits of the C++ interface, and its errors as codes.
#include "planish/rnn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/arguments_testing.h"
#include "src/c/testing.h"
#include "src/rnn/arguments.h"
#include "src/rnn/testing.h"

namespace planish {
namespace {

using tests::CStructs;
using tests::RnnProblem;
using tests::RnnResult;

constexpr RnnShape kShape = {5, 3, 4, 6};

using Packed = std::unique_ptr<planish_rnn_packed, decltype(&planish_rnn_packed_free)>;
using Sums = std::unique_ptr<planish_rnn_gradient_sums, decltype(&planish_rnn_gradient_sums_free)>;

template <class T>
Packed Pack(const RnnProblem<T>& p, bool backward,
            planish_weight_type weight_type = PLANISH_WEIGHT_FULL) {
  CStructs structs;
  const RnnInputs<T> inputs = p.Inputs();
  const auto params = structs.Make<planish_rnn_params, T>(inputs.params);
  planish_rnn_pack_args args;
  EXPECT_EQ(planish_rnn_pack_args_init(&args, sizeof args), PLANISH_OK);
  args.type = internal::c::kType<T>;
  args.inputs = p.layer.shape.inputs;
  args.hidden = p.layer.shape.hidden;
  args.projected = p.layer.shape.projected;
  args.heads = p.layer.shape.heads;
  args.params = &params;
  args.backward = backward ? 1 : 0;
  args.weight_type = weight_type;
  planish_rnn_packed* packed = nullptr;
  EXPECT_EQ(planish_rnn_pack(static_cast<planish_cell>(p.layer.cell), &args, &packed), PLANISH_OK)
      << planish_error_message();
  return Packed(packed, &planish_rnn_packed_free);
}

Sums MakeSums(const Packed& packed) {
  planish_rnn_gradient_sums* sums = nullptr;
  EXPECT_EQ(planish_rnn_gradient_sums_create(packed.get(), &sums), PLANISH_OK)
      << planish_error_message();
  return Sums(sums, &planish_rnn_gradient_sums_free);
}

template <class T>
planish_status CForward(const RnnProblem<T>& p, const RnnForwardArgs<T>& args,
                        const RnnOptions<T>& options, const planish_rnn_packed* packed = nullptr) {
  CStructs structs;
  const auto to = structs.Make<planish_rnn_forward_args, T>(args);
  auto to_options = structs.Make<planish_rnn_options, T>(options);
  to_options.packed = packed;
  return planish_rnn_forward(static_cast<planish_cell>(p.layer.cell), &to, &to_options);
}

template <class T>
planish_status CBackward(const RnnProblem<T>& p, const RnnBackwardArgs<T>& args,
                         const RnnOptions<T>& options, const planish_rnn_packed* packed = nullptr,
                         planish_rnn_gradient_sums* sums = nullptr) {
  CStructs structs;
  auto to = structs.Make<planish_rnn_backward_args, T>(args);
  to.sums = sums;
  auto to_options = structs.Make<planish_rnn_options, T>(options);
  to_options.packed = packed;
  return planish_rnn_backward(static_cast<planish_cell>(p.layer.cell), &to, &to_options);
}

template <class T>
class CRnnTest : public ::testing::Test {};
using AllTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CRnnTest, AllTypes);

TYPED_TEST(CRnnTest, LayersHaveTheBitsOfCpp) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : tests::kKinds) {
    for (const bool all : {false, true}) {
      SCOPED_TRACE(tests::NameOf(cell) + std::string(all ? ", all inputs" : ""));
      const RnnProblem<T> p(cell, tests::Shaped(kShape, recurrence),
                            {.lengths = all, .resets = all, .reverse = all});
      RnnOptions<T> options = p.Options();
      options.eps = 1e-3;
      options.checkpoint = all;
      const RnnResult<T> expected = tests::Apply(p, options);

      int64_t size = -1;
      const planish_rnn_shape shape = {kShape.time, kShape.batch, kShape.inputs, kShape.hidden};
      ASSERT_EQ(planish_rnn_saved_size(static_cast<planish_cell>(cell), internal::c::kType<T>,
                                       &shape, all ? 1 : 0, &size),
                PLANISH_OK);
      EXPECT_EQ(size, RnnSavedSize<T>(cell, kShape, all));

      const Packed packed = Pack(p, /*backward=*/true);
      for (const planish_rnn_packed* weights :
           {static_cast<planish_rnn_packed*>(nullptr), packed.get()}) {
        RnnResult<T> out = tests::Unwritten(p, all);
        ASSERT_EQ(CForward(p, tests::ForwardArgs(p, out), options, weights), PLANISH_OK)
            << planish_error_message();
        ASSERT_EQ(CBackward(p, tests::BackwardArgs(p, out), options, weights), PLANISH_OK)
            << planish_error_message();
        EXPECT_EQ(out.DiffersIn(expected), "");
        EXPECT_TRUE(tests::SameBits(out.saved, expected.saved));
      }
    }
  }
}

TEST(CRnnWeightTypesTest, LayersHaveTheBitsOfCpp) {
  const RnnProblem<float> p(Cell::kLnLstm, kShape);
  RnnOptions<float> options = p.Options();
  for (const auto& [type, c_type] : {std::pair{WeightType::kFull, PLANISH_WEIGHT_FULL},
                                     {WeightType::kBfloat16, PLANISH_WEIGHT_BFLOAT16},
                                     {WeightType::kInt8, PLANISH_WEIGHT_INT8}}) {
    RnnResult<float> expected = tests::Unwritten(p), out = tests::Unwritten(p);
    options.packed = RnnPackedParams<float>(Cell::kLnLstm, kShape.inputs, kShape.hidden,
                                            p.Inputs().params, {}, false, 0, 1, type);
    RnnForward<float>(Cell::kLnLstm, tests::ForwardArgs(p, expected), options);
    const Packed packed = Pack(p, /*backward=*/false, c_type);
    ASSERT_EQ(CForward(p, tests::ForwardArgs(p, out), p.Options(), packed.get()), PLANISH_OK)
        << planish_error_message();
    EXPECT_EQ(out.DiffersIn(expected), "") << static_cast<int>(type);
  }
}

// A layer of 3 steps with 6 units. A step rounds by a few units of 2^-24. Norms of 6 elements
// multiply the error by some hundreds (src/rnn/rnn_test.cc).
TEST(CLnLstmTest, MatchesItsEquationsInDouble) {
  const RnnProblem<float> p(Cell::kLnLstm, {3, 2, 4, 6});
  RnnResult<float> out = tests::Unwritten(p);
  ASSERT_EQ(CForward(p, tests::ForwardArgs(p, out), p.Options()), PLANISH_OK);
  const auto exact = internal::ReferenceRnnForward(p.Reference());
  EXPECT_LE(tests::Difference(out.y, exact.y), 1e-4);
  EXPECT_LE(tests::Difference(out.h, exact.h), 1e-4);
  EXPECT_LE(tests::Difference(out.c, exact.c), 1e-4);
}

TYPED_TEST(CRnnTest, StepsHaveTheBitsOfALayer) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : tests::kKinds) {
    const internal::CellRecipe recipe = internal::RecipeOf(cell);
    if (recipe.over == internal::Over::kBatch) continue;
    SCOPED_TRACE(tests::NameOf(cell));
    const RnnProblem<T> p(cell, tests::Shaped(kShape, recurrence));
    const RnnResult<T> expected = tests::Apply(p, p.Options());
    const Packed packed = Pack(p, /*backward=*/true);
    const Sums sums = MakeSums(packed);

    std::vector<T> h = p.layer.h0, c = p.layer.c0;
    planish_rnn_options options;
    ASSERT_EQ(planish_rnn_options_init(&options, sizeof options), PLANISH_OK);
    options.packed = packed.get();
    planish_rnn_step_args args;
    ASSERT_EQ(planish_rnn_step_args_init(&args, sizeof args), PLANISH_OK);
    args.type = internal::c::kType<T>;
    args.batch = kShape.batch;
    args.inputs = kShape.inputs;
    args.hidden = kShape.hidden;
    args.projected = p.layer.shape.projected;
    args.heads = p.layer.shape.heads;
    args.h = args.h_next = h.data();
    if (recipe.is_lstm()) args.c = args.c_next = c.data();
    for (int64_t t = 0; t < kShape.time; ++t) {
      args.x = p.layer.x.data() + t * kShape.batch * kShape.inputs;
      ASSERT_EQ(planish_rnn_step(static_cast<planish_cell>(cell), &args, &options), PLANISH_OK)
          << planish_error_message();
      for (size_t i = 0; i < h.size(); ++i) {
        ASSERT_EQ(h[i], expected.y[static_cast<size_t>(t) * h.size() + i]) << "step " << t;
      }
    }
    EXPECT_TRUE(tests::SameBits(h, expected.h));
    EXPECT_TRUE(!recipe.is_lstm() || tests::SameBits(c, expected.c));

    // The sums take the place of the parameters' gradients.
    RnnResult<T> out = expected;
    for (size_t a = tests::kFirstParam; a < tests::kArrays; ++a) {
      out.gradients[a].assign(out.gradients[a].size(), tests::Unset<T>());
    }
    RnnBackwardArgs<T> backward = tests::BackwardArgs(p, out);
    const RnnParams<T> gradients = backward.dparams;
    backward.dparams = {};
    ASSERT_EQ(CBackward(p, backward, p.Options(), packed.get(), sums.get()), PLANISH_OK)
        << planish_error_message();
    CStructs structs;
    const auto to = structs.Make<planish_rnn_gradients, T>(gradients);
    ASSERT_EQ(planish_rnn_gradient_sums_write(sums.get(), &to, nullptr), PLANISH_OK);
    EXPECT_EQ(out.DiffersIn(expected), "");
  }
}

// The sums hold the packed weights, so the caller can free the handle.
TEST(CRnnHandlesTest, SumsOutliveTheirPackedWeights) {
  const RnnProblem<float> p(Cell::kGru, kShape);
  Packed packed = Pack(p, /*backward=*/true);
  const Sums sums = MakeSums(packed);
  packed.reset();
  std::vector<float> weight_hh(3 * 6 * 6, 7);
  planish_rnn_gradients gradients;
  ASSERT_EQ(planish_rnn_gradients_init(&gradients, sizeof gradients), PLANISH_OK);
  gradients.weight_hh = weight_hh.data();
  ASSERT_EQ(planish_rnn_gradient_sums_write(sums.get(), &gradients, nullptr), PLANISH_OK);
  EXPECT_EQ(weight_hh, std::vector<float>(weight_hh.size()));
}

TEST(CRnnHandlesTest, FreeAcceptsNull) {
  planish_rnn_packed_free(nullptr);
  planish_rnn_gradient_sums_free(nullptr);
}

// Error messages are those of C++, for every array.
TEST(CRnnErrorsTest, ArraysAreChecked) {
  const RnnProblem<float> p(Cell::kLnLstm, kShape, {.lengths = true, .resets = true});
  const internal::CellRecipe recipe = internal::RecipeOf(p.layer.cell);
  const RnnOptions<float> options = p.Options();
  RnnResult<float> out = tests::Unwritten(p);
  const auto saved = static_cast<int64_t>(out.saved.size());
  {
    auto args = tests::ForwardArgs(p, out);
    auto arrays = tests::ArraysOf(args.inputs, recipe);
    std::erase_if(arrays, [](const auto& array) { return array.name == "lengths"; });
    for (const auto& array : tests::ArraysOf(args.inputs.params, recipe, kShape)) {
      arrays.push_back(array);
    }
    for (const auto& array : tests::ArraysOf(args, recipe, saved)) arrays.push_back(array);
    tests::ExpectArrayErrors("planish_rnn_forward", arrays,
                             [&] { tests::ThrowStatus(CForward(p, args, options)); });
  }
  {
    auto args = tests::BackwardArgs(p, out);
    auto arrays = tests::ArraysOf(args, recipe, saved);
    for (const auto& array : tests::ArraysOf(args.dparams, recipe, kShape)) {
      arrays.push_back(array);
    }
    tests::ExpectArrayErrors("planish_rnn_backward", arrays,
                             [&] { tests::ThrowStatus(CBackward(p, args, options)); });
  }
}

std::string Error(planish_status status) {
  EXPECT_EQ(status, PLANISH_INVALID_ARGUMENT);
  return planish_error_message();
}

TEST(CRnnErrorsTest, StructsAndTypes) {
  planish_rnn_forward_args args;
  ASSERT_EQ(planish_rnn_forward_args_init(&args, sizeof args), PLANISH_OK);
  const auto error = [&] { return Error(planish_rnn_forward(PLANISH_CELL_LSTM, &args, nullptr)); };
  EXPECT_EQ(error(),
            "[planish_rnn_forward] type must be PLANISH_FLOAT (1) or PLANISH_DOUBLE (2), got 0");
  args.type = PLANISH_BFLOAT16;
  EXPECT_EQ(error(),
            "[planish_rnn_forward] type must be PLANISH_FLOAT (1) or PLANISH_DOUBLE (2), got 3");
  args.type = PLANISH_FLOAT;
  EXPECT_EQ(error(), "[planish_rnn_forward] inputs must point to a planish_rnn_inputs, got null");
  planish_rnn_inputs inputs{};
  args.inputs = &inputs;
  EXPECT_EQ(error(),
            "[planish_rnn_forward] inputs.struct_size must be set by planish_rnn_inputs_init, got "
            "0");
  ASSERT_EQ(planish_rnn_inputs_init(&inputs, sizeof inputs), PLANISH_OK);
  EXPECT_EQ(error(), "[planish_rnn_forward] inputs must be at least 1, got 0");
  inputs.shape = {1, 1, 1, 1};
  EXPECT_EQ(error(), "[planish_rnn_forward] x must point to 4 bytes, got null");
  const float x = 1;
  inputs.x = &x;
  EXPECT_EQ(error(), "[planish_rnn_forward] weight_ih must point to 16 bytes, got null");
  planish_rnn_params params{};
  inputs.params = &params;
  EXPECT_EQ(error(),
            "[planish_rnn_forward] params.struct_size must be set by planish_rnn_params_init, got "
            "0");
  EXPECT_EQ(Error(planish_rnn_forward(77, &args, nullptr)),
            "[planish_rnn_forward] cell must be a constant of planish_cell, got 77");
  EXPECT_EQ(Error(planish_rnn_forward(PLANISH_CELL_LSTM, nullptr, nullptr)),
            "[planish_rnn_forward] args must point to a planish_rnn_forward_args, got null");
}

TEST(CRnnErrorsTest, SavedSize) {
  planish_rnn_shape shape = {1, 1, 1, 0};
  int64_t size = 5;
  const auto error = [&](const planish_rnn_shape* s, int64_t* to) {
    return Error(planish_rnn_saved_size(PLANISH_CELL_LSTM, PLANISH_FLOAT, s, 0, to));
  };
  EXPECT_EQ(error(&shape, &size), "[planish_rnn_saved_size] hidden must be at least 1, got 0");
  EXPECT_EQ(size, 5);
  EXPECT_EQ(error(nullptr, &size),
            "[planish_rnn_saved_size] shape must point to a planish_rnn_shape, got null");
  EXPECT_EQ(error(&shape, nullptr),
            "[planish_rnn_saved_size] size must point to a number, got null");
  EXPECT_EQ(Error(planish_rnn_saved_size(-1, PLANISH_FLOAT, &shape, 0, &size)),
            "[planish_rnn_saved_size] cell must be a constant of planish_cell, got -1");
  EXPECT_EQ(Error(planish_rnn_saved_size(PLANISH_CELL_LSTM, PLANISH_FLOAT16, &shape, 0, &size)),
            "[planish_rnn_saved_size] type must be PLANISH_FLOAT (1) or PLANISH_DOUBLE (2), got 4");
}

TEST(CRnnErrorsTest, Handles) {
  const RnnProblem<float> p(Cell::kLstm, kShape);
  const RnnProblem<double> doubles(Cell::kLstm, kShape);
  RnnResult<float> out = tests::Unwritten(p);
  const Packed forward_only = Pack(p, /*backward=*/false);
  const Packed packed = Pack(p, /*backward=*/true), other = Pack(p, /*backward=*/true);
  const Packed of_doubles = Pack(doubles, /*backward=*/true);
  const Sums sums = MakeSums(packed), double_sums = MakeSums(of_doubles);

  EXPECT_EQ(Error(CForward(p, tests::ForwardArgs(p, out), p.Options(), of_doubles.get())),
            "[planish_rnn_forward] packed must be of type float, got double");
  const RnnProblem<float> gru(Cell::kGru, kShape);
  RnnResult<float> gru_out = tests::Unwritten(gru);
  EXPECT_EQ(Error(CForward(gru, tests::ForwardArgs(gru, gru_out), gru.Options(), packed.get())),
            "[planish_rnn_forward] packed must be weights of the same cell, got those of another "
            "cell");
  ASSERT_EQ(CForward(p, tests::ForwardArgs(p, out), p.Options()), PLANISH_OK);
  RnnBackwardArgs<float> args = tests::BackwardArgs(p, out);
  EXPECT_EQ(Error(CBackward(p, args, p.Options(), forward_only.get())),
            "[planish_rnn_backward] packed must be created with backward=true, got backward=false");
  EXPECT_EQ(Error(CBackward(p, args, p.Options(), packed.get(), sums.get())),
            "[planish_rnn_backward] dweight_ih must be null with sums, got an address");
  args.dparams = {};
  EXPECT_EQ(Error(CBackward(p, args, p.Options(), other.get(), sums.get())),
            "[planish_rnn_backward] sums must be created from options.packed, got sums of other "
            "weights");
  EXPECT_EQ(Error(CBackward(p, args, p.Options(), packed.get(), double_sums.get())),
            "[planish_rnn_backward] sums must be of type float, got double");

  planish_rnn_gradient_sums* created = sums.get();
  EXPECT_EQ(Error(planish_rnn_gradient_sums_create(nullptr, &created)),
            "[planish_rnn_gradient_sums_create] packed must point to a planish_rnn_packed, got "
            "null");
  EXPECT_EQ(created, nullptr);
  EXPECT_EQ(Error(planish_rnn_gradient_sums_create(forward_only.get(), &created)),
            "[planish_rnn_gradient_sums_create] packed must be created with backward=true, got "
            "backward=false");
  EXPECT_EQ(Error(planish_rnn_gradient_sums_create(packed.get(), nullptr)),
            "[planish_rnn_gradient_sums_create] sums must point to a handle, got null");
  EXPECT_EQ(Error(planish_rnn_gradient_sums_write(nullptr, nullptr, nullptr)),
            "[planish_rnn_gradient_sums_write] sums must point to a planish_rnn_gradient_sums, got "
            "null");
  EXPECT_EQ(Error(planish_rnn_gradient_sums_write(sums.get(), nullptr, nullptr)),
            "[planish_rnn_gradient_sums_write] gradients must point to a planish_rnn_gradients, "
            "got null");
}

TEST(CRnnErrorsTest, Pack) {
  planish_rnn_pack_args args;
  ASSERT_EQ(planish_rnn_pack_args_init(&args, sizeof args), PLANISH_OK);
  int memory = 0;
  auto* packed = reinterpret_cast<planish_rnn_packed*>(&memory);
  const auto error = [&] { return Error(planish_rnn_pack(PLANISH_CELL_GRU, &args, &packed)); };
  EXPECT_EQ(error(),
            "[planish_rnn_pack] type must be PLANISH_FLOAT (1) or PLANISH_DOUBLE (2), got 0");
  EXPECT_EQ(packed, nullptr);
  args.type = PLANISH_DOUBLE;
  args.inputs = 1;
  args.hidden = 1;
  EXPECT_EQ(error(), "[planish_rnn_pack] weight_ih must point to 24 bytes, got null");
  EXPECT_EQ(Error(planish_rnn_pack(PLANISH_CELL_GRU, &args, nullptr)),
            "[planish_rnn_pack] packed must point to a handle, got null");
  EXPECT_EQ(Error(planish_rnn_pack(PLANISH_CELL_GRU, nullptr, &packed)),
            "[planish_rnn_pack] args must point to a planish_rnn_pack_args, got null");
  EXPECT_EQ(Error(planish_rnn_pack(21, &args, &packed)),
            "[planish_rnn_pack] cell must be a constant of planish_cell, got 21");
  args.weight_type = 3;
  EXPECT_EQ(error(),
            "[planish_rnn_pack] weight_type must be a constant of planish_weight_type, got 3");
  args.weight_type = PLANISH_WEIGHT_INT8;
  EXPECT_EQ(error(), "[planish_rnn_pack] weight_type must be full for a layer in double, got int8");
}

}  // namespace
}  // namespace planish
