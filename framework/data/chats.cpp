#include "data/chats.h"

#include <algorithm>
#include <span>

#include "core/error.h"
#include "core/strings.h"
#include "data/best_fit.h"
#include "data/chat_rows.h"
#include "data/special_ids.h"
#include "io/glob.h"

namespace tfm::data {

Chats::Chats(const config::Config& config, const config::SourceConfig& source,
             const tokenizer::Tokenizer& tokenizer, bool endless)
    : length_(config.train.seq_len),
      global_batch_(config.train.global_batch_size),
      endless_(endless) {
  // What a template would make of today's date would differ from one start of a run to the next.
  const tokenizer::ChatTemplate encoder(source.chat_template, config.data.tokenizer_or_bytes(),
                                        tokenizer);
  for (const config::SourcePath& path : source.paths)
    for (const std::string& file : io::expand_glob(path.path))
      each_chat(
          file, source.messages,
          [&](const tokenizer::Chat& chat) {
            const tokenizer::EncodedChat encoded = encoder.encode(chat);
            if (!encoded.ids.empty())
              check_known(*std::ranges::max_element(encoded.ids), config.model.vocab_size,
                          chat.where + ": the tokenizer");
            add(encoded);
            return true;
          },
          [&](const std::string& problem) {
            if (beyond_++ == 0) first_beyond_ = problem;
          });
  if (chats_.empty())
    throw Error(ExitCode::input,
                source.paths[0].path + ": no conversation is left: " + std::to_string(too_long_) +
                    " exceed train.seq_len = " + std::to_string(length_) +
                    " with their first answer, " + std::to_string(unanswered_) + " have none, " +
                    std::to_string(beyond_) + " exceed the limits of templates" +
                    (beyond_ > 0 ? ": " + first_beyond_ : ""));
  std::vector<std::int64_t> sizes;
  for (const Place& chat : chats_) sizes.push_back(chat.end - chat.begin - 1);
  packed_ = best_fit(sizes, length_);
  sampler_.emplace(sequences(), endless && source.shuffle, config.train.seed);
}

void Chats::add(const tokenizer::EncodedChat& chat) {
  const auto room = static_cast<std::size_t>(length_) + 1;
  std::size_t end = chat.ids.size();
  // The first token is no label: nothing stands before it.
  const auto answers = [&](std::size_t to) {
    return to > 1 && std::ranges::count(std::span(chat.mask).subspan(1, to - 1), 1) > 0;
  };
  if (!answers(end)) {
    ++unanswered_;
    return;
  }
  if (end > room) {
    end = 0;
    for (const std::size_t turn : chat.turns)
      if (turn <= room) end = std::max(end, turn);
    if (!answers(end)) {
      ++too_long_;
      return;
    }
    ++cut_;
  }
  chats_.push_back({tokens(), tokens() + static_cast<std::int64_t>(end)});
  ids_.insert(ids_.end(), chat.ids.begin(), chat.ids.begin() + static_cast<std::ptrdiff_t>(end));
  mask_.insert(mask_.end(), chat.mask.begin(),
               chat.mask.begin() + static_cast<std::ptrdiff_t>(end));
}

Dataset::GlobalBatch Chats::batch(std::int64_t index) const {
  if (endless_) return {0, global_batch_};
  return {0, std::clamp<std::int64_t>(sequences() - index * global_batch_, 0, global_batch_)};
}

void Chats::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                 const BatchFields& fields) const {
  for (const auto& [field, values] : fields) std::ranges::fill(values, info_of(field).padding);
  const auto put = [&](Field field, std::int64_t at, std::int32_t value) {
    if (const auto found = fields.find(field); found != fields.end())
      found->second[static_cast<std::size_t>(at)] = value;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t sample = sampler_->sample(index * global_batch_ + first + i);
    std::int64_t at = i * length_;
    std::int32_t document = 0;
    for (const std::size_t chat : packed_[static_cast<std::size_t>(sample)]) {
      for (auto k = static_cast<std::size_t>(chats_[chat].begin);
           k + 1 < static_cast<std::size_t>(chats_[chat].end); ++k, ++at) {
        put(Field::ids, at, ids_[k]);
        put(Field::labels, at, mask_[k + 1] ? ids_[k + 1] : -1);
        put(Field::mask, at, document);
      }
      ++document;
    }
  }
}

namespace {

class ChatObjective final : public Objective {
 public:
  void check_tokenizer(const config::Config& config, const config::SourceConfig& source,
                       const tokenizer::Tokenizer& tokenizer) const override {
    tokenizer::ChatTemplate(source.chat_template, config.data.tokenizer_or_bytes(), tokenizer);
  }
  void check_file(const std::string& path, const config::Config&,
                  const config::SourceConfig& source) const override {
    each_chat(
        path, source.messages, [](const tokenizer::Chat&) { return false; },
        [](const std::string&) {});
  }
  std::vector<nn::BatchShape> shapes(const config::Config& config) const override {
    std::vector<nn::BatchShape> all = Objective::shapes(config);
    all[0].mask = nn::Mask::documents;
    all[0].restarts = config.data.restarts();
    return all;
  }
  std::unique_ptr<Dataset> open(Opening& o) const override {
    auto chats = std::make_unique<Chats>(o.config, o.source, o.tokenizer, o.endless);
    o.tokens = chats->tokens();
    const std::string length = "train.seq_len = " + std::to_string(o.config.train.seq_len);
    o.note(counted(chats->chats(), "conversation") + " in " +
           counted(chats->sequences(), "sequence"));
    if (chats->cut() > 0)
      o.note(counted(chats->cut(), "conversation") + " exceeded " + length +
             " tokens and end with an earlier turn");
    if (chats->too_long() > 0)
      o.note(counted(chats->too_long(), "conversation") +
             " left out: the first answer ends beyond " + length + " tokens");
    if (chats->unanswered() > 0)
      o.note(counted(chats->unanswered(), "conversation") +
             " left out: the assistant wrote nothing");
    if (chats->beyond() > 0)
      o.note(counted(chats->beyond(), "conversation") +
             " left out: beyond the limits of templates; the first: " + chats->first_beyond());
    if (o.endless && chats->sequences() < o.config.train.global_batch_size)
      o.note(counted(chats->sequences(), "sequence") + " for a train.global_batch_size of " +
             std::to_string(o.config.train.global_batch_size) + ": batches repeat sequences");
    return chats;
  }
};

}  // namespace

const Objective& chat_objective() {
  static const ChatObjective objective;
  return objective;
}

}  // namespace tfm::data
