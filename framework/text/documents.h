#pragma once
// Documents of text files, read in pieces.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tfm::text {

// Gets the next piece of a document; last: the document ends here. Documents without text are left
// out.
using TextSink = std::function<void(std::string_view text, bool last)>;
// Where a document may be cut, as Tokenizer::safe_cut().
using SafeCut = std::function<std::size_t(std::string_view text)>;

// Whether the name says that each line is a JSON object: .jsonl, .jsonl.gz, .jsonl.zst.
bool is_json_lines(std::string_view path);

// JSON lines: each line that is not blank is an object whose string `field` is a document. Any
// other file is one document, its bytes as they are. gzip and Zstandard are decompressed. Memory
// does not grow with the file. Returns the number of documents without text. Throws Error(input)
// with file and line; also for a file that is not text (io/text_stream.h), and a line, or a
// stretch of text without a place to cut it, of more than 256 MiB.
std::int64_t read_documents(const std::string& path, const std::string& field,
                            const SafeCut& safe_cut, const TextSink& sink);

}  // namespace tfm::text
