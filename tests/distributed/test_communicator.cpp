// Collectives of every group of every mesh of the job, through shared memory and by messages.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>

#include "comm/flight_recorder.h"
#include "comm/nodewise.h"
#include "job.h"

namespace tfm {
namespace {

using test::job;

template <class T>
Tensor tensor(std::vector<T>& v, std::size_t from = 0) {
  return {v.data() + from, dtype_of<T>, {static_cast<std::int64_t>(v.size() - from)}};
}

// A value that every rank can compute for every other rank.
template <class T>
T small(int rank, std::int64_t i, int salt = 0) {
  return static_cast<T>((rank * 7 + i * 3 + salt) % 13 - 6);
}

// Values of very different size: the order of their sum shows in the result.
template <class T>
T rough(int rank, std::int64_t i, unsigned salt = 0) {
  std::uint64_t h = static_cast<std::uint64_t>(rank * 1000003 + i) + salt * 77777u + 1;
  for (int round = 0; round < 2; ++round) h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u;
  const double v = static_cast<double>(h >> 40) * 0x1p-24 - 0.5;
  return static_cast<T>(v * static_cast<double>(std::uint64_t{1} << (h % 40)));
}

template <class T, class F>
std::vector<T> filled(std::int64_t n, F&& f) {
  std::vector<T> v(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) v[static_cast<std::size_t>(i)] = f(i);
  return v;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Of f(rank, i) over ranks [first, last): of their halves, each made alike.
template <class T, class F>
T sum_of_halves(int first, int last, std::int64_t i, F& f) {
  if (last - first == 1) return f(first, i);
  const int middle = first + (last - first) / 2;
  return static_cast<T>(sum_of_halves<T>(first, middle, i, f) +
                        sum_of_halves<T>(middle, last, i, f));
}
template <class T, class F>
std::vector<T> ordered_sum(int size, std::int64_t n, F&& f) {
  return filled<T>(n, [&](std::int64_t i) { return sum_of_halves<T>(0, size, i, f); });
}

// The ranks of a node; 0: as MPI says.
class Groups : public testing::TestWithParam<int> {
 protected:
  // Every group of every mesh. `salt` tells apart the groups that run at the same time.
  void each(const std::function<void(comm::Communicator&, int salt)>& f) {
    for (const comm::Layout& layout : test::layouts()) {
      const comm::Mesh mesh = comm::make_mesh(job(), layout, GetParam());
      f(mesh.group(comm::kData), mesh.coordinate(comm::Axis::tensor));
      f(mesh.group(comm::Axis::tensor), mesh.place(comm::kData) + 3);
      f(mesh.world(), 11);
    }
  }
};

template <class T>
void sums_are_exact(comm::Communicator& c, int salt) {
  for (std::int64_t n : {0, 1, 2, 3, 7, 63, 64, 65, 1000, 4095, 4097, 8191, 70001, 300007}) {
    auto v = filled<T>(n, [&](std::int64_t i) { return small<T>(c.rank(), i, salt); });
    c.all_reduce(tensor(v));
    EXPECT_EQ(
        v, ordered_sum<T>(c.size(), n, [&](int r, std::int64_t i) { return small<T>(r, i, salt); }))
        << n;
  }
}

TEST_P(Groups, SumsOfSmallIntegersAreExact) {
  each([](comm::Communicator& c, int salt) {
    sums_are_exact<float>(c, salt);
    sums_are_exact<double>(c, salt);
    sums_are_exact<std::int32_t>(c, salt);
    sums_are_exact<std::int64_t>(c, salt);
  });
}

TEST_P(Groups, IntegerSumsWrap) {
  each([](comm::Communicator& c, int) {
    std::vector<std::int64_t> v{std::numeric_limits<std::int64_t>::max() - c.rank()};
    c.all_reduce(tensor(v));
    std::uint64_t sum = 0;
    for (int r = 0; r < c.size(); ++r)
      sum += static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() - r);
    EXPECT_EQ(static_cast<std::uint64_t>(v[0]), sum);
  });
}

TEST_P(Groups, MaximumOfAllRanks) {
  each([](comm::Communicator& c, int) {
    for (std::int64_t n : {1, 5, 20011}) {
      auto v = filled<float>(n, [&](std::int64_t i) { return rough<float>(c.rank(), i); });
      c.all_reduce(tensor(v), comm::Collective::all_reduce_max);
      EXPECT_EQ(v, filled<float>(n, [&](std::int64_t i) {
                  float m = rough<float>(0, i);
                  for (int r = 1; r < c.size(); ++r) m = std::max(m, rough<float>(r, i));
                  return m;
                }));
    }
    for (int bad = 0; bad < c.size(); ++bad) {
      std::vector<double> v{c.rank() == bad ? std::nan("") : 1.0 + c.rank()};
      c.all_reduce(tensor(v), comm::Collective::all_reduce_max);
      EXPECT_TRUE(std::isnan(v[0]));
    }
  });
}

template <class T>
void order_is_of_halves(comm::Communicator& c, int salt) {
  for (std::int64_t n : {3, 3000, 9001, 150001}) {
    const auto value = [&](int r, std::int64_t i) {
      return rough<T>(r, i, static_cast<unsigned>(salt));
    };
    auto v = filled<T>(n, [&](std::int64_t i) { return value(c.rank(), i); });
    c.all_reduce(tensor(v));
    EXPECT_TRUE(same_bits(v, ordered_sum<T>(c.size(), n, value))) << n;
  }
}

TEST_P(Groups, SumsAreMadeOfHalves) {
  each([](comm::Communicator& c, int salt) {
    order_is_of_halves<float>(c, salt);
    order_is_of_halves<double>(c, salt);
  });
  if (job().size() < 4) return;
  const std::int64_t n = 1000;  // the values can tell the order
  const auto halves =
      ordered_sum<float>(4, n, [](int r, std::int64_t i) { return rough<float>(r, i); });
  const auto one_by_one = filled<float>(n, [](std::int64_t i) {
    return rough<float>(0, i) + rough<float>(1, i) + rough<float>(2, i) + rough<float>(3, i);
  });
  EXPECT_FALSE(same_bits(halves, one_by_one));
}

TEST_P(Groups, ReduceScatterThenGatherIsAllReduce) {
  each([](comm::Communicator& c, int salt) {
    for (std::int64_t part : {0, 1, 5, 1023, 33333, 140001}) {
      const std::int64_t n = part * c.size();
      const auto in = filled<float>(n, [&](std::int64_t i) {
        return rough<float>(c.rank(), i, static_cast<unsigned>(salt));
      });
      auto whole = in, scattered = in, apart = in;
      c.all_reduce(tensor(whole));
      const Tensor own{scattered.data() + part * c.rank(), DType::f32, {part}};
      c.reduce_scatter(tensor(scattered), own);
      c.all_gather(own, tensor(scattered));
      EXPECT_TRUE(same_bits(whole, scattered)) << part;
      std::vector<float> mine(static_cast<std::size_t>(part)), all(static_cast<std::size_t>(n));
      c.reduce_scatter(tensor(apart), tensor(mine));
      c.all_gather(tensor(mine), tensor(all));
      EXPECT_TRUE(same_bits(whole, all)) << part;
      EXPECT_TRUE(c.size() == 1 || same_bits(in, apart)) << "the input is kept";
    }
  });
}

template <class T>
void parts_change_places(comm::Communicator& c, int salt) {
  for (const std::int64_t part : {0, 1, 5, 1023, 33333, 140001}) {
    const auto sent = [&](int from, std::int64_t i) { return small<T>(from, i, salt); };
    const auto v = filled<T>(part * c.size(), [&](std::int64_t i) { return sent(c.rank(), i); });
    auto in = v, out = filled<T>(part * c.size(), [](std::int64_t) { return T(-1); }), later = out;
    c.all_to_all(tensor(in), tensor(out));
    c.finish(c.start(comm::Collective::all_to_all, tensor(in), tensor(later)));
    EXPECT_EQ(in, v);
    const auto expected = filled<T>(part * c.size(), [&](std::int64_t i) {
      return sent(static_cast<int>(i / part), part * c.rank() + i % part);
    });
    EXPECT_EQ(out, expected) << part;
    EXPECT_EQ(later, expected) << part;
  }
}

TEST(Layout, GroupsHaveNamesOfTheirOwn) {
  const comm::Layout layout(comm::Layout::Sizes{
      .data = 8, .tensor = 2, .replicas = 2, .pipeline = 2, .context = 2, .expert = 2});
  std::set<std::string> names;
  for (const comm::AxisSet axes : layout.groups()) names.insert(comm::name_of(axes));
  EXPECT_EQ(names.size(), layout.groups().size());
  EXPECT_TRUE(names.contains("expert_shard") && names.contains("shard"));
}

TEST_P(Groups, AllToAllGivesEveryRankItsParts) {
  each([](comm::Communicator& c, int salt) {
    parts_change_places<float>(c, salt);
    parts_change_places<double>(c, salt);
    parts_change_places<std::int32_t>(c, salt);
  });
}

TEST_P(Groups, TensorsNeedNoAlignment) {
  each([](comm::Communicator& c, int salt) {
    for (std::size_t from : {1u, 3u}) {
      auto v =
          filled<float>(30001, [&](std::int64_t i) { return small<float>(c.rank(), i, salt); });
      const auto before = v;
      c.all_reduce(tensor(v, from));
      auto expected = ordered_sum<float>(
          c.size(), 30001, [&](int r, std::int64_t i) { return small<float>(r, i, salt); });
      std::copy_n(before.begin(), from, expected.begin());
      EXPECT_EQ(v, expected);
    }
  });
}

TEST_P(Groups, BroadcastFromEveryRoot) {
  each([](comm::Communicator& c, int salt) {
    for (std::int64_t n : {0, 1, 77, 200003})
      for (int root = 0; root < c.size(); ++root) {
        auto v = filled<std::int32_t>(
            n, [&](std::int64_t i) { return small<std::int32_t>(c.rank(), i, salt); });
        c.broadcast(tensor(v), root);
        EXPECT_EQ(v, filled<std::int32_t>(
                         n, [&](std::int64_t i) { return small<std::int32_t>(root, i, salt); }));
      }
  });
}

TEST_P(Groups, BarrierHoldsUntilTheLastRankComes) {
  const comm::Mesh mesh = comm::make_mesh(job(), {job().size(), 1}, GetParam());
  for (int last = 0; last < job().size(); ++last) {
    mesh.world().barrier();
    double came = 0;
    if (job().rank() == last) {
      const double start = comm::FlightRecorder::now();
      while (comm::FlightRecorder::now() < start + 0.02) {
      }
      came = comm::FlightRecorder::now();
    }
    mesh.world().barrier();
    const double left = comm::FlightRecorder::now();
    std::vector<double> latest{came};
    mesh.world().all_reduce(tensor(latest), comm::Collective::all_reduce_max);
    EXPECT_GE(left, latest[0]);
  }
}

TEST_P(Groups, ManyStartedCollectivesAmongOthers) {
  for (const comm::Layout& layout : test::layouts()) {
    const comm::Mesh mesh = comm::make_mesh(job(), layout, GetParam());
    comm::Communicator &data = mesh.group(comm::kData), &other = mesh.group(comm::Axis::tensor);
    const std::vector<std::int64_t> parts{40000, 3, 0, 100000, 1, 25000};
    std::vector<std::vector<float>> v;
    std::vector<comm::Communicator::Ticket> tickets;
    const auto part_of = [&](std::size_t k) {
      Tensor t = tensor(v[k]);
      t.shape = {parts[k]};
      t.data = v[k].data() + parts[k] * data.rank();
      return t;
    };
    const auto value = [&](int r, std::int64_t i, std::size_t k) {
      return rough<float>(r * layout[comm::Axis::tensor] + mesh.coordinate(comm::Axis::tensor), i,
                          static_cast<unsigned>(k));
    };
    for (std::size_t k = 0; k < parts.size(); ++k) {
      v.push_back(filled<float>(parts[k] * data.size(),
                                [&](std::int64_t i) { return value(data.rank(), i, k); }));
      tickets.push_back(
          k % 2 == 0 ? data.start(comm::Collective::reduce_scatter, tensor(v[k]), part_of(k))
                     : data.start(comm::Collective::all_reduce_sum, tensor(v[k]), tensor(v[k])));
      std::vector<double> w{1.0 + other.rank()};
      other.all_reduce(tensor(w));
      EXPECT_EQ(w[0], other.size() * (other.size() + 1) / 2.0);
      if (k == 3) {  // the same group, between start and finish
        std::vector<std::int32_t> all(static_cast<std::size_t>(data.size()));
        all[static_cast<std::size_t>(data.rank())] = data.rank();
        data.all_reduce(tensor(all));
        EXPECT_EQ(all.back(), data.size() - 1);
      }
    }
    for (std::size_t k = 0; k < parts.size(); ++k) {
      data.finish(tickets[k]);
      const auto n = parts[k] * data.size();
      auto sum =
          ordered_sum<float>(data.size(), n, [&](int r, std::int64_t i) { return value(r, i, k); });
      if (k % 2 == 0) {
        const auto first = v[k].begin() + parts[k] * data.rank();
        v[k] = {first, first + parts[k]};
        sum = {sum.begin() + parts[k] * data.rank(), sum.begin() + parts[k] * (data.rank() + 1)};
      }
      EXPECT_TRUE(same_bits(v[k], sum)) << k;
    }
    if (data.size() > 1) {
      EXPECT_ANY_THROW(data.finish(tickets[0]));
    }
  }
}

// A call of a random sequence: does it and says whether its result is right.
void fuzz_call(comm::Communicator& c, std::mt19937& random, int salt) {
  const auto sizes = std::to_array<std::int64_t>({0, 1, 17, 900, 5000, 66000});
  const std::int64_t part =
                         sizes[random() % sizes.size()] + static_cast<std::int64_t>(random() % 5),
                     n = part * c.size();
  const auto value = [&](int r, std::int64_t i) { return small<double>(r, i, salt); };
  auto v = filled<double>(n, [&](std::int64_t i) { return value(c.rank(), i); });
  const auto sum = ordered_sum<double>(c.size(), n, value);
  const Tensor own{v.data() + part * c.rank(), DType::f64, {part}};
  switch (random() % 7) {
    case 0:
      c.all_reduce(tensor(v));
      break;
    case 1:
      c.reduce_scatter(tensor(v), own), c.all_gather(own, tensor(v));
      break;
    case 2: {
      const auto ticket = c.start(comm::Collective::all_reduce_sum, tensor(v), tensor(v));
      c.barrier(), c.finish(ticket);
      break;
    }
    case 3:
      c.finish(c.start(comm::Collective::reduce_scatter, tensor(v), own));
      c.finish(c.start(comm::Collective::all_gather, own, tensor(v)));
      break;
    case 4: {
      auto from = filled<double>(n, [&](std::int64_t i) { return value(c.previous(), i); }), to = v;
      if (random() % 2)
        c.ring_shift(tensor(v), tensor(to));
      else
        c.finish(c.start(comm::Collective::ring_shift, tensor(v), tensor(to)));
      EXPECT_TRUE(same_bits(to, from));
      v = sum;
      break;
    }
    case 5: {
      auto to = v;
      c.all_to_all(tensor(v), tensor(to));
      c.finish(c.start(comm::Collective::all_to_all, tensor(to), tensor(v)));
      EXPECT_TRUE(
          same_bits(v, filled<double>(n, [&](std::int64_t i) { return value(c.rank(), i); })));
      v = sum;
      break;
    }
    default: {
      v = sum;
      const int root = static_cast<int>(random() % static_cast<unsigned>(c.size()));
      if (c.rank() != root) std::fill(v.begin(), v.end(), -1.0);
      c.broadcast(tensor(v), root);
    }
  }
  EXPECT_TRUE(same_bits(v, sum));
}

TEST_P(Groups, RandomSequences) {
  for (const comm::Layout& layout : test::layouts()) {
    const comm::Mesh mesh = comm::make_mesh(job(), layout, GetParam());
    std::mt19937 random(static_cast<unsigned>(layout.size(comm::kData)));
    for (int i = 0; i < 60; ++i) {
      const comm::AxisSet axes = mesh.layout.groups()[random() % 3];
      comm::Communicator& group = mesh.group(axes);
      fuzz_call(group, random, i + mesh.place(comm::kWorld - axes));
    }
  }
}

TEST_P(Groups, LongMessages) {
  const comm::Mesh mesh = comm::make_mesh(job(), {job().size(), 1}, GetParam());
  const std::int64_t n = (std::int64_t{96} << 20) / job().size() / 4 + 13;
  auto v = filled<float>(n, [&](std::int64_t i) { return small<float>(job().rank(), i); });
  mesh.group(comm::kData).all_reduce(tensor(v));
  const auto period = ordered_sum<float>(job().size(), 13,
                                         [](int r, std::int64_t i) { return small<float>(r, i); });
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < n; ++i)
    wrong += v[static_cast<std::size_t>(i)] != period[static_cast<std::size_t>(i % 13)];
  EXPECT_EQ(wrong, 0);
}

TEST_P(Groups, TextsTravel) {
  const comm::Mesh mesh = comm::make_mesh(job(), {1, job().size()}, GetParam());
  comm::Communicator& c = mesh.world();
  const auto text = [](int r) {
    return std::string(static_cast<std::size_t>(r * 5), static_cast<char>('a' + r));
  };
  const auto all = comm::gather(c, text(c.rank()));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(c.size()));
  for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r], text(static_cast<int>(r)));
  EXPECT_EQ(comm::broadcast(c, text(c.rank() + 1)), text(1));
}

