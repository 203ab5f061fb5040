#include "train/replicas.h"

#include <algorithm>

#include "comm/consensus.h"
#include "core/host.h"
#include "io/file.h"
#include "train/engine_state.h"

namespace tfm::train {
namespace {

constexpr std::int64_t kStagingBytes = 16 << 20;  // of the host, for a device's memory

// Adds a device's memory to a hash.
class Hasher {
 public:
  explicit Hasher(device::Device& device) : device_(device) {
    if (!device.is_cpu()) staging_ = device.allocate_host(kStagingBytes);
  }
  std::int64_t operator()(const std::vector<std::span<const std::byte>>& memory) {
    io::Checksum sum;
    for (std::span<const std::byte> bytes : memory)
      while (!bytes.empty()) {
        const auto part = bytes.first(staging_ ? std::min<std::size_t>(bytes.size(), kStagingBytes)
                                               : bytes.size());
        if (staging_)
          device::download(device_.stream(), staging_.get(), part.data(), std::ssize(part));
        sum.add(staging_ ? std::span<const std::byte>(staging_.get(), part.size()) : part);
        bytes = bytes.subspan(part.size());
      }
    return static_cast<std::int64_t>(sum.first_word());
  }

 private:
  device::Device& device_;
  std::shared_ptr<std::byte> staging_;
};

// "rank 1 (node3), rank 2 (node4)"
std::string names_of(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  std::string text;
  for (const int r : ranks)
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(r) + " (" +
            hosts[static_cast<std::size_t>(r)] + ")";
  return text;
}

// The ranks of each value that a group of copies has, the most frequent first.
std::vector<std::vector<int>> by_value(const std::vector<int>& group,
                                       const std::function<std::int64_t(int rank)>& hash) {
  std::map<std::int64_t, std::vector<int>> ranks;
  for (const int r : group) ranks[hash(r)].push_back(r);
  std::vector<std::vector<int>> all;
  for (auto& [value, of] : ranks) all.push_back(std::move(of));
  std::ranges::sort(all, [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  return all;
}

// "rank 1 (node3) differs from 3 other ranks"; without a majority, who differs from whom.
std::string difference(const std::vector<std::vector<int>>& values,
                       const std::vector<std::string>& hosts) {
  if (values[0].size() == values[1].size()) {
    std::string text;
    for (const auto& ranks : values) text += (text.empty() ? "" : " vs. ") + names_of(ranks, hosts);
    return text;
  }
  std::vector<int> odd;
  for (std::size_t v = 1; v < values.size(); ++v)
    odd.insert(odd.end(), values[v].begin(), values[v].end());
  std::ranges::sort(odd);
  return names_of(odd, hosts) + (odd.size() == 1 ? " differs" : " differ") + " from " +
         std::to_string(values[0].size()) + " ranks that agree";
}

}  // namespace

void check_replicas(Engine& engine, const std::string& what) {
  const comm::Mesh& mesh = engine.plan().mesh;
  if (mesh.layout.world() == 1) return;
  const comm::AxisSet stage = mesh.layout.stage();
  const std::vector<int> members = mesh.layout.group(mesh.rank(), stage);
  const std::vector<ReplicatedTensor> tensors = replicated_tensors(engine);
  Hasher hash(engine.device());
  std::vector<std::int64_t> mine;
  for (const ReplicatedTensor& t : tensors) mine.push_back(hash(t.memory));
  std::vector<std::int64_t> all(mine.size() * members.size());
  mesh.stage().all_gather({mine.data(), DType::i64, {std::ssize(mine)}},
                          {all.data(), DType::i64, {std::ssize(all)}});

  std::size_t differing = 0;
  std::string name;
  std::vector<std::vector<int>> first;  // ranks by value, of the first tensor that differs
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::map<int, std::vector<int>> groups;
    for (const int r : members)
      groups[mesh.layout.place(r, comm::kWorld - tensors[i].copies)].push_back(r);
    for (const auto& [group, ranks] : groups) {
      auto values = by_value(ranks, [&](int r) {
        const auto place = static_cast<std::size_t>(mesh.layout.place(r, stage));
        return all[place * mine.size() + i];
      });
      if (values.size() == 1) continue;
      if (differing++ == 0) name = tensors[i].name, first = std::move(values);
    }
  }
  if (differing == 0) return;
  const auto names = comm::gather(mesh.stage(), host_name());
  std::vector<std::string> hosts(static_cast<std::size_t>(mesh.layout.world()));
  for (std::size_t m = 0; m < members.size(); ++m)
    hosts[static_cast<std::size_t>(members[m])] = names[m];
  throw Error(
      ExitCode::retryable,
      what + ": replicas of " + name + " differ: " + difference(first, hosts) +
          (differing > 1 ? ", and " + std::to_string(differing - 1) + " more tensors" : "") +
          "; no checkpoint of this step was written, earlier ones are untouched: check the "
          "memory of the host and restart to resume from the latest checkpoint");
}

}  // namespace tfm::train
