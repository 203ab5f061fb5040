#pragma once
// Beam search over one sentence (Graves 2012; Sutskever et al. 2014), independent of the model that
// gives the logits.
#include <cstdint>
#include <span>
#include <vector>

namespace tfm::inference {

struct BeamOptions {
  // 1: greedy search, which ends with the first end.
  std::int64_t beams = 1;
  // X >= 0: the score of a hypothesis is its sum of log-probabilities / its number of tokens^X,
  // with the end counted.
  double length_penalty = 1;
  std::int32_t end = 0;
  std::vector<std::int32_t> other_ends = {};  // these also end a hypothesis
  std::vector<std::int32_t> banned = {};      // in no hypothesis
  std::int64_t max_tokens = 1;                // of a hypothesis, the end included
};

// Each step takes the (ends + 1) * beams most likely continuations of all beams. An end among the
// first `beams` of them finishes a hypothesis; the first `beams` that are no end go on. Of equally
// likely ones the earlier beam, then the lower id, comes first. The search is over after
// max_tokens, or when no beam can still win.
class BeamSearch {
 public:
  BeamSearch(const BeamOptions& options, std::int32_t begin);

  bool done() const { return done_; }
  // The token that each beam appends next, and the beam of the previous step that it continues.
  std::span<const std::int32_t> ids() const { return ids_; }
  std::span<const std::int64_t> parents() const { return parents_; }
  // `logits`: (beams, vocabulary), for the token after ids(). Does nothing when done().
  // Error(numerical) if they are NaN or infinite.
  void advance(std::span<const double> logits);

  // The best hypothesis so far without its end, and its score.
  const std::vector<std::int32_t>& best() const { return best_; }
  double score() const { return best_score_; }

 private:
  struct Beam {
    std::vector<std::int32_t> ids;
    double sum = 0;
  };
  struct Candidate {
    std::int64_t beam = 0;
    std::int32_t id = 0;
    double sum = 0;
    bool operator<(const Candidate& o) const {
      return sum != o.sum ? sum > o.sum : beam != o.beam ? beam < o.beam : id < o.id;
    }
  };
  std::vector<Candidate> candidates(std::span<const double> logits) const;
  void finish(const std::vector<std::int32_t>& ids, double sum, std::int64_t tokens);
  double scored(double sum, std::int64_t tokens) const;

  BeamOptions options_;
  std::vector<Beam> beams_;  // open beams, at most options_.beams
  std::vector<std::int32_t> ids_;
  std::vector<std::int64_t> parents_;
  std::vector<std::int32_t> best_;
  double best_score_;
  std::int64_t tokens_ = 0;  // of every beam
  bool finished_ = false, done_ = false;
};

}  // namespace tfm::inference
