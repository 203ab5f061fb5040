// Attention's graphs before cuDNN, for a Hopper GPU that is only described: each must become a plan
// whose kernels are compiled and loaded (into a stand-in of the driver), which is as far as one
// comes without a GPU. What the graphs say is compared with float64.
#include <gtest/gtest.h>

#include "described.h"
#include "driver.h"
#include "interpreter.h"
#include "support/attention_plain.h"

namespace tfm::test {
namespace {

namespace cudnn = cuda::cudnn;
using kernels::AttentionArgs;
using kernels::AttentionBackwardArgs;

struct Made {
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  std::string text;
  std::vector<std::string> kernels;
  std::int64_t workspace = -1;
};
template <class Args>
Made make(const Args& args) {
  driver().kernels.clear();
  Made made;
  try {
    made.workspace = cudnn::Plan(attention_graph(args), {.properties = h200()}).workspace();
  } catch (const cudnn::Refusal& refusal) {
    made.status = refusal.status(), made.text = refusal.what();
  }
  made.kernels = driver().kernels;
  return made;
}

void expect_hopper(const Made& made, const std::string& pass) {
  EXPECT_EQ(made.status, CUDNN_STATUS_SUCCESS) << made.text;
  ASSERT_FALSE(made.kernels.empty());
  for (const char* part : {"sm90", "wgmma", pass.c_str()})
    EXPECT_NE(made.kernels[0].find(part), std::string::npos) << made.kernels[0];
}

template <class T>
void expect_accepted(const CudnnCase& c) {
  SCOPED_TRACE(testing::Message() << name_of(dtype_of<T>) << " " << describe(c));
  const AttentionBackwardArgs<T> g = args_of<T>(c);
  EXPECT_TRUE(kernels::cudnn_computes(g.forward));
  EXPECT_TRUE(kernels::cudnn_computes(g));
  const Made forward = make(g.forward), backward = make(g);
  expect_hopper(forward, "fprop");
  expect_hopper(backward, "bprop");
  EXPECT_LE(forward.workspace, kernels::attention_scratch(extents_of(c), 2));
  EXPECT_LE(backward.workspace,
            kernels::library_attention_backward_scratch(extents_of(c), {c.batch, c.kv_heads}));
}

// Forward and a part of backward ask for what the plan of a run has for them.
void expect_planned(const CudnnCase& c) {
  SCOPED_TRACE(describe(c));
  const AttentionBackwardArgs<bf16> g = args_of<bf16>(c);
  EXPECT_LE(make(g.forward).workspace, kernels::attention_scratch(extents_of(c), 2));
  const auto way = kernels::library_attention_backward(extents_of(c));
  ASSERT_TRUE(way);
  const Made made = make(part_of(g, way->part, 0, 0));
  expect_hopper(made, "bprop");
  EXPECT_LE(made.workspace, way->scratch);
  EXPECT_GE(made.workspace, way->scratch - way->scratch / 100);
  EXPECT_LE(way->scratch, kernels::attention_backward_scratch(extents_of(c), 2, 4));
}

TEST(Cudnn, IsHere) { ASSERT_GE(cudnn::version(), 91600u); }

TEST(Cudnn, TakesEveryCase) {
  for (const CudnnCase& c : cudnn_cases()) expect_accepted<bf16>(c);
}
TEST(Cudnn, TakesFloat16) {
  for (const CudnnCase& c : cudnn_cases())
    if (c.size == 64 || c.size == 256) expect_accepted<f16>(c);
}

TEST(Cudnn, AsksForWhatIsPlanned) {
  for (std::int64_t length : {64, 1000, 8192, 16384})
    for (std::int64_t size : {64, 96, 128}) {
      expect_planned({2, 12, 12, length, length, size, true});
      expect_planned({2, 32, 8, length, length, size, size == 64});
    }
  for (std::int64_t kv_heads : {1, 2, 8}) expect_planned({1, 8, kv_heads, 32768, 32768, 128, true});
  expect_planned({4, 16, 2, 4096, 32768, 128, true});
  expect_planned({4, 16, 16, 170, 2048, 64, false});
  expect_planned({4, 16, 4, 32768, 1024, 128, false});
  expect_planned({64, 16, 16, 512, 512, 64, false, true});
  expect_planned({2, 32, 8, 4096, 4096, 128, false, true});
}

// Lengths of sequences are in the plan of both passes, by cuDNN as by the own kernels.
TEST(Cudnn, PlansHaveLengths) {
  const auto scratch = [](const CudnnCase& c) {
    return std::pair(kernels::attention_scratch(extents_of(c), 2),
                     kernels::attention_backward_scratch(extents_of(c), 2, 4));
  };
  const auto [forward, backward] = scratch({200, 2, 2, 512, 512, 64, false});
  const std::int64_t lengths = device::scratch_piece(2 * 4 * 200);
  EXPECT_EQ(scratch({200, 2, 2, 512, 512, 64, false, true}),
            std::pair(forward + lengths, backward + lengths));
  const auto own = [&](auto&& change) {
    kernels::AttentionExtents a = extents_of({200, 2, 2, 512, 512, 64, false, true});
    change(a);
    EXPECT_FALSE(a.of_library(2));
    EXPECT_EQ(kernels::attention_scratch(a, 2), device::scratch_piece(4 * 200));
  };
  own([](auto& a) { a.lengths = false; });
  own([](auto& a) { a.visible.right = 0; });
}

TEST(Cudnn, TakesLargeBatchesInParts) {
  using Part = std::pair<std::int64_t, std::int64_t>;
  const auto part = [](const CudnnCase& c) {
    const auto way = kernels::library_attention_backward(extents_of(c));
    return way ? Part{way->part.batch, way->part.groups} : Part{};
  };
  EXPECT_EQ(part({16, 12, 12, 1024, 1024, 64, true}), Part(16, 12));
  EXPECT_EQ(part({256, 16, 16, 1024, 1024, 64, true}), Part(128, 16));
  EXPECT_EQ(part({4, 32, 8, 4096, 4096, 128, true}), Part(4, 8));
  EXPECT_EQ(part({3, 32, 8, 16384, 16384, 128, true}), Part(1, 8));
  EXPECT_EQ(part({1, 32, 8, 32768, 32768, 128, true}), Part(1, 4));
  EXPECT_EQ(part({5, 64, 64, 12001, 12001, 64, true}), Part(1, 64));
  // The second part would not begin its log-sum-exps at whole chunks.
  EXPECT_EQ(part({3, 1, 1, 1200001, 64, 128, false}), Part());
  EXPECT_EQ(part({1, 64, 1, 65536, 65536, 128, true}), Part());
}

TEST(Cudnn, PlansOfPartsOfABatch) {
  const AttentionBackwardArgs<bf16> g = args_of<bf16>({3, 4, 2, 80, 80, 64, true});
  const AttentionBackwardArgs<bf16> sequence = part_of(g, {1, 2}, 2, 0),
                                    group = part_of(g, {1, 1}, 2, 1);
  EXPECT_EQ(sequence.forward.q - g.forward.q, 2 * 80 * g.forward.q_stride);
  EXPECT_EQ(sequence.dv - g.dv, 2 * 80 * g.forward.kv_stride);
  EXPECT_EQ(group.forward.heads, 2);
  EXPECT_EQ(group.forward.lse - g.forward.lse, (2 * 4 + 2) * 80);
  EXPECT_EQ(group.dq - sequence.dq, 2 * 64);
  EXPECT_EQ(group.dk - sequence.dk, 64);
  EXPECT_EQ(group.dout - g.dout, 2 * 80 * g.forward.out_stride + 2 * 64);
  for (const auto& part : {sequence, group}) {
    expect_hopper(make(part.forward), "fprop");
    expect_hopper(make(part), "bprop");
  }
}

// Rows of padding become zero, as kernels/cuda/attention_padding.h says.
void clear_padding(const reference::Attention& r, Values& rows, std::int64_t stride) {
  for (std::int64_t i = 0; i < r.batch * r.keys; ++i)
    if (r.k_segments[i] < 0) std::fill_n(rows.begin() + i * stride, stride, 0);
}
// Of sequences without a key.
void clear_queries(const reference::Attention& r, Values& all, double value) {
  const std::int64_t each = std::ssize(all) / r.batch;
  for (std::int64_t b = 0; b < r.batch; ++b)
    if (r.k_segments[b * r.keys] < 0) std::fill_n(all.begin() + b * each, each, value);
}

// Queries, keys and values in rows of their own strides; forward's results are backward's operands.
void expect_meaning(const CudnnCase& c) {
  SCOPED_TRACE(describe(c));
  reference::Attention r = shape(c.batch, c.heads, c.kv_heads, c.queries, c.keys, c.size, c.causal);
  if (c.padded) set_mask(r, Mask::right_padding);
  const Data<bf16> d(r, 8);
  const std::int64_t q_width = c.heads * c.size, kv_width = c.kv_heads * c.size;
  Values q = spread(d.q, q_width, d.q_stride), k = spread(d.k, kv_width, d.kv_stride),
         v = spread(d.v, kv_width, d.kv_stride), dout = spread(d.dout, q_width, d.out_stride),
         out(dout.size()), lse(c.batch * c.heads * c.queries), dq(q.size()), dk(k.size()),
         dv(v.size());
  AttentionBackwardArgs<bf16> g = args_of<bf16>(c);
  g.forward.q_stride = d.q_stride, g.forward.kv_stride = d.kv_stride,
  g.forward.out_stride = d.out_stride;
  g.forward.scale = static_cast<float>(r.scale);
  Values q_lengths(c.batch, c.queries), kv_lengths(c.batch, 1);
  for (std::int64_t i = 0; i < std::ssize(r.k_segments); ++i)
    if (r.k_segments[i] >= 0) kv_lengths[i / c.keys] = i % c.keys + 1;
  std::vector<Values*> forward{&q, &k, &v, &out, &lse},
      backward{&q, &k, &v, &out, &lse, &dout, &dq, &dk, &dv};
  if (c.padded)
    for (auto* operands : {&forward, &backward})
      operands->insert(operands->end(), {&q_lengths, &kv_lengths});
  Interpreter(attention_graph(g.forward), forward);
  if (c.padded) clear_queries(r, out, 0), clear_queries(r, lse, -INFINITY);
  Interpreter(attention_graph(g), backward);
  if (c.padded) {
    EXPECT_TRUE(std::isnan(dk[(c.keys - 1) * d.kv_stride]));  // nothing is known of padding
    clear_queries(r, dq, 0), clear_padding(r, dk, d.kv_stride), clear_padding(r, dv, d.kv_stride);
  }
  reference::Attention same_scale = r;
  same_scale.scale = g.forward.scale;
  const AttentionResult want =
      plain_attention(same_scale, d.q, d.k, d.v, d.dout, [](double x) { return x; });
  expect_close(gather(out, q_width, d.out_stride), want.out, 1e-12, "out");
  expect_close(lse, want.lse, 1e-12, "lse");
  expect_close(gather(dq, q_width, d.q_stride), want.dq, 1e-12, "dq");
  expect_close(gather(dk, kv_width, d.kv_stride), want.dk, 1e-12, "dk");
  expect_close(gather(dv, kv_width, d.kv_stride), want.dv, 1e-12, "dv");
}
TEST(Cudnn, GraphsSayWhatAttentionIs) {
  for (bool causal : {false, true}) {
    expect_meaning({2, 4, 4, 9, 9, 8, causal});
    expect_meaning({2, 6, 2, 11, 11, 16, causal});
    expect_meaning({2, 4, 1, 5, 12, 8, causal});
    expect_meaning({2, 4, 2, 5, 12, 8, causal});
  }
  expect_meaning({1, 2, 1, 12, 5, 8, false});
  expect_meaning({3, 4, 4, 9, 9, 8, false, true});
  expect_meaning({3, 4, 2, 5, 12, 8, false, true});
  expect_meaning({4, 2, 1, 12, 7, 8, false, true});
}

// That the above can fail.
TEST(Cudnn, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(make(args_of<bf16>({1, 2, 2, 128, 128, 12, true}).forward).status,
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(make(args_of<bf16>({1, 2, 2, 128, 128, 264, true})).status, CUDNN_STATUS_NOT_SUPPORTED);
  const AttentionArgs<bf16> a = args_of<bf16>({1, 2, 2, 128, 128, 64, true}).forward;
  driver().loads = false;
  EXPECT_EQ(make(a).status, CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  driver().loads = true;
  EXPECT_EQ(make(a).status, CUDNN_STATUS_SUCCESS);
}

TEST(Cudnn, IsNotAskedForWhatItWouldDoOtherwise) {
  const AttentionBackwardArgs<bf16> usual = args_of<bf16>({2, 4, 2, 128, 128, 64, true});
  ASSERT_TRUE(kernels::cudnn_computes(usual));
  static const std::int32_t segments[1] = {};
  static float bias[1] = {};
  const auto declined = [&](auto&& change) {
    AttentionBackwardArgs<bf16> g = usual;
    change(g.forward);
    EXPECT_FALSE(kernels::cudnn_computes(g.forward));
    EXPECT_FALSE(kernels::cudnn_computes(g));
  };
  declined([](auto& a) { a.dropout.p = 0.1f; });
  declined([](auto& a) { a.queries_total = 256, a.query_offset = 64; });
  declined([](auto& a) { a.bias = bias; });
  declined([](auto& a) { a.softcap = 50; });
  declined([](auto& a) { a.prefixes = segments; });
  declined([](auto& a) { a.visible = {}, a.visible.beyond.repeats = true; });
  declined([](auto& a) { a.k_segments = segments; });
  declined([](auto& a) { a.k_segments = segments, a.right_padded = true; });  // and causal
  declined([](auto& a) { a.k_segments = segments, a.visible = {}; });
  declined([](auto& a) {
    a.k_segments = a.q_segments = segments, a.right_padded = true, a.visible = {};
  });
  declined([](auto& a) { a.k_segments = a.q_segments = segments; });
  declined([](auto& a) { a.queries = 129; });  // the first sees no key
  declined([](auto& a) { a.kv_length = 256; });
  declined([](auto& a) { a.queries = 63; });
  declined([](auto& a) { a.keys = 63, a.visible = {}; });
  declined([](auto& a) { a.head_size = 264; });
  declined([](auto& a) { a.head_size = 12; });
  declined([](auto& a) { a.q_stride += 4; });
  declined([](auto& a) { a.kv_stride += 4; });
  declined([](auto& a) { a.out_stride += 4; });
  declined([](auto& a) { a.q += 4; });
  declined([](auto& a) { a.v += 4; });
  declined([](auto& a) { a.lse += 2; });
  for (auto member : {&AttentionBackwardArgs<bf16>::dq, &AttentionBackwardArgs<bf16>::dk,
                      &AttentionBackwardArgs<bf16>::dv}) {
    AttentionBackwardArgs<bf16> g = usual;
    g.*member += 4;
    EXPECT_FALSE(kernels::cudnn_computes(g));
  }
}

}  // namespace
}  // namespace tfm::test
