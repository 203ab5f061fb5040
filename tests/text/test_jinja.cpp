// The interpreter of chat templates against what transformers and Jinja make of the same templates
// (tests/fixtures/make_chats.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "io/file.h"
#include "text/jinja/operations.h"
#include "text/jinja/template.h"

using namespace tfm;
namespace jinja = text::jinja;

namespace {

const std::string kFolder = TFM_SOURCE_DIR "/tests/fixtures/chats/";

const jinja::Value& member(const jinja::Value& object, const char* name) {
  static const jinja::Value none;
  const jinja::Value* found = object.dict()->find(name);
  return found ? *found : none;
}

std::string source_of(const jinja::Value& line) {
  if (const std::string* source = member(line, "template").string()) return *source;
  std::string source = io::read_whole_file(
      kFolder + "templates/" + *member(line, "file").string() + ".jinja", std::size_t{1} << 20);
  if (member(line, "plain").undefined()) return source;
  for (const auto& [from, to] :
       {std::pair{"endgeneration", "endif"}, {"generation %}", "if true %}"}})
    source = jinja::replaced(source, from, to, -1, [](std::size_t) {});
  return source;
}

jinja::Rendering render(const std::string& source, const jinja::Dict& variables = {}) {
  return jinja::Template(source, "t").render(variables, std::time_t{0});
}

std::string error_of(const std::string& source) {
  try {
    render(source);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::input);
    return e.what();
  }
  return "";
}

}  // namespace

TEST(Jinja, EqualsTransformers) {
  std::ifstream file(kFolder + "expected.jsonl");
  std::int64_t number = 0, errors = 0;
  std::map<std::string, jinja::Value> defined;
  for (std::string text; std::getline(file, text); ++number) {
    SCOPED_TRACE("line " + std::to_string(number + 1) + ": " + text.substr(0, 160));
    const jinja::Value line = jinja::parse_json(text, "expected.jsonl");
    if (const std::string* name = member(line, "define").string()) {
      defined[*name] = member(line, "variables");
      continue;
    }
    const std::string* const name = member(line, "name").string();
    const jinja::Value variables = name ? defined.at(*name) : member(line, "variables");
    const bool fails = !member(line, "error").undefined();
    try {
      const jinja::Rendering r = render(source_of(line), *variables.dict());
      EXPECT_FALSE(fails) << "expected an error, got: " << r.text;
      if (fails) continue;
      EXPECT_EQ(r.text, *member(line, "text").string());
      const auto& spans = *member(line, "spans").sequence()->items;
      ASSERT_EQ(r.generations.size(), spans.size());
      for (std::size_t i = 0; i < spans.size(); ++i) {
        EXPECT_EQ(static_cast<std::int64_t>(r.generations[i].begin),
                  jinja::item(spans[i], std::int64_t{0}).integer(""));
        EXPECT_EQ(static_cast<std::int64_t>(r.generations[i].end),
                  jinja::item(spans[i], std::int64_t{1}).integer(""));
      }
    } catch (const Error& e) {
      ++errors;
      EXPECT_TRUE(fails) << e.what();
    }
  }
  EXPECT_GT(number, 800);
  EXPECT_GT(errors, 80);
}

TEST(Jinja, ErrorsNameThePlaceAndWhatWasExpected) {
  EXPECT_EQ(error_of("a\nb {{ x.y }}"), "t:2:7: 'x' is undefined");
  EXPECT_EQ(error_of("{% if a %}"),
            "t:1:11: found the end of the template; expected {% elif, else, endif %}");
  EXPECT_EQ(error_of("{{ 1 + }}"), "t:1:8: found }}; expected an expression");
  EXPECT_EQ(error_of("\n {{ 'a' | nosuch }}").substr(0, 45),
            "t:2:11: the filter 'nosuch' is not supported;");
  EXPECT_EQ(error_of("{{ raise_exception('no turn') }}"),
            "t:1:19: the template refuses the conversation: no turn");
  EXPECT_EQ(error_of("{{ [].append(1) }}"),
            "t:1:13: the sandbox of chat templates does not allow .append");
  EXPECT_EQ(error_of("a\n\xFF").substr(0, 32), "t:2:1: the template is not UTF-8");
}

