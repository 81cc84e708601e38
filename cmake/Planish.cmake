# Settings of all targets of the project: language level, warnings, include roots, compiler launcher.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_UNITY_BUILD OFF)  # planish_unity decides which sources are compiled together

# The folder of a program or library, in its run path.
set(PLANISH_ORIGIN "$ORIGIN")
if(APPLE)
  set(PLANISH_ORIGIN "@loader_path")
endif()

# In a parent project the build type, the compiler launcher and the treatment of warnings are the parent's.
if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()

  # libtorch's headers take about ten seconds a file; with ccache a second build takes a second. Without
  # CCACHE_SLOPPINESS, ccache skips files with a precompiled header. It notices changed headers even so.
  find_program(PLANISH_CCACHE ccache)
  if(PLANISH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env"
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime" "${PLANISH_CCACHE}")
  endif()
else()
  set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)
endif()

# planish_options(target): sets warnings and the two include roots: the public headers, and the repository
# (#include "src/norm/recipe.h"). -Wno-restrict: g++ 12 falsely reports overlaps in string concatenation.
function(planish_options target)
  if(PROJECT_IS_TOP_LEVEL)
    # Each run of GCC's garbage collector walks the whole precompiled header: a tenth of the compile time.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1500000>)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
      -Wno-sign-conversion -Wno-missing-field-initializers
      $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<BOOL:${PLANISH_WERROR}>:-Werror>)
  endif()
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
endfunction()

# planish_hidden(target): hides all names that PLANISH_API (include/planish/version.h.in) does not export.
function(planish_hidden target)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    CUDA_VISIBILITY_PRESET hidden)
endfunction()

# planish_o1_options(target): sets the options of targets that call the core: the binding, the lab, tests. Releases
# compile them with -O1. It halves the compile time at no cost, because the core and libtorch do the work.
function(planish_o1_options target)
  planish_options(${target})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# planish_library(name SOURCES... LINK libs...): a static library of the lab.
function(planish_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  planish_o1_options(${name})
  target_link_libraries(${name} PUBLIC ${arg_LINK})
endfunction()

# planish_read_headers(name libraries headers...): defines a target that precompiles HEADERS for others.
function(planish_read_headers name libraries)
  file(CONFIGURE OUTPUT ${name}.cc CONTENT "// Only its precompiled headers are used.\n")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  planish_o1_options(${name})
  target_link_libraries(${name} PRIVATE ${libraries})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

# planish_precompiled_gtest(target headers): uses the precompiled headers of GoogleTest of the target HEADERS, unless
# planish_precompiled has given the target another precompiled header.
function(planish_precompiled_gtest target headers)
  get_target_property(reader ${target} PRECOMPILE_HEADERS_REUSE_FROM)
  if(NOT reader)
    target_compile_options(${target} PRIVATE -fPIC)
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()

# planish_unoptimized_test(target): sets the options of a test that spends its time in the libraries that it tests.
# Releases compile it with -O0, which halves the compile time.
function(planish_unoptimized_test target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
endfunction()

# planish_test(name SOURCES... LINK libs... [PARTS n] [LONG filter]): defines a GoogleTest program. The name follows
# the folder: lab_run_test belongs to lab/run. For ctest it is one test, or n tests that run at the same time. The
# test NAME.long, with the label "long", runs the tests that match LONG with PLANISH_LONG_TESTS set.
function(planish_test name)
  if(NOT PLANISH_TESTS OR (NOT PLANISH_LAB_TESTS AND CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/lab/"))
    return()
  endif()
  cmake_parse_arguments(arg "" "PARTS;LONG" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  planish_o1_options(${name})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gmock GTest::gtest_main)
  # A library, because some tests define operator new themselves. Sanitizers have their own.
  if(TARGET planish_nan_memory AND CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/(src|torch)(/|$)")
    target_link_libraries(${name} PRIVATE planish_nan_memory)
  endif()
  set(headers planish_gtest_headers)
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/(bench|lab|src/c|tests/headers|torch)(/|$)")
    set(headers planish_unoptimized_gtest_headers)
    planish_unoptimized_test(${name})
  endif()
  cmake_language(EVAL CODE "cmake_language(DEFER CALL planish_precompiled_gtest ${name} ${headers})")
  if(NOT arg_PARTS)
    set(arg_PARTS 1)
  endif()
  foreach(part RANGE 1 ${arg_PARTS})
    set(test ${name})
    if(arg_PARTS GREATER 1)
      string(APPEND test .${part})
    endif()
    math(EXPR index "${part} - 1")
    add_test(NAME ${test} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${test} PROPERTIES
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_PARTS};GTEST_SHARD_INDEX=${index}"
      FAIL_REGULAR_EXPRESSION " 0 tests from " COST ${arg_PARTS})  # those that take long begin first
  endforeach()
  if(arg_LONG)
    add_test(NAME ${name}.long COMMAND ${name} --gtest_brief=1 "--gtest_filter=${arg_LONG}")
    set_tests_properties(${name}.long PROPERTIES LABELS long ENVIRONMENT PLANISH_LONG_TESTS=1
      FAIL_REGULAR_EXPRESSION " 0 tests from ")
  endif()
endfunction()

# planish_unity(target [AT_MOST n] [ALONE file...]): compiles the target's sources of a folder together, n (12) at a
# time, because headers take most of a file's compile time. Folders with one or two sources count as one folder. Files
# compiled together must not define the same name in unnamed namespaces, unless one is ALONE. The preset dev sets
# PLANISH_UNITY=OFF, which shows missing includes.
function(planish_unity target)
  if(NOT PLANISH_UNITY OR NOT TARGET ${target})
    return()
  endif()
  cmake_parse_arguments(arg "" "AT_MOST" "ALONE" ${ARGN})
  if(NOT arg_AT_MOST)
    set(arg_AT_MOST 12)
  endif()
  get_target_property(sources ${target} SOURCES)
  list(REMOVE_ITEM sources ${arg_ALONE})
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    list(APPEND files_${folder} ${source})
  endforeach()
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    list(LENGTH files_${folder} files)
    if(files LESS 3)
      set(folder few)
    endif()
    # Relative, so that a compiler cache knows the file in another clone.
    string(REPLACE "${PROJECT_SOURCE_DIR}/" "" folder "${folder}")
    string(MAKE_C_IDENTIFIER "${target}_${folder}" name)
    math(EXPR part "0${count_${name}} / ${arg_AT_MOST}")
    math(EXPR count_${name} "0${count_${name}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${name}_${part}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC would warn of unnamed namespaces, because a unity file includes sources as if they were headers.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()

# planish_find_fmt(): finds fmt::fmt for this folder and those below. PyTorch's wheel has the headers of another fmt
# without the library, which every file would compile in 2 to 4 seconds. A folder with only the system's fmt
# therefore comes first.
macro(planish_find_fmt)
  find_package(fmt REQUIRED)
  get_target_property(_planish_fmt fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  list(GET _planish_fmt 0 _planish_fmt)
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/fmt")
  file(CREATE_LINK "${_planish_fmt}/fmt" "${PROJECT_BINARY_DIR}/fmt/fmt" SYMBOLIC)
  include_directories(BEFORE SYSTEM "${PROJECT_BINARY_DIR}/fmt")
endmacro()
