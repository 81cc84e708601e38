#ifndef PLANISH_SRC_C_CALL_H_
#define PLANISH_SRC_C_CALL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "planish/parallel.h"
#include "planish/rnn.h"
#include "planish/types.h"
#include "src/base/check.h"
#include "src/c/members.h"
#include "src/norm/element_types.h"
#include "src/rnn/element_types.h"

// Calls of the C interface: exceptions become status codes, C structs become C++ structs.

struct planish_rnn_packed {
  template <class T>
  using Params = planish::RnnPackedParams<T>;
  std::variant<Params<float>, Params<double>> params;
};

struct planish_rnn_gradient_sums {
  template <class T>
  using Sums = planish::RnnGradientSums<T>;
  std::variant<Sums<float>, Sums<double>> sums;
};

namespace planish::internal::c {

/// Thrown if a function of the caller returns nonzero.
struct CallbackError {
  const char* name;
  int32_t returned;
};

/// Returns the code of the exception being handled and stores its message for this thread. In the
/// message the name of the C function replaces that of the C++ function.
planish_status StatusOfException(const char* function) noexcept;

/// Calls f. Returns PLANISH_OK or the code of its exception.
template <class F>
planish_status Guarded(const char* function, const F& f) noexcept {
  try {
    f();
    return PLANISH_OK;
  } catch (...) {
    return StatusOfException(function);
  }
}

/// The element type of T.
template <class T>
inline constexpr planish_type kType = 0;
template <>
inline constexpr planish_type kType<float> = PLANISH_FLOAT;
template <>
inline constexpr planish_type kType<double> = PLANISH_DOUBLE;
template <>
inline constexpr planish_type kType<bfloat16> = PLANISH_BFLOAT16;
template <>
inline constexpr planish_type kType<float16> = PLANISH_FLOAT16;

/// Returns the C++ enumerator. Throws ArgumentError for another value.
Norm NormOf(const char* function, planish_norm norm);
Cell CellOf(const char* function, planish_cell cell);
Pointwise PointwiseOf(const char* function, planish_pointwise pointwise);
WeightType WeightTypeOf(const char* function, planish_weight_type type);

/// Returns a shape without a projection, which planish_rnn_inputs has.
inline RnnShape ShapeOf(const planish_rnn_shape& shape) {
  return {shape.time, shape.batch, shape.inputs, shape.hidden};
}

/// Returns a parallel_for of the caller, or an empty one if it has no function.
ParallelFor ParallelForOf(planish_parallel_for parallel_for);

/// Returns a matrix product of the caller, which is not null.
template <class T>
cuda::Matmul<T> MatmulOf(planish_cuda_matmul matmul) {
  return [matmul](const cuda::MatmulArgs<T>& args) {
    planish_cuda_matmul_args to{};
    to.struct_size = sizeof to;
    to.type = kType<T>;
    VisitMembers(to, args, [](const char*, auto& c, const auto& cpp) { c = cpp; });
    const int32_t returned = matmul.function(matmul.context, &to);
    if (returned != 0) throw CallbackError{"matmul", returned};
  };
}

[[noreturn]] void FailNull(const char* function, const char* name, const char* what);

/// Throws ArgumentError if `given` is null.
inline void CheckGiven(const char* function, const char* name, const char* what,
                       const void* given) {
  if (given == nullptr) FailNull(function, name, what);
}

[[noreturn]] void FailSize(const char* function, const char* struct_name, size_t size);
[[noreturn]] void FailType(const char* function, const char* name, planish_type type,
                           const char* expected);

/// Sets the members of a C struct to the defaults of the corresponding C++ struct.
template <class S>
void SetDefaults(S& s) {
  const typename Struct<S>::Cpp defaults{};
  VisitMembers(s, defaults, []<class To, class From>(const char*, To& to, const From& from) {
    if constexpr (std::is_same_v<From, std::optional<double>>) {
      to = from.value_or(PLANISH_MOMENTUM_AVERAGE);
    } else if constexpr (std::is_arithmetic_v<From>) {
      to = from;
    }
  });
}

/// Initializes the first `size` bytes of a C struct, which can be older or newer than S.
template <Sized S>
planish_status Init(const char* function, S* s, size_t size) noexcept {
  return Guarded(function, [&] {
    CheckGiven(function, "the struct", Struct<S>::kName, s);
    if (size < kFirstSize<S> || size > UINT32_MAX) {
      FailSize(function, Struct<S>::kName, size);
    }
    S known{};
    SetDefaults(known);
    known.struct_size = static_cast<uint32_t>(size);
    std::memset(static_cast<void*>(s), 0, size);
    std::memcpy(static_cast<void*>(s), &known, std::min(size, sizeof known));
  });
}

/// Checks the size of a struct from the caller. Throws ArgumentError if it is less than `first`, or
/// if a byte after the first `known` bytes is set.
void CheckSize(const char* function, const char* name, const char* struct_name, const void* given,
               uint32_t struct_size, size_t first, size_t known);

/// Converts the structs of one call.
class Converter {
 public:
  explicit Converter(const char* function) : function_(function) {}