TEST_P(Groups, DifferencesBetweenRanksAreNamed) {
  const comm::Mesh mesh = comm::make_mesh(job(), {job().size(), 1}, GetParam());
  comm::Communicator& c = mesh.world();
  EXPECT_NO_THROW(comm::check_same_on_all_ranks(c, 0xFFFFFFFFFFFFFFFFu, "plan"));
  if (c.size() == 1) return;
  const int odd = c.size() - 1;
  try {
    comm::check_same_on_all_ranks(c, c.rank() == odd ? 5 : 6, "plan");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::environment);
    EXPECT_NE(std::string(e.what()).find("plan differs"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("the majority: " + std::to_string(odd) + ";"),
              std::string::npos)
        << e.what();
  }
}

TEST_P(Groups, TheRecorderSeesWhatRanksDo) {
  const comm::Mesh mesh = comm::make_mesh(job(), {job().size(), 1}, GetParam());
  if (job().size() == 1) return;
  std::vector<float> v(10);
  for (int i = 0; i < 100; ++i) mesh.group(comm::kData).all_reduce(tensor(v));
  mesh.world().barrier();
  mesh.world().barrier();
  for (int r = 0; r < job().size(); ++r) {
    if (!mesh.recorder->visible(r)) continue;
    EXPECT_EQ(mesh.recorder->status(r).entered[comm::kData.bits()], 100u);
    EXPECT_GE(mesh.recorder->status(r).entered[comm::kWorld.bits()], 2u);
    const auto events = mesh.recorder->recent(r);
    EXPECT_LE(events.size(), static_cast<std::size_t>(comm::FlightRecorder::kEvents));
    ASSERT_GE(events.size(), 50u);
    EXPECT_EQ(events[10].str().substr(0, 12), "all_reduce #");
    EXPECT_EQ(events[10].bytes, 40);
    EXPECT_GE(events[10].left, events[10].entered);
  }
  mesh.world().barrier();  // records are read before the next collective of the axis
}

