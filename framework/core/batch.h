#pragma once
// The fields of a batch, and the part of a batch that one rank computes. Every field is an int32
// array of shape (sequences, width), row-major.
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string_view>

namespace tfm {

enum class Field : std::uint8_t {
  ids,
  labels,
  mask,
  positions,
  prefix,
  token_types,
  sentence_labels,
  token_labels,
  numbers,
  positives,
  source_ids,
  source_mask
};

// Elements per sequence: its length T, the length S of its source, or 1.
enum class FieldWidth : std::uint8_t { length, source_length, one };

// Meaning of the elements.
enum class FieldKind : std::uint8_t {
  token,     // vocabulary id
  label,     // vocabulary id to predict; < 0: ignored by the loss
  answer,    // class or document to predict; < 0: ignored by the loss
  number,    // number to predict, the bits of a float; NaN: ignored by the loss
  mask,      // index of the document within the sequence; < 0: padding, hidden from attention
  position,  // index within the document; made of `mask` by the DataLoader
  prefix,    // number of first positions that see each other
  type,      // segment id in [0, model.type_vocab_size)
};

struct FieldInfo {
  Field field;
  std::string_view name;  // name of the program's input
  FieldWidth width;
  FieldKind kind;
  std::int32_t padding;  // value in the sequences that fill up an incomplete batch

  // Whether a rank holds the field only for its own positions under context parallelism
  // (core/rows.h). Masks are held for the whole sequence, since a rank attends to all keys.
  constexpr bool by_position() const { return width != FieldWidth::one && kind != FieldKind::mask; }
  // Whether elements say what a loss is to predict.
  constexpr bool is_label() const {
    return kind == FieldKind::label || kind == FieldKind::answer || kind == FieldKind::number;
  }
  // Whether an element is a label, which the loss does not ignore.
  constexpr bool counts(std::int32_t element) const {
    return kind == FieldKind::number ? element != padding : element >= 0;
  }
};

// The element of a field of numbers, and none.
constexpr std::int32_t number_element(float number) { return std::bit_cast<std::int32_t>(number); }
inline constexpr std::int32_t kNoNumber = number_element(std::numeric_limits<float>::quiet_NaN());

inline constexpr std::array kFields{
    FieldInfo{Field::ids, "ids", FieldWidth::length, FieldKind::token, 0},
    FieldInfo{Field::labels, "labels", FieldWidth::length, FieldKind::label, -1},
    FieldInfo{Field::mask, "mask", FieldWidth::length, FieldKind::mask, -1},
    FieldInfo{Field::positions, "positions", FieldWidth::length, FieldKind::position, 0},
    FieldInfo{Field::prefix, "prefix", FieldWidth::one, FieldKind::prefix, 0},
    FieldInfo{Field::token_types, "token_types", FieldWidth::length, FieldKind::type, 0},
    FieldInfo{Field::sentence_labels, "sentence_labels", FieldWidth::one, FieldKind::answer, -1},
    FieldInfo{Field::token_labels, "token_labels", FieldWidth::length, FieldKind::answer, -1},
    FieldInfo{Field::numbers, "numbers", FieldWidth::one, FieldKind::number, kNoNumber},
    FieldInfo{Field::positives, "positives", FieldWidth::one, FieldKind::answer, -1},
    FieldInfo{Field::source_ids, "source_ids", FieldWidth::source_length, FieldKind::token, 0},
    FieldInfo{Field::source_mask, "source_mask", FieldWidth::source_length, FieldKind::mask, -1},
};

constexpr const FieldInfo& info_of(Field field) { return kFields[static_cast<std::size_t>(field)]; }
static_assert([] {
  for (const FieldInfo& f : kFields)
    if (&info_of(f.field) != &f) return false;
  return true;
}());

// Memory of each field for some sequences. Fields that are not needed may be absent.
using BatchFields = std::map<Field, std::span<std::int32_t>>;

// The sequences of a global batch that one rank computes, padded to the size of its shape.
struct Batch {
  std::size_t shape = 0;       // index into the run's batch shapes
  std::int64_t first = 0;      // index of its first sequence in the global batch
  std::int64_t sequences = 0;  // number of real sequences; the rest is padding
  BatchFields fields;
};

}  // namespace tfm
