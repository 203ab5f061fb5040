// Rules of the layers, and an encoder-decoder made of them.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/dropout.h"
#include "models/registry.h"
#include "nn/positions.h"
#include "support/batch.h"
#include "train/engine.h"

namespace tfm {
namespace {

// First distance of every bucket of one sign, by running over distances away from the query.
std::vector<std::int64_t> first_distances(std::int64_t direction, bool bidirectional,
                                          std::int64_t buckets = 32,
                                          std::int64_t max_distance = 128) {
  constexpr std::int64_t T = 300;
  const auto of = nn::relative_buckets(T, T, buckets, max_distance, bidirectional);
  std::vector<std::int64_t> first;
  std::int32_t last = -1;
  for (std::int64_t n = direction > 0; n < T; ++n)
    if (const std::int32_t b = of[static_cast<std::size_t>(direction * n + T - 1)]; b != last) {
      EXPECT_EQ(b, last < 0 ? b : last + 1);
      first.push_back(n);
      last = b;
    }
  return first;
}

// Press et al. 2022 and its published code: of 2, 8 and 12 heads.
TEST(AlibiSlopes, AreThoseOfThePaper) {
  EXPECT_EQ(nn::alibi_slopes(2), (std::vector{0.0625, 0.00390625}));
  std::vector<double> slopes{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625};
  EXPECT_EQ(nn::alibi_slopes(8), slopes);
  for (const double power : {-0.5, -1.5, -2.5, -3.5}) slopes.push_back(std::exp2(power));
  EXPECT_EQ(nn::alibi_slopes(12), slopes);
}

TEST(RelativeBuckets, FollowT5) {
  const std::vector<std::int64_t> both{0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
  EXPECT_EQ(first_distances(-1, true), both);
  EXPECT_EQ(first_distances(1, true), std::vector<std::int64_t>(both.begin() + 1, both.end()));
  EXPECT_EQ(
      first_distances(-1, false),
      (std::vector<std::int64_t>{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113}));
  const auto at = [](std::int64_t distance, bool both) {
    return nn::relative_buckets(1000, 1000, 32, 128, both)[distance + 999];
  };
  EXPECT_EQ(at(0, true), 0);
  EXPECT_EQ(at(1, true), 17);
  EXPECT_EQ(at(8, true), 24);
  EXPECT_EQ(at(-999, true), 15);
  EXPECT_EQ(at(999, true), 31);
  EXPECT_EQ(at(999, false), 0);
  EXPECT_EQ(at(-999, false), 31);
}

// Those of transformers' T5Attention where float64 would end a bucket one distance later.
TEST(RelativeBuckets, EndWhereT5RoundsToFp32) {
  const std::vector<std::int64_t> powers{0, 1, 2, 3, 4, 8, 16, 32, 64};
  EXPECT_EQ(first_distances(-1, true, 18, 128), powers);
  EXPECT_EQ(first_distances(-1, false, 9, 128), powers);
  EXPECT_EQ(nn::relative_buckets(13, 1, 19, 16, false)[0], 14);
}

TEST(RelativeBuckets, CoverUnequalLengths) {
  EXPECT_EQ(nn::relative_buckets(2, 4, 8, 16, true), (std::vector<std::int32_t>{1, 0, 5, 6, 6}));
  EXPECT_THROW(nn::relative_buckets(2, 4, 2, 16, true), Error);
}

// Sines of frequencies 10000^(-c / width) of each pair of columns c and c + 1, and their cosines:
// side by side (Vaswani et al. 2017), all sines first (fairseq and transformers' Marian), or with
// frequencies that end at 1 / 10000 (M2M-100).
TEST(Sinusoids, AreOfThreeKinds) {
  constexpr std::int64_t length = 3;
  const auto table = [&](std::int64_t width, nn::SinusoidKind kind) {
    std::vector<double> t(static_cast<std::size_t>(length * width), 99);
    nn::sinusoidal_table(length, width, kind, t.data());
    return t;
  };
  const auto expect_row = [](const std::vector<double>& t, const std::vector<double>& row) {
    for (std::size_t c = 0; c < row.size(); ++c)
      EXPECT_NEAR(t[2 * row.size() + c], row[c], 1e-15) << "column " << c;
  };
  using enum nn::SinusoidKind;
  const double s1 = std::sin(2.), c1 = std::cos(2.);
  const auto sine = [](double f) { return std::sin(2 * f); };
  const auto cosine = [](double f) { return std::cos(2 * f); };
  expect_row(table(4, interleaved), {s1, c1, sine(0.01), cosine(0.01)});
  expect_row(table(4, halves), {s1, sine(0.01), c1, cosine(0.01)});
  expect_row(table(4, last), {s1, sine(0.0001), c1, cosine(0.0001)});
  expect_row(table(8, last),
             {s1, sine(std::pow(10, -4. / 3)), sine(std::pow(10, -8. / 3)), sine(0.0001), c1,
              cosine(std::pow(10, -4. / 3)), cosine(std::pow(10, -8. / 3)), cosine(0.0001)});
  const double f = std::pow(10000, -0.4), g = std::pow(10000, -0.8);
  expect_row(table(5, halves), {s1, sine(f), sine(g), c1, cosine(f)});
  expect_row(table(2, last), {s1, c1});
  EXPECT_EQ(table(4, halves)[0], 0);
  EXPECT_EQ(table(4, halves)[2], 1) << "position 0";
}

TEST(DropoutMasks, ThoseOfTheRanksTogetherAreThoseOfOne) {
  const kernels::Dropout dropout{0.4f, {7, Purpose::dropout, stream_of("layers.0.ffn"), 3}};
  constexpr std::int64_t B = 4, T = 8, C = 12;
  const auto mask = [&](std::int64_t rows, std::int64_t cols, const ops::ActivationRegion& place,
                        std::int64_t first_sequence) {
    std::vector<float> ones(static_cast<std::size_t>(rows * cols), 1), y(ones.size());
    cpu::Stream s{1};
    kernels::dropout_add(
        s, kernels::DropoutAddArgs<float>{.rows = rows,
                                          .cols = cols,
                                          .x = ones.data(),
                                          .y = y.data(),
                                          .dropout = dropout,
                                          .place = {place.row_offset + first_sequence * T,
                                                    place.col_offset, place.cols_total}});
    return y;
  };
  const std::vector<float> whole = mask(B * T, C, {{B, T}, 0, 0, C}, 0);
  EXPECT_GT(std::count(whole.begin(), whole.end(), 0.0f), 100);
  for (const comm::Layout layout : {comm::Layout{1, 4}, comm::Layout{2, 2}, comm::Layout{4, 1}}) {
    const Rows rows{B / layout.size(comm::kData), T};
    std::vector<float> outside(whole.size()), inside(whole.size());
    for (int d = 0; d < layout.size(comm::kData); ++d)
      for (int t = 0; t < layout[comm::Axis::tensor]; ++t) {
        nn::ParameterSet parameters(layout, t);
        const nn::Context c{parameters, layout[comm::Axis::tensor], t, true};
        const ops::ActivationRegion by_rows = nn::outside_tp_region(c, rows, C),
                                    by_columns = nn::inside_tp_region(c, rows, C);
        const std::int64_t first = d * rows.tokens(),
                           share = rows.tokens() / layout[comm::Axis::tensor],
                           width = C / layout[comm::Axis::tensor];
        const auto a = mask(share, C, by_rows, d * rows.sequences),
                   b = mask(rows.tokens(), width, by_columns, d * rows.sequences);
        std::copy(a.begin(), a.end(), outside.begin() + (first + t * share) * C);
        for (std::int64_t r = 0; r < rows.tokens(); ++r)
          std::copy_n(b.begin() + r * width, width, inside.begin() + (first + r) * C + t * width);
      }
    EXPECT_EQ(outside, whole);
    EXPECT_EQ(inside, whole);
  }
}

// Every family in small, with the options that have gradients of their own.
const std::vector<std::string> kModels{
    "family: encoder, n_layers: 1, norm_position: post, embedding_norm: true, type_vocab_size: 2, "
    "head_transform: true, next_sentence: true, "
    "head_bias: true, position: relative, relative: {buckets: 4, max_distance: 4}",
    "family: encoder_decoder, n_encoder_layers: 2, n_decoder_layers: 1, position: relative, "
    "relative: {buckets: 4, max_distance: 4}, "
    "tie_embeddings: inputs, scale_logits: true, dropout: 0.1",
    "family: encoder_decoder, n_encoder_layers: 1, n_decoder_layers: 2, position_offset: 2, "
    "embedding_norm: true, norm_position: post, "
    "activation: swiglu, tie_embeddings: all, dropout: 0.1",
    "family: encoder_decoder, n_layers: 1, position: rope, norm: rmsnorm, qk_norm: true, bias: "
    "false, qkv_bias: true",
};

config::Config small_model(const std::string& model, const char* recompute) {
  const std::string type = model.find("encoder_decoder") != model.npos ? "pairs" : "mlm";
  config::Config c = config::parse_config(
      "model: {d_model: 8, n_heads: 4, n_kv_heads: 2, d_head: 2, d_ff: 6, vocab_size: 7, init_std: "
      "0.3, " +
          model + "}\n" + "data: {train: {type: " + type + ", path: none.bin}}\n",
      "test",
      {"train.seq_len=6", "train.micro_batch_size=2", "train.global_batch_size=4",
       std::string("recompute=") + recompute});
  config::resolve_for_ranks(c, 1);
  return c;
}

void read(std::int64_t first, std::int64_t count, const BatchFields& fields) {
  for (const auto& [field, values] : fields) {
    const FieldKind kind = info_of(field).kind;
    const auto width = static_cast<std::int64_t>(values.size()) / count;
    for (std::int64_t i = 0; i < count * width; ++i) {
      const std::int64_t at = first * width + i;
      std::int32_t v = static_cast<std::int32_t>(at * at * 7 / 3 % 7);
      if (kind == FieldKind::label) v = at % 4 == 1 ? -1 : v;
      if (kind == FieldKind::mask)
        v = at < width || at % 4 == 1 ? -1 : 0;  // the first sequence is nothing but padding
      if (kind == FieldKind::type || kind == FieldKind::answer) v %= 2;
      values[static_cast<std::size_t>(i)] = v;
    }
  }
}

class Families : public testing::TestWithParam<std::size_t> {};

TEST_P(Families, GradientEqualsCentralDifferences) {
  std::vector<double> first;
  for (const char* recompute : {"none", "selective", "full"}) {
    train::Engine e(plan::make_step_plan(small_model(kModels[GetParam()], recompute),
                                         comm::single_mesh(), DType::f64),
                    2);
    e.initialize_parameters();
    test::compute_gradients(e, 1, read);
    auto* x = static_cast<double*>(e.flat().parameters);
    const auto* now = static_cast<const double*>(e.flat().gradients);
    const std::vector<double> gradient(now, now + e.model().parameters().flat_elements());
    if (!first.empty()) {
      EXPECT_EQ(gradient, first) << recompute;
      continue;
    }
    first = gradient;
    for (const nn::PartSlice& p : e.model().parameters().slices()) {
      double size = 0;
      for (std::int64_t i = 0; i<p.elements(); i += p.elements()> 20 ? 7 : 1) {
        double& at = x[p.offset + i];
        const double keep = at, h = 1e-3;
        const auto loss = [&](double value) {
          return at = value, test::compute_gradients(e, 1, read).loss;
        };
        const double want =
            (8 * (loss(keep + h) - loss(keep - h)) - (loss(keep + 2 * h) - loss(keep - 2 * h))) /
            (12 * h);
        at = keep;
        EXPECT_NEAR(gradient[static_cast<std::size_t>(p.offset + i)], want,
                    1e-8 * std::max(1.0, std::abs(want)))
            << p.name << " " << i;
        size = std::max(size, std::abs(want));
      }
      EXPECT_GT(size, p.name.ends_with("key.bias") ? -1 : 1e-7)
          << p.name << " has no effect";  // softmax ignores a key's bias
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, Families, testing::Range<std::size_t>(0, kModels.size()));

}  // namespace
}  // namespace tfm
