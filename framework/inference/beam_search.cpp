#include "inference/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace tfm::inference {

BeamSearch::BeamSearch(const BeamOptions& options, std::int32_t begin)
    : options_(options),
      beams_(1),
      ids_(static_cast<std::size_t>(options.beams), begin),
      parents_(ids_.size(), 0),
      best_score_(-std::numeric_limits<double>::infinity()),
      done_(options.max_tokens <= 0) {}

double BeamSearch::scored(double sum, std::int64_t tokens) const {
  return sum / std::pow(static_cast<double>(tokens), options_.length_penalty);
}

std::vector<BeamSearch::Candidate> BeamSearch::candidates(std::span<const double> logits) const {
  const std::size_t vocabulary = logits.size() / static_cast<std::size_t>(options_.beams);
  // Even where every beam's ends come first, as many others follow as there are beams.
  const std::size_t wanted =
      static_cast<std::size_t>(options_.beams) * (2 + options_.other_ends.size());
  std::vector<Candidate> all;
  for (std::size_t b = 0; b < beams_.size(); ++b) {
    const auto row = logits.subspan(b * vocabulary, vocabulary);
    const double top = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double x : row) sum += std::exp(x - top);
    const double base = beams_[b].sum - top - std::log(sum);
    if (!std::isfinite(base))
      throw Error(ExitCode::numerical, "the model's logits are NaN or infinite");
    std::vector<Candidate> best;  // a heap whose front is the worst kept
    for (std::size_t id = 0; id < vocabulary; ++id) {
      const Candidate c{static_cast<std::int64_t>(b), static_cast<std::int32_t>(id),
                        base + row[id]};
      if ((best.size() == wanted && !(c < best.front())) ||
          std::ranges::count(options_.banned, c.id) > 0)
        continue;
      if (best.size() == wanted) std::pop_heap(best.begin(), best.end()), best.pop_back();
      best.push_back(c);
      std::push_heap(best.begin(), best.end());
    }
    all.insert(all.end(), best.begin(), best.end());
  }
  std::sort(all.begin(), all.end());
  all.resize(std::min(all.size(), wanted));
  return all;
}

void BeamSearch::finish(const std::vector<std::int32_t>& ids, double sum, std::int64_t tokens) {
  const double score = scored(sum, tokens);
  if (finished_ && score <= best_score_) return;
  finished_ = true;
  best_score_ = score;
  best_ = ids;
}

void BeamSearch::advance(std::span<const double> logits) {
  if (done_) return;
  const auto width = static_cast<std::size_t>(options_.beams);
  std::vector<Beam> next;
  ++tokens_;
  std::size_t rank = 0;
  for (const Candidate& c : candidates(logits)) {
    const Beam& from = beams_[static_cast<std::size_t>(c.beam)];
    if (c.id == options_.end || std::ranges::count(options_.other_ends, c.id) > 0) {
      if (rank < width) finish(from.ids, c.sum, tokens_);
    } else if (next.size() < width) {
      ids_[next.size()] = c.id;
      parents_[next.size()] = c.beam;
      next.push_back({from.ids, c.sum});
      next.back().ids.push_back(c.id);
    }
    ++rank;
  }
  for (std::size_t b = next.size(); b < width; ++b)
    ids_[b] = options_.end, parents_[b] = static_cast<std::int64_t>(b);
  beams_ = std::move(next);
  if (tokens_ == options_.max_tokens)
    for (const Beam& b : beams_)
      if (options_.beams > 1 || !finished_) finish(b.ids, b.sum, tokens_);
  // Stop when no open beam can win: log-probabilities only fall, and the length penalty favors the
  // longest.
  const double most = beams_.empty() ? -std::numeric_limits<double>::infinity()
                                     : scored(beams_[0].sum, options_.max_tokens);
  done_ = tokens_ == options_.max_tokens || beams_.empty() ||
          (finished_ && (options_.beams == 1 || best_score_ >= most));
  if (done_) std::iota(parents_.begin(), parents_.end(), 0);
}

}  // namespace tfm::inference
