#include "data/prepare.h"

#include <algorithm>

#include "core/error.h"
#include "core/task.h"
#include "data/encode_file.h"
#include "data/special_ids.h"
#include "data/token_origin.h"
#include "io/file.h"
#include "tokenizer/tokenizer.h"

namespace tfm::data {

Prepared prepare_tokens(const PrepareOptions& options) {
  const auto tokenizer = tokenizer::load_tokenizer(options.tokenizer);
  std::int64_t vocab_size = tokenizer->vocab_size();
  std::optional<std::int32_t> end;
  if (options.append_eod) {
    end = tokenizer->document_end();
    if (!end)
      throw Error(ExitCode::usage, "--append-eod: tokenizer " + options.tokenizer +
                                       " has no end-of-document token; expected <|endoftext|>, "
                                       "<|end_of_text|>, </s>, [SEP] or <eos>");
    vocab_size = std::max<std::int64_t>(vocab_size, *end + 1);
  }
  const auto begin =
      document_begin(options.add_begin, *tokenizer, "--add-begin: tokenizer " + options.tokenizer);
  if (begin) vocab_size = std::max<std::int64_t>(vocab_size, *begin + 1);
  const auto writer = make_token_writer(options.format, options.output, vocab_size);
  Prepared result;
  bool first = true;
  const auto append = [&](std::span<const std::int32_t> ids) {
    writer->append(ids);
    result.tokens += std::ssize(ids);
  };
  for (const std::string& input : options.inputs)
    result.empty += encode_file(input, options.field, *tokenizer,
                                [&](std::span<const std::int32_t> ids, bool last) {
                                  if (first && begin) append({&*begin, 1});
                                  append(ids);
                                  first = last;
                                  if (!last) return;
                                  if (end) append({&*end, 1});
                                  writer->end_document();
                                  ++result.documents;
                                });
  if (result.tokens == 0)
    throw Error(ExitCode::input, options.inputs.front() +
                                     (options.inputs.size() > 1 ? " and the other inputs" : "") +
                                     ": the input has no text; expected at least one document");
  io::remove_file(origin_path(options.output));  // of what was there before
  writer->publish();
  write_origin(options.output, {.tokenizer = options.tokenizer,
                                .fingerprint = fingerprint(*tokenizer),
                                .tokens = result.tokens,
                                .documents = result.documents,
                                .document_end = end});
  return result;
}

std::int32_t check_all_ids(const TokenFile& file, std::int64_t vocab_size) {
  std::vector<std::int32_t> ids(1 << 20);
  std::int32_t largest = -1;
  Task task("checking " + file.name(), file.size());
  for (std::int64_t at = 0; at < file.size(); at += static_cast<std::int64_t>(ids.size())) {
    ids.resize(std::min(ids.size(), static_cast<std::size_t>(file.size() - at)));
    file.read(at, ids);
    const auto top = std::max_element(ids.begin(), ids.end());
    if (*top >= vocab_size)
      throw Error(ExitCode::input, file.name() + ": token " +
                                       std::to_string(at + (top - ids.begin())) +
                                       ": expected an id below " + std::to_string(vocab_size) +
                                       ", got " + std::to_string(*top));
    largest = std::max(largest, *top);
    task.add(std::ssize(ids));
  }
  return largest;
}

}  // namespace tfm::data
