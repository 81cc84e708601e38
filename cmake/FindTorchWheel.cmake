# find_package(Torch) for the libtorch inside an installed PyTorch wheel. A libtorch of one's own
# goes first: pass CMAKE_PREFIX_PATH.
set(kineto_LIBRARY c10)  # else a warning "library kineto not found" with a call stack
find_package(Torch QUIET CONFIG HINTS ${CMAKE_PREFIX_PATH})
if(NOT Torch_FOUND)
  set(_planish_venv "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  if(EXISTS "${_planish_venv}" AND NOT Python_EXECUTABLE)
    set(Python_EXECUTABLE "${_planish_venv}")
  endif()
  find_package(Python COMPONENTS Interpreter REQUIRED)
  # find_spec does not import torch, which would take seconds.
  execute_process(COMMAND "${Python_EXECUTABLE}" -c
    "import importlib.util as u,pathlib as p;print(p.Path(u.find_spec('torch').origin).parent/'share'/'cmake')"
    OUTPUT_VARIABLE _planish_torch OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _planish_failed
    ERROR_QUIET)
  if(_planish_failed)
    message(FATAL_ERROR "PyTorch was not found. Run 'make setup', or pass -DCMAKE_PREFIX_PATH=/path/to/libtorch.")
  endif()
  list(APPEND CMAKE_PREFIX_PATH "${_planish_torch}")
  find_package(Torch REQUIRED)
endif()
if(Torch_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "PyTorch must be 2.11 or newer but has version ${Torch_VERSION}.")
endif()
if(TARGET caffe2::mkl)
  # else /lib/intel64 of the machine that built the wheel lands in RUNPATH
  set_property(TARGET caffe2::mkl PROPERTY INTERFACE_LINK_DIRECTORIES "")
endif()
# Installed programs find libtorch here. INSTALL_RPATH_USE_LINK_PATH would leave out a .venv inside the
# source tree.
get_filename_component(PLANISH_TORCH_LIB_DIR "${TORCH_LIBRARY}" DIRECTORY)
find_package(OpenMP REQUIRED COMPONENTS CXX)  # at::parallel_for is serial in a file compiled without it
