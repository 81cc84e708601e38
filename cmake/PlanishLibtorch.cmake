# libtorch, PyTorch's C++ library, as the imported target planish::libtorch. The build and the installed
# package share this file. find_package(Torch) is not used, because it requires a CUDA toolkit for a CUDA build
# of PyTorch. It would also define targets that a parent project can need for itself.

# planish_find_libtorch(result): sets RESULT to the libtorch folders named by Torch_ROOT, Torch_DIR and
# CMAKE_PREFIX_PATH: a libtorch, torch.utils.cmake_prefix_path or a site-packages folder.
function(planish_find_libtorch result)
  file(TO_CMAKE_PATH "$ENV{CMAKE_PREFIX_PATH}" environment)
  set(found "")
  foreach(prefix IN LISTS Torch_ROOT Torch_DIR CMAKE_PREFIX_PATH environment)
    foreach(suffix . ../.. ../../.. torch)
      cmake_path(ABSOLUTE_PATH prefix BASE_DIRECTORY "${CMAKE_SOURCE_DIR}" NORMALIZE OUTPUT_VARIABLE folder)
      cmake_path(APPEND folder "${suffix}")
      cmake_path(NORMAL_PATH folder)
      string(REGEX REPLACE "(.)/$" "\\1" folder "${folder}")
      if(EXISTS "${folder}/lib/libtorch_cpu${CMAKE_SHARED_LIBRARY_SUFFIX}" AND EXISTS "${folder}/include/ATen/ATen.h")
        list(APPEND found "${folder}")
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# planish_libtorch_version(folder result): sets RESULT to the version that libtorch's headers state.
function(planish_libtorch_version folder result)
  set(version "")
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(version STREQUAL "" AND EXISTS "${folder}/include/${header}")
      file(STRINGS "${folder}/include/${header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
      list(JOIN numbers "." version)
    endif()
  endforeach()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# planish_minor_version(version result): sets RESULT to 2.13 for 2.13.0.
function(planish_minor_version version result)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
  set(${result} "${minor}" PARENT_SCOPE)
endfunction()

# planish_add_libtorch(target folder): defines TARGET, the headers and the CPU part of the libtorch in FOLDER.
function(planish_add_libtorch target folder)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  set(suffix ${CMAKE_SHARED_LIBRARY_SUFFIX})
  # The definitions are libtorch's own: members of its classes depend on them (jit::Pickler).
  set_target_properties(${target} PROPERTIES
    INTERFACE_COMPILE_DEFINITIONS "USE_C10D_GLOO;USE_DISTRIBUTED;USE_RPC;USE_TENSORPIPE"
    INTERFACE_INCLUDE_DIRECTORIES "${folder}/include;${folder}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${folder}/lib/libtorch_cpu${suffix};${folder}/lib/libc10${suffix}")
endfunction()

# planish_import_libtorch(folder): defines planish::libtorch by planish_add_libtorch, and
# planish::libtorch_devices, which also loads its CUDA part if it has one.
function(planish_import_libtorch folder)
  cmake_path(NORMAL_PATH folder)
  if(TARGET planish::libtorch)
    return()
  endif()
  planish_add_libtorch(planish::libtorch "${folder}")
  add_library(planish::libtorch_devices INTERFACE IMPORTED GLOBAL)
  target_link_libraries(planish::libtorch_devices INTERFACE planish::libtorch)
  # libtorch.so is empty: it needs the libraries of all devices.
  if(EXISTS "${folder}/lib/libtorch_cuda.so" AND EXISTS "${folder}/lib/libtorch.so")
    target_link_libraries(planish::libtorch_devices INTERFACE
      "-Wl,--no-as-needed,\"${folder}/lib/libtorch.so\" -Wl,--as-needed")
  endif()
endfunction()
