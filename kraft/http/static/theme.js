// Runs before the first paint: the theme that this browser chose, else the system's.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => {
    try {
      return localStorage.getItem("kraft.theme");
    } catch {
      return null; // a browser that keeps nothing follows its system
    }
  };
  const apply = () => {
    const chosen = kept();
    document.documentElement.dataset.theme = chosen === "light" || chosen === "dark" ? chosen : dark.matches ? "dark" : "light";
    document.dispatchEvent(new Event("kraft-theme"));
  };
  dark.addEventListener("change", apply);
  document.addEventListener("kraft-theme-chosen", (event) => {
    try {
      localStorage.setItem("kraft.theme", event.detail);
    } catch {
      document.documentElement.dataset.theme = event.detail;
    }
    apply();
  });
  apply();
})();
