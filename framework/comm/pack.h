#pragma once
// Values as bytes that ranks exchange: trivially copyable types, strings and vectors of such.
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"

namespace tfm::comm {

template <class T>
concept Plain = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_array_v<T>;
template <class T>
concept PlainSequence = Plain<typename T::value_type> && requires(T s) {
  s.resize(s.size()), s.data();
};
template <class T>
concept Packable = Plain<T> || PlainSequence<T>;

// Each value behind the other, the elements of a sequence behind their number.
template <Packable... T>
std::string pack(const T&... values) {
  std::string bytes;
  const auto add = [&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  const auto put = [&]<class V>(const V& value) {
    if constexpr (Plain<V>)
      return add(&value, sizeof value);
    else {
      const std::size_t n = value.size();
      add(&n, sizeof n);
      add(value.data(), n * sizeof(typename V::value_type));
    }
  };
  (put(values), ...);
  return bytes;
}

template <Packable... T>
void unpack(const std::string& bytes, T&... values) {
  std::size_t at = 0;
  const auto copy = [&](void* data, std::size_t size) {
    TFM_CHECK(size <= bytes.size() - at, "packed values end early");
    if (size > 0) std::memcpy(data, bytes.data() + at, size);
    at += size;
  };
  const auto take = [&]<class V>(V& value) {
    if constexpr (Plain<V>)
      return copy(&value, sizeof value);
    else {
      std::size_t n = 0;
      copy(&n, sizeof n);
      TFM_CHECK(n <= bytes.size(), "packed values end early");
      value.resize(n);
      copy(value.data(), n * sizeof(typename V::value_type));
    }
  };
  (take(values), ...);
}

// What each rank packed.
template <Packable T>
std::vector<T> unpack_each(const std::vector<std::string>& ranks) {
  std::vector<T> all(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) unpack(ranks[r], all[r]);
  return all;
}

}  // namespace tfm::comm
