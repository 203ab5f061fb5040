#include "data/samples_text.h"

#include <algorithm>
#include <bit>
#include <map>

#include "core/strings.h"
#include "data/batch_shapes.h"
#include "data/run_data.h"

namespace tfm::data {
namespace {

// The text of one token, on one line.
std::string shown(const tokenizer::Tokenizer& tokenizer, std::int32_t id) {
  const tokenizer::SpecialIds special = tokenizer.special_ids();
  std::string text = id < tokenizer.vocab_size() ? tokenizer.token_text(id) : "";
  if (text.empty())
    text = id == special.mask    ? "<mask>"
           : id == special.begin ? "<s>"
           : id == special.end   ? "</s>"
           : id == special.pad   ? "<pad>"
                                 : "<" + std::to_string(id) + ">";
  std::string line;
  for (const char c : text) c == '\n' ? line += "\\n" : c == '\t' ? line += "\\t" : line += c;
  return line;
}

// `mask`: tokens of padding are left out; empty: there are none. Ids below 0 are gaps.
std::string shown(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                  std::span<const std::int32_t> mask) {
  std::string line;
  bool gap = false;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!mask.empty() && mask[i] < 0) continue;
    if (ids[i] < 0) {
      gap = true;
      continue;
    }
    line += (gap && !line.empty() ? " .. " : "") + shown(tokenizer, ids[i]);
    gap = false;
  }
  return line;
}

using Values = std::map<Field, std::vector<std::int32_t>>;

// f(sequence, batch, values) for the first `count` sequences of the training data.
template <class F>
void each_sample(const RunData& data, const config::Config& config, std::int64_t count, F&& f) {
  const std::vector<nn::BatchShape> shapes = batch_shapes(config);
  for (std::int64_t index = 0, sequence = 0; sequence < count; ++index) {
    const Dataset::GlobalBatch batch = data.train->batch(index);
    const nn::BatchShape& shape = shapes.at(batch.shape);
    for (std::int64_t row = 0; row < batch.sequences && sequence < count; ++row, ++sequence) {
      Values values;
      BatchFields fields;
      for (const FieldInfo& info : kFields)
        if (shape.width(info.field) > 0) {
          values[info.field].assign(static_cast<std::size_t>(shape.width(info.field)),
                                    info.padding);
          fields[info.field] = values[info.field];
        }
      data.train->fill(index, row, 1, fields);
      f(sequence, index, values);
    }
  }
}

}  // namespace

std::string samples_text(const config::Config& config, std::int64_t count) {
  const RunData data(config);
  std::string text;
  each_sample(data, config, count, [&](std::int64_t sequence, std::int64_t index, Values& values) {
    text += "sequence " + std::to_string(sequence) + " (batch " + std::to_string(index) + ")\n";
    const auto add = [&](const char* name, const tokenizer::Tokenizer& side, Field field,
                         Field mask) {
      if (!values.contains(field)) return;
      const auto& seen = values[mask];
      const bool masked = std::ranges::any_of(seen, [](std::int32_t m) { return m >= 0; });
      text +=
          std::string("  ") + name +
          shown(side, values[field],
                masked ? std::span<const std::int32_t>(seen) : std::span<const std::int32_t>()) +
          '\n';
    };
    const tokenizer::Tokenizer& target = data.tokenizer->target();
    add("source: ", *data.tokenizer, Field::source_ids, Field::source_mask);
    add("input:  ", target, Field::ids, Field::mask);
    const auto counts = [&](Field field) {
      return std::ranges::any_of(values[field],
                                 [&](std::int32_t v) { return info_of(field).counts(v); });
    };
    if (counts(Field::labels)) add("label:  ", target, Field::labels, Field::mask);
    for (const Field field :
         {Field::sentence_labels, Field::token_labels, Field::numbers, Field::positives}) {
      if (!counts(field)) continue;
      text += "  " + std::string(info_of(field).name) + ":";
      for (const std::int32_t v : values[field])
        if (info_of(field).counts(v))
          text += ' ' + (field == Field::numbers ? number_text(std::bit_cast<float>(v))
                                                 : std::to_string(v));
      text += '\n';
    }
  });
  return text;
}

std::string samples_json(const config::Config& config, std::int64_t count) {
  const RunData data(config);
  std::string text;
  each_sample(data, config, count, [&](std::int64_t, std::int64_t index, const Values& values) {
    text += "{\"batch\": " + std::to_string(index);
    for (const auto& [field, elements] : values) {
      text += ", \"" + std::string(info_of(field).name) + "\": [";
      for (std::size_t i = 0; i < elements.size(); ++i) {
        const std::int32_t v = elements[i];
        text +=
            (i > 0 ? ", " : "") + (field != Field::numbers    ? std::to_string(v)
                                   : info_of(field).counts(v) ? number_text(std::bit_cast<float>(v))
                                                              : "null");
      }
      text += ']';
    }
    text += "}\n";
  });
  return text;
}

}  // namespace tfm::data
