// A program outside the project: counts the parameters of GPT-2 with the installed package.
#include <cstdio>

#include "models/registry.h"

int main() {
  tfm::Config config = tfm::parse_config(
      "model: {family: decoder, preset: gpt2-124m}\ndata: {train: {type: tokens, path: none.bin}}\n", "example", {});
  tfm::resolve_for_ranks(config, 1);
  const long long n = tfm::make_model(config, tfm::single_mesh())->parameters().total_elements();
  std::printf("%lld\n", n);
  return n == 124439808 ? 0 : 1;
}
