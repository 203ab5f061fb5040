// Warp and block instructions: fragments as in PTX ISA, "Matrix Fragments for mma.m16n8k16" and
// "ldmatrix".
#include <algorithm>
#include <cmath>

#include "machine.h"

namespace tfm::emulator {
namespace {

float half_value(DType type, std::uint32_t bits) {
  const auto u = static_cast<std::uint16_t>(bits);
  if (type == DType::f16) {
    f16 x;
    return x.bits = u, x;
  }
  bf16 x;
  return x.bits = u, x;
}

// The j-th 16-bit half of a lane's registers.
std::uint32_t half_of(const std::uint32_t* r, int j) { return r[j / 2] >> j % 2 * 16 & 0xFFFFu; }

struct Matrices {
  float a[16][16], b[16][8], c[16][8];
};

void multiply(Matrices& m, int row) {
  const float* a = m.a[row];
  float* c = m.c[row];
  if (options.sum == Sum::chain || options.sum == Sum::reversed) {
    for (int k = 0; k < 16; ++k) {
      const int at = options.sum == Sum::chain ? k : 15 - k;
      for (int n = 0; n < 8; ++n) c[n] += a[at] * m.b[at][n];
    }
    return;
  }
  const int step = options.sum == Sum::once_rounded ? 16 : 8;
  for (int n = 0; n < 8; ++n)
    for (int k = 0; k < 16; k += step) {
      double exact = c[n];
      for (int i = k; i < k + step; ++i) exact += static_cast<double>(a[i]) * m.b[i][n];
      c[n] = static_cast<float>(exact);
      if (step == 8 && std::abs(static_cast<double>(c[n])) > std::abs(exact))
        c[n] = std::nextafter(c[n], 0.0f);
    }
}

void refuse_poison(const Warp& warp, int lane) {
  const Request& q = warp.lanes[lane].request;
  for (int j = 0; j < 12; ++j)
    if (half_of(j < 8 ? q.a : q.b, j < 8 ? j : j - 8) == 0xFFFFu)
      fail("poison", "mma " + describe(q.at) + ": lane " + std::to_string(lane) + " of warp " +
                         std::to_string(warp.first_thread / kWarp) + " brings an element of " +
                         (j < 8 ? "a" : "b") + " that was never written");
}

void execute_mma(Warp& warp) {
  ++counts.mma;
  const auto type = static_cast<DType>(warp.lanes[0].request.variant);
  Matrices m;
  for (int lane = 0; lane < kWarp; ++lane) {
    refuse_poison(warp, lane);
    const Request& q = warp.lanes[lane].request;
    const int g = lane / 4, t = lane % 4;
    for (int j = 0; j < 8; ++j)
      m.a[g + j / 2 % 2 * 8][2 * t + j % 2 + j / 4 * 8] = half_value(type, half_of(q.a, j));
    for (int j = 0; j < 4; ++j)
      m.b[2 * t + j % 2 + j / 2 * 8][g] = half_value(type, half_of(q.b, j));
    for (int j = 0; j < 4; ++j) m.c[g + j / 2 * 8][2 * t + j % 2] = q.c[j];
  }
  for (int row = 0; row < 16; ++row) multiply(m, row);
  for (int lane = 0; lane < kWarp; ++lane)
    for (int j = 0; j < 4; ++j)
      warp.lanes[lane].request.c[j] = m.c[lane / 4 + j / 2 * 8][2 * (lane % 4) + j % 2];
}

void execute_ldmatrix(Warp& warp) {
  ++counts.ldmatrix;
  const unsigned variant = warp.lanes[0].request.variant;
  const bool transposed = variant >= 8;
  for (int i = 0; i < static_cast<int>(variant % 8); ++i) {
    std::uint16_t m[8][8];
    unsigned banks = 0;
    for (int row = 0; row < 8; ++row) {
      const Request& q = warp.lanes[8 * i + row].request;
      const auto refuse = [&](const char* kind, const std::string& why) {
        fail(kind, "ldmatrix " + describe(q.at) + ": the row of lane " +
                       std::to_string(8 * i + row) + why);
      };
      if (!in_shared(q.row, 16))
        refuse("bounds",
               " is at offset " + std::to_string(shared_offset(q.row)) + " of shared memory");
      if (shared_offset(q.row) % 16)
        refuse("alignment", " does not begin at a multiple of 16 bytes");
      shared_read(q.row, 16, warp.first_thread, true, q.at);
      const unsigned bank = 1u << shared_offset(q.row) / 16 % 8;
      if (banks & bank) ++counts.bank_conflicts;
      banks |= bank;
      std::memcpy(m[row], q.row, 16);
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      const int g = lane / 4, t = 2 * (lane % 4);
      const std::uint32_t low = transposed ? m[t][g] : m[g][t],
                          high = transposed ? m[t + 1][g] : m[g][t + 1];
      warp.lanes[lane].request.r[i] = low | high << 16;
    }
  }
}

// 16 bytes of the right factor of a product of warpgroups, where `p` is before chunks of a row
// change places.
const char* swizzled(const char* p) {
  const long at = shared_offset(p);
  return machine.shared + (at ^ (at >> 7 & 7) << 4);
}

// A warp's share of it: 16 rows of the left factor.
void execute_warpgroup_mma(Warp& warp) {
  ++counts.warpgroup_mma;
  const Request& first = warp.lanes[0].request;
  const auto type = static_cast<DType>(first.variant % 16);
  const bool transposed = first.variant >= 16;
  const auto refuse = [&](const char* kind, const std::string& why) {
    fail(kind, "warpgroup_mma " + describe(first.at) + why);
  };
  const long start = shared_offset(first.row), rows = transposed ? 16 : first.operand,
             row_bytes = transposed ? first.operand * 2 : 32;
  if (!in_shared(first.row, rows * 128 - 128 + row_bytes))
    refuse("bounds", ": the right factor begins at offset " + std::to_string(start));
  if (start % 16 || start / 128 % 8 || start % 128 + row_bytes > 128)
    refuse("alignment", ": the right factor begins at offset " + std::to_string(start));
  std::vector<const char*> hidden;
  for (const Lane& lane : machine.lanes)
    hidden.insert(hidden.end(), lane.hidden.begin(), lane.hidden.end());
  std::vector<std::uint16_t> right(rows * row_bytes / 2);
  for (long row = 0; row < rows; ++row)
    for (long chunk = 0; chunk < row_bytes; chunk += 16) {
      const char* from = swizzled(first.row + row * 128 + chunk);
      shared_read(from, 16, warp.first_thread, true, first.at);
      if (std::find(hidden.begin(), hidden.end(), from) != hidden.end())
        refuse("not shown", " reads offset " + std::to_string(shared_offset(from)) +
                                ", which a copy brought and no fence showed");
      std::memcpy(&right[(row * row_bytes + chunk) / 2], from, 16);
    }
  if (std::find(right.begin(), right.end(), 0xFFFF) != right.end())
    refuse("poison", ": an element of b was never written");
  Matrices m;
  for (int lane = 0; lane < kWarp; ++lane) {
    const Request& q = warp.lanes[lane].request;
    if (q.row != first.row) refuse("divergence", ": lanes bring different right factors");
    for (int j = 0; j < 8; ++j) {
      if (half_of(q.a, j) == 0xFFFFu) refuse("poison", ": an element of a was never written");
      m.a[lane / 4 + j / 2 % 2 * 8][2 * (lane % 4) + j % 2 + j / 4 * 8] =
          half_value(type, half_of(q.a, j));
    }
  }
  for (int column = 0; column < first.operand; column += 8) {
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 8; ++n)
        m.b[k][n] = half_value(type, transposed ? right[k * row_bytes / 2 + column + n]
                                                : right[(column + n) * 16 + k]);
    for (int lane = 0; lane < kWarp; ++lane)
      for (int j = 0; j < 4; ++j)
        m.c[lane / 4 + j / 2 * 8][2 * (lane % 4) + j % 2] =
            warp.lanes[lane].request.c[column / 2 + j];
    for (int row = 0; row < 16; ++row) multiply(m, row);
    if (options.wrong_warpgroups) ++m.c[15][7];
    for (int lane = 0; lane < kWarp; ++lane)
      for (int j = 0; j < 4; ++j)
        warp.lanes[lane].request.c[column / 2 + j] =
            m.c[lane / 4 + j / 2 * 8][2 * (lane % 4) + j % 2];
  }
}

void execute_barrier(Warp& warp) { ++warp.epoch; }

void execute_shuffle(Warp& warp) {
  std::uint64_t values[kWarp];
  for (int i = 0; i < warp.size; ++i) values[i] = warp.lanes[i].request.value;
  for (int i = 0; i < warp.size; ++i) {
    Request& q = warp.lanes[i].request;
    int from = i;
    switch (static_cast<Shuffle>(q.variant)) {
      case Shuffle::idx:
        from = q.operand % kWarp;
        break;
      case Shuffle::up:
        from = i >= q.operand ? i - q.operand : i;
        break;
      case Shuffle::down:
        from = i + q.operand < kWarp ? i + q.operand : i;
        break;
      case Shuffle::exclusive_or:
        from = i ^ q.operand;
        break;
    }
    if (from < 0 || from >= warp.size)
      fail("divergence", "shuffle " + describe(q.at) + ": lane " + std::to_string(i) +
                             " reads a lane that is not there");
    q.value = values[from];
  }
}

void execute_ballot(Warp& warp) {
  std::uint64_t bits = 0;
  for (int i = 0; i < warp.size; ++i) bits |= warp.lanes[i].request.value << i;
  for (int i = 0; i < warp.size; ++i) warp.lanes[i].request.value = bits;
}

void require_whole_warp(const char* name, Place at) {
  if (machine.warps[machine.running / kWarp].size < kWarp)
    fail("divergence",
         std::string(name) + " " + describe(at) + " in a warp of fewer than 32 lanes");
}

void move(const Copy& c) {
  std::memcpy(c.to, c.from, c.used);
  std::memset(c.to + c.used, 0, c.bytes - c.used);
}

}  // namespace

