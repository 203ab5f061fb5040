#pragma once
// A GPU that is only described, for which cuDNN makes plans, and arguments of attention without
// memory.
#include <fstream>
#include <sstream>

#include "device/cuda/cudnn.h"
#include "kernels/cuda/attention_cudnn_graph.h"
#include "support/attention_cudnn_cases.h"

namespace tfm::test {

inline cudnnBackendDescriptor_t h200() {
  static const cuda::cudnn::Descriptor* described = [] {
    std::stringstream text;
    text << std::ifstream(TFM_SOURCE_DIR "/tests/fixtures/h200_device.json").rdbuf();
    const std::string json = text.str();
    auto* d = new cuda::cudnn::Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    d->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(json),
           json.data())
        .finalize();
    return d;
  }();
  return *described;
}

// Some address at a multiple of 16 bytes, which nothing reads.
template <class T>
T* place(std::intptr_t i = 0) {
  return reinterpret_cast<T*>(std::intptr_t{1} << 30) + i;
}

template <class T>
kernels::AttentionBackwardArgs<T> args_of(const CudnnCase& c) {
  const std::int64_t q_width = c.heads * c.size, kv_width = c.kv_heads * c.size,
                     fused = c.queries == c.keys ? q_width : 0;
  const kernels::AttentionArgs<T> a{.batch = c.batch,
                                    .heads = c.heads,
                                    .kv_heads = c.kv_heads,
                                    .queries = c.queries,
                                    .keys = c.keys,
                                    .head_size = c.size,
                                    .q = place<T>(),
                                    .k = place<T>(),
                                    .v = place<T>(),
                                    .q_stride = q_width + (fused ? 2 * kv_width : 0),
                                    .kv_stride = fused + 2 * kv_width,
                                    .out = place<T>(),
                                    .out_stride = q_width,
                                    .lse = place<float>(),
                                    .scale = 0.125f,
                                    .visible = c.causal ? Visibility::causal() : Visibility{},
                                    .k_segments = c.padded ? place<std::int32_t>() : nullptr,
                                    .right_padded = c.padded};
  return {a, place<T>(), place<T>(), place<T>(), place<T>()};
}

inline kernels::AttentionExtents extents_of(const CudnnCase& c) {
  return kernels::extents_of(args_of<bf16>(c).forward);
}

}  // namespace tfm::test
