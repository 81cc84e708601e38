# Compiles for Linux on ARM64 with Debian's and Ubuntu's cross compiler. Tests run in QEMU's user mode.
# scripts/arm64_root.sh unpacks the libraries for ARM64 into build/arm64-root.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

cmake_path(SET _planish_root NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../build/arm64-root")
set(CMAKE_FIND_ROOT_PATH "${_planish_root}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(_planish_kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${_planish_kind} ONLY)
endforeach()

find_program(PLANISH_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(PLANISH_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${PLANISH_QEMU};-L;/usr/aarch64-linux-gnu")
endif()
