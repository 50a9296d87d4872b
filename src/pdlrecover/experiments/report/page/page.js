// What the page does when it has loaded: charts, tables, copying, and the theme.

/** Copies the command beside a button, and says so. */
function copying(button) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      // Without a clipboard for scripts: select it, and copy as by hand.
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
}

/** Light or dark: what the reader chose before, else what the system says. */
function theme(button) {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const tell = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  };
  try {
    const kept = localStorage.getItem("theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch {
    // No storage for this page: the choice lasts as long as the page is open.
  }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // As above.
    }
    tell();
  });
  system.addEventListener("change", tell);
  tell();
}

document.querySelectorAll("figure").forEach((holder, i) => chart(holder, CHARTS.charts[i]));
document.querySelectorAll(".table table").forEach(sortable);
document.querySelectorAll(".sideways").forEach(sideways);
document.querySelectorAll(".fold").forEach(unfolding);
document.querySelectorAll(".copy").forEach(copying);
theme(document.getElementById("theme"));
