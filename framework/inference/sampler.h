#pragma once
// Samples the next token of a decoder from its logits.
#include <cstdint>
#include <span>
#include <vector>

namespace tfm::inference {

struct SamplerOptions {
  double temperature = 1;  // logits are divided by it; 0: always the most likely token
  std::int64_t top_k = 0;  // above 0: only this many of the most likely tokens
  double top_p = 1;        // only the fewest of those that hold this share of their probability
  std::uint64_t seed = 1234;
};

// A token is a function of (options, logits, draw) alone: ranks with the same logits draw the same
// tokens, and a text can be resumed at any token.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);  // Error(usage) where one is out of range

  struct Candidate {
    std::int32_t id;
    double weight;  // relative to the most likely token's, which is 1
  };
  // The tokens that can be drawn, most likely first, of equal ones the smaller id first. With
  // top_p, the token that reaches the share is the last one. Error(numerical) if logits are NaN or
  // infinite.
  std::vector<Candidate> candidates(std::span<const double> logits) const;
  // `draw`: index of the token in its text; each has a random number of its own.
  std::int32_t pick(std::span<const double> logits, std::uint32_t draw) const;
  // pick() with the number of calls so far as `draw`.
  std::int32_t next(std::span<const double> logits) { return pick(logits, draws_++); }

 private:
  SamplerOptions options_;
  std::uint32_t draws_ = 0;
};

}  // namespace tfm::inference
