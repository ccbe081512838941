import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import "./shell/theme";
import "./styles/tokens.css";
import "./styles/elements.css";
import "./styles/shell.css";
import { Shell } from "./shell/shell";

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <Shell />
    </StrictMode>,
  );
}
