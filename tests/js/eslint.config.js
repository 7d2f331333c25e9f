import js from "@eslint/js";
import globals from "globals";

const rules = {
  eqeqeq: "error",
  "max-len": ["error", { code: 120, ignoreUrls: true }],
  "max-lines": ["error", 400],
  "max-lines-per-function": ["error", 70],
  "no-implicit-globals": "error",
  "no-restricted-properties": ["error", { property: "innerHTML" }, { property: "outerHTML" }],
  "no-shadow": ["error", { allow: ["name"] }],
  "no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
  "no-var": "error",
  "prefer-const": "error",
};

export default [
  { ignores: ["node_modules/"] },
  js.configs.recommended,
  { files: ["src/regard/server/web/js/**/*.js"], languageOptions: { globals: globals.browser }, rules },
  { files: ["tests/js/**/*.js"], languageOptions: { globals: globals.node }, rules },
];
