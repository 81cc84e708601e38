# Two precompiled headers of libtorch and the lab's libraries, one of them also with GoogleTest. Each compiles in 20
# seconds. Functions in a precompiled header keep its optimization level. All targets that use one need the same
# preprocessor and code generation flags.
set(_planish_libtorch_headers <ATen/Functions.h> <ATen/TensorOperators.h> <torch/csrc/autograd/autograd.h>
  <torch/nn/module.h> <torch/nn/modules/embedding.h> <torch/nn/modules/linear.h>)
set(_planish_headers ${_planish_libtorch_headers})
if(PLANISH_LAB)
  list(APPEND _planish_headers <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)
endif()

# planish_header_flags(target): the flags that targets with the same precompiled header need. FMT_SHARED is needed
# also by targets that do not link fmt.
function(planish_header_flags target)
  planish_hidden(${target})
  target_compile_options(${target} PRIVATE -fPIC ${OpenMP_CXX_FLAGS})
  if(PLANISH_LAB)
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
  endif()
endfunction()

planish_read_headers(planish_headers planish::libtorch ${_planish_headers})
planish_header_flags(planish_headers)
if(PLANISH_TESTS)
  planish_read_headers(planish_test_headers "planish::libtorch;GTest::gmock" ${_planish_headers} <gmock/gmock.h>
    <gtest/gtest.h>)
  planish_header_flags(planish_test_headers)
  planish_unoptimized_test(planish_test_headers)
endif()

# planish_precompiled(target): uses a precompiled header in a target whose files include libtorch's headers. Each
# file then compiles the templates that inline functions in these headers use, which takes 2 seconds.
function(planish_precompiled target)
  if(NOT TARGET ${target})
    return()
  endif()
  planish_header_flags(${target})
  if(target MATCHES "^planish_torch-")  # another libtorch
    target_precompile_headers(${target} PRIVATE ${_planish_libtorch_headers})
  elseif(target MATCHES "_test$")
    target_precompile_headers(${target} REUSE_FROM planish_test_headers)
  else()
    target_precompile_headers(${target} REUSE_FROM planish_headers)
  endif()
endfunction()
