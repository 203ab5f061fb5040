#pragma once
// What a batch is made of: the table of its fields, and the part of it that one rank computes.
// All fields are int32, row-major (sequences, width).
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>

namespace tfm {

enum class Field : std::uint8_t {
  ids,
  labels,
  mask,
  token_types,
  sentence_labels,
  source_ids,
  source_mask
};

// Elements of a sequence: its tokens (T), those of its source (S), or 1.
enum class FieldWidth : std::uint8_t { length, source_length, one };

// What the elements are.
enum class FieldKind : std::uint8_t {
  token,   // ids of the vocabulary
  label,   // ids of the vocabulary that are to be predicted; < 0: not counted
  answer,  // 0 or 1, to be predicted; < 0: not counted
  mask,    // < 0: padding, no key of attention; else the number of the document within the sequence
  type,    // below model.type_vocab_size
};

struct FieldInfo {
  Field field;
  std::string_view name;  // of the program's input
  FieldWidth width;
  FieldKind kind;
  std::int32_t padding;  // in the sequences that fill up an incomplete batch

  // Of ranks that share out sequences (core/rows.h) each has that of its own positions. Of a mask
  // each has all, for it attends to all keys.
  constexpr bool by_position() const { return width != FieldWidth::one && kind != FieldKind::mask; }
};

inline constexpr std::array kFields{
    FieldInfo{Field::ids, "ids", FieldWidth::length, FieldKind::token, 0},
    FieldInfo{Field::labels, "labels", FieldWidth::length, FieldKind::label, -1},
    FieldInfo{Field::mask, "mask", FieldWidth::length, FieldKind::mask, -1},
    FieldInfo{Field::token_types, "token_types", FieldWidth::length, FieldKind::type, 0},
    FieldInfo{Field::sentence_labels, "sentence_labels", FieldWidth::one, FieldKind::answer, -1},
    FieldInfo{Field::source_ids, "source_ids", FieldWidth::source_length, FieldKind::token, 0},
    FieldInfo{Field::source_mask, "source_mask", FieldWidth::source_length, FieldKind::mask, -1},
};

constexpr const FieldInfo& info_of(Field field) { return kFields[static_cast<std::size_t>(field)]; }
static_assert([] {
  for (const FieldInfo& f : kFields)
    if (&info_of(f.field) != &f) return false;
  return true;
}());

// Memory of the fields of some sequences; a field that is absent is of no interest.
using BatchFields = std::map<Field, std::span<std::int32_t>>;

// The sequences of a global batch that one rank computes, and padding up to its size.
struct Batch {
  std::size_t shape = 0;       // which of the run's batch shapes
  std::int64_t first = 0;      // of its sequences in the global batch
  std::int64_t sequences = 0;  // that are real
  BatchFields fields;
};

}  // namespace tfm
