#pragma once
// Conversations for a decoder, which learns what the assistant wrote.
//
// A conversation of n ids takes n - 1 places of a sequence: inputs are all ids but the last, labels
// the ids after them where the assistant wrote those, and -1 elsewhere. Sequences of train.seq_len
// hold several conversations, packed by best fit; attention stays within a conversation, and
// positions count over the whole sequence. A conversation that does not fit ends with the last turn
// of the assistant that does; one whose first such turn does not fit is left out, as is one without
// such a turn.
#include <cstdint>
#include <vector>

#include "data/objective.h"
#include "data/sampler.h"
#include "tokenizer/chat_template.h"

namespace tfm::data {

class Chats final : public Dataset {
 public:
  // Throws as each_chat() and ChatTemplate do, and Error(input) for an id outside the vocabulary,
  // or if no conversation is left.
  Chats(const config::Config& config, const config::SourceConfig& source,
        const tokenizer::Tokenizer& tokenizer, bool endless);
  GlobalBatch batch(std::int64_t index) const override;
  std::int64_t batches() const override { return ceil_div(sequences(), global_batch_); }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

  std::int64_t sequences() const { return std::ssize(packed_); }
  std::int64_t chats() const { return std::ssize(chats_); }
  std::int64_t tokens() const { return std::ssize(ids_); }
  std::int64_t cut() const { return cut_; }
  std::int64_t too_long() const { return too_long_; }  // left out
  // Left out: beyond the limits of templates; and what was said of the first.
  std::int64_t beyond() const { return beyond_; }
  const std::string& first_beyond() const { return first_beyond_; }
  std::int64_t unanswered() const { return unanswered_; }  // left out: no turn of the assistant

 private:
  struct Place {
    std::int64_t begin, end;  // in ids_
  };
  void add(const tokenizer::EncodedChat& chat);

  std::int64_t length_, global_batch_, cut_ = 0, too_long_ = 0, unanswered_ = 0, beyond_ = 0;
  std::string first_beyond_;
  bool endless_;
  std::vector<std::int32_t> ids_;
  std::vector<std::uint8_t> mask_;  // of each id
  std::vector<Place> chats_;
  std::vector<std::vector<std::size_t>> packed_;  // the chats of each sequence
  std::optional<Sampler> sampler_;
};

}  // namespace tfm::data
