#include "data/fill_in_middle.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "data/special_ids.h"

namespace tfm::data {

void FillInMiddle::apply(std::span<std::int32_t> sample, std::span<const std::int64_t> starts,
                         Draws& draws) const {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < sample.size(); ++at) {
    const bool ends = at + 1 == sample.size() || sample[at] == options_.document_end ||
                      std::ranges::binary_search(starts, static_cast<std::int64_t>(at) + 1);
    if (!ends) continue;
    std::span document = sample.subspan(begin, at + 1 - begin);
    if (document.front() == options_.document_begin) document = document.subspan(1);
    if (!document.empty() && document.back() == options_.document_end)
      document = document.first(document.size() - 1);
    rearrange(document, draws);
    begin = at + 1;
  }
}

void FillInMiddle::rearrange(std::span<std::int32_t> document, Draws& draws) const {
  const auto length = std::ssize(document) - 3;
  if (!draws.happens(options_.rate) || length < 1) return;
  const std::int64_t one = draws.below(length + 1), other = draws.below(length + 1);
  const bool spm = draws.happens(options_.spm_rate);
  const std::vector<std::int32_t> text(document.begin(), document.end() - 3);
  auto to = document.begin();
  const auto put = [&](std::int64_t from, std::int64_t end) {
    to = std::copy(text.begin() + from, text.begin() + end, to);
  };
  const auto [first, second] = std::minmax(one, other);
  *to++ = options_.prefix;
  if (!spm) put(0, first);
  *to++ = options_.suffix;
  put(second, length);
  *to++ = options_.middle;
  put(spm ? 0 : first, second);
}

std::optional<FillInMiddle> fill_in_middle(const config::Config& config,
                                           const config::SourceConfig& source,
                                           const tokenizer::Tokenizer& tokenizer,
                                           std::optional<std::int32_t> document_end) {
  const config::FimConfig& fim = source.fim;
  if (fim.rate == 0) return std::nullopt;
  const auto id_of = [&](std::int64_t given, const std::string& key,
                         std::initializer_list<const char*> names) {
    std::optional<std::int32_t> id;
    if (given >= 0) id = static_cast<std::int32_t>(given);
    for (const char* name : names)
      if (!id) id = tokenizer.special_id(name);
    if (!id)
      throw Error(ExitCode::usage, "fim: data.tokenizer has no token of the " + key +
                                       "; expected a vocabulary with <|fim_" + key + "|>, <fim_" +
                                       key + "> or the like, or the id in fim." + key);
    check_fits("fim's token of the " + key, *id, config.model.vocab_size);
    return *id;
  };
  return FillInMiddle(
      {.rate = fim.rate,
       .spm_rate = fim.spm_rate,
       .prefix = id_of(fim.prefix, "prefix",
                       {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<PRE>", "\u2581<PRE>",
                        "<\uFF5Cfim\u2581begin\uFF5C>"}),
       .middle = id_of(fim.middle, "middle",
                       {"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<MID>", "\u2581<MID>",
                        "<\uFF5Cfim\u2581end\uFF5C>"}),
       .suffix = id_of(fim.suffix, "suffix",
                       {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<SUF>", "\u2581<SUF>",
                        "<\uFF5Cfim\u2581hole\uFF5C>"}),
       .document_begin = source.kind().plain_text() || !config.data.tokenizer.empty()
                             ? tokenizer.begin_of_text()
                             : std::nullopt,
       .document_end = document_end,
       .seed = config.train.seed});
}

}  // namespace tfm::data
