#pragma once
// Files of token ids, read and written in two formats.
//
// llm.c shard: 256 little-endian int32 (magic, version, count, zeros), then the ids.
//   Magic 20240520, version 1: uint16 ids. Magic 20240801, version 7: uint32 ids.
//
// Megatron: NAME.bin holds the ids alone. NAME.idx holds, in this order:
//   "MMIDIDX\0\0", u64 version 1, u8 id type, u64 sequences, u64 document boundaries,
//   i32 length of each sequence, i64 byte offset of each sequence, i64 boundaries.
// Sequences must lie in NAME.bin one after another without gaps.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/options.h"
#include "io/file.h"

namespace tfm::data {

// The ids of one file or text, numbered 0 to size() - 1. Thread-safe.
class TokenStream {
 public:
  explicit TokenStream(std::string name) : name_(std::move(name)) {}
  virtual ~TokenStream() = default;
  virtual std::int64_t size() const = 0;
  // Reads ids [begin, begin + out.size()), which must exist. Error(input) with file and position
  // for an id that is negative or does not fit int32.
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
  virtual std::optional<std::int32_t> largest_id() const {
    return std::nullopt;
  }  // where it is known without reading
  // Whether the file itself says where documents begin, as Megatron's index does.
  virtual bool knows_documents() const { return false; }
  // Appends the positions in [begin, end) at which it says so, in order.
  virtual void document_starts(std::int64_t, std::int64_t, std::vector<std::int64_t>&) const {}
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

class MemoryTokens final : public TokenStream {
 public:
  MemoryTokens(std::string name, std::vector<std::int32_t> ids);
  std::int64_t size() const override { return static_cast<std::int64_t>(ids_.size()); }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  std::optional<std::int32_t> largest_id() const override { return largest_; }

 private:
  std::vector<std::int32_t> ids_;
  std::int32_t largest_ = -1;
};

// Megatron's codes, and u32.
enum class IdType : std::uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, u16 = 8, u32 = 32 };

struct TokenFileInfo {
  std::string format;  // "llm.c" or "Megatron"
  IdType type{};
  std::int64_t tokens = 0, header_bytes = 0;
  std::optional<std::int64_t> sequences, documents;  // Megatron
};
std::int64_t bytes_of(IdType type);
std::string name_of(IdType type);

// Whether TokenFile is to read the file: by its name, or because it begins as llm.c's do.
bool is_token_file(const std::string& path);

class TokenFile final : public TokenStream {
 public:
  // Opens a .bin of either format, an .idx, or a Megatron pair by its common name without ending.
  // Checks everything but the ids. Error(input) names the file, the byte offset, what was expected
  // and what is there.
  explicit TokenFile(const std::string& path);
  std::int64_t size() const override { return info_.tokens; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  bool knows_documents() const override { return info_.documents.value_or(0) > 1; }
  void document_starts(std::int64_t begin, std::int64_t end,
                       std::vector<std::int64_t>& out) const override;
  const TokenFileInfo& info() const { return info_; }
  const std::byte* ids() const {
    return file_.bytes().data() + info_.header_bytes;
  }  // tokens * bytes_of(type) bytes

 private:
  void open_llmc();
  void open_megatron(const std::string& index_path);
  std::int64_t document_start(std::int64_t document) const;  // of Megatron's index

  io::MappedFile file_;
  std::optional<io::MappedFile> index_;  // Megatron
  TokenFileInfo info_;
};

enum class TokenFormat : std::uint8_t { llmc, megatron };
constexpr config::Words<2> words(TokenFormat) { return {"llmc", "megatron"}; }

// Writes a token file as a stream; nothing appears under the final name before publish(). Ids are
// uint16 where the vocabulary allows it (llm.c: up to 65536 ids, Megatron: below 65500), otherwise
// uint32 (llm.c) or int32 (Megatron).
class TokenWriter {
 public:
  virtual ~TokenWriter() = default;
  // Error(input): an id outside the vocabulary, or too many ids.
  virtual void append(std::span<const std::int32_t> ids) = 0;
  virtual void end_document() = 0;  // Megatron: ends a sequence and a document; llm.c: nothing
  virtual void publish() = 0;       // ends an open document first
};
// `path`: OUT.bin; Megatron also writes OUT.idx. Error(usage) if it cannot be created.
std::unique_ptr<TokenWriter> make_token_writer(TokenFormat format, const std::string& path,
                                               std::int64_t vocab_size);

}  // namespace tfm::data