INSTANTIATE_TEST_SUITE_P(Transport, Groups, testing::Values(0, 1),
                         [](const auto& info) { return info.param ? "Messages" : "SharedMemory"; });

// An axis, and the number of its groups in a job.
class Nodewise : public testing::TestWithParam<std::pair<comm::Axis, int>> {
 protected:
  // Whether nodes of `node` ranks have equal shares, of several ranks each, of this rank's group.
  static bool even(const comm::Layout& layout, comm::Axis axis, int node) {
    std::map<int, int> shares;
    for (const int rank : layout.group(job().rank(), axis)) ++shares[rank / node];
    const int first = shares.begin()->second;
    return shares.size() > 1 && first > 1 &&
           std::ranges::all_of(shares, [&](const auto& share) { return share.second == first; });
  }

  static void several_under_way(comm::Communicator& group, int salt) {
    const auto parts = std::to_array<std::int64_t>({70001, 3, 0, 90003});
    const auto sent = [&](int from, std::int64_t i, std::size_t k) {
      return small<float>(from, i, salt + static_cast<int>(k));
    };
    std::vector<std::vector<float>> in, out;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      in.push_back(filled<float>(parts[k] * group.size(),
                                 [&](std::int64_t i) { return sent(group.rank(), i, k); }));
      out.emplace_back(in.back().size());
    }
    std::vector<comm::Communicator::Ticket> tickets;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      tickets.push_back(group.start(comm::Collective::all_to_all, tensor(in[k]), tensor(out[k])));
      if (k == 1) group.barrier();
    }
    for (std::size_t k = 0; k < parts.size(); ++k) {
      group.finish(tickets[k]);
      EXPECT_EQ(out[k], filled<float>(std::ssize(out[k]), [&](std::int64_t i) {
                  return sent(static_cast<int>(i / parts[k]),
                              parts[k] * group.rank() + i % parts[k], k);
                }));
    }
    EXPECT_ANY_THROW(group.finish(tickets[0]));
  }
};

