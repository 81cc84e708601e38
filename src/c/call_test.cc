// Common parts of the C interface: structs, status codes, messages, and facts about the library.
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "planish/parallel.h"
#include "planish/target.h"
#include "planish/types.h"
#include "planish/version_info.h"
#include "src/c/testing.h"
#include "src/norm/recipe.h"
#include "src/rnn/cell.h"

namespace planish {
namespace {

namespace c = internal::c;

std::string_view Message() { return planish_error_message(); }

/// A struct, and the size it had in the first version on a 64-bit system. Sizes only grow, by
/// fields at the end.
template <class S, size_t kBytes>
struct Sized {
  using Struct = S;
  static constexpr size_t kSize = kBytes;
};

using Structs = ::testing::Types<
    Sized<planish_norm_options, 48>, Sized<planish_norm_forward_args, 136>,
    Sized<planish_norm_backward_args, 144>, Sized<planish_channel_norm_forward_args, 96>,
    Sized<planish_channel_norm_backward_args, 112>, Sized<planish_batch_norm_options, 48>,
    Sized<planish_batch_norm_forward_args, 112>, Sized<planish_batch_norm_backward_args, 112>,
    Sized<planish_batch_norm_evaluate_args, 88>,
    Sized<planish_batch_norm_evaluate_backward_args, 104>,
    Sized<planish_weight_norm_forward_args, 64>, Sized<planish_weight_norm_backward_args, 80>,
    Sized<planish_group_norm_options, 32>, Sized<planish_group_norm_forward_args, 104>,
    Sized<planish_group_norm_backward_args, 120>, Sized<planish_pointwise_norm_forward_args, 80>,
    Sized<planish_pointwise_norm_backward_args, 112>, Sized<planish_online_norm_options, 40>,
    Sized<planish_online_norm_forward_args, 104>, Sized<planish_online_norm_backward_args, 120>,
    Sized<planish_rnn_params, 104>, Sized<planish_rnn_gradients, 104>,
    Sized<planish_rnn_pack_args, 56>, Sized<planish_rnn_options, 40>,
    Sized<planish_rnn_inputs, 104>, Sized<planish_rnn_forward_args, 48>,
    Sized<planish_rnn_backward_args, 112>, Sized<planish_rnn_step_args, 80>,
    Sized<planish_cuda_norm_options, 56>, Sized<planish_cuda_batch_norm_options, 56>,
    Sized<planish_cuda_weight_norm_options, 32>, Sized<planish_cuda_group_norm_options, 40>,
    Sized<planish_cuda_pointwise_norm_options, 32>, Sized<planish_cuda_online_norm_options, 48>,
    Sized<planish_cuda_rnn_options, 56>>;

template <class S>
class CStructTest : public ::testing::Test {};
TYPED_TEST_SUITE(CStructTest, Structs);

TYPED_TEST(CStructTest, AcceptsTheSizeOfTheFirstVersion) {
  EXPECT_GE(sizeof(typename TypeParam::Struct), TypeParam::kSize);
  EXPECT_EQ(c::kFirstSize<typename TypeParam::Struct>, TypeParam::kSize);
}

// The table has all fields of the C structs: a missing field would have no effect. Structs have no
// padding, from which a new field of an older struct could be read.
TYPED_TEST(CStructTest, EveryByteIsOfAMemberOfTheTable) {
  using S = typename TypeParam::Struct;
  S s{};
  std::set<size_t> bytes;
  const auto add = [&](const auto& member) {
    const size_t begin = static_cast<size_t>(reinterpret_cast<const char*>(&member) -
                                             reinterpret_cast<const char*>(&s));
    for (size_t i = 0; i < sizeof member; ++i) {
      EXPECT_TRUE(bytes.insert(begin + i).second) << "byte " << begin + i;
    }
  };
  add(s.struct_size);
  if constexpr (requires { s.type; }) add(s.type);
  if constexpr (requires { s.param_type; }) add(s.param_type);
  const typename c::Struct<S>::Cpp cpp{};
  c::VisitMembers(s, cpp, [&](const char*, const auto& member, const auto&) { add(member); });
  // Only the first 16 bytes can have padding.
  for (size_t i = 0; i < sizeof s; ++i) {
    EXPECT_TRUE(i < 16 || bytes.contains(i)) << "byte " << i;
  }
}

TYPED_TEST(CStructTest, InitSetsTheDefaultsOfCpp) {
  using S = typename TypeParam::Struct;
  S s;
  std::memset(static_cast<void*>(&s), 0xab, sizeof s);
  ASSERT_EQ(c::Init("Init", &s, sizeof s), PLANISH_OK);
  EXPECT_EQ(s.struct_size, sizeof s);
  const typename c::Struct<S>::Cpp cpp{};
  c::VisitMembers(s, cpp, []<class C, class Cpp>(const char* name, const C& member, const Cpp& d) {
    if constexpr (std::is_same_v<Cpp, std::optional<double>>) {
      EXPECT_EQ(member, d.value()) << name;
    } else if constexpr (std::is_arithmetic_v<Cpp>) {
      EXPECT_EQ(member, d) << name;
    } else {
      const std::string zeros(sizeof member, '\0');
      EXPECT_EQ(std::memcmp(&member, zeros.data(), sizeof member), 0) << name;
    }
  });
}

TYPED_TEST(CStructTest, InitRejectsNullAndSmallSizes) {
  using S = typename TypeParam::Struct;
  const std::string name = c::Struct<S>::kName;
  EXPECT_EQ(c::Init<S>("f", nullptr, sizeof(S)), PLANISH_INVALID_ARGUMENT);
  EXPECT_EQ(Message(), "[f] the struct must point to a " + name + ", got null");
  S s{};
  const size_t small = c::kFirstSize<S> - 1;
  EXPECT_EQ(c::Init("f", &s, small), PLANISH_INVALID_ARGUMENT);
  EXPECT_EQ(Message(), "[f] size must be sizeof(" + name + "), got " + std::to_string(small));
  EXPECT_EQ(s.struct_size, 0u);
}

// A program that was compiled with a newer header.
TYPED_TEST(CStructTest, NewerStructsWorkWithoutNewFields) {
  struct Newer {
    typename TypeParam::Struct known;
    int64_t added[2];
  } newer;
  std::memset(static_cast<void*>(&newer), 0xab, sizeof newer);
  ASSERT_EQ(c::Init("f", &newer.known, sizeof newer), PLANISH_OK);
  EXPECT_EQ(newer.known.struct_size, sizeof newer);
  EXPECT_EQ(newer.added[0] | newer.added[1], 0);
  const c::Converter converter("f");
  EXPECT_NO_THROW(converter.Checked("args", &newer.known));
  newer.added[1] = 1;
  EXPECT_EQ(tests::ErrorOf([&] { converter.Checked("args", &newer.known); }),
            "[f] args must leave fields at 0 that version " PLANISH_VERSION
            " does not have, got a value at byte " +
                std::to_string(sizeof newer - 8));
}

// Calls by a program that was compiled with the first version of the header.
TYPED_TEST(CStructTest, OlderStructsHaveDefaultsForNewFields) {
  using S = typename TypeParam::Struct;
  S s, defaults;
  std::memset(static_cast<void*>(&s), 0xab, sizeof s);
  ASSERT_EQ(c::Init("f", &s, c::kFirstSize<S>), PLANISH_OK);
  ASSERT_EQ(c::Init("f", &defaults, sizeof defaults), PLANISH_OK);
  const S read = c::Converter("f").Checked("args", &s);
  defaults.struct_size = s.struct_size;
  EXPECT_EQ(std::memcmp(&read, &defaults, sizeof(S)), 0);
}

TYPED_TEST(CStructTest, StructsWithoutInitAreErrors) {
  using S = typename TypeParam::Struct;
  const std::string name = c::Struct<S>::kName;
  const c::Converter converter("f");
  EXPECT_EQ(tests::ErrorOf([&] { converter.Checked<S>("args", nullptr); }),
            "[f] args must point to a " + name + ", got null");
  for (const uint32_t size :
       {0u, static_cast<uint32_t>(c::kFirstSize<S>) - 1, 4097u, 0xababababu}) {
    S s{};
    s.struct_size = size;
    EXPECT_EQ(tests::ErrorOf([&] { converter.Checked("args", &s); }),
              "[f] args.struct_size must be set by " + name + "_init, got " + std::to_string(size));
  }
}

TEST(CConstantsTest, PointwiseFunctionsAreThoseOfCpp) {
  EXPECT_EQ(c::PointwiseOf("f", PLANISH_POINTWISE_TANH), Pointwise::kTanh);
  EXPECT_EQ(c::PointwiseOf("f", PLANISH_POINTWISE_ERF), Pointwise::kErf);
  for (const planish_pointwise wrong : {-1, 2, INT32_MAX}) {
    EXPECT_EQ(
        tests::ErrorOf([&] { c::PointwiseOf("f", wrong); }),
        "[f] pointwise must be a constant of planish_pointwise, got " + std::to_string(wrong));
  }
}

TEST(CConstantsTest, NormsAreThoseOfCpp) {
  const std::pair<planish_norm, const char*> norms[] = {
      {PLANISH_NORM_LAYER, "layer"},
      {PLANISH_NORM_LAYER_SIMPLE, "layer_simple"},
      {PLANISH_NORM_DETACH, "detach"},
      {PLANISH_NORM_DETACH_MEAN, "detach_mean"},
      {PLANISH_NORM_DETACH_DEVIATION, "detach_deviation"},
      {PLANISH_NORM_ADA, "ada"},
      {PLANISH_NORM_ADA_AS_CODED, "ada_as_coded"},
      {PLANISH_NORM_RMS, "rms"}};
  EXPECT_EQ(std::size(norms), std::size(internal::kNormNames));
  for (const auto& [norm, name] : norms) EXPECT_STREQ(internal::NameOf(c::NormOf("f", norm)), name);
  const auto count = static_cast<planish_norm>(std::size(norms));
  for (const planish_norm norm : {-1, count, 256, INT32_MAX}) {
    EXPECT_EQ(tests::ErrorOf([&] { c::NormOf("f", norm); }),
              "[f] norm must be a constant of planish_norm, got " + std::to_string(norm));
  }
}

TEST(CConstantsTest, CellsAreThoseOfCpp) {
  const std::pair<planish_cell, const char*> cells[] = {
      {PLANISH_CELL_RNN, "rnn"},
      {PLANISH_CELL_RNN_RELU, "rnn_relu"},
      {PLANISH_CELL_LSTM, "lstm"},
      {PLANISH_CELL_GRU, "gru"},
      {PLANISH_CELL_LN_RNN, "ln_rnn"},
      {PLANISH_CELL_LN_RNN_RELU, "ln_rnn_relu"},
      {PLANISH_CELL_LN_LSTM, "ln_lstm"},
      {PLANISH_CELL_LN_LSTM_HASTE, "ln_lstm_haste"},
      {PLANISH_CELL_LN_LSTM_FASTRNNS, "ln_lstm_fastrnns"},
      {PLANISH_CELL_LN_LSTM_TFA, "ln_lstm_tfa"},
      {PLANISH_CELL_LN_LSTM_CONTRIB, "ln_lstm_contrib"},
      {PLANISH_CELL_DRAW_LSTM, "draw_lstm"},
      {PLANISH_CELL_LN_GRU, "ln_gru"},
      {PLANISH_CELL_BN_RNN, "bn_rnn"},
      {PLANISH_CELL_BN_LSTM, "bn_lstm"},
      {PLANISH_CELL_BN_GRU, "bn_gru"},
      {PLANISH_CELL_LN_LSTM_TORCHAUDIO, "ln_lstm_torchaudio"},
      {PLANISH_CELL_LN_LSTM_TFLITE, "ln_lstm_tflite"},
      {PLANISH_CELL_LN_GRU_HASTE, "ln_gru_haste"},
      {PLANISH_CELL_LN_GRU_DREAMER, "ln_gru_dreamer"},
      {PLANISH_CELL_SLSTM, "slstm"}};
  EXPECT_EQ(std::size(cells), internal::kNamedCells.size());
  for (const auto& [cell, name] : cells) EXPECT_STREQ(internal::NameOf(c::CellOf("f", cell)), name);
  for (const planish_cell cell : {-1, 21, 256}) {
    EXPECT_EQ(tests::ErrorOf([&] { c::CellOf("f", cell); }),
              "[f] cell must be a constant of planish_cell, got " + std::to_string(cell));
  }
}

/// Calls f as a function of the C interface.
template <class F>
planish_status Call(const F& f) {
  return c::Guarded("planish_f", f);
}

TEST(CErrorsTest, EveryExceptionHasACodeAndAMessage) {
  EXPECT_EQ(Call([] {}), PLANISH_OK);
  EXPECT_EQ(Call([] { throw ArgumentError("[NormForward] rows must be 1, got 2"); }),
            PLANISH_INVALID_ARGUMENT);
  EXPECT_EQ(Message(), "[planish_f] rows must be 1, got 2");
  EXPECT_EQ(Call([] { throw ArgumentError("[PLANISH_TARGET] target must be A, got B"); }),
            PLANISH_INVALID_ARGUMENT);
  EXPECT_EQ(Message(), "[PLANISH_TARGET] target must be A, got B");
  EXPECT_EQ(Call([] { throw DeviceError("[NormForward] Planish was built without CUDA", 0); }),
            PLANISH_NO_CUDA);
  EXPECT_EQ(Message(), "[planish_f] Planish was built without CUDA");
  EXPECT_EQ(Call([] { throw DeviceError("[NormForward] invalid device", 101); }),
            PLANISH_DEVICE_ERROR);
  EXPECT_EQ(Message(), "[planish_f] invalid device");
  EXPECT_EQ(Call([] { throw Error("not here"); }), PLANISH_INVALID_ARGUMENT);
  EXPECT_EQ(Message(), "[planish_f] not here");
  EXPECT_EQ(Call([] { throw std::bad_alloc(); }), PLANISH_OUT_OF_MEMORY);
  EXPECT_EQ(Message(), "[planish_f] memory could not be allocated");
  EXPECT_EQ(Call([] { throw c::CallbackError{"parallel_for", -3}; }), PLANISH_CALLBACK_FAILED);
  EXPECT_EQ(Message(), "[planish_f] parallel_for must return 0, got -3");
  EXPECT_EQ(Call([] { throw std::domain_error("somewhere else"); }), PLANISH_INTERNAL_ERROR);
  EXPECT_EQ(Message(), "[planish_f] somewhere else");
  EXPECT_EQ(Call([] { throw 7; }), PLANISH_INTERNAL_ERROR);
  EXPECT_EQ(Message(), "[planish_f] an exception of unknown type");
}

TEST(CErrorsTest, LongMessagesAreCut) {
  const std::string text(5000, 'x');
  EXPECT_EQ(Call([&] { throw std::runtime_error(text); }), PLANISH_INTERNAL_ERROR);
  EXPECT_EQ(Message(), ("[planish_f] " + text).substr(0, 1023));
}

TEST(CErrorsTest, EveryThreadHasItsMessage) {
  EXPECT_EQ(planish_set_threads(0), PLANISH_INVALID_ARGUMENT);
  const std::string here(Message());
  EXPECT_EQ(here, "[planish_set_threads] threads must be at least 1, got 0");
  std::thread([&] {
    EXPECT_EQ(Message(), "");
    EXPECT_EQ(planish_set_threads(-5), PLANISH_INVALID_ARGUMENT);
    EXPECT_EQ(Message(), "[planish_set_threads] threads must be at least 1, got -5");
  }).join();
  EXPECT_EQ(Message(), here);
}

TEST(CErrorsTest, ASuccessKeepsTheMessage) {
  EXPECT_EQ(planish_threads(nullptr), PLANISH_INVALID_ARGUMENT);
  int32_t threads = 0;
  EXPECT_EQ(planish_threads(&threads), PLANISH_OK);
  EXPECT_EQ(Message(), "[planish_threads] threads must point to a number, got null");
}

TEST(CLibraryTest, Version) { EXPECT_STREQ(planish_version(), PLANISH_VERSION); }

TEST(CLibraryTest, VersionInfoIsThatOfCpp) {
  std::string expected;
  for (const auto& [name, value] : VersionInfo()) expected += name + ": " + value + "\n";
  EXPECT_EQ(planish_version_info(), expected);
  EXPECT_EQ(expected.substr(0, 9), "version: ");
}

TEST(CLibraryTest, Targets) {
  std::istringstream text(planish_targets());
  std::vector<std::string> targets;
  for (std::string target; text >> target;) targets.push_back(target);
  EXPECT_EQ(targets, Targets());
  EXPECT_EQ(planish_targets(), planish_targets()) << "the text is kept";
  const std::string before = planish_target();
  EXPECT_EQ(before, Target());
  for (const std::string& target : targets) {
    EXPECT_EQ(planish_set_target(target.c_str()), PLANISH_OK);
    EXPECT_EQ(Target(), target);
    EXPECT_EQ(planish_target(), target);
  }
  EXPECT_EQ(planish_set_target(before.c_str()), PLANISH_OK);
  EXPECT_EQ(planish_set_target("MMX"), PLANISH_INVALID_ARGUMENT);
  EXPECT_EQ(Message().substr(0, 42), "[planish_set_target] target must be one of");
  EXPECT_EQ(planish_set_target(nullptr), PLANISH_INVALID_ARGUMENT);
  EXPECT_EQ(Message(), "[planish_set_target] name must point to a name, got null");
}

TEST(CLibraryTest, Threads) {
  const int before = Threads();
  EXPECT_EQ(planish_set_threads(3), PLANISH_OK);
  int32_t threads = 0;
  EXPECT_EQ(planish_threads(&threads), PLANISH_OK);
  EXPECT_EQ(threads, 3);
  SetThreads(before);
}

TEST(CLibraryTest, HalvesAreThoseOfCpp) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float b = planish_bfloat16_to_float(half), f = planish_float16_to_float(half);
    EXPECT_EQ(std::bit_cast<uint32_t>(b), std::bit_cast<uint32_t>(ToFloat(bfloat16{half})));
    EXPECT_EQ(std::bit_cast<uint32_t>(f), std::bit_cast<uint32_t>(ToFloat(float16{half})));
    EXPECT_EQ(planish_float_to_bfloat16(f), ToBfloat16(f).bits);
    EXPECT_EQ(planish_float_to_float16(b), ToFloat16(b).bits);
  }
  EXPECT_EQ(planish_float_to_float16(1e6f), 0x7c00);
  EXPECT_EQ(planish_bfloat16_to_float(0x3f80), 1.f);
}

}  // namespace
}  // namespace planish
