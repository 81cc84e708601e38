# planish_find_onednn(result): sets RESULT to TRUE if a suitable oneDNN is in .venv, installed from
# bench/base/requirements.txt, or in CMAKE_PREFIX_PATH. It must run on PyTorch's OpenMP.
macro(planish_find_onednn result)
  find_package(dnnl 3 QUIET CONFIG HINTS "${PROJECT_SOURCE_DIR}/.venv")
  set(${result} FALSE)
  if(NOT dnnl_FOUND)
    message(STATUS "bench: without oneDNN: version 3 was not found")
  elseif(NOT DNNL_CPU_RUNTIME STREQUAL "OMP")
    message(STATUS "bench: without oneDNN: the one in ${dnnl_DIR} does not run on OpenMP")
  else()
    set(${result} TRUE)
  endif()
endmacro()
