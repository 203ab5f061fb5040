#include <algorithm>
#include <array>
#include <limits>

#include "core/error.h"
#include "data/token_file.h"
#include "data/token_format.h"
#include "io/file.h"

namespace tfm::data {
namespace {

using namespace token_format;
constexpr std::int64_t max_int32 = std::numeric_limits<std::int32_t>::max();

class IdWriter {
 public:
  IdWriter(const std::string& path, std::int64_t vocab_size, bool narrow)
      : file(path), vocab_size_(vocab_size), narrow_(narrow) {}

  void append(std::span<const std::int32_t> ids) {
    for (std::int32_t id : ids)
      if (id < 0 || id >= vocab_size_)
        throw Error(ExitCode::input, file.path() + ": id " + std::to_string(id) +
                                         " is not in the vocabulary of " +
                                         std::to_string(vocab_size_));
    if (narrow_) {
      narrowed_.assign(ids.begin(), ids.end());
      file.write(narrowed_.data(), narrowed_.size() * sizeof(narrowed_[0]));
    } else {
      file.write(ids.data(), ids.size_bytes());
    }
  }
  bool narrow() const { return narrow_; }
  io::AtomicFile file;

 private:
  std::int64_t vocab_size_;
  bool narrow_;
  std::vector<std::uint16_t> narrowed_;
};

class LlmcWriter final : public TokenWriter {
 public:
  LlmcWriter(const std::string& path, std::int64_t vocab_size)
      : ids_(path, vocab_size, vocab_size <= 65536) {
    header_[0] = ids_.narrow() ? llmc_magic16 : llmc_magic32;
    header_[1] = ids_.narrow() ? llmc_version16 : llmc_version32;
    ids_.file.write(header_.data(), sizeof(header_));
  }
  void append(std::span<const std::int32_t> ids) override {
    if (static_cast<std::int64_t>(ids.size()) > max_int32 - header_[2])
      throw Error(ExitCode::input, ids_.file.path() +
                                       ": the file exceeds 2147483647 ids, the limit of llm.c's "
                                       "format; split the input or use --format megatron");
    ids_.append(ids);
    header_[2] += static_cast<std::int32_t>(ids.size());
  }
  void end_document() override {}
  void publish() override {
    ids_.file.overwrite(0, header_.data(), sizeof(header_));
    ids_.file.publish();
  }

 private:
  IdWriter ids_;
  std::array<std::int32_t, 256> header_{};
};

class MegatronWriter final : public TokenWriter {
 public:
  MegatronWriter(const std::string& path, std::int64_t vocab_size)
      : ids_(path, vocab_size, vocab_size < 65500),
        index_(path.substr(0, path.size() - 4) + ".idx") {}
  void append(std::span<const std::int32_t> ids) override {
    if (static_cast<std::int64_t>(ids.size()) > max_int32 - length_)
      throw Error(ExitCode::input,
                  ids_.file.path() + ": the document exceeds 2147483647 ids; split the input");
    ids_.append(ids);
    length_ += static_cast<std::int64_t>(ids.size());
  }
  void end_document() override {
    if (length_ == 0) return;
    lengths_.push_back(static_cast<std::int32_t>(length_));
    length_ = 0;
  }
  void publish() override {
    end_document();
    const std::uint8_t type = static_cast<std::uint8_t>(ids_.narrow() ? IdType::u16 : IdType::i32);
    const std::uint64_t sequences = lengths_.size(), boundaries = sequences + 1;
    index_.write(megatron_magic.data(), megatron_magic.size());
    index_.write(&megatron_version, 8);
    index_.write(&type, 1);
    index_.write(&sequences, 8);
    index_.write(&boundaries, 8);
    index_.write(lengths_.data(), lengths_.size() * sizeof(lengths_[0]));
    std::int64_t offset = 0;
    for (std::int32_t length : lengths_) {
      index_.write(&offset, 8);
      offset += length * bytes_of(static_cast<IdType>(type));
    }
    for (std::uint64_t i = 0; i < boundaries; ++i) index_.write(&i, 8);
    // A pair of an old index and new ids would be read without a complaint.
    ids_.file.sync();
    index_.sync();
    io::remove_file(index_.path());
    ids_.file.publish();
    index_.publish();
  }

 private:
  IdWriter ids_;
  io::AtomicFile index_;
  std::int64_t length_ = 0;
  std::vector<std::int32_t> lengths_;
};

}  // namespace

std::unique_ptr<TokenWriter> make_token_writer(TokenFormat format, const std::string& path,
                                               std::int64_t vocab_size) {
  if (format == TokenFormat::llmc) return std::make_unique<LlmcWriter>(path, vocab_size);
  if (!path.ends_with(".bin"))
    throw Error(
        ExitCode::usage,
        path + ": expected a name that ends in .bin; the index is written next to it as .idx");
  return std::make_unique<MegatronWriter>(path, vocab_size);
}

}  // namespace tfm::data