// No template runs, grows or nests without end.
TEST(Jinja, EndsWhateverTheTemplateDoes) {
  const auto repeat = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  for (const std::string& source :
       {std::string(
            "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
        std::string("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
        std::string("{{ '%d' % 1e300 }}"),
        std::string("{{ 'a'.center(9223372036854775807, 'é') }}"),
        std::string("{{ [1] | batch(9223372036854775807, 0) | list }}"),
        std::string("{{ ('a' * 8000000) | list }}"),
        std::string("{{ 'a' | indent(9223372036854775807, true) }}"),
        std::string("{{ 'a' * 99999999999 }}"),
        std::string("{{ [1] * 99999999999 }}"),
        std::string("{% set n = namespace(x=[1]) %}{% for i in range(1000) %}{% set n.x = [n.x, "
                    "n.x] %}{% endfor %}"),
        std::string("{% set n = namespace(x=[1]) %}{% for i in range(1000) %}{% set n.x = [n.x] "
                    "%}{% endfor %}"),
        std::string("{% set n = namespace(x='ab') %}{% for i in range(1000) %}{% set n.x = n.x ~ "
                    "n.x %}{% endfor %}"),
        std::string("{% set ns = namespace(p=none) %}{% for k in range(3) %}{% for i in "
                    "range(90000) %}{% set ns.p = namespace(p=ns.p) %}{% endfor %}{% endfor %}"),
        std::string("{% set ns = namespace(d=dict(a=1)) %}{% for k in range(2) %}{% for i in "
                    "range(90000) %}{% set ns.d = dict(a=ns.d.get) %}{% endfor %}{% endfor %}"),
        std::string("{% set ns = namespace(d=[1]) %}{% for k in range(90000) %}{% for i in "
                    "[ns.d] %}{% set ns.d = loop %}{% endfor %}{% endfor %}"),
        std::string("{% set n = namespace() %}{% set n.self = n %}"),
        std::string("{{ [1, 2] | tojson(indent='a' * 8000000) }}"),
        std::string("{{ [1, 2, 3] | tojson(separators=('a' * 8000000, 'b')) }}"),
        std::string("{{ ('%(a)s' * 1000000) % {'a': 'x' * 1000000} }}"),
        std::string("{% set a = 'x' * 8000000 %}{{ a ~ a ~ a ~ a ~ a ~ a ~ a ~ a }}"),
        std::string("{{ ('a,' * 4000000).split(',') | length }}"),
        std::string("{% set a = 'x' * 8000000 %}{% for i in range(100000) %}{{ a.find('y') }}"
                    "{% endfor %}"),
        std::string("{% set a = 'x' * 8000000 %}{% set b = 'x' * 4000000 ~ 'y' %}{% for i in "
                    "range(100000) %}{% if b in a or a.rfind(b) > 0 or a.count(b) %}{% endif %}"
                    "{% endfor %}"),
        "{{ " + repeat("(", 100000),
        "{{ " + repeat("-", 100000) + "1 }}",
        "{{ " + repeat("not ", 100000) + "1 }}",
        "{{ 1" + repeat(" + 1", 100000) + " }}",
        "{{ a" + repeat(".b", 100000) + " }}",
        "{{ a" + repeat("|e", 100000) + " }}",
        repeat("{% if true %}", 50000),
        "{% set " + repeat("(", 100000)})
    EXPECT_NE(error_of(source), "") << source.substr(0, 80);
  EXPECT_EQ(render("{% set n = namespace() %}{% macro f() %}{% endmacro %}{% set n.f = f %}x").text,
            "x");
}

TEST(Jinja, StepsGrowWithTheVariables) {
  std::string json;
  for (int i = 0; i < 1000; ++i)
    json += std::string(i ? "," : "") + R"({"role": ")" + (i % 2 ? "assistant" : "user") +
            R"(", "content": ")" + std::string(1000, 'a') + "\"}";
  jinja::Dict variables;
  variables.set("messages", jinja::parse_json("[" + json + "]", "m"));
  variables.set("add_generation_prompt", false);
  const std::string source =
      io::read_whole_file(kFolder + "templates/qwen3.jinja", std::size_t{1} << 20);
  EXPECT_GT(render(source, variables).text.size(), 1'000'000U);
  // All pairs of messages: what a short conversation has no steps for.
  const std::string pairs =
      "{% for a in messages %}{% for b in messages %}{% if a.role == b.role %}{% endif %}{% endfor "
      "%}{% endfor %}";
  EXPECT_EQ(render(pairs, variables).text, "");
  EXPECT_THROW(render("{% for a in range(1000) %}{% for b in range(1000) %}{% if a == b %}{% endif "
                      "%}{% endfor %}{% endfor %}"),
               jinja::LimitError);
}

TEST(Jinja, ChainsOfComparisonsCompareNeighbors) {
  EXPECT_EQ(
      render("{{ 1 < 3 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 > 2 }} {{ 3 > 2 >= 2 }} {{ 3 > 2 > 2 }} "
             "{{ 1 in [1] in [[1]] }} {{ 2 != 1 == 1 }}")
          .text,
      "False True True True False True True");
}

TEST(Jinja, FindsFromBothSides) {
  EXPECT_EQ(
      render("{{ 'aébéc'.find('é', 2) }} {{ 'aébéc'.rfind('é') }} {{ 'abc'.rfind('d') }}").text,
      "3 3 -1");
  EXPECT_EQ(render("{{ 'a--b--c'.rsplit('--', 1) }}{{ 'a--b--c'.rpartition('--') }}").text,
            "['a--b', 'c']('a--b', '--', 'c')");
  EXPECT_EQ(render("{{ 'aaa'.rsplit('aa') }}{{ 'aaa'.split('aa') }}{{ 'éé'.rsplit('é') }}").text,
            "['a', '']['', 'a']['', '', '']");
}

TEST(Jinja, KnowsWhichMessageALoopWasAt) {
  jinja::Dict variables;
  variables.set("messages", jinja::parse_json(R"([{"c": "a"}, {"c": "bb"}, {"c": ""}])", "m"));
  const jinja::Rendering r = render(
      "<{% for m in messages[::-1] %}{% for x in [1, 2] %}{{ m.c }}{% endfor %}{% endfor %}>"
      "{% for m in messages %}{% macro f() %}[{{ m.c }}]{% endmacro %}{{ f() }}{% endfor %}",
      variables);
  EXPECT_EQ(r.text, "<bbbbaa>[a][bb][]");
  EXPECT_EQ(r.messages[0], (std::vector<jinja::Span>{{5, 7}, {8, 11}}));
  EXPECT_EQ(r.messages[1], (std::vector<jinja::Span>{{1, 5}, {11, 15}}));
  EXPECT_EQ(r.messages[2], (std::vector<jinja::Span>{{15, 17}}));
}

TEST(Jinja, TimeIsUndefinedUnlessGiven) {
  const jinja::Template t("{{ strftime_now('%Y') if strftime_now is defined else 'none' }}", "t");
  EXPECT_EQ(t.render({}).text, "none");
  try {
    jinja::Template("{{ strftime_now('%Y') }}", "t").render({});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("strftime_now is not available in training"),
              std::string::npos);
  }
  EXPECT_EQ(t.render({}, std::time_t{86400 * 40}).text, "1970");
}
