import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import "../shell/theme";
import "../styles/tokens.css";
import "../styles/elements.css";
import { Portal } from "./portal";
import "./portal.css";

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <Portal />
    </StrictMode>,
  );
}
