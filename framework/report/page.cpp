#include "report/page.h"

#include "report/sections.h"

namespace tfm::report {
namespace {

// Okabe and Ito's colours, which people with any colour vision tell apart, made darker for light
// paper and lighter for dark.
constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--paper:#fff;--card:#f7f8fa;--ink:#1b1f24;--soft:#57606a;--rule:#d5dae0;
--c0:#0072b2;--c1:#c24e00;--c2:#00795a;--c3:#a8477e;--c4:#946200;--c5:#2f9bd6;--c6:#3a3a3a;--c7:#7a6f00;--accent:#0b5cad}
@media(prefers-color-scheme:dark){:root{--paper:#14171b;--card:#1c2026;--ink:#e6e9ed;--soft:#a3acb7;--rule:#3a424c;
--c0:#4aa8e8;--c1:#ff8a4a;--c2:#2fc79d;--c3:#e79ac4;--c4:#f0b43c;--c5:#b9e3fb;--c6:#d6d6d6;--c7:#f0e442;--accent:#7cc0ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
header,main,footer{max-width:1120px;margin:0 auto;padding:0 16px}
h1{font-size:1.5rem;margin:24px 0 4px;overflow-wrap:anywhere}h2{font-size:1.2rem;margin:40px 0 12px}h3{font-size:1rem;margin:0}
a{color:var(--accent)}
.choice{position:fixed;opacity:0;pointer-events:none}
.choices{position:sticky;top:0;z-index:1;background:var(--paper);border-bottom:1px solid var(--rule);max-width:1120px;margin:0 auto;padding:6px 16px;display:flex;flex-wrap:wrap;gap:4px 6px;align-items:center;font-size:.87rem}
.choices span{color:var(--soft)}.choices label+span{margin-left:14px}.choices label{padding:2px 8px;border:1px solid var(--rule);border-radius:6px;cursor:pointer}
.skip{position:absolute;left:-9999px}.skip:focus{left:8px;top:8px;background:var(--paper);padding:8px}
nav ul{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;padding:0;margin:12px 0}
nav a{display:inline-block;padding:4px 0}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}
figure{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:14px 16px;min-width:0}
figure.wide{grid-column:1/-1}
figcaption p,.about{margin:2px 0 8px;color:var(--soft);font-size:.87rem}
.frame{padding:0 30px 44px 64px}.bars{padding:4px 2px}
.unit{margin:0 0 8px -62px;color:var(--soft);font-size:12px}
svg.plot{display:block;width:100%;height:240px;overflow:visible}
.wide svg.plot{height:320px}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}
.frame svg text{fill:var(--soft)}
.end{text-anchor:end}.mid{text-anchor:middle}
.over{overflow:visible}
.grid{stroke:var(--rule);stroke-width:1}
.mark{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:2 4;fill:none}
.l{fill:none;stroke-width:2;vector-effect:non-scaling-stroke;stroke-linejoin:round;stroke-linecap:round}
.faint{stroke-width:1;opacity:.45;stroke-dasharray:none!important}.thin{stroke-width:1;stroke-dasharray:2 4!important}
.area{stroke:none;opacity:.18}.m{stroke:var(--card);stroke-width:1}
.b{stroke:var(--card);stroke-width:1.5}
.l.s1{stroke-dasharray:8 5}.l.s2{stroke-dasharray:2 5}.l.s3{stroke-dasharray:9 4 2 4}.l.s4{stroke-dasharray:14 5}
.l.s5{stroke-dasharray:5 3}.l.s6{stroke-dasharray:12 3 2 3 2 3}.l.s7{stroke-dasharray:3 2}
.tag{font-weight:700!important}
.legend{display:flex;flex-wrap:wrap;gap:2px 18px;list-style:none;margin:4px 0 8px;padding:0;font-size:.87rem}
.legend li{overflow-wrap:anywhere}
.key{width:28px;height:12px;margin-right:7px;overflow:visible;vertical-align:-1px}
.scroll{overflow:auto;border:1px solid var(--rule);border-radius:6px}
table{border-collapse:collapse;font-size:.87rem;font-variant-numeric:tabular-nums;width:100%}
caption{text-align:left;padding:6px 10px;color:var(--soft)}
th,td{padding:4px 10px;text-align:right;border-top:1px solid var(--rule);white-space:nowrap}
th:first-child,td:first-child{text-align:left}
td:first-child,.words td{white-space:normal;overflow-wrap:break-word;min-width:8em}
.words th,.words td{text-align:left}
thead th{position:sticky;top:0;background:var(--card);border-top:0}
details .scroll{max-height:420px}details{margin-top:8px}summary{cursor:pointer;padding:4px 0;color:var(--accent)}
pre{overflow:auto;max-height:420px;background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:10px;font-size:.82rem}
.none{color:var(--soft)}.notes{border-left:4px solid var(--c1);padding:2px 14px;background:var(--card)}
footer{color:var(--soft);font-size:.87rem;padding-bottom:40px;margin-top:40px}
)";

std::string colors() {
  std::string css;
  for (int i = 0; i < kStyles; ++i) {
    const std::string n = std::to_string(i), color = "var(--c" + n + ")";
    css += ".l.s" + n + "{stroke:" + color + "}.b.s" + n + ",.m.s" + n + ",.area.s" + n +
           "{fill:" + color + "}.frame svg text.t" + n + "{fill:" + color + "}.mark.k" + n +
           "{stroke:" + color + "}\n";
  }
  return css;
}

std::string notes(const Runs& runs) {
  std::string items;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const std::string& note : runs[i].notes)
      items += "<li>" + escaped(label(runs, i) + ": " + note) + "</li>";
  return items.empty() ? "" : "<div class=\"notes\" role=\"note\"><ul>" + items + "</ul></div>\n";
}

