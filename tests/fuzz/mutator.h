#pragma once
// Changed copies of inputs.
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tfm::fuzz {

class Mutator {
 public:
  Mutator(std::uint64_t seed, std::size_t max_bytes) : random_(seed), max_bytes_(max_bytes) {}

  // Words that stand in double quotes in a text, such as the names of members in JSON or in a
  // parser's source.
  void learn(std::string_view text);
  std::string operator()(const std::vector<std::string>& corpus);  // corpus: not empty
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random_() % n); }

 private:
  void change(std::string& bytes, const std::vector<std::string>& corpus);
  void set_number(std::string& bytes);
  void replace_word(std::string& bytes);
  void grow(std::string& bytes);
  std::string word();

  std::mt19937_64 random_;
  std::size_t max_bytes_;
  std::vector<std::string> words_;
};

}  // namespace tfm::fuzz
