# Builds and installs the core as a shared library, with BUILD_SHARED_LIBS. Builds the project in CONSUMER_DIR with
# CMake, and its program with pkg-config. Repeats both with the project in C.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
file(REMOVE_RECURSE "${WORK_DIR}")
set(build "${WORK_DIR}/planish")
set(options -G "${GENERATOR}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_C_COMPILER=${C_COMPILER}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
  "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_COMPILER_LAUNCHER}")
run(${CMAKE_COMMAND} -S "${PLANISH_SOURCE_DIR}" -B "${build}" ${options} -DBUILD_SHARED_LIBS=ON
  -DPLANISH_TORCH=OFF -DPLANISH_LAB=OFF -DPLANISH_TESTS=OFF -DPLANISH_EXAMPLES=OFF)
run(${CMAKE_COMMAND} --build "${build}" --config "${BUILD_TYPE}")
run(${CMAKE_COMMAND} --install "${build}" --config "${BUILD_TYPE}" --prefix "${PREFIX}")
file(GLOB_RECURSE static "${PREFIX}/*.a")
file(GLOB_RECURSE shared "${PREFIX}/libplanish.so")
if(static OR NOT shared)
  message(FATAL_ERROR "the shared library must be installed, and no static one, got: ${static} ${shared}")
endif()

foreach(project "${CONSUMER_DIR}" "${CMAKE_CURRENT_LIST_DIR}/c_consumer")
  cmake_path(GET project FILENAME name)
  run_consumer("${project}" "${WORK_DIR}/build_${name}" "${PREFIX}")
endforeach()

if(PKG_CONFIG)
  cmake_path(GET shared PARENT_PATH folder)
  set(ENV{PKG_CONFIG_PATH} "${folder}/pkgconfig")
  execute_process(COMMAND ${PKG_CONFIG} --cflags --libs planish
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags} ${CXX_FLAGS}")
  run(${CXX_COMPILER} -std=c++20 "${CONSUMER_DIR}/main.cc" -o "${WORK_DIR}/consumer" ${flags}
    "-Wl,-rpath,${folder}")
  run("${WORK_DIR}/consumer")
  run(${C_COMPILER} -std=c99 "${PLANISH_SOURCE_DIR}/examples/c/layer_norm_lstm.c" -o "${WORK_DIR}/c_consumer" ${flags} -lm
    "-Wl,-rpath,${folder}")
  run("${WORK_DIR}/c_consumer")
endif()
