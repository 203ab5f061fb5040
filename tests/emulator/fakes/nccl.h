#pragma once
// The part of NCCL that comm/nccl.cpp uses, over MPI; ranks/nccl.cpp.
#include <cstddef>

#include "cuda_runtime.h"

enum ncclResult_t { ncclSuccess, ncclInvalidUsage = 5, ncclRemoteError = 6, ncclInProgress = 7 };
enum ncclDataType_t {
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
};
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 };
using ncclComm_t = struct FakeNcclComm*;
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking;
  int maxCTAs;
};
#define NCCL_CONFIG_INITIALIZER \
  { -1, -1 }

const char* ncclGetErrorString(ncclResult_t);
const char* ncclGetLastError(ncclComm_t);
ncclResult_t ncclGetVersion(int*);
ncclResult_t ncclGetUniqueId(ncclUniqueId*);
ncclResult_t ncclCommInitRankConfig(ncclComm_t*, int ranks, ncclUniqueId, int rank, ncclConfig_t*);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t n, ncclDataType_t, ncclRedOp_t,
                           ncclComm_t, cudaStream_t);
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t n_out, ncclDataType_t,
                               ncclRedOp_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t n_in, ncclDataType_t, ncclComm_t,
                           cudaStream_t);
// Alone, or within a group: one of each, the send first, of one stream.
ncclResult_t ncclSend(const void* in, std::size_t n, ncclDataType_t, int peer, ncclComm_t,
                      cudaStream_t);
ncclResult_t ncclRecv(void* out, std::size_t n, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t n, ncclDataType_t, int root,
                           ncclComm_t, cudaStream_t);
