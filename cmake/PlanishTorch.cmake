# Finds the libtorch that the binding is built with: one named by CMAKE_PREFIX_PATH, else the one in the
# PyTorch wheel of the Python interpreter. Sets PLANISH_LIBTORCH (its folder), PLANISH_LIBTORCH_VERSION and
# PLANISH_LIBTORCH_CUDA (it is a CUDA build), and defines planish::libtorch.
include(PlanishLibtorch)

# A Python package is for the PyTorch of the interpreter that builds it, unless it is for another processor.
set(PLANISH_LIBTORCH "")
if(SKBUILD)
  file(TO_CMAKE_PATH "$ENV{PLANISH_LIBTORCH}" PLANISH_LIBTORCH)
else()
  planish_find_libtorch(PLANISH_LIBTORCH)
endif()
if(PLANISH_LIBTORCH)
  list(GET PLANISH_LIBTORCH 0 PLANISH_LIBTORCH)
  # CMake finds nothing else in this folder, which has protobuf's and oneDNN's headers without their libraries.
  # A prefix with lib/pkgconfig has many packages, libtorch among them; it stays in use.
  if(NOT EXISTS "${PLANISH_LIBTORCH}/lib/pkgconfig")
    list(APPEND CMAKE_IGNORE_PREFIX_PATH "${PLANISH_LIBTORCH}")
  endif()
else()
  set(_planish_venv "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  if(EXISTS "${_planish_venv}" AND NOT Python_EXECUTABLE)
    set(Python_EXECUTABLE "${_planish_venv}")
  endif()
  find_package(Python COMPONENTS Interpreter REQUIRED)
  # find_spec does not import torch, which would take seconds.
  execute_process(COMMAND "${Python_EXECUTABLE}" -c
    "import importlib.util as u,pathlib as p;print(p.Path(u.find_spec('torch').origin).parent.as_posix())"
    OUTPUT_VARIABLE PLANISH_LIBTORCH OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _planish_failed
    ERROR_QUIET)
  if(_planish_failed OR NOT EXISTS "${PLANISH_LIBTORCH}/lib/libtorch_cpu${CMAKE_SHARED_LIBRARY_SUFFIX}")
    message(FATAL_ERROR "PyTorch was not found by ${Python_EXECUTABLE}. Run 'make setup', install torch for "
      "this interpreter, or pass -DCMAKE_PREFIX_PATH=/path/to/libtorch.")
  endif()
endif()

# planish_check_libtorch(folder result): sets RESULT to the version of the libtorch in FOLDER. Fails if the
# binding does not compile with it.
function(planish_check_libtorch folder result)
  planish_libtorch_version("${folder}" version)
  if(NOT version VERSION_GREATER_EQUAL 2.11)
    message(FATAL_ERROR "PyTorch must be 2.11 or newer, got version ${version} in ${folder}.")
  elseif(version VERSION_GREATER_EQUAL 2.16)
    message(WARNING "PyTorch ${version} is newer than 2.15, the newest that Planish was compiled with.")
  endif()
  message(STATUS "PyTorch ${version} in ${folder}")
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

planish_check_libtorch("${PLANISH_LIBTORCH}" PLANISH_LIBTORCH_VERSION)
planish_import_libtorch("${PLANISH_LIBTORCH}")

# Sets PLANISH_LIBTORCHS_VERSIONS, and defines planish::libtorch-VERSION for each.
set(PLANISH_LIBTORCHS "" CACHE STRING
  "Folders of libtorchs of other minor versions, for which the Python package has a binding too")
set(PLANISH_LIBTORCHS_VERSIONS "")
planish_minor_version(${PLANISH_LIBTORCH_VERSION} _planish_minors)
foreach(_planish_folder IN LISTS PLANISH_LIBTORCHS)
  cmake_path(ABSOLUTE_PATH _planish_folder BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" NORMALIZE)
  planish_check_libtorch("${_planish_folder}" _planish_version)
  planish_minor_version(${_planish_version} _planish_minor)
  if(_planish_minor IN_LIST _planish_minors)
    message(FATAL_ERROR "PLANISH_LIBTORCHS must name one libtorch of each minor version other than that of "
      "${PLANISH_LIBTORCH}, got ${_planish_minor} twice.")
  endif()
  list(APPEND _planish_minors ${_planish_minor})
  list(APPEND PLANISH_LIBTORCHS_VERSIONS ${_planish_version})
  planish_add_libtorch(planish::libtorch-${_planish_version} "${_planish_folder}")
endforeach()
set(PLANISH_LIBTORCH_CUDA FALSE)
if(EXISTS "${PLANISH_LIBTORCH}/lib/libtorch_cuda.so")
  set(PLANISH_LIBTORCH_CUDA TRUE)
endif()

# An installation must not need a libtorch inside the source tree (.venv): it gets a copy.
cmake_path(IS_PREFIX PROJECT_SOURCE_DIR "${PLANISH_LIBTORCH}" NORMALIZE _planish_inside)
option(PLANISH_INSTALL_LIBTORCH "Install a copy of libtorch with the binding" ${_planish_inside})
set(PLANISH_LIBTORCH_DESTINATION ${CMAKE_INSTALL_LIBDIR}/planish/libtorch)
# planish_libtorch_rpath(from result): sets RESULT to where a program or library that is installed in FROM
# finds libtorch.
function(planish_libtorch_rpath from result)
  set(${result} "${PLANISH_LIBTORCH}/lib" PARENT_SCOPE)
  if(PLANISH_INSTALL_LIBTORCH)
    set(to "${PLANISH_LIBTORCH_DESTINATION}/lib")
    cmake_path(ABSOLUTE_PATH from BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
    cmake_path(ABSOLUTE_PATH to BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
    file(RELATIVE_PATH to "${from}" "${to}")
    set(${result} "${PLANISH_ORIGIN}/${to}" PARENT_SCOPE)
  endif()
endfunction()

find_package(OpenMP REQUIRED COMPONENTS CXX)  # at::parallel_for is serial in a file compiled without it
