# Build options, warnings and instruction set.
option(TFM_TESTS "build the tests" ON)
# From nothing it saves a third of the compiler's time; rooms that compute numbers keep a file a unit, so that their bits do not
# depend on it. Off for tools that want a command for each file.
option(TFM_UNITY "compile several files at once in rooms that compute no numbers" ON)
option(TFM_SANITIZE "address and undefined-behavior sanitizers" OFF)
find_program(TFM_NVCC nvcc HINTS /usr/local/cuda/bin)
if(TFM_NVCC)
  set(cuda_default ON)
else()
  set(cuda_default OFF)
endif()
option(TFM_CUDA "use the CUDA toolkit" ${cuda_default})

# The instruction set is named, never `native`: the flags then say what a cached object was compiled for.
file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
if(flags MATCHES "avx512vl" AND flags MATCHES "avx512bw" AND flags MATCHES "avx512dq")
  set(arch_default x86-64-v4)
elseif(flags MATCHES "avx2" AND flags MATCHES "fma")
  set(arch_default x86-64-v3)
else()
  set(arch_default "")
endif()
set(TFM_ARCH "${arch_default}" CACHE STRING "value of -march, empty for the compiler's default")

add_library(tfm_options INTERFACE)
set(cxx $<COMPILE_LANGUAGE:CXX>)
target_compile_options(tfm_options INTERFACE
  "$<${cxx}:-Wall;-Wextra;-Werror;-Wno-missing-field-initializers;-Wno-restrict;-fno-math-errno;-ffp-contract=fast>")
if(TFM_ARCH)
  target_compile_options(tfm_options INTERFACE $<${cxx}:-march=${TFM_ARCH}>)
  if(TFM_ARCH STREQUAL "x86-64-v4")
    target_compile_options(tfm_options INTERFACE $<${cxx}:-mprefer-vector-width=512>)
  endif()
endif()
if(TFM_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -Wno-maybe-uninitialized -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
add_link_options(-Wl,--build-id)  # ranks compare it: all of a job run the same build
