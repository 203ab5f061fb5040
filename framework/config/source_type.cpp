#include "config/source_type.h"

#include <algorithm>

#include "core/error.h"

namespace tfm::config {

bool SourceType::trains(Family family) const {
  return std::ranges::find(families, family) != families.end();
}

std::vector<SourceType>& source_types() {
  using enum Family;
  using Files = SourceType::Files;
  static std::vector<SourceType> all{
      {.name = "tokens", .families = {decoder}, .files = Files::tokens, .fills_middle = true},
      {.name = "text", .families = {decoder}, .files = Files::text, .fills_middle = true},
      {.name = "pairs",
       .families = {encoder_decoder},
       .files = Files::text,
       .pairs = true,
       .documents = false},
      {.name = "mlm",
       .families = {encoder},
       .mask_probability = 0.15,
       .next_sentence = true,
       .whole_words = true},
      {.name = "span_corruption",
       .families = {encoder_decoder},
       .documents = false,
       .mask_probability = 0.15,
       .mean_span_length = 3,
       .own_lengths = true},
      {.name = "denoise",
       .families = {encoder_decoder},
       .documents = false,
       .mask_probability = 0.3,
       .mean_span_length = 3,
       .whole_words = true,
       .denoises = true},
      {.name = "prefix_lm",
       .families = {encoder_decoder, decoder},
       .documents = false,
       .cuts = true},
      {.name = "labelled",
       .families = {encoder, decoder, encoder_decoder},
       .files = Files::text,
       .documents = false,
       .mask_probability = 0.15,
       .labelled = true,
       .any_file_weights = false},
      {.name = "chat",
       .families = {decoder},
       .files = Files::text,
       .documents = false,
       .chats = true,
       .any_file_weights = false},
  };
  return all;
}

const std::string& first_type(Family family, SourceType::Files files) {
  using enum SourceType::Files;
  const auto found = std::ranges::find_if(source_types(), [&](const SourceType& t) {
    return t.trains(family) && (files == any || t.files == any ||
                                (t.files == files && !t.pairs && !t.labelled && !t.chats));
  });
  TFM_CHECK(found != source_types().end(), "no data trains this family");
  return found->name;
}

const SourceType& source_type(std::string_view name) {
  static const SourceType none;
  const auto found = std::ranges::find(source_types(), name, &SourceType::name);
  return found == source_types().end() ? none : *found;
}

}  // namespace tfm::config