void block_barrier(Place at) {
  if (!suppressed(at, "block_barrier")) wait_for({.name = "block_barrier", .at = at});
}
void warp_barrier(Place at) {
  if (!suppressed(at, "warp_barrier"))
    wait_for({.run = execute_barrier, .name = "warp_barrier", .at = at});
}
std::uint64_t shuffle(Shuffle mode, std::uint64_t value, int operand, Place at) {
  wait_for({.run = execute_shuffle,
            .name = "shuffle",
            .at = at,
            .variant = static_cast<unsigned>(mode),
            .value = value,
            .operand = operand});
  return machine.lanes[machine.running].request.value;
}
unsigned ballot(bool p, Place at) {
  wait_for({.run = execute_ballot, .name = "ballot", .at = at, .value = p});
  return static_cast<unsigned>(machine.lanes[machine.running].request.value);
}
void mma(DType type, float* c, const std::uint32_t* a, const std::uint32_t* b, Place at) {
  require_whole_warp("mma", at);
  wait_for({.run = execute_mma,
            .name = "mma",
            .at = at,
            .variant = static_cast<unsigned>(type),
            .c = c,
            .a = a,
            .b = b});
}
void ldmatrix(int matrices, bool transposed, std::uint32_t* r, const void* row, Place at) {
  require_whole_warp("ldmatrix", at);
  wait_for({.run = execute_ldmatrix,
            .name = "ldmatrix",
            .at = at,
            .variant = static_cast<unsigned>(matrices + (transposed ? 8 : 0)),
            .r = r,
            .row = static_cast<const char*>(row)});
}

