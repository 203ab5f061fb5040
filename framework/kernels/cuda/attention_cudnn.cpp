#include "kernels/cuda/attention_cudnn.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/cudnn.h"
#include "device/cuda/measure.h"
#include "device/cuda/scratch.h"
#include "device/cuda/text_folder.h"
#include "kernels/cuda/attention_cudnn_graph.h"
#include "kernels/cuda/attention_padding.h"
#include "kernels/scratch.h"

namespace tfm::kernels {
namespace {

namespace cudnn = cuda::cudnn;

template <class T>
const AttentionArgs<T>& forward_of(const AttentionArgs<T>& a) {
  return a;
}
template <class T>
const AttentionArgs<T>& forward_of(const AttentionBackwardArgs<T>& g) {
  return g.forward;
}

template <class T>
std::vector<const void*> operands_of(const AttentionArgs<T>& a) {
  return {a.q, a.k, a.v, a.out, a.lse};
}
template <class T>
std::vector<const void*> operands_of(const AttentionBackwardArgs<T>& g) {
  std::vector<const void*> all = operands_of(g.forward);
  all.insert(all.end(), {g.dout, g.dq, g.dk, g.dv});
  return all;
}

// Cache key of a plan.
template <class T>
std::string key_of(const AttentionArgs<T>& a, const char* direction = "forward") {
  std::string key = std::string(direction) + " " + std::string(name_of(dtype_of<T>));
  for (const std::int64_t field :
       {a.batch, a.heads, a.kv_heads, a.queries, a.keys, a.head_size, a.q_stride, a.kv_stride,
        a.out_stride, std::int64_t{extents_of(a).masked()},
        std::int64_t{std::bit_cast<std::uint32_t>(a.scale)}})
    key += " " + std::to_string(field);
  return key + (a.k_segments ? " padding" : "");
}
template <class T>
std::string key_of(const AttentionBackwardArgs<T>& g) {
  return key_of(g.forward, "backward");
}

template <class... P>
bool whole_chunks(const P*... rows) {
  return ((reinterpret_cast<std::uintptr_t>(rows) % 16 == 0) && ...);
}

template <class T>
bool computes(const AttentionArgs<T>& a) {
  return extents_of(a).of_library(sizeof(T)) && (a.kv_length == 0 || a.kv_length == a.keys) &&
         (a.q_stride | a.kv_stride | a.out_stride) % 8 == 0 &&
         whole_chunks(a.q, a.k, a.v, a.out, a.lse);
}
template <class T>
bool computes(const AttentionBackwardArgs<T>& g) {
  return computes(g.forward) && !g.dbias && whole_chunks(g.dout, g.dq, g.dk, g.dv);
}

template <class T>
std::optional<LibraryAttention> way_of(const AttentionArgs<T>& a) {
  return {{.part = {a.batch, a.kv_heads}, .scratch = kLibraryAttentionScratch}};
}
template <class T>
std::optional<LibraryAttention> way_of(const AttentionBackwardArgs<T>& g) {
  return library_attention_backward(extents_of(g.forward));
}

// Plans of one stream.
class Plans {
 public:
  explicit Plans(cuda::Stream& stream)
      : stream_(stream),
        kept_(plans_beside(cuda::algorithm_path(cuda::cache_folder(), library(), stream.device()))),
        choices_(stream, library()) {
    constexpr std::size_t kOldest =
        91600;  // backward is wrong before, where keys are no multiple of 128
    int major = 0;
    cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream.device()));
    if (major != 9 || cudnn::version() < kOldest) return;
    try {
      handle_.emplace(stream);
    } catch (const cudnn::Refusal&) {
    }
  }

