# Installs COMPONENTS (a,b) from BUILD_DIR to a fresh prefix, then configures, builds and runs the project in
# CONSUMER_DIR against it. Without COMPONENTS the project includes the sources in PLANISH_SOURCE_DIR. Any
# step that fails fails the test.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
install_planish()
if(LIBTORCH_IS_COPIED AND COMPONENTS MATCHES torch)
  check_independence()
endif()
run_consumer("${CONSUMER_DIR}" "${WORK_DIR}/build" "${PREFIX}")

# A consumer that includes the sources installs only its own program.
if(NOT COMPONENTS)
  run(${CMAKE_COMMAND} --install "${WORK_DIR}/build" --config "${BUILD_TYPE}" --prefix "${PREFIX}")
  file(GLOB_RECURSE installed RELATIVE "${PREFIX}" "${PREFIX}/*")
  if(NOT installed STREQUAL "bin/consumer")
    message(FATAL_ERROR "the consumer must install bin/consumer, got: ${installed}")
  endif()
endif()

# A comment in the README's example contains the output.
if(EXISTS "${WORK_DIR}/build/readme.txt")
  file(READ "${WORK_DIR}/build/readme.cc" example)
  file(READ "${WORK_DIR}/build/readme.txt" printed)
  string(STRIP "${printed}" printed)
  string(FIND "${example}" "// ${printed}\n" found)
  if(printed STREQUAL "" OR found EQUAL -1)
    message(FATAL_ERROR "README.md must say what its example prints but that is: ${printed}")
  endif()
endif()
