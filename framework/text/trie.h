#pragma once
// Maps byte strings to numbers; walked byte by byte.
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace tfm::text {

// Nodes are numbered level by level: the children of a node are consecutive, and their labels are
// contiguous.
class Trie {
 public:
  using Node = std::uint32_t;
  static constexpr Node root = 0, none = 0;  // no child is the root
  static constexpr std::int32_t no_value = -1;

  Trie() : Trie(std::vector<std::pair<std::string_view, std::int32_t>>{}) {}
  // Numbers must not be negative. Of equal keys the last one counts; an empty key is ignored.
  explicit Trie(std::vector<std::pair<std::string_view, std::int32_t>> entries);

  Node child(Node node, char byte) const {
    if (node == root) return from_root_[static_cast<unsigned char>(byte)];
    const Node begin = first_[node], count = first_[node + 1] - begin;
    if (count == 0) return none;
    const void* found = std::memchr(labels_.data() + begin, byte, count);
    return found ? static_cast<Node>(static_cast<const char*>(found) - labels_.data()) : none;
  }
  Node walk(Node node, std::string_view path) const {
    for (char byte : path)
      if ((node = child(node, byte)) == none) return none;
    return node;
  }
  std::int32_t value(Node node) const { return values_[node]; }
  // The number of a key, or no_value.
  std::int32_t find(std::string_view key) const {
    const Node node = walk(root, key);
    return node == none ? no_value : values_[node];
  }
  // The longest key that `text` starts with: its bytes (0: none) and its number.
  std::pair<std::size_t, std::int32_t> longest_prefix(std::string_view text) const {
    std::pair<std::size_t, std::int32_t> best{0, no_value};
    Node node = root;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if ((node = child(node, text[i])) == none) break;
      if (values_[node] != no_value) best = {i + 1, values_[node]};
    }
    return best;
  }

 private:
  std::vector<Node> first_;  // first child of each node; that of the next node ends them
  std::vector<char> labels_;
  std::vector<std::int32_t> values_;
  Node from_root_[256] = {};
};

}  // namespace tfm::text
