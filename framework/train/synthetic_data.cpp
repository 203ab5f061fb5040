#include "train/synthetic_data.h"

#include "core/philox.h"
#include "core/random_streams.h"

namespace tfm::train {

void SyntheticData::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                         const BatchFields& fields) const {
  const auto range = [&](FieldKind kind) {
    return static_cast<std::uint32_t>(kind == FieldKind::type     ? config_.model.type_vocab_size
                                      : kind == FieldKind::answer ? 2
                                                                  : config_.model.vocab_size);
  };
  for (const auto& [field, values] : fields) {
    const FieldKind kind = info_of(field).kind;
    const bool mask = kind == FieldKind::mask;
    const RandomKey key{config_.train.seed, Purpose::data,
                        stream_of("verify." + std::string(info_of(field).name)),
                        static_cast<std::uint32_t>(index + 1)};
    const auto width = std::ssize(values) / count;
    for (std::int64_t i = 0; i < count * width; ++i) {
      const auto word_of = [&](std::int64_t at) {
        return key.word(static_cast<std::uint64_t>(first * width + at));
      };
      const std::int64_t at = i % width, real = width - word_of(i - at) % (width / 4 + 1);
      const std::uint32_t word = word_of(i);
      const bool none = mask ? at >= real : at != 0 && word % 7 == 0;
      values[static_cast<std::size_t>(i)] = none && (mask || kind == FieldKind::label) ? -1
                                            : mask
                                                ? static_cast<std::int32_t>(at / 5)
                                                : static_cast<std::int32_t>(word / 8 % range(kind));
    }
  }
}

}  // namespace tfm::train
