# Headers of libtorch and of the lab's libraries that the compiler reads once, which takes 20 seconds, for many
# sources. Code that was read
# with other optimisations keeps them, and flags that the compiler compares must be the same: planish_torch, the
# lab and the tests have one file each.
set(_planish_torch_headers <ATen/Functions.h> <ATen/TensorOperators.h> <torch/csrc/autograd/autograd.h>
  <torch/nn/module.h> <torch/nn/modules/embedding.h> <torch/nn/modules/linear.h>)
set(_planish_lab_headers ${_planish_torch_headers})
if(PLANISH_LAB)
  list(APPEND _planish_lab_headers <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)
endif()

# planish_header_flags(target): what all targets with the same file must have, also those that do not link fmt.
function(planish_header_flags target)
  target_compile_options(${target} PRIVATE -fPIC ${OpenMP_CXX_FLAGS})
  if(PLANISH_LAB)
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
  endif()
endfunction()

planish_read_headers(planish_lab_headers planish::libtorch ${_planish_lab_headers})
planish_header_flags(planish_lab_headers)
if(PLANISH_TESTS)
  planish_read_headers(planish_test_headers "planish::libtorch;GTest::gmock" ${_planish_lab_headers} <gmock/gmock.h>
    <gtest/gtest.h>)
  planish_header_flags(planish_test_headers)
endif()

# planish_precompiled(target): takes these headers as they were read, in a target whose files include libtorch's.
# Each file that does compiles the templates that inline functions of the headers use: 2 seconds.
function(planish_precompiled target)
  if(NOT TARGET ${target})
    return()
  endif()
  planish_header_flags(${target})
  if(target MATCHES "^planish_torch(-|$)")  # each reads its own libtorch's
    target_precompile_headers(${target} PRIVATE ${_planish_torch_headers})
  elseif(target MATCHES "_test$")
    target_precompile_headers(${target} REUSE_FROM planish_test_headers)
  else()
    target_precompile_headers(${target} REUSE_FROM planish_lab_headers)
  endif()
endfunction()
