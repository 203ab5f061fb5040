#pragma once
// Value types for the grid of a job's ranks: its axes, sets of axes, and the number of ranks along
// each axis.
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tfm::comm {

// The axes of the rank grid, outermost first: consecutive ranks are neighbours along the last axis.
// Data parallelism has three axes: ZeRO shards along `shard` and `expert`, `replica` holds replicas
// of those shards, and ranks along `expert` share the experts of a layer among them.
enum class Axis : std::uint8_t { pipeline, replica, shard, expert, context, tensor };
inline constexpr std::array kAxes{Axis::pipeline, Axis::replica, Axis::shard,
                                  Axis::expert,   Axis::context, Axis::tensor};
std::string_view name_of(Axis a);

template <class T>
struct PerAxis : std::array<T, kAxes.size()> {
  constexpr T& operator[](Axis a) { return (*this)[static_cast<std::size_t>(a)]; }
  constexpr const T& operator[](Axis a) const { return (*this)[static_cast<std::size_t>(a)]; }

 private:
  using std::array<T, kAxes.size()>::operator[];
};

class AxisSet {
 public:
  static constexpr std::size_t kSets = std::size_t{1} << kAxes.size();

  constexpr AxisSet() = default;
  constexpr AxisSet(Axis a) : bits_(static_cast<std::uint8_t>(1u << static_cast<unsigned>(a))) {}
  static constexpr AxisSet all() { return AxisSet(kSets - 1); }

  constexpr bool contains(Axis a) const { return (*this & a) == a; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr int count() const { return std::popcount(bits_); }
  constexpr std::size_t bits() const { return bits_; }  // below kSets

  friend constexpr AxisSet operator|(AxisSet a, AxisSet b) { return AxisSet(a.bits_ | b.bits_); }
  friend constexpr AxisSet operator&(AxisSet a, AxisSet b) { return AxisSet(a.bits_ & b.bits_); }
  // Axes of `a` that are not in `b`.
  friend constexpr AxisSet operator-(AxisSet a, AxisSet b) { return AxisSet(a.bits_ & ~b.bits_); }
  friend constexpr bool operator==(AxisSet, AxisSet) = default;

 private:
  constexpr explicit AxisSet(std::size_t bits) : bits_(static_cast<std::uint8_t>(bits)) {}
  std::uint8_t bits_ = 0;
};
constexpr AxisSet operator|(Axis a, Axis b) { return AxisSet(a) | AxisSet(b); }

inline constexpr AxisSet kData = Axis::replica | Axis::shard | Axis::expert;
// The axes of the group of all ranks.
inline constexpr AxisSet kWorld = AxisSet::all();
// "tensor", "data"; "a+b" for several axes; "world" for all; "shard" for the data ranks among which
// ZeRO shards; "expert_data" and "expert_shard" for those of them that have the same experts.
std::string name_of(AxisSet axes);

// The number of ranks along each axis. A rank's coordinates are the mixed-radix digits of its
// number.
class Layout {
 public:
  struct Sizes {
    int data = 1, tensor = 1;
    int replicas = 1;  // a divisor of `data`
    int pipeline = 1, context = 1;
    int expert = 1;  // a divisor of `data / replicas`
  };
  constexpr Layout(int data = 1, int tensor = 1) : Layout(Sizes{.data = data, .tensor = tensor}) {}
  constexpr Layout(const Sizes& s)
      : sizes_{{s.pipeline, s.replicas, s.data / s.replicas / s.expert, s.expert, s.context,
                s.tensor}} {}

  constexpr int operator[](Axis a) const { return sizes_[a]; }
  // Size of a group of ranks that differ only along `axes`.
  constexpr int size(AxisSet axes) const {
    int n = 1;
    for (const Axis a : kAxes)
      if (axes.contains(a)) n *= sizes_[a];
    return n;
  }
  constexpr int world() const { return size(kWorld); }
  // This layout with one rank along each of `axes`.
  constexpr Layout without(AxisSet axes) const {
    Layout l = *this;
    for (const Axis a : kAxes)
      if (axes.contains(a)) l.sizes_[a] = 1;
    return l;
  }

  constexpr int coordinate(int rank, Axis axis) const {
    for (std::size_t i = kAxes.size(); i-- > 0; rank /= sizes_[kAxes[i]])
      if (kAxes[i] == axis) return rank % sizes_[axis];
    return 0;
  }
  // Index of `rank` within its group along `axes`. Groups keep the order of the ranks.
  constexpr int place(int rank, AxisSet axes) const {
    int at = 0;
    for (const Axis a : kAxes)
      if (axes.contains(a)) at = at * sizes_[a] + coordinate(rank, a);
    return at;
  }
  // The ranks of the group along `axes` that contains `rank`, in ascending order.
  std::vector<int> group(int rank, AxisSet axes) const;
  // Difference in rank number between neighbours along the innermost of `axes` that has several
  // ranks; world() if none has.
  int stride(AxisSet axes) const;
  // The axes of the group of all ranks of one pipeline stage.
  AxisSet stage() const { return group_of(kWorld - Axis::pipeline); }
  // The axis sets that training communicates over; a Mesh has a process group for each.
  std::vector<AxisSet> groups() const;
  // The member of groups() that spans the same ranks as `axes`: it differs only in axes of size
  // one, and in the fewest of them. `axes` itself if there is none.
  AxisSet group_of(AxisSet axes) const;
  // The axes along which ZeRO shards what belongs to a gradient that is reduced over `reduced`.
  AxisSet shared(AxisSet reduced) const {
    return group_of(sizes_[Axis::replica] > 1 ? reduced - Axis::replica : reduced);
  }
  // Sizes by name: "data" and "tensor" always, the others only if above 1.
  std::map<std::string, std::int64_t> sizes() const;
  std::string str(std::string_view equals, std::string_view then) const;
  std::string str() const;  // "data 4 x tensor 2", "data 4 in 2 replicas x tensor 2"

 private:
  PerAxis<int> sizes_;
};

}  // namespace tfm::comm
