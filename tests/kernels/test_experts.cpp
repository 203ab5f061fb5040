// Routing, grouped products and their gradients against plain loops.
#include <numeric>

#include "kernels/cpu/amx.h"
#include "kernels/experts.h"
#include "kernels/router.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

template <class T>
class ExpertRows : public testing::Test {
 public:
  // Choices of slots: those of the first case go everywhere, others leave experts without rows.
  static std::vector<std::vector<std::int32_t>> choices() {
    return {{2, 0, 1, 2, 3, 0, 0, 1, 2, 3, 1, 0},
            {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
            {-1, -1, 3, 0, -1, -1, 3, 0, 0, 3, -1, -1},
            {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
  }
  static constexpr std::int64_t kExperts = 4, kSlots = 12, kTopK = 2;

  struct Sorted {
    std::vector<std::int32_t> place = std::vector<std::int32_t>(kSlots, 99), slot = place,
                              offsets = std::vector<std::int32_t>(kExperts + 1, 99);
    explicit Sorted(const std::vector<std::int32_t>& choice) {
      cpu::Stream s{1};
      kernels::sort_slots(
          s, {kSlots, kExperts, choice.data(), place.data(), slot.data(), offsets.data()});
    }
    std::int64_t expert_of(std::int64_t row) const {
      for (std::int64_t e = 0; e < kExperts; ++e)
        if (row < offsets[e + 1]) return e;
      return -1;
    }
  };
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ExpertRows, Types);

TYPED_TEST(ExpertRows, SlotsAreSortedByExpertInTheirOrder) {
  for (const auto& choice : this->choices()) {
    const typename TestFixture::Sorted sorted(choice);
    std::int32_t row = 0;
    for (std::int32_t e = 0; e < this->kExperts; ++e) {
      EXPECT_EQ(sorted.offsets[e], row);
      for (std::int32_t s = 0; s < this->kSlots; ++s)
        if (choice[s] == e) {
          EXPECT_EQ(sorted.place[s], row);
          EXPECT_EQ(sorted.slot[row++], s);
        }
    }
    EXPECT_EQ(sorted.offsets[this->kExperts], row);
    for (; row < this->kSlots; ++row) EXPECT_EQ(sorted.slot[row], -1);
    for (std::int32_t s = 0; s < this->kSlots; ++s)
      if (choice[s] < 0) {
        EXPECT_EQ(sorted.place[s], -1);
      }
  }
}

TEST(LimitedSlots, AreTheFirstOfASequenceAndOfFirstChoices) {
  const std::vector<std::int32_t> choice{0, 1, 1, 0, 0, 2, 0, 1,   // of the first sequence
                                         2, 0, 2, 1, 2, 0, 2, 0};  // of the second
  const auto limited = [&](std::int64_t capacity, const std::vector<std::int32_t>& mask) {
    std::vector<std::int32_t> kept(choice.size(), 99);
    cpu::Stream s{2};
    kernels::limit_slots(s, {{.experts = 3, .top_k = 2, .rows = {2, 4}, .capacity = capacity},
                             mask.empty() ? nullptr : mask.data(),
                             choice.data(),
                             kept.data()});
    return kept;
  };
  using Slots = std::vector<std::int32_t>;
  EXPECT_EQ(limited(4, {}), choice);
  EXPECT_EQ(limited(2, {}), (Slots{0, 1, 1, -1, 0, 2, -1, -1, 2, 0, 2, 1, -1, 0, -1, -1}));
  EXPECT_EQ(limited(2, {-1, 0, 0, 0, 1, 1, 1, -1}),
            (Slots{-1, -1, 1, -1, 0, 2, 0, 1, 2, 0, 2, 1, -1, 0, -1, -1}));
}

TEST(SentSlots, GoToTheRanksOfTheirExpertsAsLongAsThereIsRoom) {
  constexpr std::int64_t kRanks = 2, kEach = 2;
  using Rows = ExpertRows<float>;
  for (const auto& choice : Rows::choices())
    for (const std::int64_t room : {1, 3, 5, 12}) {
      const Rows::Sorted sorted(choice);
      std::vector<std::int32_t> place(Rows::kSlots, 99), slot(kRanks * room, 99), here = slot,
                                                                                  row = slot;
      const double before = 0.5;
      double excess = -1, most = 0;
      kernels::SendSlotsArgs a{Rows::kSlots,
                               Rows::kExperts,
                               kRanks,
                               room,
                               choice.data(),
                               sorted.place.data(),
                               sorted.slot.data(),
                               sorted.offsets.data(),
                               place.data(),
                               slot.data(),
                               here.data(),
                               row.data()};
      a.rows = {.row_offset = 10, .sequence_length = 6, .top_k = Rows::kTopK};
      a.before = &before, a.excess = &excess, a.even = 4;
      cpu::Stream s{1};
      kernels::send_slots(s, a);
      std::vector<std::int32_t> expected_place(Rows::kSlots, -1), expected_slot(kRanks * room, -1);
      for (std::int32_t to = 0; to < kRanks; ++to) {
        std::int64_t n = 0;
        for (std::int32_t e = to * kEach; e < (to + 1) * kEach; ++e)
          for (std::int32_t k = 0; k < Rows::kSlots; ++k)
            if (choice[k] == e && n++ < room) {
              const std::int64_t at = to * room + n - 1;
              expected_place[k] = static_cast<std::int32_t>(at);
              expected_slot[at] = k;
              EXPECT_EQ(here[at], e - to * kEach);
              EXPECT_EQ(row[at], 10 * Rows::kTopK + k);
            }
        most = std::max(most, static_cast<double>(n - room));
      }
      EXPECT_EQ(place, expected_place);
      EXPECT_EQ(slot, expected_slot);
      EXPECT_EQ(excess, std::max(before, most / 4));
      for (std::int64_t i = 0; i < kRanks * room; ++i)
        if (slot[i] < 0) {
          EXPECT_EQ(here[i], -1);
        }
    }
}

TYPED_TEST(ExpertRows, TiesGoToTheLowerIndexAndPaddingDoesNotCount) {
  using T = TypeParam;
  const Values logits{1, 3, 3, 2, 0, 0, 0, 0, -1, 5, 5, 5};
  const std::vector<std::int32_t> mask{0, 7, -1};
  for (const bool sigmoid : {false, true}) {
    Guarded<T> x(logits), scores(12), lse(3), entropy(3), weights(6), statistics(6), counts(4);
    std::vector<std::int32_t> choice(6);
    cpu::Stream s{1};
    kernels::route(s, kernels::RouteArgs<T>{{4, 2, sigmoid, true, 1, {1, 3}},
                                            mask.data(),
                                            x,
                                            nullptr,
                                            scores,
                                            lse,
                                            entropy,
                                            weights,
                                            choice.data(),
                                            statistics,
                                            counts});
    EXPECT_EQ(choice, (std::vector<std::int32_t>{1, 2, 0, 1, 1, 2}));
    expect_close(weights.values(), {0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, tolerance<T>(1), "weights");
    expect_close(counts.values(), {1, 2, 1, 0}, 0, "counts");
    const Values p = scores.values();
    Values mean(6);
    for (std::int64_t n = 0; n < 2; ++n) {
      double sum = 0;
      for (std::int64_t e = 0; e < 4; ++e) sum += p[n * 4 + e];
      for (std::int64_t e = 0; e < 4; ++e) {
        const double share = p[n * 4 + e] / sum;
        mean[e] += share / 2;
        mean[5] -= share * std::log(share) / 2;
      }
      mean[4] += lse.values()[n] * lse.values()[n] / 2;
    }
    expect_close(statistics.values(), mean, tolerance<T>(4), "statistics");
  }
}

// Of the experts of open groups, by sorting.
std::vector<std::int32_t> chosen_by_sorting(const Values& preference, std::int64_t groups,
                                            std::int64_t open, std::int64_t top_k) {
  const auto experts = std::ssize(preference), of_group = experts / groups;
  const auto by = [](const auto& score) {
    return [&](std::int64_t a, std::int64_t b) { return score(a) > score(b); };
  };
  const auto group_score = [&](std::int64_t g) {
    Values of(preference.begin() + g * of_group, preference.begin() + (g + 1) * of_group);
    std::ranges::sort(of, std::greater<>());
    return of[0] + of[1];
  };
  std::vector<std::int64_t> order(static_cast<std::size_t>(groups)), some;
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, by(group_score));
  if (groups == 1) order = {0};
  order.resize(static_cast<std::size_t>(open));
  std::ranges::sort(order);
  for (const std::int64_t g : order)
    for (std::int64_t e = g * of_group; e < (g + 1) * of_group; ++e) some.push_back(e);
  std::ranges::stable_sort(some, by([&](std::int64_t e) { return preference[e]; }));
  return {some.begin(), some.begin() + top_k};
}

TYPED_TEST(ExpertRows, AreChosenByScoreAndBiasAmongOpenGroups) {
  using T = TypeParam;
  constexpr std::int64_t tokens = 24, experts = 12, top_k = 3;
  const Values logits = random_values(tokens * experts, 1, 2), bias = random_values(experts, 2);
  for (const auto& [groups, open] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {2, 1}, {3, 2}, {4, 1}, {6, 2}, {6, 5}, {6, 6}})
    for (const bool biased : {false, true}) {
      if (top_k > open * (experts / groups)) continue;
      Values some = logits;  // of the first token, the two best of all groups are alike
      for (std::int64_t e = 0, of = experts / groups; e < experts; ++e)
        some[static_cast<std::size_t>(e)] = e % of == 0 ? 2 : e % of == 1 ? 1 : -3;
      Guarded<T> x(some), b(bias), scores(tokens * experts), lse(tokens), entropy(tokens),
          weights(tokens * top_k), statistics(2 * (experts + 2)), counts(2 * experts);
      std::vector<std::int32_t> choice(tokens * top_k);
      cpu::Stream s{2};
      kernels::RouteArgs<T> a{.options = {.experts = experts,
                                          .top_k = top_k,
                                          .sigmoid = true,
                                          .normalize = false,
                                          .scale = 2.5,
                                          .rows = {2, tokens / 2},
                                          .groups = groups,
                                          .top_groups = open}};
      a.logits = x, a.bias = biased ? static_cast<T*>(b) : nullptr, a.scores = scores, a.lse = lse;
      a.entropy = entropy, a.weights = weights, a.choice = choice.data();
      a.statistics = statistics, a.counts = counts;
      kernels::route(s, a);
      Values load(experts);
      for (std::int64_t n = 0; n < tokens; ++n) {
        Values preference(experts);
        for (std::int64_t e = 0; e < experts; ++e)
          preference[e] = scores.values()[n * experts + e] + (biased ? b.values()[e] : 0);
        const auto expected = chosen_by_sorting(preference, groups, open, top_k);
        for (std::int64_t k = 0; k < top_k; ++k) {
          EXPECT_EQ(choice[n * top_k + k], expected[k]) << groups << " groups, token " << n;
          EXPECT_NEAR(weights.values()[n * top_k + k],
                      2.5 * scores.values()[n * experts + expected[k]], 1e-5);
          load[expected[k]] += 1;
        }
      }
      Guarded<T> error(Values(experts, 1));
      kernels::load_error(s, kernels::LoadErrorArgs<T>{2, experts, counts, true, error, true});
      std::vector<double> sums(experts + 2);
      const std::int32_t rows = 17;
      kernels::router_load(
          s, kernels::RouterLoadArgs<T>{2, experts, statistics, counts, true, &rows, sums.data()});
      for (std::int64_t e = 0; e < experts; ++e) {
        EXPECT_EQ(error.values()[e], 1 + experts * load[e] - tokens * top_k);
        EXPECT_EQ(sums[e], load[e]);
      }
      EXPECT_NEAR(sums[experts],
                  statistics.values()[experts + 1] + statistics.values()[2 * experts + 3], 1e-5);
      EXPECT_EQ(sums[experts + 1], rows);
      kernels::load_error(s, kernels::LoadErrorArgs<T>{2, experts, counts, false, error, false});
      EXPECT_EQ(error.values(), Values(experts, 0));
    }
}

// Two sequences of two experts, one of which has no token: a quarter of the choices goes to the
// second expert.
TYPED_TEST(ExpertRows, TermsOfTheLossFollowTheirEquations) {
  using T = TypeParam;
  constexpr std::int64_t experts = 2;
  Guarded<T> statistics({0.75, 0.25, 2, 9, 0.5, 0.5, 3, 9}), counts({3, 1, 0, 0});
  const double before = 10, scale = 2;
  cpu::Stream s{1};
  const auto sum = [&](kernels::RouterTerm term, const double* first) {
    double made = -1;
    kernels::router_term(
        s, kernels::RouterTermArgs<T>{term, 2, experts, statistics, counts, first, &made});
    return made;
  };
  EXPECT_DOUBLE_EQ(sum(kernels::RouterTerm::balance, nullptr), 2 * (3 * 0.75 + 1 * 0.25) / 4);
  EXPECT_DOUBLE_EQ(sum(kernels::RouterTerm::balance, &before), 11.25);
  EXPECT_DOUBLE_EQ(sum(kernels::RouterTerm::z, nullptr), 5);
  EXPECT_DOUBLE_EQ(sum(kernels::RouterTerm::z, &before), 15);
  const auto gradient = [&](kernels::RouterTerm term, const double* by, bool accumulate) {
    Guarded<T> d(Values(8, 1));
    kernels::router_term_backward(
        s, kernels::RouterTermBackwardArgs<T>{term, 2, experts, counts, by, d, accumulate});
    return d.values();
  };
  EXPECT_EQ(gradient(kernels::RouterTerm::balance, nullptr, false),
            (Values{1.5, 0.5, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(gradient(kernels::RouterTerm::balance, &scale, true), (Values{4, 2, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(gradient(kernels::RouterTerm::z, &scale, false), (Values{0, 0, 2, 0, 0, 0, 2, 0}));
}

// Two tokens of a sequence and one of another, that take two experts each.
TYPED_TEST(ExpertRows, BalanceOfABatchFollowsItsEquation) {
  using T = TypeParam;
  constexpr std::int64_t experts = 2;
  Guarded<T> statistics({0.75, 0.25, 2, 9, 0.5, 0.5, 3, 9}), counts({3, 1, 1, 1}),
      before({1, 2, 3, 4, 5});
  cpu::Stream s{1};
  const auto summed = [&](bool counts_choices, const T* first) {
    Guarded<T> sums(Values(5, 99));
    kernels::sum_routing(s, kernels::SumRoutingArgs<T>{2, experts, 2, statistics, counts,
                                                       counts_choices, first, sums});
    return sums.values();
  };
  EXPECT_EQ(summed(true, nullptr), (Values{2, 1, 4, 2, 3}));
  EXPECT_EQ(summed(true, before), (Values{3, 3, 7, 6, 8}));
  EXPECT_EQ(summed(false, nullptr), (Values{2, 1, 0, 0, 0}));
  EXPECT_EQ(summed(false, before), (Values{3, 3, 3, 4, 5}));
  Guarded<T> dsums({1, 2, 7, 7, 7});
  Guarded<T> d(Values(8, 1));
  for (const bool more : {false, true}) {
    kernels::sum_routing_backward(
        s, kernels::SumRoutingBackwardArgs<T>{2, experts, 2, counts, dsums, d, more});
    EXPECT_EQ(d.values(),
              more ? (Values{4, 8, 0, 0, 2, 4, 0, 0}) : (Values{2, 4, 0, 0, 1, 2, 0, 0}));
  }
  // Of four tokens, two choices each, this rank has three.
  Guarded<T> sums({2, 1, 4, 2, 3}), totals({2.5, 1.5, 6, 2, 4});
  Guarded<T> none({0, 0, 0, 0, 0});
  double loss = -1;
  const double scale = 2;
  Guarded<T> dtotals(Values(5, 99));
  kernels::batch_balance(s, kernels::BatchBalanceArgs<T>{experts, sums, totals, &loss});
  EXPECT_DOUBLE_EQ(loss, 2 * (6. / 4 * 2 / 4 + 2. / 4 * 1 / 4));
  kernels::batch_balance_backward(
      s, kernels::BatchBalanceBackwardArgs<T>{experts, totals, &scale, dtotals});
  EXPECT_EQ(dtotals.values(), (Values{1.5, 0.5, 0, 0, 0}));
  kernels::batch_balance_backward(
      s, kernels::BatchBalanceBackwardArgs<T>{experts, totals, nullptr, dtotals});
  EXPECT_EQ(dtotals.values(), (Values{0.75, 0.25, 0, 0, 0}));
  kernels::batch_balance(s, kernels::BatchBalanceArgs<T>{experts, sums, none, &loss});
  EXPECT_EQ(loss, 0) << "no token counts";
}

TEST(Excess, TheMostOfMicroBatchesIsKept) {
  cpu::Stream s{1};
  double most = 7;
  const auto keep = [&](double x, bool first) {
    kernels::keep_most(s, {&x, &most, first});
    return most;
  };
  EXPECT_EQ(keep(0.5, true), 0.5);
  EXPECT_EQ(keep(2, false), 2);
  EXPECT_EQ(keep(1, false), 2);
  EXPECT_EQ(keep(0, true), 0);
}

TYPED_TEST(ExpertRows, ProductsOfEachExpertsRows) {
  using T = TypeParam;
  constexpr std::int64_t n = 70, k = 33, all = TestFixture::kSlots, experts = TestFixture::kExperts;
  const Values a = random_values(all * k, 1), w = random_values(experts * n * k, 2),
               bias = random_values(experts * n, 3), dy = random_values(all * n, 4),
               before = random_values(experts * n * k, 5),
               db_before = random_values(experts * n, 6);
  for (const auto& choice : this->choices()) {
    const typename TestFixture::Sorted sorted(choice);
    Values y(all * n), back(all * k), dw(experts * n * k), db(experts * n);
    for (std::int64_t r = 0; r < all; ++r)
      if (const std::int64_t e = sorted.expert_of(r); e >= 0)
        for (std::int64_t j = 0; j < n; ++j) {
          y[r * n + j] = bias[e * n + j];
          db[e * n + j] += dy[r * n + j];
          for (std::int64_t i = 0; i < k; ++i) {
            y[r * n + j] += a[r * k + i] * w[(e * n + j) * k + i];
            back[r * k + i] += dy[r * n + j] * w[(e * n + j) * k + i];
            dw[(e * n + j) * k + i] += dy[r * n + j] * a[r * k + i];
          }
        }
    for (const int threads : {1, 3}) {
      cpu::Stream s{threads};
      Guarded<T> ga(a), gw(w), gbias(bias), gy(all * n), gdy(dy), gback(all * k),
          fresh(experts * n * k), added(before), db_fresh(experts * n), db_added(db_before);
      const std::int32_t* first = sorted.offsets.data();
      kernels::grouped_gemm(
          s, kernels::GroupedGemmArgs<T>{all, experts, n, k, true, first, ga, gw, gbias, gy});
      kernels::grouped_gemm(s, kernels::GroupedGemmArgs<T>{all, experts, k, n, false, first, gdy,
                                                           gw, nullptr, gback});
      for (const bool accumulate : {false, true})
        kernels::grouped_gradients(
            s, kernels::GroupedGradientsArgs<T>{
                   all, experts, n, k, first, gdy, ga, accumulate ? added : fresh,
                   accumulate ? db_added : db_fresh, accumulate, accumulate});
      expect_close(gy.values(), y, tolerance<T>(20), "y");
      expect_close(gback.values(), back, tolerance<T>(40), "dx");
      expect_close(fresh.values(), dw, tolerance<T>(12), "dw");
      expect_close(added.values(), plus(before, dw), tolerance<T>(12), "added dw");
      expect_close(db_fresh.values(), db, tolerance<T>(12), "db");
      expect_close(db_added.values(), plus(db_before, db), tolerance<T>(12), "added db");
    }
  }
}

// Many rows are divided among threads, also within an expert.
template <class T>
class SharedExpertRows : public testing::Test {};
using SharedTypes = testing::Types<float, double, bf16>;
TYPED_TEST_SUITE(SharedExpertRows, SharedTypes);

TYPED_TEST(SharedExpertRows, EveryTeamHasTheProductsOfOneThread) {
  using T = TypeParam;
  constexpr std::int64_t n = 70, k = 34;
  for (const std::vector<std::int32_t>& first : {std::vector<std::int32_t>{0, 40, 47, 47, 400, 401},
                                                 {0, 0, 0, 0, 0, 390},
                                                 {0, 333, 349, 366, 383, 400},
                                                 {0, 1, 2, 3, 4, 5}}) {
    const std::int64_t experts = std::ssize(first) - 1, all = first.back() + 3;
    const Values a = random_values(all * k, 1), w = random_values(experts * n * k, 2),
                 bias = random_values(experts * n, 3), dy = random_values(all * n, 4);
    std::array<std::vector<double>, 4> expected;
    for (const int threads : {1, 2, 3, 5}) {
      cpu::Stream s{threads};
      Guarded<T> ga(a), gw(w), gbias(bias), gy(all * n), gdy(dy), gback(all * k);
      Guarded<Accum<T>> dw(experts * n * k), db(experts * n);
      kernels::grouped_gemm(s, kernels::GroupedGemmArgs<T>{all, experts, n, k, true, first.data(),
                                                           ga, gw, gbias, gy});
      kernels::grouped_gemm(s, kernels::GroupedGemmArgs<T>{all, experts, k, n, false, first.data(),
                                                           gdy, gw, nullptr, gback});
      kernels::grouped_gradients(
          s, kernels::GroupedGradientsArgs<T>{all, experts, n, k, first.data(), gdy, ga, dw, db});
      const std::array<std::vector<double>, 4> got{gy.values(), gback.values(), dw.values(),
                                                   db.values()};
      if (threads == 1) expected = got;
      // oneDNN's products may depend on the number of rows, in rounding.
      const bool exact = std::is_same_v<T, double> || (sizeof(T) == 2 && kernels::has_amx());
      const double bound = exact ? 0 : sizeof(T) == 2 ? 0.2 : tolerance<float>(40);
      for (std::size_t i = 0; i < got.size(); ++i)
        expect_close(got[i], expected[i], bound, i == 0 ? "y" : i == 1 ? "dx" : "gradients");
      for (std::int64_t i = first.back() * n; i < all * n; ++i) EXPECT_EQ(got[0][i], 0);
    }
  }
}

// A part of few rows would be computed by another kernel than the expert's other rows.
TEST(SharedRows, HaveTheBitsOfOneThread) {
  constexpr std::int64_t n = 512, k = 512, all = 160;
  const std::vector<std::int32_t> first{0, 80, 160};
  const Values a = random_values(all * k, 1), w = random_values(2 * n * k, 2);
  Guarded<float> ga(a), gw(w), one(all * n), two(all * n);
  for (const int threads : {1, 2}) {
    cpu::Stream s{threads};
    kernels::grouped_gemm(
        s, kernels::GroupedGemmArgs<float>{all, 2, n, k, true, first.data(), ga, gw, nullptr,
                                           threads == 1 ? one : two});
  }
  EXPECT_TRUE(same_bits(one.raw(), two.raw()));
}

}  // namespace
}  // namespace tfm::test
