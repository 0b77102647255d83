// A menu on the pages of docs/differences/: it shows only the examples where one runtime differs, and only its column.
// `?runtime=OpenVINO` in the address chooses a runtime. Without this script the pages show everything.

function headersOf(table) {
  return [...table.querySelectorAll("thead th")].map((header) => header.textContent.trim());
}

function runtimesThatDiffer(items) {
  // An item of a runtime that differs starts with its name in bold; one of several equal runtimes has no bold name.
  return items.flatMap((item) => (item.firstElementChild?.tagName === "STRONG" ? [item.firstElementChild.textContent] : []));
}

function sectionsOf(article) {
  // A section is a heading with all elements up to the next heading: of a rule (h3) or of an example (h4).
  const sections = [];
  for (const element of article.children) {
    if (["H3", "H4"].includes(element.tagName)) {
      sections.push({ level: element.tagName, elements: [element], runtimes: [] });
    } else if (sections.length) {
      const section = sections.at(-1);
      section.elements.push(element);
      section.runtimes.push(...runtimesThatDiffer([...element.querySelectorAll(":scope > li")]));
    }
  }
  return sections;
}

function show(article, runtime) {
  const sections = sectionsOf(article);
  let rule = null;
  for (const section of sections) {
    if (section.level === "H3") {
      rule = section;
      rule.isShown = !runtime;
      continue;
    }
    section.isShown = !runtime || section.runtimes.includes(runtime);
    rule.isShown ||= section.isShown;
  }
  for (const section of sections) {
    for (const element of section.elements) element.hidden = !section.isShown;
  }
  const table = article.querySelector("table");
  const column = headersOf(table).indexOf(runtime);
  for (const row of table.rows) {
    [...row.cells].forEach((cell, i) => (cell.hidden = column > 0 && i !== 0 && i !== column));
  }
}

function addMenu() {
  const article = document.querySelector("article");
  const title = article?.querySelector("h1")?.firstChild.textContent ?? "";
  if (!title.startsWith("Where runtimes differ: ")) return;
  const table = article.querySelector("table");
  const label = document.createElement("label");
  const menu = document.createElement("select");
  menu.id = "runtime";
  menu.add(new Option("all", ""));
  for (const name of headersOf(table).slice(1)) menu.add(new Option(name, name));
  label.append("Runtime: ", menu);
  (table.closest(".md-typeset__scrollwrap") ?? table).before(label);
  menu.value = new URLSearchParams(location.search).get("runtime") ?? "";
  if (menu.selectedIndex < 0) menu.value = "";
  menu.addEventListener("change", () => {
    const address = new URL(location.href);
    if (menu.value) address.searchParams.set("runtime", menu.value);
    else address.searchParams.delete("runtime");
    history.replaceState(null, "", address);
    show(article, menu.value);
  });
  show(article, menu.value);
}

document.addEventListener("DOMContentLoaded", addMenu);