TEST_P(Nodewise, ExchangesAreThoseOfOneNode) {
  const auto [axis, groups] = GetParam();
  const int ranks = job().size();
  if (ranks < 2 * groups) return;
  comm::Layout::Sizes sizes{.data = ranks};
  if (axis == comm::Axis::expert)
    sizes.expert = ranks / groups;
  else
    sizes.data = groups, sizes.context = ranks / groups;
  for (const int node : {2, 3, 4}) {
    const comm::Mesh mesh = comm::make_mesh(job(), sizes, node);
    comm::Communicator& group = mesh.group(axis);
    EXPECT_EQ(dynamic_cast<comm::NodewiseCommunicator*>(&group) != nullptr, even(sizes, axis, node))
        << node;
    const int salt = mesh.place(comm::kWorld - axis);
    parts_change_places<float>(group, salt);
    parts_change_places<double>(group, salt);
    std::mt19937 random(static_cast<unsigned>(group.size()));
    for (int i = 0; i < 10; ++i) fuzz_call(group, random, i + salt);
    several_under_way(group, salt);
  }
}

// Three neighbours: each part of a plain run has one.
INSTANTIATE_TEST_SUITE_P(Axes, Nodewise,
                         testing::Values(std::pair{comm::Axis::expert, 1},
                                         std::pair{comm::Axis::context, 1},
                                         std::pair{comm::Axis::expert, 2}));

