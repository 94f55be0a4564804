// The views that are not in the menu.
import { el } from "./dom.js";

export const more = {
  title: "More",
  keys: [["Tab, Enter", "the views"]],
  async make({ views }) {
    const rest = Object.entries(views).filter(([, view]) => view.under);
    return { parts: [el("h1", {}, "More"), el("ul", { class: "plain tiles" }, rest.map(([name, view]) =>
      el("li", {}, el("a", { class: "card", href: `#${name}` }, el("strong", {}, view.title), el("span", { class: "quiet" }, view.about)))))] };
  },
};
