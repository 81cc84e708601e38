# Installs COMPONENTS (a,b) from BUILD_DIR to a fresh prefix, then configures, builds and runs the project in
# CONSUMER_DIR against it. Without COMPONENTS the project includes the sources in PLANISH_SOURCE_DIR. Any
# step that fails fails the test.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
install_planish()
if(LIBTORCH_IS_COPIED AND COMPONENTS MATCHES torch)
  check_independence()
endif()
run(${CMAKE_COMMAND} -S "${CONSUMER_DIR}" -B "${WORK_DIR}/build" -G "${GENERATOR}"
  "-DCMAKE_PREFIX_PATH=${PREFIX}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_C_COMPILER=${C_COMPILER}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
  "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_COMPILER_LAUNCHER}"
  "-DPLANISH_SOURCE_DIR=${PLANISH_SOURCE_DIR}" "-DLIBTORCH=${LIBTORCH}")
run(${CMAKE_COMMAND} --build "${WORK_DIR}/build" --config "${BUILD_TYPE}")
find_program(consumer consumer PATHS "${WORK_DIR}/build" "${WORK_DIR}/build/${BUILD_TYPE}"
  NO_DEFAULT_PATH REQUIRED)
run("${consumer}")

# A consumer that includes the sources installs only what it asks for.
if(NOT COMPONENTS)
  run(${CMAKE_COMMAND} --install "${WORK_DIR}/build" --config "${BUILD_TYPE}" --prefix "${PREFIX}")
  file(GLOB_RECURSE installed RELATIVE "${PREFIX}" "${PREFIX}/*")
  if(NOT installed STREQUAL "bin/consumer")
    message(FATAL_ERROR "the consumer must install bin/consumer, got: ${installed}")
  endif()
endif()

# The README says in a comment what its example prints.
if(EXISTS "${WORK_DIR}/build/readme.txt")
  file(READ "${WORK_DIR}/build/readme.cc" example)
  file(READ "${WORK_DIR}/build/readme.txt" printed)
  string(STRIP "${printed}" printed)
  string(FIND "${example}" "// ${printed}\n" found)
  if(printed STREQUAL "" OR found EQUAL -1)
    message(FATAL_ERROR "README.md must say what its example prints but that is: ${printed}")
  endif()
endif()
