# Checks which libtorch a build uses, that nothing else is found in its folder, and when GPU kernels are
# compiled. The libtorch is a stand-in: configuring reads only its version and the names of its files.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
install_planish()
set(libtorch "${WORK_DIR}/libtorch")

function(make_libtorch minor)
  file(REMOVE_RECURSE "${libtorch}")
  file(WRITE "${libtorch}/include/ATen/ATen.h")
  file(MAKE_DIRECTORY "${libtorch}/include/torch/csrc/api/include")
  file(WRITE "${libtorch}/include/torch/headeronly/version.h"
    "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR ${minor}\n#define TORCH_VERSION_PATCH 1\n")
  # PyTorch's wheels have headers of other projects.
  file(WRITE "${libtorch}/include/google/protobuf/service.h")
  file(WRITE "${libtorch}/include/dnnl.hpp")
  foreach(library libtorch_cpu libc10 ${ARGN})
    file(WRITE "${libtorch}/lib/${library}.so")
  endforeach()
endfunction()

# configure(options...): sets FAILED, OUTPUT and KERNELS, which is set if GPU kernels are compiled.
function(configure)
  file(REMOVE_RECURSE "${WORK_DIR}/build")
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${PLANISH_SOURCE_DIR}" -B "${WORK_DIR}/build" -G "${GENERATOR}"
      "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DPLANISH_BENCH=OFF ${ARGN}
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE FAILED COMMAND_ECHO STDOUT)
  message("${output}")
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  set(OUTPUT "${output}" PARENT_SCOPE)
  set(FAILED ${FAILED} PARENT_SCOPE)
  set(KERNELS FALSE PARENT_SCOPE)
  if(EXISTS "${WORK_DIR}/build/compile_commands.json")
    file(STRINGS "${WORK_DIR}/build/compile_commands.json" kernels REGEX "\"file\": .*\\.cu\"" LIMIT_COUNT 1)
    if(kernels)
      set(KERNELS TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

function(expect condition)
  cmake_language(EVAL CODE "if(NOT (${condition}))
    message(FATAL_ERROR [[expected: ${condition}]])
  endif()")
endfunction()

# A libtorch named by the environment, as make passes it, with a slash at the end.
make_libtorch(14)
set(ENV{CMAKE_PREFIX_PATH} "${libtorch}/")
configure(-DPLANISH_TESTS=ON)
expect("NOT FAILED")
expect([[OUTPUT MATCHES "PyTorch 2.14.1 in [^ ]*/libtorch "]])
expect("NOT KERNELS")
expect([[NOT OUTPUT MATCHES "Kernels for GPUs"]])
file(STRINGS "${WORK_DIR}/build/CMakeCache.txt" taken REGEX "=${libtorch}")
expect([["${taken}" STREQUAL ""]])

# A CUDA build needs no CUDA toolkit; with one AUTO compiles the kernels.
make_libtorch(14 libtorch_cuda)
configure(-DPLANISH_TESTS=OFF -DPLANISH_LAB=OFF -DCMAKE_CUDA_COMPILER=NOTFOUND)
expect("NOT FAILED")
expect("NOT KERNELS")
expect([[OUTPUT MATCHES "-- Kernels for GPUs are left out: no nvcc was found"]])
configure(-DPLANISH_TESTS=OFF -DPLANISH_LAB=OFF -DCMAKE_CUDA_COMPILER=NOTFOUND -DPLANISH_CUDA=ON)
expect("FAILED")
expect([[OUTPUT MATCHES "PLANISH_CUDA=ON needs nvcc: pass -DCMAKE_CUDA_COMPILER="]])
find_program(nvcc nvcc)
if(nvcc)
  configure(-DPLANISH_TESTS=OFF -DPLANISH_LAB=OFF)
  expect("NOT FAILED AND KERNELS")
  configure(-DPLANISH_TESTS=OFF -DPLANISH_LAB=OFF -DPLANISH_TORCH=OFF)
  expect("NOT FAILED AND NOT KERNELS")
  configure(-DPLANISH_TESTS=OFF -DPLANISH_LAB=OFF -DPLANISH_TORCH=OFF -DPLANISH_CUDA=ON)
  expect("NOT FAILED AND KERNELS")
endif()

make_libtorch(10)
configure(-DPLANISH_TESTS=OFF)
expect("FAILED")
expect([[OUTPUT MATCHES "PyTorch must be 2.11 or newer, got version 2.10.1 in [^ ]*/libtorch"]])