// What a rank waits for is known however many collectives came after it.
TEST(FlightRecorder, KnowsWhatARankWaitsFor) {
  std::vector<std::byte> memory(comm::FlightRecorder::record_bytes() + 64);
  void* at = memory.data();
  std::size_t room = memory.size();
  comm::FlightRecorder recorder(comm::Layout(), 0,
                                {std::align(64, comm::FlightRecorder::record_bytes(), at, room)});
  const comm::Event first = recorder.begin(comm::kWorld, comm::Collective::all_reduce_sum, 8);
  for (int i = 0; i < 2 * comm::FlightRecorder::kEvents; ++i)
    recorder.end(recorder.begin(comm::kWorld, comm::Collective::all_to_all, 8));
  recorder.wait(first);
  ASSERT_TRUE(recorder.status(0).waiting);
  EXPECT_EQ(recorder.status(0).waiting->str(), first.str());
  recorder.end(first);
  EXPECT_FALSE(recorder.status(0).waiting);
}

TEST(Mesh, RanksAreDataMajor) {
  for (const comm::Layout& layout : test::layouts()) {
    const comm::Mesh mesh = comm::make_mesh(job(), layout);
    EXPECT_EQ(mesh.rank(), job().rank());
    EXPECT_EQ(mesh.group(comm::kData).size(), layout.size(comm::kData));
    EXPECT_EQ(mesh.group(comm::Axis::tensor).size(), layout[comm::Axis::tensor]);
    EXPECT_EQ(mesh.group(comm::kData).rank(), job().rank() / layout[comm::Axis::tensor]);
    EXPECT_EQ(mesh.group(comm::Axis::tensor).rank(), job().rank() % layout[comm::Axis::tensor]);
    EXPECT_EQ(mesh.world().size(), job().size());
    EXPECT_EQ(mesh.world().rank(), job().rank());
  }
}

