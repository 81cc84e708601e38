# The C++ core from this copy of the repository: vcpkg install planish --overlay-ports=packaging/vcpkg
# docs/guides/install.md says what was tried.
cmake_path(SET SOURCE_PATH NORMALIZE "${CURRENT_PORT_DIR}/../..")

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DPLANISH_TORCH=OFF -DPLANISH_LAB=OFF -DPLANISH_TESTS=OFF -DPLANISH_EXAMPLES=OFF
    -DPLANISH_CUDA=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/planish)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
file(INSTALL "${CURRENT_PORT_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
