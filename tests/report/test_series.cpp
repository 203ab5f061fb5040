#include <gtest/gtest.h>

#include <cmath>

#include "io/safetensors.h"
#include "report/chart.h"
#include "report/inside.h"
#include "report/series.h"
#include "support/data_files.h"

namespace tfm::report {
namespace {

Series series_of(std::initializer_list<double> values) {
  Series s;
  for (const double v : values) s.add(static_cast<double>(s.x.size()), v);
  return s;
}

TEST(ReportText, IsEscapedAndUtf8) {
  EXPECT_EQ(escaped("<a> & \"b\""), "&lt;a&gt; &amp; &quot;b&quot;");
  EXPECT_EQ(escaped("\u00e4\xFF\u20ac\x01z"), "\u00e4\uFFFD\u20ac z");
}

TEST(ReportSeries, ColumnsKeepTheirExtremesInOrder) {
  const Series short_one = series_of({3, 1, 2, 5});
  EXPECT_EQ(min_max(short_one, 2).y, short_one.y);
  const Series two = min_max(series_of({3, 9, 1, 2, 5, 5, 7, 4}), 2);
  EXPECT_EQ(two.x, (std::vector<double>{1, 2, 6, 7}));
  EXPECT_EQ(two.y, (std::vector<double>{9, 1, 7, 4}));
}

TEST(ReportSeries, GapsRemain) {
  const Series two = min_max(series_of({3, 9, NAN, 1, 5, 6, 7, 8}), 2);
  ASSERT_EQ(two.x, (std::vector<double>{1, 2, 3, 4, 7}));
  EXPECT_TRUE(std::isnan(two.y[1]));
}

TEST(ReportSeries, AverageHasTheWeightsOfBothSides) {
  const double k = std::exp(-0.5);
  const Series smooth = moving_average(series_of({1, NAN, 2, 4}), 2);  // of 1, 2, 4
  ASSERT_EQ(smooth.x, (std::vector<double>{0, 2, 3}));
  EXPECT_NEAR(smooth.y[0], (1 + k * 2 + k * k * 4) / (1 + k + k * k), 1e-12);
  EXPECT_NEAR(smooth.y[1], (k * 1 + 2 + k * 4) / (1 + 2 * k), 1e-12);
  EXPECT_NEAR(smooth.y[2], (k * k * 1 + k * 2 + 4) / (1 + k + k * k), 1e-12);
}

TEST(ReportSeries, TicksAreRound) {
  EXPECT_EQ(ticks(0, 300, Unit::count), (std::vector<double>{0, 100, 200, 300}));
  EXPECT_EQ(ticks(-0.1, 1.04, Unit::number).front(), 0);
  EXPECT_FALSE(std::signbit(ticks(-0.1, 1.04, Unit::number).front()));
  for (const double t : ticks(0, 5e6, Unit::bytes)) EXPECT_EQ(std::fmod(t, 1 << 20), 0);
  EXPECT_EQ(log_ticks(0.05, 20), (std::vector<double>{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20}));
}

TEST(ReportChart, DrawsValuesThatDifferByRounding) {
  for (const double scale : {1.0, 1e-300, 1e300, -5.5}) {
    LineChart chart{.id = "c"};
    chart.lines.push_back({.series = series_of({scale, std::nextafter(scale, 2 * scale)})});
    EXPECT_LT(draw(chart).size(), 10'000u) << scale;
  }
}

TEST(ReportSeries, ValuesAreShort) {
  EXPECT_EQ(text_of(100000, Unit::count), "100k");
  EXPECT_EQ(text_of(412345, Unit::count), "412.3k");
  EXPECT_EQ(text_of(4 << 20, Unit::bytes), "4 MiB");
  EXPECT_EQ(text_of(0.0372, Unit::seconds), "37.2 ms");
  EXPECT_EQ(text_of(3600, Unit::seconds), "1h00m");
  EXPECT_EQ(text_of(NAN, Unit::number), "n/a");
}

// Of two sequences the first: means over queries, entropy in bits, norms of tokens.
TEST(ReportInside, NumbersOfHeadsAndStatesAreOfTheFirstSequence) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "inside.safetensors";
  io::SafetensorsWriter w(path,
                          {{"attention.0", "F32", {2, 1, 2, 2}},
                           {"embeddings", "F32", {2, 2, 2}},
                           {"layers.10.output", "F32", {1, 2, 2}},
                           {"layers.2.output", "F32", {1, 2, 2}}},
                          {{"ids", "7,8"}});
  w.write<float>(std::vector<float>{1, 0, 0.25, 0.75, 0, 1, 1, 0});
  w.write<float>(std::vector<float>{3, 4, 0, 1, 90, 90, 90, 90});
  w.write<float>(std::vector<float>{0, 20, 0, 40});
  w.write<float>(std::vector<float>{6, 8, 0, -2});
  w.finish();
  const std::string html = inside(path, nullptr);
  // -0.25 log2 0.25 - 0.75 log2 0.75 = 0.811 of the second query, and none of the first.
  for (const char* part :
       {"<td>0</td><td>0.875</td><td>0.250</td><td>0.625</td><td>0.41</td>",
        "<td>embeddings</td><td>3</td><td>1</td><td>5</td>",
        "<td>layers.2.output</td><td>6</td><td>2</td><td>10</td>",
        "<td>layers.10.output</td><td>30</td><td>20</td><td>40</td>", "0 7", "1 8"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  EXPECT_LT(html.find("<td>layers.2.output"), html.find("<td>layers.10.output"));
  EXPECT_EQ(html.find("maps are drawn"), std::string::npos) << "all of them are";
  const std::string other = folder / "other.safetensors";
  io::SafetensorsWriter o(other, {{"logits", "F32", {1}}}, {});
  o.write<float>(std::vector<float>{1});
  o.finish();
  test::expect_error(ExitCode::input, {"nothing to draw"}, [&] { inside(other, nullptr); });
}

}  // namespace
}  // namespace tfm::report
