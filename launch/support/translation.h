#pragma once
#include <algorithm>
#include <cstdio>

#include "inference/translator.h"
#include "launch/support/program.h"

namespace tfm::launch {

// Of --beam, --length-penalty and --max-tokens.
inline inference::TranslatorOptions translator_options(const Arguments& args,
                                                       const inference::TextFormat& format) {
  return {.format = format,
          .beams = args.integer("--beam", 1, 1, 1024),
          .length_penalty = args.real("--length-penalty", 1),
          .max_tokens = args.integer("--max-tokens", 0, 1)};
}

// Warns of generation settings of a model that no option replaces and that are not obeyed.
inline void say_what_is_ignored(const Arguments& args, const std::string& dir,
                                const inference::TextFormat& format, bool translates) {
  std::string names;
  const auto add = [&](const std::string& name) { names += (names.empty() ? "" : ", ") + name; };
  for (const std::string& name : format.ignored)
    if (!(name == "num_beams" && args.has("--beam")) &&
        !(name == "length_penalty" && args.has("--length-penalty")))
      add(name);
  if (!translates && !format.banned_ids.empty() &&
      std::ranges::count(format.ignored, "bad_words_ids") == 0)
    add("bad_words_ids");
  if (!names.empty())
    std::fprintf(stderr, "warning: %s asks for %s when it generates, which are not applied\n",
                 dir.c_str(), names.c_str());
}

// Warns of source lines that are longer than the model's positions.
inline void say_what_was_cut(const inference::Translator& translator, std::int64_t max_seq_len) {
  if (translator.cut() > 0)
    std::fprintf(stderr, "warning: %lld lines exceeded %lld tokens and were truncated\n",
                 static_cast<long long>(translator.cut()), static_cast<long long>(max_seq_len - 1));
}

}  // namespace tfm::launch
