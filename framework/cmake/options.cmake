# Build options, warnings and instruction set.
option(TFM_TESTS "build the tests, which need GTest" OFF)
# From nothing it saves a third of the compiler's time. Kernels keep a file a unit, so that their bits do not depend on it; without
# TFM_ARCH, other rooms are compiled for processors without fused multiply-add. Off for tools that want a command for each file.
option(TFM_UNITY "compile several files at once in rooms other than kernels" ON)
option(TFM_SANITIZE "address and undefined-behavior sanitizers" OFF)
# Never because nvcc happens to be there: the programs would need CUDA's libraries wherever they run.
option(TFM_CUDA "use the CUDA toolkit, for GPUs" OFF)
find_program(TFM_NVCC nvcc HINTS /usr/local/cuda/bin)
if(TFM_CUDA AND NOT TFM_NVCC)
  message(FATAL_ERROR "TFM_CUDA is ON, and there is no nvcc on the PATH or in /usr/local/cuda/bin; install the CUDA toolkit, "
                      "or give its place by -DTFM_NVCC=FILE")
elseif(TFM_NVCC AND NOT TFM_CUDA)
  message(STATUS "CUDA: not used; -DTFM_CUDA=ON builds for GPUs with ${TFM_NVCC}")
endif()

# Empty: programs run on every processor of their kind; of the kernels for CPUs there is a library for each level below, of which
# the dynamic loader takes the best one that the processor has (glibc-hwcaps). A level's name is its -march.
set(TFM_ARCH "" CACHE STRING "value of -march for all code, for this kind of processor alone")
set(TFM_LEVELS "")
if(NOT TFM_ARCH AND NOT TFM_SANITIZE AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(TFM_LEVELS x86-64-v3 x86-64-v4)
endif()

# With CMAKE_COMPILE_WARNING_AS_ERROR=ON, as CI has it, warnings are errors; a compiler newer than that knows others.
add_library(tfm_options INTERFACE)
# For code whose time nobody waits for: it compiles faster with fewer optimizations, which see less of what is initialized.
set(TFM_FEWER_OPTIMIZATIONS "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release,RelWithDebInfo>>:-O1;-Wno-maybe-uninitialized>")
set(cxx $<COMPILE_LANGUAGE:CXX>)
target_compile_options(tfm_options INTERFACE
  "$<${cxx}:-Wall;-Wextra;-Wno-missing-field-initializers;-Wno-restrict;-fno-math-errno;-ffp-contract=fast>")
function(tfm_compile_for target scope arch)
  target_compile_options(${target} ${scope} $<$<COMPILE_LANGUAGE:CXX>:-march=${arch}>)
  if(arch STREQUAL "x86-64-v4")
    target_compile_options(${target} ${scope} $<$<COMPILE_LANGUAGE:CXX>:-mprefer-vector-width=512>)
  endif()
endfunction()
if(TFM_ARCH)
  tfm_compile_for(tfm_options INTERFACE ${TFM_ARCH})
endif()
if(TFM_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -Wno-maybe-uninitialized -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
add_link_options(-Wl,--build-id)  # ranks compare it: all of a job run the same build