  const char* function() const { return function_; }

  /// Returns a copy of a caller's struct; fields that the caller's version lacks have their
  /// defaults. Throws ArgumentError if the struct is null or its size is wrong.
  template <Sized S>
  S Checked(const char* name, const S* given) const {
    CheckGiven(function_, name, Struct<S>::kName, given);
    const size_t size = given->struct_size;
    CheckSize(function_, name, Struct<S>::kName, given, given->struct_size, kFirstSize<S>,
              sizeof(S));
    S s{};
    if (size < sizeof(S)) SetDefaults(s);
    std::memcpy(static_cast<void*>(&s), given, std::min(size, sizeof(S)));
    return s;
  }

  /// Returns a C++ struct with the members of a C struct.
  template <class Cpp, class S>
  Cpp To(const S& from) const {
    Cpp to;
    VisitMembers(from, to, [this](const char* name, const auto& c, auto& cpp) {
      this->Convert(name, c, cpp);
    });
    return to;
  }

  /// Returns a C++ struct with the members of options, or default options if they are null.
  template <class Cpp, class S>
  Cpp ToOptions(const S* options) const {
    return options == nullptr ? Cpp{} : To<Cpp>(Checked("options", options));
  }
  template <class Cpp>
  ParallelFor ToOptions(const planish_parallel_for* parallel_for) const {
    return parallel_for == nullptr ? ParallelFor() : ParallelForOf(*parallel_for);
  }

 private:
  template <class From, class To>
  void Convert(const char* name, const From& from, To& to) const {
    if constexpr (std::is_same_v<From, To>) {
      to = from;
    } else if constexpr (std::is_same_v<To, bool>) {
      to = from != 0;
    } else if constexpr (std::is_same_v<From, void*> || std::is_same_v<From, const void*>) {
      to = static_cast<To>(from);
    } else {
      ConvertStruct(name, from, to);
    }
  }

  void ConvertStruct(const char*, double from, std::optional<double>& to) const {
    to = from == PLANISH_MOMENTUM_AVERAGE ? std::nullopt : std::optional(from);
  }
  void ConvertStruct(const char*, planish_parallel_for from, ParallelFor& to) const {
    to = ParallelForOf(from);
  }
  template <class T>
  void ConvertStruct(const char*, planish_cuda_matmul from, cuda::Matmul<T>& to) const {
    if (from.function != nullptr) to = MatmulOf<T>(from);
  }
  void ConvertStruct(const char*, planish_weight_type from, WeightType& to) const {
    to = WeightTypeOf(function_, from);
  }
  void ConvertStruct(const char*, const planish_rnn_shape& from, RnnShape& to) const {
    to = ShapeOf(from);
  }
  template <class T>
  void ConvertStruct(const char* name, const planish_rnn_inputs* from, RnnInputs<T>& to) const {
    to = To<RnnInputs<T>>(Checked(name, from));
  }
  template <class T>
  void ConvertStruct(const char* name, const planish_rnn_params* from,
                     RnnParams<const T>& to) const {
    if (from != nullptr) to = To<RnnParams<const T>>(Checked(name, from));
  }
  template <class T>
  void ConvertStruct(const char* name, const planish_rnn_gradients* from, RnnParams<T>& to) const {
    if (from != nullptr) to = To<RnnParams<T>>(Checked(name, from));
  }
  template <class T>
  void ConvertStruct(const char* name, const planish_rnn_packed* from,
                     RnnPackedParams<T>& to) const {
    if (from != nullptr) to = *Held<T>(name, std::get_if<RnnPackedParams<T>>(&from->params));
  }
  template <class T>
  void ConvertStruct(const char* name, planish_rnn_gradient_sums* from,
                     RnnGradientSums<T>*& to) const {
    if (from != nullptr) to = Held<T>(name, std::get_if<RnnGradientSums<T>>(&from->sums));
  }

