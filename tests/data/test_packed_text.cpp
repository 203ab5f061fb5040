// Whole documents of a text, several in a sequence.
#include <gtest/gtest.h>

#include <random>

#include "data/packed_text.h"
#include "support/data_files.h"

namespace tfm {
namespace {

using test::Ids;

constexpr std::int32_t kEnd = 9;

data::Source source_of(std::vector<Ids> files) {
  std::vector<data::Source::Group> groups(1);
  groups[0].name = "text";
  for (Ids& ids : files)
    groups[0].streams.push_back(std::make_unique<data::MemoryTokens>("text", std::move(ids)));
  return {std::move(groups), 1};
}

struct Batch {
  Ids ids, labels, mask;
  Batch(const data::Dataset& d, std::int64_t index, std::int64_t first, std::int64_t count,
        std::int64_t length) {
    for (Ids* x : {&ids, &labels, &mask}) x->resize(static_cast<std::size_t>(count * length), -99);
    d.fill(index, first, count, {{Field::ids, ids}, {Field::labels, labels}, {Field::mask, mask}});
  }
};

// Of 2, 1 and 5 places, and one of a single id; then a file that ends without the id.
TEST(PackedText, DocumentsThatFitAreWhole) {
  const data::Source source = source_of({{1, 2, 9, 3, 9, 4, 5, 6, 7, 8, 9, 9}, {1, 2, 3}});
  const data::PackedText text(source, {true, kEnd}, {.length = 4, .global_batch = 2});
  EXPECT_EQ(text.documents(), 4);
  EXPECT_EQ(text.cut(), 1);
  ASSERT_EQ(text.sequences(), 3);
  EXPECT_EQ(text.batches(), 2);
  EXPECT_EQ(text.batch(1).sequences, 1);
  EXPECT_DOUBLE_EQ(text.filled(), 10 / 12.0);
  const Batch first(text, 0, 0, 2, 4), last(text, 1, 0, 1, 4);
  EXPECT_EQ(first.ids, (Ids{1, 2, 1, 2, 3, 8, 0, 0}));
  EXPECT_EQ(first.labels, (Ids{2, 9, 2, 3, 9, 9, -1, -1}));
  EXPECT_EQ(first.mask, (Ids{0, 0, 1, 1, 0, 1, -1, -1}));
  EXPECT_EQ(last.ids, (Ids{4, 5, 6, 7}));
  EXPECT_EQ(last.labels, (Ids{5, 6, 7, 8}));
}

TEST(PackedText, HoldsEachLabelOnceAnEpochAtAnyShare) {
  Ids ids;
  std::minstd_rand random;
  for (int i = 0; i < 4000; ++i) ids.push_back(random() % 23 == 0 ? kEnd : 10 + i);
  const data::Source source = source_of({ids});
  constexpr std::int64_t kLength = 64, kBatch = 6;
  const data::PackedText::Options options{kLength, kBatch, true, true, 3};
  const data::PackedText text(source, {true, kEnd}, options), again(source, {true, kEnd}, options);
  EXPECT_GE(text.filled(), 0.98);
  std::map<std::int32_t, int> seen;
  for (std::int64_t at = 0; at < text.sequences(); ++at) {
    const Batch b(text, at / kBatch, at % kBatch, 1, kLength);
    for (const std::int32_t label : b.labels)
      if (label >= 0) ++seen[label];
  }
  std::map<std::int32_t, int> expected;
  for (std::size_t i = 1; i < ids.size(); ++i)
    if (ids[i - 1] != kEnd) ++expected[ids[i]];
  EXPECT_EQ(seen, expected);
  const Batch whole(text, 1, 0, kBatch, kLength), part(again, 1, 2, 3, kLength);
  EXPECT_TRUE(std::ranges::equal(std::span(whole.ids).subspan(2 * kLength, 3 * kLength), part.ids));
}

// A document of one id more than the places of a sequence has as many labels as these.
TEST(PackedText, ADocumentIsCutOnceItHasMoreLabelsThanPlaces) {
  for (const auto& [ids, cut] :
       {std::pair{Ids{1, 2, 3, kEnd}, 0}, {{1, 2, 3, 4, kEnd}, 0}, {{1, 2, 3, 4, 5, kEnd}, 1}}) {
    const data::Source source = source_of({ids});
    const data::PackedText text(source, {true, kEnd}, {.length = 4, .global_batch = 1});
    EXPECT_EQ(text.documents(), 1);
    EXPECT_EQ(text.cut(), cut);
    EXPECT_EQ(text.sequences(), 1 + cut);
  }
}

TEST(PackedText, NeedsADocumentOfTwoIds) {
  const data::Source source = source_of({{kEnd, kEnd, kEnd}});
  test::expect_error(ExitCode::input, {"no document has two ids"}, [&] {
    data::PackedText(source, {true, kEnd}, {.length = 4, .global_batch = 2});
  });
}

}  // namespace
}  // namespace tfm