// What a reader can choose, without a script: a hidden button for each choice, which style sheets
// ask, and its label. `labels`: these, else the buttons, which stand in front of all that they
// change.
std::string choices(const std::string& body, bool labels) {
  struct Choice {
    const char *id, *text;
  };
  const struct {
    const char *name, *title, *needed;
    std::vector<Choice> all;
  } groups[] = {{"x",
                 "Axis",
                 "class=\"x-time\"",
                 {{"x-step", "steps"}, {"x-time", "time"}, {"x-date", "date"}}},
                {"lines",
                 "Lines",
                 " avg\"",
                 {{"l-both", "logged and smoothed"}, {"l-avg", "smoothed"}, {"l-raw", "logged"}}}};
  std::string html;
  for (const auto& group : groups) {
    if (body.find(group.needed) == std::string::npos) continue;
    if (labels) html += std::string("<span>") + group.title + "</span>";
    for (const auto& [id, text] : group.all)
      html += labels ? std::string("<label for=\"") + id + "\">" + text + "</label>"
                     : std::string("<input type=\"radio\" class=\"choice\" name=\"") + group.name +
                           "\" id=\"" + id + "\"" + (id == group.all[0].id ? " checked>" : ">");
  }
  return labels && !html.empty() ? "<div class=\"choices\">" + html + "</div>\n" : html;
}

std::string choice_styles() {
  std::string css;
  for (const std::string id : {"x-step", "x-time", "x-date", "l-both", "l-avg", "l-raw"}) {
    css += "#" + id + ":checked~.choices [for=" + id +
           "]{background:var(--accent);color:var(--paper)}#" + id +
           ":focus-visible~.choices [for=" + id +
           "]{outline:2px solid var(--accent);outline-offset:2px}\n";
    if (id[0] == 'x')
      css += "#" + id + ":checked~main div[class^=x-]:not(." + id + "){display:none}\n";
  }
  return css +
         "#l-avg:checked~main .raw,#l-raw:checked~main .avg{display:none}"
         "#l-raw:checked~main .raw{opacity:1;stroke-width:1.5}\n";
}

}  // namespace

std::string page(const Runs& runs, const std::string& inside) {
  struct Section {
    const char *id, *title;
    std::string html;
  };
  std::vector<Section> sections{{"inside", "Inside of the model", inside}};
  if (!runs.empty())
    sections.insert(sections.begin(), {{"differences", "What differs", differences(runs)},
                                       {"summary", "Summary", summary(runs)},
                                       {"loss", "Loss", loss(runs)},
                                       {"evaluation", "Evaluation", evaluations(runs)},
                                       {"optimization", "Optimization", optimization(runs)},
                                       {"speed", "Speed", speed(runs)},
                                       {"time", "Time by phase", phases(runs)},
                                       {"memory", "Memory", memory(runs)},
                                       {"collectives", "Collectives", collectives(runs)},
                                       {"experts", "Experts", experts(runs)},
                                       {"scaling", "Scaling", scaling(runs)},
                                       {"configuration", "Configuration", configuration(runs)}});
  const std::string title = runs.empty()       ? "Inside of a model"
                            : runs.size() == 1 ? "Run " + runs[0].name
                                               : std::to_string(runs.size()) + " runs compared";
  std::string nav, body;
  for (const Section& s : sections) {
    if (s.html.empty()) continue;
    nav += std::string("<li><a href=\"#") + s.id + "\">" + s.title + "</a></li>";
    body += std::string("<section id=\"") + s.id + "\" aria-labelledby=\"" + s.id +
            "-h\"><h2 id=\"" + s.id + "-h\">" + s.title + "</h2>\n" + s.html + "</section>\n";
  }
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'; img-src data:\">\n"
         "<link rel=\"icon\" href=\"data:,\">\n<title>" +
         escaped(title) + " - tfm report</title>\n<style>" + kStyle + colors() + choice_styles() +
         "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the report</a>\n" +
         choices(body, false) + "<header><h1>" + escaped(title) +
         "</h1>\n<nav aria-label=\"Sections\"><ul>" + nav + "</ul></nav></header>\n" +
         choices(body, true) + "<main id=\"main\">\n" + notes(runs) + body +
         "</main>\n<footer><p>Written by tfm-report. Pictures draw at most 500 columns; where a "
         "column holds more values, it shows the smallest and the largest of them. Where a pale "
         "and a "
         "strong line are drawn, the pale one is what was logged, the strong one its average over "
         "both sides, with weights that fall by e in a 100th of the steps. Tables show "
         "values as they were logged, at up to 60 steps.</p></footer>\n</body>\n</html>\n";
}

}  // namespace tfm::report