  // False where cuDNN does not support the case or cannot be initialized.
  template <class Args>
  bool run(const Args& args) {
    const Parts* parts = handle_ ? parts_of(args) : nullptr;
    if (!parts) return false;
    const std::int64_t batch = forward_of(args).batch;
    const cuda::Scratch<std::int32_t> lengths(stream_, forward_of(args).k_segments ? 2 * batch : 0);
    const cuda::Scratch<std::byte> workspace(stream_,
                                             std::max<std::int64_t>(1, parts->plan.workspace()));
    if (lengths) count_real(stream_, forward_of(args), lengths, lengths + batch);
    try {
      for (std::int64_t b = 0; b < batch; b += parts->size.batch)
        for (std::int64_t g = 0; g < forward_of(args).kv_heads; g += parts->size.groups) {
          std::vector<const void*> operands = operands_of(part_of(args, parts->size, b, g));
          if (lengths) operands.insert(operands.end(), {lengths + b, lengths + batch + b});
          parts->plan.run(*handle_, operands, workspace);
        }
    } catch (const cudnn::Refusal&) {  // the own kernel writes all of the result
      return false;
    }
    if (lengths) clear_padding(stream_, args);
    return true;
  }
  template <class Args>
  bool run_if_faster(const Args& args) {
    if (!handle_) return false;
    const auto own = [&] { return own_attention(stream_, args), true; };
    if (choices_.fastest(key_of(args), {own, [&] { return run(args); }}) != 1 || !run(args))
      return false;
    say_other_bits(args);
    return true;
  }

 private:
  static std::filesystem::path plans_beside(std::filesystem::path choices) {
    return choices.empty() ? choices : choices.replace_extension("plans");
  }
  static std::string library() { return "attention-cudnn-" + std::to_string(cudnn::version()); }

  struct Parts {
    cudnn::Plan plan;
    AttentionPart size;
  };

  // Built at the first call, but never during graph capture. Null: not supported.
  template <class Args>
  const Parts* parts_of(const Args& args) {
    const std::string key = key_of(args);
    if (const auto found = parts_.find(key); found != parts_.end()) return found->second.get();
    if (stream_.capturing()) return nullptr;
    std::unique_ptr<Parts>& parts = parts_[key];
    try {
      parts = split(args);
    } catch (const cudnn::Refusal&) {
    }
    return parts.get();
  }

  // Null: cuDNN would need more than what is planned.
  template <class Args>
  std::unique_ptr<Parts> split(const Args& args) {
    const std::optional<LibraryAttention> way = way_of(args);
    if (!way) return nullptr;
    cudnn::Plan plan =
        plan_of(attention_graph(part_of(args, way->part, 0, 0)), {.handle = *handle_}, kept_);
    return plan.workspace() <= way->scratch ? std::make_unique<Parts>(std::move(plan), way->part)
                                            : nullptr;
  }

  template <class T>
  void say_other_bits(const AttentionArgs<T>&) {}
  template <class T>
  void say_other_bits(const AttentionBackwardArgs<T>&) {
    if (std::exchange(said_, true)) return;
    std::fputs(
        "note: cuDNN adds gradients of attention up in an order that changes from run to run, and "
        "so do their last bits; not so with numerics: deterministic\n",
        stderr);
  }

  cuda::Stream& stream_;
  std::optional<cudnn::Handle> handle_;  // none: no Hopper, or no cuDNN that can be used
  std::map<std::string, std::unique_ptr<Parts>> parts_;
  cuda::TextFolder kept_;
  cuda::Choices choices_;
  bool said_ = false;
};

}  // namespace

template <class Args>
bool cudnn_computes(const Args& args) {
  return computes(args);
}
template <class Args>
bool cudnn_attention(cuda::Stream& stream, const Args& args) {
  return computes(args) && stream.own<Plans>().run(args);
}
template <class Args>
bool cudnn_attention_if_faster(cuda::Stream& stream, const Args& args) {
  return computes(args) && stream.own<Plans>().run_if_faster(args);
}

#define TFM_INSTANTIATE(Args)                                \
  template bool cudnn_computes(const Args&);                 \
  template bool cudnn_attention(cuda::Stream&, const Args&); \
  template bool cudnn_attention_if_faster(cuda::Stream&, const Args&);
TFM_INSTANTIATE(AttentionArgs<bf16>)
TFM_INSTANTIATE(AttentionArgs<f16>)
TFM_INSTANTIATE(AttentionBackwardArgs<bf16>)
TFM_INSTANTIATE(AttentionBackwardArgs<f16>)

}  // namespace tfm::kernels
