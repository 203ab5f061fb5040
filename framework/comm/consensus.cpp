#include "comm/consensus.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace tfm::comm {
namespace {

Tensor tensor_of(std::vector<std::int64_t>& v) {
  return {v.data(), DType::i64, {static_cast<std::int64_t>(v.size())}};
}

std::vector<std::int64_t> gather_words(Communicator& group, std::vector<std::int64_t> mine) {
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(tensor_of(mine), tensor_of(all));
  return all;
}

// The text's bytes in words, with room for `bytes`.
std::vector<std::int64_t> words(const std::string& text, std::size_t bytes) {
  std::vector<std::int64_t> w((std::max(bytes, text.size()) + 7) / 8);
  if (!text.empty()) std::memcpy(w.data(), text.data(), text.size());
  return w;
}

}  // namespace

std::vector<std::string> gather(Communicator& group, const std::string& text) {
  const auto lengths = gather_words(group, {static_cast<std::int64_t>(text.size())});
  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  if (longest == 0) return std::vector<std::string>(lengths.size());
  const auto mine = words(text, longest);
  const auto all = gather_words(group, mine);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    texts.emplace_back(reinterpret_cast<const char*>(all.data() + r * mine.size()),
                       static_cast<std::size_t>(lengths[r]));
  return texts;
}

std::string broadcast(Communicator& group, const std::string& text) {
  std::vector<std::int64_t> length{static_cast<std::int64_t>(text.size())};
  group.broadcast(tensor_of(length), 0);
  const auto bytes = static_cast<std::size_t>(length[0]);
  auto data = words(group.rank() == 0 ? text : std::string(), bytes);
  group.broadcast(tensor_of(data), 0);
  return bytes ? std::string(reinterpret_cast<const char*>(data.data()), bytes) : std::string();
}

std::string broadcast_when_ready(Communicator& group,
                                 const std::function<std::optional<std::string>()>& ready) {
  while (true) {
    std::optional<std::string> text;
    if (group.rank() == 0) text = ready();
    if (broadcast(group, text.has_value())) return broadcast(group, text.value_or(""));
  }
}

void check_same_on_all_ranks(Communicator& group, std::uint64_t hash, const std::string& what,
                             const std::string& remedy) {
  const auto all = gather_words(group, {static_cast<std::int64_t>(hash)});
  std::map<std::int64_t, int> votes;
  for (auto h : all) ++votes[h];
  if (votes.size() == 1) return;
  const auto common = *std::max_element(all.begin(), all.end(),
                                        [&](auto a, auto b) { return votes[a] < votes[b]; });
  std::string ranks;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r] != common) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
  throw Error(ExitCode::environment, what + " differs between the " + std::to_string(all.size()) +
                                         " ranks; these deviate from the majority: " + ranks +
                                         "; " + remedy);
}

}  // namespace tfm::comm
