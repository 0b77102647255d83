// Labels the cells of tables by their column: on a phone site.css shows the rows of a table of texts one below another.

function labelCells(table) {
  const headers = [...table.querySelectorAll("thead th")].map((header) => header.textContent.trim());
  const isOfNumbers = table.querySelector('th[style*="right"], th[align="right"]') !== null;
  if (headers.length < 3 || isOfNumbers) return;
  table.dataset.rows = "stacked";
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, i) => (cell.dataset.label = headers[i]));
  }
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".md-typeset table:not([class])").forEach(labelCells);
});
