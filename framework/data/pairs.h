#pragma once
// Sentence pairs: source and target lines, tokenized into memory, batched by similar length.
//
// Source: ids, end. Target: input begin, ids; labels ids, end. A side longer than the longest shape
// is truncated.
//
// With BPE dropout each sequence of each batch is tokenized anew, by numbers of its place in the
// run. The shape of a pair is that of the longest of five tokenizations, of which four have
// dropout; one that does not fit it is drawn again, and after eight the text is encoded without
// dropout.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/draws.h"
#include "data/mixture.h"
#include "data/objective.h"
#include "data/special_ids.h"

namespace tfm::data {

struct PairLength {            // one shape of batches
  std::int64_t length = 0;     // tokens of a side
  std::int64_t sequences = 0;  // of a batch
};

// Text files; gzip and Zstandard are decompressed.
struct PairSpec {
  std::string source, target;      // two files with equal numbers of lines
  std::vector<std::string> files;  // or files of lines source, tab, target
  std::string prefix = {};         // before each source
};

std::vector<PairSpec> pair_files(const config::SourceConfig& source);

// Calls sink(source line, target line, place of the source, place of the target) for each pair in
// order, without line ends. Error(input) names file and line: no pairs, more lines on one side, a
// line without its tab.
using PairSink = std::function<void(std::string_view source, std::string_view target,
                                    const std::string& at, const std::string& target_at)>;
void each_pair(const PairSpec& spec, const PairSink& sink);

// The shares of several paths: `weights`, or if that is empty min(pairs, max_examples) to the power
// 1 / temperature (Raffel et al. 2020, section 3.5.2).
struct PairShares {
  std::vector<double> weights = {};
  double temperature = 1;
  std::int64_t max_examples = 0;  // 0: no limit
};

// Pairs are dealt to shapes in the epoch's order. A batch is complete when its shape's number of
// pairs has come together; the epoch ends with the incomplete batches of each shape. Batches are
// thus a function of (seed, epoch) alone and hold each pair once an epoch; with shares, pairs as
// often as a Mixture has them.
class Pairs final : public Dataset {
 public:
  // `tokenizer` must outlive this if there is dropout. `lengths`: ascending. `begin`: as for
  // sentence_ids(). `source_vocab_size`: 0: vocab_size. Throws as each_pair() and sentence_ids()
  // do, and Error(input) for an id outside the vocabulary.
  Pairs(const std::vector<PairSpec>& specs, const tokenizer::Tokenizer& tokenizer,
        std::vector<PairLength> lengths, std::int64_t vocab_size, bool shuffle, std::uint64_t seed,
        std::int64_t begin = -1, std::int64_t source_vocab_size = 0,
        const std::optional<PairShares>& shares = {}, double bpe_dropout = 0);

  GlobalBatch batch(std::int64_t index) const override;
  std::int64_t batches() const override { return batches_; }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

  // Pairs in the order of each_pair().
  std::vector<std::int64_t> items_of(std::int64_t index) const override;
  std::int64_t samples() const { return mixture_ ? mixture_->samples() : pairs(); }  // of an epoch
  std::int64_t pairs() const { return static_cast<std::int64_t>(sides_[0].size()) - 1; }
  std::int64_t tokens() const { return static_cast<std::int64_t>(ids_[0].size() + ids_[1].size()); }
  std::int64_t cut() const { return cut_; }  // sides that were truncated

 private:
  struct Epoch {
    std::vector<std::int64_t> order;  // pairs, batch by batch
    std::vector<std::int64_t> first;  // of each batch in `order`, and the end
    std::vector<std::size_t> shape;   // of each batch
  };
  std::int64_t pair_at(std::int64_t position) const;  // of an epoch's
  void mix(const PairShares& shares);
  // `key` of the model is the size of the side's vocabulary.
  void add(int side, std::string_view line, const std::string& where, const char* key);
  std::shared_ptr<const Epoch> epoch(std::int64_t number) const;
  std::shared_ptr<const Epoch> deal(std::int64_t number) const;
  std::span<const std::int32_t> side(int side, std::int64_t pair) const;
  std::int64_t length_of(std::int64_t pair) const;  // with dropout the longest that is planned for
  // A side with dropout, of at most `most` ids.
  std::vector<std::int32_t> drawn(int side, std::int64_t pair, std::int64_t most,
                                  Draws& draws) const;

  std::vector<PairLength> lengths_;
  std::int64_t vocab_sizes_[2];  // of either side
  std::int64_t batches_ = 0, cut_ = 0;
  bool shuffle_;
  std::uint64_t seed_;
  SentenceIds special_;
  std::vector<std::int32_t> ids_[2];    // of all source lines, of all target lines
  std::vector<std::int64_t> sides_[2];  // first id of each line, and the end
  std::vector<std::int64_t> first_;     // pair of each path, and the end
  double dropout_;
  const tokenizer::Tokenizer* tokenizers_[2];
  std::string texts_[2];  // with dropout: all lines
  std::vector<std::size_t> text_ends_[2];
  std::optional<Mixture> mixture_;
  std::vector<std::uint16_t> shape_of_;  // of each pair
  mutable std::mutex mutex_;             // guards recent_
  mutable std::map<std::int64_t, std::shared_ptr<const Epoch>> recent_;
};

}  // namespace tfm::data
