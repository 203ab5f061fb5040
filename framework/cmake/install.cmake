# Install tree: programs, libraries, headers and a package configuration for find_package(tfm).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
get_property(libraries GLOBAL PROPERTY TFM_TARGETS)
install(TARGETS ${libraries} tfm_options EXPORT tfm)
install(TARGETS ${program_targets} RUNTIME)
install(DIRECTORY framework/ DESTINATION include/tfm FILES_MATCHING PATTERN "*.h" PATTERN "*.inl" PATTERN "cmake" EXCLUDE)
install(DIRECTORY models DESTINATION include/tfm FILES_MATCHING PATTERN "*.h")
install(DIRECTORY launch/support launch/bench DESTINATION include/tfm/launch FILES_MATCHING PATTERN "*.h")
install(EXPORT tfm NAMESPACE tfm:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tfm)
install(FILES framework/cmake/dependencies.cmake framework/cmake/tfmConfig.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tfm)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tfmConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tfmConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tfm)