  /// Returns the object of a handle. Throws ArgumentError if its type differs.
  template <class T, class Value>
  Value* Held(const char* name, Value* held) const {
    if (held == nullptr) {
      const bool is_float = kType<T> == PLANISH_FLOAT;
      Fail(function_, name, std::string("be of type ") + (is_float ? "float" : "double"),
           is_float ? "double" : "float");
    }
    return held;
  }

  const char* function_;
};

/// Calls f.operator()<T>() with an element type of norms.
template <class F>
void WithElementType(const char* function, planish_type type, const F& f) {
#define PLANISH_CALL(T) \
  if (type == kType<T>) return f.template operator()<T>();
  PLANISH_ELEMENT_TYPES(PLANISH_CALL)
#undef PLANISH_CALL
  FailType(function, "type", type,
           "be PLANISH_FLOAT (1), PLANISH_DOUBLE (2), PLANISH_BFLOAT16 (3) or PLANISH_FLOAT16 (4)");
}

/// Calls f.operator()<T, P>() with the element types of a norm's arguments.
template <class Args, class F>
void WithNormTypes(const char* function, const Args& args, const F& f) {
  const planish_type param_type = args.param_type == 0 ? args.type : args.param_type;
#define PLANISH_CALL(T, P) \
  if (args.type == kType<T> && param_type == kType<P>) return f.template operator()<T, P>();
  PLANISH_NORM_TYPES(PLANISH_CALL)
#undef PLANISH_CALL
  WithElementType(function, args.type, []<class T> {});  // throws if `type` is wrong
  FailType(function, "param_type", args.param_type, "be 0, PLANISH_FLOAT (1) or type");
}

/// Calls f.operator()<T>() with the element type of a recurrent layer.
template <class F>
void WithRnnType(const char* function, planish_type type, const F& f) {
#define PLANISH_CALL(T) \
  if (type == kType<T>) return f.template operator()<T>();
  PLANISH_RNN_TYPES(PLANISH_CALL)
#undef PLANISH_CALL
  FailType(function, "type", type, "be PLANISH_FLOAT (1) or PLANISH_DOUBLE (2)");
}

/// Calls f(args) of a norm with the C++ struct for `args`.
template <template <class, class> class Args, class CArgs, class F>
void WithNormArgs(const Converter& converter, const CArgs* args, const F& f) {
  const CArgs checked = converter.Checked("args", args);
  WithNormTypes(converter.function(), checked,
                [&]<class T, class P> { f(converter.template To<Args<T, P>>(checked)); });
}

/// Calls f(args, options) of a norm with the C++ structs for `args` and `options`.
template <template <class, class> class Args, class Options, class CArgs, class COptions, class F>
planish_status CallNorm(const char* function, const CArgs* args, const COptions* options,
                        const F& f) noexcept {
  return Guarded(function, [&] {
    const Converter converter(function);
    WithNormArgs<Args>(converter, args, [&](const auto& to_args) {
      f(to_args, converter.template ToOptions<Options>(options));
    });
  });
}

/// Calls f(cell, args, options) of a recurrent layer with the C++ structs for `args` and `options`.
template <template <class> class Args, template <class> class Options, class CArgs, class COptions,
          class F>
planish_status CallRnn(const char* function, planish_cell cell, const CArgs* args,
                       const COptions* options, const F& f) noexcept {
  return Guarded(function, [&] {
    const Converter converter(function);
    const CArgs checked = converter.Checked("args", args);
    const Cell to_cell = CellOf(function, cell);
    WithRnnType(function, checked.type, [&]<class T> {
      f(to_cell, converter.template To<Args<T>>(checked),
        converter.template ToOptions<Options<T>>(options));
    });
  });
}

/// Defines the _init function of a struct.
// NOLINTBEGIN(bugprone-macro-parentheses): S is a type
#define PLANISH_C_INIT(S)                                   \
  planish_status S##_init(S* s, size_t size) {              \
    return planish::internal::c::Init(#S "_init", s, size); \
  }
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace planish::internal::c

#endif  // PLANISH_SRC_C_CALL_H_
