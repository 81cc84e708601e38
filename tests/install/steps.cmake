# Steps of the tests in this folder.
set(PREFIX "${WORK_DIR}/prefix")

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Empties WORK_DIR and installs COMPONENTS from BUILD_DIR to PREFIX.
function(install_planish)
  file(REMOVE_RECURSE "${WORK_DIR}")
  file(MAKE_DIRECTORY "${WORK_DIR}")
  string(REPLACE "," ";" components "${COMPONENTS}")
  foreach(component IN LISTS components)
    run(${CMAKE_COMMAND} --install "${BUILD_DIR}" --config "${BUILD_TYPE}" --component ${component}
      --prefix "${PREFIX}")
  endforeach()
endfunction()

# Configures and builds PROJECT in the folder BUILD with the packages in PREFIX_PATH, and runs its program.
function(run_consumer project build prefix_path)
  run(${CMAKE_COMMAND} -S "${project}" -B "${build}" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${prefix_path}"
    "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_C_COMPILER=${C_COMPILER}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
    "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_COMPILER_LAUNCHER}"
    "-DPLANISH_SOURCE_DIR=${PLANISH_SOURCE_DIR}" "-DLIBTORCH=${LIBTORCH}")
  run(${CMAKE_COMMAND} --build "${build}" --config "${BUILD_TYPE}")
  find_program(consumer consumer PATHS "${build}" "${build}/${BUILD_TYPE}" NO_DEFAULT_PATH NO_CACHE REQUIRED)
  run("${consumer}")
endfunction()

# Fails if an installed file needs LIBTORCH, which is in the source tree, instead of its installed copy.
function(check_independence)
  file(GLOB command "${PREFIX}/bin/planish")
  file(GLOB_RECURSE library "${PREFIX}/libplanish_torch-*.so")
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${command} LIBRARIES ${library}
    RESOLVED_DEPENDENCIES_VAR needed UNRESOLVED_DEPENDENCIES_VAR missing)
  list(FILTER needed INCLUDE REGEX "/lib(torch_cpu|c10)\\.so$")
  list(LENGTH needed count)
  foreach(path IN LISTS needed)
    cmake_path(IS_PREFIX PREFIX "${path}" NORMALIZE inside)
    if(NOT inside OR NOT count EQUAL 2 OR missing)
      message(FATAL_ERROR "libtorch must be found in ${PREFIX}, but: ${needed}; missing: ${missing}")
    endif()
  endforeach()
  file(GLOB_RECURSE files "${PREFIX}/*planish*.cmake")
  foreach(file IN LISTS files)
    file(STRINGS "${file}" lines)
    if(lines MATCHES "${LIBTORCH}")
      message(FATAL_ERROR "${file} must not name ${LIBTORCH}")
    endif()
  endforeach()
  if(command)
    run(${command} list)
  endif()
endfunction()
