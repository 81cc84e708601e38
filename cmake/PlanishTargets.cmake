# PLANISH_TARGETS: the SIMD targets that kernels are compiled for, of those in
# src/base/simd/compiled_targets.h. A library for other machines needs all. A build for this machine takes
# half the time with "native": the best target that its processor runs, and SCALAR.
set(PLANISH_TARGETS all CACHE STRING
  "SIMD targets: all, native (the best of this machine), or a list such as AVX3;AVX2. SCALAR is always there")

# planish_native_target(result): sets RESULT to the best of PLANISH_KNOWN_TARGETS that this machine runs,
# or to nothing if it runs none.
function(planish_native_target result)
  if(NOT DEFINED PLANISH_SUPPORTED_TARGETS)
    try_run(run compiled SOURCE_FROM_CONTENT supported_targets.cc [[
#include <hwy/targets.h>

#include <cstdint>
#include <cstdio>
int main() {
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    std::printf("%s;", hwy::TargetName(rest & -rest));
  }
}
]] LINK_LIBRARIES hwy::hwy COMPILE_OUTPUT_VARIABLE log RUN_OUTPUT_VARIABLE supported)
    if(NOT compiled OR NOT run STREQUAL "0")
      message(FATAL_ERROR "PLANISH_TARGETS=native needs a program that says what this processor runs, and it "
        "failed; pass -DPLANISH_TARGETS=all instead.\n${log}")
    endif()
    set(PLANISH_SUPPORTED_TARGETS "${supported}" CACHE INTERNAL "Highway's names of what this machine runs")
  endif()
  set(${result} "" PARENT_SCOPE)
  foreach(target IN LISTS PLANISH_KNOWN_TARGETS)
    if(target IN_LIST PLANISH_SUPPORTED_TARGETS)
      set(${result} ${target} PARENT_SCOPE)
      break()
    endif()
  endforeach()
endfunction()

# Best first, as Highway names them.
set(PLANISH_KNOWN_TARGETS "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(PLANISH_KNOWN_TARGETS AVX3 AVX2 SSE4)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(PLANISH_KNOWN_TARGETS NEON NEON_WITHOUT_AES)
endif()
if(PLANISH_TARGETS STREQUAL "all")
  set(_planish_targets ${PLANISH_KNOWN_TARGETS})
elseif(PLANISH_TARGETS STREQUAL "native")
  planish_native_target(_planish_targets)
else()
  set(_planish_targets ${PLANISH_TARGETS})
  list(REMOVE_ITEM _planish_targets SCALAR)
  foreach(target IN LISTS _planish_targets)
    if(NOT target IN_LIST PLANISH_KNOWN_TARGETS)
      list(JOIN PLANISH_KNOWN_TARGETS ", " known)
      message(FATAL_ERROR
        "PLANISH_TARGETS must be all, native or a list of ${known} and SCALAR, got ${target}.")
    endif()
  endforeach()
endif()
list(APPEND _planish_targets SCALAR)
list(JOIN _planish_targets ", " _planish_names)
message(STATUS "SIMD targets: ${_planish_names}")

# planish_simd(target): defines PLANISH_TARGETS for sources that include src/base/simd/compiled_targets.h.
list(TRANSFORM _planish_targets PREPEND PLANISH_TARGET_)
list(JOIN _planish_targets "|" PLANISH_TARGETS_DEFINITION)
function(planish_simd target)
  target_compile_definitions(${target} PRIVATE "PLANISH_TARGETS=(${PLANISH_TARGETS_DEFINITION})")
  target_link_libraries(${target} PRIVATE hwy::hwy)
endfunction()