void warpgroup_mma(DType type, bool transposed, int columns, float* c, const std::uint32_t* a,
                   const void* b, Place at) {
  require_whole_warp("warpgroup_mma", at);
  if (machine.warps.size() % 4)
    fail("divergence", "warpgroup_mma " + describe(at) + " in a block that is not of warpgroups");
  wait_for({.run = execute_warpgroup_mma,
            .name = "warpgroup_mma",
            .at = at,
            .variant = static_cast<unsigned>(type) + (transposed ? 16 : 0),
            .c = c,
            .a = a,
            .row = static_cast<const char*>(b),
            .operand = columns});
}
void show_to_warpgroups(Place at) {
  if (!suppressed(at, "show_to_warpgroups")) machine.lanes[machine.running].hidden.clear();
}

void copy_async(void* shared, const void* global, int bytes, int used, Place at) {
  ++counts.copies;
  if (!in_shared(shared, bytes))
    fail("bounds", "copy_async " + describe(at) + " to offset " +
                       std::to_string(shared_offset(shared)) + " of shared memory");
  if (shared_offset(shared) % bytes || reinterpret_cast<std::uintptr_t>(global) % bytes)
    fail("alignment", "copy_async " + describe(at));
  if (used < 0 || used > bytes)
    fail("bounds", "copy_async " + describe(at) + " of " + std::to_string(used) + " bytes");
  if (used > 0) global_read(global, used, at);
  shared_write(shared, bytes, machine.running, Write::async_start, at);
  Copy c{static_cast<char*>(shared), static_cast<const char*>(global), bytes, used, false, at};
  c.moved =
      options.copies == Copies::at_issue || (options.copies == Copies::either && next_random() % 2);
  if (c.moved)
    move(c);
  else
    std::memset(shared, 0xFF, bytes);
  machine.lanes[machine.running].copies.push_back(c);
}
void copy_async_commit() {
  Lane& lane = machine.lanes[machine.running];
  lane.groups.push_back(lane.copies.size());
}
void copy_async_wait(int pending, Place at) {
  if (suppressed(at, "copy_async_wait")) return;
  Lane& lane = machine.lanes[machine.running];
  if (std::ssize(lane.groups) <= pending) return;
  const std::size_t finished = lane.groups.size() - pending, end = lane.groups[finished - 1];
  for (std::size_t i = 0; i < end; ++i) {
    const Copy& c = lane.copies[i];
    if (!c.moved) move(c);
    shared_write(c.to, c.bytes, machine.running, Write::async_end, c.at);
    if (options.warpgroups) lane.hidden.push_back(c.to);
  }
  lane.copies.erase(lane.copies.begin(), lane.copies.begin() + end);
  lane.groups.erase(lane.groups.begin(), lane.groups.begin() + finished);
  for (std::size_t& group : lane.groups) group -= end;
}

void check_alignment(const void* p, std::size_t bytes, Place at) {
  if (reinterpret_cast<std::uintptr_t>(p) % bytes)
    fail("alignment", "access " + describe(at) + " of an address that is not a multiple of " +
                          std::to_string(bytes));
}

void check_global(const void* p, Place at) {
  if (in_shared(p, 1))
    fail("address space", "access " + describe(at) + " of shared memory as of global memory");
}

float perturbed(float x) {
  const int noise = options.exp2_noise;
  if (noise == 0 || !(x > 0 && x < 1e30f)) return x;
  const auto step = static_cast<std::int32_t>(next_random() % (2 * noise + 1)) - noise;
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(x) + step);
}

}  // namespace tfm::emulator
