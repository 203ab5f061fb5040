#include "data/special_ids.h"

#include "core/error.h"

namespace tfm::data {

namespace {

std::optional<std::int32_t> sentence_end(const tokenizer::Tokenizer& tokenizer) {
  const tokenizer::SpecialIds special = tokenizer.special_ids();
  return special.end        ? special.end
         : special.separate ? special.separate
                            : tokenizer.end_of_document();
}

}  // namespace

SentenceIds sentence_ids(const tokenizer::Tokenizer& tokenizer, std::int64_t given) {
  const tokenizer::SpecialIds special = tokenizer.target().special_ids();
  const auto end = sentence_end(tokenizer.target()), source_end = sentence_end(tokenizer);
  const auto begin = special.begin      ? special.begin
                     : special.classify ? special.classify
                     : special.pad      ? special.pad
                                        : end;
  if (!end || !begin || !source_end)
    throw Error(ExitCode::usage,
                std::string(end ? "data.source_tokenizer" : "data.tokenizer") +
                    " has no id that ends a sentence; expected a vocabulary with </s>, "
                    "<eos>, [SEP] or <|endoftext|>");
  return {given >= 0 ? static_cast<std::int32_t>(given) : *begin, *end, *source_end};
}

std::optional<std::int32_t> document_begin(config::AddBegin add,
                                           const tokenizer::Tokenizer& tokenizer,
                                           const std::string& where) {
  if (add == config::AddBegin::off) return std::nullopt;
  const auto asked = tokenizer.begin_of_text();
  if (asked || add == config::AddBegin::automatic) return asked;
  const auto begin = tokenizer.special_ids().begin;
  if (!begin)
    throw Error(ExitCode::usage, where +
                                     " has no begin-of-text id; expected a vocabulary with <s>, "
                                     "<|begin_of_text|>, <|endoftext|> or <bos>");
  return begin;
}

void check_known(std::int32_t id, std::int64_t vocab_size, const std::string& where,
                 const std::string& key) {
  if (id >= vocab_size)
    throw Error(ExitCode::input, where + " gives id " + std::to_string(id) + ", but model." + key +
                                     " is " + std::to_string(vocab_size) + "; expected at least " +
                                     std::to_string(id + 1));
}

void check_fits(const std::string& what, std::int32_t id, std::int64_t vocab_size) {
  if (id >= vocab_size)
    throw Error(ExitCode::usage, "model.vocab_size " + std::to_string(vocab_size) +
                                     " is too small for " + what + ", id " + std::to_string(id) +
                                     "; expected at least " + std::to_string(id + 1));
}

}  // namespace tfm::data
