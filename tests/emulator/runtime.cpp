// The stand-in of the CUDA runtime.
#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "emulator.h"
#include "fake_runtime.h"

using tfm::emulator::runtime;
using tfm::emulator::submit;
tfm::emulator::Runtime tfm::emulator::runtime;

namespace {
constexpr std::size_t kPage = 4096;
enum class Kind { device, page_locked };
std::map<const char*, std::pair<std::size_t, Kind>, std::greater<>> allocations;

void protect(void* p, std::size_t bytes, bool from_the_host) {
  mprotect(p, bytes, from_the_host ? PROT_NONE : PROT_READ | PROT_WRITE);
}
bool is(Kind kind, const void* p) {
  const char* at = static_cast<const char*>(p);
  const auto a = allocations.lower_bound(at);
  return a != allocations.end() && at < a->first + a->second.first && a->second.second == kind;
}
bool pageable(const void* p) {
  return !is(Kind::device, p) && !is(Kind::page_locked, p) && !tfm::emulator::in_global_memory(p);
}

// What lives longer than a kernel's call: not among the buffers that the emulator watches.
void* take(std::size_t bytes, Kind kind, const char* call) {
  tfm::emulator::refuse_in_capture(call);
  if (bytes > runtime.free_bytes) return nullptr;
  const std::size_t whole = (bytes + kPage - 1) / kPage * kPage;
  void* p = mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  allocations[static_cast<char*>(p)] = {whole, kind};
  if (kind == Kind::device) protect(p, whole, runtime.late);
  return p;
}
void give_back(void* p, const char* call) {
  tfm::emulator::refuse_in_capture(call);
  if (runtime.late) tfm::emulator::finish_all();  // the real ones wait, too
  const auto a = allocations.find(static_cast<char*>(p));
  if (a == allocations.end()) return;  // null
  munmap(p, a->second.first);
  allocations.erase(a);
}
}  // namespace

void tfm::emulator::let_the_host_touch_device_memory(bool let) {
  if (!runtime.late) return;
  for (const auto& [p, of] : allocations)
    if (of.second == Kind::device) protect(const_cast<char*>(p), of.first, !let);
}

cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t) {
  if (bytes > runtime.free_bytes) return cudaErrorMemoryAllocation;
  ++runtime.scratch_allocations;
  *p = tfm::emulator::allocate(bytes, "scratch");
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  if (runtime.capturing)
    runtime.kept.push_back(p);
  else
    submit(stream, [=] { tfm::emulator::release(p); });
  return cudaSuccess;
}
// Zeros leave pages untouched, which makes large workspaces cheap.
cudaError_t cudaMemsetAsync(void* p, int byte, std::size_t bytes, cudaStream_t stream) {
  submit(stream, [=] {
    const std::size_t pages =
        byte == 0 && is(Kind::device, p) && reinterpret_cast<std::uintptr_t>(p) % kPage == 0
            ? bytes / kPage * kPage
            : 0;
    if (pages > 0) madvise(p, pages, MADV_DONTNEED);
    std::memset(static_cast<char*>(p) + pages, byte, bytes - pages);
  });
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t e) {
  return e == cudaSuccess ? "cudaSuccess" : "cudaErrorMemoryAllocation";
}
const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaSuccess ? "no error" : "out of memory";
}

cudaError_t cudaGetDeviceCount(int* n) {
  if (runtime.devices == 0)
    return cudaErrorInsufficientDriver;  // leaves n alone, as the real one does
  *n = runtime.devices;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const int of = runtime.capability.at(static_cast<std::size_t>(device));
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? of / 10 : of % 10;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = runtime.driver;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::strcpy(p->name, "Block emulator/1");
  p->totalGlobalMem = runtime.free_bytes + runtime.held_bytes;
  p->major = 9;
  std::memset(p->uuid.bytes, 0xab, sizeof p->uuid.bytes);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int) {
  std::strncpy(id, runtime.bus_id.c_str(), static_cast<std::size_t>(bytes));
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  *p = take(bytes, Kind::device, "cudaMalloc");
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* p) {
  give_back(p, "cudaFree");
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, std::size_t bytes) {
  *p = take(bytes, Kind::page_locked, "cudaMallocHost");
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* p) {
  give_back(p, "cudaFreeHost");
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  if (runtime.full) return cudaErrorMemoryAllocation;
  *free = runtime.free_bytes, *total = runtime.free_bytes + runtime.held_bytes;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (pageable(from) || pageable(to)) tfm::emulator::refuse_in_capture("a copy of pageable memory");
  if (pageable(from)) {  // is read in the call
    const char* begin = static_cast<const char*>(from);
    submit(stream, [=, copy = std::vector<char>(begin, begin + bytes)] {
      std::memcpy(to, copy.data(), bytes);
    });
  } else {
    submit(stream, [=] { std::memmove(to, from, bytes); });
    if (pageable(to) && !runtime.capturing) tfm::emulator::finish(stream);
  }
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  ++runtime.graph_launches;
  for (const auto& work : graph->work) work();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  for (void* p : graph->kept) tfm::emulator::release(p);
  delete graph;
  return cudaSuccess;
}
