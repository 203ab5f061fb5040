// Routers and experts on the emulator.
#include "kernel_runs.h"
#include "kernels/experts.h"
#include "kernels/router.h"

namespace tfm::test {
namespace {

template <class T>
class DeviceExperts : public testing::Test {};
TYPED_TEST_SUITE(DeviceExperts, Floats);

template <class D>
using Integers = typename D::template Array<std::int32_t>;

struct RouterCase {
  kernels::RouterOptions options;
  bool padded, biased = false;

  template <class D, class T>
  Results run() const {
    const std::int64_t n = options.rows.tokens(), experts = options.experts,
                       b = options.rows.sequences, all = b * options.rows.sequence_length;
    Values real(static_cast<std::size_t>(all));
    for (std::int64_t i = 0; i < all; ++i) real[i] = padded && i % 5 > 2 ? -1 : 0;
    Integers<D> mask("mask", real), choice("choice", n * options.top_k);
    typename D::template Array<T> logits("logits", random_values(n * experts, 1, 4)),
        scores("scores", n * experts), lse("lse", n), weights("weights", n * options.top_k),
        entropy("entropy", n), bias("bias", random_values(experts, 4)),
        statistics("statistics", b * (experts + 2)), counts("counts", b * experts),
        error("error", experts), dweights("dweights", random_values(n * options.top_k, 2)),
        dstatistics("dstatistics", b * (experts + 2)), dx("dx", n * experts);
    Integers<D> kept("kept", n * options.top_k), rows("rows", Values{7});
    dstatistics.assign(random_values(b * (experts + 2), 3));
    error.assign(random_values(experts, 5));
    typename D::template Array<double> balance("balance", 1), z("z", 1), load("load", experts + 2);
    const std::int32_t* given = padded ? static_cast<std::int32_t*>(mask) : nullptr;
    auto& s = D::stream();
    kernels::route(
        s, kernels::RouteArgs<T>{options, given, logits, biased ? static_cast<T*>(bias) : nullptr,
                                 scores, lse, entropy, weights, choice, statistics, counts});
    for (const bool accumulate : {false, true})
      kernels::load_error(s,
                          kernels::LoadErrorArgs<T>{b, experts, counts, true, error, accumulate});
    kernels::router_load(
        s, kernels::RouterLoadArgs<T>{b, experts, statistics, counts, true, rows, load});
    if (options.capacity > 0) kernels::limit_slots(s, {options, given, choice, kept});
    kernels::router_term(s, kernels::RouterTermArgs<T>{kernels::RouterTerm::balance, b, experts,
                                                       statistics, counts, nullptr, balance});
    kernels::router_term(s, kernels::RouterTermArgs<T>{kernels::RouterTerm::z, b, experts,
                                                       statistics, counts, balance, z});
    for (const bool accumulate : {false, true})
      kernels::router_term_backward(
          s, kernels::RouterTermBackwardArgs<T>{kernels::RouterTerm::balance, b, experts, counts,
                                                nullptr, dstatistics, accumulate});
    kernels::route_backward(
        s, kernels::RouteBackwardArgs<T>{options, given, logits, scores, lse, weights, choice,
                                         dweights, dstatistics, counts, dx});
    const double unit = sizeof(T) == 4 ? 2e-6 : 1e-13;
    return {{"choice", choice.values(), 0},
            {"kept", options.capacity > 0 ? kept.values() : Values{}, 0},
            {"weights", weights.values(), unit},
            {"statistics", statistics.values(), 40 * unit},
            {"counts", counts.values(), 0},
            {"error", error.values(), 0},
            {"load", load.values(), 40 * unit},
            {"balance", balance.values(), 40 * unit},
            {"z", z.values(), 400 * unit},
            {"dlogits", dx.values(), 40 * unit}};
  }
};

TYPED_TEST(DeviceExperts, RouteAsTheCpus) {
  if constexpr (sizeof(TypeParam) >= 4)
    for (const RouterCase& c : {RouterCase{{4, 2, false, true, 1, {3, 5}}, false},
                                {{37, 5, true, false, 2.5, {2, 40}}, true},
                                {{6, 3, false, true, 1, {3, 20}, 7}, true},
                                {{8, 1, false, false, 1, {2, 24, {2, 1}}}, true},
                                {{16, 4, true, true, 2.5, {2, 40}, 0, 4, 2}, true, true},
                                {{48, 6, true, true, 1, {3, 20}, 0, 8, 3}, false, true}})
      expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

struct SlotsCase {
  std::int64_t tokens, top_k, experts, width, hidden;
  int skip;  // every so manieth slot has no expert; 0: none
  bool bias, accumulate;

  template <class D, class T>
  Results run() const {
    using W = Accum<T>;
    const std::int64_t rows = tokens * top_k;
    Values chosen(static_cast<std::size_t>(rows));
    for (std::int64_t s = 0; s < rows; ++s)
      chosen[s] = skip && s % skip == 0 ? -1 : static_cast<double>(s * s % 7 % experts);
    Integers<D> choice("choice", chosen), place("place", rows), slot("slot", rows),
        offsets("offsets", experts + 1);
    const auto array = [](const char* name, std::int64_t n, std::uint32_t stream) {
      return typename D::template Array<T>(name, rounded<T>(random_values(n, stream)));
    };
    auto x = array("x", tokens * width, 1), w = array("w", experts * hidden * width, 2),
         b = array("b", experts * hidden, 3), h = array("h", rows * hidden, 4),
         out_bias = array("out_bias", experts * width, 8);
    typename D::template Array<T> dh("dh", rows * hidden), dy("dy", rows * width),
        y("y", tokens * width);
    dh.assign(rounded<T>(random_values(rows * hidden, 5)));
    dy.assign(rounded<T>(random_values(rows * width, 6)));
    y.assign(rounded<T>(random_values(tokens * width, 7)));
    typename D::template Array<T> routed("routed", rows * width), up("up", rows * hidden),
        back("back", rows * width);
    typename D::template Array<W> weights("weights", random_values(rows, 9)),
        dweights("dweights", rows), dw("dw", experts * hidden * width), db("db", experts * hidden);
    dweights.assign(Values(static_cast<std::size_t>(rows), 0));
    dw.assign(random_values(experts * hidden * width, 10));
    db.assign(random_values(experts * hidden, 11));
    auto& s = D::stream();
    kernels::sort_slots(s, {rows, experts, choice, place, slot, offsets});
    kernels::gather_slots(s, kernels::GatherSlotsArgs<T>{rows, width, top_k, slot, x, routed});
    kernels::grouped_gemm(
        s, kernels::GroupedGemmArgs<T>{rows, experts, hidden, width, true, offsets, routed, w,
                                       bias ? static_cast<T*>(b) : nullptr, up});
    kernels::grouped_gemm(s, kernels::GroupedGemmArgs<T>{rows, experts, width, hidden, false,
                                                         offsets, up, w, nullptr, back});
    kernels::combine_slots(s, kernels::CombineSlotsArgs<T>{
                                  tokens, width, top_k, place,
                                  bias ? static_cast<W*>(weights) : nullptr, back, y, accumulate});
    kernels::grouped_gradients(
        s, kernels::GroupedGradientsArgs<T>{rows, experts, hidden, width, offsets, dh, routed, dw,
                                            db, accumulate, accumulate});
    kernels::weigh_slots(s, kernels::WeighSlotsArgs<T>{
                                rows, hidden, width, slot, weights, h, dh, dy,
                                bias ? static_cast<T*>(out_bias) : nullptr, choice, dweights});
    const auto wide = static_cast<double>(width), deep = static_cast<double>(hidden),
               many = static_cast<double>(rows);
    return {{"place", place.values(), 0},
            {"slot", slot.values(), 0},
            {"offsets", offsets.values(), 0},
            {"routed", routed.values(), 0},
            {"up", up.values(), rounding<T>(wide)},
            {"back", back.values(), rounding<T>(2 * deep * wide)},
            {"y", y.values(), rounding<T>(4 * deep * wide)},
            {"dw", dw.values(), rounding<W>(4 * many)},
            {"db", db.values(), rounding<W>(4 * many)},
            {"dh", dh.values(), rounding<T>(2)},
            {"dy", dy.values(), rounding<T>(2)},
            {"dweights", dweights.values(), rounding<W>(4 * (wide + deep))}};
  }
};

TYPED_TEST(DeviceExperts, RowsAsTheCpus) {
  for (const SlotsCase& c : {SlotsCase{7, 2, 3, 13, 5, 0, false, false},
                             {40, 2, 4, 24, 70, 3, true, true},
                             {2, 3, 9, 8, 16, 1, true, false},
                             {150, 1, 2, 66, 8, 0, false, true}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}
TYPED_TEST(DeviceExperts, DISABLED_RowsAtRealShapes) {
  const SlotsCase c{2048, 2, 8, 512, 704, 17, true, true};
  expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

struct SendCase {
  std::int64_t tokens, top_k, experts, ranks, room;
  int skip;
  bool wants_rows;

  template <class D>
  Results run() const {
    const std::int64_t slots = tokens * top_k, sent = ranks * room;
    Values chosen(static_cast<std::size_t>(slots));
    for (std::int64_t s = 0; s < slots; ++s)
      chosen[s] = skip && s % skip == 0 ? -1 : static_cast<double>(s * s % 7 % experts);
    Integers<D> choice("choice", chosen), place("place", slots), slot("slot", slots),
        offsets("offsets", experts + 1), sent_place("sent_place", slots),
        sent_slot("sent_slot", sent), sent_choice("sent_choice", sent), row("row", sent);
    typename D::template Array<double> before("before", Values{0.25}), excess("excess", 1);
    auto& s = D::stream();
    kernels::sort_slots(s, {slots, experts, choice, place, slot, offsets});
    kernels::SendSlotsArgs a{
        slots,      experts,   ranks,       room,
        choice,     place,     slot,        offsets,
        sent_place, sent_slot, sent_choice, wants_rows ? static_cast<std::int32_t*>(row) : nullptr};
    a.rows = {.sequence_length = tokens, .top_k = top_k};
    a.before = before, a.excess = excess, a.even = static_cast<double>(slots) / 2;
    kernels::send_slots(s, a);
    typename D::template Array<double> most("most", 1);
    kernels::keep_most(s, {before, most, true});
    kernels::keep_most(s, {excess, most, false});
    Results all{{"sent_place", sent_place.values(), 0},
                {"sent_slot", sent_slot.values(), 0},
                {"sent_choice", sent_choice.values(), 0},
                {"excess", excess.values(), 0},
                {"most", most.values(), 0}};
    if (wants_rows) all.push_back({"row", row.values(), 0});
    return all;
  }
};
TEST(DeviceSlots, AreSentAsByTheCpus) {
  for (const SendCase& c : {SendCase{7, 2, 4, 2, 14, 0, false},
                            {40, 2, 8, 4, 9, 3, true},
                            {300, 4, 6, 3, 500, 5, true},
                            {2, 1, 2, 2, 1, 1, true}})
    expect_as_cpu([&]<class D>() { return c.run<D>(); });
}

struct GateCase {
  std::int64_t rows, cols;

  template <class D, class T>
  Results run() const {
    const auto array = [&](const char* name, std::uint32_t stream) {
      return typename D::template Array<T>(name, rounded<T>(random_values(rows * cols, stream)));
    };
    auto x = array("x", 1), residual = array("residual", 2), dy = array("dy", 3);
    typename D::template Array<T> y("y", rows * cols), dx("dx", rows * cols);
    typename D::template Array<Accum<T>> gate("gate", random_values(rows, 4, 3)),
        dgate("dgate", rows);
    auto& s = D::stream();
    kernels::gated_add(s, kernels::GatedAddArgs<T>{rows, cols, gate, x, residual, y});
    kernels::gated_add_backward(
        s, kernels::GatedAddBackwardArgs<T>{rows, cols, gate, x, dy, dx, dgate});
    return {{"y", y.values(), rounding<T>(2)},
            {"dx", dx.values(), rounding<T>(1)},
            {"dgate", dgate.values(), rounding<Accum<T>>(static_cast<double>(cols))}};
  }
};
TYPED_TEST(DeviceExperts, GatesAsTheCpus) {
  for (const GateCase& c : {GateCase{5, 24}, {19, 1}, {3, 2100}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

}  // namespace
}  // namespace tfm::test
