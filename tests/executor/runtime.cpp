// The stand-in of the CUDA runtime.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "executor.h"
#include "fake_runtime.h"

using tfm::executor::runtime;
using tfm::executor::submit;
tfm::executor::Runtime tfm::executor::runtime;

cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t) {
  if (bytes > runtime.free_bytes) return cudaErrorMemoryAllocation;
  *p = tfm::executor::allocate(bytes, "scratch");
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t) {
  if (runtime.capturing)
    runtime.kept.push_back(p);
  else
    tfm::executor::release(p);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int byte, std::size_t bytes, cudaStream_t) {
  submit([=] { std::memset(p, byte, bytes); });
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t e) { return e == cudaSuccess ? "cudaSuccess" : "cudaErrorMemoryAllocation"; }
const char* cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "no error" : "out of memory"; }

cudaError_t cudaGetDeviceCount(int* n) {
  if (runtime.devices == 0) return cudaErrorInsufficientDriver;  // leaves n alone, as the real one does
  *n = runtime.devices;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = runtime.driver;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::strcpy(p->name, "Block executor/1");
  return cudaSuccess;
}

// What lives longer than a kernel's call: not among the buffers that the executor watches.
cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  *p = bytes > runtime.free_bytes ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* p) { return cudaFreeHost(p); }
cudaError_t cudaMallocHost(void** p, std::size_t bytes) {
  *p = bytes > runtime.free_bytes ? nullptr : std::malloc(bytes);
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* p) {
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = runtime.free_bytes, *total = runtime.free_bytes + 1000;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  submit([=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return runtime.capturing ? cudaErrorStreamCaptureUnsupported : cudaSuccess; }

struct FakeGraph {
  std::vector<std::function<void()>> work;
  std::vector<void*> kept;
};
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (std::exchange(runtime.capturing, true)) return cudaErrorStreamCaptureUnsupported;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  runtime.capturing = false;
  *graph = new FakeGraph{std::exchange(runtime.recorded, {}), std::exchange(runtime.kept, {})};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  ++runtime.graph_launches;
  for (const auto& work : graph->work) work();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  for (void* p : graph->kept) tfm::executor::release(p);
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = runtime.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = new float(0);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t) {
  *e = runtime.clock;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t before, cudaEvent_t after) {
  *ms = *after - *before;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
