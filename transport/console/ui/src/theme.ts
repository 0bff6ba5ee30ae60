export type Theme = "auto" | "light" | "dark";

const key = "aguihub-theme";
const order: Theme[] = ["auto", "light", "dark"];

export let theme: Theme = (() => {
  try {
    return order.find((t) => t === localStorage.getItem(key)) ?? "auto";
  } catch {
    return "auto"; // storage is switched off
  }
})();

export function useTheme(next: Theme): void {
  theme = next;
  document.documentElement.dataset["theme"] = next;
  try {
    localStorage.setItem(key, next);
  } catch {
    // It holds until the page is left.
  }
}

export const nextTheme = () => order[(order.indexOf(theme) + 1) % order.length]!;