// Each rank sends its number to the next one. What it receives from the previous one, later than
// that is sent and with its memory written again where messages are completed.
float passed_on(bool complete) {
  const int ranks = job().size(), rank = job().rank();
  const comm::Mesh mesh = comm::make_mesh(job(), comm::Layout({.pipeline = ranks}));
  std::vector<float> sent(1 << 20, static_cast<float>(rank)), received(sent.size());
  comm::Messages& stages = *mesh.messages;
  if (rank + 1 < ranks) stages.send(tensor(sent), tensor(sent), rank + 1, 0);
  if (complete) usleep(50000 * static_cast<unsigned>(rank));
  if (rank > 0) stages.receive(tensor(received), rank - 1, 0);
  if (complete) {
    stages.complete_sends();
    std::ranges::fill(sent, -1.0f);
  }
  mesh.world().barrier();
  return received.back();
}

// MPI may need the sender's calls for a long message to arrive. Where Open MPI copies from the
// other process by itself, this cannot fail; CTest runs it again without.
TEST(Messages, ArriveWhileTheirSenderWaitsInSharedMemory) {
  if (job().size() == 1) GTEST_SKIP() << "no one to send to";
  EXPECT_EQ(passed_on(false), static_cast<float>(std::max(job().rank() - 1, 0)));
}

TEST(Messages, LeaveTheirBuffersWhenTheyAreComplete) {
  if (job().size() == 1) GTEST_SKIP() << "no one to send to";
  EXPECT_EQ(passed_on(true), static_cast<float>(std::max(job().rank() - 1, 0)));
}

TEST(Mesh, LayoutMustFitTheJob) {
  for (const comm::Layout layout :
       {comm::Layout{job().size() + 1, 1}, comm::Layout{0, 1}, comm::Layout{1, -1}}) {
    try {
      comm::make_mesh(job(), layout);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::environment);
      EXPECT_NE(std::string(e.what()).find("the job has " + std::to_string(job().size())),
                std::string::npos);
    }
  }
}

TEST(Mesh, StagingIsFixed) {
  EXPECT_EQ(comm::Communicator::staging_bytes(1), 0);
  EXPECT_EQ(comm::Communicator::staging_bytes(2), 1 << 20);
  EXPECT_EQ(comm::Communicator::staging_bytes(16), 1 << 20);
  EXPECT_EQ(comm::Communicator::staging_bytes(64), 4 << 20);
}

}  // namespace
}  // namespace tfm
