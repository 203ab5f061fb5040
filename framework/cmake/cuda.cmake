# The CUDA language, and tfm_cuda: kernels and streams for GPUs.
set(CMAKE_CUDA_COMPILER ${TFM_NVCC})
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real)
endif()
if(TFM_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${TFM_CCACHE})
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc speaks C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
find_package(CUDAToolkit REQUIRED)
# Without NCCL tensors travel through the host. What is installed by pip has the library's versioned name only.
find_path(TFM_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(TFM_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR})
message(STATUS "NCCL: ${TFM_NCCL_LIBRARY}")

file(GLOB sources CONFIGURE_DEPENDS framework/kernels/cuda/*.cu framework/kernels/cuda/*.cpp framework/device/cuda/*.cpp)
add_library(tfm_cuda STATIC ${sources})
target_link_libraries(tfm_cuda PUBLIC tfm_core CUDA::cudart CUDA::cublasLt PRIVATE tfm_options)
target_compile_definitions(tfm_cuda PUBLIC TFM_CUDA)
set(TFM_CUDA_LIBRARY tfm_cuda)
set_property(GLOBAL APPEND PROPERTY TFM_TARGETS tfm_cuda)
target_compile_options(tfm_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror,-Wno-unused-parameter>")
