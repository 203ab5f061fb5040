// A stand-in of the CUDA driver: there is no device, but compiled kernels can be loaded, which is
// all that cuDNN asks of a driver when it makes a plan for a device that is only described. cuda.h
// is not included: it renames some of what cuDNN looks up.
#include "driver.h"

#include <dlfcn.h>

#include <cstring>

Driver& driver() {
  static Driver the;
  return the;
}

namespace {

using Compile = int (*)(void* program, int options, const char* const*);
Compile compile = nullptr;  // NVRTC's
int count_and_compile(void* program, int n, const char* const* options) {
  ++driver().compilations;
  return compile(program, n, options);
}

}  // namespace

extern "C" {
// In place of the C library's, by which cuDNN finds NVRTC.
void* dlsym(void* library, const char* name) noexcept {
#ifdef __aarch64__
  constexpr const char* kVersion = "GLIBC_2.17";
#else
  constexpr const char* kVersion = "GLIBC_2.2.5";
#endif
  static const auto find =
      reinterpret_cast<void* (*)(void*, const char*)>(dlvsym(RTLD_NEXT, "dlsym", kVersion));
  void* found = find(library, name);
  if (!found || std::strcmp(name, "nvrtcCompileProgram") != 0) return found;
  compile = reinterpret_cast<Compile>(found);
  return reinterpret_cast<void*>(count_and_compile);
}

constexpr int kStub = 34;  // CUDA_ERROR_STUB_LIBRARY

int cuLibraryLoadData(void** library) {
  *library = &driver();
  return driver().loads ? 0 : kStub;
}
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  driver().kernels.push_back(name);
  *kernel = library;
  return 0;
}
int cuLibraryUnload() { return 0; }
int cuKernelSetAttribute() { return 0; }

// Looked up, and an error where they are called.
#define TFM_NOT_HERE(name) \
  int name() { return kStub; }
TFM_NOT_HERE(cuInit)
TFM_NOT_HERE(cuDriverGetVersion)
TFM_NOT_HERE(cuDeviceGet)
TFM_NOT_HERE(cuDeviceGetCount)
TFM_NOT_HERE(cuGetErrorName)
TFM_NOT_HERE(cuGetErrorString)
TFM_NOT_HERE(cuCtxGetCurrent)
TFM_NOT_HERE(cuCtxGetLimit)
TFM_NOT_HERE(cuCtxPopCurrent)
TFM_NOT_HERE(cuCtxPushCurrent)
TFM_NOT_HERE(cuStreamGetCtx)
TFM_NOT_HERE(cuLinkCreate)
TFM_NOT_HERE(cuLinkAddData)
TFM_NOT_HERE(cuLinkComplete)
TFM_NOT_HERE(cuLinkDestroy)
TFM_NOT_HERE(cuLaunchKernel)
TFM_NOT_HERE(cuLaunchKernelEx)
TFM_NOT_HERE(cuLaunchCooperativeKernel)
TFM_NOT_HERE(cuLibraryLoadFromFile)
TFM_NOT_HERE(cuKernelGetAttribute)
TFM_NOT_HERE(cuOccupancyMaxPotentialClusterSize)
}
