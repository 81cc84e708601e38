#include "src/c/call.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>
#include <string>

#include "planish/error.h"
#include "planish/version.h"
#include "src/norm/recipe.h"
#include "src/rnn/cell.h"

namespace planish::internal::c {
namespace {

// Text of planish_error_message. An array, because storing a message must not allocate memory.
thread_local char message[1024] = "";

/// Stores the message of a failed function. Replaces the C++ function in `[function] text`, but not
/// an environment variable.
void Store(const char* function, const char* text) noexcept {
  constexpr char kVariable[] = "[PLANISH_";
  if (std::strncmp(text, kVariable, sizeof kVariable - 1) == 0) {
    std::snprintf(message, sizeof message, "%s", text);
    return;
  }
  const char* const end = *text == '[' ? std::strstr(text, "] ") : nullptr;
  std::snprintf(message, sizeof message, "[%s] %s", function, end == nullptr ? text : end + 2);
}

/// Returns the enumerator with a value of a constant of the C interface, which counts from 0.
template <class E>
E EnumeratorOf(const char* function, const char* argument, int64_t value, size_t count) {
  if (value < 0 || static_cast<size_t>(value) >= count) {
    Fail(function, argument, "be a constant of planish_" + std::string(argument),
         std::to_string(value));
  }
  return static_cast<E>(value);
}

extern "C" void RunRange(const void* task, int64_t begin, int64_t end) {
  (*static_cast<const RangeTask*>(task))(begin, end);
}

}  // namespace

planish_status StatusOfException(const char* function) noexcept {
  try {
    throw;
  } catch (const ArgumentError& error) {
    Store(function, error.what());
    return PLANISH_INVALID_ARGUMENT;
  } catch (const DeviceError& error) {
    Store(function, error.what());
    return error.code() == 0 ? PLANISH_NO_CUDA : PLANISH_DEVICE_ERROR;
  } catch (const CallbackError& error) {
    char text[96];
    std::snprintf(text, sizeof text, "%s must return 0, got %d", error.name,
                  static_cast<int>(error.returned));
    Store(function, text);
    return PLANISH_CALLBACK_FAILED;
  } catch (const Error& error) {
    Store(function, error.what());
    return PLANISH_INVALID_ARGUMENT;
  } catch (const std::bad_alloc&) {
    Store(function, "memory could not be allocated");
    return PLANISH_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    Store(function, error.what());
  } catch (...) {
    Store(function, "an exception of unknown type");
  }
  return PLANISH_INTERNAL_ERROR;
}

Norm NormOf(const char* function, planish_norm norm) {
  return EnumeratorOf<Norm>(function, "norm", norm, std::size(kNormNames));
}

Cell CellOf(const char* function, planish_cell cell) {
  return EnumeratorOf<Cell>(function, "cell", cell, kCells.size());
}

Pointwise PointwiseOf(const char* function, planish_pointwise pointwise) {
  return EnumeratorOf<Pointwise>(function, "pointwise", pointwise, 2);
}

WeightType WeightTypeOf(const char* function, planish_weight_type type) {
  return EnumeratorOf<WeightType>(function, "weight_type", type, kWeightTypes.size());
}

ParallelFor ParallelForOf(planish_parallel_for parallel_for) {
  if (parallel_for.function == nullptr) return {};
  return [parallel_for](int64_t begin, int64_t end, int64_t grain, RangeTask task) {
    const int32_t returned =
        parallel_for.function(parallel_for.context, begin, end, grain, RunRange, &task);
    if (returned != 0) throw CallbackError{"parallel_for", returned};
  };
}

void FailType(const char* function, const char* name, planish_type type, const char* expected) {
  Fail(function, name, expected, std::to_string(type));
}

void FailNull(const char* function, const char* name, const char* what) {
  Fail(function, name, std::string("point to a ") + what, "null");
}

void FailSize(const char* function, const char* struct_name, size_t size) {
  Fail(function, "size", std::string("be sizeof(") + struct_name + ")", std::to_string(size));
}

void CheckSize(const char* function, const char* name, const char* struct_name, const void* given,
               uint32_t struct_size, size_t first, size_t known) {
  // A limit beyond every version, so that the size of a struct without initialization is not read.
  constexpr uint32_t kMax = 4096;
  if (struct_size < first || struct_size > kMax) {
    Fail(function, std::string(name) + ".struct_size",
         std::string("be set by ") + struct_name + "_init", std::to_string(struct_size));
  }
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (size_t i = known; i < struct_size; ++i) {
    if (bytes[i] == 0) continue;
    Fail(function, name, "leave fields at 0 that version " PLANISH_VERSION " does not have",
         "a value at byte " + std::to_string(i));
  }
}

}  // namespace planish::internal::c

const char* planish_error_message(void) { return planish::internal::c::message; }
