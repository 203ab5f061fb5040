#pragma once
// The part of the CUDA runtime that kernel sources and device/cuda/stream.h use, on host memory.
#include <cstddef>

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
enum cudaError_t { cudaSuccess };
using cudaStream_t = struct CUstream_st*;

cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t);
cudaError_t cudaFreeAsync(void* p, cudaStream_t);
cudaError_t cudaMemsetAsync(void* p, int byte, std::size_t bytes, cudaStream_t);
