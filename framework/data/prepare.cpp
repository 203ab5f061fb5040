#include "data/prepare.h"

#include <algorithm>

#include "core/error.h"
#include "core/task.h"
#include "data/encode_file.h"
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
  const auto writer = make_token_writer(options.format, options.output, vocab_size);
  Prepared result;
  for (const std::string& input : options.inputs)
    result.empty += encode_file(input, options.field, *tokenizer,
                                [&](std::span<const std::int32_t> ids, bool last) {
                                  writer->append(ids);
                                  result.tokens += static_cast<std::int64_t>(ids.size());
                                  if (!last) return;
                                  if (end) {
                                    writer->append({&*end, 1});
                                    ++result.tokens;
                                  }
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
