#pragma once
// Attributes of functions.
#ifdef __CUDACC__
#define TFM_DEVICE __host__ __device__  // device code calls it too
#else
#define TFM_DEVICE
#endif
#define TFM_INLINE __attribute__((always_inline))
