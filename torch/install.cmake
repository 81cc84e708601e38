# cmake --install build --component torch, after core: find_package(planish COMPONENTS torch).
install(TARGETS planish_torch EXPORT planishTorchTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT torch)
install(FILES include/planish/torch.h include/planish/torch_norm.h
    include/planish/torch_rnn.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/planish COMPONENT torch)
install(EXPORT planishTorchTargets NAMESPACE planish:: DESTINATION ${PLANISH_PACKAGE_DIR}
  COMPONENT torch)
set(_planish_installed_libtorch "${PLANISH_LIBTORCH}")
if(PLANISH_INSTALL_LIBTORCH)
  set(_planish_installed_libtorch "\${CMAKE_CURRENT_LIST_DIR}/../../planish/libtorch")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/planishTorch.cmake.in" planishTorch.cmake @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/planishTorch.cmake" "${PROJECT_SOURCE_DIR}/cmake/PlanishLibtorch.cmake"
  DESTINATION ${PLANISH_PACKAGE_DIR} COMPONENT torch)

# A copy of libtorch: its headers, its license, and the libraries that its CPU part needs.
if(PLANISH_INSTALL_LIBTORCH)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/InstallLibtorch.cmake.in" InstallLibtorch.cmake @ONLY)
  install(SCRIPT "${CMAKE_CURRENT_BINARY_DIR}/InstallLibtorch.cmake" COMPONENT torch)
  install(DIRECTORY "${PLANISH_LIBTORCH}/include" DESTINATION ${PLANISH_LIBTORCH_DESTINATION} COMPONENT torch)
  file(GLOB _planish_licences "${PLANISH_LIBTORCH}/../torch-*.dist-info/licenses/LICENSE" "${PLANISH_LIBTORCH}/LICENSE")
  install(FILES ${_planish_licences} DESTINATION ${PLANISH_LIBTORCH_DESTINATION} COMPONENT torch)
endif()

# cmake --install build --component python --prefix site-packages: the Python package with its libraries. In a
# wheel, pyproject.toml lists the modules.
install(TARGETS ${PLANISH_PYTHON_LIBRARIES}
  LIBRARY DESTINATION planish/lib COMPONENT python EXCLUDE_FROM_ALL NAMELINK_SKIP)
# A wheel contains Highway's library, because the user's machine might not have it.
get_target_property(_planish_hwy_type hwy::hwy TYPE)
if(SKBUILD AND _planish_hwy_type STREQUAL SHARED_LIBRARY)
  install(FILES "$<TARGET_FILE:hwy::hwy>" RENAME "$<TARGET_SONAME_FILE_NAME:hwy::hwy>"
    DESTINATION planish/lib COMPONENT python EXCLUDE_FROM_ALL)
  # Its license requires a copy, which Debian and Ubuntu install here.
  install(FILES /usr/share/doc/libhwy-dev/copyright RENAME HIGHWAY-COPYRIGHT OPTIONAL
    DESTINATION planish/lib COMPONENT python EXCLUDE_FROM_ALL)
endif()
if(NOT SKBUILD)
  install(DIRECTORY python/planish DESTINATION . COMPONENT python EXCLUDE_FROM_ALL
    FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
endif()
