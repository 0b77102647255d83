// Labels the cells of tables by their column: on a phone site.css shows each row as a block with these labels.
// A table that is wider than the page gets small letters, and breaks its lines anywhere.

function labelCells(table) {
  const headers = [...table.querySelectorAll("thead th")].map((header) => header.textContent.trim());
  const isOfNumbers = table.querySelector('th[style*="right"], th[align="right"]') !== null;
  if (headers.length < 3) return;
  table.dataset.rows = isOfNumbers ? "numbers" : "stacked";
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, i) => (cell.dataset.label = headers[i]));
  }
}

function tighten(table) {
  if (table.offsetWidth > table.closest(".md-content__inner").clientWidth) table.dataset.fit = "tight";
}

document.addEventListener("DOMContentLoaded", () => {
  const tables = document.querySelectorAll(".md-typeset table:not([class])");
  tables.forEach(labelCells);
  tables.forEach(tighten);
});
