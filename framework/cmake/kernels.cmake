# tfm_kernels: kernels for CPUs, a shared library for any processor and one for each of TFM_LEVELS, under the same name in the
# folder where the dynamic loader looks for that level. Each binds its own inline functions: a program has others, compiled for any
# processor. What the library needs of core, the program has.
file(GLOB sources CONFIGURE_DEPENDS framework/kernels/cpu/*.cpp)
# Initial weights have the same bits with and without fused multiply-adds.
set_source_files_properties(framework/kernels/cpu/normals.cpp PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
function(tfm_kernel_library name)
  add_library(${name} SHARED ${sources})
  target_link_libraries(${name} PRIVATE tfm_options dnnl::dnnl OpenMP::OpenMP_CXX)
  target_link_options(${name} PRIVATE -Wl,-Bsymbolic)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/framework> $<INSTALL_INTERFACE:include/tfm>)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME tfm_kernels)
endfunction()
tfm_kernel_library(tfm_kernels)
target_link_libraries(tfm_kernels INTERFACE tfm_device dnnl::dnnl)
foreach(level ${TFM_LEVELS})
  tfm_kernel_library(tfm_kernels_${level})
  tfm_compile_for(tfm_kernels_${level} PRIVATE ${level})
  set_target_properties(tfm_kernels_${level} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/glibc-hwcaps/${level})
  add_dependencies(tfm_kernels tfm_kernels_${level})
endforeach()
set_property(GLOBAL APPEND PROPERTY TFM_TARGETS tfm_kernels)
