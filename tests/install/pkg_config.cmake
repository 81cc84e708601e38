# An installed Planish through pkg-config, without CMake: compile, link, run.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
install_planish()
file(GLOB_RECURSE package "${PREFIX}/planish.pc")
cmake_path(GET package PARENT_PATH folder)
set(ENV{PKG_CONFIG_PATH} "${folder}")
foreach(static "" --static)
  execute_process(COMMAND ${PKG_CONFIG} ${static} --cflags --libs planish
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags} ${CXX_FLAGS}")
  run(${CXX_COMPILER} -std=c++20 "${CMAKE_CURRENT_LIST_DIR}/consumer/main.cc" -o "${WORK_DIR}/consumer" ${flags})
  run("${WORK_DIR}/consumer")
  run(${C_COMPILER} -std=c99 -pedantic -Wall -Wextra -Werror "${PLANISH_SOURCE_DIR}/examples/c/layer_norm_lstm.c"
    -o "${WORK_DIR}/c_consumer" ${flags} -lm)
  run("${WORK_DIR}/c_consumer")
endforeach()
execute_process(COMMAND ${PKG_CONFIG} --modversion planish OUTPUT_VARIABLE version
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT version STREQUAL VERSION)
  message(FATAL_ERROR "planish.pc must have version ${VERSION}, got ${version}")
endif()
