#include "verify/synthetic_data.h"

#include <algorithm>

#include "core/philox.h"
#include "core/random_streams.h"
#include "data/objective.h"

namespace tfm::verify {

SyntheticData::SyntheticData(const config::Config& config, std::int64_t sequences,
                             std::int64_t batches)
    : config_(config), sequences_(sequences), batches_(batches) {
  most_ = data::objective_of(config.data.train).most_labels(config, config.data.train);
}

void SyntheticData::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                         const BatchFields& fields) const {
  const auto classes_of = [this](std::string_view type) {
    const config::HeadConfig* head = config_.model.head_of_type(type);
    return head ? head->classes : 2;
  };
  const auto range = [&](const FieldInfo& info) {
    return static_cast<std::uint32_t>(info.kind == FieldKind::type ? config_.model.type_vocab_size
                                      : info.field == Field::token_labels ? classes_of("tag")
                                      : info.kind == FieldKind::answer    ? classes_of("classify")
                                      : info.kind == FieldKind::number    ? 16
                                      : info.kind == FieldKind::prefix ? config_.train.seq_len + 1
                                      : info.field == Field::source_ids
                                          ? config_.model.source_vocabulary()
                                          : config_.model.vocab_size);
  };
  const auto positive_of = [this](std::int64_t sequence) {
    const std::int64_t texts = config_.data.train.texts_of_pair(), pair = sequence / texts,
                       group = config_.model.head_of_type("embed")->group;
    return sequence % texts > 0
               ? -1
               : static_cast<std::int32_t>((group > 0 ? pair % group : pair) * (texts - 1));
  };
  for (const auto& [field, values] : fields) {
    const FieldInfo& info = info_of(field);
    const bool mask = info.kind == FieldKind::mask;
    const RandomKey key{config_.train.seed, Purpose::data,
                        stream_of("verify." + std::string(info.name)),
                        static_cast<std::uint32_t>(index + 1)};
    const auto width = std::ssize(values) / count,
               filled = info.width == FieldWidth::length ? std::min(width, most_) : width;
    for (std::int64_t i = 0; i < count * width; ++i) {
      const std::int64_t at = i % width, begin = i / width * filled;
      std::int32_t& value = values[static_cast<std::size_t>(i)];
      if (info.field == Field::positives) {
        value = positive_of(first + i);
        continue;
      }
      if (at >= filled) {
        value = info.padding;
        continue;
      }
      const auto word_of = [&](std::int64_t place) {
        return key.word(static_cast<std::uint64_t>(first * filled + place));
      };
      const std::int64_t real = filled - word_of(begin) % (filled / 4 + 1);
      const std::uint32_t word = word_of(begin + at);
      const bool none = mask ? at >= real : at != 0 && word % 7 == 0;
      const bool label = info.kind == FieldKind::label || info.field == Field::token_labels;
      const auto drawn = static_cast<std::int32_t>(word / 8 % range(info));
      value = none && (mask || label)          ? -1
              : mask                           ? static_cast<std::int32_t>(at / 5)
              : info.kind == FieldKind::number ? number_element(static_cast<float>(drawn) / 8)
                                               : drawn;
    }
  }
}

}  // namespace tfm::verify
