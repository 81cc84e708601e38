#ifndef PLANISH_SRC_C_TESTING_H_
#define PLANISH_SRC_C_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/error.h"
#include "src/base/arguments_testing.h"
#include "src/base/check.h"
#include "src/c/call.h"
#include "src/norm/testing.h"

// Tools for tests of the C interface: C structs with the values of C++ structs, and calls with
// random arrays.
namespace planish::tests {

/// A planish_parallel_for whose context is a ParallelFor.
inline int32_t CallParallelFor(void* context, int64_t begin, int64_t end, int64_t grain,
                               planish_run_range run, const void* task) {
  (*static_cast<const ParallelFor*>(context))(begin, end, grain,
                                              [&](int64_t b, int64_t e) { run(task, b, e); });
  return 0;
}

/// Makes C structs with the values of C++ structs, which must outlive them.
class CStructs {
 public:
  /// Returns a struct whose type fields are those of T and P.
  template <class S, class T, class P = T, class Cpp>
  S Make(const Cpp& from) {
    S s;
    EXPECT_EQ(internal::c::Init("Init", &s, sizeof s), PLANISH_OK);
    if constexpr (requires { s.type; }) s.type = internal::c::kType<T>;
    if constexpr (requires { s.param_type; }) s.param_type = internal::c::kType<P>;
    Copy(from, s);
    return s;
  }

 private:
  template <class Cpp, class S>
  void Copy(const Cpp& from, S& to) {
    internal::c::VisitMembers(to, from,
                              [this](const char*, auto& c, const auto& cpp) { this->Set(cpp, c); });
  }
  template <class From, class To>
  void Set(const From& from, To& to) {
    if constexpr (std::is_convertible_v<From, To>) {
      to = from;
    } else {
      SetStruct(from, to);
    }
  }
  void SetStruct(const std::optional<double>& from, double& to) {
    to = from.value_or(PLANISH_MOMENTUM_AVERAGE);
  }
  void SetStruct(const ParallelFor& from, planish_parallel_for& to) {
    if (from) to = {CallParallelFor, const_cast<ParallelFor*>(&from)};
  }
  void SetStruct(const RnnShape& from, planish_rnn_shape& to) {
    to = {from.time, from.batch, from.inputs, from.hidden};
  }
  template <class T>
  void SetStruct(const RnnInputs<T>& from, const planish_rnn_inputs*& to) {
    to = &inputs_.emplace_back(Make<planish_rnn_inputs, T>(from));
  }
  template <class T>
  void SetStruct(const RnnParams<const T>& from, const planish_rnn_params*& to) {
    to = &params_.emplace_back(Make<planish_rnn_params, T>(from));
  }
  template <class T>
  void SetStruct(const RnnParams<T>& from, const planish_rnn_gradients*& to) {
    to = &gradients_.emplace_back(Make<planish_rnn_gradients, T>(from));
  }
  // Handles are set by the test.
  template <class T>
  void SetStruct(const RnnPackedParams<T>&, const planish_rnn_packed*&) {}
  template <class T>
  void SetStruct(RnnGradientSums<T>*, planish_rnn_gradient_sums*&) {}

  std::deque<planish_rnn_inputs> inputs_;
  std::deque<planish_rnn_params> params_;
  std::deque<planish_rnn_gradients> gradients_;
};

/// Throws the error of a C function as the C++ functions do.
inline void ThrowStatus(planish_status status) {
  if (status == PLANISH_OK) return;
  EXPECT_EQ(status, PLANISH_INVALID_ARGUMENT) << planish_error_message();
  throw ArgumentError(planish_error_message());
}

/// Arguments whose arrays are all given and have random elements, each at least 1/2, so that they
/// are also valid deviations and variances.
template <class Args, class... Facts>
struct Filled {
  explicit Filled(const Args& sizes, const Facts&... facts) : args(sizes) {
    std::mt19937 random(7);
    for (int pass = 0; pass < 2; ++pass) {  // some can be given only with others
      internal::ForEachArgument(
          args,
          [&]<class E>(const internal::Argument<Args, E>& argument) {
            if (args.*argument.member || argument.presence.null_reason) return;
            using T = std::remove_const_t<E>;
            std::vector<T> values = Normal<T>(argument.extent.rows * argument.extent.cols, random);
            for (T& value : values) value = FromDouble<T>(std::abs(ToDouble(value)) + 0.5);
            const size_t size = values.size() * sizeof(T);
            // At least one byte: data() of an empty vector can be null.
            std::vector<std::byte>& bytes = memory.emplace_back(std::max<size_t>(size, 1));
            std::memcpy(bytes.data(), values.data(), size);
            args.*argument.member = reinterpret_cast<E*>(bytes.data());
          },
          facts...);
    }
  }

  Args args;
  std::deque<std::vector<std::byte>> memory;
};

/// Both interfaces of a call. `cpp(args)` is the C++ call, `c(structs, args)` the C call with the
/// same arguments, which returns its status.
template <class Args, class Cpp, class C, class... Facts>
void ExpectSameCall(const std::string& function, const Args& sizes, const Cpp& cpp, const C& c,
                    const Facts&... facts) {
  SCOPED_TRACE(function);
  Filled<Args, Facts...> expected(sizes, facts...), actual(sizes, facts...);
  const auto before = actual.memory;
  cpp(expected.args);
  CStructs structs;
  EXPECT_EQ(c(structs, actual.args), PLANISH_OK) << planish_error_message();
  EXPECT_EQ(actual.memory, expected.memory);
  EXPECT_NE(actual.memory, before) << "nothing was computed";

  // The checks of all arrays, with the messages of C++.
  const auto call = [&] { ThrowStatus(c(structs, actual.args)); };
  ExpectArrayErrors(function, ArraysOf(actual.args, facts...), call);
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_C_TESTING_H_
