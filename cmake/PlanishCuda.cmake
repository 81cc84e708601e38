# Sets PLANISH_HAVE_CUDA if the kernels for NVIDIA GPUs are built. Only these kernels need nvcc; building needs no
# GPU. AUTO builds them for a binding whose PyTorch is a CUDA build, if nvcc is found.
set(PLANISH_CUDA AUTO CACHE STRING
  "Build the kernels for NVIDIA GPUs: AUTO (with nvcc, for a CUDA build of PyTorch), ON or OFF")
set_property(CACHE PLANISH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(PLANISH_HAVE_CUDA FALSE)
set(_planish_cuda ${PLANISH_CUDA})
if(PLANISH_CUDA STREQUAL "AUTO")
  set(_planish_cuda ${PLANISH_LIBTORCH_CUDA})
endif()
if(_planish_cuda)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # Machine code for A100, H100 and H200, and for B200 if nvcc supports it. PTX of the newest serves
    # later GPUs.
    set(PLANISH_CUDA_DEFAULT_ARCHITECTURES FALSE)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(PLANISH_CUDA_DEFAULT_ARCHITECTURES TRUE)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know it
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    if(PLANISH_CUDA_DEFAULT_ARCHITECTURES AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
    endif()
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12)
      find_package(CUDAToolkit REQUIRED)
      set(PLANISH_HAVE_CUDA TRUE)
    elseif(PLANISH_CUDA STREQUAL "AUTO")
      message(STATUS "Kernels for GPUs are left out: nvcc must be 12 or newer, got ${CMAKE_CUDA_COMPILER_VERSION}")
    else()
      message(FATAL_ERROR "nvcc must be 12 or newer, got ${CMAKE_CUDA_COMPILER_VERSION}")
    endif()
    if(PLANISH_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER "${PLANISH_CCACHE}")
    endif()
  elseif(PLANISH_CUDA STREQUAL "AUTO")
    message(STATUS "Kernels for GPUs are left out: no nvcc was found; -DCMAKE_CUDA_COMPILER=/path/to/nvcc names one")
  else()
    message(FATAL_ERROR "PLANISH_CUDA=ON needs nvcc: pass -DCMAKE_CUDA_COMPILER=/path/to/nvcc.")
  endif()
endif()

# planish_cuda_objects(target SOURCES...): adds kernels to planish_core. The compiler fuses no multiplication with an
# addition unless the source does, so that results equal those of the emulation bit for bit. The option
# -Wno-parentheses is needed because nvcc adds parentheses around declarations.
# The target planish_kernels compiles all of them, and nothing else.
if(PLANISH_HAVE_CUDA)
  add_custom_target(planish_kernels)
endif()
function(planish_cuda_objects target)
  add_library(${target} OBJECT ${ARGN})
  add_dependencies(planish_kernels ${target})
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON
    POSITION_INDEPENDENT_CODE ON)
  planish_hidden(${target})
  target_compile_options(${target} PRIVATE -fmad=false
    -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter,-Wno-parentheses)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}"
    "${PROJECT_BINARY_DIR}/include" "${PROJECT_BINARY_DIR}")
  target_sources(planish_core PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()

# planish_emulated_objects(target SOURCES...): compiles kernels as C++, for src/base/cuda/emulation.h. In a program
# that links these objects before planish_core, they replace those of planish_core. The global property
# PLANISH_EMULATED lists them.
function(planish_emulated_objects target)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${ARGN})
  planish_options(${target})
  target_compile_options(${target} PRIVATE -ffp-contract=off)
  set_property(GLOBAL APPEND PROPERTY PLANISH_EMULATED $<TARGET_OBJECTS:${target}>)
endfunction()
