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
