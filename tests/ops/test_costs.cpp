// What ops say that they cost, against counts by hand: products, elements, kernels, and the bytes
// that ranks exchange.
#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "cases.h"

namespace tfm::test {
namespace {

using graph::Phase;
using graph::Recorder;
using graph::Value;

// The products as (m n k), with their number and the type of sums, and what else is not zero.
std::string text(const graph::Work& w) {
  std::ostringstream s;
  for (const graph::Work::Product& p : w.products) {
    s << '(' << p.m << ' ' << p.n << ' ' << p.k << ')';
    if (p.count != 1) s << '*' << p.count;
    if (p.sum) s << '+';
    s << ' ';
  }
  if (w.attention_flops > 0) s << "seen " << w.attention_flops << ' ';
  if (w.masked_flops > 0) s << "masked " << w.masked_flops << ' ';
  if (w.extra_elements > 0) s << "extra " << w.extra_elements << ' ';
  s << "kernels " << w.kernels;
  return s.str();
}

struct Cost {
  std::string name, forward, backward;
  std::function<void(Recorder&)> record;  // the op is the last one of `kind`
  std::string kind = "";
  DType dtype = DType::f32;
};

std::shared_ptr<const graph::Op> recorded(const Cost& c) {
  auto tape = std::make_shared<Recorder>(c.dtype);
  c.record(*tape);
  const graph::Op* found = tape->nodes().back().op.get();
  for (const auto& node : tape->nodes())
    if (node.op->kind() == c.kind) found = node.op.get();
  return {tape, found};
}

Value given(Recorder& r, int index, const Shape& shape) {
  return r.parameter(index, "given" + std::to_string(index), shape);
}

void expect_costs(const std::vector<Cost>& costs) {
  for (const Cost& c : costs) {
    const auto op = recorded(c);
    EXPECT_EQ(text(op->work(Phase::forward)), c.forward) << c.name;
    EXPECT_EQ(text(op->work(Phase::backward)), c.backward) << c.name << ", backward";
  }
}

// 6 rows of 4 columns; 5 and 3 columns come out.
TEST(Costs, OfProducts) {
  const auto linear = [](bool bias) {
    return [=](Recorder& r) {
      ops::linear(r, given(r, 0, {6, 4}), given(r, 1, {5, 4}),
                  bias ? given(r, 2, {5}) : graph::Value{});
    };
  };
  const auto router = [](bool bias) {
    return [=](Recorder& r) {
      ops::router_logits(r, given(r, 0, {6, 4}), given(r, 1, {3, 4}),
                         bias ? given(r, 2, {3}) : graph::Value{});
    };
  };
  expect_costs({
      {"linear", "(6 5 4) kernels 1", "(6 4 5) (5 4 6)+ kernels 2", linear(false)},
      {"with bias", "(6 5 4) kernels 1", "(6 4 5) (5 4 6)+ extra 30 kernels 3", linear(true)},
      {"router", "(6 3 4) kernels 1", "(6 4 3) (3 4 6)+ kernels 3", router(false)},
      {"router with bias", "(6 3 4) kernels 3", "(6 4 3) (3 4 6)+ kernels 4", router(true)},
  });
}

// 8 tokens of 5 columns that take 2 of 4 experts of 3 columns: 16 slots. Of two ranks that send
// each other 20 rows, each has 40, of which 16 have a token in the mean.
TEST(Costs, OfExperts) {
  const auto experts = [](std::int64_t room) {
    return [=](Recorder& r) {
      const kernels::RouterOptions o{.experts = 4, .top_k = 2, .rows = {2, 4}};
      const Value x = given(r, 0, {8, 5});
      const ops::Routing all =
          ops::route(r, ops::router_logits(r, x, given(r, 1, {4, 5})), {}, {}, o);
      if (room == 0) {
        const Value h = ops::experts_up(r, x, all, given(r, 2, {12, 5}), {});
        ops::experts_down(r, h, all, given(r, 3, {20, 3}), {});
        return;
      }
      const ops::Sent sent = ops::dispatch(r, all, {2, room, true, o.rows, {}});
      const Value h =
          ops::experts_up(r, ops::send_slots(r, x, sent), sent.here, given(r, 2, {6, 5}), {});
      ops::return_slots(r, ops::experts_down(r, h, sent.here, given(r, 3, {10, 3}), {}), sent, 8);
    };
  };
  expect_costs({
      {"up", "(16 3 5) extra 160 kernels 2", "(3 5 16)+ (16 5 3) extra 320 kernels 4", experts(0),
       "experts_up"},
      {"down", "(16 5 3) extra 160 kernels 2", "(16 3 5) (5 3 16)+ extra 544 kernels 5", experts(0),
       "experts_down"},
      {"up of ranks", "(16 3 5) extra 400 kernels 2", "(3 5 16)+ (16 5 3) extra 800 kernels 4",
       experts(20), "experts_up"},
      {"return", "extra 400 kernels 1", "extra 400 kernels 1", experts(20), "return_slots"},
  });
}

// Two sequences of 8 positions, 2 heads of 4 columns: a product of a pair has 2 * 4 * 2 * 2 flops
// for both, 32, and forward has two, backward five. Of 64 pairs a causal query sees 36, its own by
// half: 32. A window of three has 3 * 8 - 3 pairs; a prefix of a half adds 6.
TEST(Costs, OfAttention) {
  const auto attention = [](ops::AttentionOptions o, bool prefix = false) {
    return [=](Recorder& r) mutable {
      o.heads = 2, o.kv_heads = 1, o.head_size = 4;
      o.heads_total = 2;
      if (o.queries == 0) o.queries = o.keys = 8;
      ops::AttentionInputs in;
      if (o.queries == o.keys) {
        in.q = given(r, 0, {2 * o.queries / o.share.ranks, 16});
      } else {
        in.q = given(r, 0, {2 * o.queries, 8});
        in.kv = given(r, 1, {2 * o.keys, 8});
      }
      if (prefix) in.prefixes = r.input("prefixes", {2}, DType::i32);
      ops::attention(r, in, o);
    };
  };
  expect_costs({
      {"causal", "seen 2048 masked 2048 kernels 1", "seen 5120 masked 5120 kernels 3",
       attention({})},
      {"both ways", "seen 4096 kernels 1", "seen 10240 kernels 3", attention({.visible = {}})},
      {"window", "seen 1088 masked 3008 kernels 1", "seen 2720 masked 7520 kernels 3",
       attention({.visible = {.left = 2, .right = 0}})},
      {"window both ways", "seen 2176 masked 1920 kernels 1", "seen 5440 masked 4800 kernels 3",
       attention({.visible = {.left = 2, .right = 2}})},
      {"prefix", "seen 2432 masked 1664 kernels 1", "seen 6080 masked 4160 kernels 3",
       attention({}, true)},
      {"of fewer queries", "seen 1024 kernels 1", "seen 2560 kernels 3",
       attention({.queries = 2, .keys = 8, .visible = {}})},
      {"of the last queries", "seen 896 masked 128 kernels 1", "seen 2240 masked 320 kernels 3",
       attention({.queries = 2, .keys = 8})},
  });
}

// A quarter of the rows has a label: 8, made whole to 16 of 32. Chunks of 12: two and the rest, or
// one and the rest.
TEST(Costs, OfTheLoss) {
  const auto loss = [](ops::CrossEntropyOptions o, bool bias = false) {
    return [=](Recorder& r) mutable {
      o.vocab_size = 10, o.vocab_end = 10 / o.shards, o.chunk_rows = 12;
      ops::linear_cross_entropy(r, given(r, 0, {32, 4}), given(r, 1, {o.vocab_end, 4}),
                                bias ? given(r, 2, {o.vocab_end}) : graph::Value{},
                                r.input("labels", {32}, DType::i32), o);
    };
  };
  const std::string gradients = "(12 10 4)*2 (12 4 10)*2 (10 4 12)*2+ (8 10 4) (8 4 10) (10 4 8)+ ";
  expect_costs({
      {"dense", "(12 10 4)*2 (8 10 4) extra 320 kernels 9", gradients + "extra 640 kernels 15",
       loss({})},
      {"bias", "(12 10 4)*2 (8 10 4) extra 320 kernels 9", gradients + "extra 960 kernels 18",
       loss({}, true)},
      {"capped", "(12 10 4)*2 (8 10 4) extra 640 kernels 12", gradients + "extra 960 kernels 18",
       loss({.softcap = 5})},
      {"of few", "(12 10 4) (4 10 4) extra 288 kernels 9",
       "(12 10 4) (12 4 10) (10 4 12)+ (4 10 4) (4 4 10) (10 4 4)+ extra 704 kernels 16",
       loss({.labelled = 0.25})},
      {"split", "(12 5 4)*2 (8 5 4) extra 160 kernels 12",
       "(12 5 4)*2 (12 4 5)*2 (5 4 12)*2+ (8 5 4) (8 4 5) (5 4 8)+ extra 480 kernels 21",
       loss({.shards = 2})},
  });
}

// Six pairs in groups of three, and four triples of each of two ranks, which have 16 documents.
TEST(Costs, OfContrasts) {
  const auto contrast = [](const ops::ContrastiveOptions& o) {
    return [=](Recorder& r) {
      ops::contrastive(r, given(r, 0, {12, 5}), r.input("labels", {12}, DType::i32), o);
    };
  };
  expect_costs({
      {"groups", "(3 3 5)*2 extra 78 kernels 12",
       "(3 3 5)*2 (3 5 3)*2 (3 5 3)*2+ extra 204 kernels 18", contrast({.texts = 2, .group = 3})},
      {"ranks", "(4 16 5) extra 104 kernels 7", "(4 16 5) (4 5 16) (16 5 4)+ extra 292 kernels 10",
       contrast({.texts = 3, .axes = comm::Axis::context, .ranks = 2})},
  });
}

// 6 rows, 2 heads with 4 plain and 4 turned columns of keys and 5 of values, from 7 of a latent.
TEST(Costs, OfLatentRows) {
  const kernels::LatentSizes sizes{2, 4, 4, 5};
  const auto made = [&](const std::string& kind) {
    auto r = std::make_shared<Recorder>(DType::f32);
    const Value weight = given(*r, 3, {18, 7});
    if (kind == "heads")
      ops::absorbed_heads(*r, given(*r, 0, {6, 16}), given(*r, 1, {6, 7}), given(*r, 2, {6, 4}),
                          weight, {sizes, {1.0, 0.1}, 1, {2, 3}});
    else
      ops::absorbed_values(*r, given(*r, 0, {6, 22}), weight, sizes);
    return text(r->nodes().back().op->work(Phase::forward));
  };
  EXPECT_EQ(made("heads"), "(12 7 4) kernels 1");
  EXPECT_EQ(made("values"), "(12 5 7) kernels 1");
}

// The kinds and bytes of a pass.
std::string calls(const graph::Op& op, Phase phase) {
  std::ostringstream s;
  for (const comm::CollectiveCall& c : op.exchanges(phase))
    s << name_of(c.kind) << ' ' << c.bytes << "; ";
  return s.str();
}

TEST(Costs, OfExchanges) {
  const auto x = [](Recorder& r) { return given(r, 0, {8, 5}); };
  const auto pool = [x](kernels::Pool kind) {
    return [=](Recorder& r) { ops::pool(r, x(r), kind, {2, 8, {2, 1}}); };
  };
  const auto contrast = [x](Recorder& r) {
    ops::contrastive(r, x(r), r.input("labels", {8}, DType::i32),
                     {.texts = 2, .axes = comm::Axis::context, .ranks = 2});
  };
  const auto loss = [](Recorder& r) {
    ops::linear_cross_entropy(r, given(r, 0, {32, 4}), given(r, 1, {5, 4}), {},
                              r.input("labels", {32}, DType::i32),
                              {.vocab_size = 10, .vocab_end = 5, .shards = 2, .chunk_rows = 12});
  };
  const auto routing = [x](const Rows& rows) {
    return [=](Recorder& r) {
      const kernels::RouterOptions o{.experts = 4, .top_k = 2, .rows = rows};
      ops::route(r, ops::router_logits(r, x(r), given(r, 1, {4, 5})), {}, {}, o);
    };
  };
  // Two ranks have 4 documents each; of a row of the loss each tells the other 4 numbers.
  const std::vector<Cost> all{
      {"mean", "all_reduce 40; ", "all_reduce 40; ", pool(kernels::Pool::mean)},
      {"last", "all_reduce 40; ", "all_reduce 40; ", pool(kernels::Pool::last)},
      {"first", "", "", pool(kernels::Pool::first)},
      {"documents", "all_gather 160; ", "all_gather 160; reduce_scatter 160; ", contrast},
      {"documents of halves", "all_gather 80; ", "all_gather 80; reduce_scatter 160; ", contrast,
       "", DType::bf16},
      {"loss", "all_gather 384; all_gather 384; all_gather 256; ",
       "all_gather 384; all_gather 384; all_gather 256; ", loss},
      {"loss of halves", "all_gather 384; all_gather 384; all_gather 256; ",
       "all_gather 384; all_gather 384; all_gather 256; ", loss, "", DType::bf16},
      {"choices", "all_reduce 32; ", "", routing({2, 8, {2, 0}})},
      {"choices of one", "", "", routing({2, 4})},
  };
  for (const Cost& c : all) {
    const auto op = recorded(c);
    EXPECT_EQ(calls(*op, Phase::forward), c.forward) << c.name;
    EXPECT_EQ(calls(*op, Phase::backward), c.backward) << c.name << ", backward";
  }
}

}  // namespace
}  // namespace tfm::test
