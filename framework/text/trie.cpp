#include "text/trie.h"

#include <algorithm>

namespace tfm::text {

Trie::Trie(std::vector<std::pair<std::string_view, std::int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {  // the keys below a node, which share `depth` bytes
    std::size_t begin, end, depth;
  };
  std::vector<Range> nodes{{0, entries.size(), 0}};
  labels_.push_back('\0');
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    auto [at, end, depth] = nodes[n];
    values_.push_back(no_value);
    for (; at < end && entries[at].first.size() == depth; ++at)
      if (depth > 0) values_.back() = entries[at].second;
    first_.push_back(static_cast<Node>(nodes.size()));
    while (at < end) {
      const char label = entries[at].first[depth];
      std::size_t next = at;
      while (next < end && entries[next].first[depth] == label) ++next;
      nodes.push_back({at, next, depth + 1});
      labels_.push_back(label);
      at = next;
    }
  }
  first_.push_back(static_cast<Node>(nodes.size()));
  for (Node child = first_[root]; child < first_[root + 1]; ++child)
    from_root_[static_cast<unsigned char>(labels_[child])] = child;
}

}  // namespace tfm::text
