#include "tokenizer/stream_decoder.h"

namespace tfm::tokenizer {
namespace {

constexpr std::size_t kFewest = 32, kMost = 64;  // tokens that are decoded together

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, std::vector<std::int32_t> before)
    : tokenizer_(tokenizer), ids_(std::move(before)), text_(tokenizer.decode(ids_)) {}

std::string StreamDecoder::add(std::int32_t id) {
  if (!tokenizer_.knows(id)) return "";
  if (ids_.size() >= kMost) {
    ids_.erase(ids_.begin(), ids_.end() - kFewest);
    text_ = tokenizer_.decode(ids_);
  }
  ids_.push_back(id);
  const std::size_t before = text_.size();
  text_ = tokenizer_.decode(ids_);
  return text_.size() > before ? text_.substr(before) : "";
}

}  // namespace tfm::tokenizer
