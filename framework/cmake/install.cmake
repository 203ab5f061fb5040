# Install tree, in two components. programs: what runs, with man pages, completion, configurations, recipes; development: libraries,
# headers and a package configuration for find_package(tfm). The kernels are a library of the programs alone, in a folder of its own.
include(CMakePackageConfigHelpers)
get_property(libraries GLOBAL PROPERTY TFM_TARGETS)
set(share ${CMAKE_INSTALL_DATADIR}/tfm)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tfm)
install(TARGETS ${program_targets} RUNTIME COMPONENT programs)
install(TARGETS ${libraries} tfm_options EXPORT tfm COMPONENT development
        LIBRARY DESTINATION ${TFM_INSTALL_KERNELS} COMPONENT programs)
foreach(level ${TFM_LEVELS})
  install(TARGETS tfm_kernels_${level} LIBRARY DESTINATION ${TFM_INSTALL_KERNELS}/glibc-hwcaps/${level} COMPONENT programs)
endforeach()
# Examples run in a copy of ${share}, which has the source tree's folders.
install(DIRECTORY configs docs DESTINATION ${share} COMPONENT programs)
install(FILES README.md CHANGELOG.md DESTINATION ${share} COMPONENT programs)
install(PROGRAMS launch/recipes/mpich.sh launch/recipes/openmpi.sh launch/recipes/slurm.sbatch
        DESTINATION ${share}/launch/recipes COMPONENT programs)
install(FILES launch/recipes/hostfile launch/recipes/kubernetes.yaml DESTINATION ${share}/launch/recipes COMPONENT programs)
install(PROGRAMS launch/supervise.sh launch/quickstart.sh DESTINATION ${share}/launch COMPONENT programs)
install(DIRECTORY launch/quickstart DESTINATION ${share}/launch USE_SOURCE_PERMISSIONS COMPONENT programs)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/tfm RENAME copyright COMPONENT programs)
install(CODE "file(CREATE_LINK ../../tfm \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/doc/tfm/examples\" SYMBOLIC)"
        COMPONENT programs)
# Man pages and shell completion say what the programs say of themselves.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  install(CODE "execute_process(COMMAND \"${Python3_EXECUTABLE}\" \"${CMAKE_SOURCE_DIR}/launch/make_reference.py\"
                                        \"${CMAKE_BINARY_DIR}/bin\" \"${CMAKE_BINARY_DIR}/share\" RESULT_VARIABLE failed)
    if(failed)
      message(WARNING \"man pages and shell completion are not installed: the programs of ${CMAKE_BINARY_DIR}/bin do not run here\")
    endif()" COMPONENT programs)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT programs OPTIONAL)
else()
  message(STATUS "man pages and shell completion will not be installed: Python 3 was not found")
endif()
install(DIRECTORY framework/ DESTINATION include/tfm COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "*.inl" PATTERN "cmake" EXCLUDE)
install(DIRECTORY models DESTINATION include/tfm COMPONENT development FILES_MATCHING PATTERN "*.h")
install(FILES launch/programs.h DESTINATION include/tfm/launch COMPONENT development)
install(DIRECTORY launch/support launch/bench launch/doctor launch/plan launch/probe DESTINATION include/tfm/launch COMPONENT development
        FILES_MATCHING PATTERN "*.h")
install(EXPORT tfm NAMESPACE tfm:: DESTINATION ${package} COMPONENT development)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tfmConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_file(framework/cmake/tfmConfig.cmake ${CMAKE_BINARY_DIR}/tfmConfig.cmake @ONLY)
install(FILES framework/cmake/dependencies.cmake ${CMAKE_BINARY_DIR}/tfmConfig.cmake ${CMAKE_BINARY_DIR}/tfmConfigVersion.cmake
        DESTINATION ${package} COMPONENT development)

# cpack: a Debian package of the programs, which depends on the libraries that they are linked with.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})  # and not where cpack is called
set(CPACK_PACKAGE_CONTACT "The tfm authors")
set(CPACK_PACKAGE_DESCRIPTION "Decoders, encoders and encoder-decoders on many GPUs or CPUs with MPI and NCCL, from the command line,
with the same result on every parallel layout. This package has the programs; start them by mpirun.")
set(CPACK_COMPONENTS_ALL programs)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/framework/cmake/package_folders.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)
if(MPI_CXX_LIBRARIES MATCHES "mpich")
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS mpich)
endif()
include(CPack)
