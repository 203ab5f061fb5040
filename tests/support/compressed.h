#pragma once
// gzip members and Zstandard frames, for the tests of what reads them.
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <string>
#include <string_view>

namespace tfm::test {

inline std::string gzip(std::string_view text) {
  z_stream state{};
  EXPECT_EQ(::deflateInit2(&state, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(::deflateBound(&state, text.size()), '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(state.total_out);
  ::deflateEnd(&state);
  return out;
}

inline std::string zstandard(std::string_view text) {
  ZSTD_CCtx* const context = ::ZSTD_createCCtx();
  ::ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  const std::size_t size =
      ::ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size());
  EXPECT_FALSE(::ZSTD_isError(size));
  ::ZSTD_freeCCtx(context);
  out.resize(size);
  return out;
}

}  // namespace tfm::test
