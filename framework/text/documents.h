#pragma once
// Reads the documents of text files in pieces.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tfm::text {

// Receives the next piece of a document; `last`: the document ends with it. Documents without text
// are left out.
using TextSink = std::function<void(std::string_view text, bool last)>;
// Returns where a document may be cut, as Tokenizer::safe_cut().
using SafeCut = std::function<std::size_t(std::string_view text)>;

// Whether a file holds a JSON object a line: by its name (.jsonl, .jsonlines, .jl or .ndjson, of
// any case, compressed or not) or, of a .json file, by its first line.
bool is_json_lines(const std::string& path);

// Reads the documents of a file and returns the number of those without text. In JSON lines, each
// line that is not blank is an object whose string `field` is a document; any other file is one
// document, its bytes unchanged. gzip and Zstandard are decompressed. Memory use does not grow with
// the file. Error(input), with file and line, also for a file that is not text (io/text_stream.h)
// and for a line, or a stretch of text without a place to cut it, of more than 256 MiB.
std::int64_t read_documents(const std::string& path, const std::string& field,
                            const SafeCut& safe_cut, const TextSink& sink);

}  // namespace tfm::text
