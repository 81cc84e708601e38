# Installs COMPONENTS (a,b) from BUILD_DIR to a fresh prefix, then configures, builds and runs
# CONSUMER_DIR against it. Any step that fails fails the test.
file(REMOVE_RECURSE "${WORK_DIR}")
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()
string(REPLACE "," ";" components "${COMPONENTS}")
foreach(component IN LISTS components)
  run(${CMAKE_COMMAND} --install "${BUILD_DIR}" --config "${BUILD_TYPE}" --component ${component}
    --prefix "${WORK_DIR}/prefix")
endforeach()
run(${CMAKE_COMMAND} -S "${CONSUMER_DIR}" -B "${WORK_DIR}/build" -G "${GENERATOR}"
  "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}"
  "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}"
  "-DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_COMPILER_LAUNCHER}")
run(${CMAKE_COMMAND} --build "${WORK_DIR}/build" --config "${BUILD_TYPE}")
find_program(consumer consumer PATHS "${WORK_DIR}/build" "${WORK_DIR}/build/${BUILD_TYPE}"
  NO_DEFAULT_PATH REQUIRED)
run("${consumer}")

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
